import { expect, test, vi } from 'vitest';

const asked = vi.fn();
vi.mock('./sessions', () => {
  const chosen = { search: 'retry', sources: ['claude', 'codex'], scope: undefined };
  return { filter: { peek: () => chosen, value: chosen } };
});
vi.mock('../api/socket', () => ({ connection: { value: { name: 'open' } } }));
vi.mock('../api/http', () => ({ Refusal: class extends Error {}, searchMessages: asked }));
const { found, marked, searchAgain, searchFurther } = await import('./search');

test('older messages that cannot be had are said, with those that are there', async () => {
  asked.mockResolvedValueOnce({ hits: [{ seq: 1 }], nextCursor: 'older' });
  await searchAgain();
  expect(asked.mock.lastCall![0]).toMatchObject({ q: 'retry', source: ['claude', 'codex'] });
  asked.mockRejectedValueOnce(new Error('gone'));
  await searchFurther();
  expect(found.peek()).toMatchObject({ name: 'ready', hits: [{ seq: 1 }], loadingMore: false, failedMore: 'the connection to the gateway was lost' });
  asked.mockResolvedValueOnce({ hits: [{ seq: 2 }] });
  await searchFurther();
  expect(found.peek()).toEqual({ name: 'ready', hits: [{ seq: 1 }, { seq: 2 }], cursor: undefined, loadingMore: false });
});

const show = (snippet: string, search: string, isExpression = false) =>
  marked(snippet, search, isExpression).map(({ text, found }) => (found ? `[${text}]` : text)).join('');

test('what was searched for is marked, and nothing else', () => {
  expect(show('The Keys rotate here', 'keys')).toBe('The [Keys] rotate here');
  expect(show('rotate the key, rotation', 'rot* -key')).toBe('[rot]ate the key, [rot]ation');
  expect(show('exactly once, once', '"exactly once"')).toBe('[exactly once], once');
  expect(show('a.b (c)', '(c)')).toBe('a.b [(c)]');
  expect(show('id 42 and 7', '\\d+', true)).toBe('id [42] and [7]');
  expect(show('broken', '(', true)).toBe('broken');
  expect(show('nothing', '-word')).toBe('nothing');
  expect(show('abc', 'x*', true)).toBe('abc');
});
