//! Other agents' sessions at the doors: found beside our own, and read page by page where they lie.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    sync::{Arc, PoisonError},
};

use serde::Serialize;
use serde_json::{Value, value::RawValue};
use sess_core::{
    AgentId, SessionId, SessionKey, Source,
    message::{Block, Body, Role},
    policy::Verb,
    redact::redact_json_text,
    reference::ReferenceError,
    session::Session,
};
use sess_readers::{Entry, Foreign};

use crate::{
    App, Caller, Error, Kind, Reached, Redaction, Result, SeenMessage,
    context::{self, Found, first_row, keep_named},
    handoff::resume_of,
    reach::{Given, Outlook},
};

/// The most bytes of one page, by what its messages say; a larger message is a page of its own.
const PAGE_SIZE_BYTES_MAX: usize = 4 << 20;
/// How many pages are kept, so that who looks again reads no file again.
const PAGES_KEPT: usize = 4;

/// A session that a caller sees.
pub(crate) enum Kept {
    Ours(Box<Reached>),
    /// Another agent's, read in place; with what is stored about it.
    Theirs(Box<Foreign>, Option<Box<Session>>),
}

/// Where a place in a transcript leads.
#[derive(Clone, Debug)]
pub struct Led {
    pub key: SessionKey,
    /// Names the transcript, which may not be the newest one of its key.
    pub reference: String,
    /// It is read from another agent's files, and nothing of it is told live.
    pub in_place: bool,
}

impl App {
    /// Refuses what the caller may not do `verb` to, or does not see.
    pub async fn in_sight(&self, caller: &Caller, given: &str, verb: Verb) -> Result<()> {
        let outlook = self.outlook(caller).await?;
        match self.reach_from(&outlook, given, verb).await {
            Ok(_) => Ok(()),
            Err(missing) => self.kept_elsewhere(&outlook, given, missing).await.map(|_| ()),
        }
    }

    /// Returns where the transcript `id` leads, if the session that `given` names has it.
    pub async fn place_in(&self, caller: &Caller, given: &str, id: &SessionId) -> Result<Option<Led>> {
        let reached = match self.find_kept(&self.outlook(caller).await?, given, Verb::History).await? {
            Kept::Ours(reached) => *reached,
            Kept::Theirs(foreign, _) => {
                let led = Led { key: foreign.key(), reference: foreign.reference(), in_place: true };
                return Ok((foreign.id == *id).then_some(led));
            }
        };
        let key = self.key_of(id).await?;
        // A key may have had several sessions, and a place in any of them is one of its own.
        let is_unused = reached.session.is_none() && self.first_id(&reached.key)? == *id;
        let leads = key.as_ref() == Some(&reached.key) || is_unused;
        Ok(leads.then_some(Led { key: reached.key, reference: id.to_string(), in_place: false }))
    }

    /// Finds the session that `given` names to this caller: a stored one, or one that another agent keeps.
    pub(crate) async fn find_kept(&self, outlook: &Outlook, given: &str, verb: Verb) -> Result<Kept> {
        match self.reach_from(outlook, given, verb).await {
            Ok(Reached { key, session: Some(session) }) if outlook.sees_others() => {
                Ok(match self.with_files(session).await? {
                    Found::Stored(session) => Kept::Ours(Box::new(Reached { key, session: Some(*session) })),
                    Found::Foreign(foreign, stored) => Kept::Theirs(foreign, stored),
                })
            }
            Ok(reached) => Ok(Kept::Ours(Box::new(reached))),
            Err(missing) => {
                let foreign = self.kept_elsewhere(outlook, given, missing).await?;
                Ok(Kept::Theirs(Box::new(foreign), None))
            }
        }
    }

    /// Finds what is stored of the session that `given` names, without a look at any file when it is there;
    /// one of which nothing is stored can only be read.
    pub(crate) async fn stored_one(&self, outlook: &Outlook, given: &str, verb: Verb) -> Result<Reached> {
        match self.reach_from(outlook, given, verb).await {
            Err(missing) => Err(read_only(&self.kept_elsewhere(outlook, given, missing).await?)),
            reached => reached,
        }
    }

    /// Finds a session that is `missing` here among those that other agents keep.
    pub(crate) async fn kept_elsewhere(
        &self,
        outlook: &Outlook,
        given: &str,
        missing: Error,
    ) -> Result<Foreign> {
        if missing.kind() != Kind::NotFound || !outlook.sees_others() {
            return Err(missing);
        }
        let Ok(given) = outlook.canonical(given.trim()) else { return Err(missing) };
        self.keeper_of(&given).await?.ok_or(missing)
    }

    async fn keeper_of(&self, given: &Given) -> Result<Option<Foreign>> {
        let source = match given {
            Given::Native(source, _) => Some(*source),
            Given::Id(_) => None,
            Given::Key(key) => {
                let vendor = |agent: AgentId| agent.as_str().parse::<Source>().ok();
                match key.agent().and_then(vendor).filter(|source| *source != Source::Native) {
                    Some(source) => Some(source),
                    None => return Ok(None),
                }
            }
        };
        let mut found = self.look_at_agents(source).await?.sessions;
        let id = match given {
            Given::Key(key) => {
                found.retain(|foreign| foreign.key() == *key);
                return Ok(found.pop());
            }
            Given::Native(_, id) | Given::Id(id) => id,
        };
        keep_named(&mut found, source, id);
        if found.len() > 1 {
            let (reference, matches) = (id.to_string(), found.len() as u64);
            return Err(ReferenceError::Ambiguous { reference, matches }.into());
        }
        Ok(found.pop())
    }

    /// Returns the newest messages of another agent's session before `before`, by one pass over its file.
    pub(crate) async fn their_page(&self, foreign: &Foreign, asked: Asked) -> Result<Arc<TheirPage>> {
        let known = self.inner.pages.lock().unwrap_or_else(PoisonError::into_inner).find(foreign, asked);
        if let Some(page) = known {
            return Ok(page);
        }
        let kept = foreign.clone();
        let page = context::blocking(move || read(&kept, asked)).await?;
        let page = Arc::new(page.map_err(|error| {
            // The text names files, which is for the owner's eyes.
            tracing::warn!("{} cannot be read: {error}", foreign.reference());
            Error::Unavailable(format!(
                "session {} cannot be read where {} keeps it; the log of the gateway says why",
                foreign.reference(),
                foreign.source
            ))
        })?);
        self.inner.pages.lock().unwrap_or_else(PoisonError::into_inner).keep(foreign, asked, &page);
        Ok(page)
    }
}

/// Returns another agent's session as it would stand in the store.
pub(crate) fn as_stored(foreign: &Foreign, stored: Option<&Session>) -> Session {
    let mut session = match stored {
        Some(stored) => stored.clone(),
        None => Session::unused(first_row(foreign)),
    };
    if session.title.is_empty() {
        session.title.clone_from(&foreign.title);
    }
    session.updated_at = session.updated_at.max(foreign.updated_at);
    session.created_at = foreign.created_at.unwrap_or(session.created_at);
    session.cwd = foreign.cwd.clone().or(session.cwd);
    if let Some(parent) = &foreign.parent {
        session.parent = Some(SessionKey::chat(&foreign.source.agent(), parent));
    }
    session
}

fn read_only(foreign: &Foreign) -> Error {
    let there = match resume_of(foreign) {
        Some(words) => format!("go on with it there: {}", words.join(" ")),
        None => "go on with it there".to_owned(),
    };
    let (reference, source) = (foreign.reference(), foreign.source);
    Error::Invalid(format!("session {reference} belongs to {source} and can only be read here; {there}"))
}

/// Which messages are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) before: Option<u64>,
    pub(crate) limit: usize,
    pub(crate) with_tools: bool,
    pub(crate) redaction: Redaction,
}

/// A part of another agent's session, oldest message first.
pub(crate) struct TheirPage {
    pub(crate) messages: Vec<SeenMessage>,
    /// Whether there are older ones.
    pub(crate) has_more: bool,
    /// The last message that was passed.
    pub(crate) last_seq: u64,
}

/// The pages that were read last, each with the session as it stood in its files then.
#[derive(Default)]
pub(crate) struct Pages(VecDeque<(Foreign, Asked, Arc<TheirPage>)>);

impl Pages {
    fn find(&self, foreign: &Foreign, asked: Asked) -> Option<Arc<TheirPage>> {
        let found = self.0.iter().find(|(known, of, _)| known == foreign && *of == asked);
        found.map(|(_, _, page)| Arc::clone(page))
    }

    fn keep(&mut self, foreign: &Foreign, asked: Asked, page: &Arc<TheirPage>) {
        // In a database that many sessions share, nothing says for sure that one has not changed.
        if foreign.place.size_bytes.is_none() {
            return;
        }
        self.0.retain(|(known, of, _)| known.reference() != foreign.reference() || *of != asked);
        self.0.push_front((foreign.clone(), asked, Arc::clone(page)));
        self.0.truncate(PAGES_KEPT);
    }
}

fn read(foreign: &Foreign, asked: Asked) -> sess_readers::Result<TheirPage> {
    let mut kept: VecDeque<(u64, Entry, usize)> = VecDeque::new();
    let (mut last_seq, mut size_bytes, mut has_more) = (0, 0, false);
    sess_readers::read(foreign, &mut |entry| {
        if asked.before.is_some_and(|before| last_seq + 1 >= before) {
            return ControlFlow::Break(());
        }
        last_seq += 1;
        if entry.body.role == Role::ToolResult && !asked.with_tools {
            return ControlFlow::Continue(());
        }
        let size = said_bytes(&entry.body);
        size_bytes += size;
        kept.push_back((last_seq, entry, size));
        while kept.len() > asked.limit || (kept.len() > 1 && size_bytes > PAGE_SIZE_BYTES_MAX) {
            size_bytes -= kept.pop_front().map_or(0, |(_, _, size)| size);
            has_more = true;
        }
        ControlFlow::Continue(())
    })?;
    let messages =
        kept.into_iter().filter_map(|(seq, entry, _)| seen(foreign, seq, entry, asked.redaction)).collect();
    Ok(TheirPage { messages, has_more, last_seq })
}

/// Returns about how many bytes a message takes.
fn said_bytes(body: &Body) -> usize {
    let said = body.content.iter().map(|block| match block {
        Block::Text { text } | Block::Thinking { text, .. } => text.len(),
        Block::Image { data, .. } => data.len(),
        Block::Compaction { summary } => summary.len(),
        Block::ToolCall { arguments, .. } => {
            serde_json::to_string(arguments).map_or(0, |arguments| arguments.len())
        }
        Block::Other(fields) => serde_json::to_string(fields).map_or(0, |fields| fields.len()),
        Block::SubSession { .. } => 0,
    });
    said.sum()
}

/// A message in its place, in the transcript format.
#[derive(Serialize)]
struct Placed {
    id: String,
    seq: u64,
    #[serde(flatten)]
    body: Body,
    #[serde(rename = "takenBack", skip_serializing_if = "std::ops::Not::not")]
    is_taken_back: bool,
}

fn seen(foreign: &Foreign, seq: u64, entry: Entry, redaction: Redaction) -> Option<SeenMessage> {
    let Entry { id, mut body, is_taken_back } = entry;
    let is_tool_result = body.role == Role::ToolResult;
    if body.role == Role::Assistant && body.agent_id.is_none() {
        body.agent_id = Some(foreign.source.agent());
    }
    // What only its agent knows is named, so that whoever reads our messages can read these.
    for block in &mut body.content {
        if let Block::Other(fields) = block {
            let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
            *block = Block::Text { text: format!("[{} {}]", field("type"), field("name")) };
        }
    }
    let id = context::message_ref(id, seq);
    let json = serde_json::to_string(&Placed { id, seq, body, is_taken_back }).ok()?;
    let json = match redaction {
        Redaction::None => json,
        Redaction::Masked => redact_json_text(&json).ok()?.into_owned(),
    };
    Some(SeenMessage { seq, is_tool_result, json: RawValue::from_string(json).ok()? })
}
