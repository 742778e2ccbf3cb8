// When to try again after the connection was lost.

export const FIRST_MS = 500;
export const LONGEST_MS = 20_000;

/**
 * Returns how long to wait before the given attempt, counted from 0: twice as long each time up to a
 * limit, and anywhere in the upper half of it, so that many pages do not come back at the same moment.
 */
export function delay(attempt: number, random: () => number): number {
  const most = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(attempt, 16));
  return Math.round(most / 2 + (most / 2) * random());
}

export type Continuity = 'next' | 'repeated' | 'gap';

/** Tells whether an event follows the one before it. The first event of a connection may have any number. */
export function follows(last: number | undefined, seq: number): Continuity {
  if (last === undefined || seq === last + 1) return 'next';
  return seq <= last ? 'repeated' : 'gap';
}
