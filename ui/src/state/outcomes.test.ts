import { expect, test } from 'vitest';
import type { Message, RunRow } from '../api/types';
import type { Item } from './group';
import { withOutcomes } from './outcomes';

const run = (runId: string, state: string, endedAt: number | undefined, startedAt: number | undefined = 1): RunRow => ({
  runId, state, sessionId: 's', agent: 'a', errand: 'message', delivery: 'queued', queuedAt: 0, tokens: 0, root: runId, depth: 0,
  ...(startedAt ? { startedAt } : {}), ...(endedAt ? { endedAt } : {}),
});

const day = (at: number): Item => ({ kind: 'day', key: String(at), at });

/** Writes rows as text: the times of items, the names of runs. */
const shape = (times: number[], runs: RunRow[], hasMore = false) =>
  withOutcomes(times.map(day), runs, hasMore).map((row) => (row.kind === 'outcome' ? row.run.runId : row.key)).join(' ');

test('a run that failed stays where it ended, whatever comes after it', () => {
  const runs = [run('c', 'failed', 35), run('b', 'done', 25), run('a', 'timed_out', 15)];
  expect(shape([10, 20, 30], runs)).toBe('10 a 20 30 c');
  expect(shape([10, 20, 30, 40], runs)).toBe('10 a 20 30 c 40');
});

test('who goes on speaking after an outcome is named', () => {
  const message: Message = { id: 'm', seq: 1, role: 'user', timestamp: 10, content: [] };
  const said = (at: number): Item => ({ kind: 'said', key: String(at), seq: at, at, speaker: { kind: 'person' }, named: false, blocks: [], message });
  const named = (runs: RunRow[]) => withOutcomes([said(10), said(20)], runs, false).map((row) => 'named' in row && row.named);
  expect(named([run('a', 'failed', 15)])).toEqual([false, false, true]);
  expect(named([])).toEqual([false, false]);
});

test('what belongs to a page that is not loaded waits for it', () => {
  expect(shape([10], [run('a', 'aborted', 5)], true)).toBe('10');
  expect(shape([10], [run('a', 'aborted', 5)])).toBe('a 10');
  expect(shape([], [run('a', 'failed', 5)])).toBe('a');
});

test('what was taken back before its turn, or still runs, is no outcome', () => {
  expect(shape([10], [run('a', 'cancelled', 15, 0), run('b', 'running', undefined)])).toBe('10');
  expect(shape([10], [run('a', 'cancelled', 15, 12)])).toBe('10 a');
});
