// The board of work sessions, over a real repository with a remote, where real work sessions are drafted,
// published, claimed and abandoned while the page is open.

import { AxeBuilder } from '@axe-core/playwright';
import { expect, test, type Page } from '@playwright/test';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MAIN, seeds } from './fixture';
import { type Gateway, type Run, start } from './start';

let gateway: Gateway;
let repository: string;
let remote: string;

const MARKUP = '<img src=x onerror="document.title=1"> **bold** \u202egnp.exe';
// A refresh is due every five seconds, and git takes a while on a busy machine.
const SOON = { timeout: 20_000 };

test.describe.configure({ mode: 'serial', timeout: 90_000 });

/** Makes a repository with one commit, and a bare one that it is pushed to. */
async function prepare(directory: string, run: Run): Promise<string> {
  remote = join(directory, 'remote.git');
  repository = join(directory, 'project');
  await mkdir(repository);
  await run(directory, 'git', 'init', '--quiet', '--bare', '--initial-branch=main', remote);
  const git = (...args: string[]) => run(repository, 'git', ...args);
  await git('init', '--quiet', '--initial-branch=main');
  await git('config', 'user.name', 'Ada');
  await git('config', 'user.email', 'ada@example.org');
  await writeFile(join(repository, 'README.md'), '# Project\n');
  await git('add', '.');
  await git('commit', '--quiet', '--message', 'Begin');
  await git('remote', 'add', 'origin', remote);
  await git('push', '--quiet', 'origin', 'main');
  await run(repository, 'sess', 'work', 'init');
  return repository;
}

/** Runs a verb of `sess work`. */
const work = async (...args: string[]) => JSON.parse(await gateway.run(repository, 'sess', 'work', ...args, '--json')) as { slug: string; state: string };

/** Drafts a work session, and publishes it. */
async function plan(title: string, ...more: string[]): Promise<string> {
  const { slug } = await work('new', title, '--context', 'People ask for it.', '--criterion', 'It works', '--criterion', 'It is documented', ...more);
  await work('ready', slug);
  return slug;
}

async function open(page: Page, hash = '#/work', token = gateway.token, url = gateway.url): Promise<void> {
  const answer = await page.request.post(`${url}/login`, { data: { token }, headers: { Origin: url } });
  expect(answer.ok()).toBe(true);
  await page.goto(`${url}/${hash}`);
  await expect(page.locator('.connection.open')).toBeAttached();
}

async function look(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: `test-results/screenshots/${name}-${test.info().project.name}.png` });
  const { violations } = await new AxeBuilder({ page }).analyze();
  expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(' ')).join(', ')}`)).toEqual([]);
}

const isPhone = () => test.info().project.name === 'phone';
const column = (page: Page, state: string) => page.locator(`.board-column.${state}`);
const card = (page: Page, title: string | RegExp) => page.locator('.card').filter({ has: page.getByRole('heading', { name: title }) });

/** Brings a column into view: a phone shows one at a time. */
async function show(page: Page, name: string): Promise<void> {
  if (isPhone()) await page.locator('.board-segments label').filter({ hasText: name }).click();
}

test.beforeAll(async () => {
  test.setTimeout(120_000);
  gateway = await start(seeds(Date.now()), prepare);
});
test.afterAll(() => gateway?.stop());

test('without work sessions the board says how to begin', async ({ page }) => {
  await open(page);
  await expect(page.getByRole('heading', { name: 'No work sessions yet' })).toBeVisible();
  await expect(page.getByText('sess work new')).toBeVisible();
  await look(page, 'work-empty');
});

test('a gateway outside of such a repository says so', async ({ page }) => {
  const elsewhere = await start([]);
  try {
    await open(page, '#/work', elsewhere.token, elsewhere.url);
    await expect(page.getByText('Start sess serve in a repository with work sessions, or run sess work init.')).toBeVisible();
    await look(page, 'work-no-repository');
  } finally {
    await elsewhere.stop();
  }
});

test('drafts, plans and claims appear by themselves, with who has them', async ({ page }) => {
  await open(page);
  const { slug: draft } = await work('new', 'Think about billing');
  await show(page, 'Drafting');
  await expect(column(page, 'drafting').locator('.card')).toContainText(draft, SOON);

  const login = await plan('Add user login', '--label', 'backend');
  const logout = await plan(`Add logout ${MARKUP}`, '--slug', '2026-01-02-add-logout', '--depends', login);
  await show(page, 'Planned');
  await expect(card(page, 'Add user login')).toContainText('Ready', SOON);
  await expect(card(page, 'Add user login')).toContainText('backend');
  await expect(card(page, /^Add logout/)).toContainText('Waits for Add user login', SOON);
  await expect(card(page, /^Add logout/)).not.toContainText('Ready');

  await work('claim', login, '--no-workspace');
  await work('log', 'The form is there', '--slug', login);
  await show(page, 'Active');
  const taken = column(page, 'active').locator('.card');
  await expect(taken).toContainText('The form is there', SOON);
  await expect(taken).toContainText('Ada');
  await expect(taken).toContainText(/\d+ min left/);
  await expect(column(page, 'active').locator('.board-stale')).toHaveCount(0);
  await look(page, 'work-board');
  if (!isPhone()) await expect(page.locator('.board-column .board-count')).toHaveText(['1', '1', '1', '0', '0']);
  else expect(await page.locator('.board-segment-count').allInnerTexts()).toEqual(['1', '1', '1', '0', '0']);

  // Text of others is text.
  await show(page, 'Planned');
  await expect(card(page, /^Add logout/)).toContainText('<img src=x');
  expect(await card(page, /^Add logout/).innerText()).not.toContain('\u202e');
  await expect(page).not.toHaveTitle('1');
  await card(page, /^Add logout/).getByRole('link', { name: /^Add logout/ }).click();
  await expect(page).toHaveURL(new RegExp(`#/work/${logout}$`));
  await expect(page.locator('main img')).toHaveCount(0);
});

test('a card opens to plan, criteria, worklog and who had it', async ({ page }) => {
  await open(page);
  await show(page, 'Active');
  await card(page, 'Add user login').getByRole('link', { name: 'Add user login' }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'Add user login', exact: true })).toBeVisible();
  await expect(page.locator('.work-text').first()).toContainText('People ask for it.');
  await expect(page.locator('.criteria li')).toHaveText(['It works', 'It is documented']);
  await expect(page.locator('.criteria .box').first()).toHaveAccessibleName('to do');
  await expect(page.locator('.work-words')).toContainText('The form is there');
  await expect(page.locator('.work-history')).toContainText('Ada had it');
  await look(page, 'work-session');
  await page.getByRole('link', { name: 'Back to the board' }).click();
  await expect(card(page, 'Add user login').getByRole('link', { name: 'Add user login' })).toBeFocused();
});

test('what does not exist says so, with a way back', async ({ page }) => {
  await open(page, '#/work/2026-01-01-no-such-thing');
  await expect(page.getByRole('heading', { name: 'No such work session' })).toBeVisible(SOON);
  await look(page, 'work-not-found');
  await page.getByRole('link', { name: 'Show the board' }).click();
  await expect(page.locator('.board-column').first()).toBeAttached();
});

test('keys lead everywhere', async ({ page }) => {
  test.skip(isPhone(), 'phones have no keys');
  await open(page, '#/');
  await page.keyboard.press('g');
  await page.keyboard.press('w');
  await expect(page).toHaveURL(/#\/work$/);
  await expect(page.getByRole('heading', { name: 'Work sessions', exact: true })).toBeFocused();
  await expect(page.locator('.card').first()).toBeVisible(SOON);
  const focused = page.locator('.board-column:has(.card h3 a:focus)');
  await page.keyboard.press('j');
  await expect(focused).toHaveAttribute('data-state', 'active');
  await page.keyboard.press('h');
  await expect(focused).toHaveAttribute('data-state', 'planned');
  await page.keyboard.press('ArrowLeft');
  await expect(focused).toHaveAttribute('data-state', 'drafting');
  await page.keyboard.press('l');
  await page.keyboard.press('ArrowRight');
  await expect(focused).toHaveAttribute('data-state', 'active');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/#\/work\/.*-add-user-login$/);
  await expect(page.getByRole('heading', { level: 1, name: 'Add user login', exact: true })).toBeVisible(SOON);
  await page.keyboard.press('Escape');
  await expect(page).toHaveURL(/#\/work$/);
  await expect(page.locator('.card h3 a:focus')).toHaveText('Add user login');
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'Keys' })).toContainText('Column to the left');
});

test('a remote that is gone is told, and so is a gateway that does not answer', async ({ page, context }) => {
  await open(page);
  await show(page, 'Active');
  await expect(card(page, 'Add user login')).toBeVisible(SOON);
  await rename(remote, `${remote}.away`);
  await expect(page.getByText('The remote could not be asked.')).toBeVisible({ timeout: 40_000 });
  await expect(card(page, 'Add user login')).toBeVisible();
  await look(page, 'work-old');
  await rename(`${remote}.away`, remote);
  await expect(page.getByText('The remote could not be asked.')).toBeHidden({ timeout: 40_000 });

  await context.setOffline(true);
  await expect(page.locator('.work-age')).toContainText('Not connected.', SOON);
  await expect(card(page, 'Add user login')).toBeVisible();
  await look(page, 'work-offline');
  await context.setOffline(false);
  await expect(page.locator('.work-age')).toBeHidden(SOON);
});

test('a sign-in that may not see work sessions is told so', async ({ page }) => {
  await page.route('**/work', (route) => route.fulfill({ status: 403, json: { error: { type: 'forbidden', message: 'this token may not see work sessions' } } }));
  await open(page);
  await expect(page.getByRole('heading', { name: 'Not for this sign-in' })).toBeVisible(SOON);
  await look(page, 'work-forbidden');
});

// A lease takes a minute to lapse and an agent's run takes a model, so these answers are made up.
test('a lapsed lease, a half-done state and the transcripts are shown', async ({ page }) => {
  const minutes = (count: number) => new Date(Date.now() + count * 60_000).toISOString();
  const row = {
    slug: '2026-03-04-port-the-table', state: 'active', title: 'Port the table', ready: false, note: 'the move to active/ is not pushed yet',
    holder: { name: 'Grace', agent: 'coder', session: MAIN, host: 'one', since: minutes(-200), until: minutes(-125), stale: true, waits: false, attempt: 2 },
  };
  await page.route('**/work', (route) => route.fulfill({ json: { repository: '/project', base: 'main', isOld: false, sessions: [row] } }));
  await page.route('**/work/*', (route) => route.fulfill({ json: { ...row, plan: '# Port it', criteria: [{ text: 'It fits', done: true }], sessions: [MAIN], history: [] } }));
  await open(page);
  await expect(card(page, 'Port the table')).toContainText('coder of Grace on one');
  await expect(card(page, 'Port the table')).toContainText('Stale: lapsed 2 h ago');
  await expect(card(page, 'Port the table')).toContainText('attempt 2');
  await expect(card(page, 'Port the table')).toContainText('the move to active/ is not pushed yet');
  await expect(column(page, 'active').locator('.board-stale')).toHaveText('1 stale');
  await card(page, 'Port the table').getByRole('link', { name: 'Port the table' }).click();
  await expect(page.locator('.criteria .box')).toHaveAccessibleName('done');
  await page.locator('.work-list').getByRole('link', { name: 'Make the importer survive a full disk' }).click();
  await expect(page.locator('.transcript article').getByText('It is cleared now').first()).toBeVisible();
});

test('what is over is folded to the newest ten', async ({ page }) => {
  test.setTimeout(180_000);
  for (let day = 1; day <= 12; day++) {
    const slug = await plan(`Idea ${day}`, '--slug', `2026-02-${String(day).padStart(2, '0')}-idea`);
    await work('claim', slug, '--no-workspace');
    await work('abandon', slug, '--reason', 'Nobody needs it');
  }
  await open(page);
  await show(page, 'Abandoned');
  const cards = column(page, 'abandoned').locator('.card');
  await expect(cards).toHaveCount(10, SOON);
  await expect(cards.first()).toContainText('Idea 12');
  await page.getByRole('button', { name: 'Show all 12' }).click();
  await expect(cards).toHaveCount(12);
  await page.getByRole('button', { name: 'Show the newest ten' }).click();
  await expect(cards).toHaveCount(10);
  await cards.first().getByRole('link').click();
  await expect(page.locator('.work-history')).toContainText('Nobody needs it');
  await page.emulateMedia({ colorScheme: 'dark' });
  await look(page, 'work-session-dark');
  await page.goto(`${gateway.url}/#/work`);
  await expect(page.locator('.board-column').first()).toBeAttached();
  await look(page, 'work-board-dark');
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
});
