import { expect, test } from 'vitest';
import type { Row } from '../api/types';
import { inOrder, nameOf, resumeLine, sourceOf } from './vendors';

const row = (more: Partial<Row>): Row => ({ key: 'k', kind: 'other', channel: 'cli', sessionId: 'k', createdAt: 0, updatedAt: 0, ...more });

test('a source has a name, and a place among the others', () => {
  expect(nameOf('claude')).toBe('Claude Code');
  expect(nameOf('new\nagent')).toBe('new agent');
  expect(sourceOf(undefined)).toBe('native');
  expect(inOrder(['later', 'codex', 'native', 'codex', 'claude'])).toEqual(['native', 'claude', 'codex', 'later']);
});

test('the line that goes on with a session is one that a shell takes', () => {
  expect(resumeLine(row({}))).toBeUndefined();
  expect(resumeLine(row({ resumeCommand: ['claude', '--resume', 'a-1'] }))).toBe('claude --resume a-1');
  expect(resumeLine(row({ resumeCommand: ['codex', 'resume', 'x; rm -rf ~'], cwd: "/it's here" }))).toBe(
    `cd '/it'\\''s here' && codex resume 'x; rm -rf ~'`,
  );
});
