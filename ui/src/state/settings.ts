// What the person chose for this browser. No secrets: the sign-in is a cookie that scripts cannot read.

import { effect, signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';

const read = (name: string) => {
  try {
    return localStorage.getItem(`sess.${name}`);
  } catch {
    return null;
  }
};

const write = (name: string, value: string) => {
  try {
    localStorage.setItem(`sess.${name}`, value);
  } catch {
    // Private windows may refuse; the choice then lasts as long as the page.
  }
};

const stored = read('theme');
export const theme = signal<Theme>(stored === 'light' || stored === 'dark' ? stored : 'system');

export function applyTheme(): void {
  effect(() => {
    const root = document.documentElement;
    if (theme.value === 'system') delete root.dataset['theme'];
    else root.dataset['theme'] = theme.value;
    write('theme', theme.value);
  });
}

/** Returns whose sessions the list was narrowed to, and whether to one repository. */
export function keptSources(): { sources: string[]; scope: '' | 'repo' } {
  const names = (read('sources') ?? '').split(',').filter((name) => /^[a-z-]{1,40}$/.test(name));
  return { sources: names, scope: read('scope') === 'repo' ? 'repo' : '' };
}

export function keepSources(sources: readonly string[], scope: '' | 'repo'): void {
  write('sources', sources.join(','));
  write('scope', scope);
}

// When each session was last looked at. What changed before the first visit is not news.
const SEEN_MAX = 1000;
const firstVisit = Number(read('firstVisit')) || Date.now();
write('firstVisit', String(firstVisit));
const seen = signal<Record<string, number>>(parseSeen(read('seen')));

function parseSeen(text: string | null): Record<string, number> {
  try {
    return JSON.parse(text ?? '{}') as Record<string, number>;
  } catch {
    return {};
  }
}

export function isUnread(key: string, updatedAt: number): boolean {
  return updatedAt > (seen.value[key] ?? firstVisit);
}

export function markSeen(key: string, at: number): void {
  if ((seen.value[key] ?? 0) >= at) return;
  const entries = Object.entries({ ...seen.value, [key]: at });
  entries.sort((a, b) => b[1] - a[1]);
  seen.value = Object.fromEntries(entries.slice(0, SEEN_MAX));
  write('seen', JSON.stringify(seen.value));
}

/** Returns what was typed for a session and not sent. It lasts as long as the tab. */
export function draft(key: string): string {
  try {
    return sessionStorage.getItem(`sess.draft.${key}`) ?? '';
  } catch {
    return '';
  }
}

export function keepDraft(key: string, text: string): void {
  try {
    if (text) sessionStorage.setItem(`sess.draft.${key}`, text);
    else sessionStorage.removeItem(`sess.draft.${key}`);
  } catch {
    // Then it is kept nowhere.
  }
}
