//! Which sessions a viewer reaches, as SQL.

use rusqlite::{Connection, ToSql};
use sess_core::{AgentId, SessionKey};

use super::{messages, sessions};
use crate::{Circle, Reach};

/// What is listed at all: nothing archived or deleted, and of each key the newest transcript.
///
/// The first conditions are those of the partial index, letter for letter.
const LISTED: &str = "s.archived_at IS NULL AND s.deleted_at IS NULL AND NOT EXISTS ( \
     SELECT 1 FROM sessions later WHERE later.key = s.key AND later.n > s.n AND later.deleted_at IS NULL)";
/// The same with archived ones.
const KEPT: &str = "s.deleted_at IS NULL AND NOT EXISTS ( \
     SELECT 1 FROM sessions later WHERE later.key = s.key AND later.n > s.n AND later.deleted_at IS NULL)";

/// A session and what it spawned, at any depth; every key once, so that a loop ends.
const TREE: &str = "WITH RECURSIVE tree (key) AS ( \
     SELECT ? UNION SELECT child.key FROM tree JOIN sessions child ON child.parent = tree.key) ";

/// `sess_core::SessionKey::kind`, as SQL. The agent's part of a key ends at its second colon, the
/// channel's at the next one.
const KIND: &str = "CASE \
     WHEN substr(s.key, 1, 6) <> 'agent:' \
     THEN CASE substr(s.key, 1, 1) WHEN 'c' THEN 'cron' WHEN 'h' THEN 'hook' ELSE 'node' END \
     WHEN substr(s.key, 7 + instr(substr(s.key, 7), ':')) = 'main' THEN 'main' \
     WHEN substr(substr(s.key, 7 + instr(substr(s.key, 7), ':')), \
         1 + instr(substr(s.key, 7 + instr(substr(s.key, 7), ':')), ':')) GLOB 'group:*' \
       OR substr(substr(s.key, 7 + instr(substr(s.key, 7), ':')), \
         1 + instr(substr(s.key, 7 + instr(substr(s.key, 7), ':')), ':')) GLOB 'channel:*' THEN 'group' \
     ELSE 'other' END";

const NEWEST_FIRST: &str = "ORDER BY s.updated_at DESC, s.key LIMIT ? OFFSET ?";

pub(super) fn list(
    reader: &Connection,
    reach: &Reach,
    offset: u64,
    limit: usize,
) -> rusqlite::Result<Vec<(i64, sessions::Readable)>> {
    let Conditions { with, wheres, mut values } = conditions(reach);
    values.push(Box::new(messages::signed(limit as u64)));
    values.push(Box::new(messages::signed(offset)));
    let columns = sessions::COLUMNS;
    let sql = format!("{with}SELECT {columns} FROM sessions s WHERE {wheres} {NEWEST_FIRST}");
    let mut statement = reader.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(&values), sessions::from_row)?;
    rows.collect()
}

pub(super) fn count(reader: &Connection, reach: &Reach, most: u64) -> rusqlite::Result<u64> {
    let Conditions { with, wheres, mut values } = conditions(reach);
    values.push(Box::new(messages::signed(most)));
    let sql = format!("{with}SELECT count(*) FROM (SELECT 1 FROM sessions s WHERE {wheres} LIMIT ?)");
    let count: i64 =
        reader.prepare_cached(&sql)?.query_row(rusqlite::params_from_iter(&values), |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

struct Conditions {
    with: &'static str,
    wheres: String,
    /// In the order of their places.
    values: Vec<Box<dyn ToSql>>,
}

fn conditions(reach: &Reach) -> Conditions {
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    let mut wheres = if reach.with_archived { KEPT } else { LISTED }.to_owned();
    let mut with = "";
    let key = |values: &mut Vec<Box<dyn ToSql>>, key: &SessionKey| {
        values.push(Box::new(key.as_str().to_owned()));
    };
    match &reach.circle {
        Circle::Everything => {}
        Circle::Own(own) => {
            key(&mut values, own);
            wheres.push_str(" AND s.key = ?");
        }
        Circle::Tree(own) => {
            with = TREE;
            key(&mut values, own);
            wheres.push_str(" AND s.key IN (SELECT key FROM tree)");
        }
        Circle::Agents { own, agents, agentless } => {
            with = TREE;
            key(&mut values, own);
            let places = vec!["?"; agents.len()].join(", ");
            // The sign keeps the order of the index: most sessions are reached mostly.
            let reached = format!(
                " AND (+s.key IN (SELECT key FROM tree) OR {OWNER} IN ({places}){})",
                if *agentless { " OR substr(s.key, 1, 6) <> 'agent:'" } else { "" }
            );
            wheres.push_str(&reached);
            values.extend(agents.iter().map(|agent| Box::new(owner(agent)) as Box<dyn ToSql>));
        }
    }
    if !reach.kinds.is_empty() {
        let places = vec!["?"; reach.kinds.len()].join(", ");
        wheres.push_str(&format!(" AND {KIND} IN ({places})"));
        values.extend(reach.kinds.iter().map(|kind| Box::new(kind.as_str()) as Box<dyn ToSql>));
    }
    if let Some(since) = reach.active_since {
        wheres.push_str(" AND s.updated_at >= ?");
        values.push(Box::new(since.as_millis()));
    }
    if let Some(agent) = &reach.agent {
        wheres.push_str(&format!(" AND {OWNER} = ?"));
        values.push(Box::new(owner(agent)));
    }
    if let Some(search) = &reach.search {
        wheres.push_str(&format!(" AND {SEARCHED}"));
        let plain = search.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        let pattern = format!("%{plain}%");
        values.extend((0..SEARCHED_PLACES).map(|_| Box::new(pattern.clone()) as Box<dyn ToSql>));
    }
    if !reach.sources.is_empty() {
        let places = vec!["?"; reach.sources.len()].join(", ");
        wheres.push_str(&format!(" AND s.source IN ({places})"));
        values.extend(reach.sources.iter().map(|source| Box::new(source.as_str()) as Box<dyn ToSql>));
    }
    sessions::below("s.cwd", &reach.dirs, &mut wheres, &mut values);
    if reach.without_bare {
        wheres.push_str(&format!(" AND {}", sessions::not_bare("s")));
    }
    sessions::none_of("s.id", &reach.except, &mut wheres, &mut values);
    Conditions { with, wheres, values }
}

/// What is searched: title, key, directory, and the names that facts have. Facts that cannot be read match nothing.
const SEARCHED: &str = "(s.title LIKE ? ESCAPE '\\' OR s.key LIKE ? ESCAPE '\\' \
     OR ifnull(s.cwd, '') LIKE ? ESCAPE '\\' OR CASE WHEN json_valid(s.facts) THEN s.facts ->> '$.displayName' LIKE ? ESCAPE '\\' \
     OR s.facts ->> '$.label' LIKE ? ESCAPE '\\' ELSE 0 END)";
const SEARCHED_PLACES: usize = 5;

/// The part of a key that says whose it is; computed from the index, which has the key.
const OWNER: &str = "substr(s.key, 1, 6 + instr(substr(s.key, 7), ':'))";

fn owner(agent: &AgentId) -> String {
    format!("agent:{agent}:")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{Sqlite, deletion, feed};

    #[test]
    fn a_page_is_read_in_its_order_and_what_is_rare_by_its_index() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Sqlite::open(dir.path()).expect("a store");
        let plan = |sql: &str| store.query_plan(sql);
        let own: SessionKey = "agent:a:main".parse().expect("a key");
        let agents = vec!["a".parse().expect("an agent")];
        let all = Circle::Agents { own: own.clone(), agents, agentless: true };
        for circle in [Circle::Everything, all] {
            let reach = Reach::all(circle);
            let Conditions { with, wheres, .. } = conditions(&reach);
            let steps = plan(&format!("{with}SELECT s.n FROM sessions s WHERE {wheres} {NEWEST_FIRST}"));
            assert!(steps.contains("SCAN s USING INDEX sessions_active"), "{steps}");
            assert!(steps.contains("sessions_by_key (key=? AND n>?)"), "{steps}");
            assert!(!steps.contains("TEMP B-TREE"), "{steps}");
        }
        let reach = Reach::all(Circle::Tree(own));
        let Conditions { with, wheres, .. } = conditions(&reach);
        let steps = plan(&format!("{with}SELECT s.n FROM sessions s WHERE {wheres} {NEWEST_FIRST}"));
        assert!(steps.contains("SEARCH child USING INDEX sessions_by_parent (parent=?)"), "{steps}");
        assert!(steps.contains("SEARCH s USING INDEX sessions_by_key (key=?)"), "{steps}");
        for (sql, step) in deletion::questions() {
            assert!(plan(&sql).contains(step), "{sql}: {}", plan(&sql));
        }
        let steps = plan(feed::NEWEST_PLAN_CHANGE);
        assert!(steps.contains("SEARCH e USING INDEX events_of_plans (session=?)"), "{steps}");
        assert!(!steps.contains("TEMP B-TREE"), "{steps}");
    }
}
