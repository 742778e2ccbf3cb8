// The board: all work sessions of the gateway's repository, in five columns.

import { signal } from '@preact/signals';
import { useLayoutEffect } from 'preact/hooks';
import type { WorkBoard, WorkRow, WorkState } from '../api/types';
import { type Column, columnsOf, firstColumn, FOLDED } from '../state/columns';
import { workLink } from '../state/route';
import { board } from '../state/work';
import { oneLine } from '../text/clean';
import { logLine, whoWords } from '../text/lease';
import { Ago, Empty, Icon, Skeleton } from './parts';
import { Age, Holder, Labels, Lease, NotShown, WaitsFor } from './WorkParts';

const unfolded = signal<ReadonlySet<WorkState>>(new Set());

// Where only one column fits, this one is shown; nothing chosen means the most useful.
const chosen = signal<WorkState | undefined>(undefined);

// The card to come back to.
let left: string | undefined;

/** Keeps in mind which work session is open, so that the focus returns to its card. */
export function leaveFor(slug: string): void {
  left = slug;
}

export function WorkBoardView() {
  const known = board.value;
  const value = known.value;
  useLayoutEffect(() => {
    if (left === undefined) return;
    cardOf(left)?.focus();
    left = undefined;
  }, []);
  return (
    <>
      <header class="head">
        <a class="icon-button back" href="#/" aria-label="Back to the sessions"><Icon name="back" /></a>
        <div class="head-title">
          <h1 id="panel-heading" tabIndex={-1}>Work sessions</h1>
          {value?.repository && <Facts value={value} />}
        </div>
      </header>
      {value && <Age known={known} isOld={value.isOld} />}
      <div class="pane">
        {value ? <Content value={value} /> : known.trouble ? <NotShown known={known} what="The board" /> : <Loading />}
      </div>
    </>
  );
}

function Facts({ value }: { value: WorkBoard }) {
  const path = oneLine(value.repository ?? '');
  return (
    <p class="facts">
      <span title={path}>{path.split(/[\\/]/).filter(Boolean).pop() ?? path}</span>
      {value.base && <span>lands on {oneLine(value.base)}</span>}
      <span>{value.sessions.length.toLocaleString('en')} {value.sessions.length === 1 ? 'work session' : 'work sessions'}</span>
    </p>
  );
}

function Loading() {
  return (
    <div class="board" role="status" aria-label="Loading">
      {Array.from({ length: 5 }, (_, index) => <div key={index} class="board-column" aria-hidden="true"><Skeleton lines={8 - index} /></div>)}
    </div>
  );
}

function Content({ value }: { value: WorkBoard }) {
  if (!value.repository) {
    return (
      <Empty icon="board" title="No repository with work sessions">
        <p>Start <code>sess serve</code> in a repository with work sessions, or run <code>sess work init</code>.</p>
      </Empty>
    );
  }
  if (value.sessions.length === 0) {
    return (
      <Empty icon="board" title="No work sessions yet">
        <p>A work session is a plan that an agent claims, works on in a workspace of its own, and lands.</p>
        <p>Draft the first with <code>sess work new "Add user login"</code>.</p>
      </Empty>
    );
  }
  const columns = columnsOf(value.sessions, unfolded.value);
  const shown = chosen.value ?? firstColumn(columns);
  return (
    <>
      <div class="board-segments" role="radiogroup" aria-label="Column">
        {columns.map(({ state, name, count, stale }) => (
          <label key={state} class={state === shown ? 'chosen' : ''}>
            <input type="radio" name="column" value={state} checked={state === shown} onChange={() => (chosen.value = state)} />
            <span class={`board-segment-count${stale ? ' stale' : ''}`}>{count.toLocaleString('en')}</span>
            <span class="board-segment-name">{name}</span>
            {stale > 0 && <span class="sr">, {stale} stale</span>}
          </label>
        ))}
      </div>
      <div class="board" onKeyDown={arrows}>
        {columns.map((column) => <OneColumn key={column.state} column={column} isShown={column.state === shown} />)}
      </div>
    </>
  );
}

function OneColumn({ column, isShown }: { column: Column; isShown: boolean }) {
  const { state, name, count, stale, rows, isOver } = column;
  const isUnfolded = unfolded.value.has(state);
  const toggle = () => {
    const next = new Set(unfolded.value);
    if (!next.delete(state)) next.add(state);
    unfolded.value = next;
  };
  return (
    <section class={`board-column ${state}${isOver ? ' over' : ''}${isShown ? ' shown' : ''}`} data-state={state} aria-labelledby={`column-${state}`}>
      <h2 id={`column-${state}`}>
        {name} <span class="board-count">{count.toLocaleString('en')}</span>
        {stale > 0 && <span class="board-stale">{stale} stale</span>}
      </h2>
      {count === 0 ? <p class="board-none">{NOTHING[state]}</p> : <ul>{rows.map((row) => <Card key={row.slug} row={row} />)}</ul>}
      {isOver && count > FOLDED && (
        <button type="button" class="quiet wide" aria-expanded={isUnfolded} onClick={toggle}>
          {isUnfolded ? 'Show the newest ten' : `Show all ${count.toLocaleString('en')}`}<span class="sr"> in {name}</span>
        </button>
      )}
    </section>
  );
}

const NOTHING: Record<WorkState, string> = {
  drafting: 'No drafts.', planned: 'Nothing to claim.', active: 'Nobody is at work.', completed: 'Nothing yet.', abandoned: 'Nothing.',
};

function Card({ row }: { row: WorkRow }) {
  const isActive = row.state === 'active';
  const { holder } = row;
  const log = row.lastLog ? logLine(row.lastLog) : undefined;
  return (
    <li class={`card${isActive && holder?.stale ? ' stale' : ''}`}>
      <h3><a href={workLink(row.slug)} data-slug={row.slug}>{oneLine(row.title) || oneLine(row.slug)}</a></h3>
      <p class="slug">{oneLine(row.slug)}</p>
      {row.note && <p class="work-note"><Icon name="warn" /><span>{oneLine(row.note)}</span></p>}
      {holder && isActive && <p class="card-line"><Holder holder={holder} /></p>}
      {holder && isActive && <p class="card-line"><Lease holder={holder} />{holder.attempt > 1 && <span class="muted">attempt {holder.attempt}</span>}</p>}
      {holder && !isActive && <p class="card-line muted">{whoWords(holder)}</p>}
      {row.waitsFor && row.waitsFor.length > 0 && <WaitsFor slugs={row.waitsFor} />}
      {log && <p class="last-log" title={log.words}><span class="sr">Last logged: </span>{log.words}{log.at !== undefined && <> <Ago at={log.at} /></>}</p>}
      {(row.ready || (row.labels && row.labels.length > 0)) && (
        <div class="card-foot">
          {row.ready && <span class="state ready" title="It can be claimed now">Ready</span>}
          {row.labels && row.labels.length > 0 && <Labels labels={row.labels} />}
        </div>
      )}
    </li>
  );
}

// Keys

const cardsIn = (column: Element) => [...column.querySelectorAll<HTMLElement>('.card h3 a')];
const cardOf = (slug: string) => document.querySelector<HTMLElement>(`.card a[data-slug="${CSS.escape(slug)}"]`);
const focusedCard = () => document.activeElement?.closest('.card')?.querySelector<HTMLElement>('h3 a') ?? undefined;

/** The columns that can be seen; on a narrow screen that is one. */
function columnsSeen(): Element[] {
  return [...document.querySelectorAll('.board-column')].filter((column) => column.getClientRects().length > 0);
}

export const boardKeys = {
  /** Moves the focus down its column; without a focus, to the first card of the most useful column. */
  down(by: number): void {
    const column = focusedCard()?.closest('.board-column') ?? document.querySelector('.board-column.shown');
    if (!column) return;
    const cards = cardsIn(column);
    const from = cards.indexOf(focusedCard()!);
    focus(cards[from < 0 ? 0 : Math.max(0, Math.min(cards.length - 1, from + by))]);
  },
  /** Moves the focus to the next column that has cards, at the same height if it can. */
  across(by: number): void {
    const card = focusedCard();
    const columns = columnsSeen();
    if (!card) return boardKeys.down(0);
    const column = card.closest('.board-column')!;
    if (columns.length === 1) return turn(by);
    const row = cardsIn(column).indexOf(card);
    for (let index = columns.indexOf(column) + by; columns[index]; index += by) {
      const cards = cardsIn(columns[index]!);
      if (cards.length > 0) return focus(cards[Math.min(row, cards.length - 1)]);
    }
  },
};

/** Shows the next column that has cards, where only one fits. */
function turn(by: number): void {
  const columns = [...document.querySelectorAll<HTMLElement>('.board-column')];
  for (let index = columns.findIndex((column) => column.classList.contains('shown')) + by; columns[index]; index += by) {
    if (cardsIn(columns[index]!).length === 0) continue;
    chosen.value = columns[index]!.dataset['state'] as WorkState;
    requestAnimationFrame(() => focus(cardsIn(columns[index]!)[0]));
    return;
  }
}

function focus(card: HTMLElement | undefined): void {
  card?.focus({ preventScroll: true });
  card?.closest('.card')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

function arrows(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !focusedCard()) return;
  const steps: Record<string, () => void> = {
    ArrowDown: () => boardKeys.down(1), ArrowUp: () => boardKeys.down(-1), ArrowLeft: () => boardKeys.across(-1), ArrowRight: () => boardKeys.across(1),
  };
  const step = steps[event.key];
  if (!step) return;
  event.preventDefault();
  step();
}
