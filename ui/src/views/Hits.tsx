// Messages that were found, in the sessions of all agents.

import type { SearchHit } from '../api/types';
import { filter } from '../state/sessions';
import { sessionLink } from '../state/route';
import { asExpression, found, marked, searchAgain, searchFurther } from '../state/search';
import { nameOf } from '../state/vendors';
import { oneLine } from '../text/clean';
import { Ago, Empty, Sentence, shortKey, Skeleton } from './parts';

const ROLES: Record<SearchHit['role'], string> = { user: 'Person', assistant: 'Agent', toolResult: 'Tool', system: 'Note' };

export function Hits() {
  const state = found.value;
  switch (state.name) {
    case 'idle':
      return (
        <div class="list-state">
          <Empty icon="search" title="Search in messages">
            <p>Of every agent on this machine. Words, <code>"phrases"</code>, <code>beginnings*</code>, and <code>-words</code> that must be absent.</p>
          </Empty>
        </div>
      );
    case 'loading':
      return <div class="list-state"><Skeleton lines={12} /></div>;
    case 'failed':
      return (
        <div class="list-state">
          <Empty icon="warn" title="This could not be searched">
            <p><Sentence text={state.message} /></p>
            <button type="button" onClick={() => void searchAgain()}>Try again</button>
          </Empty>
        </div>
      );
    case 'ready': {
      if (state.hits.length === 0 && !state.cursor) {
        return (
          <div class="list-state">
            <Empty icon="search" title="Nothing found"><p>No message of any session says that.</p></Empty>
          </div>
        );
      }
      return (
        <>
          <div class="scroller hits">
            <ul aria-label="Messages found, newest first">
              {state.hits.map((hit) => <li key={`${hit.sessionKey} ${hit.sessionId} ${hit.seq}`}><Hit hit={hit} /></li>)}
            </ul>
            {state.failedMore && <p class="list-count" role="alert">{`Older messages were not found: ${state.failedMore}`}</p>}
            {state.cursor && (
              <button type="button" class="quiet more" disabled={state.loadingMore} onClick={() => void searchFurther()}>
                {state.loadingMore ? 'Searching…' : 'Older messages'}
              </button>
            )}
          </div>
          <p class="list-count" aria-live="polite">
            {`${state.hits.length.toLocaleString('en')}${state.cursor ? '+' : ''} ${state.hits.length === 1 ? 'message' : 'messages'}`}
          </p>
        </>
      );
    }
  }
}

/** A transcript that its key has left stays readable by its id; another agent's is known by its key. */
export const hitLink = (hit: SearchHit) => sessionLink(hit.source === 'native' ? hit.sessionId : hit.sessionKey, hit.seq);

function Hit({ hit }: { hit: SearchHit }) {
  const parts = marked(oneLine(hit.snippet), filter.value.search.trim(), asExpression.value);
  return (
    <a class="hit" href={hitLink(hit)}>
      <span class="session-row-line">
        <span class="session-row-title">{oneLine(hit.title) || shortKey(hit.sessionKey)}</span>
        <Ago at={hit.timestamp} />
      </span>
      <span class="hit-words">{parts.map((part, index) => (part.found ? <mark key={index}>{part.text}</mark> : part.text))}</span>
      <span class="session-row-line info">
        <span class="session-row-info">
          <span class={hit.source === 'native' ? '' : 'vendor'}>{nameOf(hit.source)}</span>
          <span>{ROLES[hit.role]}</span>
        </span>
      </span>
    </a>
  );
}

/** Moves the focus among what was found. */
export function moveInHits(by: number): void {
  const hits = [...document.querySelectorAll<HTMLElement>('.hits .hit')];
  const at = hits.indexOf(document.activeElement as HTMLElement);
  hits[Math.max(0, Math.min(hits.length - 1, at + by))]?.focus();
}
