import { expect, test } from 'vitest';
import { parse, sessionLink, workLink } from './route';

test('addresses lead to views and back', () => {
  const key = 'agent:main:chat:a/b %';
  expect(parse(sessionLink(key))).toEqual({ view: 'session', key, tab: 'transcript' });
  expect(parse(sessionLink(key, 'plan'))).toEqual({ view: 'session', key, tab: 'plan' });
  expect(parse(sessionLink(key, 42))).toEqual({ view: 'session', key, tab: 'transcript', seq: 42 });
  expect(sessionLink('agent:main:main')).toBe('#/s/agent:main:main');
});

test('the board and what is on it have addresses', () => {
  expect(parse(workLink())).toEqual({ view: 'work' });
  expect(parse('#/work/')).toEqual({ view: 'work' });
  for (const slug of ['2026-11-16-add-login', '../x?y#z %']) expect(parse(workLink(slug))).toEqual({ view: 'work', slug });
});

test('what is unknown is the home view', () => {
  for (const hash of ['', '#', '#/', '#/s', '#/s/', '#/%zz', '#login=abc']) expect(parse(hash)).toEqual({ view: 'home' });
  expect(parse('#/s/a/0')).toEqual({ view: 'session', key: 'a', tab: 'transcript' });
});
