//! Where sessions, messages, plans, runs, posts and events live.
//!
//! One narrow trait a noun; [`Store`] is their sum, and [`open`] the only way to
//! one. Nothing above the traits knows which backend keeps the promises:
//!
//! - An acknowledged write survives `kill -9` and power loss. What was not
//!   acknowledged is wholly there or wholly not.
//! - A transcript only grows; `seq` is dense from 1; every reader sees one order.
//! - A run is never lost, and never executed by two nodes at a time.
//! - A follower with a [`Position`] sees everything after it exactly once.
//! - Damage costs the damaged row, and is named.
//! - A full disk or a read-only directory is an error that says so; what was
//!   there stays, and work goes on when the cause is gone.
//!
//! What a plan or a reference *means* is decided above, in `sess-core`.

mod boot_time;
mod error;
mod plan_files;
mod sqlite;
mod token_file;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use sess_core::{
    AgentId, MessageId, RunId, SessionId, SessionKey, Source, Timestamp,
    key::SessionKind,
    message::{Body, Provenance, Shape, Usage},
    plan,
    run::{BootTime, Errand, Lineage, Outcome, Run, RunState},
    session::{Address, Channel, NewSession, Sending, Session, ThinkingLevel, VerboseLevel},
};
use tokio::sync::watch;

pub use boot_time::{boot_time, is_alive, this_process};
pub use error::{Error, Full, Result};
pub use plan_files::{FileError, LockedDir, PlaceError, PlanFiles, StagedPlan};
pub use sess_core::run::Process;
pub use sqlite::{Health, Salvaged, health, salvage};
pub use token_file::owner_token;

/// Opens the store in `dir`, and makes it there when there is none.
pub fn open(dir: &Path) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(sqlite::Sqlite::open(dir)?))
}

/// Returns the version of the SQLite that is built in.
pub fn sqlite_version() -> String {
    rusqlite::version().to_owned()
}

/// Everything that nodes share.
pub trait Store:
    Sessions + Messages + Plans + Runs + Seats + Outbox + Feed + Search + Scrub + Tokens
{
}

#[async_trait]
pub trait Sessions: Send + Sync {
    /// Makes the session, unless its id exists already; returns it as it stands.
    async fn ensure_session(&self, new: NewSession) -> Result<Session>;

    async fn session(&self, id: &SessionId) -> Result<Option<Session>>;

    /// Returns the transcript that `key` leads to now.
    async fn session_by_key(&self, key: &SessionKey) -> Result<Option<Session>>;

    /// Returns the session that came after this one under the same key; a deleted one has none, and is none.
    async fn session_after(&self, id: &SessionId) -> Result<Option<SessionId>>;

    /// Returns up to `limit` sessions whose id starts with `prefix`.
    async fn sessions_by_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<Session>>;

    /// Returns those of these ids that are stored, deleted ones left out.
    async fn known_sessions(&self, ids: &[SessionId]) -> Result<Vec<Session>>;

    /// Tells whether nothing of another agent's session is kept here but what the owner said about it: no message, no
    /// plan and no run.
    async fn is_bare(&self, id: &SessionId) -> Result<bool>;

    /// Returns the sessions that `parent` spawned itself, oldest first.
    async fn children(&self, parent: &SessionKey) -> Result<Vec<Session>>;

    /// Returns `limit` sessions from the `offset`-th on: most recent activity
    /// first, ties by creation (newest first), then by id.
    async fn list_sessions(&self, filter: &SessionFilter, offset: u64, limit: usize) -> Result<Vec<Session>>;

    /// Counts up to `most`; a larger number comes back as `most`.
    async fn count_sessions(&self, filter: &SessionFilter, most: u64) -> Result<u64>;

    async fn patch_session(&self, id: &SessionId, patch: SessionPatch, at: Timestamp) -> Result<Session> {
        self.patch_session_as_one(id, vec![patch], at).await
    }

    /// Makes several changes in one commit, each told on its own.
    async fn patch_session_as_one(
        &self,
        id: &SessionId,
        patches: Vec<SessionPatch>,
        at: Timestamp,
    ) -> Result<Session>;

    /// Starts a session over: `new` is what its key leads to from now on, and the transcript of `id` stays.
    /// [`Error::Conflict`] while a run of it is open, or when the key leads elsewhere already.
    async fn reset_session(&self, id: &SessionId, new: NewSession) -> Result<Session>;

    /// Returns every transcript that a key has led to, oldest first.
    async fn transcripts_of(&self, key: &SessionKey) -> Result<Vec<Session>>;

    /// Returns up to `limit` sessions that `reach` admits, sub-sessions included, each key's
    /// newest transcript alone: most recent activity first, ties by key.
    async fn list_within(&self, reach: &Reach, offset: u64, limit: usize) -> Result<Vec<Session>>;

    /// Counts up to `most` of them; a larger number comes back as `most`.
    async fn count_within(&self, reach: &Reach, most: u64) -> Result<u64>;

    /// Returns every agent that a session's key names.
    async fn agents(&self) -> Result<Vec<AgentId>>;

    /// Takes a session's messages and plan away for good, and records that it did. Its runs and
    /// their outcomes stay. [`Error::Conflict`] while a run of it is open or something follows one.
    async fn delete_session(&self, id: &SessionId, by: &str, at: Timestamp) -> Result<()>;

    /// Archives spawned sessions of which nothing has been open since `before` and in which nobody
    /// sits; returns them.
    async fn archive_spawned(&self, before: Timestamp, at: Timestamp) -> Result<Vec<Session>>;
}

#[async_trait]
pub trait Messages: Send + Sync {
    /// Appends the messages as one: all of them are durable when this returns, or none is there.
    ///
    /// With a key, the same request acts once: a retry gets the first answer.
    async fn append(
        &self,
        session: &SessionId,
        messages: Vec<NewMessage>,
        key: Option<RequestKey>,
    ) -> Result<Appended>;

    /// Brings in a whole session from elsewhere, as one.
    ///
    /// A session that is here already gets the messages it lacks, when those it
    /// has are the same; otherwise [`Error::Conflict`].
    async fn import(&self, session: ImportedSession) -> Result<Imported>;

    /// Returns up to `limit` messages of the span, oldest first; fewer when they are large.
    /// An empty page is the end.
    async fn messages(&self, session: &SessionId, span: Span, limit: usize) -> Result<MessagePage>;

    /// Returns the sequence number of a message, by its id.
    async fn find_message(&self, session: &SessionId, id: &MessageId) -> Result<Option<u64>>;

    /// Counts the messages of the span that have one of `mask`'s bits in their [`Shape`].
    async fn count_messages(&self, session: &SessionId, span: Span, mask: u8) -> Result<u64>;
}

#[async_trait]
pub trait Plans: Send + Sync {
    /// Stores a new revision, state `draft`; the session is made when it is new.
    ///
    /// The revision is not told to followers before [`Plans::announce_plan`].
    async fn write_plan(&self, session: NewSession, write: PlanWrite) -> Result<PlanWritten>;

    /// Takes back the newest revision, which was never announced.
    async fn withdraw_plan(&self, session: &SessionId, revision: u64) -> Result<()>;

    /// Tells followers of every revision up to `revision`, each once.
    async fn announce_plan(&self, session: &SessionId, revision: u64, path: &str) -> Result<()>;

    /// Returns the plan's newest revision and state.
    async fn plan(&self, session: &SessionId) -> Result<Option<Plan>>;

    /// Returns one revision with its content.
    async fn plan_revision(&self, session: &SessionId, revision: u64) -> Result<Option<PlanRevision>>;

    /// Returns up to `limit` revisions without their contents, oldest first.
    async fn plan_log(&self, session: &SessionId, limit: usize) -> Result<Vec<PlanRevision>>;

    /// Returns the newest change of the plan's state.
    async fn plan_change(&self, session: &SessionId) -> Result<Option<FeedItem>>;

    /// Changes the state, if revision and state are still the ones the decision was made on.
    async fn change_plan_state(&self, session: &SessionId, change: PlanChange) -> Result<()>;

    /// Records that the sweep took the plan's file away: it counts as not written.
    async fn mark_plan_swept(&self, session: &SessionId, revision: u64) -> Result<()>;
}

/// Durable runs.
///
/// A run is never lost and never executed by two nodes at a time: whoever executes
/// one holds its lease, and everything a run writes is fenced by it. A session
/// executes one run at a time, in the order they were queued.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Queues a run with its messages (the request); the session is made when it is new.
    /// With a key, the same request is the same run. [`Error::Full`] when one of its caps is reached.
    async fn queue_run(&self, run: NewRun) -> Result<Run>;

    /// As [`Runs::queue_run`], and takes the seat in its session, unless another node has it. A new run
    /// that nothing is ahead of is leased in the same commit, as [`Runs::lease_run`] would.
    async fn queue_run_seated(&self, run: NewRun, seat: Seat, lease: Lease) -> Result<QueuedHere>;

    /// Takes the oldest queued run of `session`, if nothing runs there, and appends its
    /// request to the transcript; `None` otherwise.
    ///
    /// Only a run of one of `agents` is taken: the oldest one of another agent is waited for.
    async fn lease_run(
        &self,
        session: &SessionId,
        agents: &[AgentId],
        lease: Lease,
        at: Timestamp,
    ) -> Result<Option<Run>>;

    /// Returns up to `limit` sessions in which [`Runs::lease_run`] would find something for
    /// `agents` on `node`, the longest waiting first; with `root`, only for runs that led from it.
    async fn due_sessions(
        &self,
        agents: &[AgentId],
        node: &str,
        root: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<SessionId>>;

    /// Records that the model is asked: from now on the run is not begun anew when its node dies.
    async fn begin_run(&self, run: &RunId, lease: &Lease) -> Result<()>;

    /// Prolongs a lease; [`Error::Conflict`] when it is no longer held. Tells whether
    /// somebody asked the run to stop.
    async fn renew_run(&self, run: &RunId, lease: &Lease) -> Result<RunRenewed>;

    /// Appends to the run's session under its lease; [`Error::Conflict`] when it is no longer held.
    async fn append_in_run(&self, run: &RunId, lease: &Lease, messages: Vec<NewMessage>) -> Result<Appended>;

    /// Makes `agent` the active one in the run's session, under its lease.
    async fn hand_off_in_run(&self, run: &RunId, lease: &Lease, agent: AgentId, at: Timestamp) -> Result<()>;

    /// Ends a run: its last messages, its outcome and the event about it, as one.
    async fn end_run(
        &self,
        run: &RunId,
        lease: &Lease,
        messages: Vec<NewMessage>,
        outcome: Outcome,
        at: Timestamp,
    ) -> Result<()> {
        let ending = Ending { messages, outcome, at, follow_up: None, stands_up: false };
        self.end_run_with(run, lease, ending).await?;
        Ok(())
    }

    /// As [`Runs::end_run`], with what follows in the same transaction; tells whether that is settled.
    async fn end_run_with(&self, run: &RunId, lease: &Lease, ending: Ending) -> Result<bool>;

    /// Settles every run whose lease has lapsed, and returns them: one that had begun ends as
    /// `aborted`, another is queued again, in its old place.
    async fn settle_lapsed_runs(&self, now: &BootTime, at: Timestamp) -> Result<Vec<Run>>;

    /// Asks a run to stop: a queued one ends at once, a running one by its node.
    async fn cancel_run(&self, run: &RunId, at: Timestamp) -> Result<Run>;

    async fn run(&self, run: &RunId) -> Result<Option<Run>>;

    /// Returns up to `limit` runs whose id starts with `prefix`.
    async fn runs_by_prefix(&self, prefix: &str, limit: usize) -> Result<Vec<Run>>;

    /// Returns up to `limit` runs, newest first; of one session when it is given.
    async fn runs(&self, session: Option<&SessionId>, limit: usize) -> Result<Vec<Run>>;

    /// Counts the sessions below `parent` with a run that has not ended, as [`Cap::Children`] does.
    async fn live_children(&self, parent: &SessionKey) -> Result<u32>;

    /// Returns up to `limit` runs that `root` led to, itself included, oldest first.
    async fn runs_below(&self, root: &RunId, limit: usize) -> Result<Vec<Run>>;

    /// Counts the runs that `root` led to, itself included.
    async fn count_below(&self, root: &RunId) -> Result<u64>;

    /// Returns up to `limit` ended runs, oldest first, whose follow-up is not settled.
    async fn unsettled_runs(&self, limit: usize) -> Result<Vec<Run>>;

    /// Commits what follows an ended run, as one and once; `false` when another node was first.
    ///
    /// Caps are not asked: what follows was allowed when it began.
    async fn settle_run(&self, run: &RunId, steps: Vec<Step>, at: Timestamp) -> Result<bool>;

    /// Records that the sender of a message waits no longer, and returns the run: when it has
    /// ended, that is the answer after all.
    async fn stop_waiting(&self, run: &RunId) -> Result<Run>;

    /// Hands over what waits in the inbox of a session that we do not run, oldest first, and
    /// appends each message to its transcript the first time.
    async fn open_inbox(&self, session: &SessionId, limit: usize, at: Timestamp) -> Result<Vec<InboxItem>>;

    /// Ends a run of an inbox with its reply; [`Error::Conflict`] when it has ended.
    async fn reply_to(
        &self,
        run: &RunId,
        session: &SessionId,
        reply: NewMessage,
        at: Timestamp,
    ) -> Result<Run>;

    /// Tells whether anything that `root` led to, itself included, is open or unsettled, and can come
    /// to its end with these agents: what waits in an inbox, or for an agent of nobody, cannot.
    async fn is_tree_open(&self, root: &RunId, agents: &[AgentId]) -> Result<bool>;

    /// Returns what goes on in each of these sessions.
    async fn glances(&self, sessions: &[SessionId]) -> Result<Vec<Glance>>;

    /// Returns when the lease of the run that executes in `session` ends.
    async fn running_until(&self, session: &SessionId) -> Result<Option<BootTime>>;
}

/// Who has a session open in front of a person: its runs are executed there, and nowhere else.
#[async_trait]
pub trait Seats: Send + Sync {
    /// Takes the seat, or keeps it for longer; [`Error::Conflict`] while another node has it.
    async fn sit(&self, session: &SessionId, seat: Seat) -> Result<()>;

    /// Gives the seat up, if this node has it.
    async fn stand_up(&self, session: &SessionId, node: &str) -> Result<()>;

    /// Returns the seat that is taken now.
    async fn seat(&self, session: &SessionId) -> Result<Option<Seat>>;
}

/// Posts that wait for their channel. Each is tried until it was delivered or its tries are over;
/// one may be delivered twice when a node dies right after it posted.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Takes the oldest post that is due on one of `channels`, under a lease; `None` when there is none.
    async fn take_post(&self, channels: &[Channel], lease: Lease, at: Timestamp) -> Result<Option<Post>>;

    /// Records what came of a try. `retry_at` of a failed one says when to try again; `None` is the end.
    async fn end_post(&self, post: u64, lease: &Lease, tried: PostTried, at: Timestamp) -> Result<()>;

    /// Returns up to `limit` posts of a session (of all, when not given), newest first.
    async fn posts(&self, session: Option<&SessionId>, limit: usize) -> Result<Vec<Post>>;
}

#[async_trait]
pub trait Feed: Send + Sync {
    /// Returns up to `limit` items after `after`, in the order they were committed; fewer
    /// when they are large. No items is the end.
    async fn feed(&self, after: Position, limit: usize) -> Result<Vec<FeedItem>>;

    /// Returns the position of the newest item.
    async fn head(&self) -> Result<Position>;

    /// Wakes whenever something may have been committed, by any process.
    fn changes(&self) -> watch::Receiver<u64>;
}

#[async_trait]
pub trait Search: Send + Sync {
    /// Returns up to `limit` messages that match, newest first, older than `before`.
    async fn search(&self, query: &SearchQuery, before: Option<Position>, limit: usize) -> Result<Vec<Hit>>;

    /// Brings search index and mirror up to date; `told` hears how many of how many are done.
    async fn catch_up(&self, told: &(dyn Fn(u64, u64) + Send + Sync)) -> Result<()>;
}

/// Masks the secrets in a JSON value, and tells how many there were.
pub type Mask = fn(&mut serde_json::Value) -> u64;

/// Whether secrets are looked for or taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubbing {
    Count,
    Rewrite,
}

/// Taking secrets out of what is stored: the one change of what was written, and the owner's.
#[async_trait]
pub trait Scrub: Send + Sync {
    /// Returns up to `limit` sessions of any kind, deleted ones too, in the order of their ids.
    async fn sessions_after(&self, after: Option<&SessionId>, limit: usize) -> Result<Vec<SessionId>>;

    /// Masks every stored text of a session; returns how many texts have something to mask.
    async fn scrub(&self, session: &SessionId, mask: Mask, how: Scrubbing, at: Timestamp) -> Result<u64>;

    /// Empties the log of what was there before, and lets search index and mirrors be made again.
    /// Tells whether the log is empty: while somebody reads, what is in it stays.
    async fn forget_scrubbed(&self) -> Result<bool>;
}

/// Tokens that let somebody in. Only their hashes are kept.
#[async_trait]
pub trait Tokens: Send + Sync {
    /// Adds a token. Codes and pages that expired before it was made are forgotten: each visit leaves one.
    async fn add_token(&self, token: TokenRecord) -> Result<()>;

    /// Returns the token with this hash, whether it still counts or not.
    async fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRecord>>;

    /// As [`Self::token_by_hash`], by its id.
    async fn token(&self, id: &str) -> Result<Option<TokenRecord>>;

    /// Returns tokens, newest first; codes of one-time links are not among them.
    async fn tokens(&self, limit: usize) -> Result<Vec<TokenRecord>>;

    /// Returns the ids of all tokens that count at this time.
    async fn counting_tokens(&self, at: Timestamp) -> Result<Vec<String>>;

    /// Revokes a token; `None` when there is none with this id.
    async fn revoke_token(&self, id: &str, at: Timestamp) -> Result<Option<TokenRecord>>;

    /// Uses up a login code and adds what it is exchanged for, in one; tells whether it counted.
    async fn exchange_login(&self, code_hash: &str, token: TokenRecord, at: Timestamp) -> Result<bool>;
}

/// A token as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: String,
    /// SHA-256, in hexadecimal.
    pub hash: String,
    pub kind: TokenKind,
    /// The names of its rights, with commas.
    pub scopes: String,
    /// Only sessions of this agent.
    pub agent: Option<AgentId>,
    /// It stands for this session.
    pub session: Option<SessionId>,
    pub label: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

impl TokenRecord {
    /// Tells whether it lets anybody in at this time.
    pub fn counts(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// For a program.
    Bearer,
    /// What a page that is logged in has.
    Cookie,
    /// The code of a one-time link.
    Login,
    /// For an MCP host that can be given nothing but an address.
    Address,
}

impl TokenKind {
    pub const ALL: [Self; 4] = [Self::Bearer, Self::Cookie, Self::Login, Self::Address];
}

/// A run before it is queued.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub id: RunId,
    pub session: NewSession,
    pub agent: AgentId,
    pub at: Timestamp,
    /// The request: usually one message of the person's.
    pub messages: Vec<NewMessage>,
    pub key: Option<RequestKey>,
    pub errand: Errand,
    pub lineage: Lineage,
    /// Checked in the same transaction.
    pub caps: Vec<Cap>,
}

impl NewRun {
    /// Returns a run that nobody's run asked for, without limits.
    pub fn message(id: RunId, session: NewSession, agent: AgentId, at: Timestamp) -> Self {
        let lineage = Lineage::first(&id);
        let (messages, caps) = (Vec::new(), Vec::new());
        Self { id, session, agent, at, messages, key: None, errand: Errand::Message, lineage, caps }
    }
}

/// Something of which there may be only so many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cap {
    /// Runs that wait in the same session.
    Queue { most: u32 },
    /// Sessions below `parent` with a run that has not ended.
    Children { parent: SessionKey, most: u32 },
    /// Runs of the same root, ended or not.
    Tree { most: u32 },
}

/// What goes on in a session, at a glance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Glance {
    pub is_running: bool,
    /// Something waits, in its queue or in its inbox.
    pub is_queued: bool,
    /// A run of it was ever started.
    pub was_started: bool,
    /// How the newest of its ended runs did, and whether that was ever started.
    pub last_ended: Option<(RunState, bool)>,
    /// The model that spoke last, when that is among the last few messages.
    pub last_reply: Option<LastReply>,
}

/// Who spoke, and what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct LastReply {
    pub model: String,
    pub usage: Option<Usage>,
}

/// How a run ends.
#[derive(Clone, Debug)]
pub struct Ending {
    pub messages: Vec<NewMessage>,
    pub outcome: Outcome,
    pub at: Timestamp,
    /// What follows; left to [`Runs::settle_run`] when it is not known, or was decided on another errand
    /// than the run has by then.
    pub follow_up: Option<(Errand, Vec<Step>)>,
    /// The seat in its session is given up, if the holder of the lease has it.
    pub stands_up: bool,
}

/// What follows an ended run.
#[derive(Clone, Debug)]
pub enum Step {
    Queue(Box<NewRun>),
    Post {
        session: SessionId,
        address: Address,
        text: String,
    },
    /// As [`Sessions::delete_session`]; nothing happens when the session is gone. While it is busy,
    /// none of the steps is taken.
    Delete {
        session: SessionId,
        by: String,
    },
}

/// A message in the inbox of a session that we do not run.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxItem {
    pub run: Run,
    /// Its text.
    pub message: String,
    pub provenance: Option<Provenance>,
}

/// A session that is open in front of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    pub node: String,
    pub until: BootTime,
    pub process: Process,
}

/// A text for a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Post {
    pub id: u64,
    pub session: SessionId,
    /// The run whose words these are.
    pub run: RunId,
    pub address: Address,
    pub text: String,
    pub state: PostState,
    pub tries: u32,
    pub created_at: Timestamp,
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostState {
    Waiting,
    Delivered,
    /// Its tries are over.
    GivenUp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostTried {
    Delivered,
    Failed { error: String, retry_at: Option<Timestamp> },
}

/// Which sessions a viewer reaches, and which of them are asked for.
#[derive(Clone, Debug)]
pub struct Reach {
    pub circle: Circle,
    /// Only these kinds; all when empty.
    pub kinds: Vec<SessionKind>,
    /// Only sessions with activity since then.
    pub active_since: Option<Timestamp>,
    /// Only sessions of this agent.
    pub agent: Option<AgentId>,
    /// Only sessions whose title, name, label, key or directory contains this, in any case of ASCII letters.
    pub search: Option<String>,
    /// Only sessions that come from these; from all when empty.
    pub sources: Vec<Source>,
    /// Only sessions that ran in one of these directories or below it; in any when empty.
    pub dirs: Vec<String>,
    /// Archived ones as well.
    pub with_archived: bool,
    /// No bare ones (`Sessions::is_bare`).
    pub without_bare: bool,
    /// None of these.
    pub except: Vec<SessionId>,
}

impl Reach {
    /// Returns everything in a circle that is listed.
    pub fn all(circle: Circle) -> Self {
        Self {
            circle,
            kinds: Vec::new(),
            active_since: None,
            agent: None,
            search: None,
            sources: Vec::new(),
            dirs: Vec::new(),
            with_archived: false,
            without_bare: false,
            except: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Circle {
    Everything,
    /// One session alone.
    Own(SessionKey),
    /// A session and what it spawned, at any depth.
    Tree(SessionKey),
    /// That, and every session whose key names one of these agents; sessions without an agent when
    /// `agentless` says so.
    Agents {
        own: SessionKey,
        agents: Vec<AgentId>,
        agentless: bool,
    },
}

/// The right to execute one run, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Random, so that no two holders are ever the same.
    pub token: String,
    /// The node that holds it.
    pub node: String,
    pub until: BootTime,
}

/// A run that was queued by the node that has its session's seat.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedHere {
    pub run: Run,
    /// Whether the lease that came with it is held.
    pub is_leased: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRenewed {
    pub is_cancelled: bool,
}

/// Which sessions to list.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// Only sessions whose key names this agent.
    pub agent: Option<AgentId>,
    pub source: Option<Source>,
    /// Only titles that contain this, in any case.
    pub title: Option<String>,
    /// Only sessions that ran in one of these directories or below it; in any when empty.
    pub dirs: Vec<String>,
    pub archived: Archived,
    /// No bare ones (`Sessions::is_bare`).
    pub without_bare: bool,
    pub except: Vec<SessionId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Archived {
    #[default]
    Hidden,
    Included,
}

#[derive(Clone, Debug)]
pub enum SessionPatch {
    Title(String),
    Starred(bool),
    Archived(bool),
    /// `None` leaves it to the configuration's rules.
    SendPolicy(Option<Sending>),
    /// Where it was talked to last.
    Delivery(Address),
    /// `None` leaves it to the agent's own.
    Model(Option<String>),
    Thinking(Option<ThinkingLevel>),
    Verbose(Option<VerboseLevel>),
    DisplayName(Option<String>),
    Label(Option<String>),
}

/// A message before the store gives it its place.
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub id: MessageId,
    pub body: Body,
}

/// A caller's own name for a request, and the fingerprint of what it asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    pub key: String,
    pub fingerprint: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub first_seq: u64,
    pub last_seq: u64,
}

#[derive(Clone, Debug)]
pub struct ImportedSession {
    pub session: NewSession,
    pub starred: bool,
    pub messages: Vec<NewMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// How many messages were new.
    pub added: u64,
    pub total: u64,
    pub existed: bool,
}

/// A contiguous part of a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The newest ones.
    Last,
    /// The newest ones with a smaller sequence number.
    Before(u64),
    /// The oldest ones with a larger sequence number.
    After(u64),
}

#[derive(Clone, Debug, Default)]
pub struct MessagePage {
    pub messages: Vec<StoredMessage>,
    pub damaged: Vec<DamagedMessage>,
}

impl MessagePage {
    /// Returns the largest number on the page, damaged ones included; `None` when it is empty.
    pub fn newest_seq(&self) -> Option<u64> {
        let read = self.messages.iter().map(|message| message.seq);
        read.chain(self.damaged.iter().map(|message| message.seq)).max()
    }
}

/// A message as it is stored: its body is ready JSON, to be copied through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    pub position: Position,
    pub id: MessageId,
    pub seq: u64,
    pub shape: Shape,
    pub body: String,
}

impl StoredMessage {
    /// Returns the message as its one line of JSON.
    pub fn to_json(&self) -> String {
        sess_core::message::json_line(&self.id, self.seq, &self.body)
    }

    /// Parses the body; what the store wrote parses, unless a later version wrote it.
    pub fn parse(&self) -> Result<Body> {
        serde_json::from_str(&self.body)
            .map_err(|error| Error::Damaged(format!("message {} cannot be read: {error}", self.seq)))
    }
}

/// A message that is there but cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedMessage {
    pub seq: u64,
    pub reason: String,
}

#[derive(Clone, Debug)]
pub struct PlanWrite {
    pub content: String,
    pub agent: String,
    pub at: Timestamp,
    /// Refuse with [`Error::StaleRevision`] unless this is the newest revision.
    pub expect_revision: Option<u64>,
    pub key: Option<RequestKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanWritten {
    pub revision: u64,
    /// The request was known already, and nothing was written now.
    pub replayed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub revision: u64,
    pub state: plan::State,
    /// Followers were told of the revisions up to this one.
    pub announced: u64,
    pub swept: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRevision {
    pub revision: u64,
    pub agent: String,
    pub at: Timestamp,
    pub size_bytes: u64,
    /// Empty in a log.
    pub content: String,
}

#[derive(Clone, Debug)]
pub struct PlanChange {
    pub revision: u64,
    pub from: plan::State,
    pub to: plan::State,
    pub by: String,
    pub note: Option<String>,
    pub at: Timestamp,
}

/// A place in the order of everything committed to one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Something that was committed.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedItem {
    pub position: Position,
    pub session: SessionId,
    pub what: Happening,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    Message(StoredMessage),
    SessionCreated {
        at: Timestamp,
        key: SessionKey,
    },
    SessionChanged {
        at: Timestamp,
        change: String,
    },
    PlanUpdated {
        at: Timestamp,
        revision: u64,
        path: String,
        agent: String,
        content: String,
    },
    PlanState {
        at: Timestamp,
        revision: u64,
        state: plan::State,
        by: String,
        note: Option<String>,
    },
    /// A run was queued, started or ended.
    RunState {
        at: Timestamp,
        run: RunId,
        agent: AgentId,
        state: RunState,
        error: Option<String>,
    },
    /// A session's messages and plan were taken away for good.
    SessionDeleted {
        at: Timestamp,
        key: SessionKey,
        by: String,
        messages: u64,
    },
    /// An item that is there but cannot be read.
    Damaged {
        reason: String,
    },
}

/// Words to look for. All must be there, in any order.
#[derive(Clone, Debug, Default)]
pub struct SearchQuery {
    pub terms: Vec<Term>,
    pub agent: Option<AgentId>,
    pub source: Option<Source>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// One word, or several that must stand together.
    pub text: String,
    pub matching: Matching,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    Whole,
    Prefix,
    Absent,
}

#[derive(Clone, Debug)]
pub struct Hit {
    pub session: Session,
    pub message: StoredMessage,
}
