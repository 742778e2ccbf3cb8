// What was said: by the person, the agent, another session, or the program. Each looks different, so that
// nobody's words pass for somebody else's.

import { useState } from 'preact/hooks';
import type { Row, RunRow } from '../api/types';
import { agentOf } from '../state/filter';
import type { Item, Said, Speaker } from '../state/group';
import { open } from '../state/open';
import { sessionLink } from '../state/route';
import type { Sent, Transcript } from '../state/transcript';
import { nameOf, sourceOf } from '../state/vendors';
import { manyLines, oneLine } from '../text/clean';
import { toHtmlOnce } from '../text/markdown';
import { amount, clock, cost, moment, size } from '../text/time';
import { parseReport, type Report } from '../text/report';
import { Icon, Markdown, SessionLink } from './parts';

const IMAGES = /^image\/(png|jpeg|gif|webp|avif)$/;
/** How replies end when nothing is wrong: our word first, then those of agents whose transcripts were imported. */
const USUAL_ENDS = ['end', 'tool_calls', 'end_turn', 'stop', 'stop_sequence', 'tool_use', 'toolUse'];
/** Longer files are cut on the page. */
const FILE_SHOWN_MAX = 20_000;

export function SaidRow({ item, sessionKey, marked }: { item: Extract<Item, { kind: 'said' }>; sessionKey: string; marked: boolean }) {
  const { speaker, message } = item;
  return (
    <article
      class={`said column ${speaker.kind}${marked ? ' marked' : ''}${message.takenBack ? ' taken-back' : ''}`}
      tabIndex={-1}
      aria-label={`${spokenName(speaker)}, ${clock(item.at)}${message.takenBack ? ', taken back' : ''}`}
    >
      {item.named && <By speaker={speaker} at={item.at} link={sessionLink(sessionKey, item.seq)} detail={detailOf(item)} />}
      <div class="words">
        {item.blocks.map((block, index) => <Words key={index} block={block} speaker={speaker} />)}
      </div>
      {message.takenBack && <p class="taken-back-note">Taken back: no part of the conversation any more.</p>}
      {message.stopReason && !USUAL_ENDS.includes(message.stopReason) && (
        <p class="stopped">Stopped: {oneLine(message.stopReason)}</p>
      )}
    </article>
  );
}

function detailOf(item: Extract<Item, { kind: 'said' }>): string {
  const usage = item.message.usage;
  return [
    item.message.model ? oneLine(item.message.model) : '',
    usage ? `${amount((usage.input ?? 0) + (usage.cacheRead ?? 0) + (usage.cacheWrite ?? 0))} in, ${amount(usage.output ?? 0)} out` : '',
    usage?.cost ? cost(usage.cost) : '',
  ].filter(Boolean).join(' · ');
}

function spokenName(speaker: Speaker): string {
  switch (speaker.kind) {
    case 'person':
      return 'You';
    case 'agent':
      return agentName(speaker.id);
    case 'peer':
      return `From session ${oneLine(speaker.key)}, not from you`;
    case 'system':
      return 'Note of the program';
  }
}

/** Another agent speaks under the name that people know it by. */
function agentName(id: string): string {
  const source = sourceOf(open.value?.row.value);
  return source !== 'native' && id === source ? nameOf(source) : oneLine(id) || 'Agent';
}

/** The line that names a speaker. */
export function By(props: { speaker: Speaker; at?: number; link?: string; detail?: string }) {
  const { speaker } = props;
  return (
    <header class="by">
      {speaker.kind === 'person' && <><span class="avatar person" aria-hidden="true"><Icon name="person" /></span><span class="name">You</span></>}
      {speaker.kind === 'agent' && <><span class="avatar agent" aria-hidden="true"><Icon name="agent" /></span><span class="name">{agentName(speaker.id)}</span></>}
      {speaker.kind === 'peer' && (
        <>
          <span class="avatar peer" aria-hidden="true"><Icon name="peer" /></span>
          <span class="name">from session <SessionLink reference={speaker.key} /></span>
          {speaker.tool && <span class="via">via {oneLine(speaker.tool)}</span>}
          {speaker.channel && <span class="via">on {oneLine(speaker.channel)}</span>}
        </>
      )}
      {speaker.kind === 'system' && <><span class="avatar system" aria-hidden="true"><Icon name="note" /></span><span class="name">{nameOf(sourceOf(open.value?.row.value))}</span></>}
      {props.detail && <span class="detail">{props.detail}</span>}
      {props.at !== undefined && (
        <a class="when" href={props.link} title={`${moment(props.at)}. Link to this message`}>{clock(props.at)}</a>
      )}
    </header>
  );
}

function Words({ block, speaker }: { block: Said; speaker: Speaker }) {
  switch (block.type) {
    case 'text': {
      // Reports come from the sessions they are about.
      const report = speaker.kind === 'peer' || speaker.kind === 'system' ? parseReport(block.text) : undefined;
      return report ? <ReportWords report={report} /> : <Markdown text={block.text} />;
    }
    case 'file':
      return <FileWords name={block.name} text={block.text} />;
    case 'image':
      return <Picture mimeType={block.mimeType} data={block.data ?? undefined} />;
    case 'subSession':
      return (
        <p class="sub-session"><Icon name="sub" /><span>Another session ran here: <SubSessionLink id={block.sessionId} /></span></p>
      );
    default:
      // A later version may have kinds that this one does not know.
      return <p class="unknown">A part of the kind “{oneLine(String((block as { type: unknown }).type))}” that this page cannot show.</p>;
  }
}

/** A sub-agent has a name in the session that started it. */
function SubSessionLink({ id }: { id: string }) {
  const named = open.value?.row.value?.subSessions?.find((sub) => sub.sessionId === id);
  return named ? <a class="session-link" href={sessionLink(named.key)}>{oneLine(named.name)}</a> : <SessionLink reference={id} />;
}

function ReportWords({ report }: { report: Report }) {
  return (
    <dl class="report">
      <div><dt>Status</dt><dd>{oneLine(report.status)}</dd></div>
      <div><dt>Result</dt><dd><Markdown text={report.result} /></dd></div>
      <div><dt>Notes</dt><dd>{manyLines(report.notes)}</dd></div>
      <div><dt>Stats</dt><dd class="muted">{oneLine(report.stats)}</dd></div>
    </dl>
  );
}

function FileWords({ name, text }: { name: string; text: string }) {
  const cut = text.length - FILE_SHOWN_MAX;
  return (
    <details class="file-words">
      <summary><Icon name="file" /><span class="file-name">{oneLine(name) || 'A file'}</span><span class="file-size">{size(new Blob([text]).size)}</span></summary>
      <pre tabIndex={0} aria-label={`Text of ${oneLine(name) || 'the file'}`}>{manyLines(text.slice(0, FILE_SHOWN_MAX))}</pre>
      {cut > 0 && <p class="cut">{cut.toLocaleString('en')} more characters.</p>}
    </details>
  );
}

export function Picture({ mimeType, data }: { mimeType: string; data: string | undefined }) {
  const [large, setLarge] = useState(false);
  const [broken, setBroken] = useState(false);
  if (!data || broken || !IMAGES.test(mimeType)) return <p class="unknown">An image ({oneLine(mimeType)}) that cannot be shown.</p>;
  return (
    <button type="button" class={`picture${large ? ' large' : ''}`} aria-label={large ? 'Make the image smaller' : 'Make the image larger'} onClick={() => setLarge(!large)}>
      <img src={`data:${mimeType};base64,${data}`} alt="" onError={() => setBroken(true)} />
    </button>
  );
}

export function StreamRow({ text, named, row }: { text: string; named: boolean; row: Row | undefined }) {
  return (
    <article class="said column agent streaming" aria-busy="true" aria-label="Reply being written" tabIndex={-1}>
      {named && <By speaker={{ kind: 'agent', id: row ? agentOf(row) : '' }} />}
      <div class="words"><Markdown text={text} html={toHtmlOnce} /></div>
    </article>
  );
}

/** Something that was sent and is not in the transcript yet. */
export function SentRow({ entry, transcript }: { entry: Sent; transcript: Transcript }) {
  return (
    <article class={`said column person sent ${entry.state}`} tabIndex={-1} aria-label="You, not in the transcript yet">
      <header class="by">
        <span class="avatar person" aria-hidden="true"><Icon name="person" /></span>
        <span class="name">You</span>
        <span class="detail">{entry.state === 'sending' ? 'Sending…' : entry.state === 'queued' ? 'Waits for its turn' : 'Not sent'}</span>
      </header>
      <div class="words">
        <Markdown text={entry.text} />
        {entry.files.length > 0 && (
          <ul class="files" aria-label="Attached files">
            {entry.files.map((file) => (
              <li class="file" key={file.id}>
                <Icon name="file" />{oneLine(file.name)}
                {entry.state === 'failed' && (
                  <button type="button" class="icon-button" aria-label={`Remove ${oneLine(file.name)}`} onClick={() => transcript.detach(entry.id, file.id)}>
                    <Icon name="close" />
                  </button>
                )}
              </li>
            ))}
          </ul>
        )}
      </div>
      {entry.state === 'failed' && (
        <p class="failed" role="alert">
          <Icon name="warn" /><span>{entry.error}</span>
          <button type="button" class="quiet" disabled={!entry.text && entry.files.length === 0} onClick={() => void transcript.deliver(entry)}>Send again</button>
          <button type="button" class="quiet" onClick={() => transcript.discard(entry.id)}>Discard</button>
        </p>
      )}
      {entry.state === 'queued' && entry.runId && (
        <p class="queued"><button type="button" class="quiet" onClick={() => void transcript.abort(entry.runId).catch(() => undefined)}>Take back</button></p>
      )}
    </article>
  );
}

const OUTCOMES: Record<string, string> = {
  failed: 'The run failed.', timed_out: 'The run took too long and was stopped.', cancelled: 'The run was cancelled.', aborted: 'The run was aborted.',
};

/** How a run ended, when it did not end well. */
export function Outcome({ run }: { run: RunRow }) {
  const bad = run.state === 'failed' || run.state === 'timed_out';
  return (
    <article class={`outcome column${bad ? ' bad' : ''}`} tabIndex={-1} aria-label={OUTCOMES[run.state]}>
      <Icon name={bad ? 'warn' : 'note'} />
      <div>
        <strong>{OUTCOMES[run.state]}</strong>
        {run.error && run.error !== run.state && <p>{oneLine(run.error)}</p>}
      </div>
    </article>
  );
}
