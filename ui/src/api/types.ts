// Generated from docs/gateway.schema.json by `npm run types`. Do not edit.

/**
 * What whoever asked can do about it.
 */
export type ErrorType =
  | ('payload_too_large' | 'internal')
  | 'not_found'
  | 'unauthorized'
  | 'forbidden'
  | 'invalid_request'
  | 'method_not_allowed'
  | 'conflict'
  | 'rate_limited'
  | 'unavailable';
export type Role = 'user' | 'assistant' | 'toolResult' | 'system';
/**
 * A piece of a message. Later versions may have more kinds: show what you do not know by its `type`.
 */
export type Block =
  | {
      type: 'text';
      text: string;
    }
  | {
      type: 'thinking';
      text: string;
    }
  | {
      type: 'toolCall';
      id: string;
      name: string;
      arguments?: {
        [k: string]: unknown;
      };
    }
  | {
      type: 'image';
      mimeType: string;
      /**
       * Base 64.
       */
      data?: string | null;
    }
  | {
      type: 'subSession';
      sessionId: string;
    }
  | {
      type: 'compaction';
      summary?: string;
    };
/**
 * Who really wrote a message.
 */
export type Provenance =
  | {
      kind: 'external_user';
    }
  | {
      kind: 'inter_session';
      sourceSessionKey: string;
      sourceChannel?: string | null;
      sourceTool?: string | null;
    }
  | {
      kind: 'internal_system';
    };
/**
 * What became of a session.
 */
export type Phase =
  'created' | 'message' | 'run_start' | 'run_end' | 'patched' | 'reset' | 'deleted' | 'archived';
export type EventType = 'event';
/**
 * A right. `admin` includes the others.
 */
export type Scope = 'read' | 'write' | 'review' | 'admin';
export type RequestType = 'req';
export type ResponseType = 'res';
export type ChatStatus = 'started' | 'in_flight' | 'ok';
/**
 * What the person says about a plan.
 */
export type Decision = 'approve' | 'request_changes' | 'done';
export type WaitStatus = ('ok' | 'error' | 'aborted') | 'timeout';
/**
 * Which sessions are meant, by where they ran.
 */
export type SessionScope = 'repo' | 'all';
/**
 * The state of a work session, in the order of its life.
 */
export type WorkState = 'drafting' | 'planned' | 'active' | 'completed' | 'abandoned';

/**
 * The body of every answer that is an error.
 */
export interface ErrorBody {
  error: ErrorDetail;
}
export interface ErrorDetail {
  type: ErrorType;
  /**
   * A sentence that says what is wrong and what to do.
   */
  message: string;
}
/**
 * Events, oldest first; each has a `type` and a `session_id`.
 */
export interface EventsPage {
  events: {
    [k: string]: unknown;
  }[];
  /**
   * Leads to what comes after these.
   */
  nextCursor: string;
}
/**
 * `GET /events`.
 */
export interface EventsQuery {
  /**
   * How many are looked at: 1 to 1,000, 100 when not given.
   */
  limit?: number | null;
  /**
   * The `nextCursor` of the page before; a page without it begins with the oldest event, a stream with what
   * happens from now on.
   */
  cursor?: string | null;
  /**
   * `1` goes on as a stream of events.
   */
  follow?: number | null;
}
/**
 * `lagged`: events were left out; ask again for what you show.
 */
export interface Lagged {
  sessionKey?: string | null;
}
/**
 * `session_plan_updated` and `session_plan_state`.
 */
export interface PlanEvent {
  sessionKey: string;
  sessionId: string;
  revision: number;
  state?: string | null;
  note?: string | null;
}
/**
 * `run.delta`: text while a model streams. Not stored; may be left out under load.
 */
export interface RunDelta {
  runId: string;
  sessionKey: string;
  text: string;
}
/**
 * `session.message`.
 */
export interface SessionMessage {
  sessionKey: string;
  sessionId: string;
  message: Message;
  messageSeq: number;
  usage?: Usage | null;
}
/**
 * One message. It is copied through as it is stored, secrets masked: this type says how it looks.
 */
export interface Message {
  id: string;
  /**
   * Its place in the transcript: dense, counted from 1.
   */
  seq: number;
  role: Role;
  content: Block[];
  /**
   * Milliseconds since 1970.
   */
  timestamp: number;
  toolCallId?: string | null;
  toolName?: string | null;
  isError?: boolean | null;
  model?: string | null;
  usage?: Usage | null;
  stopReason?: string | null;
  runId?: string | null;
  agentId?: string | null;
  provenance?: Provenance | null;
  /**
   * It was taken back: still on record, no part of the conversation any more.
   */
  takenBack?: boolean | null;
}
export interface Usage {
  input?: number;
  output?: number;
  cacheRead?: number;
  cacheWrite?: number;
  cost?: number | null;
}
/**
 * `sessions.changed`: `session` is its row, unless it is gone.
 */
export interface SessionsChanged {
  sessionKey: string;
  sessionId: string;
  phase: Phase;
  session?: Row | null;
}
/**
 * One session. What is not known is absent.
 */
export interface Row {
  key: string;
  kind: string;
  channel: string;
  displayName?: string | null;
  /**
   * Milliseconds.
   */
  updatedAt: number;
  sessionId: string;
  model?: string | null;
  /**
   * Tokens that the newest model call took in.
   */
  contextTokens?: number | null;
  /**
   * Tokens of all its runs and those of the sessions below it.
   */
  totalTokens?: number | null;
  /**
   * What they cost, when a price is known.
   */
  totalCost?: number | null;
  thinkingLevel?: string | null;
  verboseLevel?: string | null;
  systemSent?: boolean | null;
  abortedLastRun?: boolean | null;
  sendPolicy?: string | null;
  lastChannel?: string | null;
  lastTo?: string | null;
  deliveryContext?: DeliveryContext | null;
  transcriptPath?: string | null;
  agentId?: string | null;
  title?: string | null;
  spawnedBy?: string | null;
  label?: string | null;
  /**
   * `running`, `queued` or `idle`; `waiting` for a session with unanswered messages in its inbox.
   */
  status?: string | null;
  createdAt: number;
  archived?: boolean;
  starred?: boolean;
  /**
   * Where it comes from: `native`, or the agent whose own session it is.
   */
  source?: string | null;
  /**
   * It is another agent's, read where that keeps it: no message can be sent into it.
   */
  readOnly?: boolean;
  /**
   * The directory that it ran in.
   */
  cwd?: string | null;
  /**
   * The command, word by word, that goes on with it in its own agent.
   */
  resumeCommand?: string[] | null;
  /**
   * What its sub-agents did, each a session of its own; only where one session is asked for.
   */
  subSessions?: SubSession[] | null;
  /**
   * The last messages, without tool results.
   */
  messages?: Message[] | null;
}
export interface DeliveryContext {
  channel: string;
  to?: string | null;
  accountId?: string | null;
}
/**
 * A session that another agent's session had a part of its work done in.
 */
export interface SubSession {
  key: string;
  sessionId: string;
  /**
   * What its agent calls it.
   */
  name: string;
}
/**
 * `tick`: the gateway is there.
 */
export interface Tick {
  /**
   * Milliseconds.
   */
  at: number;
}
/**
 * `connect`: the first request of every connection.
 */
export interface ConnectParams {
  minProtocol: number;
  maxProtocol: number;
  client: ClientInfo;
  /**
   * The page has its cookie instead.
   */
  auth?: Auth | null;
}
export interface ClientInfo {
  id: string;
  version: string;
}
export interface Auth {
  token: string;
}
/**
 * Something that happened. `seq` rises by one with each event of a connection.
 */
export interface EventFrame {
  type: EventType;
  event: string;
  payload: unknown;
  seq: number;
}
/**
 * The answer to `connect`.
 */
export interface HelloOk {
  /**
   * Always `hello-ok`.
   */
  type: string;
  protocol: number;
  server: ServerInfo;
  methods: string[];
  events: string[];
  policy: Policy;
}
export interface ServerInfo {
  version: string;
}
/**
 * What this connection may do, and how much of it.
 */
export interface Policy {
  scopes: Scope[];
  /**
   * Only sessions of this agent.
   */
  agent?: string | null;
  maxFrameBytes: number;
  maxSubscriptions: number;
  maxInFlight: number;
  tickSeconds: number;
}
/**
 * A frame from the client.
 */
export interface RequestFrame {
  type: RequestType;
  /**
   * The client's own name for the request, which the answer repeats.
   */
  id: string;
  method: string;
  params?: {
    [k: string]: unknown;
  };
}
/**
 * The answer to a request: `payload` when `ok`, else `error`.
 */
export interface ResponseFrame {
  type: ResponseType;
  id: string;
  ok: boolean;
  payload?: unknown;
  error?: FrameError | null;
}
export interface FrameError {
  /**
   * What whoever asked can do about it.
   */
  code:
    | ('payload_too_large' | 'internal')
    | 'not_found'
    | 'unauthorized'
    | 'forbidden'
    | 'invalid_request'
    | 'method_not_allowed'
    | 'conflict'
    | 'rate_limited'
    | 'unavailable';
  message: string;
  details?: unknown;
}
/**
 * A page of a transcript, oldest message first.
 */
export interface HistoryPage {
  sessionKey: string;
  sessionId: string;
  items: Message[];
  /**
   * Whether there are older ones.
   */
  hasMore: boolean;
  /**
   * Leads to the page before this one.
   */
  nextCursor?: string | null;
}
/**
 * `GET /sessions/{sessionKey}/history`.
 */
export interface HistoryQuery {
  /**
   * How many messages: 1 to 1,000, 200 when not given.
   */
  limit?: number | null;
  /**
   * The `nextCursor` of the page before.
   */
  cursor?: string | null;
  /**
   * `1` adds tool results.
   */
  includeTools?: number | null;
  /**
   * `1` goes on as a stream of events.
   */
  follow?: number | null;
}
export interface AgentAccepted {
  runId: string;
  /**
   * Always `accepted`: the outcome comes as an event `agent`.
   */
  status: string;
  sessionKey: string;
}
/**
 * `agent`: a message to a session, or to an agent in a session of its own.
 */
export interface AgentRequest {
  message: string;
  sessionKey?: string | null;
  agentId?: string | null;
  idempotencyKey: string;
}
/**
 * `agent.wait`.
 */
export interface AgentWait {
  runId: string;
  timeoutMs?: number | null;
}
/**
 * `chat.abort`: one run of a session, or all that have not ended.
 */
export interface ChatAbort {
  sessionKey: string;
  runId?: string | null;
}
export interface ChatAborted {
  runIds: string[];
}
/**
 * `chat.history`.
 */
export interface ChatHistory {
  sessionKey: string;
  limit?: number | null;
  cursor?: string | null;
  includeTools?: boolean | null;
}
/**
 * `chat.send`.
 */
export interface ChatSend {
  sessionKey: string;
  message: string;
  /**
   * The same key is the same run.
   */
  idempotencyKey: string;
  /**
   * Ids of uploaded files.
   */
  attachments?: string[] | null;
}
export interface ChatSent {
  runId: string;
  status: ChatStatus;
}
/**
 * `sessions.delete`: what was deleted.
 */
export interface Deleted {
  /**
   * Always true.
   */
  deleted: boolean;
  key: string;
}
/**
 * What was subscribed to.
 */
export interface Subscribed {
  subscribed: boolean;
  key?: string | null;
  sessionId?: string | null;
  /**
   * The newest message when the subscription began.
   */
  lastSeq?: number | null;
}
/**
 * `sessions.messages.subscribe`.
 */
export interface SubscribeMessages {
  key: string;
  /**
   * The session that `fromSeq` counts in.
   */
  sessionId?: string | null;
  /**
   * Replays what came after this message first.
   */
  fromSeq?: number | null;
}
/**
 * `plans.get`.
 */
export interface GetPlan {
  sessionKey: string;
  revision?: number | null;
}
/**
 * `PUT /sessions/{sessionKey}/plan`.
 */
export interface PlanBody {
  content: string;
  /**
   * Refuse unless this is the newest revision; 0 for none yet.
   */
  expectedRevision?: number | null;
  idempotencyKey?: string | null;
}
export interface PlanQuery {
  /**
   * An older revision; the newest when not given.
   */
  revision?: number | null;
}
/**
 * How a plan stands after it was written or reviewed.
 */
export interface PlanState {
  sessionId: string;
  revision: number;
  state: string;
}
/**
 * `GET /sessions/{sessionKey}/plan`, and `plans.get`.
 */
export interface PlanView {
  sessionKey: string;
  sessionId: string;
  revision: number;
  /**
   * `draft`, `ready`, `approved`, `changes_requested` or `done`.
   */
  state: string;
  /**
   * What the person said when they approved it or asked for changes.
   */
  note?: string | null;
  /**
   * Markdown.
   */
  content: string;
  /**
   * Its revisions, oldest first.
   */
  revisions: RevisionRow[];
}
export interface RevisionRow {
  revision: number;
  agent: string;
  /**
   * RFC 3339.
   */
  at: string;
  sizeBytes: number;
}
/**
 * `POST /sessions/{sessionKey}/plan/review`.
 */
export interface ReviewBody {
  /**
   * The revision that was looked at.
   */
  revision: number;
  decision: Decision;
  note?: string | null;
}
/**
 * `plans.review`.
 */
export interface ReviewPlan {
  sessionKey: string;
  revision: number;
  decision: Decision;
  note?: string | null;
}
/**
 * `GET /runs`, and `runs.list`: the newest runs, or the trees they belong to.
 */
export interface ListRuns {
  /**
   * Only runs of this session: a key or an id.
   */
  session?: string | null;
  /**
   * 1 to 1,000, 20 when not given.
   */
  limit?: number | null;
  /**
   * With everything that those runs led to, each below the run that asked for it.
   */
  tree?: boolean | null;
}
export interface Runs {
  runs: RunRow[];
}
/**
 * One run. What is not known is absent.
 */
export interface RunRow {
  runId: string;
  sessionId: string;
  sessionKey?: string | null;
  agent: string;
  /**
   * `queued`, `running`, `done`, `failed`, `timed_out`, `cancelled` or `aborted`.
   */
  state: string;
  /**
   * What it is for: `message`, `send`, `round`, `announce`, `spawn`, `report` or `late_reply`.
   */
  errand: string;
  /**
   * What whoever spawned it calls it.
   */
  label?: string | null;
  /**
   * The session whose words it answers.
   */
  from?: string | null;
  /**
   * `queued`, `delivered` or `replied`.
   */
  delivery: string;
  /**
   * Milliseconds, like the times below.
   */
  queuedAt: number;
  startedAt?: number | null;
  endedAt?: number | null;
  isCancelled?: boolean;
  tokens: number;
  cost?: number | null;
  /**
   * With those of everything that it led to; only in a tree.
   */
  totalTokens?: number | null;
  totalCost?: number | null;
  result?: string | null;
  error?: string | null;
  root: string;
  parent?: string | null;
  /**
   * How deep it stands in a tree.
   */
  depth: number;
}
/**
 * `POST /runs/{runId}/wait`.
 */
export interface WaitBody {
  /**
   * 30,000 when not given, 600,000 at most.
   */
  timeoutMs?: number | null;
}
/**
 * How a run stands after waiting for it.
 */
export interface Waited {
  runId: string;
  status: WaitStatus;
  reply?: string | null;
  error?: string | null;
}
/**
 * What was found, newest first.
 */
export interface SearchPage {
  hits: SearchHit[];
  /**
   * Leads to older ones; absent at the end.
   */
  nextCursor?: string | null;
}
/**
 * A message that was found.
 */
export interface SearchHit {
  sessionKey: string;
  sessionId: string;
  /**
   * Where the session comes from: `native`, or the agent whose own session it is.
   */
  source: string;
  /**
   * May be empty.
   */
  title: string;
  messageId: string;
  /**
   * Its place in the transcript, as pages of it count, and `sess search` and `sess read --around` too.
   */
  seq: number;
  role: Role;
  /**
   * Milliseconds since 1970.
   */
  timestamp: number;
  /**
   * What stands around the words, on one line.
   */
  snippet: string;
}
/**
 * `GET /search`.
 */
export interface SearchQuery {
  /**
   * Words, `"phrases"`, `beginnings*`, and `-words` that must be absent; at most 1,000 bytes.
   */
  q: string;
  /**
   * `1` takes `q` for a regular expression.
   */
  regex?: number | null;
  /**
   * Only sessions that come from these: `native` for those of the store, else the names of agents.
   */
  source?: string[] | null;
  /**
   * `repo` leaves only sessions of the repository that the gateway was started in; `all` when not given.
   */
  scope?: SessionScope | null;
  /**
   * How many: 1 to 100, 20 when not given.
   */
  limit?: number | null;
  /**
   * The `nextCursor` of the page before.
   */
  cursor?: string | null;
}
/**
 * `GET /agents`.
 */
export interface Agents {
  /**
   * The agent that gets first messages.
   */
  entry?: string | null;
  agents: AgentInfo[];
}
export interface AgentInfo {
  id: string;
  description: string;
  model: string;
}
/**
 * `GET /sessions`, and `sessions.list`.
 */
export interface ListSessions {
  /**
   * Only these kinds: `main`, `group`, `cron`, `hook`, `node`, `other`.
   */
  kinds?: string[] | null;
  /**
   * 1 to 200, 50 when not given.
   */
  limit?: number | null;
  /**
   * How many of the newest are left out.
   */
  offset?: number | null;
  /**
   * Only sessions with activity in the last minutes.
   */
  activeMinutes?: number | null;
  /**
   * That many of each session's last messages: 0 to 20.
   */
  messageLimit?: number | null;
  /**
   * Only sessions whose title, key, label or directory contains this, in any case.
   */
  search?: string | null;
  /**
   * Only sessions that come from these: `native` for those of the store, else the names of agents, as
   * `claude` or `codex`.
   */
  source?: string[] | null;
  /**
   * `repo` leaves only sessions of the repository that the gateway was started in; `all` when not given.
   */
  scope?: SessionScope | null;
  /**
   * Only sessions of this agent.
   */
  agent?: string | null;
  /**
   * Whether archived ones are listed as well.
   */
  archived?: boolean | null;
}
/**
 * Names one session: `sessions.get`, `sessions.preview`, `sessions.delete`, `plans.get`.
 */
export interface OneSession {
  /**
   * A key or an id.
   */
  key: string;
}
/**
 * `sessions.patch`. What is absent stays; `null` clears.
 */
export interface PatchSession {
  key: string;
  /**
   * `allow` or `deny`.
   */
  sendPolicy?: string | null;
  /**
   * The name of a configured model.
   */
  model?: string | null;
  /**
   * `off`, `minimal`, `low`, `medium` or `high`.
   */
  thinkingLevel?: string | null;
  /**
   * `off`, `on` or `full`.
   */
  verboseLevel?: string | null;
  displayName?: string | null;
  label?: string | null;
  archived?: boolean | null;
  starred?: boolean | null;
}
/**
 * `sessions.resolve`: what a reference leads to.
 */
export interface Resolved {
  key: string;
  sessionId: string;
}
export interface Rows {
  count: number;
  /**
   * How many there are; at least so many when `totalIsMinimum`.
   */
  total: number;
  totalIsMinimum?: boolean;
  sessions: Row[];
}
/**
 * What became of a message that was sent.
 */
export interface SendAnswer {
  runId: string;
  /**
   * `accepted`, `ok`, `timeout` or `error`.
   */
  status: string;
  reply?: string | null;
  error?: string | null;
  sessionKey: string;
  /**
   * `queued`, `delivered` or `replied`.
   */
  delivery?: string | null;
}
/**
 * `POST /sessions/{sessionKey}/send`.
 */
export interface SendBody {
  message: string;
  /**
   * 0 waits for nothing; 30 when not given, 600 at most.
   */
  timeoutSeconds?: number | null;
  /**
   * The same key is the same run.
   */
  idempotencyKey?: string | null;
}
/**
 * `GET /sessions/{sessionKey}`.
 */
export interface SessionQuery {
  /**
   * That many of its last messages: 0 to 20.
   */
  messageLimit?: number | null;
}
/**
 * `POST /attachments`.
 */
export interface UploadQuery {
  /**
   * The file's name.
   */
  name?: string | null;
}
/**
 * `POST /attachments`, with the file as its body: what `chat.send` names.
 */
export interface Uploaded {
  id: string;
  name: string;
  mimeType: string;
  sizeBytes: number;
}
/**
 * `POST /tokens`.
 */
export interface CreateToken {
  scopes: Scope[];
  /**
   * Only sessions of this agent.
   */
  agent?: string | null;
  /**
   * It stands for this session: a key or an id.
   */
  session?: string | null;
  label?: string | null;
  /**
   * For ever when not given.
   */
  expiresInSeconds?: number | null;
}
/**
 * A new token. Its secret is told this once.
 */
export interface CreatedToken {
  secret: string;
  token: TokenRow;
}
/**
 * A token without its secret.
 */
export interface TokenRow {
  id: string;
  label?: string | null;
  scopes: Scope[];
  agent?: string | null;
  /**
   * It stands for this session.
   */
  session?: string | null;
  /**
   * Milliseconds.
   */
  createdAt: number;
  expiresAt?: number | null;
  revokedAt?: number | null;
}
/**
 * `POST /login`: what the cookie lets the page do.
 */
export interface LoggedIn {
  scopes: Scope[];
  /**
   * Only sessions of this agent.
   */
  agent?: string | null;
}
/**
 * `POST /login`: what a one-time link holds.
 */
export interface Login {
  /**
   * The code of the link, or a token that the person pasted.
   */
  code?: string | null;
  token?: string | null;
}
/**
 * `GET /tokens`.
 */
export interface Tokens {
  tokens: TokenRow[];
}
/**
 * `GET /work`.
 */
export interface WorkBoard {
  /**
   * The top of the repository; absent when the gateway was not started in one that has work sessions.
   */
  repository?: string | null;
  /**
   * The branch that work lands on.
   */
  base?: string | null;
  /**
   * The remote could not be asked: this is what it said last.
   */
  isOld: boolean;
  sessions: WorkRow[];
}
/**
 * A work session in a list.
 */
export interface WorkRow {
  slug: string;
  state: WorkState;
  title: string;
  /**
   * It can be claimed now.
   */
  ready: boolean;
  /**
   * What it depends on and is not completed.
   */
  waitsFor?: string[];
  labels?: string[];
  parent?: string | null;
  holder?: WorkHolder | null;
  /**
   * What is half done.
   */
  note?: string | null;
  /**
   * The last line of its worklog.
   */
  lastLog?: string | null;
}
/**
 * Who has a work session.
 */
export interface WorkHolder {
  name: string;
  agent?: string | null;
  /**
   * The key of the agent's session.
   */
  session?: string | null;
  host: string;
  /**
   * RFC 3339.
   */
  since: string;
  until: string;
  /**
   * Its lease has lapsed.
   */
  stale: boolean;
  /**
   * The work is done and waits to be merged by others; until then its lease does not lapse.
   */
  waits: boolean;
  attempt: number;
}
/**
 * `GET /work/{slug}`.
 */
export interface WorkSession {
  slug: string;
  state: WorkState;
  title: string;
  /**
   * It can be claimed now.
   */
  ready: boolean;
  /**
   * What it depends on and is not completed.
   */
  waitsFor?: string[];
  labels?: string[];
  parent?: string | null;
  holder?: WorkHolder | null;
  /**
   * What is half done.
   */
  note?: string | null;
  /**
   * The last line of its worklog.
   */
  lastLog?: string | null;
  /**
   * SESSION.md.
   */
  plan: string;
  criteria: WorkCriterion[];
  worklog?: string | null;
  branch?: string | null;
  /**
   * Keys of the agents' sessions that worked on it, newest first.
   */
  sessions: string[];
  /**
   * Who had it, newest first.
   */
  history: WorkPast[];
}
export interface WorkCriterion {
  text: string;
  done: boolean;
}
/**
 * One record of who had it.
 */
export interface WorkPast {
  /**
   * RFC 3339.
   */
  at: string;
  /**
   * `active`, `landing`, `released`, `completed` or `abandoned`.
   */
  phase: string;
  name: string;
  agent?: string | null;
  reason?: string | null;
}
