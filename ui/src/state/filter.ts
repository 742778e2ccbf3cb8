// Which sessions a list shows, and in which order.

import type { ListSessions, Row } from '../api/types';
import { sourceOf } from './vendors';

export interface Filter {
  search: string;
  kind: string;
  agent: string;
  status: string;
  archived: boolean;
  /** Only sessions that come from these; from all when empty. */
  sources: string[];
  scope: '' | 'repo';
}

export const NO_FILTER: Filter = { search: '', kind: '', agent: '', status: '', archived: false, sources: [], scope: '' };

/** Returns the part of a filter that the gateway applies. Status changes too often for that: see {@link matches}. */
export function toRequest(filter: Filter): ListSessions {
  return {
    ...(filter.search.trim() ? { search: filter.search.trim() } : {}),
    ...(filter.kind ? { kinds: [filter.kind] } : {}),
    ...(filter.agent ? { agent: filter.agent } : {}),
    ...(filter.archived ? { archived: true } : {}),
    ...(filter.sources.length ? { source: filter.sources } : {}),
    ...(filter.scope ? { scope: filter.scope } : {}),
  };
}

/** Tells whether a session that changed belongs into the list. */
export function matches(row: Row, filter: Filter): boolean {
  if (row.archived && !filter.archived) return false;
  if (filter.kind && row.kind !== filter.kind) return false;
  if (filter.agent && agentOf(row) !== filter.agent) return false;
  if (filter.status && (row.status ?? 'idle') !== filter.status) return false;
  if (filter.sources.length && !filter.sources.includes(sourceOf(row))) return false;
  const search = filter.search.trim().toLowerCase();
  if (!search) return true;
  return [row.title, row.displayName, row.label, row.key, row.cwd].some((text) => text?.toLowerCase().includes(search));
}

/** Returns the agent of a session; its key names one when the row does not. */
export function agentOf(row: Row): string {
  return row.agentId ?? /^agent:([^:]+):/.exec(row.key)?.[1] ?? '';
}

/** Orders sessions as the gateway does: the newest first, by key where two are equally new. */
export function newestFirst(a: Row, b: Row): number {
  return b.updatedAt - a.updatedAt || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0);
}

/** Puts a changed row into a sorted list, or takes it out when it is gone; the list itself is not touched. */
export function withRow(rows: readonly Row[], key: string, row: Row | undefined): Row[] {
  const others = rows.filter((other) => other.key !== key);
  if (!row) return others;
  let low = 0;
  let high = others.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (newestFirst(others[middle]!, row) < 0) low = middle + 1;
    else high = middle;
  }
  others.splice(low, 0, row);
  return others;
}
