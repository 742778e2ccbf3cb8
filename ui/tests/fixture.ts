// What the gateway under test holds: sessions to import, agents, and what their scripted model says.

type Message = Record<string, unknown>;

export interface Seed {
  head: Record<string, unknown>;
  messages: Message[];
}

const MINUTE = 60_000;
const text = (words: string) => [{ type: 'text', text: words }];

/** A progress bar, 320 × 48 pixels. */
const PICTURE =
  'iVBORw0KGgoAAAANSUhEUgAAAUAAAAAwCAIAAADvpzSIAAAArklEQVR42u3csQkAIAwAQddzBid2BQtnsFUs7MXOKnBwE4R8maQ1NxBUMgIQMCBgQMAgYEDAgIABAYOAAQEDAgYBAwIGBAwIGAR8KbnCp94GTwJGwAIWMAIWMAhYwAhYwAJGwAK2fAhYwAgYASNgAQsYAQsYBCxgBCxgASNgAQsYAQsYBCxgBCxgB/3gIwcgYEDAIGBAwICAAQGDgAEBAwIGBAwCBgQMCBgEDIRxAKBnI8V4ABj9AAAAAElFTkSuQmCC';

export const MAIN = 'agent:root:chat:importer';
export const REVIEW = 'agent:reviewer:chat:audit';
export const ODD = 'agent:root:chat:odd';
export const LONG = 'agent:root:chat:long';
export const LONG_LENGTH = 10_000;

function session(key: string, title: string, now: number, minutes: number, messages: [number, string, unknown, Message?][], more: Message = {}): Seed {
  return {
    head: { type: 'session', id: key.split(':').at(-1), key, title, createdAt: new Date(now - minutes * MINUTE).toISOString(), ...more },
    messages: messages.map(([ago, role, content, rest]) => ({
      role, content: typeof content === 'string' ? text(content) : content, timestamp: now - ago * MINUTE, ...rest,
    })),
  };
}

const person = { provenance: { kind: 'external_user' } };
const program = { provenance: { kind: 'internal_system' } };
const model = { agentId: 'root', model: 'scripted' };

const CHANGE = `The test shows it: the transaction rolls back, but the **mirror** keeps half a file. This is the change:

\`\`\`rust
/// Writes the mirror of one transcript, wholly or not at all.
fn write_mirror(path: &Path, lines: &[Line]) -> Result<(), Error> {
    let draft = path.with_extension("jsonl.part");
    let mut file = File::create(&draft)?;
    for line in lines {
        file.write_all(line.as_bytes())?;
    }
    file.sync_all()?; // a full disk shows here
    fs::rename(&draft, path).map_err(Error::from)
}
\`\`\`

| case | before | after |
|:--|:--|:--|
| disk full while importing | half a mirror | no mirror, the error names the file |
| disk full on \`rename\` | lost | the old one stays |

I asked a reviewer to look for other places that write like this.`;

/** Returns the sessions that are there at the start. */
export function seeds(now: number): Seed[] {
  const main = session(MAIN, 'Make the importer survive a full disk', now, 1600, [
    [1560, 'system', [{ type: 'compaction', summary: 'The importer reads transcripts of other agents. We agreed that a damaged line costs **that line**.' }]],
    [1500, 'user', 'Good morning! Where were we?', person],
    [1499, 'assistant', 'Two things are left: what happens when the **disk is full**, and the summary at the end.', model],
    [42, 'user', 'Then let us do the full disk now. The import must stop with a clear error, and what was there before must be intact.', person],
    [41, 'assistant', [
      { type: 'thinking', text: 'The importer opens one transaction per file, so a failed write rolls back that file only. But the mirror is written outside of it.' },
      { type: 'text', text: 'I will look at how the importer writes before I change anything.' },
      { type: 'toolCall', id: 'c1', name: 'shell', arguments: { cmd: 'rg -n "fn import" crates/sess-app/src' } },
      { type: 'toolCall', id: 'c2', name: 'read_file', arguments: { path: 'crates/sess-app/src/imports.rs' } },
    ], model],
    [41, 'toolResult', 'imports.rs:48:pub async fn import(&self, source: Source)', { toolCallId: 'c1', toolName: 'shell' }],
    [41, 'toolResult', '/// Imports every session that a source has.', { toolCallId: 'c2', toolName: 'read_file' }],
    [40, 'assistant', [{ type: 'toolCall', id: 'c3', name: 'shell', arguments: { cmd: 'cargo nextest run imports::full_disk' } }], model],
    [39, 'toolResult', 'error: no space left on device (os error 28)\n\ntest imports::full_disk ... FAILED', { toolCallId: 'c3', toolName: 'shell', isError: true }],
    [38, 'assistant', CHANGE, { ...model, usage: { input: 31200, output: 940, cacheRead: 28000, cacheWrite: 0, cost: 0.114 } }],
    [30, 'user', 'I looked at all writers. There are **two** places outside of a transaction:\n\n1. `transfer/mirror.rs:88`, the one you know\n2. `plan_files.rs:140`, which writes the plan before the row is committed', {
      provenance: { kind: 'inter_session', sourceSessionKey: REVIEW, sourceTool: 'sessions_send' },
    }],
    [29, 'system', [{ type: 'subSession', sessionId: 'audit' }], program],
    [28, 'system', 'The reviewer’s run has ended: done, 3m 12s, 18,400 tokens.', program],
    [27, 'assistant', 'Thank you. I will fix `plan_files.rs` in the same way.', model],
    [5, 'user', [{ type: 'text', text: 'This is what the progress bar looks like now:' }, { type: 'image', mimeType: 'image/png', data: PICTURE }], person],
    [4, 'assistant', 'It is cleared now, and the summary follows:\n\n- [x] disk full: clear error, nothing lost\n- [x] the mirror is whole or absent\n- [ ] `plan_files.rs` gets the same test', model],
  ]);
  const review = session(REVIEW, 'Find every place that writes outside of a transaction', now, 40, [
    [39, 'user', 'Find every place that writes outside of a transaction.', { provenance: { kind: 'inter_session', sourceSessionKey: MAIN, sourceTool: 'sessions_spawn' } }],
    [31, 'assistant', 'There are two.', { agentId: 'reviewer', model: 'scripted' }],
  ], { parentKey: MAIN });
  const odd = session(ODD, 'Titles with \u001b[31mcontrol\u0007 and \u202egnp.exe <b>markup</b>', now, 400, [
    [390, 'user', '<img src=x onerror="document.title=1"><script>document.title=2</script> [x](javascript:alert(3)) ![y](https://example.invalid/y.png)', person],
    [389, 'assistant', 'That is only text.', model],
  ]);
  const others = ['Nightly: dependencies and advisories', 'Port the table to narrow terminals', 'Why is the second start slow?', 'Write the release notes', 'A lease that outlives its node'].map((title, index) =>
    session(`agent:${index % 2 ? 'planner' : 'root'}:chat:other-${index}`, title, now, 600 + index * 700, [
      [599 + index * 700, 'user', `${title}?`, person],
      [598 + index * 700, 'assistant', 'Done.', model],
    ]),
  );
  return [main, review, odd, ...others];
}

/** Returns one very long session. */
export function longSeed(now: number): Seed {
  const words = 'writer reader store plan run session message lease node gateway cursor follower turn model tool reply queue'.split(' ');
  const say = (count: number, from: number) => Array.from({ length: count }, (_, index) => words[(from * 7 + index * 13 + index * index) % words.length]).join(' ');
  return session(LONG, 'A conversation of ten thousand messages', now, 9000, Array.from({ length: LONG_LENGTH }, (_, index): [number, string, unknown, Message?] => {
    const ago = (LONG_LENGTH - index) * 0.7 + 700;
    switch (index % 5) {
      case 0:
        return [ago, 'user', `Question ${index + 1}: ${say(12, index)}?`, person];
      case 1:
        return [ago, 'assistant', [{ type: 'thinking', text: say(40, index) }, { type: 'toolCall', id: `t${index}`, name: 'shell', arguments: { cmd: say(5, index) } }], model];
      case 2:
        return [ago, 'toolResult', say(60, index), { toolCallId: `t${index - 1}`, toolName: 'shell' }];
      default:
        return [ago, 'assistant', `${say(20 + (index % 90), index)}.\n\n${index % 3 ? `- ${say(6, index)}\n- ${say(8, index + 1)}` : `\`\`\`rust\nfn ${words[index % words.length]}() -> u32 { ${index} }\n\`\`\``}`, model];
    }
  }));
}

export const CONFIG = `# Agents for the tests of the page. Their model is a script.
agents:
  root:
    model: scripted/script.jsonl
    description: Works on the code, and asks others when it helps
    toolsets:
      - type: sessions
    subagents: {allowAgents: ["*"]}
  planner:
    model: scripted/script.jsonl
    description: Writes plans and changes nothing
    toolsets:
      - type: session_plan
  reviewer:
    model: scripted/script.jsonl
    description: Reads changes and says what is wrong with them
`;

const PLAN = (last: string) => `# One writer thread

## Why

Every caller waits for its own fsync. One thread that commits what has queued up as **one transaction** pays for it once.

## Steps

- [x] Move the connection into a thread
- [ ] Send it work over a bounded channel
- [ ] Commit what has queued up as one transaction
${last}

## Risks

| risk | answer |
|:--|:--|
| a panic in the thread | the handle reports \`unavailable\` |
`;

export const PLAN_1 = PLAN('- [ ] Measure');
export const PLAN_2 = PLAN('- [ ] Measure 1 and 64 callers against a bare writer, in the same run');

/** What the scripted model says, one reply a line; the first that fits is given, each once a session. */
export const SCRIPT = [
  { agent: 'root', when: 'good evening', text: 'Good evening. **Markdown** works, and so does `code`:\n\n```ts\nconst answer = 42;\n```' },
  { agent: 'root', when: 'take your time', delay_ms: 60_000, text: 'That took a while.' },
  { agent: 'root', when: 'take more time', delay_ms: 60_000, text: 'That took longer.' },
  { agent: 'root', when: 'ask the reviewer', tool_calls: [{ name: 'sessions_spawn', arguments: { task: 'Review the writer.', agentId: 'reviewer', label: 'writer review' } }] },
  { agent: 'reviewer', when: 'Review the writer', text: 'The writer is fine.', usage: { input: 900, output: 40, cacheRead: 0, cacheWrite: 0 } },
  { agent: 'planner', when: 'Plan it', text: 'I write the plan.', tool_calls: [{ name: 'write_session_plan', arguments: { content: PLAN_1 } }] },
  { agent: 'planner', when: 'more precise', tool_calls: [{ name: 'write_session_plan', arguments: { content: PLAN_2 } }] },
  { agent: 'planner', tool_calls: [{ name: 'exit_plan_mode', arguments: {} }] },
  { agent: 'planner', text: 'The plan is ready for review.' },
  { agent: 'planner', tool_calls: [{ name: 'exit_plan_mode', arguments: {} }] },
  { agent: 'planner', text: 'The plan is ready again.' },
  ...Array.from({ length: 8 }, () => ({ text: 'All right.' })),
].map((reply) => JSON.stringify(reply)).join('\n');
