// Runs that did not end well, put where they ended in the transcript.

import type { RunRow } from '../api/types';
import type { Item } from './group';

export interface OutcomeItem {
  kind: 'outcome';
  key: string;
  run: RunRow;
}

/** Returns the rows of a transcript with those runs among them. `hasMore` tells that older rows are not loaded. */
export function withOutcomes(items: readonly Item[], runs: readonly RunRow[], hasMore: boolean): (Item | OutcomeItem)[] {
  const bad = runs.filter(endedBadly).toSorted((a, b) => a.endedAt! - b.endedAt!);
  const rows: (Item | OutcomeItem)[] = [];
  let next = 0;
  const place = (until: number) => {
    for (; next < bad.length && bad[next]!.endedAt! < until; next += 1) {
      // What ended before everything that is loaded belongs to a page that is still to come.
      if (rows.length > 0 || !hasMore) rows.push({ kind: 'outcome', key: `outcome:${bad[next]!.runId}`, run: bad[next]! });
    }
  };
  for (const item of items) {
    place(item.at);
    // Who goes on speaking is named anew after something else.
    const isFirst = rows.at(-1)?.kind === 'outcome' && 'named' in item;
    rows.push(isFirst ? { ...item, named: true } : item);
  }
  place(Infinity);
  return rows;
}

/** A message that was taken back before its turn left nothing to tell of. */
function endedBadly(run: RunRow): boolean {
  if (!run.endedAt) return false;
  return run.state === 'cancelled' ? Boolean(run.startedAt) : ['failed', 'timed_out', 'aborted'].includes(run.state);
}
