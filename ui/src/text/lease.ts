// What a card of the board says: who has a work session, for how long yet, and what was logged last.

import type { WorkHolder } from '../api/types';
import { oneLine } from './clean';

const MINUTE = 60_000;

/** Returns a rough length of time: `12 min`, `3 h`, `2 d`. */
function rough(ms: number): string {
  const minutes = Math.floor(ms / MINUTE);
  if (minutes < 1) return 'less than a minute';
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h`;
  return `${Math.floor(minutes / (24 * 60))} d`;
}

/** Says how a lease stands. Whether it is stale is the gateway's word: the clock of this browser may be wrong. */
export function leaseWords({ until, stale, waits }: Pick<WorkHolder, 'until' | 'stale' | 'waits'>, now: number): string {
  if (waits) return 'Waits to be merged';
  const left = Date.parse(until) - now;
  if (stale) return left < 0 ? `Stale: lapsed ${rough(-left)} ago` : 'Stale: the lease has lapsed';
  if (Number.isNaN(left)) return 'Lease of unknown length';
  return left > 0 ? `${rough(left)} left` : 'The lease ends now';
}

/** Says who it is: `coder of Ada`, or `Ada`. */
export function whoWords({ agent, name }: { agent?: string | null; name: string }): string {
  const person = oneLine(name) || 'somebody';
  const by = oneLine(agent ?? '');
  return by ? `${by} of ${person}` : person;
}

/** Takes the time off a line of a worklog. */
export function logLine(line: string): { at?: number; words: string } {
  const [, time, rest] = /^(?:[-*] )?(\d{4}-\d\d-\d\dT[\d:.]+Z) (.*)$/s.exec(line) ?? [];
  const at = Date.parse(time ?? '');
  return Number.isNaN(at) ? { words: oneLine(line) } : { at, words: oneLine(rest ?? '') };
}
