// What others wrote, in the browser of the person: scripts in each field that the page shows. None runs, and the
// security policy has nothing to stop.

import { expect, test, type Page } from '@playwright/test';
import type { Seed } from './fixture';
import { type Gateway, start } from './start';

const mark = (name: string) => `window.ran=(window.ran||[]).concat('${name}')`;

/** Payloads that run where markup, Markdown, an attribute or an address is taken from a text. */
const PAYLOADS: ((name: string) => string)[] = [
  (name) => `<script>${mark(name)}</script>`,
  (name) => `<img src=x onerror="${mark(name)}">`,
  (name) => `"><svg onload="${mark(name)}">`,
  (name) => `'><details open ontoggle="${mark(name)}">`,
  (name) => `</textarea></title></style></script><iframe srcdoc="<script>parent.${mark(name).slice(7)}</script>"></iframe>`,
  (name) => `<math><mtext></form><form><mglyph><style></math><img src onerror="${mark(name)}">`,
  (name) => `[click](javascript:${mark(name)})`,
  (name) => `[click](JaVaScRiPt&colon;${mark(name)})`,
  () => `[click](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)`,
  (name) => `![x](x"onerror="${mark(name)})`,
  (name) => `<javascript:${mark(name)}>`,
  (name) => `\`\`\`html"onmouseover="${mark(name)}\n</code></pre><script>${mark(name)}</script>\n\`\`\``,
  (name) => `| a |\n|--|\n| <img src=x onerror=${mark(name)}> |`,
  (name) => `<a href="javascript:${mark(name)}" autofocus onfocus="${mark(name)}" tabindex=0>a</a>`,
  () => `<link rel=stylesheet href="https://evil.invalid/a.css"><base href="https://evil.invalid/"><meta http-equiv=refresh content="0;url=https://evil.invalid/">`,
  (name) => `<style>@import 'https://evil.invalid/b.css';*{background:url(https://evil.invalid/c)}</style>${name}`,
  (name) => `{{constructor.constructor("${mark(name)}")()}} \${${mark(name)}} <%= ${mark(name)} %>`,
];

const all = (name: string) => PAYLOADS.map((payload, index) => payload(`${name}-${index}`)).join('\n\n');
const one = (name: string, index: number) => PAYLOADS[index % PAYLOADS.length]!(name);
const text = (words: string) => [{ type: 'text', text: words }];

const KEY = 'agent:root:chat:hostile';

/** A session with payloads in each field that an import takes. */
function hostile(now: number): Seed[] {
  const at = (minute: number) => ({ timestamp: now - (60 - minute) * 60_000 });
  const messages = [
    { role: 'user', content: text(all('user')), provenance: { kind: 'external_user' }, ...at(1) },
    { role: 'assistant', content: [{ type: 'thinking', text: all('thinking') }, ...text(all('assistant'))], agentId: 'root', model: one('model', 1), stopReason: one('stop', 1), runId: one('run', 2), ...at(2) },
    ...PAYLOADS.flatMap((payload, index) => [
      { role: 'assistant', content: [{ type: 'toolCall', id: `c${index}`, name: payload('toolName'), arguments: { [payload('argName')]: payload('argument'), cmd: payload('cmd'), path: payload('path') } }], agentId: 'root', ...at(3) },
      { role: 'toolResult', content: text(payload('result')), toolCallId: `c${index}`, toolName: payload('resultName'), isError: index % 2 === 0, ...at(4) },
    ]),
    { role: 'user', content: text(all('peer')), provenance: { kind: 'inter_session', sourceSessionKey: 'agent:root:chat:other', sourceTool: one('sourceTool', 1), sourceChannel: 'webchat' }, ...at(5) },
    { role: 'system', content: [{ type: 'compaction', summary: all('summary') }], ...at(6) },
    { role: 'system', content: text(all('system')), provenance: { kind: 'internal_system' }, ...at(7) },
    { role: 'user', content: [{ type: 'image', mimeType: 'image/svg+xml', data: Buffer.from(`<svg xmlns="http://www.w3.org/2000/svg" onload="${mark('svg')}"><script>${mark('svg')}</script></svg>`).toString('base64') }], ...at(8) },
    { role: 'user', content: [{ type: 'image', mimeType: `image/png" onerror="${mark('mime')}`, data: 'AAAA' }], ...at(8) },
    { role: 'assistant', content: [{ type: one('unknownBlock', 1), text: all('unknown') }, ...text('The end.')], agentId: 'root', ...at(9) },
  ];
  const titled = PAYLOADS.map((payload, index): Seed => ({
    head: { type: 'session', id: `titled-${index}`, key: `agent:root:chat:titled-${index}`, title: payload('title').replaceAll('\n', ' '), cwd: payload('cwd'), createdAt: new Date(now - 7_200_000).toISOString() },
    messages: [{ role: 'user', content: text(payload('preview')), ...at(0) }],
  }));
  return [{ head: { type: 'session', id: 'hostile', key: KEY, title: one('hostileTitle', 1), createdAt: new Date(now - 3_700_000).toISOString() }, messages }, ...titled];
}

let gateway: Gateway;
test.beforeAll(async () => {
  gateway = await start(hostile(Date.now()));
});
test.afterAll(() => gateway?.stop());

/** Watches for whatever runs, is stopped by the security policy, or leaves this gateway. */
async function watch(page: Page): Promise<() => Promise<string[]>> {
  const found: string[] = [];
  page.on('dialog', (dialog) => (found.push(`a dialog: ${dialog.message()}`), void dialog.dismiss()));
  page.on('request', (request) => {
    if (!request.url().startsWith(gateway.url) && !/^(data|blob):/.test(request.url())) found.push(`a request to ${request.url()}`);
  });
  page.on('console', (message) => {
    if (/Content.Security.Policy|Refused to/.test(message.text())) found.push(message.text());
  });
  await page.addInitScript(() => {
    const here = window as unknown as { violations: string[] };
    here.violations = [];
    addEventListener('securitypolicyviolation', (event) => here.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  return async () => {
    const inside = await page.evaluate(() => {
      const here = window as unknown as { violations: string[]; ran?: string[] };
      const forbidden = 'iframe, object, embed, base, meta[http-equiv], form[action], svg[onload], link[href^="http"], body script, style:not([data-own])';
      const elements = [...document.body.querySelectorAll('*')];
      const handlers = elements.flatMap((element) => element.getAttributeNames().filter((name) => name.startsWith('on')).map((name) => `${element.tagName} ${name}`));
      const links = elements.filter((element) => /^\s*(javascript|data|vbscript):/i.test(element.getAttribute('href') ?? '')).map((element) => element.outerHTML);
      return [...(here.ran ?? []).map((name) => `${name} ran`), ...here.violations, ...handlers, ...links, ...[...document.body.querySelectorAll(forbidden)].map((element) => element.outerHTML.slice(0, 200))];
    });
    return [...found, ...inside];
  };
}

async function open(page: Page, hash: string): Promise<void> {
  await page.goto(`${gateway.url}/${hash}`);
  await expect(page.locator('.connection.open')).toBeAttached();
}

/** Asks the gateway as a program does. */
async function ask(page: Page, method: string, params: unknown): Promise<Record<string, unknown>> {
  const answer = await page.evaluate(([token, method, params]) => new Promise((done, failed) => {
    const socket = new WebSocket(`${location.origin.replace('http', 'ws')}/ws`);
    socket.onopen = () => {
      const connect = { minProtocol: 1, maxProtocol: 1, client: { id: 'test', version: '1' }, auth: { token } };
      socket.send(JSON.stringify({ type: 'req', id: '1', method: 'connect', params: connect }));
      socket.send(JSON.stringify({ type: 'req', id: '2', method, params }));
    };
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data as string) as { id?: string; ok?: boolean; payload?: unknown; error?: { message: string } };
      if (frame.id !== '2') return;
      if (frame.ok) done(frame.payload);
      else failed(new Error(frame.error?.message));
    };
  }), [gateway.token, method, params] as const);
  return answer as Record<string, unknown>;
}

/** Opens everything that is folded, as far as there is anything, and looks at all of it. */
async function unfold(page: Page): Promise<void> {
  for (let round = 0; round < 60; round += 1) {
    const isOver = await page.evaluate(async () => {
      for (const button of document.querySelectorAll<HTMLElement>('.transcript [aria-expanded="false"]')) button.click();
      const list = document.querySelector('.transcript');
      if (!list || list.scrollTop <= 0) return true;
      list.scrollTop -= 500;
      await new Promise((next) => setTimeout(next, 30));
      return false;
    });
    if (isOver) return;
  }
}

test('scripts in each field are only text', async ({ page }) => {
  test.setTimeout(120_000);
  const found = await watch(page);
  const answer = await page.request.post(`${gateway.url}/login`, { data: { token: gateway.token }, headers: { Origin: gateway.url } });
  expect(answer.ok()).toBe(true);

  // The list, with titles, names, labels and previews.
  await open(page, '#/');
  await expect(page.locator('.session-row')).not.toHaveCount(0);
  for (const [index, payload] of PAYLOADS.entries()) {
    const short = payload('label').replaceAll('\n', ' ').slice(0, 60);
    // A name may be refused; it is then not shown.
    const patch = { key: `agent:root:chat:titled-${index}`, label: `${short} ${index}`, displayName: payload('displayName').replaceAll('\n', ' ') };
    await ask(page, 'sessions.patch', patch).catch(() => ask(page, 'sessions.patch', { key: patch.key, label: `l-${index}` }));
  }
  await page.reload();
  await expect(page.locator('.session-row').first()).toBeVisible();
  await page.getByRole('searchbox').fill('<img src=x onerror=window.ran=[1]>');
  await expect(page.getByRole('heading', { name: 'Nothing found' })).toBeVisible();
  expect(await found()).toEqual([]);

  // The transcript: messages, tools, provenance, summaries, images.
  await open(page, `#/s/${KEY}`);
  await expect(page.getByText('The end.')).toBeVisible();
  await unfold(page);
  expect(await found()).toEqual([]);
  for (const seq of [1, 2, 3, 20, 36, 40]) {
    await open(page, `#/s/${KEY}/${seq}`);
    await unfold(page);
    expect(await found()).toEqual([]);
  }
  // What is shown is the text itself.
  await open(page, `#/s/${KEY}/1`);
  await expect(page.locator('.transcript').getByText('onerror').first()).toBeVisible();
  // All at once: rows come and go while the list settles.
  const hrefs = await page.locator('.transcript a[href]').evaluateAll((links) => links.map((link) => link.getAttribute('href')));
  for (const href of hrefs) expect(href).toMatch(/^(#|https?:|mailto:)/);

  // A plan, its revisions and what changed.
  const headers = { Authorization: `Bearer ${gateway.token}` };
  for (const [number, name] of ['plan', 'revised'].entries()) {
    const put = await page.request.put(`${gateway.url}/sessions/${encodeURIComponent(KEY)}/plan`, { headers, data: { content: `# Plan\n\n${all(name)}\n`, expectedRevision: number } });
    expect(put.ok()).toBe(true);
  }
  // Opened anew: whoever reads the first revision keeps it.
  await page.goto('about:blank');
  await open(page, `#/s/${KEY}/plan`);
  await expect(page.getByRole('region', { name: 'Plan' }).getByText('onerror').first()).toBeVisible();
  expect(await found()).toEqual([]);
  await page.getByRole('button', { name: 'Show changes' }).click();
  await expect(page.locator('.diff-line.added').first()).toBeVisible();
  expect(await found()).toEqual([]);

  // Files with names, messages that are sent, and runs that tell of both.
  for (const [index, payload] of PAYLOADS.entries()) {
    const name = payload('file').replaceAll('\n', ' ').slice(0, 120);
    const uploaded = await page.request.post(`${gateway.url}/attachments?name=${encodeURIComponent(`${name}.txt`)}`, { headers: { ...headers, 'Content-Type': 'text/plain' }, data: payload('content') });
    expect(uploaded.ok(), await uploaded.text()).toBe(true);
    const { id } = (await uploaded.json()) as { id: string };
    await ask(page, 'chat.send', { sessionKey: 'agent:root:main', message: payload('sent'), idempotencyKey: `k-${index}`, attachments: [id] });
  }
  for (const hash of ['#/s/agent:root:main', '#/s/agent:root:main/runs', '#/runs', '#/settings', '#/new']) {
    await open(page, hash);
    await page.waitForTimeout(300);
    await unfold(page);
    expect(await found(), hash).toEqual([]);
  }
});

test('scripts in addresses that somebody is led to are only text', async ({ page }) => {
  test.setTimeout(60_000);
  const found = await watch(page);
  await page.request.post(`${gateway.url}/login`, { data: { token: gateway.token }, headers: { Origin: gateway.url } });
  await open(page, '#/');
  const hashes = PAYLOADS.flatMap((payload) => {
    const part = encodeURIComponent(payload('address'));
    return [`#/s/${part}`, `#/s/${part}/plan`, `#/new/${part}`, `#${payload('raw')}`];
  });
  await page.evaluate(async (hashes) => {
    for (const hash of hashes) {
      location.hash = hash;
      await new Promise((next) => setTimeout(next, 20));
    }
  }, hashes);
  expect(await found()).toEqual([]);
  for (const payload of PAYLOADS.slice(0, 3)) {
    await page.goto('about:blank');
    await page.goto(`${gateway.url}/#login=${encodeURIComponent(payload('login'))}`);
    await expect(page.getByRole('alert').or(page.locator('.session-row').first()).first()).toBeVisible();
    expect(await found()).toEqual([]);
  }
});

test('this test can fail: a script that runs is seen', async ({ page }) => {
  const found = await watch(page);
  await page.goto(`${gateway.url}/`);
  await page.evaluate(() => document.body.insertAdjacentHTML('beforeend', '<img src="/x" onerror="window.ran=[1]">'));
  await expect.poll(async () => (await found()).join('\n')).toMatch(/script-src/);
});
