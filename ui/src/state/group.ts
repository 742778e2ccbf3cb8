// From messages to what a transcript shows: who speaks, which tool calls belong together, where a day begins.

import type { Block, Message } from '../api/types';

export type Speaker =
  | { kind: 'person' }
  | { kind: 'agent'; id: string }
  | { kind: 'peer'; key: string; channel?: string; tool?: string }
  | { kind: 'system' };

export type Step =
  | { kind: 'thinking'; seq: number; text: string }
  | { kind: 'tool'; seq: number; id: string; name: string; arguments: Record<string, unknown>; result?: Message };

/** A text file that the person attached. */
export interface AttachedFile {
  type: 'file';
  name: string;
  text: string;
}

export type Said = Exclude<Block, { type: 'thinking' | 'toolCall' | 'compaction' }> | AttachedFile;

export type Item =
  | { kind: 'day'; key: string; at: number }
  | {
      kind: 'said';
      key: string;
      seq: number;
      speaker: Speaker;
      message: Message;
      at: number;
      blocks: Said[];
      /** Whether the speaker is named: not when they just go on. */
      named: boolean;
    }
  | { kind: 'steps'; key: string; seq: number; speaker: Speaker; at: number; steps: Step[]; named: boolean; message: Message }
  | { kind: 'compaction'; key: string; seq: number; summary: string; at: number };

/** One row holds this many steps at most, so that it can be drawn quickly. */
const STEPS_MAX = 12;
/** Replies that are words for the program and no messages. */
const CONTROL_WORDS = ['REPLY_SKIP', 'ANNOUNCE_SKIP'];
/** How a file that was attached to a message stands in it. */
const FILE = /^File "([^\n]*)":\n\n/;
/** After such a silence a speaker is named again. */
const SILENCE_MS = 10 * 60_000;

/** Returns whose words a message holds. A peer's words never pass for the person's. */
export function speakerOf(message: Message): Speaker {
  const provenance = message.provenance;
  if (provenance?.kind === 'inter_session') {
    return {
      kind: 'peer',
      key: provenance.sourceSessionKey,
      ...(provenance.sourceChannel ? { channel: provenance.sourceChannel } : {}),
      ...(provenance.sourceTool ? { tool: provenance.sourceTool } : {}),
    };
  }
  if (message.role === 'assistant' || message.role === 'toolResult') {
    return { kind: 'agent', id: message.agentId ?? '' };
  }
  if (message.role === 'system' || provenance?.kind === 'internal_system') return { kind: 'system' };
  return { kind: 'person' };
}

function fileOf(block: Extract<Block, { type: 'text' }>): Said {
  const head = FILE.exec(block.text);
  return head ? { type: 'file', name: head[1]!, text: block.text.slice(head[0].length) } : block;
}

const same = (a: Speaker | undefined, b: Speaker) =>
  a?.kind === b.kind &&
  (b.kind !== 'agent' || (a as typeof b).id === b.id) &&
  (b.kind !== 'peer' || (a as typeof b).key === b.key);

/** Returns the rows of a transcript, oldest first. */
export function group(messages: readonly Message[]): Item[] {
  const items: Item[] = [];
  const calls = new Map<string, Extract<Step, { kind: 'tool' }>>();
  let lastDay = '';
  let speaking: Speaker | undefined;
  let lastAt = 0;

  for (const message of messages) {
    const at = message.timestamp || lastAt;
    if (message.role === 'toolResult') {
      const call = calls.get(message.toolCallId ?? '');
      if (call && !call.result) {
        call.result = message;
        lastAt = at;
        continue;
      }
    }
    const today = new Date(at).toDateString();
    if (at && today !== lastDay) {
      items.push({ kind: 'day', key: `day:${message.seq}`, at });
      lastDay = today;
      speaking = undefined;
    }
    const speaker = speakerOf(message);
    // A message can become several rows; they are told apart by their place in it.
    let part = 0;
    const named = () => {
      const isNew = !same(speaking, speaker) || at - lastAt > SILENCE_MS;
      speaking = speaker;
      lastAt = at;
      return isNew;
    };
    const step = (next: Step) => {
      const last = items.at(-1);
      if (last?.kind === 'steps' && same(last.speaker, speaker) && last.steps.length < STEPS_MAX && same(speaking, speaker)) {
        last.steps.push(next);
        lastAt = at;
      } else {
        items.push({ kind: 'steps', key: `${message.seq}.${part++}`, seq: message.seq, speaker, at, steps: [next], named: named(), message });
      }
    };

    if (message.role === 'toolResult') {
      // Its call is not here, or not yet: older messages may be loaded later.
      step({
        kind: 'tool', seq: message.seq, id: message.toolCallId ?? '', name: message.toolName ?? 'tool', arguments: {}, result: message,
      });
      continue;
    }

    let said: Said[] = [];
    const flush = () => {
      if (said.length === 0) return;
      const key = `${message.seq}.${part++}`;
      items.push({ kind: 'said', key, seq: message.seq, speaker, message, at, blocks: said, named: named() });
      said = [];
    };
    for (const block of message.content) {
      switch (block.type) {
        case 'thinking':
          flush();
          if (block.text.trim()) step({ kind: 'thinking', seq: message.seq, text: block.text });
          break;
        case 'toolCall': {
          flush();
          const call: Extract<Step, { kind: 'tool' }> = {
            kind: 'tool', seq: message.seq, id: block.id, name: block.name, arguments: block.arguments ?? {},
          };
          calls.set(block.id, call);
          step(call);
          break;
        }
        case 'compaction':
          flush();
          items.push({ kind: 'compaction', key: `${message.seq}.${part++}`, seq: message.seq, summary: block.summary ?? '', at });
          speaking = undefined;
          break;
        case 'text':
          if (message.role === 'assistant' && CONTROL_WORDS.includes(block.text.trim())) {
            said.push({ type: 'text', text: '_(nothing more to say)_' });
          } else if (block.text.trim()) said.push(speaker.kind === 'person' ? fileOf(block) : block);
          break;
        default:
          said.push(block);
      }
    }
    flush();
  }
  return items;
}

/** Adds messages to a transcript: in order of `seq`, each once, the newer copy of one wins. */
export function merge(messages: readonly Message[], more: readonly Message[]): Message[] {
  if (more.length === 0) return messages as Message[];
  const last = messages.at(-1)?.seq ?? 0;
  if (more[0]!.seq > last) return [...messages, ...more];
  const first = messages[0]?.seq ?? Infinity;
  if (more.at(-1)!.seq < first) return [...more, ...messages];
  const bySeq = new Map(messages.map((message) => [message.seq, message]));
  for (const message of more) bySeq.set(message.seq, message);
  return [...bySeq.values()].sort((a, b) => a.seq - b.seq);
}
