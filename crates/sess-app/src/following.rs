//! What doors follow: pages of a transcript, and everything that is committed, with secrets masked.

use std::borrow::Cow;

use serde_json::value::RawValue;
use sess_core::{
    RunId, SessionId, SessionKey, message::is_tool_result, policy::Verb, redact::redact_json_text,
    run::RunState, session::Session,
};
use sess_store::{Happening, Position, Span, StoredMessage};

use crate::{
    App, Caller, Redaction, Result,
    context::plain,
    others::{Asked, Kept, as_stored},
};

/// How many messages are read at a time.
const PAGE_LEN: usize = 200;

/// A message as doors hand it on: one line of JSON, with secrets masked.
#[derive(Clone, Debug)]
pub struct SeenMessage {
    pub seq: u64,
    /// A tool's result, which many do not want to see.
    pub is_tool_result: bool,
    pub json: Box<RawValue>,
}

/// A part of a transcript, oldest message first.
#[derive(Clone, Debug)]
pub struct TranscriptPage {
    pub session: Session,
    /// The session's key as it is shown.
    pub key: String,
    pub messages: Vec<SeenMessage>,
    /// Whether there are older ones.
    pub has_more: bool,
    /// The newest message of the session when the page was read, shown or not.
    pub last_seq: u64,
    /// It is read from another agent's files, and nothing of it is told live.
    pub in_place: bool,
}

/// Something that was committed, in the order of everything.
#[derive(Clone, Debug)]
pub struct Happened {
    /// Give this back to get what came after.
    pub position: u64,
    pub session: SessionId,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Message(SeenMessage),
    Created {
        key: SessionKey,
    },
    /// What the owner changed, by its name.
    Changed(String),
    PlanUpdated {
        revision: u64,
    },
    PlanState {
        revision: u64,
        state: String,
        note: Option<String>,
    },
    Run {
        run: RunId,
        state: RunState,
    },
    Deleted {
        key: SessionKey,
    },
    /// It cannot be read, and costs itself.
    Damaged,
}

impl App {
    /// Returns the newest messages before `before`, in a session that the caller reaches.
    pub async fn transcript_page(
        &self,
        caller: &Caller,
        given: &str,
        before: Option<u64>,
        limit: usize,
        with_tools: bool,
    ) -> Result<TranscriptPage> {
        let outlook = self.outlook(caller).await?;
        let session = match self.find_kept(&outlook, given, Verb::History).await? {
            Kept::Ours(reached) => self.looked_at(*reached)?,
            Kept::Theirs(foreign, stored) => {
                let page = self
                    .their_page(&foreign, Asked { before, limit, with_tools, redaction: Redaction::Masked })
                    .await?;
                let session = as_stored(&foreign, stored.as_deref());
                return Ok(TranscriptPage {
                    key: outlook.configured.shown(&session.key),
                    session,
                    messages: page.messages.clone(),
                    has_more: page.has_more,
                    last_seq: page.last_seq,
                    in_place: true,
                });
            }
        };
        let store = self.store()?;
        let mut messages = Vec::new();
        let mut span = before.map_or(Span::Last, Span::Before);
        let mut has_more = false;
        'reading: loop {
            if session.last_seq == 0 {
                // Nothing was said yet: it may not even be stored.
                break;
            }
            let left = limit.saturating_sub(messages.len());
            let page = store.messages(&session.id, span, PAGE_LEN.min(left + 1)).await?;
            let read = page.messages.iter().map(|message| message.seq);
            let Some(oldest) = read.chain(page.damaged.iter().map(|message| message.seq)).min() else {
                break;
            };
            span = Span::Before(oldest);
            for message in page.messages.iter().rev() {
                let Some(seen) = seen(message) else { continue };
                if seen.is_tool_result && !with_tools {
                    continue;
                }
                if messages.len() == limit {
                    has_more = true;
                    break 'reading;
                }
                messages.push(seen);
            }
        }
        messages.reverse();
        let key = outlook.configured.shown(&session.key);
        Ok(TranscriptPage { last_seq: session.last_seq, session, key, messages, has_more, in_place: false })
    }

    /// Returns the oldest messages after `after`, for somebody who was let see the session. Nothing is returned
    /// only when nothing readable is left: damage costs itself, however much of it stands in a row.
    pub async fn messages_after(
        &self,
        session: &SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SeenMessage>> {
        let mut after = after;
        loop {
            let page = match self.store()?.messages(session, Span::After(after), limit).await {
                // It may be one that is made at its first use.
                Err(sess_store::Error::NoSession(_)) if after == 0 => return Ok(Vec::new()),
                page => page?,
            };
            let messages: Vec<SeenMessage> = page.messages.iter().filter_map(seen).collect();
            match page.newest_seq() {
                Some(newest) if messages.is_empty() => after = newest,
                Some(_) | None => return Ok(messages),
            }
        }
    }

    /// Returns what was committed after a position, for a door that decides by itself who sees it.
    pub async fn happened(&self, after: u64, limit: usize) -> Result<Vec<Happened>> {
        self.news_is_out().await;
        let mut happened = Vec::new();
        for item in self.store()?.feed(Position(after), limit).await? {
            let what = match item.what {
                Happening::Message(message) => seen(&message).map_or(What::Damaged, What::Message),
                Happening::SessionCreated { key, .. } => What::Created { key },
                Happening::SessionChanged { change, .. } => What::Changed(change),
                Happening::PlanUpdated { revision, .. } => What::PlanUpdated { revision },
                Happening::PlanState { revision, state, note, .. } => {
                    What::PlanState { revision, state: state.to_string(), note: note.as_deref().map(plain) }
                }
                Happening::RunState { run, state, .. } => What::Run { run, state },
                Happening::SessionDeleted { key, .. } => What::Deleted { key },
                Happening::Damaged { .. } => What::Damaged,
            };
            let (position, session) = (item.position.0, item.session);
            happened.push(Happened { position, session, what });
        }
        Ok(happened)
    }

    /// Returns the next session under the same key: what a follower goes on with.
    pub async fn session_after(&self, session: &SessionId) -> Result<Option<SessionId>> {
        Ok(self.store()?.session_after(session).await?)
    }

    /// Tells whether a session is not the first one of its key.
    pub async fn is_started_over(&self, session: &SessionId, key: &SessionKey) -> Result<bool> {
        let transcripts = self.store()?.transcripts_of(key).await?;
        Ok(transcripts.first().is_some_and(|first| first.id != *session))
    }

    /// Returns a key as it is shown.
    pub fn shown_key(&self, key: &SessionKey) -> Result<String> {
        Ok(self.configured()?.shown(key))
    }

    /// Returns a name for a file that was handed over.
    pub fn new_file_id(&self) -> String {
        format!("{:032x}", self.random())
    }

    /// Returns the key of a session, also of one that was replaced by a newer one under the same key.
    pub async fn key_of(&self, session: &SessionId) -> Result<Option<SessionKey>> {
        Ok(self.stored_session(session).await?.map(|session| session.key))
    }
}

/// Masks a message; `None` when it cannot be read, which costs it alone.
fn seen(message: &StoredMessage) -> Option<SeenMessage> {
    let json = message.to_json();
    let is_tool_result = is_tool_result(&message.body);
    let json = match redact_json_text(&json).ok()? {
        Cow::Owned(masked) => masked,
        Cow::Borrowed(_) => json,
    };
    Some(SeenMessage { seq: message.seq, is_tool_result, json: RawValue::from_string(json).ok()? })
}
