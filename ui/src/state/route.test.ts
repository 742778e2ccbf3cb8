import { expect, test } from 'vitest';
import { parse, sessionLink } from './route';

test('addresses lead to views and back', () => {
  const key = 'agent:main:chat:a/b %';
  expect(parse(sessionLink(key))).toEqual({ view: 'session', key, tab: 'transcript' });
  expect(parse(sessionLink(key, 'plan'))).toEqual({ view: 'session', key, tab: 'plan' });
  expect(parse(sessionLink(key, 42))).toEqual({ view: 'session', key, tab: 'transcript', seq: 42 });
  expect(sessionLink('agent:main:main')).toBe('#/s/agent:main:main');
});

test('what is unknown is the home view', () => {
  for (const hash of ['', '#', '#/', '#/s', '#/s/', '#/%zz', '#login=abc']) expect(parse(hash)).toEqual({ view: 'home' });
  expect(parse('#/s/a/0')).toEqual({ view: 'session', key: 'a', tab: 'transcript' });
});
