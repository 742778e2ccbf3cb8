import { expect, test } from 'vitest';
import type { Block, Message, Provenance } from '../api/types';
import { group, merge, speakerOf } from './group';

let clock = Date.parse('2026-03-01T10:00:00Z');

function message(seq: number, role: Message['role'], content: Block[] | string, more: Partial<Message> = {}): Message {
  clock += 1000;
  return {
    id: `m${seq}`, seq, role, timestamp: clock,
    content: typeof content === 'string' ? [{ type: 'text', text: content }] : content,
    ...more,
  };
}

const call = (id: string, name = 'shell'): Block => ({ type: 'toolCall', id, name, arguments: {} });
const result = (seq: number, id: string) => message(seq, 'toolResult', 'out', { toolCallId: id, toolName: 'shell' });

/** Writes items as text: `who` for words, `[n]` for steps, `*` where the speaker is not named again. */
function shape(messages: Message[]): string {
  return group(messages)
    .map((item) => {
      if (item.kind === 'day') return 'day';
      if (item.kind === 'compaction') return 'compaction';
      const star = item.named ? '' : '*';
      if (item.kind === 'said') return item.speaker.kind + star;
      return `[${item.steps.map((step) => (step.kind === 'tool' ? (step.result ? 'tool+' : 'tool') : 'think')).join(' ')}]${star}`;
    })
    .join(' ');
}

test('words and steps of a turn belong together', () => {
  expect(
    shape([
      message(1, 'user', 'hello'),
      message(2, 'assistant', [{ type: 'thinking', text: 'hm' }, call('a'), call('b')]),
      result(3, 'a'),
      result(4, 'b'),
      message(5, 'assistant', [call('c')]),
      message(6, 'assistant', 'done'),
    ]),
  ).toBe('day person [think tool+ tool+ tool] agent*');
});

test('a result whose call is not loaded stands alone until it is', () => {
  const late = result(3, 'a');
  expect(shape([late, message(4, 'assistant', 'ok')])).toBe('day [tool+] agent*');
  expect(shape([message(2, 'assistant', [call('a')]), late])).toBe('day [tool+]');
});

test('a peer never looks like the person', () => {
  const from: Provenance = { kind: 'inter_session', sourceSessionKey: 'agent:b:main' };
  expect(speakerOf(message(1, 'user', 'x', { provenance: from }))).toEqual({ kind: 'peer', key: 'agent:b:main' });
  expect(speakerOf(message(1, 'user', 'x', { provenance: { kind: 'internal_system' } })).kind).toBe('system');
  expect(speakerOf(message(1, 'user', 'x', { provenance: { kind: 'external_user' } })).kind).toBe('person');
  expect(speakerOf(message(1, 'user', 'x')).kind).toBe('person');
  expect(speakerOf(message(1, 'assistant', 'x', { provenance: from })).kind).toBe('peer');
  expect(shape([message(1, 'user', 'x'), message(2, 'user', 'y', { provenance: from })])).toBe('day person peer');
});

test('a compaction and a new day are marked', () => {
  const first = message(1, 'user', 'x');
  clock += 48 * 3600_000;
  expect(shape([first, message(2, 'system', [{ type: 'compaction', summary: 's' }]), message(3, 'user', 'y')])).toBe(
    'day person day compaction person',
  );
});

test('keys are unique, and stay when newer messages come', () => {
  const messages = Array.from({ length: 60 }, (_, index) =>
    index % 3 === 0 ? message(index + 1, 'user', 'q') : message(index + 1, 'assistant', [{ type: 'text', text: 'a' }, call(`${index}`), { type: 'text', text: 'b' }, call(`${index}x`)]),
  );
  const keys = group(messages).map(({ key }) => key);
  expect(new Set(keys).size).toBe(keys.length);
  expect(group(messages.slice(0, 30)).map(({ key }) => key)).toEqual(keys.slice(0, group(messages.slice(0, 30)).length));
});

test('pages and live messages merge into one transcript', () => {
  const [a, b, c, d] = [1, 2, 3, 4].map((seq) => message(seq, 'user', `${seq}`)) as [Message, Message, Message, Message];
  const seqs = (list: Message[]) => list.map(({ seq }) => seq);
  expect(seqs(merge([c], [a, b]))).toEqual([1, 2, 3]);
  expect(seqs(merge([a, b], [c, d]))).toEqual([1, 2, 3, 4]);
  expect(seqs(merge([a, c], [b, c, d]))).toEqual([1, 2, 3, 4]);
  expect(seqs(merge([], [a]))).toEqual([1]);
});

test('a word for the program is no message', () => {
  const said = (text: string, role: Message['role'] = 'assistant') => {
    const item = group([message(1, role, text)]).at(-1);
    return item?.kind === 'said' && item.blocks[0]?.type === 'text' ? item.blocks[0].text : undefined;
  };
  expect(said(' ANNOUNCE_SKIP\n')).toBe('_(nothing more to say)_');
  expect(said('not REPLY_SKIP')).toBe('not REPLY_SKIP');
  expect(said('REPLY_SKIP', 'user')).toBe('REPLY_SKIP');
});

test('a file of the person is a file, and nobody else’s words are', () => {
  const file: Block = { type: 'text', text: 'File "notes.txt":\n\nremember the milk' };
  const blocks = (role: Message['role'], more: Partial<Message> = {}) => {
    const item = group([message(1, role, [{ type: 'text', text: 'see' }, file], more)]).at(-1);
    return item?.kind === 'said' ? item.blocks.map((block) => block.type) : undefined;
  };
  expect(blocks('user')).toEqual(['text', 'file']);
  expect(blocks('assistant')).toEqual(['text', 'text']);
  expect(blocks('user', { provenance: { kind: 'inter_session', sourceSessionKey: 'agent:b:main' } })).toEqual(['text', 'text']);
});
