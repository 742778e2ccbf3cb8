// What an agent did between its words: thinking and tool calls, each folded to one line.

import { useState } from 'preact/hooks';
import type { Message } from '../api/types';
import type { Item, Step } from '../state/group';
import { minuteHand } from '../state/clock';
import { sessionLink } from '../state/route';
import { manyLines, oneLine } from '../text/clean';
import { highlight } from '../text/highlight';
import { day, moment } from '../text/time';
import { copy, Icon, Markdown, SessionLink } from './parts';
import { By, Picture } from './Said';

/** Longer output is cut on the page; “Copy” has all of it. */
const SHOWN_MAX = 20_000;

// Which steps are open, so that scrolling away and back does not fold them.
const opened = new Set<string>();

export function StepsRow(props: { item: Extract<Item, { kind: 'steps' }>; sessionKey: string; marked: boolean; isRunning: boolean }) {
  const { item } = props;
  return (
    <article class={`steps column ${item.speaker.kind}${props.marked ? ' marked' : ''}`} tabIndex={-1} aria-label={`${item.steps.length} steps`}>
      {item.named && <By speaker={item.speaker} at={item.at} link={sessionLink(props.sessionKey, item.seq)} />}
      <ul class="step-list">
        {item.steps.map((step, index) => (
          <li key={`${step.seq}.${index}`}>
            <StepLine id={`${props.sessionKey} ${step.seq} ${step.kind === 'tool' ? step.id : 'thinking'}`} step={step} isRunning={props.isRunning} />
          </li>
        ))}
      </ul>
    </article>
  );
}

function StepLine({ id, step, isRunning }: { id: string; step: Step; isRunning: boolean }) {
  const [isOpen, setOpen] = useState(opened.has(id));
  const toggle = () => {
    if (isOpen) opened.delete(id);
    else opened.add(id);
    setOpen(!isOpen);
  };
  const state = step.kind === 'thinking' ? 'thinking' : !step.result ? (isRunning ? 'running' : 'unanswered') : step.result.isError ? 'error' : 'done';
  return (
    <div class={`step ${state}`}>
      <button type="button" class="step-head" aria-expanded={isOpen} onClick={toggle}>
        <span class="step-mark"><Icon name="chevron" /></span>
        {step.kind === 'thinking' ? (
          <><span class="step-name">Thinking</span><span class="step-gist">{oneLine(step.text.slice(0, 300))}</span></>
        ) : (
          <>
            <span class="step-name">{oneLine(step.name)}</span>
            <span class="step-gist">{gist(step.arguments)}</span>
            {state === 'running' && <span class="spinner" role="img" aria-label="running" />}
            {state === 'error' && <span class="step-state bad">failed</span>}
            {state === 'unanswered' && <span class="step-state">no result</span>}
          </>
        )}
      </button>
      {isOpen && (step.kind === 'thinking' ? <div class="step-body thinking"><Markdown text={step.text} /></div> : <ToolBody step={step} />)}
    </div>
  );
}

function ToolBody({ step }: { step: Extract<Step, { kind: 'tool' }> }) {
  const hasArguments = Object.keys(step.arguments).length > 0;
  const text = step.result ? textOf(step.result) : undefined;
  const related = text ? relatedSession(text) : undefined;
  return (
    <div class="step-body">
      {hasArguments && <Output label="Arguments" text={JSON.stringify(step.arguments, null, 2)} language="json" />}
      {related && <p class="sub-session"><Icon name="sub" /><span>Session: <SessionLink reference={related} /></span></p>}
      {text !== undefined && <Output label={step.result?.isError ? 'Error' : 'Result'} text={text} language={looksLikeJson(text) ? 'json' : ''} isError={Boolean(step.result?.isError)} />}
      {step.result?.content.map((block, index) => block.type === 'image' && <Picture key={index} mimeType={block.mimeType} data={block.data ?? undefined} />)}
    </div>
  );
}

function Output({ label, text, language, isError = false }: { label: string; text: string; language: string; isError?: boolean }) {
  const shown = manyLines(text.slice(0, SHOWN_MAX));
  const cut = text.length - SHOWN_MAX;
  return (
    <div class={`code output${isError ? ' bad' : ''}`}>
      <div class="code-head">
        <span>{label}</span>
        <button type="button" class="quiet" onClick={(event) => void copy(text, event.currentTarget)}>Copy</button>
      </div>
      <pre tabIndex={0} aria-label={label}><Code text={shown} language={language} /></pre>
      {cut > 0 && <p class="cut">{cut.toLocaleString('en')} more characters; “Copy” has all of it.</p>}
    </div>
  );
}

/** Code in colours. The highlighter's marks are read back as elements, so no HTML is put into the page here. */
function Code({ text, language }: { text: string; language: string }) {
  if (!language) return <code>{text}</code>;
  const parts = highlight(text, language).split(/(<span class="[^"]*">|<\/span>)/);
  const classes: string[] = [];
  return (
    <code>
      {parts.map((part, index) => {
        const opening = /^<span class="([^"]*)">$/.exec(part);
        if (opening) classes.push(opening[1]!);
        else if (part === '</span>') classes.pop();
        else if (part) return <span key={index} class={classes.at(-1) ?? ''}>{unescape(part)}</span>;
        return null;
      })}
    </code>
  );
}

const ENTITIES: Record<string, string> = { '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#x27;': "'" };
const unescape = (text: string) => text.replace(/&(amp|lt|gt|quot|#x27);/g, (entity) => ENTITIES[entity]!);

/** Returns the argument that says most about a call. */
export function gist(args: Record<string, unknown>): string {
  const known = ['command', 'cmd', 'path', 'file_path', 'file', 'pattern', 'query', 'url', 'sessionKey', 'task', 'message', 'label', 'content'];
  const name = known.find((one) => typeof args[one] === 'string' && args[one] !== '') ?? Object.keys(args).find((one) => typeof args[one] === 'string');
  if (name) return oneLine(String(args[name]).slice(0, 300));
  const count = Object.keys(args).length;
  return count ? oneLine(JSON.stringify(args).slice(0, 300)) : '';
}

function textOf(message: Message): string {
  return message.content.map((block) => (block.type === 'text' ? block.text : '')).filter(Boolean).join('\n');
}

const looksLikeJson = (text: string) => /^\s*[[{]/.test(text);

/** Returns the session that a tool's answer is about. */
function relatedSession(text: string): string | undefined {
  return /"(?:childSessionKey|sessionKey)"\s*:\s*"([^"\\]{1,400})"/.exec(text.slice(0, 4000))?.[1];
}

export function DayRow({ at }: { at: number }) {
  return (
    <div class="day column" role="separator" aria-label={day(at, minuteHand.value)}>
      <time dateTime={new Date(at).toISOString()} title={moment(at)}>{day(at, minuteHand.value)}</time>
    </div>
  );
}

export function CompactionRow({ item, marked }: { item: Extract<Item, { kind: 'compaction' }>; marked: boolean }) {
  const [isOpen, setOpen] = useState(opened.has(item.key));
  return (
    <article class={`compaction column${marked ? ' marked' : ''}`} tabIndex={-1} aria-label="Compaction">
      <button
        type="button"
        aria-expanded={isOpen}
        disabled={!item.summary}
        onClick={() => {
          if (isOpen) opened.delete(item.key);
          else opened.add(item.key);
          setOpen(!isOpen);
        }}
      >
        <Icon name="fold" />
        <span>The model sees a summary of everything above</span>
        {item.summary && <span class="more-words">{isOpen ? 'Hide it' : 'Show it'}</span>}
      </button>
      {isOpen && <div class="words"><Markdown text={item.summary} /></div>}
    </article>
  );
}
