// The list of sessions: filtered by the gateway, kept fresh by events, loaded further on scrolling.

import { batch, computed, effect, signal, untracked } from '@preact/signals';
import { connection, on, onResync, request } from '../api/socket';
import type { Agents, Row, Rows, SessionsChanged } from '../api/types';
import { type Filter, matches, NO_FILTER, toRequest, withRow } from './filter';
import { type Glance, glanceOf } from './glance';
import { keepSources, keptSources } from './settings';
import { inOrder, sourceOf } from './vendors';

const PAGE = 200;
/** How many rows are asked for again at once after events were lost; the rest comes on scrolling. */
const REFRESH_MAX = 1000;
const TYPING_MS = 120;
/** Other agents tell nobody what they do: their sessions are looked at again while somebody looks. */
const LOOK_AGAIN_MS = 30_000;

const kept = keptSources();
export const filter = signal<Filter>(kept.sources.length || kept.scope ? { ...NO_FILTER, ...kept } : NO_FILTER);
/** Whose sessions there are, as far as they were seen. */
export const sources = signal<string[]>(inOrder(kept.sources));
export const rows = signal<Row[]>([]);
export const total = signal<{ count: number; atLeast: boolean } | undefined>(undefined);
export const listState = signal<'loading' | 'ready' | 'failed'>('loading');
export const listError = signal('');
export const agents = signal<Agents>({ agents: [] });

/** What the list shows. Status is filtered here: it changes with every run. */
export const shown = computed(() =>
  filter.value === NO_FILTER ? rows.value : rows.value.filter((row) => matches(row, filter.value)),
);

let complete = false;
let loading = false;
let generation = 0;
let askedFor: string | undefined;

// Rows of sessions that were seen, whatever the filter, by key and by id.
const known = signal<ReadonlyMap<string, Row>>(new Map());

/** Returns a session's row by its key or id, if it was seen. */
export function rowOf(reference: string): Row | undefined {
  return known.value.get(reference);
}

// What the list says of the newest messages, by session id.
const glances = signal<ReadonlyMap<string, Glance>>(new Map());

/** Returns how many messages a session has and what the newest says, if that was told. */
export function glanceAt(sessionId: string): Glance | undefined {
  return glances.value.get(sessionId);
}

/** Takes the newest messages out of rows that came with them: a list of thousands need not hold them. */
function glanced(listed: Row[]): Row[] {
  const next = new Map(glances.peek());
  for (const { sessionId, messages } of listed) {
    for (const message of messages ?? []) next.set(sessionId, glanceOf(message, next.get(sessionId)));
  }
  glances.value = next;
  return listed.map(({ messages: _, ...row }) => row);
}

export function remember(seen: Row[]): void {
  const next = new Map(known.peek());
  for (const given of seen) {
    // Lists do not say what ran below a session.
    const below = given.subSessions ?? next.get(given.key)?.subSessions;
    const row = below ? { ...given, subSessions: below } : given;
    next.set(row.key, row).set(row.sessionId, row);
  }
  known.value = next;
  const found = inOrder([...sources.peek(), ...seen.map(sourceOf)]);
  if (found.length !== sources.peek().length) sources.value = found;
}

/** Fetches one session's row; it is remembered. */
export async function fetchRow(reference: string): Promise<Row> {
  const row = await request('sessions.get', { key: reference });
  remember([row]);
  return row;
}

async function fetchPage(offset: number, limit: number) {
  const page = await request('sessions.list', { ...toRequest(filter.peek()), limit, offset, messageLimit: 1 });
  return { ...page, sessions: glanced(page.sessions) };
}

/** The gateway counts only so far; what is loaded says more, and all of it says everything. */
function counted(page: Rows, loaded: number): void {
  const atLeast = !complete && (page.totalIsMinimum ?? false);
  total.value = { count: Math.max(page.total, loaded), atLeast };
}

/** Loads the list from its beginning, at least as far as it was loaded. */
export async function reload(): Promise<void> {
  if (connection.peek().name !== 'open') return;
  generation += 1;
  const mine = generation;
  loading = true;
  const goal = Math.min(REFRESH_MAX, Math.max(PAGE, rows.peek().length));
  if (rows.peek().length === 0) listState.value = 'loading';
  try {
    const loaded = new Map<string, Row>();
    for (;;) {
      const page = await fetchPage(loaded.size, PAGE);
      if (mine !== generation) return;
      for (const row of page.sessions) loaded.set(row.key, row);
      complete = page.sessions.length < PAGE;
      counted(page, loaded.size);
      if (complete || loaded.size >= goal) break;
    }
    rows.value = [...loaded.values()];
    remember(rows.value);
    listState.value = 'ready';
  } catch (error) {
    if (mine !== generation) return;
    listError.value = (error as Error).message;
    listState.value = 'failed';
  }
  if (mine === generation) loading = false;
}

/** Loads the next page, if there is one. */
export async function loadMore(): Promise<void> {
  if (loading || complete || listState.peek() !== 'ready') return;
  loading = true;
  const mine = generation;
  try {
    const page = await fetchPage(rows.peek().length, PAGE);
    if (mine !== generation) return;
    const merged = new Map(rows.peek().map((row) => [row.key, row]));
    for (const row of page.sessions) if (!merged.has(row.key)) merged.set(row.key, row);
    complete = page.sessions.length < PAGE;
    counted(page, merged.size);
    rows.value = [...merged.values()];
    remember(page.sessions);
  } catch {
    // The next scroll asks again.
  }
  if (mine === generation) loading = false;
}

export const isComplete = () => complete;

// Changes are applied once a frame, however many there are.
let changes = new Map<string, SessionsChanged>();
let heard = new Map<string, Glance>();
let frame: number | undefined;

function applySoon(): void {
  frame ??= requestAnimationFrame(apply);
}

function apply(): void {
  frame = undefined;
  const batch = changes;
  changes = new Map();
  if (heard.size > 0) glances.value = new Map([...glances.peek(), ...heard]);
  heard = new Map();
  let next = rows.peek();
  const seen: Row[] = [];
  for (const change of batch.values()) {
    const row = change.session ?? undefined;
    if (row) seen.push(row);
    const listed = next.some((other) => other.key === change.sessionKey);
    const gone = change.phase === 'deleted' || !row || !matches(row, { ...filter.peek(), status: '' });
    // A session older than everything loaded belongs to a page that is still to come.
    const beyond = !complete && !listed && row && row.updatedAt < (next.at(-1)?.updatedAt ?? 0);
    if (gone ? listed : !beyond) next = withRow(next, change.sessionKey, gone ? undefined : row);
    const count = total.peek();
    if (count && gone && listed) total.value = { ...count, count: count.count - 1 };
    if (count && change.phase === 'created' && !gone && !listed) total.value = { ...count, count: count.count + 1 };
  }
  if (next !== rows.peek()) rows.value = next;
  if (seen.length) remember(seen);
}

async function fetchAgents(): Promise<void> {
  try {
    agents.value = await request('agents.list', {});
  } catch {
    // Sessions can be read without knowing the agents.
  }
}

/** Forgets all sessions: who signs in next may be somebody else. */
function forget(): void {
  generation += 1;
  loading = false;
  complete = false;
  changes = new Map();
  heard = new Map();
  batch(() => {
    rows.value = [];
    known.value = new Map();
    glances.value = new Map();
    agents.value = { agents: [] };
    sources.value = inOrder(filter.peek().sources);
    total.value = undefined;
    listState.value = 'loading';
  });
}

export function watchSessions(): void {
  effect(() => {
    if (connection.value.name === 'signed_out') untracked(forget);
  });
  on('sessions.changed', (change) => {
    applySoon();
    // Of several changes the last one counts: its row has them all.
    changes.set(change.sessionKey, change);
  });
  on('session.message', ({ sessionId, message }) => {
    applySoon();
    heard.set(sessionId, glanceOf(message, heard.get(sessionId) ?? glances.peek().get(sessionId)));
  });
  onResync(() => {
    void request('sessions.subscribe', {}).catch(() => undefined);
    void reload();
    void fetchAgents();
  });
  const lookAgain = () => {
    const hasOthers = sources.peek().some((source) => source !== 'native');
    if (document.visibilityState === 'visible' && hasOthers && !loading && listState.peek() === 'ready') void reload();
  };
  setInterval(lookAgain, LOOK_AGAIN_MS);
  document.addEventListener('visibilitychange', lookAgain);
  effect(() => keepSources(filter.value.sources, filter.value.scope));
  let timer: ReturnType<typeof setTimeout> | undefined;
  effect(() => {
    const wanted = JSON.stringify(toRequest(filter.value));
    if (wanted === askedFor) return;
    const first = askedFor === undefined;
    askedFor = wanted;
    if (first) return;
    // Answers to what was typed before are of no use any more, and what they were about is not to be continued.
    generation += 1;
    loading = true;
    complete = false;
    total.value = undefined;
    clearTimeout(timer);
    timer = setTimeout(() => untracked(() => void reload()), TYPING_MS);
  });
}
