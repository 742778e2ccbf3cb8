// The transcript: rows, live follow, older pages, and the composer below.

import { computed, type ReadonlySignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { VirtualList } from '../lists/VirtualList';
import type { Item } from '../state/group';
import { plan } from '../state/open';
import { type OutcomeItem, withOutcomes } from '../state/outcomes';
import { sessionLink } from '../state/route';
import type { Sent, Transcript } from '../state/transcript';
import { Composer } from './Composer';
import { announce, Empty, Icon, Skeleton } from './parts';
import { ReadOnlyBar, SubSessions } from './ReadOnly';
import { Outcome, SaidRow, SentRow, StreamRow } from './Said';
import { CompactionRow, DayRow, StepsRow } from './Steps';

/** A row of the transcript, or of what comes after it. */
type Line =
  | Item
  | { kind: 'edge'; key: string; hasMore: boolean }
  | { kind: 'stream'; key: string; text: string; named: boolean }
  | OutcomeItem
  | { kind: 'sent'; key: string; entry: Sent };

function linesOf(transcript: Transcript): ReadonlySignal<Line[]> {
  return computed(() => {
    const items = transcript.items.value;
    const hasMore = transcript.hasMore.value;
    const lines: Line[] = [{ kind: 'edge', key: 'edge', hasMore }, ...withOutcomes(items, transcript.runs.value, hasMore)];
    const last = items.at(-1);
    const agentSpeaks = last !== undefined && last.kind !== 'day' && last.kind !== 'compaction' && last.speaker.kind === 'agent';
    for (const [run, text] of transcript.streams.value) {
      if (text) lines.push({ kind: 'stream', key: `stream:${run}`, text, named: !agentSpeaks });
    }
    for (const entry of transcript.sent.value) lines.push({ kind: 'sent', key: `sent:${entry.id}`, entry });
    return lines;
  });
}

/** A guess at a row's height, good enough for the scroll bar. */
function estimate(line: Line, width: number): number {
  const perLine = Math.max(30, Math.min(width - 40, 760) / 7.4);
  switch (line.kind) {
    case 'day':
      return 44;
    case 'edge':
      return 60;
    case 'steps':
      return 12 + line.steps.length * 30 + (line.named ? 30 : 0);
    case 'said': {
      let height = line.named ? 46 : 16;
      for (const block of line.blocks) {
        if (block.type !== 'text') height += 60;
        else for (const text of block.text.split('\n', 400)) height += 24 * Math.max(0.6, Math.ceil(text.length / perLine));
      }
      return height;
    }
    default:
      return 70;
  }
}

/** Finds the row that shows a message. */
function lineOf(lines: Line[], seq: number): Line | undefined {
  let found: Line | undefined;
  for (const line of lines) {
    if ('seq' in line && line.seq > seq) break;
    if ('seq' in line) found = line;
    if ('seq' in line && line.seq === seq) break;
  }
  return found;
}

export const transcriptKeys: { move?: (by: number) => void; newest?: () => void } = {};

export function TranscriptPane({ transcript, seq }: { transcript: Transcript; seq: number | undefined }) {
  const lines = useMemo(() => linesOf(transcript), [transcript]);
  const list = useRef<VirtualList<Line>>(null);
  const [following, setFollowing] = useState(seq === undefined);
  const [marked, setMarked] = useState<string | undefined>();
  const state = transcript.state.value;
  const shown = lines.value;
  const newestSeq = transcript.messages.value.at(-1)?.seq ?? 0;
  const [readSeq, setReadSeq] = useState(0);
  if ((following || readSeq === 0) && readSeq !== newestSeq && state === 'ready') setReadSeq(newestSeq);

  // Jump to the message that the address names, loading as far back as it takes.
  useEffect(() => {
    if (seq === undefined || state !== 'ready') return;
    let stopped = false;
    void transcript.loadUntil(seq).then(() => {
      const line = lineOf(lines.value, seq);
      requestAnimationFrame(() => {
        if (stopped || !line) return;
        list.current?.scrollTo(line.key);
        setMarked(line.key);
      });
    });
    return () => (stopped = true);
  }, [seq, state, transcript]);

  // Before the next key: it may come as soon as the transcript has the focus.
  useLayoutEffect(() => {
    transcriptKeys.move = (by) => {
      const focused = (document.activeElement?.closest('.transcript .row') as HTMLElement | null)?.dataset['index'];
      // Without a focused row, the first or the last that can be seen.
      const visible = by > 0 ? list.current?.topIndex : list.current?.bottomIndex;
      let index = focused === undefined ? (visible ?? -1) : Number(focused) + by;
      const all = lines.value;
      while (all[index] && (all[index]!.kind === 'day' || all[index]!.kind === 'edge')) index += Math.sign(by);
      if (all[index]) list.current?.focus(index, 'article');
    };
    transcriptKeys.newest = () => list.current?.scrollToEnd();
    return () => {
      delete transcriptKeys.move;
      delete transcriptKeys.newest;
    };
  }, [lines]);

  // Whoever asked for the transcript while it was loading waits on the heading.
  useLayoutEffect(() => {
    const waits = state === 'ready' && document.activeElement?.id === 'panel-heading';
    if (waits) document.querySelector<HTMLElement>('.transcript[tabindex]')?.focus();
  }, [state]);

  // A screen reader hears that somebody spoke, not every word.
  const heard = useRef(newestSeq);
  useEffect(() => {
    if (state !== 'ready') return;
    const last = transcript.messages.value.at(-1);
    if (heard.current && last && last.seq > heard.current && last.role === 'assistant') {
      const text = last.content.find((block) => block.type === 'text');
      if (text) announce(`Reply: ${text.text.slice(0, 300)}`);
    }
    heard.current = newestSeq;
  }, [newestSeq, state]);

  if (state === 'missing') {
    return (
      <div class="pane">
        <Empty icon="search" title="There is no such session">
          <p>It may have been deleted, or this sign-in may not see it.</p>
          <a class="button" href="#/">Back to the sessions</a>
        </Empty>
      </div>
    );
  }
  if (state === 'failed') {
    return (
      <div class="pane">
        <Empty icon="warn" title="The transcript could not be loaded">
          <p>{transcript.error.value}</p>
          <button type="button" onClick={() => void transcript.refresh()}>Try again</button>
        </Empty>
      </div>
    );
  }
  const missed = Math.max(0, newestSeq - readSeq);
  return (
    <div class="pane chat">
      <PlanBanner reference={transcript.reference} />
      <SubSessions row={transcript.row.value} />
      <div class="transcript-frame">
        {state === 'loading' ? (
          <div class="transcript column"><Skeleton lines={10} /></div>
        ) : shown.length === 1 && !transcript.hasMore.value ? (
          <Empty icon="chat" title="Nothing said yet">
            <p>{transcript.row.value?.readOnly ? 'Its agent wrote nothing down that could be shown.' : 'Write the first message below.'}</p>
          </Empty>
        ) : (
          <VirtualList<Line>
            handle={list}
            follow
            items={shown}
            keyOf={(line) => line.key}
            estimate={estimate}
            startAt={seq === undefined ? undefined : lineOf(shown, seq)?.key}
            onNearStart={() => void transcript.loadOlder()}
            onFollowing={setFollowing}
            scrollerProps={{ class: 'transcript', tabIndex: 0, role: 'region', 'aria-label': 'Transcript' }}
          >
            {(line) => <LineRow line={line} transcript={transcript} marked={line.key === marked} />}
          </VirtualList>
        )}
        {state === 'ready' && !following && (
          <button type="button" class="newest" onClick={() => list.current?.scrollToEnd()}>
            <Icon name="down" />
            {missed > 0 ? `${missed} new` : 'Newest'}
          </button>
        )}
      </div>
      {transcript.row.value?.readOnly ? (
        <ReadOnlyBar row={transcript.row.value} />
      ) : (
        <Composer transcript={transcript} onSent={() => list.current?.scrollToEnd()} />
      )}
    </div>
  );
}

function LineRow({ line, transcript, marked }: { line: Line; transcript: Transcript; marked: boolean }) {
  const key = transcript.sessionKey;
  switch (line.kind) {
    case 'edge':
      return (
        <div class="edge column">
          {line.hasMore ? <span class="spinner" role="status" aria-label="Loading older messages" /> : <span>Beginning of the session</span>}
        </div>
      );
    case 'day':
      return <DayRow at={line.at} />;
    case 'said':
      return <SaidRow item={line} sessionKey={key} marked={marked} />;
    case 'steps':
      return <StepsRow item={line} sessionKey={key} marked={marked} isRunning={transcript.row.value?.status === 'running'} />;
    case 'compaction':
      return <CompactionRow item={line} marked={marked} />;
    case 'stream':
      return <StreamRow text={line.text} named={line.named} row={transcript.row.value} />;
    case 'sent':
      return <SentRow entry={line.entry} transcript={transcript} />;
    case 'outcome':
      return <Outcome run={line.run} />;
  }
}

function PlanBanner({ reference }: { reference: string }) {
  const standing = plan.value;
  if (standing.name !== 'here' || standing.plan.state !== 'ready') return null;
  return (
    <a class="plan-banner" href={sessionLink(reference, 'plan')}>
      <Icon name="plan" />
      <span><strong>The plan waits for you.</strong> Revision {standing.plan.revision} is ready for review.</span>
      <span class="plan-banner-go">Review<Icon name="chevron" /></span>
    </a>
  );
}
