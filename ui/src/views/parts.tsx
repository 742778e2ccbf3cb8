// Small parts that several views are made of.

import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import type { Row } from '../api/types';
import { agentOf } from '../state/filter';
import { minuteHand } from '../state/clock';
import { sessionLink } from '../state/route';
import { rowOf } from '../state/sessions';
import { oneLine } from '../text/clean';
import { toHtml } from '../text/markdown';
import { ago, moment } from '../text/time';

const PATHS = {
  search: 'M7 12.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11ZM11 11l3.5 3.5',
  plus: 'M8 2.5v11M2.5 8h11',
  back: 'M10 2.5 4.5 8l5.5 5.5',
  down: 'M8 2.5v11M3.5 9 8 13.5 12.5 9',
  up: 'M8 13.5v-11M3.5 7 8 2.5 12.5 7',
  chevron: 'm6 3.5 4.5 4.5L6 12.5',
  stop: 'M4.5 4.5h7v7h-7z',
  clip: 'm13 7.5-5.4 5.4a3.3 3.3 0 0 1-4.7-4.7l5.6-5.5a2.2 2.2 0 0 1 3.1 3.1L6.1 11.3a1.1 1.1 0 0 1-1.6-1.6l5-5',
  close: 'm3.5 3.5 9 9m0-9-9 9',
  more: 'M3 8h.01M8 8h.01M13 8h.01',
  gear: 'M8 10.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM8 1.5v1.8M8 12.7v1.8M1.5 8h1.8M12.7 8h1.8M3.4 3.4l1.3 1.3M11.3 11.3l1.3 1.3M3.4 12.6l1.3-1.3M11.3 4.7l1.3-1.3',
  tree: 'M3 2.5v8a2 2 0 0 0 2 2h2M3 5.5h4M9.5 3.5h4v4h-4zM9.5 10.5h4v4h-4z',
  board: 'M1.8 2.5h3.4v11H1.8zM6.3 2.5h3.4v6.5H6.3zM10.8 2.5h3.4v9h-3.4z',
  plan: 'M3.5 1.5h9v13h-9zM6 5h4M6 8h4M6 11h2.5',
  chat: 'M2 3h12v8.5H7.5L4.5 14v-2.5H2z',
  filter: 'M2 4h12M4.5 8h7M7 12h2',
  link: 'M6.5 9.5 9.5 6.5M7 4.5l1.5-1.5a3 3 0 0 1 4.3 4.3L11.3 8.8M9 11.5 7.5 13a3 3 0 0 1-4.3-4.3L4.7 7.2',
  peer: 'M2 5.5h10.5M9.5 2.5l3 3-3 3M14 10.5H3.5M6.5 7.5l-3 3 3 3',
  person: 'M8 7.5a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6ZM2.8 14c.4-2.7 2.5-4.3 5.2-4.3s4.8 1.6 5.2 4.3',
  agent: 'M8 1.8 9.7 6.3 14.2 8 9.7 9.7 8 14.2 6.3 9.7 1.8 8 6.3 6.3Z',
  note: 'M8 7v4.5M8 4.5h.01M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13Z',
  warn: 'M8 6v3.5M8 12h.01M8 1.8 14.8 13.8H1.2z',
  check: 'm2.5 8.5 3.5 3.5 7.5-8',
  edit: 'M10.5 2.5l3 3-8 8H2.5v-3zM9 4l3 3',
  tool: 'm2.5 4.5 3.5 3.5-3.5 3.5M8 12h5.5',
  think: 'M8 1.8v2.4M8 11.8v2.4M1.8 8h2.4M11.8 8h2.4M3.6 3.6l1.7 1.7M10.7 10.7l1.7 1.7M3.6 12.4l1.7-1.7M10.7 5.3l1.7-1.7',
  sub: 'M3.5 2v6.5a2 2 0 0 0 2 2h7M9.5 7.5l3 3-3 3',
  fold: 'M3 8h10M8 1.5v3.5M6 3.5 8 5.5l2-2M8 14.5V11M6 12.5l2-2 2 2',
  clock: 'M8 4v4l2.5 1.5M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13Z',
  star: 'm8 1.8 1.9 4 4.3.5-3.2 3 .9 4.3L8 11.5l-3.9 2.1.9-4.3-3.2-3 4.3-.5z',
  file: 'M3.5 1.5h6l3 3v10h-9zM9.5 1.5v3h3',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <path class="logo-a" d="M6 9h11a5 5 0 0 1 0 10h-4" />
      <path class="logo-b" d="M26 23H15a5 5 0 0 1 0-10h4" />
    </svg>
  );
}

/** Returns what a session is called; never empty, always on one line. */
export function titleOf(row: Row | undefined, reference: string): string {
  const given = [row?.displayName, row?.title, row?.label].map((text) => oneLine(text ?? '')).find(Boolean);
  return given ?? shortKey(row?.key ?? reference);
}

/** Returns a key with the parts that nobody reads left out: `main · chat 1a2b3c4d`. */
export function shortKey(key: string): string {
  const clean = oneLine(key);
  const parts = /^agent:([^:]+):(.+)$/.exec(clean);
  const rest = (parts?.[2] ?? clean).replace(/([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f-]+/gi, '$1').replaceAll(':', ' ');
  return parts ? `${parts[1]} · ${rest}` : rest;
}

export function SessionLink({ reference, class: name }: { reference: string; class?: string }) {
  const row = rowOf(reference);
  return (
    <a class={name ?? 'session-link'} href={sessionLink(row?.key ?? reference)} title={oneLine(row?.key ?? reference)}>
      {titleOf(row, reference)}
    </a>
  );
}

/** A sentence of the gateway: it begins like one, and what stands between backticks is code. */
export function Sentence({ text }: { text: string }) {
  const clean = oneLine(text);
  const parts = (clean.charAt(0).toUpperCase() + clean.slice(1)).split('`');
  return <>{parts.map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}.</>;
}

export function Ago({ at }: { at: number }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={moment(at)}>
      {ago(at, minuteHand.value)}
    </time>
  );
}

const STATUS_WORDS: Record<string, string> = {
  running: 'Running', queued: 'Queued', waiting: 'Has unanswered messages', idle: 'Idle',
};

export function StatusDot({ status, unread = false }: { status: string; unread?: boolean }) {
  const words = unread && status === 'idle' ? 'Unread' : (STATUS_WORDS[status] ?? status);
  return <span class={`dot ${status}${unread ? ' unread' : ''}`} role="img" aria-label={words} title={words} />;
}

export function Agent({ row }: { row: Row }) {
  return <span class="agent">{oneLine(agentOf(row)) || '—'}</span>;
}

/** Markdown. This is the only place where HTML is put into the page, and only `toHtml` makes it. */
export function Markdown({ text, html }: { text: string; html?: (text: string) => string }) {
  return <div class="md" onClick={copyClicked} dangerouslySetInnerHTML={{ __html: (html ?? toHtml)(text) }} />;
}

function copyClicked(event: MouseEvent): void {
  const button = (event.target as Element).closest<HTMLButtonElement>('button[data-copy]');
  const code = button?.closest('.code')?.querySelector('code');
  if (button && code) void copy(code.textContent ?? '', button);
}

export async function copy(text: string, button: HTMLElement): Promise<void> {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Not allowed';
  }
  announce(button.textContent);
  setTimeout(() => (button.textContent = before), 1500);
}

/** What a screen reader says next. */
export const spoken = signal('');
export function announce(text: string): void {
  spoken.value = text;
}

/** What is shown at the foot of the page for a moment. */
export const notice = signal<{ text: string; kind: 'good' | 'bad' } | undefined>(undefined);
let noticeTimer: ReturnType<typeof setTimeout> | undefined;
export function tell(text: string, kind: 'good' | 'bad' = 'good'): void {
  notice.value = { text, kind };
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => (notice.value = undefined), kind === 'bad' ? 8000 : 3000);
}

/** Runs something that may fail, and says so if it does. */
export async function attempt(what: () => Promise<unknown>): Promise<void> {
  try {
    await what();
  } catch (error) {
    tell((error as Error).message, 'bad');
  }
}

export function Empty({ icon, title, children }: { icon: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <span class="empty-mark"><Icon name={icon} /></span>
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Lines where text will be. */
export function Skeleton({ lines }: { lines: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: lines }, (_, index) => <span key={index} class={`bone bone-${index % 4}`} />)}
    </div>
  );
}

export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = element.current!;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      aria-label={props.title}
      onCancel={(event) => (event.preventDefault(), props.onClose())}
      onClick={(event) => event.target === element.current && props.onClose()}
    >
      <div class="dialog-body">
        <header>
          <h2>{props.title}</h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={props.onClose}><Icon name="close" /></button>
        </header>
        {props.children}
      </div>
    </dialog>
  );
}

/** Asks before something that cannot be taken back. */
export function Confirm(props: { title: string; text: string; action: string; onYes: () => Promise<unknown>; onClose: () => void }) {
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <p>{props.text}</p>
      <div class="dialog-actions">
        <button type="button" onClick={props.onClose}>Cancel</button>
        <button type="button" class="danger" onClick={() => (props.onClose(), void attempt(props.onYes))}>{props.action}</button>
      </div>
    </Dialog>
  );
}
