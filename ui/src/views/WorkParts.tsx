// What the board and the view of one work session have in common.

import type { WorkHolder, WorkState } from '../api/types';
import { minuteHand } from '../state/clock';
import { workLink } from '../state/route';
import { type Known, refreshWork, titleOfWork } from '../state/work';
import { oneLine } from '../text/clean';
import { leaseWords, whoWords } from '../text/lease';
import { ago, clock, day, moment } from '../text/time';
import { Ago, Empty, Icon, Sentence } from './parts';

export function Lease({ holder }: { holder: WorkHolder }) {
  const until = Date.parse(holder.until);
  return (
    <span class={`lease${holder.stale ? ' stale' : ''}`} title={Number.isNaN(until) || holder.waits ? undefined : `Until ${moment(until)}`}>
      <Icon name={holder.stale ? 'warn' : 'clock'} />
      {leaseWords(holder, minuteHand.value)}
    </span>
  );
}

export function Holder({ holder }: { holder: WorkHolder }) {
  return (
    <span class="holder">
      <Icon name={holder.agent ? 'agent' : 'person'} />
      <span><span class="holder-name">{whoWords(holder)}</span> <span class="muted">on {oneLine(holder.host) || 'an unnamed host'}</span></span>
    </span>
  );
}

/** What has to be completed before. */
export function WaitsFor({ slugs }: { slugs: string[] }) {
  return (
    <p class="waits">
      Waits for{' '}
      {slugs.map((slug, index) => (
        <span key={slug}>{index > 0 && ', '}<WorkLink slug={slug} /></span>
      ))}
    </p>
  );
}

export function WorkLink({ slug }: { slug: string }) {
  return <a class="session-link" href={workLink(slug)} title={oneLine(slug)}>{oneLine(titleOfWork(slug))}</a>;
}

export function Labels({ labels }: { labels: string[] }) {
  return <ul class="labels" aria-label="Labels">{labels.map((label) => <li key={label}>{oneLine(label)}</li>)}</ul>;
}

/** A time of the gateway; what is no time is shown as it is. */
export function When({ at }: { at: string }) {
  const time = Date.parse(at);
  return Number.isNaN(time) ? <span>{oneLine(at)}</span> : <Ago at={time} />;
}

/** The time of day, with the day unless it is today. */
export function Since({ at }: { at: string }) {
  const time = Date.parse(at);
  if (Number.isNaN(time)) return <span>{oneLine(at)}</span>;
  const name = day(time, minuteHand.value);
  return <time dateTime={new Date(time).toISOString()} title={moment(time)}>{name === 'Today' ? '' : `${name} `}{clock(time)}</time>;
}

export const STATE_NAMES: Record<WorkState, string> = {
  drafting: 'Drafting', planned: 'Planned', active: 'Active', completed: 'Completed', abandoned: 'Abandoned',
};

/** Says that what is shown may be old, and why. */
export function Age({ known, isOld }: { known: Known<unknown>; isOld: boolean }) {
  const { trouble, at } = known;
  if (!trouble && !isOld) return null;
  const asOf = at === undefined ? '' : ` This is from ${ago(at, minuteHand.value) === 'now' ? 'a moment ago' : clock(at)}.`;
  return (
    <div class="work-age" role="status">
      <Icon name="warn" />
      <span>
        {trouble?.kind === 'offline' ? (
          <><strong>Not connected.</strong>{asOf}</>
        ) : trouble ? (
          <><strong>Not up to date:</strong> {oneLine(trouble.message)}.{asOf}</>
        ) : (
          <><strong>The remote could not be asked.</strong> This is what it said last; others may have gone on since.</>
        )}
      </span>
      {trouble && <button type="button" class="quiet" onClick={refreshWork}>Try now</button>}
    </div>
  );
}

/** What is shown instead of something that never came. */
export function NotShown({ known, what }: { known: Known<unknown>; what: string }) {
  const { trouble } = known;
  if (!trouble) return null;
  if (trouble.kind === 'forbidden') {
    return (
      <Empty icon="note" title="Not for this sign-in">
        <p>It may not see work sessions: {oneLine(trouble.message)}.</p>
        <p>Run <code>sess open</code> where the gateway runs to sign in as its owner.</p>
      </Empty>
    );
  }
  return (
    <Empty icon="warn" title={trouble.kind === 'offline' ? 'Not connected' : `${what} could not be loaded`}>
      <p>{trouble.kind === 'offline' ? 'It appears here as soon as the gateway answers.' : <Sentence text={trouble.message} />}</p>
      <button type="button" onClick={refreshWork}>Try again</button>
    </Empty>
  );
}
