// Tokens: who else gets in. Shown to those who may make and revoke them.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { createToken, listTokens, revokeToken } from '../api/http';
import type { CreatedToken, Scope, TokenRow } from '../api/types';
import { minuteHand } from '../state/clock';
import { agents } from '../state/sessions';
import { oneLine } from '../text/clean';
import { moment } from '../text/time';
import { Ago, attempt, Confirm, copy, Dialog, SessionLink, Skeleton, tell } from './parts';

const SCOPES: Scope[] = ['read', 'write', 'review', 'admin'];
const DAY_S = 86_400;
const LIVES: { seconds: number; name: string }[] = [
  { seconds: DAY_S, name: 'In a day' },
  { seconds: 7 * DAY_S, name: 'In a week' },
  { seconds: 30 * DAY_S, name: 'In 30 days' },
  { seconds: 365 * DAY_S, name: 'In a year' },
  { seconds: 0, name: 'Never' },
];
/** The choice in “For” that asks for a session. */
const ONE_SESSION = ' session';

const nameOf = (row: TokenRow) => oneLine(row.label ?? '') || `Token ${row.id.slice(0, 8)}`;

export function Tokens() {
  const [rows, setRows] = useState<TokenRow[] | undefined>();
  const [error, setError] = useState('');
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<CreatedToken | undefined>();
  const [revoking, setRevoking] = useState<TokenRow | undefined>();
  const [withOld, setWithOld] = useState(false);

  const load = async () => {
    try {
      setRows((await listTokens()).tokens.toSorted((a, b) => b.createdAt - a.createdAt));
      setError('');
    } catch (failure) {
      setError((failure as Error).message);
    }
  };
  useEffect(() => void load(), []);

  const counts = (row: TokenRow) => !row.revokedAt && (!row.expiresAt || row.expiresAt > minuteHand.value);
  const old = rows?.filter((row) => !counts(row)).length ?? 0;
  const shown = rows?.filter((row) => withOld || counts(row));
  return (
    <section aria-labelledby="set-tokens" class="tokens-section">
      <h2 id="set-tokens">Tokens</h2>
      <p class="hint">What lets programs and other browsers in. Each sign-in of a page is one as well. Yours, which <code>sess token</code> prints, is not listed.</p>
      {error && <p class="field-error" role="alert">The tokens could not be loaded: {error} <button type="button" class="quiet" onClick={() => void load()}>Try again</button></p>}
      {!rows && !error && <Skeleton lines={3} />}
      {shown && shown.length > 0 && (
        <div class="tokens-frame" tabIndex={0} role="region" aria-label="All tokens">
          <table class="tokens">
            <thead>
              <tr><th scope="col">Label</th><th scope="col">May</th><th scope="col">For</th><th scope="col">Made</th><th scope="col">Expires</th><th scope="col"><span class="sr">Actions</span></th></tr>
            </thead>
            <tbody>
              {shown.map((row) => (
                <tr key={row.id} class={counts(row) ? '' : 'old'}>
                  <th scope="row" title={row.id}>{nameOf(row)}</th>
                  <td data-name="May">{row.scopes.join(', ')}</td>
                  <td data-name="For">{row.session ? <SessionLink reference={row.session} /> : row.agent ? oneLine(row.agent) : 'all sessions'}</td>
                  <td data-name="Made"><Ago at={row.createdAt} /></td>
                  <td data-name="Expires"><Expiry row={row} /></td>
                  <td class="token-actions">
                    {counts(row) && <button type="button" class="quiet danger" aria-label={`Revoke ${nameOf(row)}`} onClick={() => setRevoking(row)}>Revoke</button>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {shown?.length === 0 && <p class="muted">There are none that count.</p>}
      <div class="tokens-actions">
        <button type="button" onClick={() => setMaking(true)}>New token…</button>
        {old > 0 && <button type="button" class="quiet" aria-pressed={withOld} onClick={() => setWithOld(!withOld)}>{withOld ? 'Hide' : 'Show'} {old} that no longer {old === 1 ? 'counts' : 'count'}</button>}
      </div>
      {making && (
        <NewToken
          onClose={() => setMaking(false)}
          onMade={(token) => {
            setMaking(false);
            setMade(token);
            void load();
          }}
        />
      )}
      {made && <Secret made={made} onClose={() => setMade(undefined)} />}
      {revoking && (
        <Confirm
          title="Revoke this token?"
          text={`Whoever uses “${nameOf(revoking)}” is cut off at once. This cannot be undone.`}
          action="Revoke"
          onClose={() => setRevoking(undefined)}
          onYes={async () => {
            await revokeToken(revoking.id);
            tell('The token is revoked.');
            await load();
          }}
        />
      )}
    </section>
  );
}

function Expiry({ row }: { row: TokenRow }) {
  if (row.revokedAt) return <span title={moment(row.revokedAt)}>revoked</span>;
  if (!row.expiresAt) return <>never</>;
  if (row.expiresAt <= minuteHand.value) return <span title={moment(row.expiresAt)}>expired</span>;
  const date = new Date(row.expiresAt);
  return <time dateTime={date.toISOString()} title={moment(row.expiresAt)}>{date.toLocaleDateString('en-GB', { dateStyle: 'medium' })}</time>;
}

function NewToken({ onMade, onClose }: { onMade: (token: CreatedToken) => void; onClose: () => void }) {
  const [label, setLabel] = useState('');
  const [scopes, setScopes] = useState<Scope[]>(['read']);
  const [whom, setWhom] = useState('');
  const [session, setSession] = useState('');
  const [seconds, setSeconds] = useState(30 * DAY_S);
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  // An agent never speaks for the person, so it gets no right to review.
  const given = scopes.filter((scope) => scope !== 'review' || !whom);
  const isWhole = given.length > 0 && (whom !== ONE_SESSION || session.trim() !== '');

  const make = async () => {
    if (!isWhole || busy) return;
    setBusy(true);
    await attempt(async () => {
      onMade(await createToken({
        scopes: given,
        ...(label.trim() ? { label: label.trim() } : {}),
        ...(whom === ONE_SESSION ? { session: session.trim() } : whom ? { agent: whom } : {}),
        ...(seconds ? { expiresInSeconds: seconds } : {}),
      }));
    });
    setBusy(false);
  };

  return (
    <Dialog title="New token" onClose={onClose}>
      <form onSubmit={(event) => (event.preventDefault(), void make())}>
        <label for="token-label">Label</label>
        <input id="token-label" ref={field} value={label} maxLength={100} placeholder="What it is for" onInput={(event) => setLabel(event.currentTarget.value)} />
        <fieldset class="token-scopes">
          <legend>May</legend>
          {SCOPES.map((scope) => (
            <label key={scope} class="check">
              <input
                type="checkbox"
                checked={given.includes(scope)}
                disabled={scope === 'review' && whom !== ''}
                onChange={(event) => setScopes(event.currentTarget.checked ? [...scopes, scope] : scopes.filter((other) => other !== scope))}
              />
              {scope}
            </label>
          ))}
        </fieldset>
        <label for="token-whom">For</label>
        <select id="token-whom" value={whom} onChange={(event) => setWhom(event.currentTarget.value)}>
          <option value="">All sessions</option>
          {agents.value.agents.map(({ id }) => <option key={id} value={id}>Sessions of {oneLine(id)}</option>)}
          <option value={ONE_SESSION}>One session, for MCP</option>
        </select>
        {whom === ONE_SESSION && (
          <>
            <label for="token-session">Key or id of the session</label>
            <input id="token-session" value={session} onInput={(event) => setSession(event.currentTarget.value)} />
          </>
        )}
        <label for="token-life">Expires</label>
        <select id="token-life" value={String(seconds)} onChange={(event) => setSeconds(Number(event.currentTarget.value))}>
          {LIVES.map((life) => <option key={life.seconds} value={String(life.seconds)}>{life.name}</option>)}
        </select>
        <div class="dialog-actions">
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary" disabled={!isWhole || busy}>{busy ? 'Making it…' : 'Make it'}</button>
        </div>
      </form>
    </Dialog>
  );
}

/** The secret, this once: it is kept nowhere, not even here. */
function Secret({ made, onClose }: { made: CreatedToken; onClose: () => void }) {
  return (
    <Dialog title={nameOf(made.token)} onClose={onClose}>
      <p>Copy it now: it is shown this once, and only its hash is stored.</p>
      <SecretLine label="Token" text={made.secret} />
      {made.token.session && <SecretLine label="Address for an agent that takes nothing else" text={new URL(`mcp/${made.secret}`, location.href.replace(/[?#].*$/, '')).href} />}
      <div class="dialog-actions"><button type="button" class="primary" onClick={onClose}>Done</button></div>
    </Dialog>
  );
}

function SecretLine({ label, text }: { label: string; text: string }) {
  return (
    <div class="secret">
      <input readOnly aria-label={label} value={text} onFocus={(event) => event.currentTarget.select()} />
      <button type="button" onClick={(event) => void copy(text, event.currentTarget)}>Copy</button>
    </div>
  );
}
