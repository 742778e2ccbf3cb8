import { expect, test } from 'vitest';
import type { Block, Message } from '../api/types';
import { glanceOf } from './glance';

const message = (seq: number, role: Message['role'], content: Block[], more: Partial<Message> = {}): Message => ({
  id: `m${seq}`, seq, role, content, timestamp: 1_772_359_200_000, ...more,
});
const text = (words: string): Block => ({ type: 'text', text: words });

test('a glance says who spoke, in plain words', () => {
  const words = (...args: Parameters<typeof message>) => glanceOf(message(...args)).words;
  expect(words(1, 'user', [text('hello\nthere')])).toBe('You: hello there');
  expect(words(1, 'assistant', [text('## Done\n\n- **all** of `it`\n\n```rust\nfn a()\n```')])).toBe('Done all of it fn a()');
  expect(words(1, 'user', [text('x')], { provenance: { kind: 'inter_session', sourceSessionKey: 'k' } })).toBe('From a session: x');
  expect(words(1, 'user', [{ type: 'image', mimeType: 'image/png' }])).toBe('You: An image');
});

test('a message without words counts, and leaves the words that were there', () => {
  const first = glanceOf(message(4, 'user', [text('go')]));
  const called = glanceOf(message(5, 'assistant', [{ type: 'toolCall', id: 'c', name: 'shell' }]), first);
  expect(glanceOf(message(6, 'toolResult', [text('output')]), called)).toEqual({ count: 6, words: 'You: go' });
  // One that comes late takes nothing back.
  expect(glanceOf(message(3, 'assistant', [text('late')]), called)).toBe(called);
});
