// What this connection may do.

import { computed } from '@preact/signals';
import { hello } from '../api/socket';
import type { Scope } from '../api/types';

const scopes = computed(() => new Set(hello.value?.policy.scopes ?? []));

/** Tells whether a right is there. The gateway names each of them: an agent's `admin` is not everything. */
export function may(scope: Scope): boolean {
  return scopes.value.has(scope);
}

/** Returns why something is not possible, for the title of a disabled button; nothing when it is. */
export function denied(scope: Scope): string | undefined {
  return may(scope) ? undefined : `This sign-in has no “${scope}” right.`;
}
