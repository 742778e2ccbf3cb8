// Whose sessions they are: the names of agents, as people know them.

import type { Row } from '../api/types';
import { oneLine } from '../text/clean';

const NAMES: Record<string, string> = {
  native: 'Intersession', claude: 'Claude Code', codex: 'Codex', gemini: 'Gemini CLI', opencode: 'opencode', goose: 'goose',
  'docker-agent': 'docker-agent', openclaw: 'OpenClaw', cursor: 'Cursor', zed: 'Zed', crush: 'Crush', amp: 'Amp',
  qwen: 'Qwen Code', copilot: 'Copilot CLI',
};

/** Returns what a source is called; one that is not known here by its own name. */
export function nameOf(source: string): string {
  return NAMES[source] ?? oneLine(source);
}

/** Returns the source of a session; one that says nothing is the gateway's own. */
export function sourceOf(row: Pick<Row, 'source'> | undefined): string {
  return row?.source ?? 'native';
}

/** Orders sources as their names are known, our own first. */
export function inOrder(sources: Iterable<string>): string[] {
  const known = Object.keys(NAMES);
  const place = (source: string) => (known.indexOf(source) + 1 || known.length + 1);
  return [...new Set(sources)].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

/** Returns the line that goes on with a session in its own agent, for a shell. */
export function resumeLine(row: Row): string | undefined {
  if (!row.resumeCommand?.length) return undefined;
  const command = row.resumeCommand.map(quoted).join(' ');
  return row.cwd ? `cd ${quoted(row.cwd)} && ${command}` : command;
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
