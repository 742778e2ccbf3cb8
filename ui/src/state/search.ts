// Search in messages, of all agents' sessions: asked over HTTP, so that what is typed further ends what was asked before.

import { effect, signal, untracked } from '@preact/signals';
import { Refusal, searchMessages } from '../api/http';
import type { SearchHit } from '../api/types';
import { connection } from '../api/socket';
import { filter } from './sessions';

const TYPING_MS = 250;
const PAGE = 30;

export const inMessages = signal(false);
export const asExpression = signal(false);

export type SearchState =
  | { name: 'idle' }
  | { name: 'loading' }
  | { name: 'failed'; message: string }
  | { name: 'ready'; hits: SearchHit[]; cursor: string | undefined; loadingMore: boolean; failedMore?: string };
export const found = signal<SearchState>({ name: 'idle' });

let asked: AbortController | undefined;

async function ask(cursor: string | undefined, signal: AbortSignal) {
  const { search, sources, scope } = filter.peek();
  const page = await searchMessages({
    q: search.trim(), limit: PAGE,
    ...(asExpression.peek() ? { regex: 1 } : {}),
    ...(sources.length ? { source: sources } : {}),
    ...(scope ? { scope } : {}),
    ...(cursor ? { cursor } : {}),
  }, signal);
  return { hits: page.hits, cursor: page.nextCursor ?? undefined };
}

const words = (error: unknown) => (error instanceof Refusal ? error.message : 'the connection to the gateway was lost');

/** Asks anew, from the newest message on. */
export async function searchAgain(): Promise<void> {
  asked?.abort();
  if (!filter.peek().search.trim()) {
    found.value = { name: 'idle' };
    return;
  }
  const mine = new AbortController();
  asked = mine;
  found.value = { name: 'loading' };
  try {
    const page = await ask(undefined, mine.signal);
    if (asked === mine) found.value = { name: 'ready', ...page, loadingMore: false };
  } catch (error) {
    if (asked === mine) found.value = { name: 'failed', message: words(error) };
  }
}

export async function searchFurther(): Promise<void> {
  const before = found.peek();
  const mine = asked;
  if (before.name !== 'ready' || !before.cursor || before.loadingMore || !mine) return;
  const { failedMore: _, ...shown } = before;
  found.value = { ...shown, loadingMore: true };
  try {
    const page = await ask(before.cursor, mine.signal);
    if (asked === mine) found.value = { name: 'ready', hits: [...before.hits, ...page.hits], cursor: page.cursor, loadingMore: false };
  } catch (error) {
    if (asked === mine) found.value = { ...shown, loadingMore: false, failedMore: words(error) };
  }
}

export function watchSearch(): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  effect(() => {
    const { search, sources, scope } = filter.value;
    // Everything that changes what is asked for.
    void [search, sources, scope, asExpression.value];
    clearTimeout(timer);
    if (!inMessages.value) {
      asked?.abort();
      untracked(() => (found.value = { name: 'idle' }));
      return;
    }
    untracked(() => {
      if (search.trim()) found.value = { name: 'loading' };
      timer = setTimeout(() => void searchAgain(), TYPING_MS);
    });
  });
  effect(() => {
    if (connection.value.name !== 'signed_out') return;
    asked?.abort();
    untracked(() => {
      found.value = { name: 'idle' };
      inMessages.value = false;
    });
  });
}

/** Cuts a snippet where the words stand that were searched for, so that they can be marked. */
export function marked(snippet: string, search: string, isExpression: boolean): { text: string; found: boolean }[] {
  let pattern: RegExp;
  try {
    if (isExpression) pattern = new RegExp(search, 'giu');
    else {
      const terms = [...search.matchAll(/(-?)(?:"([^"]*)"?|(\S+))/g)].filter((term) => !term[1]).map((term) => (term[2] ?? term[3] ?? '').replace(/\*$/, ''));
      const plain = terms.filter(Boolean).map((term) => term.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
      if (plain.length === 0) return [{ text: snippet, found: false }];
      pattern = new RegExp(plain.join('|'), 'giu');
    }
  } catch {
    // The gateway's expressions and ours are not quite the same.
    return [{ text: snippet, found: false }];
  }
  const parts: { text: string; found: boolean }[] = [];
  let end = 0;
  for (const hit of snippet.matchAll(pattern)) {
    if (hit[0] === '') continue;
    if (hit.index > end) parts.push({ text: snippet.slice(end, hit.index), found: false });
    parts.push({ text: hit[0], found: true });
    end = hit.index + hit[0].length;
  }
  if (end < snippet.length) parts.push({ text: snippet.slice(end), found: false });
  return parts;
}
