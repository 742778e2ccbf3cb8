import { expect, test, vi } from 'vitest';

vi.mock('./sessions', () => ({ filter: { peek: () => ({}), value: {} } }));
vi.mock('../api/socket', () => ({ connection: { value: { name: 'open' } } }));
const { marked } = await import('./search');

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
