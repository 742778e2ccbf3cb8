//! Which events of a transcript are still part of the conversation.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    json, lenient,
    session::{name, on_way_to_root},
};

/// The tree that the events of one transcript form: a few dozen bytes an event.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    places: HashMap<u64, u32>,
    leaf: Option<u32>,
}

/// One event of the tree.
struct Node {
    /// As [`super::Events::each`] tells it.
    start: u64,
    parent: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default, deserialize_with = "lenient::text")]
    id: Option<String>,
    /// Null for the first one; oldest versions have none at all.
    #[serde(default = "absent")]
    parent_id: Value,
    #[serde(default, deserialize_with = "lenient::text")]
    target_id: Option<String>,
}

fn absent() -> Value {
    Value::Bool(false)
}

impl Tree {
    /// Adds an event; none when it cannot be read.
    pub(super) fn add(&mut self, start: u64, line: &[u8]) -> Option<()> {
        let link: Link = json::from_slice(line).ok()?;
        let kind = &*link.kind;
        let Some(id) = link.id.filter(|_| kind != "session") else { return Some(()) };
        let by_name = |id: &str| self.places.get(&name(id)).copied();
        let place = u32::try_from(self.nodes.len()).ok()?;
        let parent = link.parent_id.as_str().and_then(by_name);
        // What starts the context anew goes on from what was there; so does what names an event that
        // was lost.
        let follows = matches!(kind, "reset" | "compaction") || !link.parent_id.is_null();
        let parent = if parent.is_none() && follows { self.leaf } else { parent };
        let target = link.target_id.as_deref().and_then(by_name).filter(|_| kind == "leaf");
        self.nodes.push(Node { start, parent });
        self.places.insert(name(&id), place);
        self.leaf = target.or(Some(place));
        Some(())
    }

    /// Returns where the events begin that were taken back.
    pub(super) fn taken_back(self) -> HashSet<u64> {
        let live = on_way_to_root(self.nodes.len(), self.leaf, |place| self.nodes[place].parent);
        self.nodes.iter().zip(live).filter(|(_, is_live)| !is_live).map(|(node, _)| node.start).collect()
    }
}
