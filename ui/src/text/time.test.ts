import { expect, test } from 'vitest';
import { ago, amount, cost, day, duration, size } from './time';

const NOW = new Date(2026, 5, 17, 12, 0, 0).getTime();
const MINUTE = 60_000;

test('times are relative for a week', () => {
  const said = (minutes: number) => ago(NOW - minutes * MINUTE, NOW);
  expect([-1, 0, 0.9, 1, 59, 60, 23 * 60, 24 * 60, 6 * 24 * 60].map(said)).toEqual([
    'now', 'now', 'now', '1m', '59m', '1h', '23h', '1d', '6d',
  ]);
  expect(said(8 * 24 * 60)).toBe('9 Jun');
  expect(ago(new Date(2024, 2, 14).getTime(), NOW)).toBe('14 Mar 2024');
});

test('durations tick in their smallest useful unit', () => {
  expect([0, 420, 9_960, 12_300, 185_000, 7_440_000].map(duration)).toEqual([
    '0.0s', '0.4s', '9.9s', '12s', '3m 05s', '2h 04m',
  ]);
});

test('days have names when they are near', () => {
  const said = (days: number) => day(NOW - days * 24 * 60 * MINUTE, NOW);
  expect([0, 1, 2, 8].map(said)).toEqual(['Today', 'Yesterday', 'Monday', '9 June 2026']);
});

test('amounts are short', () => {
  expect([0, 999, 1000, 12_400, 123_456, 999_999, 1_250_000].map(amount)).toEqual([
    '0', '999', '1k', '12.4k', '123k', '1M', '1.3M',
  ]);
  expect([0, 0.0001, 0.0123, 1.2].map(cost)).toEqual(['$0', '<$0.001', '$0.012', '$1.20']);
  expect([512, 12_345, 3_400_000].map(size)).toEqual(['512 B', '12 kB', '3.4 MB']);
});
