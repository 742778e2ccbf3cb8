// What the list says of a session's newest message, and how many there are.

import type { Message } from '../api/types';
import { oneLine } from '../text/clean';
import { speakerOf } from './group';

export interface Glance {
  /** Messages are counted from 1 without gaps, so the newest one's place is their number. */
  count: number;
  words: string;
}

const WORDS_MAX = 160;

/** Returns the glance after a message; one without words leaves those that were there, one that comes late everything. */
export function glanceOf(message: Message, before?: Glance): Glance {
  if (before && message.seq < before.count) return before;
  return { count: message.seq, words: wordsOf(message) || (before?.words ?? '') };
}

function wordsOf(message: Message): string {
  if (message.role === 'toolResult') return '';
  const speaker = speakerOf(message).kind;
  for (const block of message.content) {
    const words = block.type === 'text' ? plain(block.text) : block.type === 'image' ? 'An image' : '';
    if (words) return speaker === 'person' ? `You: ${words}` : speaker === 'peer' ? `From a session: ${words}` : words;
  }
  return '';
}

/** Markdown on one line, without its commonest marks. */
function plain(text: string): string {
  const marks = text.slice(0, 4 * WORDS_MAX).replace(/^\s*(?:#{1,6} |[-*+] |> |```\S*$)/gm, '').replace(/\*\*|`+/g, '');
  return oneLine(marks).slice(0, WORDS_MAX);
}
