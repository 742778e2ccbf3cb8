import { expect, test } from 'vitest';
import { parseReport } from './report';

test('a report has its four fields, however many lines they have', () => {
  expect(parseReport('Status: ok\nResult: well\n\n- a\n  Notes: none\nNotes: cut; twice\nStats: runtime 1.5 s · tokens 7')).toEqual({
    status: 'ok', result: 'well\n\n- a\n  Notes: none', notes: 'cut; twice', stats: 'runtime 1.5 s · tokens 7',
  });
});

test('other words are no report', () => {
  expect(parseReport('Status: ok')).toBeUndefined();
  expect(parseReport('I say:\nStatus: ok\nResult: x\nNotes: none\nStats: y')).toBeUndefined();
  expect(parseReport('Status: ok\nResult: x\nNotes: none\nStats: y\nand more')).toBeUndefined();
});
