// How the connection stands.

import { connection, hello, reconnectNow } from '../api/socket';
import { secondHand } from '../state/clock';
import { Icon } from './parts';

export function ConnectionBadge() {
  const state = connection.value;
  const [name, words] =
    state.name === 'open'
      ? ['open', `Connected, version ${hello.value?.server.version ?? '?'}`]
      : state.name === 'waiting'
        ? ['lost', 'Not connected']
        : ['connecting', 'Connecting'];
  return (
    <span class={`connection ${name}`} title={words} role="status">
      <span class="connection-dot" aria-hidden="true" />
      <span class="connection-words">{state.name === 'open' ? 'Live' : state.name === 'waiting' ? 'Offline' : 'Connecting'}</span>
    </span>
  );
}

/** A line over everything while the gateway cannot be reached. What is shown stays readable. */
export function OfflineBar() {
  const state = connection.value;
  if ((state.name !== 'waiting' && state.name !== 'connecting') || state.attempt < 2) return null;
  const seconds = state.name === 'waiting' ? Math.max(0, Math.ceil((state.until - secondHand.value) / 1000)) : 0;
  return (
    <div class="offline" role="alert">
      <Icon name="warn" />
      <span>
        <strong>Not connected.</strong> What you see may be out of date; what you write is kept. Next try{' '}
        {seconds > 0 ? <span aria-hidden="true">in {seconds}s</span> : 'now'}.
      </span>
      <button type="button" class="quiet" disabled={state.name === 'connecting'} onClick={reconnectNow}>Try now</button>
    </div>
  );
}
