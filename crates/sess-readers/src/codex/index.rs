//! What Codex's own indexes know of its threads. They drift, so they only decorate.

use std::{collections::HashMap, fs, io, path::Path};

use serde::Deserialize;

use crate::{
    Error, Foreign, Listing,
    database::{self, Table},
    files::Lines,
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
        let mut problem = |error: Error| {
            listing
                .problem(format!("{error}; sessions are listed without the names and parents that it has"));
        };
        match Lines::open(&root.join("session_index.jsonl")) {
            Ok(lines) => index.add_names(lines),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => problem(error),
        }
        // The number rises with the schema; an older file may be left beside the current one.
        let number = |name: &str| name.strip_prefix("state_")?.strip_suffix(".sqlite")?.parse::<u32>().ok();
        // A link counts, though it is not followed: what is not read has to be told.
        let states = fs::read_dir(root).into_iter().flatten().flatten();
        let states = states.filter_map(|entry| Some((number(entry.file_name().to_str()?)?, entry.path())));
        if let Some((_, state)) = states.max()
            && let Err(error) = index.add_threads(&state)
        {
            problem(error);
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
            if let Ok(named) = json::from_slice::<Named>(line) {
                self.threads.entry(named.id).or_default().old_name = Some(named.thread_name);
            }
        }
    }

    /// Adds what a database knows. One of a shape that is not known here is refused after what it has was taken.
    fn add_threads(&mut self, path: &Path) -> crate::Result<()> {
        // Older releases keep the names in the other file.
        let has_names = !self.threads.is_empty();
        let (threads, edges, is_known, lost) = database::look(path, |connection| {
            let table = Table::of(connection, "threads")?;
            // One that was just made has nothing yet.
            let is_empty = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)";
            let is_known = table.has("id") && (has_names || table.has("name"))
                || connection.query_row(is_empty, (), |row| row.get(0))?;
            let columns = ["id", "name", "preview", "first_user_message", "rollout_path", "agent_nickname"];
            let (mut threads, mut lost) = (Vec::new(), 0);
            if table.has("id") {
                let mut statement = connection.prepare(&table.select(&columns))?;
                let mut rows = statement.query(())?;
                while let Some(row) = rows.next()? {
                    let text = |at: usize| database::text(row, at).filter(|text| !text.is_empty());
                    let Some(id) = text(0) else {
                        lost += 1;
                        continue;
                    };
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
            Ok((threads, edges, is_known, lost))
        })?;
        for (id, name, preview, rollout, nickname) in threads {
            let thread = self.threads.entry(id).or_default();
            (thread.name, thread.preview) = (name, preview);
            (thread.rollout, thread.nickname) = (rollout, nickname);
        }
        for (child, parent) in edges {
            self.threads.entry(child).or_default().parent = Some(parent);
        }
        if !is_known {
            return Err(database::unknown_schema(path, "threads"));
        }
        if lost > 0 {
            let what = format!("{lost} row(s) of its table `threads` have no id");
            return Err(Error::Format { path: path.to_owned(), what });
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
            (session.title, session.is_title_sure) = (name, true);
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
