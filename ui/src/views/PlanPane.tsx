// The plan of a session: its text, its revisions and what changed between them, and the review.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { request, RequestError } from '../api/socket';
import type { Decision, PlanView } from '../api/types';
import { fetchPlan, plan } from '../state/open';
import { denied } from '../state/rights';
import { go, sessionLink } from '../state/route';
import type { Transcript } from '../state/transcript';
import { diffLines, type DiffLine, hunks } from '../text/diff';
import { manyLines, oneLine } from '../text/clean';
import { size } from '../text/time';
import { Ago, announce, Empty, Icon, Markdown, Skeleton, tell } from './parts';

const STATES: Record<string, string> = {
  draft: 'Draft', ready: 'Ready for review', approved: 'Approved', changes_requested: 'Changes requested', done: 'Done',
};

/** What each decision makes of a plan. */
const OUTCOMES: Record<Decision, string> = { approve: 'approved', request_changes: 'changes_requested', done: 'done' };

export function PlanPane({ transcript }: { transcript: Transcript }) {
  const standing = plan.value;
  switch (standing.name) {
    case 'loading':
      return <div class="pane scroll"><div class="column plan-page"><Skeleton lines={12} /></div></div>;
    case 'none':
      return (
        <div class="pane">
          <Empty icon="plan" title="No plan yet">
            <p>When the agent writes one, it appears here, with every revision of it, for you to review.</p>
          </Empty>
        </div>
      );
    case 'failed':
      return (
        <div class="pane">
          <Empty icon="warn" title="The plan could not be loaded">
            <p>{standing.message}</p>
            <button type="button" onClick={() => void fetchPlan()}>Try again</button>
          </Empty>
        </div>
      );
    case 'here':
      return <Plan newest={standing.plan} reference={transcript.reference} />;
  }
}

type Mode = { name: 'read'; revision?: number } | { name: 'compare'; from: number; to: number };

function Plan({ newest, reference }: { newest: PlanView; reference: string }) {
  const [mode, setMode] = useState<Mode>({ name: 'read' });
  // The revision on the screen when it was last looked at: a newer one is announced, not swapped in under the reader.
  const [shown, setShown] = useState(newest);
  const revision = mode.name === 'read' ? (mode.revision ?? shown.revision) : mode.to;
  const isOutdated = newest.revision > shown.revision;
  useEffect(() => {
    if (newest.revision === shown.revision) setShown(newest);
    else announce(`Revision ${newest.revision} of the plan has arrived.`);
  }, [newest]);

  const numbers = newest.revisions.map((row) => row.revision);
  const previous = numbers.filter((number) => number < revision).at(-1);
  const about = newest.revisions.find((row) => row.revision === revision);
  const note = revision === newest.revision ? noteOf(newest) : '';
  return (
    <div class="pane plan">
      <div class="plan-bar">
        <span class={`state ${newest.state}`}>{STATES[newest.state] ?? oneLine(newest.state)}</span>
        <label class="choice">
          <span>{mode.name === 'compare' ? 'Changes from' : 'Revision'}</span>
          {mode.name === 'compare' ? (
            <Revisions label="Changes from revision" value={mode.from} plan={newest} onChange={(from) => setMode({ ...mode, from })} />
          ) : (
            <Revisions label="Revision" value={revision} plan={newest} onChange={(chosen) => (chosen === newest.revision ? (setShown(newest), setMode({ name: 'read' })) : setMode({ name: 'read', revision: chosen }))} />
          )}
        </label>
        {mode.name === 'compare' && (
          <label class="choice"><span>to</span><Revisions label="Changes to revision" value={mode.to} plan={newest} onChange={(to) => setMode({ ...mode, to })} /></label>
        )}
        {about && <span class="plan-about">by {oneLine(about.agent)}, <Ago at={Date.parse(about.at)} /> · {size(about.sizeBytes)}</span>}
        <span class="grow" />
        {mode.name === 'compare' ? (
          <button type="button" class="quiet" onClick={() => setMode({ name: 'read' })}>Show the plan</button>
        ) : (
          <button type="button" class="quiet" disabled={previous === undefined} title={previous === undefined ? 'There is no earlier revision.' : undefined} onClick={() => setMode({ name: 'compare', from: previous!, to: revision })}>
            Show changes
          </button>
        )}
      </div>
      {isOutdated && (
        <div class="plan-news" role="status">
          <Icon name="note" />
          <span>Revision {newest.revision} has arrived; you are reading {shown.revision}.</span>
          <button type="button" class="quiet" onClick={() => setMode({ name: 'compare', from: shown.revision, to: newest.revision })}>What changed</button>
          <button type="button" class="quiet" onClick={() => (setShown(newest), setMode({ name: 'read' }))}>Read it</button>
        </div>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label={mode.name === 'compare' ? 'Changes' : 'Plan'}>
        <div class="column plan-page">
          {note && (
            <aside class="plan-note" aria-label="Note of the review">
              <strong>{newest.state === 'changes_requested' ? `Asked to change in revision ${revision}` : `Noted on revision ${revision}`}</strong>
              <p>{manyLines(note)}</p>
            </aside>
          )}
          {mode.name === 'compare' ? (
            <Changes reference={reference} from={mode.from} to={mode.to} known={newest} />
          ) : mode.revision !== undefined && mode.revision !== shown.revision ? (
            <Older reference={reference} revision={mode.revision} />
          ) : (
            <Markdown text={shown.content} />
          )}
        </div>
      </div>
      <Review
        plan={newest}
        looked={mode.name === 'compare' ? mode.to : revision}
        reference={reference}
        onCompare={(from, to) => setMode({ name: 'compare', from, to })}
      />
    </div>
  );
}

/** Returns what the person wrote when they decided about the newest revision. */
function noteOf(plan: PlanView): string {
  return (plan.note ?? '').trim();
}

function Revisions({ label, value, plan, onChange }: { label: string; value: number; plan: PlanView; onChange: (revision: number) => void }) {
  return (
    <select aria-label={label} value={String(value)} onChange={(event) => onChange(Number(event.currentTarget.value))}>
      {plan.revisions.toReversed().map((row) => (
        <option key={row.revision} value={String(row.revision)}>{row.revision}{row.revision === plan.revision ? ' (newest)' : ''}</option>
      ))}
    </select>
  );
}

/** Fetches the text of a revision; the newest is known already. */
function useRevision(reference: string, revision: number, known?: PlanView): { text?: string; error?: string } {
  const [answer, setAnswer] = useState<{ of: string; text?: string; error?: string }>({ of: '' });
  const of = `${reference} ${revision}`;
  const given = known?.revision === revision ? known.content : undefined;
  useEffect(() => {
    if (given !== undefined) return;
    let stopped = false;
    request('plans.get', { sessionKey: reference, revision })
      .then((plan) => !stopped && setAnswer({ of, text: plan.content }))
      .catch((error: Error) => !stopped && setAnswer({ of, error: error.message }));
    return () => {
      stopped = true;
    };
  }, [of, given === undefined]);
  if (given !== undefined) return { text: given };
  return answer.of === of ? answer : {};
}

function Older({ reference, revision }: { reference: string; revision: number }) {
  const { text, error } = useRevision(reference, revision);
  if (error) return <p class="field-error">{error}</p>;
  return text === undefined ? <Skeleton lines={10} /> : <Markdown text={text} />;
}

function Changes(props: { reference: string; from: number; to: number; known: PlanView }) {
  const before = useRevision(props.reference, props.from, props.known);
  const after = useRevision(props.reference, props.to, props.known);
  const [unfolded, setUnfolded] = useState<ReadonlySet<number>>(new Set());
  if (before.error || after.error) return <p class="field-error">{before.error ?? after.error}</p>;
  if (before.text === undefined || after.text === undefined) return <Skeleton lines={10} />;
  const lines = diffLines(before.text, after.text);
  const added = lines.filter((line) => line.kind === 'added').length;
  const removed = lines.filter((line) => line.kind === 'removed').length;
  if (added + removed === 0) return <p class="muted">Revisions {props.from} and {props.to} are the same.</p>;
  return (
    <>
      <p class="diff-sum"><span class="added">+{added}</span> <span class="removed">−{removed}</span> lines from revision {props.from} to {props.to}</p>
      <div class="diff" role="table" aria-label="Changed lines">
        {hunks(lines, 3).map((hunk, index) =>
          hunk.kind === 'fold' && !unfolded.has(index) ? (
            <div role="row" key={index} class="diff-fold">
              <span role="cell">
                <button type="button" class="quiet" onClick={() => setUnfolded(new Set([...unfolded, index]))}>{hunk.lines.length} unchanged lines</button>
              </span>
            </div>
          ) : (
            hunk.lines.map((line, at) => <DiffRow key={`${index}.${at}`} line={line} />)
          ),
        )}
      </div>
    </>
  );
}

function DiffRow({ line }: { line: DiffLine }) {
  return (
    <div role="row" class={`diff-line ${line.kind}`}>
      <span role="cell" class="diff-number">{line.kind === 'added' ? '' : line.before}</span>
      <span role="cell" class="diff-number">{line.kind === 'removed' ? '' : line.after}</span>
      <span role="cell" class="diff-sign">{line.kind === 'added' ? '+' : line.kind === 'removed' ? '−' : ' '}</span>
      <span role="cell" class="diff-text">{line.text || '\u00a0'}</span>
    </div>
  );
}

function Review(props: {
  plan: PlanView;
  looked: number;
  reference: string;
  onCompare: (from: number, to: number) => void;
}) {
  const { plan: newest, looked } = props;
  const [asking, setAsking] = useState(false);
  const [note, setNote] = useState('');
  const [busy, setBusy] = useState(false);
  const [conflict, setConflict] = useState<{ looked: number } | undefined>();
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    if (asking) field.current?.focus();
  }, [asking]);

  const isNewest = looked === newest.revision;
  const forbidden = denied('review');
  const decide = async (decision: Decision) => {
    setBusy(true);
    setConflict(undefined);
    let refusal: unknown;
    try {
      await request('plans.review', {
        sessionKey: props.reference, revision: looked, decision, ...(note.trim() && decision === 'request_changes' ? { note: note.trim() } : {}),
      });
    } catch (error) {
      refusal = error;
    }
    // How the plan stands now says what became of the decision, and why.
    await fetchPlan();
    setBusy(false);
    const standing = plan.peek();
    const isSo = standing.name === 'here' && standing.plan.revision === looked && standing.plan.state === OUTCOMES[decision];
    if (refusal instanceof RequestError && refusal.code === 'conflict' && !isSo) setConflict({ looked });
    else if (refusal && !isSo) tell((refusal as Error).message, 'bad');
    else {
      setAsking(false);
      setNote('');
      tell(decision === 'approve' ? `Revision ${looked} is approved.` : decision === 'done' ? 'The plan is done.' : 'The agent is asked for changes.');
    }
  };

  const reason = forbidden ?? unready(newest) ?? (isNewest ? undefined : `Only the newest revision (${newest.revision}) can be reviewed.`);
  const open = newest.state !== 'approved' && newest.state !== 'done';
  return (
    <footer class="review column" aria-label="Review">
      {conflict && (
        <div class="conflict" role="alert">
          <Icon name="warn" />
          <div>
            <strong>Your decision was not recorded.</strong>
            <p>{whyNot(newest, conflict.looked)}</p>
            {newest.revision > conflict.looked && (
              <button type="button" onClick={() => props.onCompare(conflict.looked, newest.revision)}>Show what changed</button>
            )}
          </div>
          <button type="button" class="icon-button" aria-label="Close" onClick={() => setConflict(undefined)}><Icon name="close" /></button>
        </div>
      )}
      {asking && newest.state === 'ready' && (
        <div class="review-note">
          <label for="review-note">What should change?</label>
          <textarea
            id="review-note"
            ref={field}
            rows={3}
            value={note}
            onInput={(event) => setNote(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Escape') (event.stopPropagation(), setAsking(false));
              if (event.key === 'Enter' && (event.metaKey || event.ctrlKey)) void decide('request_changes');
            }}
          />
        </div>
      )}
      <div class="review-actions">
        {open ? (
          <>
            <span class="review-about" role="status">{reason ?? <>Your decision is about revision <strong>{looked}</strong>.</>}</span>
            <span class="grow" />
            {asking && newest.state === 'ready' ? (
              <>
                <button type="button" onClick={() => setAsking(false)}>Cancel</button>
                <button type="button" class="primary" disabled={busy || Boolean(reason)} title={reason} onClick={() => void decide('request_changes')}>Request changes</button>
              </>
            ) : (
              <>
                <button type="button" class="quiet" onClick={() => go(sessionLink(props.reference))}>Later</button>
                <button type="button" disabled={busy || Boolean(reason)} title={reason} onClick={() => setAsking(true)}>Request changes…</button>
                <button type="button" class="primary" disabled={busy || Boolean(reason)} title={reason} onClick={() => void decide('approve')}><Icon name="check" />Approve</button>
              </>
            )}
          </>
        ) : (
          <>
            <span class="review-about" role="status">{newest.state === 'approved' ? `Revision ${newest.revision} is approved.` : 'This plan is done.'}</span>
            <span class="grow" />
            {newest.state === 'approved' && (
              <button type="button" disabled={busy || Boolean(forbidden)} title={forbidden} onClick={() => void decide('done')}><Icon name="check" />Mark done</button>
            )}
          </>
        )}
      </div>
    </footer>
  );
}

/** Returns why a plan is not to be reviewed now; nothing when it is. */
function unready(plan: PlanView): string | undefined {
  switch (plan.state) {
    case 'ready':
      return undefined;
    case 'draft':
      return `Revision ${plan.revision} is a draft: the agent has not asked for a review yet.`;
    case 'changes_requested':
      return `Changes to revision ${plan.revision} are requested; the next one can be reviewed when the agent is ready.`;
    default:
      return `The plan is ${oneLine(plan.state)}.`;
  }
}

/** Returns why a decision about a revision was refused, from how the plan stands now. */
function whyNot(plan: PlanView, looked: number): string {
  if (plan.revision > looked) return `The plan changed while you were reading: you looked at revision ${looked}, the newest is ${plan.revision}.`;
  if (plan.state === 'draft') return 'The plan is a draft again: the agent has not asked for a review yet.';
  return `It was decided in another place meanwhile: the plan is “${STATES[plan.state] ?? oneLine(plan.state)}”.`;
}
