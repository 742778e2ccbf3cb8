//! Context: finding an earlier session, and reading it as a transcript.

use std::collections::{HashSet, VecDeque};

use schemars::JsonSchema;
use serde::Serialize;
use sess_core::{
    MessageId, SessionKey, Source, Timestamp,
    message::{Block, Body, Shape},
    policy,
    redact::redact,
    reference::{PREFIX_LEN_MIN, Reference, ReferenceError},
    session::Session,
    transcript::{self, Heading, Item, Tools},
};
use sess_store::{Archived, MessagePage, SessionFilter, Span, Store, StoredMessage};

use crate::{App, Caller, Error, Result};

/// How many sessions are listed when nobody says, and at most.
const LIST_LEN: usize = 20;
const LIST_LEN_MAX: usize = 100;
/// Totals are exact up to here.
const TOTAL_MAX: u64 = 1_000;
/// How many messages are loaded at a time while a transcript is put together.
const PAGE_LEN: usize = 64;
/// How deep sub-sessions are shown inside each other.
const DEPTH_MAX: usize = 8;

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
        let sessions = store.list_sessions(&filter, 0, limit).await?;
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
        let mut reader = Reader { store: &*store, tools, redaction: ask.redaction, redacted: 0 };
        let heading = Heading {
            id: &session.id,
            title: &session.title,
            created_at: Some(session.created_at).filter(|at| *at != Timestamp::default()),
            num_messages: session.num_messages,
        };
        let window = match &ask.around {
            None => {
                let total = reader.count(&session, &mut HashSet::new(), 0).await?;
                let mut items = VecDeque::new();
                let mut room = budget;
                reader.collect(&session, &mut items, &mut room, String::new(), &mut HashSet::new()).await?;
                transcript::newest(&heading, total, items.into_iter(), budget)
            }
            Some(around) => {
                let seq = find_message(&*store, &session, around).await?;
                reader.around(&session, &heading, seq, budget).await?
            }
        };
        let (title, redacted_title) = masked(&session.title, ask.redaction);
        Ok(Transcript {
            session_id: session.id.to_string(),
            title,
            num_messages: session.num_messages,
            shown: window.shown,
            omitted: window.earlier,
            omitted_later: window.later,
            redacted: reader.redacted + redacted_title,
            transcript: window.text,
        })
    }

    /// Finds the session that a reference means to this caller.
    ///
    /// What the caller may not see does not exist for it.
    pub async fn resolve(&self, caller: &Caller, text: &str) -> Result<Session> {
        let reference = Reference::parse(text)?;
        let text = text.trim();
        let not_found = || ReferenceError::NotFound(text.to_owned());
        if !self.has_store() {
            return Err(match reference {
                Reference::Relative(offset) => {
                    ReferenceError::OutOfRange { reference: text.to_owned(), offset, have: 0 }.into()
                }
                _ => not_found().into(),
            });
        }
        let store = self.store()?;
        let session = match reference {
            Reference::Relative(offset) => return self.relative(caller, text, offset).await,
            Reference::Nothing => None,
            Reference::Key(key) => store.session_by_key(&key).await?,
            Reference::Native(source, id) => {
                store.session(&id).await?.filter(|session| session.source == source)
            }
            Reference::Id(id) => match store.session(&id).await? {
                Some(session) => Some(session),
                None => self.by_prefix(caller, &*store, id.as_str()).await?,
            },
        };
        let session = session.ok_or_else(not_found)?;
        let lineage = self.lineage(caller).await?;
        if lineage.iter().any(|own| own.id == session.id) {
            return Err(ReferenceError::Current.into());
        }
        if !self.may_see(caller, &session).await? {
            return Err(not_found().into());
        }
        Ok(session)
    }

    async fn relative(&self, caller: &Caller, text: &str, offset: u64) -> Result<Session> {
        let out_of_range = |have| ReferenceError::OutOfRange { reference: text.to_owned(), offset, have };
        let Some(filter) = self.filter(caller, &ListSessions::default()).await? else {
            return Err(out_of_range(0).into());
        };
        let store = self.store()?;
        match store.list_sessions(&filter, offset - 1, 1).await?.pop() {
            Some(session) => Ok(session),
            None => Err(out_of_range(store.count_sessions(&filter, u64::MAX).await?).into()),
        }
    }

    async fn by_prefix(&self, caller: &Caller, store: &dyn Store, prefix: &str) -> Result<Option<Session>> {
        const MATCHES_MAX: usize = 100;
        if prefix.len() < PREFIX_LEN_MIN {
            return Ok(None);
        }
        let mut matches = Vec::new();
        for session in store.sessions_by_prefix(prefix, MATCHES_MAX).await? {
            // Sessions out of sight do not make a prefix ambiguous.
            if self.may_see(caller, &session).await? {
                matches.push(session);
            }
        }
        if matches.len() > 1 {
            let (reference, matches) = (prefix.to_owned(), matches.len() as u64);
            return Err(ReferenceError::Ambiguous { reference, matches }.into());
        }
        Ok(matches.pop())
    }

    pub(crate) async fn may_see(&self, caller: &Caller, session: &Session) -> Result<bool> {
        let scope = self.visible(caller).await?;
        let mut above: Vec<SessionKey> = Vec::new();
        if matches!(scope, policy::Scope::Tree(_)) {
            above = self.ancestors(session).await?.into_iter().map(|session| session.key).collect();
        }
        Ok(scope.admits(session, &above))
    }

    /// Writes the question as a filter; `None` when the answer is empty without asking.
    async fn filter(&self, caller: &Caller, ask: &ListSessions) -> Result<Option<SessionFilter>> {
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

pub(crate) fn listed(session: &Session) -> Listed {
    Listed {
        id: session.id.to_string(),
        title: masked(&session.title, Redaction::Masked).0,
        created_at: session.created_at.to_string(),
        num_messages: session.num_messages,
        starred: session.starred,
        updated_at: session.updated_at.to_string(),
        source: session.source.to_string(),
        agent: session.agent.to_string(),
        cwd: session.cwd.clone(),
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

async fn find_message(store: &dyn Store, session: &Session, around: &str) -> Result<u64> {
    let around = around.trim();
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

/// Turns stored messages into blocks, newest first.
struct Reader<'a> {
    store: &'a dyn Store,
    tools: Tools,
    redaction: Redaction,
    redacted: u64,
}

type Seen = HashSet<sess_core::SessionId>;

impl Reader<'_> {
    fn mask(&self) -> u8 {
        match self.tools {
            Tools::Shown => Shape::SPEAKS | Shape::TOOLS,
            Tools::Hidden => Shape::SPEAKS,
        }
    }

    /// Counts the blocks that the session and its sub-sessions make.
    async fn count(&self, session: &Session, seen: &mut Seen, depth: usize) -> Result<u64> {
        if depth > DEPTH_MAX || !seen.insert(session.id.clone()) {
            return Ok(0);
        }
        let mut total = self.store.count_messages(&session.id, Span::Last, self.mask()).await?;
        for child in self.store.children(&session.key).await? {
            total += Box::pin(self.count(&child, seen, depth + 1)).await?;
        }
        Ok(total)
    }

    /// Collects blocks, newest first, until `room` is used up.
    ///
    /// A sub-session stands where its marker is; one without a marker, where
    /// it began. Returns whether everything fitted.
    async fn collect(
        &mut self,
        session: &Session,
        items: &mut VecDeque<Item>,
        room: &mut usize,
        reopen: String,
        seen: &mut Seen,
    ) -> Result<bool> {
        seen.insert(session.id.clone());
        let mut children = self.store.children(&session.key).await?;
        children.retain(|child| !seen.contains(&child.id));
        let has_markers = self.store.count_messages(&session.id, Span::Last, Shape::SUB_SESSION).await? > 0;
        let mut span = Span::Last;
        loop {
            let page = self.store.messages(&session.id, span, PAGE_LEN).await?;
            let entries = entries(page);
            let Some(oldest) = entries.first().map(Entry::seq) else { break };
            for entry in entries.into_iter().rev() {
                if !has_markers {
                    while children.last().is_some_and(|child| entry.is_before(child.created_at)) {
                        let child = children.pop().expect("checked above");
                        if !self.collect_child(&child, items, room, &reopen, seen).await? {
                            return Ok(false);
                        }
                    }
                }
                for marked in entry.sub_sessions().into_iter().rev() {
                    let Some(place) = children.iter().position(|child| child.id == marked) else { continue };
                    let child = children.remove(place);
                    if !self.collect_child(&child, items, room, &reopen, seen).await? {
                        return Ok(false);
                    }
                }
                let Some(text) = self.render(&entry) else { continue };
                let fits = take_room(room, text.len());
                items.push_back(Item { text, reopen: reopen.clone() });
                if !fits {
                    return Ok(false);
                }
            }
            span = Span::Before(oldest);
        }
        for child in children.into_iter().rev() {
            if !self.collect_child(&child, items, room, &reopen, seen).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn collect_child(
        &mut self,
        child: &Session,
        items: &mut VecDeque<Item>,
        room: &mut usize,
        reopen: &str,
        seen: &mut Seen,
    ) -> Result<bool> {
        if seen.len() > DEPTH_MAX * 1000 || seen.contains(&child.id) {
            return Ok(true);
        }
        let open = transcript::sub_session_open(&child.id, &child.agent);
        let inner = if reopen.is_empty() { open.clone() } else { format!("{reopen}\n\n{open}") };
        let start = items.len();
        let whole = Box::pin(self.collect(child, items, room, inner, seen)).await?;
        if items.len() == start {
            return Ok(whole);
        }
        let newest = &mut items[start];
        newest.text = format!("{}\n\n{}", newest.text, transcript::SUB_SESSION_END);
        if whole && let Some(oldest) = items.back_mut() {
            oldest.text = format!("{open}\n\n{}", oldest.text);
            oldest.reopen = reopen.to_owned();
        }
        Ok(whole)
    }

    /// Renders the blocks around one message, of this session alone.
    async fn around(
        &mut self,
        session: &Session,
        heading: &Heading<'_>,
        seq: u64,
        budget: usize,
    ) -> Result<transcript::Window> {
        let mask = self.mask();
        let before = self.store.count_messages(&session.id, Span::Before(seq), mask).await?;
        let after = self.store.count_messages(&session.id, Span::After(seq), mask).await?;
        let page = self.store.messages(&session.id, Span::Before(seq + 1), 1).await?;
        let at = entries(page).pop().and_then(|entry| self.render(&entry));
        let at = at.unwrap_or_else(|| format!("[message {seq} has nothing to show]"));
        let older = self.side(session, Span::Before(seq), budget).await?;
        let newer = self.side(session, Span::After(seq), budget).await?;
        let item = Item { text: at, reopen: String::new() };
        Ok(transcript::around(heading, item, older.into_iter(), newer.into_iter(), (before, after), budget))
    }

    async fn side(&mut self, session: &Session, from: Span, budget: usize) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        let mut room = budget;
        let mut span = from;
        loop {
            let mut entries = entries(self.store.messages(&session.id, span, PAGE_LEN).await?);
            let (Some(first), Some(last)) = (entries.first().map(Entry::seq), entries.last().map(Entry::seq))
            else {
                return Ok(items);
            };
            span = match from {
                Span::After(_) => Span::After(last),
                Span::Before(_) | Span::Last => {
                    entries.reverse();
                    Span::Before(first)
                }
            };
            for entry in entries {
                let Some(text) = self.render(&entry) else { continue };
                let fits = take_room(&mut room, text.len());
                items.push(Item { text, reopen: String::new() });
                if !fits {
                    return Ok(items);
                }
            }
        }
    }

    fn render(&mut self, entry: &Entry) -> Option<String> {
        let text = match entry {
            Entry::Message(_, body) => transcript::block(body, self.tools)?,
            Entry::Damaged(seq, reason) => {
                tracing::warn!(seq, reason, "a message is damaged; the rest is shown");
                format!("## damaged message\n[message {seq} cannot be shown: {reason}]")
            }
        };
        let (text, count) = masked(&text, self.redaction);
        self.redacted += count;
        Some(text)
    }
}

/// Takes `size` from what is left; false once more than that is used.
fn take_room(room: &mut usize, size: usize) -> bool {
    let fits = size <= *room;
    *room = room.saturating_sub(size);
    fits
}

/// A message to render, or the gap where one was.
enum Entry {
    Message(u64, Body),
    Damaged(u64, String),
}

impl Entry {
    fn seq(&self) -> u64 {
        match self {
            Self::Message(seq, _) | Self::Damaged(seq, _) => *seq,
        }
    }

    fn is_before(&self, at: Timestamp) -> bool {
        match self {
            Self::Message(_, body) => body.timestamp <= at,
            Self::Damaged(..) => false,
        }
    }

    fn sub_sessions(&self) -> Vec<sess_core::SessionId> {
        let Self::Message(_, body) = self else { return Vec::new() };
        let marked = body.content.iter().filter_map(|block| match block {
            Block::SubSession { session_id } => Some(session_id.clone()),
            _ => None,
        });
        marked.collect()
    }
}

/// Returns the page as entries, oldest first, with damaged messages in their places.
fn entries(page: MessagePage) -> Vec<Entry> {
    let parse = |message: StoredMessage| match message.parse() {
        Ok(body) => Entry::Message(message.seq, body),
        Err(error) => Entry::Damaged(message.seq, error.to_string()),
    };
    let mut entries: Vec<Entry> = page.messages.into_iter().map(parse).collect();
    entries.extend(page.damaged.into_iter().map(|damaged| Entry::Damaged(damaged.seq, damaged.reason)));
    entries.sort_by_key(Entry::seq);
    entries
}
