import { expect, test } from 'vitest';
import { manyLines, oneLine } from './clean';

test('a title stays on one line and hides nothing', () => {
  expect(oneLine('  fix\n\tthe   build ')).toBe('fix the build');
  expect(oneLine('a\u001b[31mred\u0000')).toBe('a␛[31mred␀');
  expect(oneLine('safe\u202egnp.exe')).toBe('safegnp.exe');
});

test('output keeps its lines', () => {
  expect(manyLines('a\r\n\tb\u0007')).toBe('a\n  b␇');
});
