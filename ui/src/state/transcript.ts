// The transcript of the open session: pages from the gateway, live messages, the reply that is being
// streamed, and what was sent but is not in the transcript yet.

import { batch, computed, signal } from '@preact/signals';
import { connection, on, onResync, request, RequestError } from '../api/socket';
import type { HistoryPage, Message, RunRow, SessionMessage } from '../api/types';
import { group, merge } from './group';
import { fetchRow, rowOf } from './sessions';
import { markSeen } from './settings';
import { sourceOf } from './vendors';

const PAGE = 100;
const JUMP_PAGE = 1000;
/** Of so many of the newest runs a bad end is shown. */
const RUNS_MAX = 100;
/** Past this many pages a gap is not worth closing: the transcript starts over at its end. */
const CATCH_UP_PAGES = 5;
/** Another agent tells nobody what it does: its transcript is looked at again while it is open. */
const LOOK_AGAIN_MS = 10_000;

/** Something that was sent, until the transcript has it. */
export interface Sent {
  id: string;
  text: string;
  files: { id: string; name: string }[];
  state: 'sending' | 'queued' | 'failed';
  runId?: string;
  error?: string;
}

export class Transcript {
  readonly messages = signal<Message[]>([]);
  readonly state = signal<'loading' | 'ready' | 'missing' | 'failed'>('loading');
  readonly error = signal('');
  readonly hasMore = signal(false);
  readonly loadingOlder = signal(false);
  readonly items = computed(() => group(this.messages.value));
  /** Text that models are streaming, by run. */
  readonly streams = signal<ReadonlyMap<string, string>>(new Map());
  readonly sent = signal<Sent[]>([]);
  readonly runs = signal<RunRow[]>([]);
  readonly row = computed(() => rowOf(this.reference) ?? rowOf(this.sessionId.value));

  private readonly sessionId = signal('');
  private key: string;
  private cursor: string | undefined;
  private early: SessionMessage[] = [];
  private closing: (() => void)[] = [];
  private deltas = new Map<string, string>();
  private runsTimer: ReturnType<typeof setTimeout> | undefined;
  private fetching = false;
  private again = false;
  private isKnown = false;

  /** Opens the session that a key or an id names. */
  constructor(readonly reference: string) {
    this.key = reference;
    this.closing = [
      on('session.message', (event) => this.isOurs(event) && this.hear(event)),
      on('run.delta', (delta) => delta.sessionKey === this.key && this.stream(delta.runId, delta.text)),
      on('sessions.changed', (change) => {
        if (!this.isOurs(change)) return;
        if (change.phase === 'reset') void this.refresh();
        if (change.phase === 'deleted') this.state.value = 'missing';
        if (change.phase === 'run_start' || change.phase === 'run_end') this.fetchRunsSoon();
      }),
      onResync(() => void this.refresh()),
    ];
    const timer = setInterval(() => {
      const looks = document.visibilityState === 'visible' && this.state.value === 'ready';
      if (looks && sourceOf(this.row.value) !== 'native') void this.refresh();
    }, LOOK_AGAIN_MS);
    this.closing.push(() => clearInterval(timer));
    if (connection.value.name === 'open') void this.refresh();
  }

  close(): void {
    clearTimeout(this.runsTimer);
    for (const stop of this.closing) stop();
  }

  /** The key under which the gateway knows the session. */
  get sessionKey(): string {
    return this.key;
  }

  private isOurs(event: { sessionKey: string; sessionId: string }): boolean {
    return event.sessionKey === this.key || event.sessionId === this.reference;
  }

  /** Asks for the newest page and joins it to what is here. Subscribed before, so nothing can be missed. */
  async refresh(): Promise<void> {
    if (this.fetching) {
      this.again = true;
      return;
    }
    this.fetching = true;
    try {
      do {
        this.again = false;
        await this.catchUp();
      } while (this.again);
      this.fetchRunsSoon();
    } catch (error) {
      this.fail(error);
    } finally {
      this.fetching = false;
    }
  }

  private async catchUp(): Promise<void> {
    const newest = await this.page(undefined, PAGE);
    const known = rowOf(this.key);
    if (!known || (sourceOf(known) !== 'native' && !this.isKnown)) await fetchRow(this.key).catch(() => undefined);
    this.isKnown = true;
    const last = this.messages.value.at(-1)?.seq ?? 0;
    const isSame = newest.sessionId === this.sessionId.value && last > 0;
    let loaded = newest.items;
    let page = newest;
    for (let pages = 0; isSame && page.hasMore && (loaded[0]?.seq ?? 0) > last + 1; pages += 1) {
      if (pages === CATCH_UP_PAGES) break;
      page = await this.page(page.nextCursor ?? undefined, JUMP_PAGE);
      loaded = [...page.items, ...loaded];
    }
    const joins = isSame && (loaded[0]?.seq ?? 0) <= last + 1;
    batch(() => {
      this.sessionId.value = newest.sessionId;
      this.messages.value = joins ? merge(this.messages.value, loaded) : loaded;
      if (!joins) this.setOlder(page);
      this.state.value = 'ready';
      const early = this.early;
      this.early = [];
      for (const event of early) this.hear(event);
      this.settle();
    });
    this.seen();
  }

  private async page(cursor: string | undefined, limit: number): Promise<HistoryPage> {
    const page = await request('chat.history', {
      sessionKey: this.reference, limit, includeTools: true, ...(cursor ? { cursor } : {}),
    });
    this.key = page.sessionKey;
    return page;
  }

  private setOlder(page: HistoryPage): void {
    this.hasMore.value = page.hasMore;
    this.cursor = page.nextCursor ?? undefined;
  }

  private fail(error: unknown): void {
    if (!(error instanceof RequestError) || error.code === 'offline') return;
    if (this.messages.value.length > 0 && error.code !== 'not_found') return;
    this.error.value = error.message;
    this.state.value = error.code === 'not_found' ? 'missing' : 'failed';
  }

  /** Loads the page before the oldest message, unless that is being done. */
  loadOlder(): Promise<void> {
    return this.loadingOlder.value ? Promise.resolve() : this.older(undefined);
  }

  /** Loads as many pages as it takes to have a message. */
  async loadUntil(seq: number): Promise<void> {
    while (this.loadingOlder.value) await new Promise((resolve) => setTimeout(resolve, 20));
    await this.older(seq);
  }

  private async older(until: number | undefined): Promise<void> {
    if (this.state.value !== 'ready') return;
    this.loadingOlder.value = true;
    try {
      while (this.hasMore.value) {
        if (until !== undefined && (this.messages.value[0]?.seq ?? 0) <= until) break;
        const page = await this.page(this.cursor, until === undefined ? 2 * PAGE : JUMP_PAGE);
        batch(() => {
          this.messages.value = merge(this.messages.value, page.items);
          this.setOlder(page);
        });
        if (until === undefined) break;
      }
    } catch {
      // Scrolling asks again.
    } finally {
      this.loadingOlder.value = false;
    }
  }

  private hear(event: SessionMessage): void {
    if (this.state.value === 'loading') {
      this.early.push(event);
      return;
    }
    if (event.sessionId !== this.sessionId.value) {
      void this.refresh();
      return;
    }
    const last = this.messages.value.at(-1)?.seq ?? 0;
    if (event.messageSeq > last + 1) {
      void this.refresh();
      return;
    }
    batch(() => {
      this.messages.value = merge(this.messages.value, [event.message]);
      if (event.message.role === 'assistant') this.endStream(event.message.runId);
      if (event.message.role === 'user') this.settle();
    });
    this.seen();
  }

  private seen(): void {
    if (document.visibilityState === 'visible') markSeen(this.key, Math.max(Date.now(), this.row.value?.updatedAt ?? 0));
  }

  private stream(runId: string, text: string): void {
    if (this.deltas.size === 0) {
      requestAnimationFrame(() => {
        const next = new Map(this.streams.value);
        for (const [run, more] of this.deltas) next.set(run, (next.get(run) ?? '') + more);
        this.deltas.clear();
        this.streams.value = next;
      });
    }
    this.deltas.set(runId, (this.deltas.get(runId) ?? '') + text);
  }

  private endStream(runId: string | null | undefined): void {
    const ended = (run: string) => !runId || run === runId;
    for (const run of [...this.deltas.keys()]) if (ended(run)) this.deltas.set(run, '');
    if (this.streams.value.size === 0) return;
    this.streams.value = new Map([...this.streams.value].filter(([run]) => !ended(run)));
  }

  private fetchRunsSoon(): void {
    clearTimeout(this.runsTimer);
    this.runsTimer = setTimeout(() => void this.fetchRuns(), 80);
  }

  private async fetchRuns(): Promise<void> {
    try {
      const { runs } = await request('runs.list', { session: this.key, limit: RUNS_MAX });
      batch(() => {
        this.runs.value = runs;
        const going = new Set(runs.filter((run) => run.state === 'running').map((run) => run.runId));
        if ([...this.streams.value.keys()].some((run) => !going.has(run))) {
          this.streams.value = new Map([...this.streams.value].filter(([run]) => going.has(run)));
        }
        this.settle();
      });
    } catch {
      // The next change asks again.
    }
  }

  /** Forgets what was sent once the transcript has it, or its run is over. */
  private settle(): void {
    if (this.sent.value.length === 0) return;
    const arrived = new Set(this.messages.value.slice(-200).filter((m) => m.role === 'user').map((m) => m.runId));
    const over = new Set(this.runs.value.filter((run) => run.endedAt).map((run) => run.runId));
    this.sent.value = this.sent.value.filter(({ runId }) => !runId || (!arrived.has(runId) && !over.has(runId)));
  }

  /** Sends a message. The same `id` never starts a second run, so a failed send can be repeated. */
  async send(text: string, files: Sent['files'], id: string = crypto.randomUUID()): Promise<void> {
    const entry: Sent = { id, text, state: 'sending', files };
    this.sent.value = [...this.sent.value.filter((other) => other.id !== id), entry];
    await this.deliver(entry);
  }

  async deliver(entry: Sent): Promise<void> {
    this.change(entry.id, { state: 'sending' });
    try {
      const answer = await request('chat.send', {
        sessionKey: this.key, message: entry.text, idempotencyKey: entry.id,
        ...(entry.files.length ? { attachments: entry.files.map((file) => file.id) } : {}),
      });
      this.change(entry.id, { state: 'queued', runId: answer.runId });
      this.settle();
      this.fetchRunsSoon();
    } catch (error) {
      this.change(entry.id, { state: 'failed', error: (error as Error).message });
    }
  }

  discard(id: string): void {
    this.sent.value = this.sent.value.filter((entry) => entry.id !== id);
  }

  /** Takes a file off a message that was not sent, as when the gateway refuses it. */
  detach(id: string, file: string): void {
    const entry = this.sent.value.find((other) => other.id === id);
    if (entry?.state === 'failed') this.change(id, { files: entry.files.filter((other) => other.id !== file) });
  }

  private change(id: string, part: Partial<Sent>): void {
    this.sent.value = this.sent.value.map((entry) => (entry.id === id ? { ...entry, ...part } : entry));
  }

  /** Stops one run, or all of this session that have not ended. */
  async abort(runId?: string): Promise<void> {
    await request('chat.abort', { sessionKey: this.key, ...(runId ? { runId } : {}) });
    this.fetchRunsSoon();
  }
}
