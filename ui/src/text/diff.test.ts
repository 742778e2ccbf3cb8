import { expect, test } from 'vitest';
import { diffLines, hunks } from './diff';

const MARK = { same: ' ', removed: '-', added: '+' };

function check(before: string, after: string, expected: string) {
  const lines = diffLines(before.replaceAll(' ', '\n'), after.replaceAll(' ', '\n'));
  expect(lines.map((line) => MARK[line.kind] + line.text).join('')).toBe(expected);
}

test('lines are kept, removed and added', () => {
  check('a b c', 'a b c', ' a b c');
  check('a b c', 'a x c', ' a-b+x c');
  check('a b c', 'a c', ' a-b c');
  check('a c', 'a b c', ' a+b c');
  check('a', 'b', '-a+b');
  check('a b c a b b a', 'c b a b a c', '-a-b c+b a b-b a+c');
});

test('line numbers count in each text', () => {
  expect(diffLines('a\nb', 'x\na\nb')).toEqual([
    { kind: 'added', text: 'x', after: 1 },
    { kind: 'same', text: 'a', before: 1, after: 2 },
    { kind: 'same', text: 'b', before: 2, after: 3 },
  ]);
});

test('either text can be rebuilt from the difference', () => {
  let seed = 3;
  const next = (below: number) => (seed = (seed * 48271) % 2147483647) % below;
  for (let round = 0; round < 200; round += 1) {
    const before = Array.from({ length: next(30) + 1 }, () => 'abcd'[next(4)]).join('\n');
    const after = Array.from({ length: next(30) + 1 }, () => 'abcd'[next(4)]).join('\n');
    const lines = diffLines(before, after);
    const text = (drop: string) => lines.filter((line) => line.kind !== drop).map((line) => line.text).join('\n');
    expect(text('added')).toBe(before);
    expect(text('removed')).toBe(after);
  }
});

test('unchanged stretches are folded', () => {
  const before = Array.from({ length: 40 }, (_, index) => `line ${index}`);
  const after = before.with(20, 'changed');
  const parts = hunks(diffLines(before.join('\n'), after.join('\n')), 3);
  expect(parts.map((part) => `${part.kind} ${part.lines.length}`)).toEqual(['fold 17', 'lines 8', 'fold 16']);
});
