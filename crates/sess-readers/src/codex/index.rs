//! What Codex's own indexes know of its threads. They drift, so they only decorate.

use std::{collections::HashMap, path::Path};

use serde::Deserialize;

use crate::{
    Foreign, Listing,
    database::{self, Table},
    files::{self, Lines},
    json,
    session::session_id,
};

#[derive(Default)]
pub(super) struct Index {
    threads: HashMap<String, Thread>,
}

#[derive(Default)]
struct Thread {
    name: Option<String>,
    /// As older releases keep it.
    old_name: Option<String>,
    preview: Option<String>,
    rollout: Option<String>,
    parent: Option<String>,
    nickname: Option<String>,
}

impl Index {
    pub(super) fn of(root: &Path, listing: &mut Listing<'_>) -> Self {
        let mut index = Self::default();
        if let Ok(lines) = Lines::open(&root.join("session_index.jsonl")) {
            index.add_names(lines);
        }
        // The number rises with the schema; an older file may be left beside the current one.
        let number = |name: &str| name.strip_prefix("state_")?.strip_suffix(".sqlite")?.parse::<u32>().ok();
        let states = files::entries(root).unwrap_or_default();
        let state = states.iter().filter(|item| !item.is_dir).max_by_key(|item| number(&item.name));
        if let Some(state) = state.filter(|item| number(&item.name).is_some())
            && let Err(error) = index.add_threads(&state.path)
        {
            listing
                .problem(format!("{error}; sessions are listed without the names and parents that it has"));
        }
        index
    }

    /// Adds the names of a file that only grows: the last of a thread counts.
    fn add_names(&mut self, mut lines: Lines<std::fs::File>) {
        #[derive(Deserialize)]
        struct Named {
            id: String,
            thread_name: String,
        }
        while let Ok(Some(line)) = lines.next() {
            if let Ok(named) = serde_json::from_slice::<Named>(line) {
                self.threads.entry(named.id).or_default().old_name = Some(named.thread_name);
            }
        }
    }

    fn add_threads(&mut self, path: &Path) -> crate::Result<()> {
        let (threads, edges) = database::look(path, |connection| {
            let table = Table::of(connection, "threads")?;
            let columns = ["id", "name", "preview", "first_user_message", "rollout_path", "agent_nickname"];
            let mut threads = Vec::new();
            if table.has("id") {
                let mut statement = connection.prepare(&table.select(&columns))?;
                let mut rows = statement.query(())?;
                while let Some(row) = rows.next()? {
                    let text = |at: usize| database::text(row, at).filter(|text| !text.is_empty());
                    let Some(id) = text(0) else { continue };
                    let preview = text(2).or_else(|| text(3));
                    let rollout = text(4).and_then(|path| path.rsplit(['/', '\\']).next().map(str::to_owned));
                    threads.push((id, text(1), preview, rollout, text(5)));
                }
            }
            let table = Table::of(connection, "thread_spawn_edges")?;
            let mut edges = Vec::new();
            if table.has_all(&["child_thread_id", "parent_thread_id"]) {
                let mut statement =
                    connection.prepare(&table.select(&["child_thread_id", "parent_thread_id"]))?;
                let mut rows = statement.query(())?;
                while let Some(row) = rows.next()? {
                    edges.extend(database::text(row, 0).zip(database::text(row, 1)));
                }
            }
            Ok((threads, edges))
        })?;
        for (id, name, preview, rollout, nickname) in threads {
            let thread = self.threads.entry(id).or_default();
            (thread.name, thread.preview) = (name, preview);
            (thread.rollout, thread.nickname) = (rollout, nickname);
        }
        for (child, parent) in edges {
            self.threads.entry(child).or_default().parent = Some(parent);
        }
        Ok(())
    }

    /// Returns the name of the file that a thread goes on in.
    pub(super) fn rollout(&self, thread: &str) -> Option<&str> {
        self.threads.get(thread)?.rollout.as_deref()
    }

    pub(super) fn decorate(&self, session: &mut Foreign) {
        let Some(thread) = self.threads.get(session.id.as_str()) else { return };
        let name = [&thread.name, &thread.old_name].into_iter().flatten().map(|name| json::title(name));
        if let Some(name) = name.into_iter().find(|name| !name.is_empty()) {
            session.title = name;
        } else if session.title.is_empty() {
            session.title = thread.preview.as_deref().map(json::title).unwrap_or_default();
        }
        if session.parent.is_none() {
            let parent = thread.parent.as_deref().and_then(session_id);
            session.parent = parent.filter(|parent| *parent != session.id);
        }
        if session.parent.is_some() && session.name.is_none() {
            session.name = thread.nickname.clone();
        }
    }
}
