import { expect, test } from 'vitest';
import { leaseWords, logLine, whoWords } from './lease';

const NOW = Date.parse('2026-11-16T12:00:00Z');
const MINUTE = 60_000;
const words = (minutes: number, stale = false) => leaseWords({ until: new Date(NOW + minutes * MINUTE).toISOString(), stale, waits: false }, NOW);

test('a lease says how long it lasts yet', () => {
  expect([0.5, 1, 29.9, 60, 47 * 60 + 59, 48 * 60].map((minutes) => words(minutes))).toEqual([
    'less than a minute left', '1 min left', '29 min left', '1 h left', '47 h left', '2 d left',
  ]);
});

test('a stale lease says since when', () => {
  expect([-0.5, -5, -125].map((minutes) => words(minutes, true))).toEqual([
    'Stale: lapsed less than a minute ago', 'Stale: lapsed 5 min ago', 'Stale: lapsed 2 h ago',
  ]);
});

test('the gateway decides what is stale, not the clock of the browser', () => {
  expect(words(20, true)).toBe('Stale: the lease has lapsed');
  expect(words(-20)).toBe('The lease ends now');
});

test('a time that is none is not shown as one', () => {
  expect(leaseWords({ until: 'soon', stale: false, waits: false }, NOW)).toBe('Lease of unknown length');
  expect(leaseWords({ until: new Date(NOW - MINUTE).toISOString(), stale: false, waits: true }, NOW)).toBe('Waits to be merged');
  expect(leaseWords({ until: 'soon', stale: true, waits: false }, NOW)).toBe('Stale: the lease has lapsed');
});

test('who has it is on one line', () => {
  expect(whoWords({ agent: 'coder', name: 'Ada' })).toBe('coder of Ada');
  expect(whoWords({ agent: null, name: 'Ada\n\u202eecila' })).toBe('Ada ecila');
  expect(whoWords({ name: ' ' })).toBe('somebody');
});

test('a line of a worklog may begin with its time', () => {
  expect(logLine('2026-11-16T12:00:00.500Z did a thing')).toEqual({ at: NOW + 500, words: 'did a thing' });
  expect(logLine('- 2026-11-16T12:00:00Z did\na thing')).toEqual({ at: NOW, words: 'did a thing' });
  expect(logLine('2026-99-99T12:00:00Z did a thing')).toEqual({ words: '2026-99-99T12:00:00Z did a thing' });
  expect(logLine('did a thing')).toEqual({ words: 'did a thing' });
});
