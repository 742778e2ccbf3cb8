// The view without a sign-in.

import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { login } from '../api/http';
import { connect } from '../api/socket';
import { Logo, Sentence } from './parts';

export function SignIn({ reason }: { reason?: string | undefined }) {
  const [token, setToken] = useState('');
  const [error, setError] = useState(reason ?? '');
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);

  const submit = async (event: Event) => {
    event.preventDefault();
    if (!token.trim() || busy) return;
    setBusy(true);
    setError('');
    try {
      await login({ token: token.trim() });
      setToken('');
      connect();
    } catch (failure) {
      setError((failure as Error).message);
      setBusy(false);
      field.current?.select();
    }
  };

  return (
    <main class="sign-in">
      <form onSubmit={submit} aria-labelledby="sign-in-title">
        <Logo />
        <h1 id="sign-in-title">Intersession</h1>
        <p>
          This page shows the sessions of your agents. To sign in, run <code>sess open</code> in a terminal: it opens
          this page with a link that works once.
        </p>
        <div class="or"><span>or paste a token</span></div>
        <label for="token">Token</label>
        <input
          id="token"
          ref={field}
          type="password"
          autocomplete="off"
          spellcheck={false}
          value={token}
          onInput={(event) => setToken(event.currentTarget.value)}
          aria-describedby={error ? 'sign-in-error' : 'token-hint'}
          aria-invalid={Boolean(error)}
        />
        {error ? (
          <p id="sign-in-error" class="field-error" role="alert"><Sentence text={error} /></p>
        ) : (
          <p id="token-hint" class="hint"><code>sess token</code> prints yours. It is exchanged for a cookie and not kept by this page.</p>
        )}
        <button type="submit" class="primary wide" disabled={!token.trim() || busy}>{busy ? 'Signing in…' : 'Sign in'}</button>
      </form>
    </main>
  );
}
