// Runs as a tree: what was asked, what that led to, how long it took and what it cost.

import { useEffect, useState } from 'preact/hooks';
import { connection, on, onResync, request } from '../api/socket';
import type { RunRow } from '../api/types';
import { secondHand } from '../state/clock';
import { denied } from '../state/rights';
import { oneLine } from '../text/clean';
import { amount, cost, duration, moment } from '../text/time';
import { Ago, attempt, Empty, Icon, SessionLink, Skeleton, tell } from './parts';

const LIMIT = 100;
const STATES: Record<string, string> = {
  queued: 'Queued', running: 'Running', done: 'Done', failed: 'Failed', timed_out: 'Timed out', cancelled: 'Cancelled', aborted: 'Aborted',
};
const ERRANDS: Record<string, string> = {
  message: 'message', send: 'message from a session', round: 'ping-pong round', announce: 'announcement', spawn: 'task', report: 'report', late_reply: 'late reply',
};

/** With `session`, only what that session's runs led to. */
export function RunsPane({ session }: { session?: string }) {
  const [runs, setRuns] = useState<RunRow[] | undefined>();
  const [error, setError] = useState('');

  useEffect(() => {
    let stopped = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const fetch = async () => {
      if (connection.peek().name !== 'open') return;
      try {
        const answer = await request('runs.list', { limit: LIMIT, tree: true, ...(session ? { session } : {}) });
        if (!stopped) (setRuns(answer.runs), setError(''));
      } catch (failure) {
        if (!stopped) setError((failure as Error).message);
      }
    };
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(() => void fetch(), 250);
    };
    const stops = [
      on('sessions.changed', ({ phase }) => phase !== 'message' && soon()),
      onResync(() => void fetch()),
    ];
    void fetch();
    return () => {
      stopped = true;
      clearTimeout(timer);
      for (const stop of stops) stop();
    };
  }, [session]);

  if (!runs) {
    return (
      <div class="pane scroll">
        {error ? <Empty icon="warn" title="The runs could not be loaded"><p>{error}</p></Empty> : <div class="column wide"><Skeleton lines={10} /></div>}
      </div>
    );
  }
  if (runs.length === 0) {
    return (
      <div class="pane">
        <Empty icon="tree" title="No runs yet">
          <p>Each time an agent is asked something, the run and everything it leads to is listed here.</p>
        </Empty>
      </div>
    );
  }
  const sum = totals(runs);
  return (
    <div class="pane scroll" tabIndex={0} role="region" aria-label="Runs">
      <div class="column wide">
        <p class="runs-sum">
          {runs.length} runs · {sum.running > 0 && <><span class="running">{sum.running} running</span> · </>}{amount(sum.tokens)} tokens{sum.cost > 0 && <> · {cost(sum.cost)}</>}
        </p>
        <table class="runs">
          <thead>
            <tr><th scope="col">Run</th><th scope="col">State</th><th scope="col" class="number">Time</th><th scope="col" class="number">Tokens</th><th scope="col" class="number">Cost</th><th scope="col"><span class="sr">Actions</span></th></tr>
          </thead>
          <tbody>{runs.map((run) => <Run key={run.runId} run={run} isOwn={run.sessionKey === session || run.sessionId === session} />)}</tbody>
        </table>
      </div>
    </div>
  );
}

function totals(runs: RunRow[]): { tokens: number; cost: number; running: number } {
  const sum = { tokens: 0, cost: 0, running: 0 };
  for (const run of runs) {
    sum.tokens += run.tokens;
    sum.cost += run.cost ?? 0;
    if (run.state === 'running') sum.running += 1;
  }
  return sum;
}

function Run({ run, isOwn }: { run: RunRow; isOwn: boolean }) {
  const isOver = run.endedAt !== undefined && run.endedAt !== null;
  const depth = Math.min(run.depth, 8);
  const label = run.label ? oneLine(run.label) : '';
  const forbidden = denied('write');
  return (
    <tr class={`run depth-${depth} ${run.state}`}>
      <td class="run-what">
        {depth > 0 && <span class="run-branch" aria-hidden="true"><Icon name="sub" /></span>}
        {run.depth > 0 && <span class="sr">level {run.depth + 1}: </span>}
        <div>
          <span class="run-title">
            <span class="agent">{oneLine(run.agent)}</span>
            <span>{label || (ERRANDS[run.errand] ?? oneLine(run.errand))}</span>
          </span>
          <span class="run-info">
            {!isOwn && <SessionLink reference={run.sessionKey ?? run.sessionId} />}
            {run.from && run.depth === 0 && <span>from <SessionLink reference={run.from} /></span>}
            <Ago at={run.queuedAt} />
          </span>
          {run.error && <span class="run-error">{oneLine(run.error)}</span>}
        </div>
      </td>
      <td class="run-state"><span class={`pill ${run.state}`}>{run.isCancelled && !isOver ? 'Cancelling' : (STATES[run.state] ?? oneLine(run.state))}</span></td>
      <td class="number run-time" title={run.startedAt ? `Began ${moment(run.startedAt)}` : 'Not begun'}><Elapsed run={run} /></td>
      <td class={`number run-tokens${run.tokens || run.totalTokens ? '' : ' nothing'}`} title={run.totalTokens ? `${run.tokens.toLocaleString('en')} of its own` : undefined}>
        {run.tokens || run.totalTokens ? amount(run.totalTokens ?? run.tokens) : '–'}
      </td>
      <td class={`number run-cost${run.totalCost || run.cost ? '' : ' nothing'}`}>{run.totalCost || run.cost ? cost(run.totalCost ?? run.cost ?? 0) : '–'}</td>
      <td class="run-actions">
        {!isOver && (
          <button
            type="button"
            class="quiet"
            disabled={Boolean(forbidden) || run.isCancelled}
            title={forbidden}
            aria-label={`Cancel ${label || 'the run'} of ${oneLine(run.agent)}`}
            onClick={() => void attempt(async () => {
              await request('chat.abort', { sessionKey: run.sessionKey ?? run.sessionId, runId: run.runId });
              tell('The run is being cancelled.');
            })}
          >
            Cancel
          </button>
        )}
      </td>
    </tr>
  );
}

function Elapsed({ run }: { run: RunRow }) {
  if (!run.startedAt) return <>–</>;
  if (run.endedAt) return <>{duration(run.endedAt - run.startedAt)}</>;
  return <span class="ticking">{duration(Math.max(0, secondHand.value - run.startedAt))}</span>;
}
