//! Every agent's database in bad shape: what can be read is, and nothing changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, Permissions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use rusqlite::Connection;

use crate::homes::{copy, copy_all, list, sample, written};

/// Agents with a database, and where it is.
const DATABASES: [(&str, &str); 7] = [
    ("opencode", ".local/share/opencode/opencode.db"),
    ("goose", ".local/share/goose/sessions/sessions.db"),
    ("docker-agent", ".cagent/session.db"),
    ("openclaw", ".openclaw/agents/main/agent/openclaw-agent.sqlite"),
    ("crush", "acme-api/.crush/crush.db"),
    ("zed", ".local/share/zed/threads/threads.db"),
    ("cursor", ".config/Cursor/User/globalStorage/state.vscdb"),
];

/// Returns every file below a directory, with a hash of what is in it.
fn files(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let mut hasher = DefaultHasher::new();
                fs::read(&path).expect("read").hash(&mut hasher);
                found.insert(path, hasher.finish());
            }
        }
    }
    found
}

/// Reads everything in a home, and checks that no file of it was made or changed.
#[track_caller]
pub fn read_only(home: &Path) -> String {
    let before = files(home);
    let text = written(home);
    assert_eq!(files(home), before, "something was written");
    text
}

/// Another program that has a database open, with all that is in it in the log.
///
/// Connections of one program share what they keep beside a database, so this has to be another.
struct Agent {
    process: Child,
    /// Kept, since it writes to it as it ends.
    output: BufReader<ChildStdout>,
}

impl Agent {
    /// Starts it; `sql` is what it has just run.
    fn open(path: &Path, sql: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "databases::as_an_agent", "--nocapture"])
            .env(OPEN, path)
            .env(RUN, sql)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut output = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains(READY) {
            line.clear();
            assert_ne!(output.read_line(&mut line).expect("read"), 0, "{} is not opened", path.display());
        }
        Self { process, output }
    }

    /// Ends it as a crash would.
    fn crash(mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("gone");
    }

    fn close(mut self) {
        drop(self.process.stdin.take());
        self.output.read_to_end(&mut Vec::new()).expect("read");
        assert!(self.process.wait().expect("gone").success());
    }
}

const OPEN: &str = "SESS_TEST_OPEN";
const RUN: &str = "SESS_TEST_RUN";
const READY: &str = "the database is open";

/// Does nothing, unless it is started by [`Agent::open`].
#[test]
#[expect(clippy::disallowed_methods, reason = "the variables are how a test speaks to itself")]
fn as_an_agent() {
    let (Some(path), Ok(sql)) = (std::env::var_os(OPEN), std::env::var(RUN)) else { return };
    let writer = in_log(Path::new(&path));
    writer.execute_batch(&sql).expect("run");
    println!("\n{READY}");
    io::stdin().read_to_end(&mut Vec::new()).expect("read");
}

/// Puts a database into the mode with a log, with all that is in it in the log.
fn in_log(path: &Path) -> Connection {
    let old = path.with_extension("old");
    fs::rename(path, &old).expect("moved");
    let writer = Connection::open(path).expect("made");
    writer.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;").expect("a log");
    writer.execute("ATTACH ?1 AS old", [old.to_str()]).expect("attached");
    let tables: Vec<(String, String)> = writer
        .prepare("SELECT name, sql FROM old.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        .and_then(|mut it| it.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .expect("tables");
    for (table, sql) in tables {
        writer.execute_batch(&sql).expect("the same schema");
        writer.execute(&format!("INSERT INTO main.{table} SELECT * FROM old.{table}"), []).expect("copied");
    }
    writer.execute_batch("DETACH old").expect("detached");
    fs::remove_file(old).expect("removed");
    writer
}

#[test]
fn reading_writes_nothing() {
    for (agent, place) in DATABASES {
        let home = copy(agent);
        let path = home.path().join(place);
        let text = read_only(home.path());
        assert!(text.contains("Told"), "{agent}: {text}");
        let program = Agent::open(&path, "");
        assert!(fs::metadata(&path).expect("there").len() <= 4_096, "{agent}: all of it is in the log");
        assert_eq!(read_only(home.path()), text, "{agent}: open");
        program.crash();
        assert_eq!(read_only(home.path()), text, "{agent}: crashed");
        fs::remove_file(format!("{}-shm", path.display())).expect("removed");
        assert_eq!(read_only(home.path()), text, "{agent}: crashed, and the machine too");
        let home = copy(agent);
        Agent::open(&home.path().join(place), "").close();
        assert_eq!(read_only(home.path()), text, "{agent}: closed");
    }
}

#[test]
fn a_locked_database_is_read_as_it_was() {
    const LOCK: &str = "BEGIN EXCLUSIVE; CREATE TABLE later (n);";
    for (agent, path) in DATABASES {
        let home = copy(agent);
        let path = home.path().join(path);
        let text = written(home.path());
        let writer = Connection::open(&path).expect("opened");
        writer.execute_batch(LOCK).expect("locked");
        assert_eq!(read_only(home.path()), text, "{agent}");
        writer.execute_batch("ROLLBACK").expect("unlocked");
        drop(writer);
        let program = Agent::open(&path, LOCK);
        assert_eq!(read_only(home.path()), text, "{agent}, with a log");
        program.crash();
    }
}

/// Checks that a damaged database costs one problem, and nothing of what is beside it.
#[track_caller]
fn check_damaged(agent: &str, path: &str, damage: impl Fn(&Path)) {
    let home = copy(agent);
    copy_all(&sample("claude-code"), home.path()).expect("copied");
    damage(&home.path().join(path));
    let (sessions, problems) = list(home.path());
    let beside = sessions.iter().filter(|session| session.source == sess_core::Source::Claude);
    assert_eq!(beside.count(), 2, "{agent}");
    assert_eq!(problems.len(), 1, "{agent}: {problems:?}");
    assert!(problems[0].contains(&*home.path().join(path).to_string_lossy()), "{agent}: {problems:?}");
}

#[test]
fn a_database_that_cannot_be_read_costs_itself_and_is_told_of() {
    for (agent, path) in DATABASES {
        // Nothing in it, a header and nothing else, its beginning overwritten, text.
        check_damaged(agent, path, |path| fs::write(path, "").expect("written"));
        check_damaged(agent, path, |path| {
            let bytes = fs::read(path).expect("read");
            fs::write(path, &bytes[..100]).expect("written");
        });
        check_damaged(agent, path, |path| {
            let mut bytes = fs::read(path).expect("read");
            bytes[100..2_000].fill(0xff);
            fs::write(path, bytes).expect("written");
        });
        check_damaged(agent, path, |path| fs::write(path, "not a database").expect("written"));
        // Of some other program.
        check_damaged(agent, path, |path| {
            fs::remove_file(path).expect("removed");
            let other = Connection::open(path).expect("made");
            other
                .execute_batch("CREATE TABLE sessions (n INTEGER); CREATE TABLE threads (n)")
                .expect("a table");
        });
        // Not ours to read; for the superuser there is no such thing.
        let mut forbidden = tempfile::NamedTempFile::new().expect("a file");
        forbidden.as_file_mut().set_permissions(Permissions::from_mode(0o000)).expect("forbidden");
        if fs::read(forbidden.path()).is_err() {
            check_damaged(agent, path, |path| {
                fs::set_permissions(path, Permissions::from_mode(0o000)).expect("forbidden");
            });
        }
        // Somewhere else.
        check_damaged(agent, path, |path| {
            let elsewhere = path.with_extension("elsewhere");
            fs::rename(path, &elsewhere).expect("moved");
            symlink(elsewhere, path).expect("linked");
        });
        let home = copy(agent);
        let target = home.path().join(path);
        fs::rename(&target, home.path().join("elsewhere")).expect("moved");
        symlink(home.path().join("elsewhere"), &target).expect("linked");
        let problems = list(home.path()).1;
        assert!(problems[0].contains("it is a link, and links are not followed"), "{problems:?}");
    }
}

#[test]
fn a_directory_at_the_place_of_a_database_is_told_of() {
    for (agent, path) in DATABASES {
        check_damaged(agent, path, |path| {
            fs::remove_file(path).expect("removed");
            fs::create_dir(path).expect("made");
        });
    }
}

#[test]
fn rows_that_lost_their_ids_are_told_of() {
    let check = |agent: &str, sql: &str| {
        let home = copy(agent);
        let (_, path) = DATABASES.into_iter().find(|(name, _)| *name == agent).expect("known");
        let path = home.path().join(path);
        let count = list(home.path()).0.iter().filter(|session| session.place.path == path).count();
        let database = Connection::open(&path).expect("opened");
        // The schema may want an id, and damage asks nobody.
        let schema = "PRAGMA foreign_keys = OFF; PRAGMA writable_schema = ON;
            UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', '') WHERE type = 'table';
            PRAGMA writable_schema = RESET;";
        database.execute_batch(schema).expect("lenient");
        database.execute_batch(sql).unwrap_or_else(|error| panic!("{agent}: {error}"));
        drop(database);
        let (sessions, problems) = list(home.path());
        assert!(!sessions.iter().any(|session| session.place.path == path), "{agent}");
        let told = format!("{count} session(s) in {} cannot be read and are left out", path.display());
        assert_eq!(problems, [told]);
    };
    check("opencode", "UPDATE session SET id = NULL");
    check("goose", "UPDATE sessions SET id = NULL");
    check("docker-agent", "UPDATE sessions SET id = NULL");
    check("openclaw", "UPDATE session_windows SET session_id = ''");
    check("crush", "UPDATE sessions SET id = NULL");
    check("zed", "UPDATE threads SET id = NULL");
    check("zed", "UPDATE threads SET id = ''");
}

#[test]
fn bytes_that_came_between_others_never_cost_a_session_in_silence() {
    for (agent, path) in DATABASES {
        let bytes = fs::read(sample(agent).join(path)).expect("read");
        let home = copy(agent);
        let ids = || list(home.path()).0.into_iter().map(|it| it.id.to_string()).collect::<BTreeSet<_>>();
        let before = ids();
        for at in (0..bytes.len()).step_by(1_024) {
            for more in [&b"\xff\xfe\xc0"[..], b"\0", b"0123456789"] {
                let damaged = [&bytes[..at], more, &bytes[at..]].concat();
                fs::write(home.path().join(path), damaged).expect("written");
                let (lost, problems) = (&before - &ids(), list(home.path()).1);
                assert!(
                    problems.len() == 1 || problems.is_empty() && lost.is_empty(),
                    "{agent} {at}: {lost:?}"
                );
            }
        }
    }
}

#[test]
fn pages_overwritten_in_the_middle_never_cost_more_than_the_database() {
    for (agent, path) in DATABASES {
        let bytes = fs::read(sample(agent).join(path)).expect("read");
        for page in 1..bytes.len() / 4_096 {
            let home = copy(agent);
            copy_all(&sample("claude-code"), home.path()).expect("copied");
            let mut damaged = bytes.clone();
            damaged[page * 4_096..][..4_096].fill(0x55);
            fs::write(home.path().join(path), damaged).expect("written");
            let text = written(home.path());
            assert!(text.contains("=== claude:agent-a7c1d2e3f4051627"), "{agent}, page {page}: {text}");
        }
    }
}

/// Changes a database, and returns what is read of it.
pub fn changed(agent: &str, sql: &str) -> String {
    let home = copy(agent);
    let (_, path) = DATABASES.into_iter().find(|(name, _)| *name == agent).expect("known");
    let database = Connection::open(home.path().join(path)).expect("opened");
    database.execute_batch(sql).unwrap_or_else(|error| panic!("{agent}: {error}"));
    drop(database);
    read_only(home.path())
}

#[test]
fn columns_that_older_and_newer_versions_lack_are_done_without() {
    let check = |agent: &str, table: &str, columns: &[&str], same: &str| {
        let drops: Vec<_> =
            columns.iter().map(|column| format!("ALTER TABLE {table} DROP COLUMN {column};")).collect();
        let text = changed(agent, &format!("ALTER TABLE {table} ADD COLUMN later TEXT; {}", drops.concat()));
        assert!(!text.contains("problem"), "{agent}: {text}");
        assert!(text.contains(same), "{agent}: {text}");
    };
    let columns = ["title", "directory", "parent_id", "agent", "time_archived", "revert"];
    check("opencode", "session", &columns, "Refill uses wall clock");
    let columns = ["name", "description", "session_type", "archived_at", "working_dir", "created_at"];
    check("goose", "sessions", &columns, "It lacks set -e.");
    check("goose", "messages", &["metadata_json", "message_id"], "It lacks set -e.");
    check("docker-agent", "sessions", &["title", "working_dir", "created_at"], "Added /healthz.");
    check("docker-agent", "session_items", &["summary_text", "implicit"], "Added /healthz.");
    check("openclaw", "transcript_events", &["event_zstd", "navigation_json"], "Sent: log81.txt");
    check("openclaw", "session_nodes", &["display_name", "label", "archived_at"], "Sent: log81.txt");
    check("crush", "sessions", &["parent_session_id", "summary_message_id"], "port 9000 twice");
    check("crush", "messages", &["model", "is_summary_message"], "port 9000 twice");
    let columns = ["parent_id", "folder_paths", "folder_paths_order", "created_at"];
    check("zed", "threads", &columns, "In threads.db.");
}

#[test]
fn a_message_that_cannot_be_read_costs_itself() {
    let check = |agent: &str, sql: &str, left: &str| {
        let text = changed(agent, sql);
        assert!(text.contains("bad: 1,"), "{agent}: {text}");
        assert!(text.contains(left), "{agent}: {text}");
        assert!(!text.contains("problem"), "{agent}: {text}");
    };
    check("opencode", "UPDATE part SET data = '{\"type' WHERE id = 'prt_12'", "Refill uses wall clock");
    check("opencode", "UPDATE message SET data = '[]' WHERE id = 'msg_01'", "Refill uses wall clock");
    check("goose", "UPDATE messages SET content_json = x'ff00' WHERE id = 2", "It lacks set -e.");
    check(
        "docker-agent",
        "UPDATE session_items SET message_json = '{' WHERE position = 1",
        "Added /healthz.",
    );
    check("openclaw", "UPDATE transcript_events SET event_json = '' WHERE seq = 3", "Sent: log81.txt");
    check("crush", "UPDATE messages SET parts = '{}' WHERE id = 'm-1'", "port 9000 twice");
}

#[test]
fn damaged_text_costs_its_bytes_and_a_long_one_is_read() {
    // Three million bytes, and among them one that is no UTF-8.
    let long = "CAST('LONG' || printf('%.*c', 3000000, 'y') || x'ff' || 'END' AS TEXT)";
    let check = |agent: &str, table: &str, column: &str, word: &str| {
        let sql = format!("UPDATE {table} SET {column} = replace({column}, '{word}', {long})");
        let text = changed(agent, &sql);
        assert!(text.contains("LONGyyyy") && text.contains("yyyy\u{fffd}END"), "{agent}: {}", text.len());
        assert!(text.contains("bad: 0,"), "{agent}");
    };
    check("opencode", "part", "data", "Refill uses wall clock; use Instant.");
    check("goose", "messages", "content_json", "It lacks set -e.");
    check("docker-agent", "session_items", "message_json", "Added /healthz.");
    check("openclaw", "transcript_events", "event_json", "Sent: log81.txt");
    check("crush", "messages", "parts", "port 9000 twice");
    let sql = format!(
        r#"UPDATE threads SET data_type = 'json',
           data = '{{"messages":[{{"User":{{"content":[{{"Text":"' || {long} || '"}}]}}}}]}}'"#
    );
    let text = changed("zed", &sql);
    assert!(text.contains("yyyy\u{fffd}END") && text.contains("bad: 0,"), "zed: {}", text.len());
}

#[test]
fn half_a_surrogate_pair_in_a_database_costs_itself() {
    let check = |agent: &str, table: &str, column: &str, word: &str| {
        let half = r"half \ud83d of a pair, \\ud83d";
        let sql = format!(
            "UPDATE {table} SET {column} = replace(CAST({column} AS TEXT), '{word}', '{half} {word}')"
        );
        let text = changed(agent, &sql);
        assert!(text.contains("half \u{fffd} of a pair, \\ud83d"), "{agent}: {text}");
        assert!(text.contains("bad: 0,") && !text.contains("bad: 1,"), "{agent}: {text}");
    };
    check("opencode", "part", "data", "Refill uses wall clock; use Instant.");
    check("goose", "messages", "content_json", "It lacks set -e.");
    check("docker-agent", "session_items", "message_json", "Added /healthz.");
    check("openclaw", "transcript_events", "event_json", "Sent: log81.txt");
    check("crush", "messages", "parts", "port 9000 twice");
    check("cursor", "cursorDiskKV", "value", "Why is this stale?");
    let sql = r#"UPDATE threads SET data_type = 'json',
        data = '{"messages":[{"User":{"content":[{"Text":"half \ud83d"}]}}]}'"#;
    let text = changed("zed", sql);
    assert!(text.contains("half \u{fffd}") && text.contains("bad: 0,"), "zed: {text}");
}

#[test]
fn missing_and_future_times_and_parents_in_a_circle_are_borne() {
    let check = |agent: &str, sql: &str, told: &str| {
        let text = changed(agent, sql);
        assert!(text.contains(told), "{agent}: {text}");
        assert!(!text.contains("problem"), "{agent}: {text}");
    };
    let future = "253402207200000";
    let wrong = changed("opencode", &format!("UPDATE session SET time_updated = {future}"));
    assert!(wrong.contains("updated: 2") && !wrong.contains("updated: 9999-"), "{wrong}");
    check("opencode", "UPDATE message SET time_created = 9e99; UPDATE part SET data = data", "## assistant");
    // What is said to have started itself is a session like others.
    let check_top = |agent: &str, sql: &str| {
        let text = changed(agent, sql);
        assert!(text.contains("=== ") && !text.contains("parent: "), "{agent}: {text}");
    };
    check_top("opencode", "UPDATE session SET parent_id = id");
    check(
        "goose",
        "UPDATE sessions SET updated_at = NULL, created_at = '2026-11-12T08:00:00'",
        "updated: 2026-11",
    );
    check("goose", "UPDATE messages SET created_timestamp = 253402207200", "It lacks set -e.");
    check(
        "docker-agent",
        "UPDATE sessions SET created_at = '2026-11-09 18:00:00.5 +0200 CEST m=+0.1'",
        "created: 2026-11-09T16:00:00.500Z",
    );
    check_top("docker-agent", "UPDATE sessions SET parent_id = id, created_at = NULL");
    check_top("openclaw", "UPDATE session_nodes SET spawned_by = session_key, label = 'me'");
    check(
        "openclaw",
        "UPDATE transcript_events SET event_json = replace(event_json, '\"parentId\": null', '\"parentId\": \"e6\"')",
        "Sent: log81.txt",
    );
    check("crush", "UPDATE sessions SET parent_session_id = id, updated_at = 1794470420123", "08:00:20.123Z");
}

#[test]
fn a_session_without_a_time_has_that_of_its_last_message_or_of_its_file() {
    // What stands for no time: nothing, what is no time, zero and less.
    for none in ["NULL", "''", "'soon'", "0", "-1", "-1794301200000", "'0001-01-01T00:00:00Z'"] {
        let check = |agent: &str, session: &str, messages: Option<&str>, last: Option<&str>| {
            let home = copy(agent);
            let (_, path) = DATABASES.into_iter().find(|(name, _)| *name == agent).expect("known");
            let database = Connection::open(home.path().join(path)).expect("opened");
            // The schema may want a number, and damage asks nobody.
            let schema = "PRAGMA writable_schema = ON;
                UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', '') WHERE type = 'table';
                PRAGMA writable_schema = RESET;";
            database.execute_batch(schema).expect("lenient");
            let run = |sql: &str| {
                database.execute_batch(&sql.replace("NONE", none)).unwrap_or_else(|error| {
                    panic!("{agent}: {sql}: {error}");
                });
            };
            let times = || {
                let (sessions, problems) = list(home.path());
                assert_eq!(problems, Vec::<String>::new(), "{agent} {none}");
                let found = sessions.into_iter().filter(|it| it.place.path == home.path().join(path));
                found.map(|it| (it.created_at, it.updated_at, it.changed_at())).collect::<Vec<_>>()
            };
            run(session);
            if let Some(last) = last {
                let found: Vec<_> =
                    times().into_iter().map(|(created, at, _)| (created, at.to_string())).collect();
                assert!(found.contains(&(None, last.to_owned())), "{agent} {none}: {found:?}");
            }
            run(messages.unwrap_or_default());
            let found = times();
            assert!(!found.is_empty(), "{agent}");
            for (created_at, updated_at, changed_at) in found {
                assert_eq!((created_at, Some(updated_at)), (None, changed_at), "{agent} {none}");
            }
        };
        check(
            "opencode",
            "UPDATE session SET time_created = NONE, time_updated = NONE",
            Some("UPDATE message SET time_created = NONE"),
            Some("2026-11-09T04:53:25Z"),
        );
        check(
            "goose",
            "UPDATE sessions SET created_at = NONE, updated_at = NONE",
            Some("UPDATE messages SET created_timestamp = NONE"),
            Some("2026-11-12T08:01:40Z"),
        );
        check(
            "crush",
            "DROP TRIGGER IF EXISTS update_sessions_updated_at; DROP TRIGGER IF EXISTS update_messages_updated_at;
             UPDATE sessions SET created_at = NONE, updated_at = NONE",
            Some("UPDATE messages SET created_at = NONE"),
            None,
        );
        check("zed", "UPDATE threads SET created_at = NONE, updated_at = NONE", None, None);
        check(
            "docker-agent",
            "UPDATE sessions SET created_at = NONE",
            Some("UPDATE session_items SET message_json = replace(message_json, 'created_at', 'x')"),
            None,
        );
    }
}

#[test]
fn a_database_that_lacks_a_table_is_refused_by_the_name_of_that_table() {
    let check = |agent: &str, table: &str| {
        let text = changed(agent, &format!("PRAGMA foreign_keys = OFF; DROP TABLE {table};"));
        let told =
            format!("it has no table `{table}` with the columns that sessions are read from; what is in it");
        assert!(text.contains(&told), "{agent}: {text}");
    };
    for table in ["session", "message"] {
        check("opencode", table);
    }
    for agent in ["goose", "crush"] {
        check(agent, "sessions");
        check(agent, "messages");
    }
    check("docker-agent", "sessions");
    check("docker-agent", "session_items");
    check("openclaw", "session_windows");
    check("openclaw", "transcript_events");
    check("zed", "threads");
    check("cursor", "cursorDiskKV");
}
