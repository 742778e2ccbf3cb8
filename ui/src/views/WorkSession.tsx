// One work session: its plan, what has to be true in the end, what was logged, who had it.

import { useLayoutEffect } from 'preact/hooks';
import type { WorkPast, WorkSession } from '../api/types';
import { splitPlan } from '../state/columns';
import { workLink } from '../state/route';
import { board, opened, titleOfWork } from '../state/work';
import { manyLines, oneLine } from '../text/clean';
import { whoWords } from '../text/lease';
import { Empty, Icon, Markdown, SessionLink, Skeleton } from './parts';
import { leaveFor } from './WorkBoard';
import { Age, Holder, Labels, Lease, NotShown, Since, STATE_NAMES, WaitsFor, When, WorkLink } from './WorkParts';

export function WorkSessionView({ slug }: { slug: string }) {
  const known = opened.value;
  const value = known.value?.slug === slug ? known.value : undefined;
  useLayoutEffect(() => leaveFor(slug), [slug]);
  return (
    <>
      <header class="head">
        <a class="icon-button" href={workLink()} aria-label="Back to the board" title="Back to the board (Esc)"><Icon name="back" /></a>
        <div class="head-title">
          <h1 id="panel-heading" tabIndex={-1} title={oneLine(slug)}>{oneLine(titleOfWork(slug))}</h1>
          <p class="facts">{titleOfWork(slug) !== slug && <span class="slug">{oneLine(slug)}</span>}{value?.branch && <span class="slug">{oneLine(value.branch)}</span>}</p>
        </div>
        {value && <span class={`state work-${value.state}`}>{STATE_NAMES[value.state] ?? oneLine(value.state)}</span>}
      </header>
      {value && <Age known={known} isOld={board.value.value?.isOld ?? false} />}
      <div class="pane scroll" tabIndex={0} role="region" aria-label="Work session">
        {value ? (
          <Content value={value} />
        ) : known.trouble?.kind === 'not_found' ? (
          <Empty icon="search" title="No such work session">
            <p>This repository has none called <code>{oneLine(slug)}</code>.</p>
            <a class="button" href={workLink()}>Show the board</a>
          </Empty>
        ) : known.trouble ? (
          <NotShown known={known} what="The work session" />
        ) : (
          <div class="column wide"><Skeleton lines={12} /></div>
        )}
      </div>
    </>
  );
}

function Content({ value }: { value: WorkSession }) {
  const { front, text } = splitPlan(value.plan);
  const worklog = value.worklog?.trim() ?? '';
  return (
    <div class="column wide work">
      <div class="work-top">
        <Standing value={value} />
        <section aria-labelledby="work-criteria">
          <h2 id="work-criteria">Acceptance criteria{value.criteria.length > 0 && <span class="board-count">{value.criteria.filter(({ done }) => done).length} of {value.criteria.length}</span>}</h2>
          {value.criteria.length === 0 ? (
            <p class="muted">The plan names none.</p>
          ) : (
            <ul class="criteria">
              {value.criteria.map(({ text: words, done }, index) => (
                <li key={index} class={done ? 'done' : ''}>
                  <span class={`box${done ? ' done' : ''}`} role="img" aria-label={done ? 'done' : 'to do'} />
                  <span>{oneLine(words)}</span>
                </li>
              ))}
            </ul>
          )}
        </section>
      </div>
      <div class="work-words">
        <section aria-labelledby="work-plan">
          <h2 id="work-plan">Plan</h2>
          {front && (
            <details class="file-words">
              <summary><Icon name="file" /><span class="file-name">Front matter</span></summary>
              <pre tabIndex={0}>{manyLines(front)}</pre>
            </details>
          )}
          {text.trim() ? <div class="work-text"><Markdown text={text} /></div> : <p class="muted">It is empty.</p>}
        </section>
        <section aria-labelledby="work-log">
          <h2 id="work-log">Worklog</h2>
          {worklog ? <div class="work-text"><Markdown text={worklog} /></div> : <p class="muted">Nothing was logged yet.</p>}
        </section>
      </div>
      <div class="work-rest">
        <section aria-labelledby="work-sessions">
          <h2 id="work-sessions">Transcripts</h2>
          {value.sessions.length === 0 ? (
            <p class="muted">No agent’s session is known to have worked on it.</p>
          ) : (
            <ul class="work-list">{value.sessions.map((key) => <li key={key}><Icon name="chat" /><SessionLink reference={key} /></li>)}</ul>
          )}
        </section>
        <section aria-labelledby="work-history">
          <h2 id="work-history">Who had it</h2>
          {value.history.length === 0 ? <p class="muted">Nobody yet.</p> : <ol class="work-history">{value.history.map((past, index) => <Past key={index} past={past} />)}</ol>}
        </section>
      </div>
    </div>
  );
}

function Standing({ value }: { value: WorkSession }) {
  const { holder, waitsFor, labels, parent, note } = value;
  const isActive = value.state === 'active';
  if (!(note || (holder && isActive) || value.ready || waitsFor?.length || labels?.length || parent)) return null;
  return (
    <section class="work-standing" aria-label="How it stands">
      {note && <p class="work-note"><Icon name="warn" /><span>{oneLine(note)}</span></p>}
      {holder && isActive && (
        <>
          <p><Holder holder={holder} /></p>
          <p class="card-line"><Lease holder={holder} /><span class="muted">since <Since at={holder.since} /></span>{holder.attempt > 1 && <span class="muted">attempt {holder.attempt}</span>}</p>
          {holder.session && <p class="card-line"><Icon name="chat" />at work in <SessionLink reference={holder.session} /></p>}
        </>
      )}
      {value.ready && <p><span class="state ready">Ready</span> <span class="muted">It can be claimed now.</span></p>}
      {waitsFor && waitsFor.length > 0 && <WaitsFor slugs={waitsFor} />}
      {parent && <p class="card-line"><Icon name="sub" />part of <WorkLink slug={parent} /></p>}
      {labels && labels.length > 0 && <Labels labels={labels} />}
    </section>
  );
}

const PHASES: Record<string, string> = {
  active: 'had it', landing: 'was landing it', released: 'gave it back', completed: 'completed it', abandoned: 'abandoned it',
};

function Past({ past }: { past: WorkPast }) {
  return (
    <li class={past.phase}>
      <span><span class="holder-name">{whoWords(past)}</span> {PHASES[past.phase] ?? oneLine(past.phase)}</span>
      <When at={past.at} />
      {past.reason && <p>{oneLine(past.reason)}</p>}
    </li>
  );
}
