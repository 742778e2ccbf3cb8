//! Files in, errors or the same files out.

use proptest::prelude::*;
use serde_json::json;
use sess_core::{
    key::MalformedKey,
    message::{Block, Role},
};

use super::*;

const SESSION: &str = r#"{"type":"session","id":"s1","createdAt":"2026-11-10T12:00:00Z"}"#;

/// Writes a session as an export does.
fn written(imported: &ImportedSession) -> String {
    let new = imported.session.clone();
    let session = Session {
        id: new.id,
        key: new.key,
        agent: new.agent,
        source: new.source,
        title: new.title,
        cwd: new.cwd,
        parent: new.parent,
        facts: new.facts,
        created_at: new.created_at,
        updated_at: new.created_at,
        last_seq: 0,
        num_messages: 0,
        starred: imported.starred,
        archived_at: None,
        spent: sess_core::session::Spent::default(),
    };
    let mut file = header(&session) + "\n";
    for (message, seq) in imported.messages.iter().zip(1..) {
        let body = serde_json::to_string(&message.body).expect("plain JSON");
        file += &sess_core::message::json_line(&message.id, seq, &body);
        file.push('\n');
    }
    file
}

/// The file after one trip through the format.
#[track_caller]
fn normalised(file: &str) -> String {
    written(&parse(file.as_bytes()).expect(file))
}

#[track_caller]
fn check_refused(file: impl AsRef<[u8]>, told: &str) {
    let file = file.as_ref();
    let error = parse(file).expect_err(&String::from_utf8_lossy(file));
    assert_eq!(error.to_string(), told);
}

#[track_caller]
fn check_session(line: &str, told: &str) {
    check_refused(line, told);
}

/// The message is the second line of an otherwise good file.
#[track_caller]
fn check_message(line: &str, told: &str) {
    check_refused(format!("{SESSION}\n{line}\n"), told);
}

#[test]
fn a_whole_file_comes_out_as_it_went_in() {
    let file = concat!(
        r#"{"type":"session","id":"s1","key":"agent:claude:chat:s1","agentId":"claude","title":"Tïtle","createdAt":"2026-11-10T12:00:00.120Z","cwd":"/w","parentKey":"cron:x","starred":true,"source":"claude"}"#,
        "\n",
        r#"{"id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","seq":1,"role":"user","content":[{"type":"text","text":"hi"}],"timestamp":5,"provenance":{"kind":"inter_session","sourceSessionKey":"agent:ops:main","sourceTool":"sessions_send"}}"#,
        "\n",
        r#"{"id":"01ARZ3NDEKTSV4RRFFQ69G5FAW","seq":2,"role":"assistant","content":[{"type":"video","b":1,"a":[0.1,null]}],"timestamp":6,"usage":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"cost":0.5},"z":1,"a":{"y":2,"x":1.0}}"#,
        "\n",
    );
    assert_eq!(normalised(file), file);
}

#[test]
fn what_is_absent_is_filled_in() {
    let file = format!(
        "\u{feff}{SESSION}\r\n\r\n{}\r\n \t\n{}",
        r#"{"role":"user","content":[],"seq":null,"toolName":null}"#,
        r#"{"role":"system","content":[],"timestamp":1794312000001}"#,
    );
    let expected = concat!(
        r#"{"type":"session","id":"s1","key":"agent:main:chat:s1","agentId":"main","title":"","createdAt":"2026-11-10T12:00:00Z"}"#,
        "\n",
        r#"{"id":"01M72N8MG0EAH6XHEW333DP254","seq":1,"role":"user","content":[],"timestamp":1794312000000}"#,
        "\n",
        r#"{"id":"01M72N8MG1MXJJJ2FFQW3BPZT2","seq":2,"role":"system","content":[],"timestamp":1794312000001}"#,
        "\n",
    );
    assert_eq!(normalised(&file), expected);
    // A second import finds the messages of the first.
    assert_eq!(normalised(&file), normalised(&file));

    let later = format!(
        "{SESSION}\n{}\n{}",
        r#"{"role":"user","content":[],"timestamp":7}"#, r#"{"role":"user","content":[]}"#
    );
    assert_eq!(parse(later.as_bytes()).expect("good").messages[1].body.timestamp.as_millis(), 7);
}

#[test]
fn key_and_agent_follow_from_each_other() {
    let check = |fields: &str, key: &str, agent: &str| {
        let line = SESSION.replace('}', &format!(",{fields}}}"));
        let session = parse(line.as_bytes()).expect(&line).session;
        assert_eq!((session.key.as_str(), session.agent.as_str()), (key, agent));
    };
    check(r#""agentId":"Ops""#, "agent:ops:chat:s1", "ops");
    check(r#""key":"agent:ops:main""#, "agent:ops:main", "ops");
    check(r#""key":"cron:nightly""#, "cron:nightly", "main");
    check(r#""source":"codex""#, "agent:codex:chat:s1", "codex");
    check(r#""key":"agent:ops:main","agentId":"main""#, "agent:ops:main", "main");
}

#[test]
fn the_time_of_a_session_is_an_instant() {
    let line = SESSION.replace("12:00:00Z", "14:00:00.123456+02:00");
    assert!(normalised(&line).contains(r#""createdAt":"2026-11-10T12:00:00.123Z""#));
}

#[test]
fn a_session_that_is_not_one_is_refused_by_its_line() {
    let first = r#"expected {"type":"session","id":…,"createdAt":…} as the first line"#;
    check_session("", &format!("line 1: there is no session: {first}"));
    check_session("\n\n\n", &format!("line 1: there is no session: {first}"));
    let message = r#"{"role":"user","content":[]}"#;
    check_session(message, &format!("line 1: this is not a session: {first}"));
    check_session("\n[1]", "line 2: expected a JSON object, found an array");
    check_session("hello", "line 1: not valid JSON at column 1: expected value");
    check_session(&SESSION[..20], "line 1: the line is cut short: expected a whole JSON object");
    check_session(
        r#"{"type":"session","createdAt":"2026-11-10T12:00:00Z"}"#,
        r#"line 1: the session has no "id""#,
    );
    check_session(
        r#"{"type":"session","id":"s1"}"#,
        r#"line 1: the session has no "createdAt": expected an RFC 3339 time"#,
    );
    check_session(
        r#"{"type":"session","id":"s1","createdAt":"today"}"#,
        r#"line 1: "createdAt" is "today", expected an RFC 3339 time like 2026-11-10T12:00:00Z"#,
    );

    let with = |fields: &str| SESSION.replace('}', &format!(",{fields}}}"));
    check_session(&SESSION.replace("s1", "../s1"), r#"line 1: invalid session ID: "../s1""#);
    let malformed = MalformedKey("main".to_owned());
    check_session(&with(r#""key":"main""#), &format!("line 1: {malformed}"));
    check_session(&with(r#""parentKey":5"#), r#"line 1: "parentKey" is a number, expected a string"#);
    check_session(&with(r#""title":["x"]"#), r#"line 1: "title" is an array, expected a string"#);
    check_session(&with(r#""starred":1"#), r#"line 1: "starred" is a number, expected true or false"#);
    check_session(&with(r#""model":"x""#), r#"line 1: the session has an unknown field "model""#);
    let error = parse(with(r#""source":"me""#).as_bytes()).expect_err("unknown");
    assert!(error.to_string().starts_with(r#"line 1: unknown source "me": one of native, "#));
}

#[test]
fn a_bad_message_is_refused_by_its_line() {
    check_message(
        r#"{"role":"robot","content":[]}"#,
        r#"line 2: unknown role "robot": expected one of user, assistant, toolResult, system"#,
    );
    check_message(
        r#"{"content":[]}"#,
        r#"line 2: the message has no "role": expected one of user, assistant, toolResult, system"#,
    );
    check_message(r#"{"role":1,"content":[]}"#, r#"line 2: "role" is a number, expected a string"#);
    check_message(
        r#"{"role":"user"}"#,
        r#"line 2: the message has no "content": expected an array of blocks"#,
    );
    check_message(
        r#"{"role":"user","content":"hi"}"#,
        r#"line 2: "content" is a string, expected an array of blocks"#,
    );
    check_message(
        r#"{"role":"user","content":[{"type":"text"}]}"#,
        r#"line 2: a content block of type "text" has missing, wrong or unknown fields"#,
    );
    check_message(
        r#"{"role":"user","content":[],"seq":2}"#,
        r#"line 2: "seq" is 2, expected 1: messages count from 1, without gaps"#,
    );
    check_message(
        r#"{"role":"user","content":[],"timestamp":"2026"}"#,
        r#"line 2: "timestamp" is "2026", expected milliseconds since 1970"#,
    );
    check_message(
        r#"{"role":"user","content":[],"timestamp":9223372036854775807}"#,
        r#"line 2: "timestamp" is 9223372036854775807, expected milliseconds since 1970"#,
    );
    check_message(
        r#"{"role":"user","content":[],"isError":"no"}"#,
        r#"line 2: invalid type: string "no", expected a boolean"#,
    );
    check_message(
        r#"{"id":"7","role":"user","content":[]}"#,
        r#"line 2: invalid message id "7": expected a ULID, 26 characters of 0-9 and A-Z without I, L, O and U"#,
    );
    check_message(SESSION, "line 2: a second session: expected only messages after the first line");
    check_message(
        "\n\n{\"role\":\"user\",\"cont",
        "line 4: the line is cut short: expected a whole JSON object",
    );
    check_message(
        r#"{"role":"user","content":[]} x"#,
        "line 2: not valid JSON at column 30: trailing characters",
    );
    let twice = r#"{"id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","role":"user","content":[]}"#;
    check_message(
        &format!("{twice}\n{twice}"),
        "line 3: the message id 01ARZ3NDEKTSV4RRFFQ69G5FAV is there twice",
    );
}

#[test]
fn nothing_in_a_file_can_take_the_process_down() {
    let deep = format!("{{\"role\":\"user\",\"content\":[],\"x\":{}", "[".repeat(1_000_000));
    check_message(&deep, "line 2: not valid JSON at column 159: recursion limit exceeded");

    let mut bytes = format!("{SESSION}\n{{\"role\":\"").into_bytes();
    bytes.extend(b"\xff\"}");
    check_refused(bytes, "line 2: not UTF-8 at byte 10");

    let long = format!("{SESSION}\n{{\"role\":\"{}\"}}", "é".repeat(10_000));
    let told = parse(long.as_bytes()).expect_err("unknown").to_string();
    assert!(told.len() < 1_000 && told.ends_with('…'), "{told}");
}

#[test]
fn a_line_without_end_is_refused_before_it_is_read() {
    let endless = io::BufReader::new(SESSION.as_bytes().chain(&b"\n"[..]).chain(io::repeat(b' ')));
    let error = parse(endless).expect_err("endless");
    assert_eq!(error.to_string(), "line 2: the line is longer than 67108864 bytes");
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
    let error = parse(io::BufReader::new(Broken)).expect_err("broken");
    assert!(matches!(error, FormatError::Read(_)));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn fields() -> impl Strategy<Value = Map<String, Value>> {
    // None of the names that the format knows begins with an x.
    prop::collection::vec(("x\\PC{0,4}", value()), 0..3).prop_map(Map::from_iter)
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        any::<String>().prop_map(|text| Block::Text { text }),
        any::<String>().prop_map(|text| Block::Thinking { text, signature: None }),
        (any::<String>(), any::<String>(), fields())
            .prop_map(|(id, name, arguments)| { Block::ToolCall { id, name, arguments } }),
        ("[a-z/]{0,9}", "[A-Za-z0-9+/=]{0,40}")
            .prop_map(|(mime_type, data)| Block::Image { mime_type, data }),
        Just(Block::SubSession { session_id: "child-1".parse().expect("valid") }),
        any::<String>().prop_map(|summary| Block::Compaction { summary }),
        ("[A-Z]\\PC{0,5}", fields()).prop_map(|(kind, fields)| {
            let kind = std::iter::once(("type".to_owned(), Value::from(kind)));
            Block::Other(kind.chain(fields).collect())
        }),
    ]
}

/// A message line with some of the optional parts, in any order.
fn message() -> impl Strategy<Value = Value> {
    let roles = prop::sample::select(vec![Role::User, Role::Assistant, Role::ToolResult, Role::System]);
    let optional = prop::sample::subsequence(
        vec![
            ("timestamp", json!(1_794_312_000_123_i64)),
            ("toolCallId", json!("c\u{0}1")),
            ("toolName", json!("läs")),
            ("isError", json!(false)),
            ("model", json!("m")),
            ("usage", json!({"output": 3, "cost": 0.1})),
            ("stopReason", json!("stop")),
            ("runId", json!("r")),
            ("agentId", json!("Ops")),
            ("provenance", json!({"kind": "external_user"})),
        ],
        0..10,
    )
    .prop_shuffle();
    (fields(), roles, prop::collection::vec(block(), 0..4), optional).prop_map(
        |(mut line, role, content, optional)| {
            line.insert("role".to_owned(), json!(role));
            line.insert("content".to_owned(), json!(content));
            line.extend(optional.into_iter().map(|(name, value)| (name.to_owned(), value)));
            Value::Object(line)
        },
    )
}

proptest! {
    #[test]
    fn a_file_is_the_same_after_every_further_trip(
        title in any::<String>(),
        cwd in any::<Option<String>>(),
        starred in any::<bool>(),
        source in prop::sample::select(Source::ALL.to_vec()),
        ms in -62_000_000_000_000_i64..253_000_000_000_000,
        messages in prop::collection::vec(message(), 0..6),
    ) {
        let created_at = Timestamp::from_millis(ms).expect("in range").to_string();
        let session = json!({
            "cwd": cwd, "starred": starred, "source": source, "title": title,
            "createdAt": created_at, "id": "s-1", "type": "session",
        });
        let mut file = session.to_string();
        for message in &messages {
            file += &format!("\n{message}");
        }
        let once = normalised(&file);
        prop_assert_eq!(normalised(&once), once.clone());

        // Nothing was lost on the way: every field is there with its value.
        for (line, message) in once.lines().skip(1).zip(&messages) {
            let line: Value = serde_json::from_str(line).expect("JSON");
            for (name, value) in message.as_object().expect("an object") {
                if !matches!(name.as_str(), "usage" | "agentId") {
                    prop_assert_eq!(&line[name], value);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut file = format!("{SESSION}\n").into_bytes();
        file.extend(&bytes);
        let _ = parse(&file[..]);
        let _ = parse(&bytes[..]);
    }
}
