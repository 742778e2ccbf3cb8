// The time, as far as the page shows it.

import { signal } from '@preact/signals';

/** Moves every 15 seconds, for “3m ago”. */
export const minuteHand = signal(Date.now());
/** Moves every second, while something shown is running. */
export const secondHand = signal(Date.now());

export function startClock(): void {
  setInterval(() => (minuteHand.value = Date.now()), 15_000);
  setInterval(() => {
    if (document.visibilityState === 'visible') secondHand.value = Date.now();
  }, 1000);
}
