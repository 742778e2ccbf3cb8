// The page, as a person uses it: every view, at desktop and phone width, with an accessibility check and a
// screenshot each (in test-results/screenshots).

import { AxeBuilder } from '@axe-core/playwright';
import { expect, test as base, type Page, type WebSocketRoute } from '@playwright/test';
import { LONG, LONG_LENGTH, longSeed, MAIN, ODD, seeds } from './fixture';
import { type Gateway, start } from './start';

let gateway: Gateway;

const test = base.extend<{ problems: string[] }>({
  // What the browser complains about: errors of the page, and what its security policy stopped.
  problems: [
    async ({ page }, use) => {
      const problems: string[] = [];
      page.on('pageerror', (error) => problems.push(String(error)));
      page.on('console', (message) => {
        if (message.type() === 'error' && !/WebSocket|Failed to load resource|net::ERR/.test(message.text())) problems.push(message.text());
      });
      page.on('request', (request) => {
        const url = request.url();
        if (!url.startsWith(gateway.url) && !/^(data|blob):/.test(url)) problems.push(`a request to ${url}`);
      });
      await use(problems);
      expect(problems).toEqual([]);
    },
    { auto: true },
  ],
});

test.beforeAll(async () => {
  gateway = await start([...seeds(Date.now()), longSeed(Date.now())]);
});
test.afterAll(() => gateway?.stop());

const isPhone = () => test.info().project.name === 'phone';

/** Signs in without the form, and opens a view. */
async function open(page: Page, hash = '#/', token = gateway.token): Promise<void> {
  const answer = await page.request.post(`${gateway.url}/login`, { data: { token }, headers: { Origin: gateway.url } });
  expect(answer.ok()).toBe(true);
  await page.goto(`${gateway.url}/${hash}`);
  await expect(page.locator('.connection.open')).toBeAttached();
}

/** Checks the view for barriers, and keeps a picture of it. */
async function look(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: `test-results/screenshots/${name}-${test.info().project.name}.png` });
  const { violations } = await new AxeBuilder({ page }).analyze();
  expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(' ')).join(', ')}`)).toEqual([]);
}

/** Writes a message and sends it, as soon as it can be sent. */
async function say(page: Page, message: string): Promise<void> {
  await composer(page).fill(message);
  await expect(page.getByRole('button', { name: 'Send', exact: true })).toBeEnabled();
  await composer(page).press('Enter');
}

/** Starts a session with an agent, and waits until it is open. */
async function begin(page: Page, agent: string, message: string): Promise<void> {
  await open(page, `#/new/${agent}`);
  await page.getByLabel('First message').fill(message);
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await expect(page).toHaveURL(/#\/s\//);
  await expect(page.locator('.transcript article.person').getByText(message).first()).toBeVisible();
}

/** Finds words in the transcript, not where a screen reader is told of them. */
const words = (page: Page, text: string | RegExp) => page.locator('.transcript article .words').getByText(text);

const tab = (page: Page, name: string) => page.locator('.tabs').getByRole('link', { name });
/** The field of the sign-in, and nothing of the list of tokens. */
const tokenField = (page: Page) => page.getByRole('main').getByLabel('Token', { exact: true });
const composer = (page: Page) => page.getByRole('textbox', { name: 'Message', exact: true });

test('without a sign-in there is a form, and a wrong token says so', async ({ page }) => {
  await page.goto(`${gateway.url}/`);
  await expect(page.getByRole('heading', { name: 'Intersession' })).toBeVisible();
  await tokenField(page).fill('not a token');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('alert')).toBeVisible();
  await look(page, 'sign-in');
  await tokenField(page).fill(gateway.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.locator('.session-row').first()).toBeVisible();
  // The token is in no storage that a script can read.
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]));
  expect(kept).not.toContain(gateway.token);
});

test('a used link says so, and its code leaves the address', async ({ page }) => {
  await page.goto(`${gateway.url}/#login=used-before`);
  await expect(page.getByRole('alert')).toContainText('The link did not work');
  expect(page.url()).not.toContain('used-before');
});

test('the list shows sessions, searches while typing, and filters', async ({ page }) => {
  await open(page);
  await expect(page.locator('.session-row').first()).toBeVisible();
  await look(page, 'sessions');
  await page.getByRole('searchbox', { name: 'Search sessions' }).fill('full disk');
  await expect(page.locator('.session-row')).toHaveCount(1);
  await expect(page.locator('.session-row')).toContainText('Make the importer survive a full disk');
  await expect(page.locator('.session-row')).toContainText('16 messages');
  await expect(page.locator('.session-row-words')).toHaveText(/^It is cleared now, and the summary follows/);
  await page.getByRole('searchbox').fill('no such session anywhere');
  await expect(page.getByRole('heading', { name: 'Nothing found' })).toBeVisible();
  await look(page, 'sessions-nothing');
  await page.getByRole('button', { name: 'Show all sessions' }).click();
  await page.getByRole('button', { name: /Filters/ }).click();
  await page.getByLabel('Agent', { exact: true }).selectOption('planner');
  await expect(page.locator('.session-row').filter({ hasText: 'importer' })).toHaveCount(0);
  await expect(page.locator('.session-row').first()).toContainText('planner');
  await look(page, 'sessions-filters');
});

test('titles cannot hide anything', async ({ page }) => {
  await open(page);
  await page.getByRole('searchbox').fill('Titles with');
  const row = page.locator('.session-row');
  await expect(row).toHaveCount(1);
  expect(await row.innerText()).not.toMatch(/[\u0007\u001b\u202e]/);
  await expect(row).toContainText('<b>markup</b>');
});

test('a transcript shows who said what', async ({ page }) => {
  await open(page, `#/s/${MAIN}`);
  await expect(words(page, 'It is cleared now')).toBeVisible();
  await look(page, 'transcript');
  await page.locator('.transcript').evaluate((element) => (element.scrollTop -= 700));
  // The words of another session look different, say where they come from, and lead there.
  const peer = page.locator('article.peer');
  await expect(peer).toContainText('I looked at all writers');
  await expect(peer.locator('.by')).toContainText('from session');
  await expect(peer.locator('.by')).not.toContainText('You');
  const [peerColour, personColour] = await Promise.all(
    ['.peer .words', '.person .words'].map((part) => page.locator(`article${part}`).first().evaluate((element) => getComputedStyle(element).backgroundColor)),
  );
  expect(peerColour).not.toBe(personColour);
  await peer.scrollIntoViewIfNeeded();
  await look(page, 'transcript-peer');
  await peer.locator('.by a.session-link').click();
  await expect(page.getByRole('heading', { name: 'Find every place' })).toBeVisible();
});

test('tool calls are folded, and open with arguments and result', async ({ page }) => {
  await open(page, `#/s/${MAIN}/9`);
  const call = page.getByRole('button', { name: /shell cargo nextest/ });
  await expect(call).toHaveAttribute('aria-expanded', 'false');
  await expect(call).toContainText('failed');
  await call.click();
  await expect(page.getByText('no space left on device')).toBeVisible();
  await page.getByRole('button', { name: /Thinking/ }).click();
  await expect(page.locator('.step-body.thinking')).toContainText('one transaction per file');
  await look(page, 'transcript-tools');
});

test('markup in messages stays text', async ({ page }) => {
  await open(page, `#/s/${ODD}`);
  await expect(words(page, 'That is only text.')).toBeVisible();
  await expect(page.locator('.transcript img')).toHaveCount(0);
  expect(await page.locator('.transcript a[href^="javascript"]').count()).toBe(0);
  expect(await page.title()).toContain('Intersession');
});

test('an unknown session says so', async ({ page }) => {
  await open(page, '#/s/agent:root:chat:nowhere');
  await expect(page.getByRole('heading', { name: 'There is no such session' })).toBeVisible();
  await look(page, 'transcript-missing');
});

test('a new session gets its reply', async ({ page }) => {
  await open(page, '#/new');
  await expect(page.getByText('Who should do it?')).toBeVisible();
  await look(page, 'new');
  await begin(page, 'root', 'good evening');
  await expect(page.locator('article.agent').getByText('Markdown', { exact: true })).toBeVisible();
  await expect(page.locator('.code').getByText('const')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Stop' })).toBeHidden();
  // A reply that just ends says nothing about its end.
  await expect(page.getByText('Stopped:')).toHaveCount(0);
});

test('the list says what was said last, while it is said', async ({ page }) => {
  test.skip(isPhone(), 'a phone shows one pane at a time');
  await begin(page, 'reviewer', 'first');
  await expect(words(page, 'All right.')).toHaveCount(1);
  const row = page.locator('.session-row.current');
  await expect(row).toContainText('2 messages');
  await expect(row.locator('.session-row-words')).toHaveText('All right.');
  await say(page, 'once more');
  await expect(row).toContainText('4 messages');
});

test('messages are sent with Enter, and a draft is kept', async ({ page }) => {
  await begin(page, 'reviewer', 'first');
  await expect(words(page, 'All right.').first()).toBeVisible();
  await composer(page).fill('a second');
  await composer(page).press('Shift+Enter');
  await composer(page).pressSequentially('with two lines');
  await composer(page).press('Enter');
  await expect(page.locator('article.person').last()).toContainText('with two lines');
  await expect(words(page, 'All right.')).toHaveCount(2);
  await expect(composer(page)).toHaveValue('');
  await composer(page).fill('not sent yet');
  await page.reload();
  await expect(composer(page)).toHaveValue('not sent yet');
});

test('a run is stopped with Escape, and what was queued is seen', async ({ page }) => {
  await begin(page, 'root', 'take your time');
  await expect(page.getByRole('button', { name: 'Stop' })).toBeVisible();
  await say(page, 'and then this');
  await expect(page.locator('.sent')).toContainText('Waits for its turn');
  await expect(page.locator('.activity')).toContainText('1 queued');
  await look(page, 'composer-running');
  await composer(page).press('Escape');
  await expect(page.getByRole('button', { name: 'Stop' })).toBeHidden();
  // How it ended stays where it ended.
  const outcome = page.locator('.outcome');
  await expect(outcome).toHaveText('The run was cancelled.');
  await say(page, 'good evening');
  await expect(words(page, 'Markdown')).toBeVisible();
  await expect(outcome).toHaveText('The run was cancelled.');
  const rows = await page.locator('.transcript article').evaluateAll((all) => all.map((one) => one.className));
  expect(rows.findIndex((name) => name.includes('outcome'))).toBeLessThan(rows.findLastIndex((name) => name.includes('person')));
  await look(page, 'transcript-outcome');
});

test('what runs is not called aborted for what ran before', async ({ page }) => {
  test.skip(isPhone(), 'a phone shows one pane at a time');
  await begin(page, 'root', 'take your time');
  const row = page.locator('.session-row.current');
  await expect(row.locator('.dot.running')).toBeVisible();
  await composer(page).press('Escape');
  await expect(row).toContainText('aborted');
  await say(page, 'take more time');
  await expect(row.locator('.dot.running')).toBeVisible();
  await expect(row).not.toContainText('aborted');
  await composer(page).press('Escape');
  await expect(row).toContainText('aborted');
});

test('files are attached', async ({ page }) => {
  await begin(page, 'reviewer', 'first');
  await page.locator('input[type=file]').setInputFiles({ name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('remember the milk') });
  await expect(page.getByLabel('Attached files')).toContainText('notes.txt');
  await expect(page.getByLabel('Attached files')).toContainText('17 B');
  await look(page, 'composer-attached');
  await say(page, 'see the notes');
  await expect(page.locator('article.person').last()).toContainText('see the notes');
  // The file is a file, not what the person said.
  const file = page.locator('article.person details').last();
  await expect(file).toContainText('notes.txt');
  await expect(file.getByText('remember the milk')).toBeHidden();
  await file.locator('summary').click();
  await expect(file.getByText('remember the milk')).toBeVisible();
  await look(page, 'transcript-file');
});

/** Drops a file on an element; tells whether the page kept the browser from opening it. */
const drop = (page: Page, target: string) =>
  page.locator(target).first().evaluate((element) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(['remember the milk'], 'dropped.txt', { type: 'text/plain' }));
    const fire = (name: string) => element.dispatchEvent(new DragEvent(name, { dataTransfer, bubbles: true, cancelable: true }));
    return [fire('dragover'), fire('drop')].every((goesOn) => !goesOn);
  });

test('a file is attached wherever it is dropped, and never opened', async ({ page }) => {
  await open(page, `#/s/${MAIN}/plan`);
  await expect(page.getByRole('heading', { name: 'No plan yet' })).toBeVisible();
  expect(await drop(page, '.pane')).toBe(true);
  await expect(page.getByLabel('Attached files')).toContainText('dropped.txt');
  expect(await drop(page, '.head')).toBe(true);
  await expect(page.getByLabel('Attached files').getByText('dropped.txt')).toHaveCount(2);
  await page.goto(`${gateway.url}/#/settings`);
  await expect(page.getByText('Approve plans or ask for changes')).toBeVisible();
  expect(await drop(page, '.settings')).toBe(true);
  await expect(page.getByRole('alert')).toContainText('Open a session first');
});

test('a file that is refused can be taken off, and the rest is sent', async ({ page }) => {
  await begin(page, 'reviewer', 'first');
  // An upload that the gateway has forgotten by the time it is sent.
  const gone = { id: 'forgotten', name: 'notes.txt', mimeType: 'text/plain', sizeBytes: 3 };
  await page.route('**/attachments*', (route) => route.fulfill({ status: 201, json: gone }));
  await page.locator('input[type=file]').setInputFiles({ name: 'notes.txt', mimeType: 'text/plain', buffer: Buffer.from('abc') });
  await say(page, 'see the notes');
  const sent = page.locator('.sent');
  await expect(sent.getByRole('alert')).toContainText('no uploaded file');
  await look(page, 'composer-refused');
  await sent.getByRole('button', { name: 'Remove notes.txt' }).click();
  await sent.getByRole('button', { name: 'Send again' }).click();
  await expect(sent).toHaveCount(0);
  await expect(page.locator('article.person').last()).toContainText('see the notes');
});

test('a plan is reviewed: changes asked for, compared, approved', async ({ page }) => {
  await begin(page, 'planner', 'Plan it, please');
  await expect(page.getByText('The plan waits for you.')).toBeVisible();
  await page.getByText('The plan waits for you.').click();
  await expect(page.getByRole('heading', { name: 'One writer thread' })).toBeVisible();
  await expect(page.locator('.state')).toHaveText('Ready for review');
  await look(page, 'plan');
  await page.getByRole('button', { name: 'Request changes…' }).click();
  await page.getByLabel('What should change?').fill('Be more precise about the measurement.');
  await look(page, 'plan-note');
  await page.getByRole('button', { name: 'Request changes', exact: true }).click();
  await expect(page.locator('.state')).toContainText('Changes requested');
  await expect(page.getByLabel('Note of the review')).toContainText('Be more precise about the measurement.');
  await expect(page.getByRole('button', { name: 'Approve' })).toBeDisabled();
  await expect(page.getByRole('button', { name: 'Request changes…' })).toBeDisabled();
  await expect(page.locator('.review-about')).toContainText('Changes to revision 1 are requested');
  await look(page, 'plan-requested');
  await tab(page, 'Transcript').click();
  await say(page, 'Make it more precise');
  await tab(page, 'Plan').click();
  // A revision that arrives while another one is looked at waits to be chosen.
  await page.locator('.plan-bar select').selectOption('2');
  await expect(page.locator('.plan-bar select')).toHaveValue('2');
  await expect(page.locator('.state')).toContainText('Ready for review');
  await page.getByRole('button', { name: 'Show changes' }).click();
  await expect(page.locator('.diff-line.added')).toContainText('in the same run');
  await expect(page.locator('.diff-line.removed')).toContainText('Measure');
  await look(page, 'plan-changes');
  await page.getByRole('button', { name: 'Approve' }).click();
  await expect(page.locator('.state')).toContainText('Approved');
  await expect(page.getByRole('button', { name: 'Mark done' })).toBeVisible();
});

test('a decision about an outdated plan is refused honestly', async ({ page }) => {
  // A connection on which nothing is heard for a while, as when the news is still on its way.
  await page.routeWebSocket(/\/ws$/, (route) => {
    const server = route.connectToServer();
    server.onMessage((message) => {
      if (stale && typeof message === 'string' && /"type":\s*"event"/.test(message)) return;
      route.send(message);
    });
  });
  let stale = false;
  await begin(page, 'planner', 'Plan it, please');
  await page.getByText('The plan waits for you.').click();
  await expect(page.getByRole('button', { name: 'Approve' })).toBeEnabled();
  stale = true;
  const key = decodeURIComponent(/#\/s\/([^/]+)/.exec(page.url())![1]!);
  const other = await page.context().newPage();
  await other.goto(`${gateway.url}/#/s/${key}`);
  await say(other, 'Make it more precise');
  await expect(words(other, 'The plan is ready again.')).toBeVisible();
  await other.close();
  await page.getByRole('button', { name: 'Approve' }).click();
  await expect(page.getByText('Your decision was not recorded.')).toBeVisible();
  await expect(page.locator('.conflict')).toContainText('you looked at revision 1, the newest is 2');
  await look(page, 'plan-conflict');
  await page.getByRole('button', { name: 'Show what changed' }).click();
  await expect(page.locator('.diff-line.added')).toContainText('in the same run');
});

test('a decision that came second says so', async ({ page }) => {
  let stale = false;
  await page.routeWebSocket(/\/ws$/, (route) => {
    const server = route.connectToServer();
    server.onMessage((message) => {
      if (!stale || typeof message !== 'string' || !/"type":\s*"event"/.test(message)) route.send(message);
    });
  });
  await begin(page, 'planner', 'Plan it, please');
  await page.getByText('The plan waits for you.').click();
  await expect(page.getByRole('button', { name: 'Approve' })).toBeEnabled();
  stale = true;
  const other = await page.context().newPage();
  await other.goto(page.url());
  await other.getByRole('button', { name: 'Approve' }).click();
  await expect(other.locator('.state')).toHaveText('Approved');
  await other.close();
  await page.getByRole('button', { name: 'Request changes…' }).click();
  await page.getByRole('button', { name: 'Request changes', exact: true }).click();
  await expect(page.locator('.conflict')).toContainText('decided in another place meanwhile: the plan is “Approved”');
  await expect(page.getByRole('button', { name: 'Request changes', exact: true })).toBeHidden();
});

test('runs are a tree, and can be cancelled', async ({ page }) => {
  await begin(page, 'root', 'ask the reviewer');
  await tab(page, 'Runs').click();
  await expect(page.locator('tr.run.depth-1').first()).toContainText('writer review');
  await look(page, 'runs-session');
  // The report on it keeps its lines.
  await tab(page, 'Transcript').click();
  const report = page.locator('article.peer .report');
  await expect(report.locator('dt')).toHaveText(['Status', 'Result', 'Notes', 'Stats']);
  await expect(report.locator('dd').nth(1)).toHaveText('The writer is fine.');
  await look(page, 'transcript-report');
  await begin(page, 'root', 'take your time');
  await page.goto(`${gateway.url}/#/runs`);
  const running = page.locator('tr.run.running').first();
  await expect(running.locator('.pill')).toHaveText('Running');
  const before = await running.locator('.run-time').innerText();
  await expect(running.locator('.run-time')).not.toHaveText(before);
  await look(page, 'runs');
  const count = await page.locator('tr.run.running').count();
  await running.getByRole('button', { name: /Cancel/ }).click();
  await expect(page.locator('tr.run.running')).toHaveCount(count - 1);
});

test('settings: theme, rights, signing out', async ({ page }) => {
  await open(page, '#/settings');
  await expect(page.getByText('Approve plans or ask for changes')).toBeVisible();
  await look(page, 'settings');
  await page.getByText('Dark', { exact: true }).click();
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'dark');
  await page.reload();
  await expect(page.locator('html')).toHaveAttribute('data-theme', 'dark');
  await expect(page.getByText('Approve plans or ask for changes')).toBeVisible();
  await look(page, 'settings-dark');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(tokenField(page)).toBeVisible();
  await page.reload();
  await expect(tokenField(page)).toBeVisible();
});

test('who signs in next sees nothing of who was here before', async ({ page }) => {
  const held: (() => void)[] = [];
  let holds = false;
  await page.routeWebSocket(/\/ws$/, (route) => {
    const server = route.connectToServer();
    server.onMessage((message) => {
      if (holds && /"sessions":/.test(String(message))) held.push(() => route.send(message));
      else route.send(message);
    });
  });
  await open(page);
  await expect(page.locator('.session-row').filter({ hasText: 'importer' })).toBeVisible();
  await page.goto(`${gateway.url}/#/settings`);
  await page.getByRole('button', { name: 'Sign out' }).click();
  const headers = { Authorization: `Bearer ${gateway.token}` };
  const made = await page.request.post(`${gateway.url}/tokens`, { headers, data: { scopes: ['read'], agent: 'planner' } });
  await tokenField(page).fill(((await made.json()) as { secret: string }).secret);
  holds = true;
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect.poll(() => held.length).toBe(1);
  await expect(page.locator('.session-row')).toHaveCount(0);
  held[0]!();
  await expect(page.locator('.session-row').first()).toBeVisible();
  await expect(page.locator('.session-row').filter({ hasText: 'importer' })).toHaveCount(0);
});

test('tokens are made, listed and revoked', async ({ page }) => {
  await open(page, '#/settings');
  await page.getByRole('button', { name: 'New token…' }).click();
  const dialog = page.getByRole('dialog', { name: 'New token' });
  await dialog.getByLabel('Label').fill('dashboard');
  await dialog.getByLabel('For', { exact: true }).selectOption('planner');
  await expect(dialog.getByLabel('review')).toBeDisabled();
  await dialog.getByLabel('Expires').selectOption({ label: 'In a week' });
  await look(page, 'token-new');
  await dialog.getByRole('button', { name: 'Make it' }).click();
  const secret = await page.getByLabel('Token', { exact: true }).inputValue();
  expect(secret).toMatch(/^sess_/);
  const list = () => page.request.get(`${gateway.url}/sessions`, { headers: { Authorization: `Bearer ${secret}`, Cookie: '' } });
  await page.getByRole('button', { name: 'Done' }).click();
  const row = page.locator('.tokens tr').filter({ hasText: 'dashboard' });
  await expect(row).toContainText('read');
  await expect(row).toContainText('planner');
  await look(page, 'tokens');
  expect((await list()).status()).toBe(200);
  await row.getByRole('button', { name: 'Revoke dashboard' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
  await expect(row).toHaveCount(0);
  expect((await list()).status()).toBe(401);
  await page.getByRole('button', { name: /^Show \d+ that no longer/ }).click();
  await expect(row).toContainText('revoked');
});

test('dark: the transcript can be read', async ({ page }) => {
  await page.emulateMedia({ colorScheme: 'dark' });
  await open(page, `#/s/${MAIN}/9`);
  await expect(page.getByText('The test shows it')).toBeVisible();
  await look(page, 'transcript-dark');
});

test('who may only read finds no button that would be refused', async ({ page }) => {
  await open(page, `#/s/${MAIN}`, await gateway.readToken());
  await expect(words(page, 'It is cleared now')).toBeVisible();
  await expect(composer(page)).toBeDisabled();
  await expect(composer(page)).toHaveAttribute('placeholder', /no “write” right/);
  await expect(page.getByRole('button', { name: 'More' })).toBeHidden();
  await look(page, 'read-only');
  await page.goto(`${gateway.url}/#/settings`);
  await expect(page.getByText('Approve plans or ask for changes')).toBeVisible();
  await expect(page.getByRole('heading', { name: 'Tokens' })).toHaveCount(0);
});

test('a lost connection is said, and everything comes back', async ({ page }) => {
  const routes: WebSocketRoute[] = [];
  let down = false;
  await page.routeWebSocket(/\/ws$/, (route) => {
    if (down) return void route.close();
    route.connectToServer();
    routes.push(route);
  });
  await begin(page, 'reviewer', 'first');
  await expect(words(page, 'All right.')).toHaveCount(1);
  down = true;
  for (const route of routes) await route.close();
  await expect(page.getByText('Not connected.', { exact: true })).toBeVisible({ timeout: 15_000 });
  await composer(page).fill('written while offline');
  await expect(page.getByRole('button', { name: 'Send' })).toBeDisabled();
  await look(page, 'offline');
  down = false;
  await page.evaluate(() => dispatchEvent(new Event('online')));
  await expect(page.getByText('Not connected.', { exact: true })).toBeHidden();
  await expect(page.getByRole('button', { name: 'Send' })).toBeEnabled();
  await composer(page).press('Enter');
  await expect(words(page, 'All right.')).toHaveCount(2);
});

test('a message of another window arrives, and does not move what is read', async ({ page }) => {
  await open(page, `#/s/${LONG}/${LONG_LENGTH - 60}`);
  const row = page.locator('.transcript article.marked');
  await expect(row).toBeVisible();
  const before = await row.boundingBox();
  const other = await page.context().newPage();
  await other.goto(`${gateway.url}/#/s/${LONG}`);
  await say(other, 'good evening from another window');
  await expect(page.getByRole('button', { name: /\d new/ })).toBeVisible();
  await other.close();
  expect((await row.boundingBox())!.y).toBeCloseTo(before!.y, 0);
  await page.getByRole('button', { name: /\d new/ }).click();
  await expect(words(page, 'good evening from another window')).toBeVisible();
});

test('an address leads to a message far back', async ({ page }) => {
  await open(page, `#/s/${LONG}/4321`);
  await expect(page.getByText('Question 4321:')).toBeInViewport();
  await look(page, 'transcript-jump');
});

test('ten thousand messages scroll smoothly', async ({ page }) => {
  await open(page, `#/s/${LONG}/1`);
  await expect(page.getByText('Question 1:')).toBeInViewport();
  // What the page itself takes of the processor: the time between frames also tells what else the machine does.
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
  const busyMs = async () => (await devtools.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'TaskDuration')!.value * 1000;
  const before = await busyMs();
  const frames = await page.locator('.transcript').evaluate(async (element) => {
    const times: number[] = [];
    let last = performance.now();
    for (let frame = 0; frame < 240; frame += 1) {
      element.scrollTop += 90;
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      times.push(now - last);
      last = now;
    }
    return times.sort((a, b) => a - b);
  });
  const at = (part: number) => frames[Math.floor(frames.length * part)]!.toFixed(1);
  const perFrameMs = ((await busyMs()) - before) / frames.length;
  console.log(`a frame while scrolling: ${perFrameMs.toFixed(1)} ms of the processor; from frame to frame: median ${at(0.5)} ms, p95 ${at(0.95)} ms, longest ${frames.at(-1)!.toFixed(1)} ms`);
  expect(await page.locator('.transcript .row').count()).toBeLessThan(120);
  expect(perFrameMs).toBeLessThan(8);
});

test('everything can be done with keys', async ({ page }) => {
  test.skip(isPhone(), 'phones have no keys');
  await open(page);
  await page.keyboard.press('/');
  await expect(page.getByRole('searchbox')).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(page.locator('.session-row').first()).toBeVisible();
  // Told apart by their keys: what other tests have begun may still change the order.
  const focused = page.locator('.session-row:focus');
  await page.keyboard.press('j');
  await expect(focused).toHaveCount(1);
  const first = (await focused.getAttribute('title')) ?? '';
  await page.keyboard.press('j');
  await expect(focused).not.toHaveAttribute('title', first);
  await page.keyboard.press('k');
  await expect(focused).toHaveAttribute('title', first);
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/#\/s\//);
  await page.keyboard.press('g');
  await page.keyboard.press('p');
  await expect(page).toHaveURL(/\/plan$/);
  await expect(page.getByRole('heading', { name: 'Plan', exact: true })).toBeFocused();
  await page.keyboard.press('g');
  await page.keyboard.press('u');
  await expect(page.getByRole('heading', { name: 'Runs', exact: true })).toBeFocused();
  await page.keyboard.press('g');
  await page.keyboard.press('t');
  await expect(page.locator('.transcript')).toBeFocused();
  await page.keyboard.press('k');
  await expect(page.locator('.transcript article:focus')).toHaveCount(1);
  await page.keyboard.press('i');
  await expect(composer(page)).toBeFocused();
  await page.keyboard.press('Escape');
  await page.keyboard.press('c');
  await expect(page.getByLabel('First message')).toBeFocused();
  await page.keyboard.press('Escape');
  await expect(page.getByLabel('First message')).not.toBeFocused();
  await page.keyboard.press('g');
  await page.keyboard.press('r');
  await expect(page.getByRole('heading', { name: 'Runs', exact: true })).toBeFocused();
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'Keys' })).toBeVisible();
  await look(page, 'keys');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toBeHidden();
});

test('a key that comes with the focus moves in the transcript', async ({ page }) => {
  test.skip(isPhone(), 'phones have no keys');
  await open(page, `#/s/${MAIN}/plan`);
  await expect(page.getByRole('heading', { name: 'No plan yet' })).toBeVisible();
  await page.evaluate(() =>
    addEventListener('focusin', ({ target }) => {
      const isTranscript = target instanceof Element && target.matches('.transcript');
      if (isTranscript) target.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', bubbles: true }));
    }),
  );
  await page.keyboard.press('g');
  await page.keyboard.press('t');
  await expect(page.locator('.transcript article:focus')).toContainText('It is cleared now');
});

test('the transcript gets the focus when it has loaded', async ({ page }) => {
  test.skip(isPhone(), 'phones have no keys');
  // The page of the transcript is held back until it is let go.
  const held: (() => void)[] = [];
  await page.routeWebSocket(/\/ws$/, (route) => {
    const server = route.connectToServer();
    server.onMessage((message) => {
      if (/"items":/.test(String(message))) held.push(() => route.send(message));
      else route.send(message);
    });
  });
  await open(page, `#/s/${MAIN}`);
  await expect.poll(() => held.length).toBe(1);
  await page.keyboard.press('g');
  await page.keyboard.press('t');
  await expect(page.getByRole('heading', { name: 'Transcript' })).toBeFocused();
  held[0]!();
  await expect(page.locator('.transcript')).toBeFocused();
});

test('a phone shows one pane at a time, with a way back', async ({ page }) => {
  test.skip(!isPhone(), 'wide screens show both');
  await open(page);
  await page.locator('.session-row').filter({ hasText: 'importer' }).click();
  await expect(page.locator('.sidebar')).toBeHidden();
  await page.getByRole('link', { name: 'Back to the sessions' }).click();
  await expect(page.locator('.session-row').first()).toBeVisible();
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
});
