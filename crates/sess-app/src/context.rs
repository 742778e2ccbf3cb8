//! Context: finding an earlier session, and reading it as a transcript.

mod reader;

use schemars::JsonSchema;
use serde::Serialize;
use sess_core::{
    MessageId, SessionKey, Source, Timestamp,
    identity::Claim,
    policy::{self, Standing},
    redact::redact,
    reference::{PREFIX_LEN_MIN, Reference, ReferenceError},
    session::Session,
    transcript::{self, Heading, Tools},
};
use sess_store::{Archived, SessionFilter, Store};

use self::reader::Reader;
use crate::{App, Caller, Error, Result};

/// How many sessions are listed when nobody says, and at most.
const LIST_LEN: usize = 20;
const LIST_LEN_MAX: usize = 100;
/// Totals are exact up to here.
const TOTAL_MAX: u64 = 1_000;
/// How many sessions are looked at to tell whether a prefix is unique.
const PREFIX_MATCHES_MAX: usize = 1_000;

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
    /// The transcript, as Markdown.
    pub transcript: String,
}

impl App {
    /// Lists earlier sessions, most recent activity first.
    pub async fn list_sessions(&self, caller: &Caller, ask: &ListSessions) -> Result<Listing> {
        let Some(filter) = self.filter(caller, ask).await? else {
            return Ok(Listing { sessions: Vec::new(), total: 0, total_is_minimum: false });
        };
        let limit = match ask.limit {
            Some(limit @ 1..) => usize::try_from(limit).unwrap_or(LIST_LEN_MAX).min(LIST_LEN_MAX),
            Some(_) | None => LIST_LEN,
        };
        let store = self.store()?;
        let sessions = first_readable(&*store, &filter, limit).await?;
        let counted = store.count_sessions(&filter, TOTAL_MAX + 1).await?;
        Ok(Listing {
            sessions: sessions.iter().map(listed).collect(),
            total: counted.min(TOTAL_MAX),
            total_is_minimum: counted > TOTAL_MAX,
        })
    }

    /// Renders an earlier session within a budget, the newest part first.
    pub async fn read_session(&self, caller: &Caller, ask: &ReadSession) -> Result<Transcript> {
        let budget = match ask.max_bytes {
            None => transcript::BUDGET_BYTES,
            Some(bytes) => usize::try_from(bytes)
                .unwrap_or(0)
                .clamp(transcript::BUDGET_BYTES_MIN, transcript::BUDGET_BYTES_MAX),
        };
        let session = self.resolve(caller, &ask.session_id).await?;
        let store = self.store()?;
        let tools = if ask.without_tools { Tools::Hidden } else { Tools::Shown };
        let scope = self.visible(caller).await?;
        let redaction = allowed(caller, ask.redaction);
        let reader = Reader { store: &*store, tools, redaction, scope };
        let (title, redacted_title) = masked(&session.title, redaction);
        let heading = Heading {
            id: &session.id,
            title: &title,
            created_at: Some(session.created_at).filter(|at| *at != Timestamp::default()),
            num_messages: session.num_messages,
        };
        let around = ask.around.as_deref().map(str::trim).filter(|around| !around.is_empty());
        let (window, redacted) = match around {
            None => reader.newest(&session, &heading, budget).await?,
            Some(around) => {
                let seq = find_message(&*store, &session, around).await?;
                reader.around(&session, &heading, seq, budget).await?
            }
        };
        Ok(Transcript {
            session_id: session.id.to_string(),
            num_messages: session.num_messages,
            shown: window.shown,
            omitted: window.earlier,
            omitted_later: window.later,
            redacted: redacted + redacted_title,
            transcript: window.text,
            title,
        })
    }

    /// Finds the session that a reference means to this caller.
    ///
    /// What the caller may not see does not exist for it.
    pub async fn resolve(&self, caller: &Caller, text: &str) -> Result<Session> {
        self.home()?;
        let reference = Reference::parse(text)?;
        let text = text.trim();
        let not_found = || ReferenceError::NotFound(text.to_owned());
        if self.is_own(caller, &reference).await? {
            return Err(ReferenceError::Current.into());
        }
        if !self.has_store() {
            return Err(match reference {
                Reference::Relative(offset) => {
                    ReferenceError::OutOfRange { reference: text.to_owned(), offset, have: 0 }.into()
                }
                _ => not_found().into(),
            });
        }
        let store = self.store()?;
        let scope = self.visible(caller).await?;
        let found = match reference {
            Reference::Relative(offset) => return self.relative(caller, text, offset).await,
            Reference::Nothing => Ok(None),
            Reference::Key(key) => store.session_by_key(&key).await,
            Reference::Native(source, id) => {
                store.session(&id).await.map(|found| found.filter(|session| session.source == source))
            }
            Reference::Id(id) => match store.session(&id).await {
                Ok(None) => Ok(self.by_prefix(&scope, &*store, id.as_str()).await?),
                found => found,
            },
        };
        let session = match found {
            // Whose a damaged session is cannot be told, so only who sees all hears of it.
            Err(sess_store::Error::Damaged(_)) if scope != policy::Scope::All => None,
            found => found?,
        };
        let session = session.ok_or_else(not_found)?;
        let lineage = self.lineage(caller).await?;
        if lineage.iter().any(|own| own.id == session.id) {
            return Err(ReferenceError::Current.into());
        }
        if !self.is_inside(&scope, &session).await? {
            return Err(not_found().into());
        }
        Ok(session)
    }

    /// Tells whether a reference names the session that asks, be it stored yet or not.
    async fn is_own(&self, caller: &Caller, reference: &Reference) -> Result<bool> {
        if caller.standing == Standing::Owner {
            return Ok(false);
        }
        let own = match self.named_session(caller).await {
            Err(Error::Store(sess_store::Error::Damaged(_))) => return Ok(false),
            own => own?,
        };
        Ok(match reference {
            Reference::Id(id) => *id == own.id,
            Reference::Native(source, id) => *source == own.source && *id == own.id,
            Reference::Key(key) => *key == own.key,
            Reference::Relative(_) | Reference::Nothing => false,
        })
    }

    async fn relative(&self, caller: &Caller, text: &str, offset: u64) -> Result<Session> {
        let out_of_range = |have| ReferenceError::OutOfRange { reference: text.to_owned(), offset, have };
        let Some(filter) = self.filter(caller, &ListSessions::default()).await? else {
            return Err(out_of_range(0).into());
        };
        let store = self.store()?;
        let rows = store.count_sessions(&filter, u64::MAX).await?;
        if offset > rows {
            return Err(out_of_range(rows).into());
        }
        let place = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut newest = first_readable(&*store, &filter, place).await?;
        match newest.pop() {
            Some(session) if newest.len() + 1 == place => Ok(session),
            last => Err(out_of_range(newest.len() as u64 + u64::from(last.is_some())).into()),
        }
    }

    async fn by_prefix(
        &self,
        scope: &policy::Scope,
        store: &dyn Store,
        prefix: &str,
    ) -> Result<Option<Session>> {
        if prefix.len() < PREFIX_LEN_MIN {
            return Ok(None);
        }
        let mut matches = Vec::new();
        for session in store.sessions_by_prefix(prefix, PREFIX_MATCHES_MAX).await? {
            // Sessions out of sight do not make a prefix ambiguous.
            if self.is_inside(scope, &session).await? {
                matches.push(session);
            }
        }
        if matches.len() > 1 {
            let (reference, matches) = (prefix.to_owned(), matches.len() as u64);
            return Err(ReferenceError::Ambiguous { reference, matches }.into());
        }
        Ok(matches.pop())
    }

    pub(crate) async fn is_inside(&self, scope: &policy::Scope, session: &Session) -> Result<bool> {
        let mut above: Vec<SessionKey> = Vec::new();
        if matches!(scope, policy::Scope::Tree(_)) {
            above = self.ancestors(session).await?.into_iter().map(|session| session.key).collect();
        }
        Ok(scope.admits(session, &above))
    }

    /// Writes the question as a filter; `None` when the answer is empty without asking.
    async fn filter(&self, caller: &Caller, ask: &ListSessions) -> Result<Option<SessionFilter>> {
        self.home()?;
        // The owner is no session: what it names is only what it asks about.
        if let (Standing::Agent, Claim::Invalid(error)) = (caller.standing, &caller.identity.session) {
            return Err(error.clone().into());
        }
        if !self.has_store() {
            return Ok(None);
        }
        let agent = match self.visible(caller).await? {
            policy::Scope::All => None,
            policy::Scope::Agent(agent) => Some(agent),
            // Everything below the caller is a sub-session, and those are never listed.
            policy::Scope::Tree(_) | policy::Scope::Nothing => return Ok(None),
        };
        let cwd = match ask.scope {
            Scope::All => None,
            Scope::Repo => Some(
                self.settings().repo.clone().or_else(|| self.settings().cwd.clone()).ok_or_else(|| {
                    Error::Invalid("scope \"repo\" needs a working directory, and there is none".to_owned())
                })?,
            ),
        };
        Ok(Some(SessionFilter {
            agent,
            source: ask.source,
            title: ask.query.clone().filter(|query| !query.is_empty()),
            cwd,
            archived: if ask.include_archived { Archived::Included } else { Archived::Hidden },
            except: self.lineage(caller).await?.into_iter().map(|session| session.id).collect(),
        }))
    }
}

/// Returns the first `limit` sessions that can be read.
///
/// The store leaves out damaged ones after it has counted to its limit: what
/// they leave open is filled from further down, so that a list is as long as
/// it can be, and `-2` is the second of it.
async fn first_readable(store: &dyn Store, filter: &SessionFilter, limit: usize) -> Result<Vec<Session>> {
    let mut readable = store.list_sessions(filter, 0, limit).await?;
    let mut seen = limit as u64;
    while readable.len() < limit && seen < store.count_sessions(filter, u64::MAX).await? {
        let more = limit - readable.len();
        readable.extend(store.list_sessions(filter, seen, more).await?);
        seen += more as u64;
    }
    Ok(readable)
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
        cwd: session.cwd.clone(),
    }
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
