import { expect, test } from 'vitest';
import type { WorkRow } from '../api/types';
import { columnsOf, firstColumn, FOLDED, splitPlan } from './columns';

const row = (state: WorkRow['state'], slug: string, more: Partial<WorkRow> = {}): WorkRow => ({ state, slug, title: slug, ready: false, ...more });
const holder = (since: string, stale = false) => ({ name: 'Ada', host: 'one', since, until: since, stale, waits: false, attempt: 1 });

test('each state is a column, also without cards', () => {
  const columns = columnsOf([row('planned', '2026-11-01-b'), row('planned', '2026-11-01-a')]);
  expect(columns.map(({ state, count }) => [state, count])).toEqual([
    ['drafting', 0], ['planned', 2], ['active', 0], ['completed', 0], ['abandoned', 0],
  ]);
  // What is not over stays as the gateway has it.
  expect(columns[1]!.rows.map(({ slug }) => slug)).toEqual(['2026-11-01-b', '2026-11-01-a']);
});

test('what is over is newest first, and folded', () => {
  const slugs = Array.from({ length: 14 }, (_, index) => `2026-10-${String(index + 10)}-x`);
  const rows = [...slugs.map((slug) => row('completed', slug)), row('completed', 'kb-2026-10-30-merge-x')];
  const folded = columnsOf(rows)[3]!;
  expect(folded.count).toBe(15);
  expect(folded.rows).toHaveLength(FOLDED);
  expect(folded.rows.slice(0, 2).map(({ slug }) => slug)).toEqual(['kb-2026-10-30-merge-x', '2026-10-23-x']);
  expect(columnsOf(rows, new Set(['completed']))[3]!.rows).toHaveLength(15);
  expect(columnsOf(rows, new Set(['abandoned']))[3]!.rows).toHaveLength(FOLDED);
  expect(columnsOf(slugs.map((slug) => row('active', slug)))[2]!.rows).toHaveLength(14);
});

test('an old plan that was worked on lately is new', () => {
  const rows = [row('completed', '2026-11-02-b'), row('completed', '2026-01-01-a', { holder: holder('2026-11-03T10:00:00Z') }), row('completed', 'odd')];
  expect(columnsOf(rows)[3]!.rows.map(({ slug }) => slug)).toEqual(['2026-01-01-a', '2026-11-02-b', 'odd']);
});

test('lapsed leases are counted where somebody should look', () => {
  const stale = { holder: holder('2026-11-03T10:00:00Z', true) };
  const columns = columnsOf([row('active', 'a', stale), row('active', 'b', { holder: holder('2026-11-03T10:00:00Z') }), row('abandoned', 'c', stale)]);
  expect(columns.map((column) => column.stale)).toEqual([0, 0, 1, 0, 0]);
});

test('the first column is where work is going on', () => {
  expect(firstColumn(columnsOf([row('drafting', 'a'), row('active', 'b')]))).toBe('active');
  expect(firstColumn(columnsOf([row('drafting', 'a'), row('planned', 'b')]))).toBe('planned');
  expect(firstColumn(columnsOf([row('abandoned', 'a')]))).toBe('abandoned');
  expect(firstColumn(columnsOf([]))).toBe('active');
});

test('front matter is not part of the text', () => {
  expect(splitPlan('---\nlabels: [a]\n---\n# Title\n\n---\n')).toEqual({ front: 'labels: [a]', text: '# Title\n\n---\n' });
  expect(splitPlan('---\r\ndepends: []\r\n---\r\ntext')).toEqual({ front: 'depends: []', text: 'text' });
  expect(splitPlan('---\n---\ntext')).toEqual({ front: '', text: 'text' });
  expect(splitPlan('# Title\n---\nx\n---\n')).toEqual({ front: '', text: '# Title\n---\nx\n---\n' });
});
