// The board of work sessions: which card is in which column, in what order, and how many of them are shown.

import type { WorkRow, WorkState } from '../api/types';

export const STATES: { state: WorkState; name: string; isOver: boolean }[] = [
  { state: 'drafting', name: 'Drafting', isOver: false },
  { state: 'planned', name: 'Planned', isOver: false },
  { state: 'active', name: 'Active', isOver: false },
  { state: 'completed', name: 'Completed', isOver: true },
  { state: 'abandoned', name: 'Abandoned', isOver: true },
];

/** How many of those that are over are shown at first. */
export const FOLDED = 10;

export interface Column {
  state: WorkState;
  name: string;
  isOver: boolean;
  /** All there are. */
  count: number;
  /** How many have a holder whose lease has lapsed. */
  stale: number;
  /** Those to show. */
  rows: WorkRow[];
}

/** Returns the five columns. What is over is newest first, and only the newest ten unless all are asked for. */
export function columnsOf(rows: WorkRow[], unfolded: ReadonlySet<WorkState> = new Set()): Column[] {
  return STATES.map(({ state, name, isOver }) => {
    const own = rows.filter((row) => row.state === state);
    if (isOver) own.sort((one, other) => ageKey(other).localeCompare(ageKey(one)));
    const shown = isOver && !unfolded.has(state) ? own.slice(0, FOLDED) : own;
    return { state, name, isOver, count: own.length, stale: isOver ? 0 : own.filter((row) => row.holder?.stale).length, rows: shown };
  });
}

/** Sorts by when somebody had it last, else by the date in the name. */
function ageKey(row: WorkRow): string {
  const taken = Date.parse(row.holder?.since ?? '');
  const when = Number.isNaN(taken) ? (/^(?:kb-)?(\d{4}-\d\d-\d\d)-/.exec(row.slug)?.[1] ?? '') : new Date(taken).toISOString();
  return `${when} ${row.slug}`;
}

/** Returns the column to begin with where only one fits: where work is going on, else the first with something in it. */
export function firstColumn(columns: Column[]): WorkState {
  const filled = columns.filter(({ count }) => count > 0).map(({ state }) => state);
  return filled.includes('active') ? 'active' : (filled.find((state) => state === 'planned') ?? filled[0] ?? 'active');
}

/** Returns the front matter of a plan, if it has one, and the text after it. */
export function splitPlan(plan: string): { front: string; text: string } {
  const found = /^\uFEFF?---[ \t]*\r?\n(?:([\s\S]*?)\r?\n)?---[ \t]*(?:\r?\n|$)/.exec(plan);
  return found ? { front: (found[1] ?? '').trim(), text: plan.slice(found[0].length) } : { front: '', text: plan };
}
