//! Snapshots of other agents' sessions: what they keep, what they cost, and what harms them.

use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use sess_app::{ListSessions, Listing, ReadSession, SearchMessages, Signals, Snapshots, Transcript};
use sess_readers::Homes;
use tempfile::TempDir;

use crate::{
    foreign::ALL,
    samples::{copy_all, sample},
    world::World,
};

const LONG: &str = "claude:11111111-2222-4333-8444-555555555555";

/// A machine that other agents were used on.
struct Machine {
    home: TempDir,
    world: World,
}

impl Machine {
    fn of(agents: &[&str]) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        for agent in agents {
            copy_all(&sample(agent), home.path()).expect("copied");
        }
        let homes = Homes::new(home.path().to_owned(), [], Some(home.path().join("acme-api")));
        Self { home, world: World::with(|settings| settings.homes = Some(homes)) }
    }

    /// A machine with one session of Claude Code, of this many messages.
    fn with_long(messages: usize) -> Self {
        let machine = Self::of(&[]);
        fs::create_dir_all(machine.long().parent().expect("a directory")).expect("made");
        fs::write(machine.long(), (1..=messages).map(line).collect::<String>()).expect("written");
        machine
    }

    fn long(&self) -> PathBuf {
        self.home.path().join(".claude/projects/-w/11111111-2222-4333-8444-555555555555.jsonl")
    }

    fn append(&self, messages: std::ops::RangeInclusive<usize>) {
        let mut file = File::options().append(true).open(self.long()).expect("opened");
        file.write_all(messages.map(line).collect::<String>().as_bytes()).expect("appended");
    }

    fn dir(&self) -> PathBuf {
        self.world.home().join("snapshots")
    }

    fn chunks(&self) -> Vec<PathBuf> {
        let mut chunks: Vec<PathBuf> = fs::read_dir(self.dir().join("chunks"))
            .expect("chunks")
            .map(|entry| entry.expect("one").path())
            .collect();
        chunks.sort();
        chunks
    }

    async fn take(&self) -> Snapshots {
        self.world.app.take_snapshots(&self.world.owner(), None, |_, _| {}).await.expect("taken")
    }

    /// Deletes everything that the agents have, as they would.
    fn delete_originals(&self) {
        for entry in fs::read_dir(self.home.path()).expect("a home") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("deleted");
        }
    }

    async fn list(&self) -> Listing {
        let ask = ListSessions { limit: Some(100), include_archived: true, ..ListSessions::default() };
        self.world.app.list_sessions(&self.world.owner(), &ask).await.expect("a list")
    }

    async fn read(&self, reference: &str) -> Transcript {
        let ask = ReadSession {
            session_id: reference.to_owned(),
            max_bytes: Some(200_000),
            ..ReadSession::default()
        };
        self.world.app.read_session(&self.world.owner(), &ask).await.expect(reference)
    }

    async fn find(&self, text: &str) -> Vec<String> {
        let ask = SearchMessages { text: text.to_owned(), ..SearchMessages::default() };
        let found = self.world.app.search(&self.world.owner(), &ask, |_, _| {}).await.expect("found");
        found.hits.into_iter().map(|hit| format!("{} {} {}", hit.session.id, hit.seq, hit.snippet)).collect()
    }
}

/// One message as Claude Code writes it: about a kilobyte that nobody can compress to nothing.
fn line(n: usize) -> String {
    let noise: String = (0..60_u64)
        .map(|k| format!("{:x}", (n as u64 * 977 + k).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let parent = if n == 1 { "null".to_owned() } else { format!("\"u{}\"", n - 1) };
    format!(
        "{{\"type\":\"user\",\"uuid\":\"u{n}\",\"parentUuid\":{parent},\"sessionId\":\"x\",\"cwd\":\"/w\",\
         \"timestamp\":\"2026-11-10T{:02}:{:02}:{:02}Z\",\"message\":{{\"role\":\"user\",\"content\":\"message {n} {noise}\"}}}}\n",
        n / 3600,
        n / 60 % 60,
        n % 60
    )
}

/// Changes a byte in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    fs::write(path, bytes).expect("written");
}

#[tokio::test]
async fn what_was_copied_is_listed_read_and_searched_when_the_originals_are_gone() {
    let machine = Machine::of(&ALL);
    let before = machine.list().await;
    let mut texts = Vec::new();
    for session in &before.sessions {
        texts.push(machine.read(&session.id).await);
    }
    let hits = machine.find("the").await;
    assert!(before.sessions.len() > 12 && hits.len() > 3, "{before:?} {hits:?}");
    let taken = machine.take().await;
    assert!(
        taken.failed.is_empty() && taken.kept.is_empty() && taken.new > before.sessions.len() as u64,
        "{taken:?}"
    );
    machine.delete_originals();
    let after = machine.list().await;
    assert_eq!(after, before);
    for (session, text) in after.sessions.iter().zip(texts) {
        // What could not be read of the original was not copied.
        assert_eq!(machine.read(&session.id).await, Transcript { damaged: 0, ..text }, "{}", session.id);
    }
    assert_eq!(machine.find("the").await, hits);
    // Nothing is left to copy, and nothing is lost by trying.
    let again = machine.take().await;
    assert_eq!((again.looked_at, again.left.snapshots), (0, taken.left.snapshots));
    assert_eq!(machine.list().await, before);
}

#[tokio::test]
async fn a_second_round_writes_nothing_and_everything_is_for_the_owner_alone() {
    let machine = Machine::of(&ALL);
    let first = machine.take().await;
    assert!(first.written_bytes > 0);
    let second = machine.take().await;
    assert_eq!((second.new, second.grown, second.written_bytes), (0, 0, 0), "{second:?}");
    assert_eq!(second.unchanged + second.empty, second.looked_at);
    let mut dirs = vec![machine.dir()];
    while let Some(dir) = dirs.pop() {
        assert_eq!(
            fs::metadata(&dir).expect("there").permissions().mode() & 0o777,
            0o700,
            "{}",
            dir.display()
        );
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let mode = fs::metadata(&path).expect("there").permissions().mode() & 0o777;
                assert_eq!(mode, 0o600, "{}", path.display());
            }
        }
    }
}

#[tokio::test]
async fn what_grows_costs_its_new_end_and_a_fork_costs_what_it_adds() {
    let machine = Machine::with_long(2_000);
    let first = machine.take().await;
    let before = machine.chunks();
    assert!(before.len() > 3, "{before:?}");
    machine.append(2_001..=2_001);
    let second = machine.take().await;
    assert_eq!((second.grown, second.unchanged), (1, 0));
    let after = machine.chunks();
    let shared = after.iter().filter(|chunk| before.contains(chunk)).count();
    assert_eq!(shared, before.len() - 1, "the last chunk is another one, and the old one is swept");
    assert!(second.written_bytes < first.written_bytes / 2, "{second:?} after {first:?}");
    // Its agent copies what was said before a fork.
    fs::copy(machine.long(), machine.long().with_file_name("22222222-2222-4333-8444-555555555555.jsonl"))
        .expect("copied");
    let third = machine.take().await;
    assert_eq!((third.new, machine.chunks()), (1, after));
}

#[tokio::test]
async fn an_original_that_lost_its_beginning_does_not_make_its_snapshot_smaller() {
    let machine = Machine::with_long(1_000);
    machine.take().await;
    let rotated: String = (601..=1_010).map(line).collect();
    fs::write(machine.long(), rotated).expect("rotated");
    let taken = machine.take().await;
    assert_eq!(taken.kept.len(), 1, "{taken:?}");
    assert_eq!((taken.kept[0].id.as_str(), taken.kept[0].lost), (LONG, 600));
    assert_eq!(machine.take().await.unchanged, 1, "it is told once");
    // Cut off, with nothing new.
    fs::write(machine.long(), (601..=700).map(line).collect::<String>()).expect("cut");
    assert_eq!(machine.take().await.kept[0].lost, 910);
    // Other words altogether, fewer and then more.
    fs::write(machine.long(), line(5_000)).expect("replaced");
    assert_eq!(machine.take().await.kept[0].lost, 1_010);
    fs::write(machine.long(), (6_001..=8_000).map(line).collect::<String>()).expect("replaced");
    assert_eq!(machine.take().await.kept[0].lost, 1_011);
    // One of those before comes back among them.
    fs::write(machine.long(), [6_001, 9_000, 5, 8_000].map(line).concat()).expect("replaced");
    assert_eq!(machine.take().await.kept[0].lost, 3_008);
    fs::remove_file(machine.long()).expect("deleted");
    assert_eq!(machine.list().await.sessions[0].num_messages, 3_012);
    let places =
        [(1, 1), (600, 600), (1_010, 1_010), (1_011, 5_000), (1_012, 6_001), (3_011, 8_000), (3_012, 9_000)];
    for (place, n) in places {
        let ask = ReadSession {
            session_id: LONG.to_owned(),
            around: Some(place.to_string()),
            ..ReadSession::default()
        };
        let read = machine.world.app.read_session(&machine.world.owner(), &ask).await.expect("read");
        assert!(read.transcript.contains(&format!("message {n} ")), "{n}");
    }
}

#[tokio::test]
async fn a_damaged_chunk_costs_itself_is_told_and_is_written_again() {
    let machine = Machine::with_long(1_000);
    machine.take().await;
    let chunks = machine.chunks();
    let original = fs::read(machine.long()).expect("read");
    flip(&chunks[0]);
    fs::remove_file(machine.long()).expect("deleted");
    let read = machine.read(LONG).await;
    assert!(
        read.damaged > 0 && read.damaged + read.num_messages == 1_000,
        "{} {}",
        read.damaged,
        read.num_messages
    );
    assert!(!machine.find("message").await.is_empty());
    fs::write(machine.long(), original).expect("it is back");
    machine.append(1_001..=1_001);
    assert_eq!(machine.take().await.grown, 1);
    fs::remove_file(machine.long()).expect("deleted");
    let read = machine.read(LONG).await;
    assert_eq!((read.damaged, read.num_messages), (0, 1_001));
    fs::remove_file(&machine.chunks()[0]).expect("deleted");
    assert!(machine.read(LONG).await.damaged > 0);
}

/// Names the chunks of the long session in their order.
fn chunks_of_long(machine: &Machine) -> Vec<PathBuf> {
    let manifest = machine.dir().join("claude").join(format!("{}.json", &LONG[7..]));
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(manifest).expect("read")).expect("JSON");
    let chunks = manifest["chunks"].as_array().expect("chunks").iter();
    let name = |chunk: &serde_json::Value| format!("{}.zst", chunk["sha256"].as_str().expect("a name"));
    chunks.map(|chunk| machine.dir().join("chunks").join(name(chunk))).collect()
}

/// Reads the snapshot of the long session around a place in it.
async fn kept_around(machine: &Machine, place: usize) -> Transcript {
    let ask = ReadSession {
        session_id: LONG.to_owned(),
        around: Some(place.to_string()),
        from_snapshot: true,
        ..ReadSession::default()
    };
    machine.world.app.read_session(&machine.world.owner(), &ask).await.expect("read")
}

#[tokio::test]
async fn a_chunk_that_cannot_be_read_for_a_moment_is_neither_dropped_nor_swept() {
    let machine = Machine::with_long(1_000);
    machine.take().await;
    let first = chunks_of_long(&machine).remove(0);
    let content = fs::read(&first).expect("read");
    fs::write(machine.long(), (601..=1_010).map(line).collect::<String>()).expect("rotated");
    // What opens no socket as a file is an error of the system, as of a bad disk.
    fs::remove_file(&first).expect("removed");
    let socket = machine.home.path().join("s");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    fs::rename(socket, &first).expect("moved");
    let taken = machine.take().await;
    assert_eq!((taken.grown, taken.kept.len(), taken.failed.len()), (0, 0, 1), "{taken:?}");
    assert!(taken.failed[0].reason.contains("cannot be read"), "{taken:?}");
    fs::remove_file(&first).expect("it was not swept");
    fs::write(&first, content).expect("back");
    assert_eq!(machine.take().await.kept[0].lost, 600);
    assert_eq!(kept_around(&machine, 1).await.num_messages, 1_010);
}

#[tokio::test]
async fn a_damaged_chunk_that_the_original_lacks_stays_named_and_what_the_original_has_takes_its_place() {
    let machine = Machine::with_long(2_000);
    machine.take().await;
    let chunks = chunks_of_long(&machine);
    assert!(chunks.len() > 3, "{chunks:?}");
    let original = fs::read(&chunks[0]).expect("read");
    for chunk in [&chunks[0], &chunks[chunks.len() - 2]] {
        flip(chunk);
    }
    let damaged = kept_around(&machine, 700).await.damaged;
    let rotated: String = (601..=2_010).map(line).collect();
    fs::write(machine.long(), &rotated).expect("rotated");
    let taken = machine.take().await;
    assert_eq!((taken.kept.len(), taken.kept[0].lost), (1, 600), "{taken:?}");
    let read = kept_around(&machine, 700).await;
    assert!(0 < read.damaged && read.damaged < damaged, "{} of {damaged}", read.damaged);
    assert_eq!(read.damaged + read.num_messages, 2_010);
    fs::write(machine.long(), rotated).expect("touched");
    assert_eq!(machine.take().await.unchanged, 1, "it is told once");
    fs::write(&chunks[0], original).expect("it was found again");
    for n in [1, 100, 601, 1_000, 1_200, 1_500, 1_900, 2_000, 2_001, 2_010] {
        let read = kept_around(&machine, n).await;
        assert!(read.transcript.contains(&format!("message {n} ")), "{n}");
        assert_eq!((read.damaged, read.num_messages), (0, 2_010));
    }
}

#[tokio::test]
async fn what_a_crash_left_is_swept_and_what_cannot_be_read_keeps_the_rest() {
    let machine = Machine::with_long(10);
    machine.take().await;
    let before = machine.chunks();
    let orphan = machine.dir().join("chunks").join(format!("{}.zst", "0".repeat(64)));
    let half = [machine.dir().join("chunks/.new-abc"), machine.dir().join("claude/.new-abc")];
    for path in half.iter().chain([&orphan]) {
        fs::write(path, "half").expect("written");
    }
    machine.take().await;
    assert_eq!(machine.chunks(), before);
    assert!(!half[1].exists());
    // A manifest that says nothing any more: nobody knows which chunks are its own.
    let bad = [
        ("bad-1", "{".to_owned()),
        ("bad-2", fs::read_to_string(machine.dir().join("claude").join(format!("{}.json", &LONG[7..]))).expect("read")),
        ("bad-3", r#"{"version": 2}"#.to_owned()),
        (
            "bad-4",
            r#"{"version":1,"source":"claude","id":"bad-4","title":"","updatedAt":1,"numMessages":1,"stamp":"","takenAt":1,
               "chunks":[{"sha256":"../../../../etc/hostname","numEntries":1,"sizeBytes":1}]}"#
                .to_owned(),
        ),
    ];
    for (id, text) in &bad {
        fs::write(machine.dir().join("claude").join(format!("{id}.json")), text).expect("written");
    }
    fs::write(&orphan, "half").expect("written");
    let taken = machine.take().await;
    assert_eq!((taken.left.unreadable, orphan.exists()), (4, true));
    machine.delete_originals();
    assert_eq!(machine.list().await.sessions.len(), 1, "the rest is listed");
    let rows = machine.world.app.snapshots(&machine.world.owner()).await.expect("rows");
    assert_eq!((rows.snapshots.len(), rows.problems.len()), (1, 4), "{rows:?}");
    assert!(rows.snapshots[0].is_original_gone);
    for (id, _) in &bad {
        machine.world.app.forget_snapshot(&machine.world.owner(), &format!("claude:{id}")).await.expect(id);
    }
    assert_eq!(machine.chunks(), before, "now the orphan is gone");
}

#[tokio::test]
async fn forgetting_takes_sub_agents_and_all_bytes_along() {
    let machine = Machine::of(&["claude-code"]);
    machine.take().await;
    let owner = machine.world.owner();
    let forget = |reference: &'static str| machine.world.app.forget_snapshot(&owner, reference);
    let missing = forget("claude:nothing-like-it").await.expect_err("none").to_string();
    assert!(missing.starts_with("there is no snapshot of"), "{missing}");
    assert!(forget("-1").await.is_err());
    let gone = forget("5b0c1f62").await.expect("forgotten");
    let forgotten = gone.forgotten;
    assert!(forgotten.len() > 1 && gone.last_copies.is_empty(), "{forgotten:?}");
    let rows = machine.world.app.snapshots(&owner).await.expect("rows");
    assert!(rows.snapshots.iter().all(|row| !forgotten.contains(&row.id)));
    assert_eq!(machine.chunks().is_empty(), rows.snapshots.is_empty());
    machine.take().await;
    machine.delete_originals();
    let gone = forget("5b0c1f62").await.expect("forgotten");
    assert_eq!((&gone.forgotten, &gone.last_copies), (&forgotten, &forgotten), "nothing is left of them");
}

#[tokio::test]
async fn a_snapshot_is_listed_under_the_owners_name() {
    let machine = Machine::with_long(2);
    machine.take().await;
    let (app, owner) = (&machine.world.app, machine.world.owner());
    let title = async || app.snapshots(&owner).await.expect("a list").snapshots.remove(0).title;
    assert!(title().await.starts_with("message 1"));
    let session = app.resolve(&owner, LONG).await.expect("a row");
    app.rename(&owner, &session, "the long one").await.expect("renamed");
    assert_eq!(title().await, "the long one");
    machine.delete_originals();
    assert_eq!(title().await, "the long one");
}

#[tokio::test]
async fn one_at_a_time_and_only_the_owner() {
    let machine = Machine::with_long(3);
    let agent = machine.world.app.cli_caller(&Signals {
        env: vec![("CLAUDE_CODE_SESSION_ID".to_owned(), "c1".to_owned())],
        ..Signals::default()
    });
    let app = &machine.world.app;
    let refused = app.take_snapshots(&agent, None, |_, _| {}).await.expect_err("refused").to_string();
    assert_eq!(refused, "only the owner may take snapshots of sessions");
    assert!(app.snapshots(&agent).await.is_err() && app.forget_snapshot(&agent, LONG).await.is_err());
    assert!(!machine.dir().exists());
    machine.take().await;
    let lock = File::open(machine.dir().join(".lock")).expect("a lock");
    lock.lock().expect("taken");
    let busy =
        app.take_snapshots(&machine.world.owner(), None, |_, _| {}).await.expect_err("busy").to_string();
    assert!(busy.starts_with("another `sess snapshot` is at work"), "{busy}");
}

#[tokio::test]
async fn what_an_original_lost_is_read_from_the_snapshot_on_demand() {
    let machine = Machine::with_long(20);
    let from = |from_snapshot| {
        let ask = ReadSession { session_id: LONG.to_owned(), from_snapshot, ..ReadSession::default() };
        let (app, owner) = (machine.world.app.clone(), machine.world.owner());
        async move { app.read_session(&owner, &ask).await.map(|read| read.num_messages) }
    };
    let none = from(true).await.expect_err("none");
    assert_eq!(none.to_string(), format!("there is no snapshot of \"{LONG}\"; `sess snapshot` takes one"));
    machine.take().await;
    fs::write(machine.long(), (1..=5).map(line).collect::<String>()).expect("cut");
    let taken = machine.take().await;
    assert_eq!((taken.grown, taken.kept.len(), taken.kept[0].lost), (0, 1, 15));
    assert_eq!((from(false).await.expect("read"), from(true).await.expect("read")), (5, 20));
}

#[tokio::test]
async fn a_message_that_changed_in_a_database_is_copied_though_its_session_says_nothing_of_it() {
    // Where messages are, and what of them holds their text.
    let databases = [
        ("opencode", ".local/share/opencode/opencode.db", "part", "data"),
        ("goose", ".local/share/goose/sessions/sessions.db", "messages", "content_json"),
        ("docker-agent", ".cagent/session.db", "session_items", "message_json"),
        ("crush", "acme-api/.crush/crush.db", "messages", "parts"),
        ("openclaw", ".openclaw/agents/main/agent/openclaw-agent.sqlite", "transcript_events", "event_json"),
        ("cursor", ".config/Cursor/User/globalStorage/state.vscdb", "cursorDiskKV", "value"),
    ];
    for (agent, database, table, column) in databases {
        let machine = Machine::of(&[agent]);
        let path = machine.home.path().join(database);
        let change = |from: &str, to: &str| {
            let connection = rusqlite::Connection::open(&path).expect("opened");
            let sql = format!("UPDATE {table} SET {column} = replace({column}, ?1, ?2)");
            connection.execute(&sql, [from, to]).expect("changed");
        };
        machine.take().await;
        assert_eq!(machine.take().await.written_bytes, 0, "{agent}");
        for end in [".\"}", ".\",", "flaky\"}", "log81.txt\"}"] {
            change(end, &end.replace('"', " Quokka\""));
        }
        let taken = machine.take().await;
        assert!(taken.grown > 0 && taken.kept.is_empty() && taken.failed.is_empty(), "{agent}: {taken:?}");
        assert_eq!(machine.take().await.written_bytes, 0, "{agent}");
        machine.delete_originals();
        assert!(!machine.find("quokka").await.is_empty(), "{agent}");
    }
}

#[tokio::test]
async fn a_session_of_many_files_is_copied_when_one_of_them_changed() {
    let machine = Machine::of(&["opencode"]);
    machine.take().await;
    let part = machine.home.path().join(".local/share/opencode/storage/part/msg_legacy01");
    fs::write(part.join("prt_zz.json"), r#"{"type":"text","text":"Quokka."}"#).expect("written");
    assert_eq!(machine.take().await.grown, 1);
    machine.delete_originals();
    assert_eq!(machine.find("quokka").await.len(), 1);
}

#[tokio::test]
async fn words_that_were_changed_or_cut_stay_in_front_of_those_that_replaced_them() {
    let machine = Machine::with_long(0);
    let say = |texts: &[&str]| {
        let said = texts.iter().enumerate().map(|(n, text)| {
            let parent = n.checked_sub(1).map_or("null".to_owned(), |n| format!("\"u{n}\""));
            format!(
                "{{\"type\":\"user\",\"uuid\":\"u{n}\",\"parentUuid\":{parent},\"sessionId\":\"x\",\"cwd\":\"/w\",\
                 \"timestamp\":\"2026-11-10T00:00:0{n}Z\",\"message\":{{\"role\":\"user\",\"content\":\"{text}\"}}}}\n"
            )
        });
        fs::write(machine.long(), said.collect::<String>()).expect("written");
    };
    let kept = async || {
        let ask = ReadSession { session_id: LONG.to_owned(), from_snapshot: true, ..ReadSession::default() };
        let read = machine.world.app.read_session(&machine.world.owner(), &ask).await.expect("read");
        let words: Vec<&str> = read.transcript.lines().filter(|line| line.starts_with('=')).collect();
        words.join(" ")
    };
    say(&["=one", "=two", "=thr"]);
    assert_eq!(machine.take().await.new, 1);
    // It goes on: nothing of that is lost.
    say(&["=one", "=two", "=three"]);
    assert_eq!(machine.take().await.grown, 1);
    assert_eq!(kept().await, "=one =two =three");
    // Cut, and other words.
    say(&["=on", "=2", "=three", "=four"]);
    let taken = machine.take().await;
    assert_eq!((taken.grown, taken.kept[0].lost, taken.kept[0].changed), (0, 2, 2), "{taken:?}");
    assert_eq!(kept().await, "=one =on =two =2 =three =four");
    // What grows goes on growing, whatever else was lost.
    say(&["=on", "=2", "=three", "=fourteen"]);
    let taken = machine.take().await;
    assert_eq!((taken.kept[0].lost, taken.kept[0].changed), (2, 0), "{taken:?}");
    assert_eq!(kept().await, "=one =on =two =2 =three =fourteen");
    // The file was written again, and says the same: that was told.
    say(&["=on", "=2", "=three", "=fourteen"]);
    let taken = machine.take().await;
    assert_eq!((taken.unchanged, taken.kept.len()), (1, 0), "{taken:?}");
    // All is as it was: the words of in between stay, and as many as were told are not in the original.
    say(&["=one", "=two", "=three", "=fourteen"]);
    assert_eq!(machine.take().await.unchanged, 1);
    assert_eq!(kept().await, "=one =on =two =2 =three =fourteen");
}

/// Where the command line of Cursor keeps a session.
const CURSOR: &str = ".cursor/projects/w/agent-transcripts/c1/c1.jsonl";

/// Writes a file as an agent did at this second.
fn write_at(path: &Path, text: &str, second: u64) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, text).expect("written");
    let at = UNIX_EPOCH + Duration::from_secs(1_794_312_000 + second);
    File::options().append(true).open(path).expect("opened").set_modified(at).expect("dated");
}

/// Writes a session whose messages have neither an id nor a time: what begins with `>` is a reply.
fn write_cursor(machine: &Machine, texts: &[&str], second: u64) {
    let line = |text: &&str| {
        let role = if text.starts_with('>') { "assistant" } else { "user" };
        let content = serde_json::json!([{"type": "text", "text": text}]);
        format!("{}\n", serde_json::json!({"role": role, "message": {"content": content}}))
    };
    write_at(&machine.home.path().join(CURSOR), &texts.iter().map(line).collect::<String>(), second);
}

#[tokio::test]
async fn messages_without_an_id_and_a_time_are_the_same_ones_in_a_longer_file_and_in_a_touched_one() {
    let machine = Machine::of(&[]);
    let kept = async || {
        let ask =
            ReadSession { session_id: "cursor:c1".to_owned(), from_snapshot: true, ..ReadSession::default() };
        let read = machine.world.app.read_session(&machine.world.owner(), &ask).await.expect("read");
        let is_said = |line: &&str| line.starts_with(['=', '>']);
        read.transcript.lines().filter(is_said).collect::<Vec<_>>().join(" ")
    };
    write_cursor(&machine, &["=go", "> a", "=go"], 1);
    assert_eq!(machine.take().await.new, 1);
    write_cursor(&machine, &["=go", "> a", "=go", "> a", "=on"], 2);
    let taken = machine.take().await;
    assert_eq!((taken.grown, taken.kept.len()), (1, 0), "{taken:?}");
    assert_eq!(kept().await, "=go > a =go > a =on");
    write_cursor(&machine, &["=go", "> a", "=go", "> a", "=on"], 3);
    let taken = machine.take().await;
    assert_eq!((taken.unchanged, taken.kept.len()), (1, 0), "nothing was said: {taken:?}");
    // What was dropped or is said in other words stays, and what was kept is not taken for what begins like it.
    write_cursor(&machine, &["> a", "=go", "> a", "=on", "=go ahead", "> x"], 4);
    let taken = machine.take().await;
    assert_eq!((taken.kept[0].lost, taken.kept[0].changed), (1, 0), "{taken:?}");
    assert_eq!(kept().await, "=go > a =go > a =on =go ahead > x");
    write_cursor(&machine, &["> a", "=go", "> a", "=on", "=go ahead", "> x"], 5);
    let taken = machine.take().await;
    assert_eq!((taken.unchanged, taken.kept.len()), (1, 0), "that was told: {taken:?}");
    write_cursor(&machine, &["=go", "> b", "=go"], 6);
    assert_eq!(machine.take().await.kept[0].lost, 5);
    assert_eq!(kept().await, "=go > a =go > a =on =go ahead > x > b");
}

#[tokio::test]
async fn a_session_of_codex_that_is_copied_after_each_line_says_nothing_twice() {
    let machine = Machine::of(&["codex"]);
    let path = machine.home.path().join(
        ".codex/sessions/2026/11/10/rollout-2026-11-10T12-00-00-019a6d10-4b2e-7c31-9f00-1c2d3e4f5061.jsonl",
    );
    let text = fs::read_to_string(&path).expect("read");
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    for end in &ends {
        fs::write(&path, &text[..*end]).expect("written");
        let taken = machine.take().await;
        assert!(taken.kept.is_empty() && taken.failed.is_empty(), "{taken:?} after {}", &text[..*end]);
    }
    let id = "codex:019a6d10-4b2e-7c31-9f00-1c2d3e4f5061";
    let ask = ReadSession { session_id: id.to_owned(), from_snapshot: true, ..ReadSession::default() };
    let kept = machine.world.app.read_session(&machine.world.owner(), &ask).await.expect("read");
    assert_eq!(kept, machine.read(id).await);
}

#[tokio::test]
async fn a_reply_without_an_id_that_goes_on_is_the_same_one() {
    let machine = Machine::of(&["zed"]);
    let database = machine.home.path().join(".local/share/zed/threads/threads.db");
    let say = |second: u32, messages: &serde_json::Value| {
        let connection = rusqlite::Connection::open(&database).expect("opened");
        let sql = "INSERT OR REPLACE INTO threads (id, summary, updated_at, data_type, data) VALUES ('t1', 't1', ?1, 'json', ?2)";
        let data = serde_json::json!({ "messages": messages }).to_string();
        connection.execute(sql, (format!("2026-11-14T00:00:0{second}Z"), data.as_bytes())).expect("written");
    };
    let user = serde_json::json!({"User": {"id": "u1", "content": [{"Text": "list"}]}});
    let agent = |content: serde_json::Value, results: serde_json::Value| serde_json::json!({"Agent": {"content": content, "tool_results": results}});
    let call = |id: &str| serde_json::json!({"ToolUse": {"id": id, "name": "ls", "input": {}}});
    let result = |text: &str| serde_json::json!({"tool_name": "ls", "content": {"Text": text}});
    let said = [
        agent(serde_json::json!([{"Text": "I"}]), serde_json::json!({})),
        agent(serde_json::json!([{"Text": "I look"}, call("c1")]), serde_json::json!({})),
        agent(
            serde_json::json!([{"Text": "I look"}, call("c1"), call("c2")]),
            serde_json::json!({"c1": result("a")}),
        ),
        agent(
            serde_json::json!([{"Text": "I look"}, call("c1"), call("c2")]),
            serde_json::json!({"c1": result("a b"), "c2": result("a")}),
        ),
    ];
    for (second, agent) in (0..).zip(&said) {
        say(second, &serde_json::json!([user, agent]));
        let taken = machine.take().await;
        assert!(taken.kept.is_empty() && taken.new + taken.grown > 0, "{second}: {taken:?}");
    }
    let ask = ReadSession { session_id: "zed:t1".to_owned(), from_snapshot: true, ..ReadSession::default() };
    let kept = machine.world.app.read_session(&machine.world.owner(), &ask).await.expect("read");
    assert_eq!(kept, machine.read("zed:t1").await);
    assert_eq!(kept.num_messages, 4);
}
