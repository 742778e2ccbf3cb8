// One session: its head with the tabs, and the view that is chosen.

import { useState } from 'preact/hooks';
import { request } from '../api/socket';
import type { Row } from '../api/types';
import { agentOf } from '../state/filter';
import { open, plan } from '../state/open';
import { may } from '../state/rights';
import { go, type Route, sessionLink, type Tab } from '../state/route';
import type { Transcript } from '../state/transcript';
import { nameOf, sourceOf } from '../state/vendors';
import { oneLine } from '../text/clean';
import { amount, cost } from '../text/time';
import { attempt, Confirm, Dialog, Icon, type IconName, SessionLink, StatusDot, tell, titleOf } from './parts';
import { PlanPane } from './PlanPane';
import { RunsPane } from './RunsPane';
import { TranscriptPane } from './TranscriptPane';

export function SessionView({ at }: { at: Extract<Route, { view: 'session' }> }) {
  const transcript = open.value;
  if (!transcript || transcript.reference !== at.key) return null;
  return (
    <>
      <Head at={at} transcript={transcript} />
      <h2 class="sr panel-heading" id="panel-heading" tabIndex={-1}>{TABS.find(({ tab }) => tab === at.tab)?.name}</h2>
      {at.tab === 'transcript' && <TranscriptPane key={at.key} transcript={transcript} seq={at.seq} />}
      {at.tab === 'plan' && <PlanPane key={at.key} transcript={transcript} />}
      {at.tab === 'runs' && <RunsPane key={at.key} session={at.key} />}
    </>
  );
}

const TABS: { tab: Tab; name: string; icon: IconName; keys: string }[] = [
  { tab: 'transcript', name: 'Transcript', icon: 'chat', keys: 'g t' },
  { tab: 'plan', name: 'Plan', icon: 'plan', keys: 'g p' },
  { tab: 'runs', name: 'Runs', icon: 'tree', keys: 'g u' },
];

function Head({ at, transcript }: { at: Extract<Route, { view: 'session' }>; transcript: Transcript }) {
  const row = transcript.row.value;
  const standing = plan.value;
  const badge = standing.name === 'here' && standing.plan.state === 'ready' ? 'review' : undefined;
  return (
    <header class="head">
      <a class="icon-button back" href="#/" aria-label="Back to the sessions"><Icon name="back" /></a>
      <div class="head-title">
        <h1 title={oneLine(row?.key ?? at.key)}>{titleOf(row, at.key)}</h1>
        {row && <Facts row={row} />}
      </div>
      {!row?.readOnly && <nav class="tabs" aria-label="Views of this session">
        {TABS.map(({ tab, name, icon, keys }) => (
          <a key={tab} href={sessionLink(at.key, tab)} aria-current={at.tab === tab ? 'page' : undefined} title={`${name} (${keys})`}>
            <Icon name={icon} />
            <span>{name}</span>
            {tab === 'plan' && badge && <span class="badge">review</span>}
          </a>
        ))}
      </nav>}
      {row && may('admin') && <Menu row={row} />}
    </header>
  );
}

function Facts({ row }: { row: Row }) {
  const status = row.status ?? 'idle';
  return (
    <p class="facts">
      {status !== 'idle' && <span class={`status ${status}`}><StatusDot status={status} />{status}</span>}
      {sourceOf(row) === 'native' ? <span class="agent">{oneLine(agentOf(row)) || row.kind}</span> : <span><span class="vendor">{nameOf(sourceOf(row))}</span></span>}
      {row.cwd && sourceOf(row) !== 'native' && <span title="The directory that it ran in">{oneLine(row.cwd)}</span>}
      {row.model && <span>{oneLine(row.model)}</span>}
      {Boolean(row.totalTokens) && <span title={`${row.totalTokens!.toLocaleString('en')} tokens in all runs`}>{amount(row.totalTokens!)} tokens</span>}
      {Boolean(row.totalCost) && <span>{cost(row.totalCost!)}</span>}
      {Boolean(row.contextTokens) && <span title="Tokens that the newest model call took in">{amount(row.contextTokens!)} in context</span>}
      {row.spawnedBy && <span class="parent"><Icon name="sub" /> started by <SessionLink reference={row.spawnedBy} /></span>}
    </p>
  );
}

function Menu({ row }: { row: Row }) {
  const [isOpen, setOpen] = useState(false);
  const [asking, setAsking] = useState<'rename' | 'reset' | 'delete' | undefined>();
  const isMain = row.kind === 'main';
  const choose = (what: () => void) => () => {
    setOpen(false);
    what();
  };
  return (
    <div
      class="menu"
      onKeyDown={(event) => event.key === 'Escape' && isOpen && (event.stopPropagation(), setOpen(false))}
      onFocusOut={(event) => !event.currentTarget.contains(event.relatedTarget as Node | null) && setOpen(false)}
    >
      <button type="button" class="icon-button" aria-label="More" aria-expanded={isOpen} aria-haspopup="true" onClick={() => setOpen(!isOpen)}>
        <Icon name="more" />
      </button>
      {isOpen && (
        <div class="menu-items">
          <button type="button" onClick={choose(() => void attempt(() => request('sessions.patch', { key: row.key, starred: !row.starred })))}>
            {row.starred ? 'Remove the star' : 'Star'}
          </button>
          <button type="button" onClick={choose(() => setAsking('rename'))}>Rename…</button>
          <button type="button" onClick={choose(() => void attempt(async () => {
            await request('sessions.patch', { key: row.key, archived: !row.archived });
            tell(row.archived ? 'No longer archived.' : 'Archived. Find it with the filter “Archived too”.');
          }))}>{row.archived ? 'Unarchive' : 'Archive'}</button>
          {!row.readOnly && <hr />}
          {sourceOf(row) === 'native' && <button type="button" onClick={choose(() => setAsking('reset'))}>Start over…</button>}
          {!row.readOnly && <button
            type="button"
            class="danger"
            disabled={isMain}
            title={isMain ? 'A main session cannot be deleted.' : undefined}
            onClick={choose(() => setAsking('delete'))}
          >
            Delete…
          </button>}
        </div>
      )}
      {asking === 'rename' && <Rename row={row} onClose={() => setAsking(undefined)} />}
      {asking === 'reset' && (
        <Confirm
          title="Start this session over?"
          text="The key gets a new, empty transcript. The old one stays in the store under its id."
          action="Start over"
          onClose={() => setAsking(undefined)}
          onYes={() => request('sessions.reset', { key: row.key })}
        />
      )}
      {asking === 'delete' && (
        <Confirm
          title="Delete this session?"
          text={`“${titleOf(row, row.key)}” and its transcript will be gone for everybody.`}
          action="Delete"
          onClose={() => setAsking(undefined)}
          onYes={async () => {
            await request('sessions.delete', { key: row.key });
            go('#/');
          }}
        />
      )}
    </div>
  );
}

function Rename({ row, onClose }: { row: Row; onClose: () => void }) {
  const [name, setName] = useState(row.displayName ?? row.title ?? '');
  return (
    <Dialog title="Rename" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void attempt(() => request('sessions.patch', { key: row.key, displayName: name.trim() || null }));
          onClose();
        }}
      >
        <label for="new-name">Name of this session</label>
        <input id="new-name" value={name} maxLength={200} onInput={(event) => setName(event.currentTarget.value)} />
        <p class="hint">Empty gives it back its own title.</p>
        <div class="dialog-actions">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary">Rename</button>
        </div>
      </form>
    </Dialog>
  );
}
