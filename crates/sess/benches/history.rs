//! Other agents' sessions beside their bounds: listing, reading, searching.
//!
//! `cargo bench -p sess --bench history`; `SESS_BENCH_SCALE=0.01` shrinks the data for a smoke
//! run, `SESS_BENCH_DIR` says where it is written (six gigabytes in all). The bound is the bare
//! read of the same bytes in the same run; ripgrep and Python's `json` do the same work where
//! they are installed.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::{
    fs::{self, File},
    io::{BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const LISTED: f64 = 10_000.0;
const TRANSCRIPT_SIZE_BYTES: f64 = 1e9;
const SEARCHED_SIZE_BYTES: f64 = 5e9;
const SEARCHED_FILES: usize = 50;
const RUNS: usize = 5;

fn main() {
    let temp = data_dir();
    println!("{:<46} {:>12} {:>12} {:>7}   remarks", "figure", "ours", "bound", "ratio");
    listing(&temp.path().join("many"));
    reading(&temp.path().join("long"));
    searching(&temp.path().join("large"));
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads its settings here")]
fn data_dir() -> tempfile::TempDir {
    match std::env::var_os("SESS_BENCH_DIR") {
        Some(dir) => tempfile::tempdir_in(dir).expect("a directory"),
        None => tempfile::tempdir().expect("a directory"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads its settings here")]
fn scale() -> f64 {
    std::env::var("SESS_BENCH_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0)
}

/// Lists sessions, most of whose bytes are not looked at.
fn listing(home: &Path) {
    let count = (LISTED * scale()) as usize;
    let files: Vec<PathBuf> = (0..count)
        .map(|n| {
            let path = transcript(home, n % 100, n);
            write(&path, n, 8_000);
            path
        })
        .collect();
    for (name, prepare) in [("cold", true), ("warm", false)] {
        let ready = || !prepare || drop_caches();
        if !ready() {
            println!("{:<46} needs root to empty the caches", format!("list of {count} sessions, {name}"));
            continue;
        }
        let (ours, peak) = sess(home, &["list", "--json"], "0000-4000-8000");
        ready();
        let begun = Instant::now();
        files.iter().for_each(|file| ends(file));
        let bare = begun.elapsed();
        row(&format!("list of {count} sessions, {name}"), ours, bare, &format!("peak {peak} MB"));
    }
}

/// Reads what a list looks at, and does nothing with it.
fn ends(path: &Path) {
    let mut file = File::open(path).expect("there");
    let size = file.metadata().expect("there").len();
    let mut bytes = Vec::new();
    if size <= 80 << 10 {
        file.read_to_end(&mut bytes).expect("read");
        return;
    }
    Read::by_ref(&mut file).take(16 << 10).read_to_end(&mut bytes).expect("read");
    file.seek(SeekFrom::End(-(64 << 10))).expect("there");
    file.read_to_end(&mut bytes).expect("read");
}

fn reading(home: &Path) {
    let size = (TRANSCRIPT_SIZE_BYTES * scale()) as usize;
    let path = transcript(home, 0, 0);
    write(&path, 0, size);
    let bare = median(RUNS, || read_whole(&path));
    let mut peak = 0;
    let ours = median(RUNS, || {
        let (time, most) = sess(home, &["read", "-1", "--json"], "0000-4000-8000");
        peak = peak.max(most);
        time
    });
    let rate = size as f64 / 1e6 / ours.as_secs_f64();
    row(
        &format!("read of a transcript of {} MB", size / 1_000_000),
        ours,
        bare,
        &format!("{rate:.0} MB/s, peak {peak} MB"),
    );
    let program = "import json,sys\nfor line in open(sys.argv[1]): json.loads(line)";
    beside(
        "  Python's json over the same lines",
        Command::new("python3").args(["-c", program]).arg(&path),
        bare,
    );
}

fn searching(home: &Path) {
    let size = (SEARCHED_SIZE_BYTES * scale()) as usize;
    let files: Vec<PathBuf> = (0..SEARCHED_FILES)
        .map(|n| {
            let path = transcript(home, n, n);
            write(&path, n, size / SEARCHED_FILES);
            path
        })
        .collect();
    let mut last = fs::OpenOptions::new().append(true).open(&files[SEARCHED_FILES / 2]).expect("there");
    writeln!(last, "{}", record(1, 999_999_999, "the word xylophone stands here once")).expect("written");
    let bare = median(3, || files.iter().map(|file| read_whole(file)).sum());
    let asks = [
        ("a rare word", vec!["search", "xylophone", "--json"]),
        ("an expression", vec!["search", "--regex", r"xylo\w+ stands", "--json"]),
        ("a common word", vec!["search", "refactor", "--json"]),
    ];
    let measure = |with: &str| {
        for (name, args) in &asks {
            let mut peak = 0;
            let ours = median(3, || {
                let (time, most) = sess(home, args, "0000-4000-8000");
                peak = peak.max(most);
                time
            });
            let rate = size as f64 / 1e6 / ours.as_secs_f64();
            let figure = format!("search of {} MB for {name}{with}", size / 1_000_000);
            row(&figure, ours, bare, &format!("{rate:.0} MB/s, peak {peak} MB"));
        }
    };
    measure("");
    let (ours, peak) = sess(home, &["index", "--json"], "size_bytes");
    let rate = size as f64 / 1e6 / ours.as_secs_f64();
    let figure = format!("index of {} MB", size / 1_000_000);
    row(&figure, ours, bare, &format!("{rate:.0} MB/s, peak {peak} MB"));
    measure(", indexed");
    let projects = home.join(".claude/projects");
    beside(
        "  ripgrep for the rare word",
        Command::new("rg").args(["-c", "-i", "-w", "xylophone"]).arg(&projects),
        bare,
    );
    beside(
        "  ripgrep for the expression",
        Command::new("rg").args(["-c", "-i", r"xylo\w+ stands"]).arg(projects),
        bare,
    );
}

fn transcript(home: &Path, project: usize, n: usize) -> PathBuf {
    let dir = home.join(format!(".claude/projects/-home-dev-project-{project}"));
    fs::create_dir_all(&dir).expect("made");
    dir.join(format!("00000000-0000-4000-8000-{n:012}.jsonl"))
}

/// Writes a conversation of about this many bytes: prompts, replies, tool calls and their results.
fn write(path: &Path, session: usize, size: usize) {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).expect("made"));
    let (mut written, mut n) = (0, 0);
    while written < size {
        let text = format!(
            "{} {n}",
            "please refactor the module and keep its tests green, then say what changed. "
                .repeat(1 + n * 7 % 30)
        );
        let line = record(session, n, &text);
        written += line.len() + 1;
        writeln!(file, "{line}").expect("written");
        n += 1;
    }
    file.flush().expect("written");
}

fn record(session: usize, n: usize, text: &str) -> String {
    let parent = if n == 0 { "null".to_owned() } else { format!("\"{session:08x}-{:012x}\"", n - 1) };
    let (kind, content) = match n % 4 {
        0 => ("user", serde_json::json!(text)),
        1 => (
            "assistant",
            serde_json::json!([
                {"type": "text", "text": text},
                {"type": "tool_use", "id": format!("t{n}"), "name": "Read", "input": {"file_path": "/home/dev/src/lib.rs"}},
            ]),
        ),
        2 => (
            "user",
            serde_json::json!([{"type": "tool_result", "tool_use_id": format!("t{}", n - 1), "content": text}]),
        ),
        _ => ("assistant", serde_json::json!([{"type": "text", "text": text}])),
    };
    let seconds = 1_790_000_000 + session * 60 + n % 1_000_000;
    let at = sess_core::Timestamp::from_millis_clamped(i64::try_from(seconds).unwrap_or(0) * 1_000);
    format!(
        r#"{{"parentUuid":{parent},"isSidechain":false,"type":"{kind}","message":{{"id":"msg_{n}","role":"{kind}","model":"claude-opus-5","content":{content},"usage":{{"input_tokens":12,"output_tokens":{n}}}}},"uuid":"{session:08x}-{n:012x}","timestamp":"{at}","userType":"external","cwd":"/home/dev/project","sessionId":"s","version":"2.1.325","gitBranch":"main"}}"#
    )
}

fn read_whole(path: &Path) -> Duration {
    let begun = Instant::now();
    let mut file = File::open(path).expect("there");
    let mut bytes = vec![0; 256 << 10];
    while file.read(&mut bytes).expect("read") > 0 {}
    begun.elapsed()
}

/// Runs the program, which has to say something, and returns how long it took and its peak memory in megabytes.
#[expect(clippy::disallowed_methods, reason = "nothing tells when another process needs more memory")]
fn sess(home: &Path, args: &[&str], says: &str) -> (Duration, u64) {
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sess"));
    command.args(args).env_clear().env("HOME", home).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let mut output = child.stdout.take().expect("piped");
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let mut peak = 0;
    let status = loop {
        let told = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let most = told
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak = peak.max(most.unwrap_or(0));
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let time = begun.elapsed();
    let text = reading.join().expect("no panic").expect("text");
    assert!(status.success() && text.contains(says), "{args:?}: {text}");
    (time, peak / 1_000)
}

/// Runs another program on the same work, where it is installed.
fn beside(figure: &str, command: &mut Command, bound: Duration) {
    let begun = Instant::now();
    match command.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => row(figure, begun.elapsed(), bound, ""),
        Ok(_) | Err(_) => println!("{figure:<46} not installed here"),
    }
}

fn drop_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

fn row(figure: &str, ours: Duration, bound: Duration, remarks: &str) {
    let ratio = ours.as_secs_f64() / bound.as_secs_f64();
    println!("{figure:<46} {:>12} {:>12} {ratio:>6.2}x   {remarks}", shown(ours), shown(bound));
}

fn shown(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

fn median(runs: usize, mut run: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..runs).map(|_| run()).collect();
    times.sort();
    times[times.len() / 2]
}
