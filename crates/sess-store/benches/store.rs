//! The store's figures beside their bounds, on the same machine in the same run.
//!
//! `cargo bench -p sess-store`; `SESS_BENCH_SCALE=0.01` shrinks the data for a
//! smoke run, an argument runs only the parts whose name contains it. The bound
//! of a write is a bare group-commit writer; of a read, the bare SQL on the same
//! file. Rounds of both are interleaved, and the median round counts.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, params};
use sess_core::{
    MessageId, SessionId, Source, Timestamp,
    message::{Body, Role},
    session::NewSession,
};
use sess_store::{
    ImportedSession, Matching, NewMessage, PlanWrite, SearchQuery, SessionFilter, Span, Store, Term,
};
use tokio::{runtime::Runtime, sync::oneshot, task::JoinSet};

fn main() {
    let part = std::env::args().nth(1).filter(|part| !part.starts_with('-')).unwrap_or_default();
    let bench = Bench { scale: scale(), runtime: Runtime::new().expect("a runtime") };
    println!("{:<54} {:>12} {:>12} {:>7}   to reach", "figure", "ours", "bound", "ratio");
    let run = |name: &str, work: fn(&Bench)| {
        if name.contains(&part) {
            work(&bench);
        }
    };
    run("append", append);
    run("plan", plan_write);
    run("last", last_messages);
    run("notice", notice);
    run("list", recent_sessions);
    run("search", search);
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark is its own binary, and reads its one setting here"
)]
fn scale() -> f64 {
    std::env::var("SESS_BENCH_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0)
}

struct Bench {
    scale: f64,
    runtime: Runtime,
}

impl Bench {
    fn scaled(&self, full: u64) -> u64 {
        #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a rough number of rows")]
        let scaled = (full as f64 * self.scale) as u64;
        scaled.max(100)
    }
}

/// What a figure has to reach.
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

fn print(figure: &str, ours: &str, bound: &str, ratio: f64, goal: &Goal) {
    let (goal, is_met) = match goal {
        Goal::AtLeast(least) => (format!(">= {least} x"), ratio >= *least),
        Goal::AtMost(most) => (format!("<= {most} x"), ratio <= *most),
    };
    let verdict = if is_met { "" } else { "  MISSED" };
    println!("{figure:<54} {ours:>12} {bound:>12} {ratio:>7.2}   {goal}{verdict}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn micros(value: f64) -> String {
    format!("{value:.1} µs")
}

/// Returns the median time of `ours` and of `bound`, in microseconds, in turns.
fn compare(mut ours: impl FnMut(), mut bound: impl FnMut()) -> (f64, f64) {
    const ROUNDS: usize = 31;
    const TIMES: u32 = 20;
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        for _ in 0..TIMES {
            work();
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES)
    };
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (time(&mut ours), time(&mut bound))).collect();
    (
        median(rounds.iter().map(|round| round.0).collect()),
        median(rounds.iter().map(|round| round.1).collect()),
    )
}

fn print_times(figure: &str, (ours, bound): (f64, f64), goal: &Goal) {
    print(figure, &micros(ours), &micros(bound), ours / bound, goal);
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis_clamped(1_700_000_000_000 + i64::try_from(ms).unwrap_or(0))
}

fn id(text: &str) -> SessionId {
    text.parse().expect("an id")
}

/// A message of some 300 bytes out of a small vocabulary, where word `n` is rarer the larger `n` is.
fn message(n: u64) -> NewMessage {
    let mut text = String::from("the plan is");
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..40 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = (state >> 33) % (1 + (state >> 45) % 4_000);
        text.push_str(" w");
        text.push_str(&word.to_string());
    }
    if n % 100_000 == 77 {
        text.push_str(" xylophone");
    }
    if n % 5_000 == 5 {
        text.push_str(" release the kraken");
    }
    NewMessage { id: MessageId::new(at(n), u128::from(n)), body: Body::text(Role::User, text, at(n)) }
}

fn imported(name: &str, source: Source, first: u64, len: u64) -> ImportedSession {
    let session =
        NewSession { title: format!("Session {name}"), ..NewSession::chat(id(name), source, at(first)) };
    ImportedSession { session, starred: false, messages: (first..first + len).map(message).collect() }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn bare_reader(path: &Path) -> Connection {
    let reader = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a reader");
    reader.execute_batch("PRAGMA cache_size = -1024").expect("a setting");
    reader
}

type BareJob = (i64, String, oneshot::Sender<i64>);

/// The least that a durable, ordered append costs: one thread, one commit for what queued up.
struct BareWriter {
    queue: SyncSender<BareJob>,
}

impl BareWriter {
    fn start(path: &Path, sessions: i64) -> Self {
        let connection = Connection::open(path).expect("a database");
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
                 CREATE TABLE sessions (n INTEGER PRIMARY KEY, last_seq INTEGER NOT NULL);
                 CREATE TABLE messages (n INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL,
                     body TEXT NOT NULL, UNIQUE (session, seq));",
            )
            .expect("the tables");
        for n in 0..sessions {
            connection.execute("INSERT INTO sessions VALUES (?1, 0)", [n]).expect("a session");
        }
        let (queue, jobs) = sync_channel::<BareJob>(4_096);
        std::thread::spawn(move || {
            while let Ok(first) = jobs.recv() {
                connection
                    .prepare_cached("BEGIN IMMEDIATE")
                    .and_then(|mut begin| begin.execute([]))
                    .expect("begin");
                let mut group = vec![first];
                group.extend(jobs.try_iter().take(511));
                let seqs: Vec<i64> =
                    group.iter().map(|(session, body, _)| bare_append(&connection, *session, body)).collect();
                connection
                    .prepare_cached("COMMIT")
                    .and_then(|mut commit| commit.execute([]))
                    .expect("commit");
                for ((_, _, caller), seq) in group.into_iter().zip(seqs) {
                    caller.send(seq).expect("a caller");
                }
            }
        });
        Self { queue }
    }
}

fn bare_append(connection: &Connection, session: i64, body: &str) -> i64 {
    let seq: i64 = connection
        .prepare_cached("UPDATE sessions SET last_seq = last_seq + 1 WHERE n = ?1 RETURNING last_seq")
        .and_then(|mut update| update.query_row([session], |row| row.get(0)))
        .expect("a counter");
    connection
        .prepare_cached("INSERT INTO messages (session, seq, body) VALUES (?1, ?2, ?3)")
        .and_then(|mut insert| insert.execute(params![session, seq, body]))
        .expect("a row");
    seq
}

fn append(bench: &Bench) {
    const ROUND: Duration = Duration::from_millis(300);
    let dir = scratch();
    let store = sess_store::open(dir.path()).expect("a store");
    let bare = Arc::new(BareWriter::start(&dir.path().join("bare.db"), 64));
    for n in 0..64 {
        let session = NewSession::chat(id(&format!("s{n}")), Source::Native, at(0));
        bench.runtime.block_on(store.ensure_session(session)).expect("a session");
    }
    let rounds = bench.scaled(21).clamp(5, 21);
    for callers in [1, 8, 64] {
        let (mut ours, mut bound) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let store = Arc::clone(&store);
            ours.push(bench.runtime.block_on(per_second(callers, ROUND, move |caller, n| {
                let store = Arc::clone(&store);
                async move {
                    store.append(&id(&format!("s{caller}")), vec![message(n)], None).await.expect("appended");
                }
            })));
            let bare = Arc::clone(&bare);
            bound.push(bench.runtime.block_on(per_second(callers, ROUND, move |caller, n| {
                let bare = Arc::clone(&bare);
                async move {
                    let (sender, answer) = oneshot::channel();
                    let body = serde_json::to_string(&message(n).body).expect("JSON");
                    bare.queue.send((i64::from(caller), body, sender)).expect("the writer");
                    answer.await.expect("an answer");
                }
            })));
        }
        let (ours, bound) = (median(ours), median(bound));
        let per_second = |value: f64| format!("{value:.0}/s");
        let figure = format!("durable append, {callers} callers");
        print(&figure, &per_second(ours), &per_second(bound), ours / bound, &Goal::AtLeast(0.8));
    }
}

async fn per_second<F: Future<Output = ()> + Send>(
    callers: u32,
    round: Duration,
    work: impl Fn(u32, u64) -> F + Clone + Send + 'static,
) -> f64 {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let work = work.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while start.elapsed() < round {
                work(caller, done).await;
                done += 1;
            }
            done
        });
    }
    let done: u64 = tasks.join_all().await.into_iter().sum();
    done as f64 / start.elapsed().as_secs_f64()
}

fn plan_write(bench: &Bench) {
    let dir = scratch();
    let store = sess_store::open(dir.path()).expect("a store");
    let bare = BareWriter::start(&dir.path().join("bare.db"), 1);
    let content = "- [ ] one more step of the plan\n".repeat(128);
    let write = || PlanWrite {
        content: content.clone(),
        agent: "main".to_owned(),
        at: at(1),
        expect_revision: None,
        key: None,
    };
    let times = compare(
        || {
            let session = NewSession::chat(id("p"), Source::Native, at(0));
            bench.runtime.block_on(store.write_plan(session, write())).expect("written");
        },
        || {
            let (sender, answer) = oneshot::channel();
            bare.queue.send((0, content.clone(), sender)).expect("the writer");
            bench.runtime.block_on(answer).expect("an answer");
        },
    );
    print_times("plan row of 4 kB, durable", times, &Goal::AtMost(1.7));
}

fn last_messages(bench: &Bench) {
    let dir = scratch();
    let store = sess_store::open(dir.path()).expect("a store");
    let len = bench.scaled(100_000);
    for (name, len) in [("long", len), ("short", 1_000)] {
        bench.runtime.block_on(store.import(imported(name, Source::Native, 0, len))).expect("imported");
    }
    let bare = bare_reader(&dir.path().join("sess.db"));
    let last = |name: &str| {
        let page = bench.runtime.block_on(store.messages(&id(name), Span::Last, 50)).expect("a page");
        assert_eq!(page.messages.len(), 50);
    };
    let bare_last = || {
        let mut statement = bare
            .prepare_cached(
                "SELECT m.seq, m.id, m.body FROM messages m WHERE m.session = (SELECT n FROM sessions WHERE id = ?1) \
                 ORDER BY m.seq DESC LIMIT 50",
            )
            .expect("a query");
        let rows = statement
            .query_map(["long"], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
            })
            .expect("rows");
        assert_eq!(rows.flatten().count(), 50);
    };
    print_times(
        &format!("last 50 of {len} messages, beside bare SQL"),
        compare(|| last("long"), bare_last),
        &Goal::AtMost(3.0),
    );
    let times = compare(|| last("long"), || last("short"));
    print_times(&format!("last 50 of {len} messages, beside 1,000"), times, &Goal::AtMost(1.3));
}

/// Returns the processor time of every thread of this process.
fn processor_time() -> Duration {
    let nanos = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

fn notice(bench: &Bench) {
    let dir = scratch();
    let (mine, theirs) =
        (sess_store::open(dir.path()).expect("a store"), sess_store::open(dir.path()).expect("a store"));
    bench.runtime.block_on(async {
        mine.ensure_session(NewSession::chat(id("a"), Source::Native, at(0))).await.expect("made");
        for (name, writer) in [("own", &mine), ("another handle's", &theirs)] {
            let mut changes = mine.changes();
            let mut took = Vec::new();
            for n in 0..51 {
                let head = mine.head().await.expect("a head");
                writer.append(&id("a"), vec![message(n)], None).await.expect("appended");
                let start = Instant::now();
                loop {
                    changes.mark_unchanged();
                    if mine.head().await.expect("a head") > head && name == "own" {
                        break;
                    }
                    changes.changed().await.expect("a notice");
                    if mine.head().await.expect("a head") > head {
                        break;
                    }
                }
                took.push(start.elapsed().as_secs_f64() * 1e6);
            }
            let took = median(took);
            print(
                &format!("notice of {name} commit"),
                &micros(took),
                "25 ms",
                took / 25_000.0,
                &Goal::AtMost(1.0),
            );
        }
        let _waiting = mine.changes();
        let wait = Duration::from_secs(5).mul_f64(bench.scale.clamp(0.1, 1.0));
        let before = processor_time();
        tokio::time::sleep(wait).await;
        let share = (processor_time() - before).as_secs_f64() / wait.as_secs_f64() * 100.0;
        print(
            "processor of a process that waits",
            &format!("{share:.3} %"),
            "1 %",
            share,
            &Goal::AtMost(1.0),
        );
    });
}

/// Makes `len` sessions of one message, with many callers so that commits are shared.
async fn fill(store: &Arc<dyn Store>, len: u64) {
    const CALLERS: u64 = 512;
    let mut tasks = JoinSet::new();
    for caller in 0..CALLERS {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            for n in (caller..len).step_by(CALLERS as usize) {
                let source = if n % 50 == 0 {
                    Source::Codex
                } else if n % 2 == 0 {
                    Source::Claude
                } else {
                    Source::Native
                };
                store.import(imported(&format!("s{n}"), source, n, 1)).await.expect("imported");
            }
        });
    }
    tasks.join_all().await;
}

fn recent_sessions(bench: &Bench) {
    let (large_dir, small_dir) = (scratch(), scratch());
    let len = bench.scaled(1_000_000);
    let start = Instant::now();
    let large = sess_store::open(large_dir.path()).expect("a store");
    bench.runtime.block_on(fill(&large, len));
    println!("  ({len} sessions made in {:.1} s)", start.elapsed().as_secs_f64());
    let small = sess_store::open(small_dir.path()).expect("a store");
    bench.runtime.block_on(fill(&small, 1_000));
    for store in [&large, &small] {
        bench.runtime.block_on(store.catch_up(&|_, _| ())).expect("an index, so that none is made meanwhile");
    }
    let bare = bare_reader(&large_dir.path().join("sess.db"));
    let agent = |name: &str| Some(name.parse().expect("an agent"));
    let all = SessionFilter::default;
    let filters = [
        ("unfiltered", all(), "1"),
        (
            "by source",
            SessionFilter { source: Some(Source::Codex), ..all() },
            "source = 'codex' AND source <> 'native'",
        ),
        ("by source native", SessionFilter { source: Some(Source::Native), ..all() }, "source = 'native'"),
        ("by agent", SessionFilter { agent: agent("codex"), ..all() }, "owner = 'agent:codex:'"),
    ];
    for (name, filter, sql) in filters {
        let list = |store: &Arc<dyn Store>| {
            let page = bench.runtime.block_on(store.list_sessions(&filter, 0, 20)).expect("a page");
            assert!(!page.is_empty());
        };
        let sql = format!(
            "SELECT n, id, key, agent, source, title, cwd, created_at, updated_at, last_seq FROM sessions \
             WHERE parent IS NULL AND archived_at IS NULL AND {sql} \
             ORDER BY updated_at DESC, created_at DESC, id LIMIT 20"
        );
        let bare_list = || {
            let mut statement = bare.prepare_cached(&sql).expect("a query");
            let mut rows = statement.query([]).expect("rows");
            let mut read = Vec::new();
            while let Some(row) = rows.next().expect("a row") {
                let texts: [String; 5] = [1, 2, 3, 4, 5].map(|column| row.get(column).expect("a text"));
                let numbers: [i64; 3] = [7, 8, 9].map(|column| row.get(column).expect("a number"));
                read.push((texts, numbers));
            }
            assert!(!read.is_empty());
        };
        print_times(
            &format!("20 of {len} sessions, {name}, beside bare SQL"),
            compare(|| list(&large), bare_list),
            &Goal::AtMost(3.0),
        );
        let times = compare(|| list(&large), || list(&small));
        print_times(&format!("20 of {len} sessions, {name}, beside 1,000"), times, &Goal::AtMost(1.5));
    }
}

fn search(bench: &Bench) {
    const EACH: u64 = 1_000;
    let dir = scratch();
    let store = sess_store::open(dir.path()).expect("a store");
    let len = bench.scaled(1_000_000);
    let start = Instant::now();
    bench.runtime.block_on(async {
        for first in (0..len).step_by(EACH as usize) {
            let source = if first % 10_000 == 0 { Source::Codex } else { Source::Native };
            let session = imported(&format!("s{first}"), source, first, EACH.min(len - first));
            store.import(session).await.expect("imported");
        }
    });
    let stored = start.elapsed().as_secs_f64();
    bench.runtime.block_on(store.catch_up(&|_, _| ())).expect("an index");
    println!(
        "  ({len} messages stored in {stored:.1} s, indexed after {:.1} s)",
        start.elapsed().as_secs_f64()
    );
    let bare = bare_reader(&dir.path().join("search.db"));
    let term = |text: &str, matching| Term { text: text.to_owned(), matching };
    let queries = [
        ("rare word", vec![term("xylophone", Matching::Whole)], "xylophone"),
        ("common word", vec![term("plan", Matching::Whole)], "plan"),
        ("two words", vec![term("w7", Matching::Whole), term("w3000", Matching::Whole)], "w7 AND w3000"),
        ("phrase", vec![term("the kraken", Matching::Whole)], "\"the kraken\""),
        ("prefix", vec![term("xylo", Matching::Prefix)], "xylo*"),
        ("common prefix", vec![term("w1", Matching::Prefix)], "w1*"),
        ("without a word", vec![term("plan", Matching::Whole), term("w1", Matching::Absent)], "plan NOT w1"),
    ];
    for (name, terms, expression) in queries {
        let query = SearchQuery { terms, ..SearchQuery::default() };
        let find = || {
            let hits = bench.runtime.block_on(store.search(&query, None, 20)).expect("hits");
            assert!(!hits.is_empty());
        };
        let bare_find = || {
            let mut statement = bare
                .prepare_cached("SELECT rowid FROM words WHERE words MATCH ?1 ORDER BY rowid DESC LIMIT 20")
                .expect("a query");
            let rows = statement.query_map([expression], |row| row.get::<_, i64>(0)).expect("rows");
            assert!(rows.flatten().count() > 0);
        };
        let (ours, bound) = compare(find, bare_find);
        print(
            &format!("search, {name} (bare index {})", micros(bound)),
            &micros(ours),
            "2 ms",
            ours / 2_000.0,
            &Goal::AtMost(1.0),
        );
    }
    let rare = SearchQuery {
        terms: vec![term("plan", Matching::Whole)],
        source: Some(Source::Codex),
        ..SearchQuery::default()
    };
    let start = Instant::now();
    bench.runtime.block_on(store.search(&rare, None, 20)).expect("hits");
    println!("  (common word in a tenth of the sessions: {:.1} ms)", start.elapsed().as_secs_f64() * 1e3);
}
