//! Which records of a transcript are still part of the conversation.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    path::Path,
};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Result, Told,
    files::{self, Lines},
    session::{name, on_way_to_root},
};

/// The tree that the records of one file form: a few dozen bytes a record.
pub(super) struct Links {
    /// What is no part of the conversation, by where it begins.
    left: HashMap<u64, Left>,
}

/// Why a record is no part of the conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    TakenBack,
    /// It stands in the file before.
    Repeated,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    parent_uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    logical_parent_uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    leaf_uuid: Option<&'a RawValue>,
    #[serde(borrow)]
    subtype: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    is_sidechain: Option<&'a RawValue>,
}

/// Which message a record has a block of.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

/// The kinds of records that a conversation is made of, as they stand in a file.
const CHAINED: [&str; 5] = ["\"user\"", "\"assistant\"", "\"attachment\"", "\"system\"", "\"progress\""];

/// One record of the tree.
struct Node {
    start: u64,
    parent: Option<u32>,
    /// Somebody or the model speaks, or what was said is compacted: where a dead branch begins.
    is_spoken: bool,
    /// The message of the model that it is a block of.
    message: Option<u64>,
    /// It is a sub-agent's, of which older releases wrote what it said among the records of its session.
    is_side: bool,
}

impl Links {
    pub(super) fn of(path: &Path) -> Result<Self> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut places: HashMap<u64, u32> = HashMap::new();
        // Records whose parent did not stand before them, and what did.
        let mut open: Vec<(u32, u64, Option<u32>)> = Vec::new();
        let mut left = HashMap::new();
        let mut leaf = None;
        // In a file of a sub-agent's own there is no other.
        let mut side_leaf = None;
        files::each(Lines::open(path)?, &mut Told::default(), |start, line| {
            let link = serde_json::from_slice::<Link<'_>>(line).ok()?;
            let go_on = Some(ControlFlow::Continue(()));
            if let Some(named) = link.leaf_uuid {
                // Fresh as long as nothing is said after it.
                leaf = places.get(&name(named.get())).copied().or(leaf);
            }
            // One that is no text tells no record from another.
            let Some(uuid) = link.uuid.filter(|uuid| uuid.get().starts_with('"')) else { return go_on };
            let Ok(place) = u32::try_from(nodes.len()) else { return Some(ControlFlow::Break(())) };
            if places.contains_key(&name(uuid.get())) {
                left.insert(start, Left::Repeated);
                return go_on;
            }
            let by_name = |uuid: &RawValue| places.get(&name(uuid.get())).copied();
            let is_compaction = link.subtype.is_some_and(|subtype| subtype.get() == "\"compact_boundary\"");
            let is_side = link.is_sidechain.is_some_and(|is_side| is_side.get() == "true");
            let last = if is_side { &mut side_leaf } else { &mut leaf };
            let parent =
                link.parent_uuid.and_then(by_name).or_else(|| link.logical_parent_uuid.and_then(by_name));
            let is_null = |uuid: &&RawValue| uuid.get() == "null";
            match link.parent_uuid.or(link.logical_parent_uuid).filter(|uuid| !is_null(uuid)) {
                Some(lost) if parent.is_none() => open.push((place, name(lost.get()), *last)),
                _ => {}
            }
            // Older versions did not say what a compaction follows: it is what was there.
            let parent = if parent.is_none() && is_compaction { *last } else { parent };
            let kind = link.kind.map_or("", RawValue::get);
            let is_result = link.message.is_some_and(|message| message.get().contains("\"tool_result\""));
            let is_spoken = kind == "\"assistant\"" || kind == "\"user\"" && !is_result || is_compaction;
            let reply = link.message.filter(|_| kind == "\"assistant\"");
            let message = reply.and_then(|reply| message_name(reply.get()));
            nodes.push(Node { start, parent, is_spoken, message, is_side });
            places.insert(name(uuid.get()), place);
            // A title, say, may have an id too, and hangs on nothing.
            if CHAINED.contains(&kind) {
                *last = Some(place);
            }
            go_on
        })?;
        for (place, parent, before) in open {
            // A parent that no record has was lost: nothing says that what stands before was taken back.
            nodes[place as usize].parent = places.get(&parent).copied().or(before);
        }
        let live = live(&nodes, leaf.or(side_leaf));
        let taken_back = nodes.iter().zip(live).filter(|(_, is_live)| !is_live);
        left.extend(taken_back.map(|(node, _)| (node.start, Left::TakenBack)));
        Ok(Self { left })
    }

    /// Tells why the record that begins here is no part of the conversation; nothing when it is one.
    pub(super) fn left(&self, start: u64) -> Option<Left> {
        self.left.get(&start).copied()
    }
}

/// Names the message that a record has a block of; one without an id has no other blocks.
fn message_name(message: &str) -> Option<u64> {
    let id = serde_json::from_str::<Part<'_>>(message).ok()?.id?.get();
    (id.len() > 2 && id.starts_with('"')).then(|| name(id))
}

/// Walks from the leaf to the root; then adds what hangs beside that path without anybody
/// speaking there: results of tools that ran at the same time, and the calls of these. A reply
/// has a record for each of its calls, one hanging on the other, and the way goes past those
/// that stand behind the call whose result came last. What a sub-agent said in the
/// file of its session is a tree of its own, of which nothing is taken back.
fn live(nodes: &[Node], leaf: Option<u32>) -> Vec<bool> {
    let mut live = on_way_to_root(nodes.len(), leaf, |place| nodes[place].parent);
    let messages: HashSet<u64> = nodes
        .iter()
        .zip(&live)
        .filter(|(_, is_live)| **is_live)
        .filter_map(|(node, _)| node.message)
        .collect();
    let is_of_session = leaf.is_some_and(|leaf| !nodes[leaf as usize].is_side);
    for (place, node) in nodes.iter().enumerate() {
        let goes_on = || node.message.is_some_and(|message| messages.contains(&message));
        if is_of_session && node.is_side {
            live[place] = true;
        } else if !live[place] && (!node.is_spoken || goes_on()) {
            // A reply that goes on does so behind its beginning: what somebody said in between was taken back.
            live[place] = node.parent.map_or(!node.is_spoken, |parent| live[parent as usize]);
        }
    }
    live
}
