//! Where the sub-agents of a session ran, by what is said in it and in their own sessions.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
};

use sess_core::{SessionId, Source, message::Block};

use crate::{Foreign, read};

/// How deep sub-agents may have started each other.
const DEPTH_MAX: usize = 32;

/// What says where a sub-agent ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// A message of the session does, or one of another sub-agent that it started.
    InMessage,
    /// So did a message, which was taken back: what the sub-agent did was taken back with it.
    TakenBack,
    /// Nothing does.
    Nowhere,
}

/// Where the sub-agents of one session ran.
#[derive(Debug, Default)]
pub struct Kin {
    stands: HashMap<SessionId, Stands>,
}

impl Kin {
    /// Finds out where the sub-agents of a session ran. All of the session is read, unless it names them all before.
    ///
    /// Claude Code keeps all that ran in a session beside each other, whoever started them: those that the session does
    /// not name, others of them may.
    ///
    /// Returns nothing once `is_given_up`, which is asked at each message.
    pub fn of(parent: &Foreign, children: &[&Foreign], is_given_up: &dyn Fn() -> bool) -> Option<Self> {
        let mut left: HashSet<&SessionId> = children.iter().map(|child| &child.id).collect();
        let own = Links::of(parent, &mut left, is_given_up)?;
        left.retain(|id| !own.taken_back.contains(*id));
        let mut by_sub_agents: Vec<(&SessionId, Links)> = Vec::new();
        if parent.source == Source::Claude && !left.is_empty() {
            for child in children {
                by_sub_agents.push((&child.id, Links::of(child, &mut left.clone(), is_given_up)?));
            }
        }
        let links = AllLinks { own, by_sub_agents };
        let stands = children.iter().map(|child| (child.id.clone(), links.stands(&child.id, 0)));
        Some(Self { stands: stands.collect() })
    }

    /// Returns what says where a sub-agent ran.
    pub fn stands(&self, child: &SessionId) -> Stands {
        self.stands.get(child).copied().unwrap_or(Stands::Nowhere)
    }
}

/// Which sub-agents the messages of one session name.
#[derive(Default)]
struct Links {
    live: HashSet<SessionId>,
    taken_back: HashSet<SessionId>,
}

impl Links {
    /// Reads a session until it has named all who are left; takes those out that it names. Returns nothing when it was
    /// given up.
    fn of(session: &Foreign, left: &mut HashSet<&SessionId>, is_given_up: &dyn Fn() -> bool) -> Option<Self> {
        let mut links = Self::default();
        if left.is_empty() {
            return Some(links);
        }
        if is_given_up() {
            return None;
        }
        let mut is_cut = false;
        // What cannot be read is told by who shows it.
        let _told = read(session, &mut |entry| {
            for block in &entry.body.content {
                let Block::SubSession { session_id } = block else { continue };
                // Nobody starts itself.
                if *session_id == session.id || !left.contains(session_id) {
                    continue;
                }
                if entry.is_taken_back {
                    links.taken_back.insert(session_id.clone());
                } else {
                    left.remove(session_id);
                    links.live.insert(session_id.clone());
                }
            }
            is_cut = !left.is_empty() && is_given_up();
            if is_cut || left.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if is_cut {
            return None;
        }
        // What was said once more counts.
        links.taken_back.retain(|id| !links.live.contains(id));
        Some(links)
    }
}

struct AllLinks<'a> {
    own: Links,
    by_sub_agents: Vec<(&'a SessionId, Links)>,
}

impl AllLinks<'_> {
    fn stands(&self, child: &SessionId, depth: usize) -> Stands {
        if self.own.live.contains(child) {
            return Stands::InMessage;
        }
        if self.own.taken_back.contains(child) {
            return Stands::TakenBack;
        }
        let starters = || self.by_sub_agents.iter().filter(|(id, _)| *id != child);
        // Those that were taken back took with them whom they started.
        let mut live = starters().filter(|(_, links)| links.live.contains(child)).peekable();
        if live.peek().is_some() {
            let is_taken_back =
                |id: &SessionId| depth < DEPTH_MAX && self.stands(id, depth + 1) == Stands::TakenBack;
            return if live.all(|(id, _)| is_taken_back(id)) { Stands::TakenBack } else { Stands::InMessage };
        }
        match starters().any(|(_, links)| links.taken_back.contains(child)) {
            true => Stands::TakenBack,
            false => Stands::Nowhere,
        }
    }
}
