// Keys: what they do, and the overlay that says so.

import { signal } from '@preact/signals';
import { may } from '../state/rights';
import { go, route, sessionLink, workLink } from '../state/route';
import { composerKeys } from './Composer';
import { Dialog } from './parts';
import { moveInList } from './Sidebar';
import { transcriptKeys } from './TranscriptPane';
import { boardKeys } from './WorkBoard';

export const helpOpen = signal(false);

const GROUPS: { name: string; keys: [string, string][] }[] = [
  {
    name: 'Go to',
    keys: [['g s', 'Sessions'], ['g t', 'Transcript'], ['g p', 'Plan'], ['g u', 'Runs of this session'], ['g r', 'All runs'], ['g w', 'Work sessions'], ['g ,', 'Settings']],
  },
  {
    name: 'Sessions',
    keys: [['/', 'Search'], ['j  k', 'Next, previous session'], ['Enter', 'Open it'], ['c', 'New session']],
  },
  {
    name: 'Transcript',
    keys: [['j  k', 'Next, previous message'], ['Shift G', 'Newest message'], ['i', 'Write a message'], ['Enter', 'Send'], ['Shift Enter', 'New line'], ['Esc', 'Stop the run, or leave the field']],
  },
  {
    name: 'Work sessions',
    keys: [['j  k', 'Next, previous card'], ['h  l', 'Column to the left, to the right'], ['Enter', 'Open it'], ['Esc', 'Back to the board']],
  },
];

export function Help() {
  return (
    <Dialog title="Keys" onClose={() => (helpOpen.value = false)}>
      <div class="help">
        {GROUPS.map((group) => (
          <section key={group.name}>
            <h3>{group.name}</h3>
            <dl>
              {group.keys.map(([keys, words]) => (
                <div key={keys}>
                  <dt>{keys.split(/ +/).map((key) => <kbd key={key}>{key}</kbd>)}</dt>
                  <dd>{words}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <p class="hint"><kbd>j</kbd> and <kbd>k</kbd> move in the transcript when the focus is there, on the board when it is open, and in the list otherwise.</p>
    </Dialog>
  );
}

/** Goes to a view and puts the focus at its beginning, so that the keys act there and a screen reader says where that is. */
function goAndFocus(link: string, first = '#panel-heading'): void {
  const focus = () => requestAnimationFrame(() => (document.querySelector<HTMLElement>(first) ?? document.getElementById('panel-heading'))?.focus());
  if (location.hash === link) return void focus();
  addEventListener('hashchange', focus, { once: true });
  go(link);
}

let afterG = 0;
const PAUSE_MS = 1200;

export function watchKeys(): void {
  addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    if (target.closest('input, textarea, select, [contenteditable]') || document.querySelector('dialog[open]')) return;
    const at = route.value;
    const key = at.view === 'session' ? at.key : undefined;
    let handled = true;
    if (event.timeStamp - afterG < PAUSE_MS && afterG > 0) {
      afterG = 0;
      if (event.key === 's') {
        go('#/');
        requestAnimationFrame(() => moveInList(0));
      } else if (event.key === 'r') goAndFocus('#/runs');
      else if (event.key === 'w') goAndFocus(workLink());
      else if (event.key === ',') goAndFocus('#/settings');
      else if (event.key === 't' && key) goAndFocus(sessionLink(key), '.transcript[tabindex]');
      else if (event.key === 'p' && key) goAndFocus(sessionLink(key, 'plan'));
      else if (event.key === 'u' && key) goAndFocus(sessionLink(key, 'runs'));
      else handled = false;
    } else {
      const inTranscript = target.closest('.transcript') !== null;
      const onBoard = at.view === 'work' && at.slug === undefined && target.closest('.session-list') === null;
      const move = (by: number) => {
        if (inTranscript && transcriptKeys.move) transcriptKeys.move(by);
        else if (onBoard) boardKeys.down(by);
        else moveInList(by);
      };
      switch (event.key) {
        case 'g':
          afterG = event.timeStamp;
          break;
        case '/':
          document.getElementById('search')?.focus();
          break;
        case 'j':
          move(1);
          break;
        case 'k':
          move(-1);
          break;
        case 'h':
        case 'l':
          if (onBoard) boardKeys.across(event.key === 'h' ? -1 : 1);
          else handled = false;
          break;
        case 'Escape':
          if (at.view === 'work' && at.slug !== undefined) go(workLink());
          else handled = false;
          break;
        case 'G':
          transcriptKeys.newest?.();
          break;
        case 'i':
          composerKeys.focus?.();
          break;
        case 'c':
          if (may('write')) go('#/new');
          break;
        case '?':
          helpOpen.value = true;
          break;
        default:
          handled = false;
      }
    }
    if (handled) event.preventDefault();
  });
}
