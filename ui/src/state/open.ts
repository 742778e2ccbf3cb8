// The open session: its transcript and its plan, shared by the views of it.

import { computed, effect, signal, untracked } from '@preact/signals';
import { connection, on, onResync, request, RequestError } from '../api/socket';
import type { PlanView } from '../api/types';
import { route } from './route';
import { Transcript } from './transcript';

// Nothing while signed out: who signs in next may be somebody else.
const wanted = computed(() => (route.value.view === 'session' && connection.value.name !== 'signed_out' ? route.value.key : undefined));

export const open = signal<Transcript | undefined>(undefined);

export type PlanStanding = { name: 'loading' } | { name: 'none' } | { name: 'failed'; message: string } | { name: 'here'; plan: PlanView };
export const plan = signal<PlanStanding>({ name: 'loading' });

/** Asks for the newest plan of the open session. */
export async function fetchPlan(): Promise<void> {
  const transcript = open.peek();
  if (!transcript || connection.peek().name !== 'open') return;
  try {
    const answer = await request('plans.get', { sessionKey: transcript.reference });
    if (open.peek() === transcript) plan.value = { name: 'here', plan: answer };
  } catch (error) {
    if (open.peek() !== transcript || !(error instanceof RequestError) || error.code === 'offline') return;
    plan.value = error.code === 'not_found' ? { name: 'none' } : { name: 'failed', message: error.message };
  }
}

export function watchOpen(): void {
  effect(() => {
    const key = wanted.value;
    untracked(() => {
      open.value?.close();
      plan.value = { name: 'loading' };
      open.value = key === undefined ? undefined : new Transcript(key);
      void fetchPlan();
    });
  });
  const ours = (event: { sessionKey: string; sessionId: string }) => {
    const transcript = open.peek();
    if (transcript && (event.sessionKey === transcript.sessionKey || event.sessionId === transcript.reference)) void fetchPlan();
  };
  on('session_plan_updated', ours);
  on('session_plan_state', ours);
  onResync(() => void fetchPlan());
}
