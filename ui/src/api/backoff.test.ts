import { expect, test } from 'vitest';
import { delay, follows } from './backoff';

test('waits double up to a limit', () => {
  expect([0, 1, 2, 5, 6, 50].map((attempt) => delay(attempt, () => 1))).toEqual([
    500, 1000, 2000, 16000, 20000, 20000,
  ]);
  expect(delay(3, () => 0)).toBe(2000);
});

test('a gap in the events is seen', () => {
  expect(follows(undefined, 5)).toBe('next');
  expect(follows(5, 6)).toBe('next');
  expect(follows(5, 5)).toBe('repeated');
  expect(follows(5, 8)).toBe('gap');
});
