// The views that are not about one session: home, new session, all runs, settings.

import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { logout } from '../api/http';
import { connection, disconnect, hello, request } from '../api/socket';
import type { Scope } from '../api/types';
import { denied, may } from '../state/rights';
import { go, sessionLink } from '../state/route';
import { agents, rows } from '../state/sessions';
import { draft, keepDraft, type Theme, theme } from '../state/settings';
import { oneLine } from '../text/clean';
import { size } from '../text/time';
import { attempt, Empty, Icon, Logo } from './parts';
import { RunsPane } from './RunsPane';
import { Tokens } from './Tokens';

function PageHead({ title }: { title: string }) {
  return (
    <header class="head">
      <a class="icon-button back" href="#/" aria-label="Back to the sessions"><Icon name="back" /></a>
      <div class="head-title"><h1 id="panel-heading" tabIndex={-1}>{title}</h1></div>
    </header>
  );
}

export function Home() {
  const running = rows.value.filter((row) => row.status === 'running').length;
  return (
    <div class="pane home">
      <div class="home-body">
        <Logo />
        <h1>Intersession</h1>
        <p>{rows.value.length === 0 ? 'What your agents say, in one place.' : running > 0 ? `${running} ${running === 1 ? 'session is' : 'sessions are'} running. Pick one on the left.` : 'Pick a session on the left, or start a new one.'}</p>
        <ul class="home-keys">
          <li><kbd>/</kbd> Search</li>
          <li><kbd>j</kbd> <kbd>k</kbd> Move in the list</li>
          {may('write') && <li><kbd>c</kbd> New session</li>}
          <li><kbd>?</kbd> All keys</li>
        </ul>
      </div>
    </div>
  );
}

export function AllRuns() {
  return (
    <>
      <PageHead title="Runs" />
      <RunsPane />
    </>
  );
}

export function NewSession({ agent: asked }: { agent: string | undefined }) {
  const [agent, setAgent] = useState(asked ?? '');
  const [text, setText] = useState(() => draft('new'));
  const [busy, setBusy] = useState(false);
  const id = useRef(crypto.randomUUID());
  const field = useRef<HTMLTextAreaElement>(null);
  const known = agents.value;
  const chosen = agent || known.entry || known.agents[0]?.id || '';
  const forbidden = denied('write');
  const offline = connection.value.name !== 'open';
  useLayoutEffect(() => field.current?.focus(), []);

  const start = async () => {
    if (!text.trim() || busy || forbidden || offline || !chosen) return;
    setBusy(true);
    await attempt(async () => {
      const answer = await request('agent', { message: text.trim(), agentId: chosen, idempotencyKey: id.current });
      keepDraft('new', '');
      go(sessionLink(answer.sessionKey));
    });
    setBusy(false);
  };

  return (
    <>
      <PageHead title="New session" />
      <div class="pane scroll">
        <form class="column form" onSubmit={(event) => (event.preventDefault(), void start())}>
          {known.agents.length === 0 ? (
            <Empty icon="chat" title="No agents are configured">
              <p>Add one to the configuration under <code>agents:</code> and restart <code>sess serve</code>.</p>
            </Empty>
          ) : (
            <>
              <fieldset class="agents">
                <legend>Who should do it?</legend>
                {known.agents.map((one) => (
                  <label key={one.id} class={`agent-card${one.id === chosen ? ' chosen' : ''}`}>
                    <input type="radio" name="agent" value={one.id} checked={one.id === chosen} onChange={() => setAgent(one.id)} />
                    <span class="agent-card-name">{oneLine(one.id)}{one.id === known.entry && <span class="tag">first</span>}</span>
                    <span class="agent-card-model">{oneLine(one.model)}</span>
                    {one.description && <span class="agent-card-about">{oneLine(one.description)}</span>}
                  </label>
                ))}
              </fieldset>
              <label for="first-message">First message</label>
              <textarea
                id="first-message"
                ref={field}
                rows={6}
                value={text}
                disabled={Boolean(forbidden)}
                placeholder={forbidden ?? 'What is to be done?'}
                onInput={(event) => {
                  setText(event.currentTarget.value);
                  keepDraft('new', event.currentTarget.value);
                }}
                onKeyDown={(event) => {
                  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
                    event.preventDefault();
                    void start();
                  } else if (event.key === 'Escape' && !event.isComposing) {
                    event.stopPropagation();
                    event.currentTarget.blur();
                  }
                }}
              />
              <div class="form-actions">
                <p class="hint"><kbd>Enter</kbd> starts · <kbd>Shift Enter</kbd> new line</p>
                <button type="submit" class="primary" disabled={!text.trim() || busy || Boolean(forbidden) || offline} title={forbidden}>{busy ? 'Starting…' : 'Start'}</button>
              </div>
            </>
          )}
        </form>
      </div>
    </>
  );
}

const SCOPES: { scope: Scope; words: string }[] = [
  { scope: 'read', words: 'See sessions, transcripts and runs' },
  { scope: 'write', words: 'Send messages, start and stop runs' },
  { scope: 'review', words: 'Approve plans or ask for changes' },
  { scope: 'admin', words: 'Rename, archive, reset and delete sessions; make and revoke tokens' },
];

const THEMES: { value: Theme; name: string }[] = [
  { value: 'system', name: 'As the system' },
  { value: 'light', name: 'Light' },
  { value: 'dark', name: 'Dark' },
];

export function Settings() {
  const greeting = hello.value;
  const isOpen = connection.value.name === 'open';
  return (
    <>
      <PageHead title="Settings" />
      <div class="pane scroll">
        <div class="column settings">
          <section aria-labelledby="set-theme">
            <h2 id="set-theme">Appearance</h2>
            <div class="segments" role="radiogroup" aria-labelledby="set-theme">
              {THEMES.map(({ value, name }) => (
                <label key={value} class={theme.value === value ? 'chosen' : ''}>
                  <input type="radio" name="theme" value={value} checked={theme.value === value} onChange={() => (theme.value = value)} />
                  {name}
                </label>
              ))}
            </div>
          </section>
          <section aria-labelledby="set-connection">
            <h2 id="set-connection">Connection</h2>
            <dl>
              <dt>State</dt><dd>{isOpen ? 'Connected' : 'Not connected'}</dd>
              <dt>Gateway</dt><dd>{location.host}</dd>
              {greeting && (
                <>
                  <dt>Version</dt><dd>{oneLine(greeting.server.version)}, protocol {greeting.protocol}</dd>
                  <dt>Limits</dt><dd>{size(greeting.policy.maxFrameBytes)} a frame, {greeting.policy.maxSubscriptions} subscriptions, {greeting.policy.maxInFlight} requests at a time</dd>
                  {greeting.policy.agent && <><dt>Agent</dt><dd>Only sessions of {oneLine(greeting.policy.agent)}</dd></>}
                </>
              )}
            </dl>
          </section>
          <section aria-labelledby="set-rights">
            <h2 id="set-rights">What this sign-in may do</h2>
            <ul class="rights">
              {SCOPES.map(({ scope, words }) => (
                <li key={scope} class={may(scope) ? 'yes' : 'no'}>
                  <Icon name={may(scope) ? 'check' : 'close'} />
                  <span><strong>{scope}</strong> {words}<span class="sr">{may(scope) ? ': allowed' : ': not allowed'}</span></span>
                </li>
              ))}
            </ul>
          </section>
          {may('admin') && <Tokens />}
          <section aria-labelledby="set-out">
            <h2 id="set-out">This browser</h2>
            <p class="hint">Signing out removes the cookie. Drafts and the theme stay here; the token was never here.</p>
            <button type="button" class="danger" onClick={() => void attempt(async () => {
              await logout();
              disconnect();
              go('#/');
            })}>Sign out</button>
          </section>
        </div>
      </div>
    </>
  );
}
