//! Putting a transcript together: messages in their order, sub-sessions in their places.

use std::collections::{HashMap, HashSet, VecDeque};

use sess_core::{
    SessionId, Timestamp,
    mention::first_of,
    message::{Block, Body, Shape},
    policy,
    session::Session,
    transcript::{self, Heading, Item, Tools},
};
use sess_store::{MessagePage, Span, Store, StoredMessage};

use super::{Redaction, masked};
use crate::Result;

/// How many messages are loaded at a time while a transcript is put together.
const PAGE_LEN: usize = 64;
/// How deep sub-sessions are shown inside each other.
const DEPTH_MAX: usize = 32;

/// Turns stored messages into blocks, newest first.
pub(super) struct Reader<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) tools: Tools,
    pub(super) redaction: Redaction,
    /// What the asker may see: sub-sessions outside are not there.
    pub(super) scope: policy::Scope,
}

/// A block, and how many secrets were masked in it.
struct Rendered {
    item: Item,
    redacted: u64,
}

/// Blocks collected so far, newest first, and how much may still come.
struct Collected {
    blocks: VecDeque<Rendered>,
    room: usize,
    /// Parents may form a loop; each session is shown once.
    seen: HashSet<SessionId>,
}

impl Reader<'_> {
    fn mask(&self) -> u8 {
        match self.tools {
            Tools::Shown => Shape::SPEAKS | Shape::TOOLS,
            Tools::Hidden => Shape::SPEAKS,
        }
    }

    /// Renders the newest blocks, with sub-sessions in their places.
    pub(super) async fn newest(
        &self,
        session: &Session,
        heading: &Heading<'_>,
        budget: usize,
    ) -> Result<(transcript::Window, u64)> {
        let mut collected = Collected { blocks: VecDeque::new(), room: budget, seen: HashSet::new() };
        let is_whole = self.collect(session, &mut collected, String::new(), 0).await?;
        let (items, redacted): (Vec<Item>, Vec<u64>) =
            collected.blocks.into_iter().map(|block| (block.item, block.redacted)).unzip();
        // The count goes by what was stored; a damaged message makes a block all the same.
        let mut total = items.len() as u64;
        if !is_whole {
            total = total.max(self.count(session, &mut HashSet::new(), 0).await?);
        }
        let window = transcript::newest(heading, total, items.into_iter(), budget);
        let shown = usize::try_from(window.shown).unwrap_or(usize::MAX);
        Ok((window, redacted.iter().take(shown).sum()))
    }

    /// Counts the blocks that the session and its sub-sessions make.
    async fn count(&self, session: &Session, seen: &mut HashSet<SessionId>, depth: usize) -> Result<u64> {
        if depth > DEPTH_MAX || !seen.insert(session.id.clone()) {
            return Ok(0);
        }
        let mut total = self.store.count_messages(&session.id, Span::Last, self.mask()).await?;
        for child in self.children(session).await? {
            total += Box::pin(self.count(&child, seen, depth + 1)).await?;
        }
        Ok(total)
    }

    /// Returns the sub-sessions that the asker may see, oldest first.
    async fn children(&self, session: &Session) -> Result<Vec<Session>> {
        let mut children = self.store.children(&session.key).await?;
        children.retain(|child| match &self.scope {
            // Whoever may see a session of its tree may see what is below.
            policy::Scope::Tree(_) => true,
            scope => scope.admits(child, &[]),
        });
        Ok(children)
    }

    /// Collects blocks, newest first, until the room is used up.
    ///
    /// A sub-session stands where its marker is; one without a marker, where
    /// it began. Returns whether everything fitted.
    async fn collect(
        &self,
        session: &Session,
        collected: &mut Collected,
        reopen: String,
        depth: usize,
    ) -> Result<bool> {
        if depth > DEPTH_MAX || !collected.seen.insert(session.id.clone()) {
            return Ok(true);
        }
        let (mut marked, mut unmarked) = self.sub_sessions(session).await?;
        let mut span = Span::Last;
        loop {
            let entries = entries(self.store.messages(&session.id, span, PAGE_LEN).await?);
            let Some(oldest) = entries.first().map(Entry::seq) else { break };
            for entry in entries.into_iter().rev() {
                while let Some(child) = unmarked.pop_if(|child| entry.is_before(child.created_at)) {
                    if !self.collect_child(&child, collected, &reopen, depth).await? {
                        return Ok(false);
                    }
                }
                for id in entry.sub_sessions().into_iter().rev() {
                    let Some(child) = marked.remove(&id) else { continue };
                    if !self.collect_child(&child, collected, &reopen, depth).await? {
                        return Ok(false);
                    }
                }
                let Some((text, redacted)) = self.render(&entry) else { continue };
                let fits = take_room(&mut collected.room, text.len());
                let item = Item { text, reopen: reopen.clone() };
                collected.blocks.push_back(Rendered { item, redacted });
                if !fits {
                    return Ok(false);
                }
            }
            span = Span::Before(oldest);
        }
        for child in unmarked.into_iter().rev() {
            if !self.collect_child(&child, collected, &reopen, depth).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the sub-sessions that a message marks the place of, and the others, oldest first.
    async fn sub_sessions(&self, session: &Session) -> Result<(HashMap<SessionId, Session>, Vec<Session>)> {
        let children = self.children(session).await?;
        let markers = self.store.count_messages(&session.id, Span::Last, Shape::SUB_SESSION).await?;
        if children.is_empty() || markers == 0 {
            return Ok((HashMap::new(), children));
        }
        let mut marks = HashSet::new();
        let mut span = Span::After(0);
        loop {
            let page = self.store.messages(&session.id, span, PAGE_LEN).await?;
            let Some(newest) = page.newest_seq() else { break };
            // Only messages that mark something are parsed.
            let marking = page.messages.into_iter().filter(|it| it.shape.bits() & Shape::SUB_SESSION != 0);
            for entry in entries(MessagePage { messages: marking.collect(), damaged: Vec::new() }) {
                marks.extend(entry.sub_sessions());
            }
            span = Span::After(newest);
        }
        let (marked, unmarked) = children.into_iter().partition(|child: &Session| marks.contains(&child.id));
        let marked: Vec<Session> = marked;
        Ok((marked.into_iter().map(|child| (child.id.clone(), child)).collect(), unmarked))
    }

    async fn collect_child(
        &self,
        child: &Session,
        collected: &mut Collected,
        reopen: &str,
        depth: usize,
    ) -> Result<bool> {
        let open = transcript::sub_session_open(child.id.as_str(), child.agent.as_str());
        let inner = if reopen.is_empty() { open.clone() } else { format!("{reopen}\n\n{open}") };
        let start = collected.blocks.len();
        let is_whole = Box::pin(self.collect(child, collected, inner, depth + 1)).await?;
        let Some(newest) = collected.blocks.get_mut(start) else { return Ok(is_whole) };
        newest.item.text = format!("{}\n\n{}", newest.item.text, transcript::SUB_SESSION_END);
        if is_whole && let Some(oldest) = collected.blocks.back_mut() {
            oldest.item.text = format!("{open}\n\n{}", oldest.item.text);
            oldest.item.reopen = reopen.to_owned();
        }
        Ok(is_whole)
    }

    /// Renders the newest blocks before the last compaction, of this session alone; `None` when
    /// there was none.
    pub(super) async fn compacted(
        &self,
        session: &Session,
        heading: &Heading<'_>,
        budget: usize,
    ) -> Result<Option<(transcript::Window, u64)>> {
        let mut span = Span::Last;
        loop {
            let entries = entries(self.store.messages(&session.id, span, PAGE_LEN).await?);
            let Some(oldest) = entries.first().map(Entry::seq) else { return Ok(None) };
            let Some(at) = entries.iter().rev().find(|entry| entry.is_compaction()) else {
                span = Span::Before(oldest);
                continue;
            };
            let (items, redacted, total) = self.side(session, Span::Before(at.seq()), budget).await?;
            let window = transcript::newest(heading, total, items.into_iter(), budget);
            let shown = usize::try_from(window.shown).unwrap_or(usize::MAX);
            return Ok(Some((window, redacted.iter().take(shown).sum())));
        }
    }

    /// Renders the blocks around one message, of this session alone.
    pub(super) async fn around(
        &self,
        session: &Session,
        heading: &Heading<'_>,
        seq: u64,
        budget: usize,
    ) -> Result<(transcript::Window, u64)> {
        let page = self.store.messages(&session.id, Span::Before(seq + 1), 1).await?;
        let at = entries(page).pop().filter(|entry| entry.seq() == seq);
        let at = at.unwrap_or_else(|| Entry::Damaged(seq, "it is missing".to_owned()));
        let nothing = || (format!("[message {seq} has nothing to show]"), 0);
        let (mut text, mut redacted) = self.render(&at).unwrap_or_else(nothing);
        text.push_str(&left_out_note(&self.children(session).await?));
        let (older, older_redacted, before) = self.side(session, Span::Before(seq), budget).await?;
        let (newer, newer_redacted, after) = self.side(session, Span::After(seq), budget).await?;
        let item = Item { text, reopen: String::new() };
        let (older, newer) = (older.into_iter(), newer.into_iter());
        let window = transcript::around(heading, item, older, newer, (before, after), budget);
        for (counts, shown) in
            [(older_redacted, before - window.earlier), (newer_redacted, after - window.later)]
        {
            redacted += counts.iter().take(usize::try_from(shown).unwrap_or(usize::MAX)).sum::<u64>();
        }
        Ok((window, redacted))
    }

    /// Renders what comes before or after a message: as many blocks as could fit, nearest
    /// first, how many secrets each hides, and how many blocks there are.
    async fn side(&self, session: &Session, from: Span, budget: usize) -> Result<(Vec<Item>, Vec<u64>, u64)> {
        let (mut items, mut redacted) = (Vec::new(), Vec::new());
        let mut room = budget;
        let mut span = from;
        loop {
            let mut entries = entries(self.store.messages(&session.id, span, PAGE_LEN).await?);
            let (Some(first), Some(last)) = (entries.first().map(Entry::seq), entries.last().map(Entry::seq))
            else {
                let total = items.len() as u64;
                return Ok((items, redacted, total));
            };
            span = match from {
                Span::After(_) => Span::After(last),
                Span::Before(_) | Span::Last => {
                    entries.reverse();
                    Span::Before(first)
                }
            };
            for entry in entries {
                let Some((text, count)) = self.render(&entry) else { continue };
                let fits = take_room(&mut room, text.len());
                items.push(Item { text, reopen: String::new() });
                redacted.push(count);
                if !fits {
                    let counted = self.store.count_messages(&session.id, from, self.mask()).await?;
                    let total = counted.max(items.len() as u64);
                    return Ok((items, redacted, total));
                }
            }
        }
    }

    /// Returns the block that an entry makes, and how many secrets were masked in it.
    fn render(&self, entry: &Entry) -> Option<(String, u64)> {
        let text = match entry {
            Entry::Message(_, body) => transcript::block(body, self.tools)?,
            Entry::Damaged(seq, reason) => {
                tracing::warn!(seq, reason, "a message is damaged; the rest is shown");
                format!("## damaged message\n[message {seq} cannot be shown: {reason}]")
            }
        };
        Some(masked(&text, self.redaction))
    }
}

/// Names the sub-sessions that a part read from the middle leaves out.
fn left_out_note(children: &[Session]) -> String {
    const NAMED_MAX: usize = 5;
    if children.is_empty() {
        return String::new();
    }
    let ids: Vec<&str> = children.iter().map(|child| child.id.as_str()).collect();
    format!("\n\n[sub-sessions are not shown here; read them by id: {}]", first_of(&ids, NAMED_MAX))
}

/// Takes `size` from what is left; false once more than that is used.
fn take_room(room: &mut usize, size: usize) -> bool {
    let fits = size <= *room;
    *room = room.saturating_sub(size);
    fits
}

/// A message to render, or the gap where one was.
enum Entry {
    Message(u64, Box<Body>),
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

    fn is_compaction(&self) -> bool {
        match self {
            Self::Message(_, body) => {
                body.content.iter().any(|block| matches!(block, Block::Compaction { .. }))
            }
            Self::Damaged(..) => false,
        }
    }

    fn sub_sessions(&self) -> Vec<SessionId> {
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
        Ok(body) => Entry::Message(message.seq, Box::new(body)),
        Err(error) => Entry::Damaged(message.seq, error.to_string()),
    };
    let mut entries: Vec<Entry> = page.messages.into_iter().map(parse).collect();
    entries.extend(page.damaged.into_iter().map(|damaged| Entry::Damaged(damaged.seq, damaged.reason)));
    entries.sort_by_key(Entry::seq);
    entries
}
