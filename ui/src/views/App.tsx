// The page as a whole.

import { useEffect } from 'preact/hooks';
import { connection } from '../api/socket';
import { open } from '../state/open';
import { route } from '../state/route';
import { rows } from '../state/sessions';
import { titleOfWork } from '../state/work';
import { oneLine } from '../text/clean';
import { OfflineBar } from './Connection';
import { Help, helpOpen } from './Help';
import { AllRuns, Home, NewSession, Settings } from './Pages';
import { notice, spoken, titleOf } from './parts';
import { SessionView } from './SessionView';
import { Sidebar } from './Sidebar';
import { SignIn } from './SignIn';
import { WorkBoardView } from './WorkBoard';
import { WorkSessionView } from './WorkSession';

export function App() {
  const at = route.value;
  const signedOut = connection.value.name === 'signed_out' ? connection.value : undefined;
  const title =
    at.view === 'session'
      ? titleOf(open.value?.row.value, at.key)
      : at.view === 'work' && at.slug !== undefined
        ? oneLine(titleOfWork(at.slug))
        : { home: '', new: 'New session', runs: 'Runs', work: 'Work sessions', settings: 'Settings' }[at.view];
  const running = rows.value.some((row) => row.status === 'running');
  useEffect(() => {
    document.title = `${running ? '● ' : ''}${title ? `${title} – ` : ''}Intersession`;
  }, [title, running]);

  if (signedOut) return <SignIn reason={signedOut.reason} />;
  return (
    <div class={`app ${at.view === 'home' ? 'at-list' : 'at-view'}`}>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById('main')?.focus())}>Skip to the view</a>
      <OfflineBar />
      <div class="panes">
        <Sidebar />
        <main class="main" id="main" tabIndex={-1}>
          {at.view === 'home' && <Home />}
          {at.view === 'session' && <SessionView at={at} />}
          {at.view === 'new' && <NewSession agent={at.agent} />}
          {at.view === 'runs' && <AllRuns />}
          {at.view === 'work' && (at.slug === undefined ? <WorkBoardView /> : <WorkSessionView key={at.slug} slug={at.slug} />)}
          {at.view === 'settings' && <Settings />}
        </main>
      </div>
      {helpOpen.value && <Help />}
      {notice.value && <div class={`notice ${notice.value.kind}`} role={notice.value.kind === 'bad' ? 'alert' : 'status'}>{notice.value.text}</div>}
      <div class="sr" aria-live="polite">{spoken.value}</div>
    </div>
  );
}
