import { expect, test } from 'vitest';
import { Heights } from './heights';

test('offsets are the sums of the heights before', () => {
  const heights = new Heights([10, 20, 30, 40, 50]);
  expect([0, 1, 2, 3, 4, 5].map((index) => heights.offset(index))).toEqual([0, 10, 30, 60, 100, 150]);
  expect(heights.total).toBe(150);
});

test('the row at an offset covers it', () => {
  const heights = new Heights([10, 20, 30]);
  expect([-5, 0, 9, 10, 29, 30, 59, 60, 1000].map((at) => heights.indexAt(at))).toEqual([
    0, 0, 0, 1, 1, 2, 2, 2, 2,
  ]);
});

test('a changed height moves what is below it', () => {
  const heights = new Heights(new Array(1000).fill(10));
  expect(heights.set(500, 110)).toBe(100);
  expect(heights.offset(500)).toBe(5000);
  expect(heights.offset(501)).toBe(5110);
  expect(heights.total).toBe(10100);
  expect(heights.indexAt(5109)).toBe(500);
});

test('the range covers the viewport and the overscan', () => {
  const heights = new Heights(new Array(10000).fill(50));
  expect(heights.range(5000, 500, 100)).toEqual({ first: 98, end: 113 });
  expect(heights.range(0, 500, 100)).toEqual({ first: 0, end: 13 });
  expect(new Heights([]).range(0, 500, 100)).toEqual({ first: 0, end: 0 });
});

test('it agrees with plain sums on random heights', () => {
  let seed = 7;
  const next = () => (seed = (seed * 16807) % 2147483647) % 200;
  const plain = Array.from({ length: 777 }, next);
  const heights = new Heights(plain);
  for (let round = 0; round < 500; round += 1) {
    const index = next() % plain.length;
    plain[index] = next();
    heights.set(index, plain[index]!);
  }
  let sum = 0;
  plain.forEach((height, index) => {
    expect(heights.offset(index)).toBe(sum);
    sum += height;
  });
});
