// The one WebSocket to the gateway: requests with answers, events, and coming back after a loss.

import { signal } from '@preact/signals';
import { delay, follows } from './backoff';
import { probe } from './http';
import type {
  AgentAccepted, AgentRequest, Agents, ChatAbort, ChatAborted, ChatHistory, ChatSend, ChatSent, ErrorType,
  EventFrame, GetPlan, HelloOk, HistoryPage, Lagged, ListRuns, ListSessions, OneSession, PatchSession, PlanEvent,
  PlanState, PlanView, ResponseFrame, ReviewPlan, Row, Rows, RunDelta, Runs, SessionMessage, SessionsChanged,
  Subscribed, SubscribeMessages,
} from './types';

type Nothing = Record<string, never>;

/** What can be asked, and what comes back. */
export interface Methods {
  'sessions.list': [ListSessions, Rows];
  'sessions.get': [OneSession, Row];
  'sessions.subscribe': [Nothing, Subscribed];
  'sessions.messages.subscribe': [SubscribeMessages, Subscribed];
  'sessions.messages.unsubscribe': [OneSession, Subscribed];
  'sessions.patch': [PatchSession, unknown];
  'sessions.reset': [OneSession, unknown];
  'sessions.delete': [OneSession, unknown];
  'chat.history': [ChatHistory, HistoryPage];
  'chat.send': [ChatSend, ChatSent];
  'chat.abort': [ChatAbort, ChatAborted];
  agent: [AgentRequest, AgentAccepted];
  'agents.list': [Nothing, Agents];
  'runs.list': [ListRuns, Runs];
  'plans.get': [GetPlan, PlanView];
  'plans.review': [ReviewPlan, PlanState];
}

/** What happens without being asked for. */
export interface Events {
  'session.message': SessionMessage;
  'sessions.changed': SessionsChanged;
  session_plan_updated: PlanEvent;
  session_plan_state: PlanEvent;
  'run.delta': RunDelta;
  lagged: Lagged;
}

export type ConnectionState =
  | { name: 'connecting'; attempt: number }
  | { name: 'open' }
  | { name: 'waiting'; until: number; attempt: number; reason: string }
  | { name: 'signed_out'; reason?: string };

export class RequestError extends Error {
  constructor(
    readonly code: ErrorType | 'offline' | 'timeout',
    message: string,
  ) {
    super(message);
  }
}

const REQUEST_TIMEOUT_MS = 20_000;
const PROTOCOL = 1;

export const connection = signal<ConnectionState>({ name: 'connecting', attempt: 0 });
export const hello = signal<HelloOk | undefined>(undefined);

interface Pending {
  resolve: (payload: unknown) => void;
  reject: (error: RequestError) => void;
  timer: ReturnType<typeof setTimeout>;
}

let socket: WebSocket | undefined;
let attempt = 0;
let retryTimer: ReturnType<typeof setTimeout> | undefined;
let quietTimer: ReturnType<typeof setTimeout> | undefined;
let lastSeq: number | undefined;
let nextId = 1;
const pending = new Map<string, Pending>();
const listeners = new Map<string, Set<(payload: never) => void>>();
const resyncs = new Set<() => void>();

/** Calls `listener` with each event of that name; returns how to stop. */
export function on<E extends keyof Events>(event: E, listener: (payload: Events[E]) => void): () => void {
  const set = listeners.get(event) ?? new Set();
  listeners.set(event, set.add(listener));
  return () => set.delete(listener);
}

/** Calls `listener` whenever what is shown must be asked for again: after connecting, or when events were lost. */
export function onResync(listener: () => void): () => void {
  resyncs.add(listener);
  return () => resyncs.delete(listener);
}

/** Asks the gateway; rejects with a {@link RequestError} that says why not. */
export function request<M extends keyof Methods>(
  method: M,
  params: Methods[M][0],
  timeoutMs = REQUEST_TIMEOUT_MS,
): Promise<Methods[M][1]> {
  if (connection.value.name !== 'open') {
    return Promise.reject(new RequestError('offline', 'not connected to the gateway'));
  }
  return ask(method, params, timeoutMs) as Promise<Methods[M][1]>;
}

function ask(method: string, params: unknown, timeoutMs = REQUEST_TIMEOUT_MS): Promise<unknown> {
  const id = String(nextId++);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      pending.delete(id);
      reject(new RequestError('timeout', `the gateway did not answer within ${timeoutMs / 1000} seconds`));
    }, timeoutMs);
    pending.set(id, { resolve, reject, timer });
    socket!.send(JSON.stringify({ type: 'req', id, method, params }));
  });
}

/** Opens the connection, and keeps it open from now on. */
export function connect(): void {
  clearTimeout(retryTimer);
  if (socket) return;
  connection.value = { name: 'connecting', attempt };
  const address = new URL('ws', location.href.replace(/[?#].*$/, ''));
  address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
  const opening = new WebSocket(address);
  socket = opening;
  opening.onopen = async () => {
    const client = { id: 'intersession-web', version: __VERSION__ };
    try {
      const answer = await ask('connect', { minProtocol: PROTOCOL, maxProtocol: PROTOCOL, client });
      hello.value = answer as HelloOk;
      attempt = 0;
      lastSeq = undefined;
      connection.value = { name: 'open' };
      stillThere();
      resync();
    } catch (error) {
      const refused = error instanceof RequestError && error.code === 'unauthorized';
      if (refused) close(opening, { name: 'signed_out' });
      else opening.close();
    }
  };
  opening.onmessage = ({ data }) => {
    if (opening !== socket || typeof data !== 'string') return;
    stillThere();
    receive(JSON.parse(data) as ResponseFrame | EventFrame);
  };
  opening.onclose = (event) => {
    if (opening !== socket) return;
    void lost(opening, event);
  };
}

/** Closes the connection for good: the person signed out. */
export function disconnect(): void {
  close(socket, { name: 'signed_out' });
}

/** Tries at once instead of waiting for the timer. */
export function reconnectNow(): void {
  if (connection.value.name === 'waiting') connect();
}

function receive(frame: ResponseFrame | EventFrame): void {
  if (frame.type === 'res') {
    const waiting = pending.get(frame.id);
    if (!waiting) return;
    pending.delete(frame.id);
    clearTimeout(waiting.timer);
    if (frame.ok) waiting.resolve(frame.payload);
    else waiting.reject(new RequestError(frame.error?.code ?? 'internal', frame.error?.message ?? 'unknown error'));
    return;
  }
  const continuity = follows(lastSeq, frame.seq);
  if (continuity === 'repeated') return;
  lastSeq = frame.seq;
  for (const listener of listeners.get(frame.event) ?? []) listener(frame.payload as never);
  if (continuity === 'gap' || frame.event === 'lagged') resync();
}

function resync(): void {
  for (const listener of [...resyncs]) listener();
}

/** A connection that says nothing for three ticks is dead, whatever the operating system thinks. */
function stillThere(): void {
  clearTimeout(quietTimer);
  const tick = hello.value?.policy.tickSeconds;
  if (!tick) return;
  const open = socket;
  quietTimer = setTimeout(() => open?.close(), Math.max(10, tick * 3) * 1000);
}

function close(closing: WebSocket | undefined, state: ConnectionState): void {
  clearTimeout(quietTimer);
  clearTimeout(retryTimer);
  if (socket === closing) socket = undefined;
  closing?.close();
  for (const [id, waiting] of pending) {
    clearTimeout(waiting.timer);
    pending.delete(id);
    waiting.reject(new RequestError('offline', 'the connection to the gateway was lost'));
  }
  connection.value = state;
}

async function lost(closed: WebSocket, event: CloseEvent): Promise<void> {
  const reason = event.reason || 'the gateway does not answer';
  const until = Date.now() + delay(attempt, Math.random);
  attempt += 1;
  close(closed, { name: 'waiting', until, attempt, reason });
  retryTimer = setTimeout(connect, until - Date.now());
  // A browser does not say why a WebSocket was refused, so ask once more over HTTP.
  if ((await probe()) === 'unauthorized' && connection.value.name === 'waiting') {
    clearTimeout(retryTimer);
    connection.value = { name: 'signed_out' };
  }
}

/** Comes back at once when the network or the person does. */
export function watchNetwork(): void {
  addEventListener('online', reconnectNow);
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'visible') reconnectNow();
  });
}

declare const __VERSION__: string;
