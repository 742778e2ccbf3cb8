// The list of sessions, with search and filters.

import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { connection } from '../api/socket';
import type { Row } from '../api/types';
import { type Props as ListProps, VirtualList } from '../lists/VirtualList';
import { agentOf, type Filter, NO_FILTER } from '../state/filter';
import { denied, may } from '../state/rights';
import { go, route, sessionLink, workLink } from '../state/route';
import { agents, filter, glanceAt, isComplete, listError, listState, loadMore, reload, rowOf, rows, shown, sources, total } from '../state/sessions';
import { asExpression, found, inMessages } from '../state/search';
import { isUnread } from '../state/settings';
import { inOrder, nameOf, sourceOf } from '../state/vendors';
import { oneLine } from '../text/clean';
import { amount, cost } from '../text/time';
import { ConnectionBadge } from './Connection';
import { hitLink, Hits, moveInHits } from './Hits';
import { Ago, Empty, Icon, Logo, Skeleton, StatusDot, titleOf } from './parts';

const ROW_HEIGHT = 80;
const KINDS = ['main', 'group', 'cron', 'hook', 'node', 'other'];
const STATUSES = ['running', 'queued', 'waiting', 'idle'];

const filtersOpen = signal(false);

// On a narrow screen the list is not beside the view: it is the view.
const narrowScreen = matchMedia('(max-width: 760px)');
const narrow = signal(narrowScreen.matches);
narrowScreen.addEventListener('change', () => (narrow.value = narrowScreen.matches));

const list: { current: VirtualList<Row> | null } = { current: null };

export function Sidebar() {
  const current = route.value.view === 'session' ? route.value.key : undefined;
  return (
    <div class="sidebar" role={narrow.value && route.value.view === 'home' ? 'main' : 'navigation'} aria-label="Sessions">
      <div class="sidebar-head">
        <h1><a class="brand" href="#/"><Logo /><span>Intersession</span></a></h1>
        {may('write') ? (
          <a class="icon-button" href="#/new" aria-label="New session" title="New session (c)"><Icon name="plus" /></a>
        ) : (
          <button type="button" class="icon-button" disabled aria-label="New session" title={denied('write')}><Icon name="plus" /></button>
        )}
      </div>
      <Search />
      {inMessages.value ? <Hits /> : <SessionList current={current} />}
      <div class="sidebar-foot">
        <a href="#/runs" aria-current={route.value.view === 'runs' ? 'page' : undefined}><Icon name="tree" />Runs</a>
        {may('read') && <a href={workLink()} aria-current={route.value.view === 'work' ? 'page' : undefined} title="Work sessions (g w)"><Icon name="board" />Work</a>}
        <a href="#/settings" aria-current={route.value.view === 'settings' ? 'page' : undefined}><Icon name="gear" />Settings</a>
        <ConnectionBadge />
      </div>
    </div>
  );
}

function Search() {
  const value = filter.value;
  const change = (part: Partial<Filter>) => {
    const next = { ...value, ...part };
    filter.value = JSON.stringify(next) === JSON.stringify(NO_FILTER) ? NO_FILTER : next;
  };
  const chosen = [value.kind, value.agent, value.status, value.archived].filter(Boolean).length;
  const names = [...new Set([...agents.value.agents.map(({ id }) => id), ...(value.agent ? [value.agent] : [])])];
  return (
    <div class="finder" role="search">
      <div class="search">
        <Icon name="search" />
        <input
          id="search"
          type="search"
          placeholder={inMessages.value ? 'Search in messages' : 'Search sessions'}
          aria-label={inMessages.value ? 'Search in messages' : 'Search sessions'}
          aria-keyshortcuts="/"
          autocomplete="off"
          spellcheck={false}
          value={value.search}
          onInput={(event) => change({ search: event.currentTarget.value })}
          onKeyDown={(event) => {
            if (event.key === 'Escape') {
              if (value.search) change({ search: '' });
              else event.currentTarget.blur();
              event.stopPropagation();
            } else if (event.key === 'Enter' && inMessages.value) {
              const state = found.value;
              if (state.name === 'ready' && state.hits[0]) go(hitLink(state.hits[0]));
            } else if (event.key === 'Enter' && shown.value[0]) {
              go(sessionLink(shown.value[0].key));
            } else if (event.key === 'ArrowDown') {
              event.preventDefault();
              moveInList(1);
            }
          }}
        />
        <kbd aria-hidden="true">/</kbd>
        <button
          type="button"
          class={`icon-button${chosen ? ' on' : ''}`}
          aria-label={chosen ? `Filters, ${chosen} set` : 'Filters'}
          aria-expanded={filtersOpen.value}
          aria-controls="filters"
          onClick={() => (filtersOpen.value = !filtersOpen.value)}
        >
          <Icon name="filter" />
          {chosen > 0 && <span class="count" aria-hidden="true">{chosen}</span>}
        </button>
      </div>
      {(value.search || inMessages.value) && <Where />}
      <Sources value={value} change={change} />
      {filtersOpen.value && (
        <div class="filters" id="filters">
          <Choice label="Status" value={value.status} options={STATUSES} onChange={(status) => change({ status })} />
          <Choice label="Agent" value={value.agent} options={names} onChange={(agent) => change({ agent })} />
          <Choice label="Kind" value={value.kind} options={KINDS} onChange={(kind) => change({ kind })} />
          <label class="check">
            <input type="checkbox" checked={value.archived} onChange={(event) => change({ archived: event.currentTarget.checked })} />
            Archived too
          </label>
          {chosen > 0 && (
            <button type="button" class="quiet" onClick={() => change({ ...NO_FILTER, search: value.search, sources: value.sources, scope: value.scope })}>Clear</button>
          )}
        </div>
      )}
    </div>
  );
}

/** Where to search: in what sessions are called, or in what was said in them. */
function Where() {
  return (
    <div class="where" role="group" aria-label="Where to search">
      <button type="button" aria-pressed={!inMessages.value} onClick={() => (inMessages.value = false)}>Sessions</button>
      <button type="button" aria-pressed={inMessages.value} onClick={() => (inMessages.value = true)}>In messages</button>
      {inMessages.value && (
        <label class="check">
          <input type="checkbox" checked={asExpression.value} onChange={(event) => (asExpression.value = event.currentTarget.checked)} />
          Regex
        </label>
      )}
    </div>
  );
}

/** Whose sessions are shown. There is a choice only where several agents were used. */
function Sources({ value, change }: { value: Filter; change: (part: Partial<Filter>) => void }) {
  if (sources.value.length < 2 && !value.scope && value.sources.length === 0) return null;
  const toggle = (source: string) =>
    change({ sources: value.sources.includes(source) ? value.sources.filter((other) => other !== source) : inOrder([...value.sources, source]) });
  return (
    <div class="chips" role="group" aria-label="Whose sessions">
      {inOrder([...sources.value, 'native']).map((source) => (
        <button key={source} type="button" class="chip" aria-pressed={value.sources.includes(source)} onClick={() => toggle(source)}>{nameOf(source)}</button>
      ))}
      <button type="button" class="chip scope" aria-pressed={value.scope === 'repo'} title="Only sessions of the repository that the gateway was started in" onClick={() => change({ scope: value.scope ? '' : 'repo' })}>
        This repository
      </button>
    </div>
  );
}

function Choice(props: { label: string; value: string; options: string[]; onChange: (value: string) => void }) {
  return (
    <label class="choice">
      <span>{props.label}</span>
      <select aria-label={props.label} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        <option value="">Any</option>
        {props.options.map((option) => <option key={option} value={option}>{oneLine(option)}</option>)}
      </select>
    </label>
  );
}

const rowAttributes: ListProps<Row>['rowProps'] = (_row, index) => ({
  role: 'listitem', 'aria-posinset': index + 1, 'aria-setsize': total.value?.count ?? -1,
});

function SessionList({ current }: { current: string | undefined }) {
  const visible = shown.value;
  // A filter by status is ours: look through further pages until it has found something to fill the list.
  useEffect(() => {
    if (filter.value.status && visible.length < 30 && !isComplete()) void loadMore();
  }, [visible, rows.value]);

  if (visible.length === 0) {
    if (listState.value === 'loading') return <div class="list-state"><Skeleton lines={12} /></div>;
    if (listState.value === 'failed' && connection.value.name === 'open') {
      return (
        <div class="list-state">
          <Empty icon="warn" title="The list could not be loaded">
            <p>{listError.value}</p>
            <button type="button" onClick={() => void reload()}>Try again</button>
          </Empty>
        </div>
      );
    }
    const filtered = filter.value !== NO_FILTER;
    return (
      <div class="list-state">
        {filtered ? (
          <Empty icon="search" title="Nothing found">
            <p>No session matches. Search looks at titles, labels, keys and directories.</p>
            {filter.value.search && <button type="button" onClick={() => (inMessages.value = true)}>Search in messages</button>}
            <button type="button" onClick={() => (filter.value = NO_FILTER)}>Show all sessions</button>
          </Empty>
        ) : (
          <Empty icon="chat" title="No sessions yet">
            <p>Start one here or with <code>sess run</code>, bring in those of other agents with <code>sess import</code>, or give an agent <code>sess mcp</code>.</p>
          </Empty>
        )}
      </div>
    );
  }
  return (
    <>
      <VirtualList<Row>
        handle={list}
        fixed
        items={visible}
        keyOf={(row) => row.key}
        estimate={() => ROW_HEIGHT}
        onNearEnd={() => void loadMore()}
        scrollerProps={{ class: 'session-list' }}
        windowProps={{ role: 'list', 'aria-label': 'Sessions, newest first' }}
        rowProps={rowAttributes}
      >
        {(row) => <SessionRow row={row} isCurrent={row.key === current || row.sessionId === current} />}
      </VirtualList>
      <p class="list-count" aria-live="polite">{countWords(visible.length)}</p>
    </>
  );
}

function countWords(count: number): string {
  if (filter.value.status) return `${count.toLocaleString('en')} ${filter.value.status}`;
  const known = total.value ?? { count, atLeast: false };
  const number = Math.max(known.count, count);
  return `${number.toLocaleString('en')}${known.atLeast ? '+' : ''} ${number === 1 ? 'session' : 'sessions'}`;
}

function SessionRow({ row, isCurrent }: { row: Row; isCurrent: boolean }) {
  const status = row.status ?? 'idle';
  const unread = !isCurrent && isUnread(row.key, row.updatedAt);
  const title = titleOf(row, row.key);
  const glance = glanceAt(row.sessionId);
  const numbers = [
    glance ? `${glance.count.toLocaleString('en')} ${glance.count === 1 ? 'message' : 'messages'}` : '',
    row.totalTokens ? `${amount(row.totalTokens)} tok` : '',
    row.totalCost ? cost(row.totalCost) : '',
  ].filter(Boolean);
  return (
    <a
      class={`session-row${isCurrent ? ' current' : ''}${unread ? ' unread' : ''}`}
      href={sessionLink(row.key)}
      aria-current={isCurrent ? 'page' : undefined}
      title={oneLine(row.key)}
    >
      <span class="session-row-mark"><StatusDot status={status} unread={unread} /></span>
      <span class="session-row-line">
        <span class="session-row-title">
          {row.spawnedBy && (
            <span class="nested" title={`Started by ${titleOf(rowOf(row.spawnedBy), row.spawnedBy)}`}>
              <Icon name="sub" /><span class="sr">Sub-session: </span>
            </span>
          )}
          {row.starred && <span class="nested star" title="Starred"><Icon name="star" /><span class="sr">Starred: </span></span>}
          {title}
        </span>
        <Ago at={row.updatedAt} />
      </span>
      <span class="session-row-words">{glance?.words ?? oneLine(row.cwd ?? '')}</span>
      <span class="session-row-line info">
        <span class="session-row-info">
          {sourceOf(row) === 'native' ? (
            <span class="agent">{oneLine(agentOf(row)) || row.kind}</span>
          ) : (
            <span class="vendor"><span class="sr">Session of </span>{nameOf(sourceOf(row))}</span>
          )}
          {row.label && oneLine(row.label) !== title && <span class="label">{oneLine(row.label)}</span>}
          {row.channel && !['unknown', 'internal'].includes(row.channel) && <span>{oneLine(row.channel)}</span>}
          {row.abortedLastRun && status === 'idle' && <span class="bad">aborted</span>}
        </span>
        <span class="session-row-numbers">{numbers.join(' · ')}</span>
      </span>
    </a>
  );
}

/** Moves the focus in the list by so many rows; without focus there, from the open session. */
export function moveInList(by: number): void {
  if (inMessages.value) {
    moveInHits(by);
    return;
  }
  const visible = shown.value;
  if (!list.current || visible.length === 0) return;
  const focused = (document.activeElement?.closest('.session-list .row') as HTMLElement | null)?.dataset['index'];
  const open = route.value.view === 'session' ? route.value.key : undefined;
  const from = focused !== undefined ? Number(focused) : visible.findIndex((row) => row.key === open || row.sessionId === open);
  const index = Math.max(0, Math.min(visible.length - 1, from + by));
  list.current.focus(index, 'a');
}
