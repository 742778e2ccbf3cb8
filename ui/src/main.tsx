// Where the page begins.

import { render } from 'preact';
import { login } from './api/http';
import { connect, connection, watchNetwork } from './api/socket';
import { startClock } from './state/clock';
import { watchOpen } from './state/open';
import { replace, watchAddress } from './state/route';
import { watchSearch } from './state/search';
import { watchSessions } from './state/sessions';
import { applyTheme } from './state/settings';
import { watchWork } from './state/work';
import { App } from './views/App';
import { watchDrops } from './views/drops';
import { watchKeys } from './views/Help';
import './app.css';

applyTheme();
watchAddress();
watchSessions();
watchSearch();
watchOpen();
watchWork();
watchKeys();
watchDrops();
watchNetwork();
startClock();
render(<App />, document.getElementById('app')!);
void begin();

/** Exchanges the code of a one-time link, if the address has one, and connects. */
async function begin(): Promise<void> {
  const code = /^#login=(.+)$/.exec(location.hash)?.[1];
  if (code !== undefined) {
    // Before anything else: the code must not stay in the address bar or the history.
    replace('#/');
    try {
      await login({ code: decodeURIComponent(code) });
    } catch (error) {
      connection.value = { name: 'signed_out', reason: `The link did not work: ${(error as Error).message}` };
      return;
    }
  }
  connect();
}
