//! Context: finding an earlier session, and reading it as a transcript.

mod finding;
mod foreign;
mod reader;

use schemars::JsonSchema;
use serde::Serialize;
use sess_core::{
    MessageId, SessionKey, Source, Timestamp,
    identity::{Evidence, SESS_SESSION},
    policy::{self, Standing},
    redact::redact,
    session::Session,
    transcript::{self, Heading, Tools},
};
use sess_store::Store;

pub(crate) use self::finding::{
    Children, Found, first_row, is_among, is_archived, is_visible, join, keep_named,
};
pub(crate) use self::foreign::message_ref;
use self::reader::Reader;
use crate::{App, Caller, Error, Result};

/// How many sessions are listed when nobody says, and at most.
const LIST_LEN: usize = 20;
const LIST_LEN_MAX: usize = 100;
/// Totals are exact up to here.
const TOTAL_MAX: u64 = 1_000;

/// Which sessions to list.
#[derive(Clone, Debug, Default)]
pub struct ListSessions {
    pub limit: Option<i64>,
    pub scope: Scope,
    pub source: Option<Source>,
    /// Only titles that contain this.
    pub query: Option<String>,
    pub include_archived: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Only sessions of the repository that the caller works in.
    Repo,
    #[default]
    All,
}

/// A session in a list. The order of the fields is part of the contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Listed {
    /// Give this to `read_session`.
    pub id: String,
    /// May be empty.
    pub title: String,
    /// RFC 3339, UTC.
    pub created_at: String,
    /// The session's own messages, without system messages.
    pub num_messages: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[serde(default)]
    pub starred: bool,
    /// When something last happened in it; RFC 3339, UTC.
    pub updated_at: String,
    /// Where it comes from: `native`, or the agent whose own session it is.
    pub source: String,
    pub agent: String,
    /// The directory it ran in, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(default)]
    #[schemars(with = "String")]
    pub cwd: Option<String>,
    /// There are more messages than that: the session is too long to be counted for a list.
    #[serde(rename = "numMessagesIsMinimum", skip_serializing_if = "std::ops::Not::not")]
    #[serde(default)]
    pub num_messages_is_minimum: bool,
    /// How many records of another agent's file could not be read, where it was read to count them.
    #[serde(skip_serializing_if = "is_none", default)]
    pub damaged: u64,
    /// It is a sub-agent's, and the session that it was a part of is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_sub_agent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Listing {
    pub sessions: Vec<Listed>,
    /// How many there are in all; exact up to 1,000.
    pub total: u64,
    #[serde(rename = "totalIsMinimum", skip_serializing_if = "std::ops::Not::not")]
    #[serde(default)]
    pub total_is_minimum: bool,
}

/// Which session to read, and how much of it.
#[derive(Clone, Debug, Default)]
pub struct ReadSession {
    pub session_id: String,
    /// A message id or sequence number to read around.
    pub around: Option<String>,
    pub without_tools: bool,
    pub max_bytes: Option<i64>,
    pub redaction: Redaction,
    /// Read the snapshot of another agent's session, though its agent has it.
    pub from_snapshot: bool,
}

/// Whether secrets are masked. Only the owner at a terminal may ask for less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redaction {
    #[default]
    Masked,
    None,
}

/// A session, rendered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Transcript {
    pub session_id: String,
    pub title: String,
    pub num_messages: u64,
    /// How many blocks of the transcript are shown.
    pub shown: u64,
    /// How many older ones were left out to fit.
    pub omitted: u64,
    /// How many newer ones were left out to fit, when reading from the middle.
    pub omitted_later: u64,
    /// How many secrets were masked.
    pub redacted: u64,
    /// How many records of another agent's file could not be read.
    #[serde(skip_serializing_if = "is_none", default)]
    pub damaged: u64,
    /// How many messages were taken back in that session, and are not shown.
    #[serde(skip_serializing_if = "is_none", default)]
    pub taken_back: u64,
    /// It goes on where another file ended, and that file is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub lacks_beginning: bool,
    /// The transcript, as Markdown.
    pub transcript: String,
}

impl Transcript {
    fn of(session: &Session, title: String, window: transcript::Window, redacted: u64) -> Self {
        Self {
            session_id: session.id.to_string(),
            num_messages: session.num_messages,
            shown: window.shown,
            omitted: window.earlier,
            omitted_later: window.later,
            redacted,
            damaged: 0,
            taken_back: 0,
            lacks_beginning: false,
            transcript: window.text,
            title,
        }
    }
}

fn heading<'a>(session: &'a Session, title: &'a str) -> Heading<'a> {
    Heading {
        id: session.id.as_str(),
        title,
        created_at: Some(session.created_at).filter(|at| *at != Timestamp::default()),
        num_messages: session.num_messages,
    }
}

/// Returns how many bytes a transcript may have.
fn budget(asked: Option<i64>) -> usize {
    match asked {
        None => transcript::BUDGET_BYTES,
        Some(bytes) => usize::try_from(bytes)
            .unwrap_or(0)
            .clamp(transcript::BUDGET_BYTES_MIN, transcript::BUDGET_BYTES_MAX),
    }
}

impl App {
    /// Lists earlier sessions, most recent activity first.
    pub async fn list_sessions(&self, caller: &Caller, ask: &ListSessions) -> Result<Listing> {
        let limit = match ask.limit {
            Some(limit @ 1..) => usize::try_from(limit).unwrap_or(LIST_LEN_MAX).min(LIST_LEN_MAX),
            Some(_) | None => LIST_LEN,
        };
        let page = self.page(caller, ask, limit, TOTAL_MAX + 1).await?;
        let mut sessions = Vec::with_capacity(page.sessions.len());
        for found in &page.sessions {
            sessions.push(self.listed(found).await?);
        }
        Ok(Listing { sessions, total: page.total.min(TOTAL_MAX), total_is_minimum: page.total > TOTAL_MAX })
    }

    /// Renders an earlier session within a budget, the newest part first.
    pub async fn read_session(&self, caller: &Caller, ask: &ReadSession) -> Result<Transcript> {
        let budget = budget(ask.max_bytes);
        let tools = if ask.without_tools { Tools::Hidden } else { Tools::Shown };
        let around = ask.around.as_deref().map(str::trim).filter(|around| !around.is_empty());
        let session = match self.find(caller, &ask.session_id).await? {
            Found::Stored(session) => session,
            // Its mail is stored, and found by ids that its file does not have.
            Found::Foreign(_, Some(stored)) if around.is_some_and(|id| id.parse::<MessageId>().is_ok()) => {
                stored
            }
            Found::Foreign(foreign, stored) => {
                let asked = foreign::Asked {
                    title: stored.map(|stored| stored.title).filter(|title| !title.is_empty()),
                    part: around
                        .map_or(foreign::Part::Newest, |around| foreign::Part::Around(around.to_owned())),
                    tools,
                    redaction: allowed(caller, ask.redaction),
                    budget,
                };
                let foreign = if ask.from_snapshot { self.snapshot_of(&foreign)? } else { *foreign };
                return self.read_foreign(foreign, asked).await;
            }
        };
        if ask.from_snapshot {
            return Err(Error::Invalid("only sessions of other agents have snapshots".to_owned()));
        }
        let store = self.store()?;
        let scope = self.visible(caller).await?;
        let redaction = allowed(caller, ask.redaction);
        let reader = Reader { store: &*store, tools, redaction, scope };
        let (title, redacted_title) = masked(&session.title, redaction);
        let heading = heading(&session, &title);
        let (window, redacted) = match around {
            None => reader.newest(&session, &heading, budget).await?,
            Some(around) => {
                let seq = find_message(&*store, &session, around).await?;
                reader.around(&session, &heading, seq, budget).await?
            }
        };
        Ok(Transcript::of(&session, title.clone(), window, redacted + redacted_title))
    }

    /// Renders what stands in the caller's own session before its last compaction: the part that
    /// its model does not see any more.
    pub async fn read_compacted(&self, caller: &Caller, max_bytes: Option<i64>) -> Result<Transcript> {
        self.home()?;
        if caller.standing == Standing::Owner {
            return Err(Error::Invalid("only an agent has a current session; use read_session".to_owned()));
        }
        let evidence = &caller.identity.evidence;
        // What a parent left in the environment is right for whatever is no host with sessions of its own.
        let is_inherited = *evidence == Evidence::Env(SESS_SESSION) && caller.host.is_none();
        let compacted = || foreign::Asked {
            title: None,
            part: foreign::Part::Compacted,
            tools: Tools::Shown,
            redaction: Redaction::Masked,
            budget: budget(max_bytes),
        };
        if !evidence.names_caller() && !is_inherited && caller.run.is_none() {
            if let Some(foreign) = self.taken_for_own(caller).await? {
                return self.read_foreign(foreign, compacted()).await;
            }
            return Err(Error::NotFound(
                "which session calls is not known, so what was compacted in it cannot be told; have this server \
                 started as `sess mcp --session <source>:<id>`, or find an earlier session with list_sessions"
                    .to_owned(),
            ));
        }
        let own = self.named_session(caller).await?;
        let kept = self.look_at_agents(Some(own.source)).await?.sessions;
        if let Some(foreign) = kept.into_iter().find(|foreign| foreign.id == own.id) {
            return self.read_foreign(foreign, compacted()).await;
        }
        let not_compacted =
            || Error::NotFound("this session was not compacted: all of it is in front of you".to_owned());
        let session = self.stored_session(&own.id).await?.ok_or_else(|| {
            Error::NotFound(format!(
                "nothing of this session ({}:{}) is kept where it is looked for, so what was compacted in it \
                 cannot be told",
                own.source, own.id
            ))
        })?;
        let store = self.store()?;
        let scope = self.visible(caller).await?;
        let reader = Reader { store: &*store, tools: Tools::Shown, redaction: Redaction::Masked, scope };
        let title = plain(&session.title);
        let heading = heading(&session, &title);
        let compacted = reader.compacted(&session, &heading, budget(max_bytes)).await?;
        let (window, redacted) = compacted.ok_or_else(not_compacted)?;
        Ok(Transcript::of(&session, title.clone(), window, redacted))
    }

    pub(crate) async fn is_inside(&self, scope: &policy::Scope, session: &Session) -> Result<bool> {
        let mut above: Vec<SessionKey> = Vec::new();
        if matches!(scope, policy::Scope::Tree(_)) {
            above = self.ancestors(session).await?.into_iter().map(|session| session.key).collect();
        }
        Ok(scope.admits(session, &above))
    }
}

pub(crate) fn listed(session: &Session) -> Listed {
    Listed {
        id: session.id.to_string(),
        title: plain(&session.title),
        created_at: session.created_at.to_string(),
        num_messages: session.num_messages,
        starred: session.starred,
        updated_at: session.updated_at.to_string(),
        source: session.source.to_string(),
        agent: session.agent.to_string(),
        cwd: session.cwd.as_deref().map(plain),
        num_messages_is_minimum: false,
        damaged: 0,
        is_sub_agent: false,
    }
}

/// Tells whether a count is not worth a field.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Does what reads files where it holds nobody up.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::Unavailable("reading other agents' sessions broke off; try again".to_owned()))
}

/// Returns how much a caller gets to see: only the owner may ask for unmasked text.
pub(crate) fn allowed(caller: &Caller, asked: Redaction) -> Redaction {
    match caller.standing {
        Standing::Owner => asked,
        Standing::Agent => Redaction::Masked,
    }
}

pub(crate) fn masked(text: &str, redaction: Redaction) -> (String, u64) {
    match redaction {
        Redaction::None => (text.to_owned(), 0),
        Redaction::Masked => {
            let (text, count) = redact(text);
            (text.into_owned(), count)
        }
    }
}

/// Masks what is shown to everybody alike: also what people and agents call things may hold a secret.
pub(crate) fn plain(text: &str) -> String {
    masked(text, Redaction::Masked).0
}

async fn find_message(store: &dyn Store, session: &Session, around: &str) -> Result<u64> {
    let by_seq = around.parse::<u64>().ok().filter(|seq| (1..=session.last_seq).contains(seq));
    let found = match (by_seq, around.parse::<MessageId>()) {
        (Some(seq), _) => Some(seq),
        (None, Ok(id)) => store.find_message(&session.id, &id).await?,
        (None, Err(_)) => None,
    };
    found.ok_or_else(|| {
        Error::NotFound(format!("message \"{around}\" not found in session \"{}\"", session.id))
    })
}
