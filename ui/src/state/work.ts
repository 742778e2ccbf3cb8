// The board of work sessions and the one that is open, asked for again and again while somebody looks.

import { computed, effect, type Signal, signal, untracked } from '@preact/signals';
import { getBoard, getWork, Refusal } from '../api/http';
import { connection, onResync } from '../api/socket';
import type { WorkBoard, WorkSession } from '../api/types';
import { route } from './route';

const EVERY_MS = 5_000;
const PATIENCE_MS = 20_000;

export interface Trouble {
  kind: 'offline' | 'forbidden' | 'not_found' | 'failed';
  message: string;
}

/** What the gateway said last, and what went wrong since. */
export interface Known<T> {
  value?: T;
  /** When it was said, in milliseconds. */
  at?: number;
  trouble?: Trouble;
}

export const board = signal<Known<WorkBoard>>({});
export const opened = signal<Known<WorkSession>>({});

const slug = computed(() => (route.value.view === 'work' ? route.value.slug : undefined));
const isWanted = computed(() => route.value.view === 'work' && connection.value.name !== 'signed_out');

/** Returns what a work session is called; its slug while nothing else is known. */
export function titleOfWork(of: string): string {
  const open = opened.value.value;
  const row = open?.slug === of ? open : board.value.value?.sessions.find((one) => one.slug === of);
  return row?.title.trim() || of;
}

const inFlight = new Set<string>();

/** Asks for the board, and for the open work session. */
export function refreshWork(): void {
  if (!isWanted.peek() || document.visibilityState === 'hidden') return;
  const open = slug.peek();
  void ask('', board, getBoard, () => isWanted.peek());
  if (open !== undefined) void ask(open, opened, (signal) => getWork(open, signal), () => slug.peek() === open);
}

/** Asks once at a time: a repository whose remote is slow must not be asked ever more. */
async function ask<T>(name: string, into: Signal<Known<T>>, get: (signal: AbortSignal) => Promise<T>, isStillWanted: () => boolean): Promise<void> {
  if (inFlight.has(name)) return;
  inFlight.add(name);
  try {
    const value = await get(AbortSignal.timeout(PATIENCE_MS));
    if (isStillWanted()) into.value = { value, at: Date.now() };
  } catch (error) {
    if (isStillWanted()) into.value = after(into.peek(), troubleOf(error));
  } finally {
    inFlight.delete(name);
  }
}

function troubleOf(error: unknown): Trouble {
  if (!(error instanceof Refusal)) {
    const late = (error as Error).name === 'TimeoutError';
    return late ? { kind: 'failed', message: 'the gateway took too long to answer' } : { kind: 'offline', message: 'the gateway does not answer' };
  }
  const kind = error.status === 403 ? 'forbidden' : error.status === 404 ? 'not_found' : 'failed';
  return { kind, message: error.message };
}

/** Keeps what is known, unless it is no longer there or no longer ours to see. */
function after<T>(known: Known<T>, trouble: Trouble): Known<T> {
  return trouble.kind === 'forbidden' || trouble.kind === 'not_found' ? { trouble } : { ...known, trouble };
}

export function watchWork(): void {
  effect(() => {
    const open = slug.value;
    const wanted = isWanted.value;
    const isSignedOut = connection.value.name === 'signed_out';
    untracked(() => {
      // Who signs in next may be somebody else.
      if (isSignedOut) board.value = {};
      if (isSignedOut || opened.value.value?.slug !== open) opened.value = {};
      if (wanted) refreshWork();
    });
  });
  setInterval(refreshWork, EVERY_MS);
  addEventListener('focus', refreshWork);
  document.addEventListener('visibilitychange', refreshWork);
  onResync(refreshWork);
}
