// Other agents' sessions on the page: Claude Code, Codex and goose were used on this machine, too.

import { AxeBuilder } from '@axe-core/playwright';
import { expect, test, type Page } from '@playwright/test';
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { seeds } from './fixture';
import { type Gateway, start } from './start';

const SAMPLES = join(import.meta.dirname, '../../crates/sess-readers/tests/agent-homes');
const CLAUDE = '5b0c1f62-6c0e-4a8e-9d53-2f1f0f6a1c01';
/** Its person went back once. */
const CODEX = '019a6d10-4b2e-7c31-9f00-1c2d3e4f5061';
const KEY = `agent:claude:chat:${CLAUDE}`;

let gateway: Gateway;

// Each picture is checked for barriers in both themes, which takes its time on a busy machine.
test.describe.configure({ timeout: 180_000 });

test.beforeAll(async () => {
  gateway = await start(seeds(Date.now()), async (directory) => {
    for (const agent of ['claude-code', 'codex', 'goose']) await cp(join(SAMPLES, agent), directory, { recursive: true });
    return directory;
  });
});
test.afterAll(() => gateway?.stop());

async function open(page: Page, hash = '#/', token = gateway.token): Promise<void> {
  const answer = await page.request.post(`${gateway.url}/login`, { data: { token }, headers: { Origin: gateway.url } });
  expect(answer.ok()).toBe(true);
  await page.goto(`${gateway.url}/${hash}`);
  await expect(page.locator('.connection.open')).toBeAttached();
}

/** Keeps a picture in both themes, and checks both for barriers. */
async function look(page: Page, name: string): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    await page.screenshot({ path: `test-results/screenshots/others-${name}-${colorScheme}-${test.info().project.name}.png` });
    const { violations } = await new AxeBuilder({ page }).analyze();
    expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(' ')).join(', ')}`)).toEqual([]);
  }
  await page.emulateMedia({ colorScheme: null });
}

const chips = (page: Page) => page.getByRole('group', { name: 'Whose sessions' });
const search = (page: Page) => page.getByRole('searchbox');
const theirs = (page: Page) => page.locator('.session-row .vendor');

test('one list has the sessions of all agents, and chips that narrow it and are remembered', async ({ page }) => {
  await open(page);
  for (const name of ['Intersession', 'Claude Code', 'Codex', 'goose']) await expect(chips(page).getByRole('button', { name })).toBeVisible();
  await expect(page.locator('.session-row').filter({ hasText: 'Make the importer survive' })).toBeAttached();
  await page.locator('.session-list').evaluate((list) => (list.scrollTop = list.scrollHeight));
  await expect(theirs(page).first()).toBeVisible();
  await look(page, 'list');
  const all = await page.locator('.list-count').textContent();
  await chips(page).getByRole('button', { name: 'Claude Code' }).click();
  await expect(page.locator('.session-row')).toHaveCount(1);
  await expect(page.locator('.session-row')).toContainText('Claude Code');
  await chips(page).getByRole('button', { name: 'goose' }).click();
  await expect(theirs(page).filter({ hasText: 'goose' }).first()).toBeVisible();
  await page.reload();
  await expect(chips(page).getByRole('button', { name: 'goose', pressed: true })).toBeVisible();
  await expect(page.locator('.session-row').filter({ hasText: 'Make the importer survive' })).toHaveCount(0);
  await look(page, 'narrowed');
  for (const name of ['Claude Code', 'goose']) await chips(page).getByRole('button', { name }).click();
  await expect(page.locator('.list-count')).toHaveText(all ?? '');
  await chips(page).getByRole('button', { name: 'This repository' }).click();
  await expect(page.getByRole('heading', { name: 'Nothing found' })).toBeVisible();
  await page.getByRole('button', { name: 'Show all sessions' }).click();
  await expect(page.locator('.list-count')).toHaveText(all ?? '');
  await search(page).fill('acme-api');
  await expect(theirs(page).filter({ hasText: 'Claude Code' })).toBeVisible();
});

test('a session of another agent is read, and says where to go on with it', async ({ page, context }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await open(page);
  await search(page).fill(CLAUDE.slice(0, 13));
  await page.locator('.session-row').filter({ hasText: 'Claude Code' }).click();
  await expect(page).toHaveURL(new RegExp(`#/s/${KEY}$`));
  await expect(page.getByText('Write the fix')).toBeVisible();
  await expect(page.getByRole('textbox', { name: 'Message', exact: true })).toHaveCount(0);
  await expect(page.getByRole('region', { name: 'Read only' })).toContainText('This is a session of Claude Code');
  await expect(page.locator('.tabs')).toHaveCount(0);
  await page.getByRole('button', { name: 'Continue in Claude Code' }).click();
  await expect(page.getByRole('button', { name: 'Copied' })).toBeVisible();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  expect(copied).toBe(`cd /home/dev/acme-api && claude --resume ${CLAUDE}`);
  await expect(page.getByRole('button', { name: 'Continue in Claude Code' })).toBeVisible();
  await look(page, 'transcript');
  // What a secret was is not told, and what was taken back is told apart.
  await expect(page.locator('.transcript')).not.toContainText('sk-test-FAKE');
  await page.locator('.sub-sessions summary').click();
  await page.getByRole('list', { name: 'Sub-agents' }).getByRole('link', { name: 'Explore' }).click();
  await expect(page.getByText('List every caller of rotate_key()')).toBeVisible();
});

test('it is starred, renamed and archived like any other', async ({ page }) => {
  test.skip(test.info().project.name === 'phone', 'it changes what the other project sees');
  await open(page, `#/s/${CODEX}`);
  await expect(page.getByRole('region', { name: 'Read only' })).toBeVisible();
  await page.getByRole('button', { name: 'More', exact: true }).click();
  await expect(page.getByRole('button', { name: 'Delete…' })).toHaveCount(0);
  await page.getByRole('button', { name: 'Star', exact: true }).click();
  await search(page).fill(CODEX);
  await expect(page.locator('.session-row .star')).toHaveCount(1);
  await page.getByRole('button', { name: 'More', exact: true }).click();
  await page.getByRole('button', { name: 'Rename…' }).click();
  await page.getByLabel('Name of this session').fill('The one with the plan');
  await page.getByRole('button', { name: 'Rename', exact: true }).click();
  await expect(page.getByRole('heading', { level: 1, name: 'The one with the plan' })).toBeVisible();
  await search(page).fill('the one with the plan');
  await expect(page.locator('.session-row').filter({ hasText: 'The one with the plan' })).toHaveCount(1);
  await expect(page.locator('.transcript article').first()).toBeVisible();
});

test('words are found in the messages of all agents, and lead to where they were said', async ({ page }) => {
  await open(page);
  await search(page).fill('rotate_key');
  await page.getByRole('button', { name: 'In messages', exact: true }).click();
  const hits = page.getByRole('list', { name: 'Messages found, newest first' });
  await expect(hits.getByRole('link').first()).toBeVisible();
  await expect(hits.locator('mark').first()).toHaveText('rotate_key');
  await look(page, 'search');
  await search(page).press('ArrowDown');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/#\/s\/agent:claude:chat:[^/]+\/\d+$/);
  await expect(page.locator('.transcript article.marked')).toContainText('rotate_key');
  await page.goto(`${gateway.url}/#/`);
  await page.getByLabel('Regex').check();
  await search(page).fill('rotate_(key');
  await expect(page.getByRole('heading', { name: 'This could not be searched' })).toBeVisible();
  await look(page, 'search-failed');
  await search(page).fill('rotate_[a-z]+');
  await expect(hits.getByRole('link').first()).toBeVisible();
  await search(page).fill('nobody ever said this');
  await expect(page.getByRole('heading', { name: 'Nothing found' })).toBeVisible();
  await search(page).fill('');
  await expect(page.getByRole('heading', { name: 'Search in messages' })).toBeVisible();
});

test('an address leads to a message of another agent, and what was taken back shows as that', async ({ page }) => {
  await open(page, `#/s/claude:${CLAUDE}/3`);
  await expect(page.locator('.transcript article.marked')).toBeVisible();
  await page.goto(`${gateway.url}/#/s/${CODEX}`);
  await expect(page.locator('.taken-back-note').first()).toBeVisible();
  await look(page, 'taken-back');
  await page.goto(`${gateway.url}/#/s/claude:no-such-session`);
  await expect(page.getByRole('heading', { name: 'There is no such session' })).toBeVisible();
});
