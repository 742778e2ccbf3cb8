// Files that are dropped on the page, wherever: they go to the open session, and the browser never leaves for them.

import { signal } from '@preact/signals';
import { go, route, sessionLink } from '../state/route';
import { tell } from './parts';

/** Whether files are being dragged over the page while a session is open. */
export const dragging = signal(false);
/** What was dropped for a session and its composer has not taken yet. */
export const dropped = signal<{ key: string; files: File[] } | undefined>(undefined);

export function watchDrops(): void {
  const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
  addEventListener('dragover', (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    dragging.value = route.peek().view === 'session';
  });
  addEventListener('dragleave', (event) => {
    // Only when the pointer leaves the window does it go to nothing.
    if (event.relatedTarget === null) dragging.value = false;
  });
  addEventListener('drop', (event) => {
    dragging.value = false;
    const isField = event.target instanceof Element && event.target.closest('input, textarea') !== null;
    // Words may be dropped into a field; a link dropped elsewhere would be followed.
    if (hasFiles(event) || !isField) event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    const at = route.peek();
    if (files.length === 0) return;
    if (at.view !== 'session') {
      tell('Open a session first: files are attached to a message.', 'bad');
      return;
    }
    dropped.value = { key: at.key, files };
    if (at.tab !== 'transcript') go(sessionLink(at.key));
  });
}
