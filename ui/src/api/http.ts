// What goes over HTTP: signing in and out, tokens, files, work sessions, and search.

import type { CreatedToken, CreateToken, ErrorBody, SearchPage, SearchQuery, Tokens, Uploaded, WorkBoard, WorkSession } from './types';

/** The gateway answered, and the answer is no. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function explain(response: Response): Promise<Refusal> {
  const body = (await response.json().catch(() => undefined)) as ErrorBody | undefined;
  return new Refusal(response.status, body?.error?.message ?? `the gateway answered ${response.status}`);
}

/** Exchanges a one-time code or a token for the cookie, which JavaScript never sees. */
export async function login(secret: { code: string } | { token: string }): Promise<void> {
  const response = await fetch('./login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(secret),
    credentials: 'same-origin',
  });
  if (!response.ok) throw await explain(response);
}

export async function logout(): Promise<void> {
  const response = await fetch('./logout', { method: 'POST', credentials: 'same-origin' });
  if (!response.ok && response.status !== 401) throw await explain(response);
}

/** Tells whether the gateway is there and knows us. */
export async function probe(): Promise<'ok' | 'unauthorized' | 'unreachable'> {
  try {
    const response = await fetch('./sessions?limit=1', { credentials: 'same-origin', cache: 'no-store' });
    return response.status === 401 ? 'unauthorized' : 'ok';
  } catch {
    return 'unreachable';
  }
}

async function ask<T>(method: 'GET' | 'POST' | 'DELETE', path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await fetch(`./${path}`, {
    method,
    credentials: 'same-origin',
    cache: 'no-store',
    ...(signal ? { signal } : {}),
    ...(body === undefined ? {} : { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }),
  });
  if (!response.ok) throw await explain(response);
  return (await response.json()) as T;
}

export const listTokens = () => ask<Tokens>('GET', 'tokens');
export const createToken = (token: CreateToken) => ask<CreatedToken>('POST', 'tokens', token);
export const revokeToken = (id: string) => ask('DELETE', `tokens/${encodeURIComponent(id)}`);

export const getBoard = (signal: AbortSignal) => ask<WorkBoard>('GET', 'work', undefined, signal);
export const getWork = (slug: string, signal: AbortSignal) => ask<WorkSession>('GET', `work/${encodeURIComponent(slug)}`, undefined, signal);

/** Finds messages. */
export const searchMessages = (query: SearchQuery, signal: AbortSignal) =>
  ask<SearchPage>('GET', `search?${new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]))}`, undefined, signal);

/** Uploads a file; `progress` hears how much of it has gone, from 0 to 1. */
export function upload(file: Blob, name: string, progress: (part: number) => void): Promise<Uploaded> {
  // fetch() cannot tell how much was sent.
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open('POST', `./attachments?name=${encodeURIComponent(name)}`);
    if (file.type) sending.setRequestHeader('Content-Type', file.type);
    sending.upload.onprogress = ({ loaded, total }) => progress(total ? loaded / total : 0);
    sending.onerror = () => reject(new Error('the connection to the gateway was lost'));
    sending.onload = () => {
      const body = parse(sending.responseText);
      if (sending.status < 300) resolve(body as Uploaded);
      else reject(new Error((body as ErrorBody)?.error?.message ?? `the gateway answered ${sending.status}`));
    };
    sending.send(file);
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
