import { expect, test } from 'vitest';
import type { Row } from '../api/types';
import { agentOf, matches, NO_FILTER, toRequest, withRow } from './filter';

const row = (key: string, updatedAt: number, more: Partial<Row> = {}): Row => ({
  key, updatedAt, kind: 'other', channel: 'cli', sessionId: key, createdAt: 0, ...more,
});

test('a changed session moves to its place', () => {
  const rows = [row('a', 30), row('b', 20), row('c', 10)];
  const keys = (list: Row[]) => list.map(({ key }) => key).join('');
  expect(keys(withRow(rows, 'c', row('c', 40)))).toBe('cab');
  expect(keys(withRow(rows, 'd', row('d', 15)))).toBe('abdc');
  expect(keys(withRow(rows, 'b', undefined))).toBe('ac');
  expect(keys(rows)).toBe('abc');
});

test('filters apply to what changes as well', () => {
  const one = row('agent:main:chat:1', 1, { title: 'Fix the Build', status: 'running' });
  expect(matches(one, { ...NO_FILTER, search: ' build' })).toBe(true);
  expect(matches(one, { ...NO_FILTER, search: 'CHAT:1' })).toBe(true);
  expect(matches(one, { ...NO_FILTER, search: 'tests' })).toBe(false);
  expect(matches(one, { ...NO_FILTER, agent: 'main', status: 'running', kind: 'other' })).toBe(true);
  expect(matches(one, { ...NO_FILTER, status: 'idle' })).toBe(false);
  expect(agentOf(one)).toBe('main');
  const archived = { ...one, archived: true };
  expect(matches(archived, NO_FILTER)).toBe(false);
  expect(matches(archived, { ...NO_FILTER, archived: true })).toBe(true);
  const theirs = { ...one, source: 'claude', cwd: '/work/Acme' };
  expect(matches(theirs, { ...NO_FILTER, sources: ['claude'], search: 'acme' })).toBe(true);
  expect(matches(theirs, { ...NO_FILTER, sources: ['native', 'codex'] })).toBe(false);
  expect(matches(one, { ...NO_FILTER, sources: ['native'] })).toBe(true);
});

test('only what was chosen is asked for', () => {
  expect(toRequest(NO_FILTER)).toEqual({});
  expect(toRequest({ search: ' x ', kind: 'main', agent: 'a', status: 'idle', archived: true, sources: ['zed', 'amp'], scope: 'repo' })).toEqual({
    search: 'x', kinds: ['main'], agent: 'a', archived: true, source: ['zed', 'amp'], scope: 'repo',
  });
});
