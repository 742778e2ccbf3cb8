// What stands where the person would write, in a session that another agent keeps.

import type { Row } from '../api/types';
import { sessionLink } from '../state/route';
import { nameOf, resumeLine, sourceOf } from '../state/vendors';
import { oneLine } from '../text/clean';
import { copy, Icon } from './parts';

export function ReadOnlyBar({ row }: { row: Row }) {
  const vendor = nameOf(sourceOf(row));
  const line = resumeLine(row);
  return (
    <div class="composer-frame">
      <section class="composer column" aria-label="Read only">
        <div class="read-only">
          <Icon name="note" />
          <p>
            This is a session of {vendor}, read where {vendor} keeps it. Messages can be written to it only there.
          </p>
          {line && (
            <div class="resume">
              <button type="button" title={`Copies the command: ${oneLine(line)}`} onClick={(event) => void copy(line, event.currentTarget)}>
                Continue in {vendor}
              </button>
              <code tabIndex={0} aria-label="The command that continues it">{oneLine(line)}</code>
            </div>
          )}
        </div>
      </section>
    </div>
  );
}

/** What its sub-agents did, each a transcript of its own. */
export function SubSessions({ row }: { row: Row | undefined }) {
  if (!row?.subSessions?.length) return null;
  const count = row.subSessions.length;
  return (
    <details class="sub-sessions">
      <summary><Icon name="sub" />{count === 1 ? 'One sub-agent' : `${count.toLocaleString('en')} sub-agents`}</summary>
      <ul aria-label="Sub-agents">
        {row.subSessions.map((sub) => <li key={sub.key}><a href={sessionLink(sub.key)}>{oneLine(sub.name)}</a></li>)}
      </ul>
    </details>
  );
}
