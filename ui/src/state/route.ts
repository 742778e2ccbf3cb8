// Which view is open: the part of the address after `#`. It names sessions and views, never a server.

import { computed, signal } from '@preact/signals';

export type Tab = 'transcript' | 'plan' | 'runs';

export type Route =
  | { view: 'home' }
  | { view: 'session'; key: string; tab: Tab; seq?: number }
  | { view: 'new'; agent?: string }
  | { view: 'runs' }
  | { view: 'work'; slug?: string }
  | { view: 'settings' };

/** Returns the view that an address names; what it does not know is the home view. */
export function parse(hash: string): Route {
  const parts = hash.replace(/^#\/?/, '').split('/').map(decode);
  switch (parts[0]) {
    case 's': {
      const key = parts[1];
      if (!key) return { view: 'home' };
      const rest = parts[2] ?? '';
      if (rest === 'plan' || rest === 'runs') return { view: 'session', key, tab: rest };
      const seq = /^[1-9]\d{0,14}$/.test(rest) ? Number(rest) : undefined;
      return { view: 'session', key, tab: 'transcript', ...(seq ? { seq } : {}) };
    }
    case 'new':
      return { view: 'new', ...(parts[1] ? { agent: parts[1] } : {}) };
    case 'runs':
      return { view: 'runs' };
    case 'work':
      return { view: 'work', ...(parts[1] ? { slug: parts[1] } : {}) };
    case 'settings':
      return { view: 'settings' };
    default:
      return { view: 'home' };
  }
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Returns the address of a session's view. */
export function sessionLink(key: string, place?: Tab | number): string {
  const name = encodeURIComponent(key).replaceAll('%3A', ':');
  return place === undefined || place === 'transcript' ? `#/s/${name}` : `#/s/${name}/${place}`;
}

/** Returns the address of the board, or of one work session on it. */
export function workLink(slug?: string): string {
  return slug === undefined ? '#/work' : `#/work/${encodeURIComponent(slug)}`;
}

const hash = signal(typeof location === 'undefined' ? '' : location.hash);
export const route = computed(() => parse(hash.value));

export function watchAddress(): void {
  addEventListener('hashchange', () => (hash.value = location.hash));
}

export function go(link: string): void {
  if (location.hash !== link) location.hash = link;
}

/** Goes to another address without leaving the present one in the history. */
export function replace(link: string): void {
  history.replaceState(null, '', link);
  hash.value = location.hash;
}
