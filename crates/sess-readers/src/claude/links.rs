//! Which records of a transcript are still part of the conversation.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Result, files::Lines};

/// The tree that the records of one file form: a few dozen bytes a record.
pub(super) struct Links {
    live: Vec<bool>,
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
}

/// The kinds of records that a conversation is made of, as they stand in a file.
const CHAINED: [&str; 5] = ["\"user\"", "\"assistant\"", "\"attachment\"", "\"system\"", "\"progress\""];

/// One record of the tree.
struct Node {
    parent: Option<u32>,
    /// Somebody or the model speaks: where a dead branch begins.
    is_spoken: bool,
}

/// Names a record in little memory; two of one file are told apart but for one chance in 10^13.
fn name(uuid: &RawValue) -> u64 {
    let mut hasher = DefaultHasher::new();
    uuid.get().hash(&mut hasher);
    hasher.finish()
}

impl Links {
    pub(super) fn of(path: &Path) -> Result<Self> {
        let mut lines = Lines::open(path)?;
        let mut nodes: Vec<Node> = Vec::new();
        let mut places: HashMap<u64, u32> = HashMap::new();
        let mut leaf = None;
        while let Some(line) = lines.next()? {
            let Ok(link) = serde_json::from_slice::<Link<'_>>(line) else { continue };
            if let Some(named) = link.leaf_uuid {
                // Fresh as long as nothing is said after it.
                leaf = places.get(&name(named)).copied().or(leaf);
            }
            let Some(uuid) = link.uuid else { continue };
            let Ok(place) = u32::try_from(nodes.len()) else { break };
            let by_name = |uuid: &RawValue| places.get(&name(uuid)).copied();
            let is_compaction = link.subtype.is_some_and(|subtype| subtype.get() == "\"compact_boundary\"");
            let parent =
                link.parent_uuid.and_then(by_name).or_else(|| link.logical_parent_uuid.and_then(by_name));
            // Older versions did not say what a compaction follows: it is what was there.
            let parent = if parent.is_none() && is_compaction { place.checked_sub(1) } else { parent };
            let kind = link.kind.map_or("", RawValue::get);
            let is_result = link.message.is_some_and(|message| message.get().contains("\"tool_result\""));
            let is_spoken = kind == "\"assistant\"" || kind == "\"user\"" && !is_result;
            nodes.push(Node { parent, is_spoken });
            places.insert(name(uuid), place);
            // A title, say, may have an id too, and hangs on nothing.
            if CHAINED.contains(&kind) {
                leaf = Some(place);
            }
        }
        Ok(Self { live: live(&nodes, leaf) })
    }

    /// Tells whether the record at this place, counted among those with an id, was not taken back.
    pub(super) fn is_live(&self, place: usize) -> bool {
        self.live.get(place).copied().unwrap_or(true)
    }
}

/// Walks from the leaf to the root; then adds what hangs beside that path without anybody
/// speaking there: results of tools that ran at the same time.
fn live(nodes: &[Node], leaf: Option<u32>) -> Vec<bool> {
    let mut live = vec![false; nodes.len()];
    let mut next = leaf;
    while let Some(place) = next {
        let place = place as usize;
        // Parents may form a loop.
        if std::mem::replace(&mut live[place], true) {
            break;
        }
        next = nodes[place].parent;
    }
    for (place, node) in nodes.iter().enumerate() {
        if !live[place] && !node.is_spoken {
            live[place] = node.parent.is_none_or(|parent| live[parent as usize]);
        }
    }
    live
}
