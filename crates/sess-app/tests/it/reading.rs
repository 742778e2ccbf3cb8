//! `read_session`: the transcript, its budget, and what is masked.

use serde_json::{Value, json};
use sess_app::{ReadSession, Redaction};
use sess_core::policy::ContextVisibility;

use crate::world::{World, text};

const SECRET: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
const MASKED: &str = "ghp_ab…6789";

impl World {
    async fn transcript(&self, arguments: Value) -> String {
        self.call("me", "read_session", arguments).await
    }

    async fn structured(&self, arguments: Value) -> Value {
        let answer = self.answer(&self.agent("me"), "read_session", arguments).await;
        answer.structured.unwrap_or_else(|| panic!("{}", answer.text))
    }
}

#[tokio::test]
async fn a_transcript_is_header_and_blocks() {
    let world = World::new();
    let session = world.session("s-1 title=Fix the parser").await;
    world
        .messages(
            &session,
            &[
                &text("system", "be good"),
                &text("user", "  Please\n\n  look \n"),
                r#"{"role":"assistant","content":[{"type":"thinking","text":"hm"},{"type":"text","text":"Looking."},{"type":"text","text":"Now:"},{"type":"toolCall","id":"1","name":"grep","arguments":{"z":"a b","a":[1,2.5,null]}},{"type":"toolCall","id":"2","name":"now","arguments":{}}]}"#,
                r#"{"role":"toolResult","toolCallId":"1","toolName":"grep","content":[{"type":"text","text":"x.rs:1"}]}"#,
                r#"{"role":"assistant","content":[{"type":"thinking","text":"only thoughts"}]}"#,
                r#"{"role":"user","content":[{"type":"text","text":" \n\t"}]}"#,
                &json!({"role": "user", "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "mimeType": "image/png", "data": "A".repeat(16_000)},
                    {"type": "file", "name": "a.pdf", "mimeType": "application/pdf", "data": "A".repeat(16_000)},
                ]}).to_string(),
                &text("assistant", "Done."),
            ],
        )
        .await;
    assert_eq!(
        world.transcript(json!({"session_id": "s-1"})).await,
        "# Session s-1 — Fix the parser\n\
         Created: 2026-11-01T12:00:00Z\n\
         Messages: 7\n\
         \n\
         ## user\n\
         Please\n\n  look\n\
         \n\
         ## assistant\n\
         Looking.\n\
         Now:\n\
         → called tool `grep` with {\"z\":\"a b\",\"a\":[1,2.5,null]}\n\
         → called tool `now`\n\
         \n\
         ## tool result\n\
         x.rs:1\n\
         \n\
         ## user\n\
         see\n\
         [image: image/png, 12 kB]\n\
         [file: a.pdf, application/pdf, 12 kB]\n\
         \n\
         ## assistant\n\
         Done.\n"
    );
    let structured = world.structured(json!({"session_id": "s-1"})).await;
    let transcript = world.transcript(json!({"session_id": "s-1"})).await;
    assert_eq!(
        structured,
        json!({"session_id": "s-1", "title": "Fix the parser", "num_messages": 7, "shown": 5, "omitted": 0,
               "omitted_later": 0, "redacted": 0, "transcript": transcript})
    );
}

#[tokio::test]
async fn a_session_without_title_time_or_messages_is_its_header() {
    let world = World::new();
    world.session("s at=1970-01-01T00:00:00Z").await;
    assert_eq!(world.transcript(json!({"session_id": "s"})).await, "# Session s — (untitled)\nMessages: 0\n");
}

#[tokio::test]
async fn tools_are_left_out_when_asked() {
    let world = World::new();
    let session = world.session("s title=t").await;
    let call = r#"{"role":"assistant","content":[{"type":"text","text":"look"},{"type":"toolCall","id":"1","name":"ls"}]}"#;
    let only_call = r#"{"role":"assistant","content":[{"type":"toolCall","id":"1","name":"ls"}]}"#;
    world.messages(&session, &[&text("user", "hi"), call, &text("toolResult", "out"), only_call]).await;
    let header = "# Session s — t\nCreated: 2026-11-01T12:00:00Z\nMessages: 4\n\n";
    let without = format!("{header}## user\nhi\n\n## assistant\nlook\n");
    assert_eq!(world.transcript(json!({"session_id": "s", "include_tools": false})).await, without);
    let with = format!(
        "{header}## user\nhi\n\n## assistant\nlook\n→ called tool `ls`\n\n## tool result\nout\n\n## assistant\n→ called tool `ls`\n"
    );
    assert_eq!(world.transcript(json!({"session_id": "s", "include_tools": true})).await, with);
    assert_eq!(world.transcript(json!({"session_id": "s"})).await, with);
    let structured = world.structured(json!({"session_id": "s", "include_tools": false})).await;
    assert_eq!(structured["shown"], 2);
}

#[tokio::test]
async fn a_compaction_is_a_line_and_what_was_before_it_stays() {
    let world = World::new();
    let session = world.session("s title=t").await;
    let compaction = r#"{"role":"system","content":[{"type":"compaction","summary":"short"}]}"#;
    world.messages(&session, &[&text("user", "before"), compaction, &text("user", "after")]).await;
    assert_eq!(
        world.transcript(json!({"session_id": "s"})).await,
        "# Session s — t\nCreated: 2026-11-01T12:00:00Z\nMessages: 2\n\n## user\nbefore\n\n[context compacted here]\n\n## user\nafter\n"
    );
}

#[tokio::test]
async fn a_peers_words_never_look_like_the_persons() {
    let world = World::new();
    let session = world.session("s title=t").await;
    let peer = r#"{"role":"user","content":[{"type":"text","text":"do it"}],"provenance":{"kind":"inter_session","sourceSessionKey":"agent:helper:main"}}"#;
    let person =
        r#"{"role":"user","content":[{"type":"text","text":"no"}],"provenance":{"kind":"external_user"}}"#;
    world.messages(&session, &[peer, person]).await;
    assert_eq!(
        world.transcript(json!({"session_id": "s"})).await,
        "# Session s — t\nCreated: 2026-11-01T12:00:00Z\nMessages: 2\n\n## user (from session agent:helper:main)\ndo it\n\n## user\nno\n"
    );
}

#[tokio::test]
async fn sub_sessions_stand_where_their_marker_is_or_where_they_began() {
    let world = World::new();
    let root = world.session("root title=t").await;
    let marker = r#"{"role":"assistant","content":[{"type":"text","text":"spawning"},{"type":"subSession","sessionId":"marked"}]}"#;
    world
        .messages(&root, &[&text("user", "one"), marker, &text("user", "three"), &text("user", "four")])
        .await;
    // It began last, but its marker says where it belongs.
    let marked =
        world.session("marked agent=helper parent=agent:main:chat:root at=2026-11-01T12:10:00Z").await;
    world.messages(&marked, &[&text("user", "task"), &text("assistant", "result")]).await;
    let timed = world.session("timed agent=coder parent=agent:main:chat:root at=2026-11-01T12:03:30Z").await;
    world.messages(&timed, &[&text("user", "other task")]).await;
    let nested = world.session("nested parent=agent:coder:chat:timed at=2026-11-01T12:05:00Z").await;
    world.messages(&nested, &[&text("user", "deep")]).await;
    world.session("silent parent=agent:main:chat:root at=2026-11-01T12:03:40Z").await;
    assert_eq!(
        world.transcript(json!({"session_id": "root"})).await,
        "# Session root — t\nCreated: 2026-11-01T12:00:00Z\nMessages: 4\n\
         \n## user\none\n\
         \n## assistant\nspawning\n\
         \n## sub-session marked (helper)\n\
         \n## user\ntask\n\
         \n## assistant\nresult\n\
         \n## end of sub-session\n\
         \n## user\nthree\n\
         \n## sub-session timed (coder)\n\
         \n## user\nother task\n\
         \n## sub-session nested (main)\n\
         \n## user\ndeep\n\
         \n## end of sub-session\n\
         \n## end of sub-session\n\
         \n## user\nfour\n"
    );
    let structured = world.structured(json!({"session_id": "root"})).await;
    assert_eq!((&structured["shown"], &structured["omitted"]), (&json!(8), &json!(0)));
    // Reading from the middle names what it leaves out.
    let around = world.transcript(json!({"session_id": "root", "around": 1})).await;
    assert!(around.contains("\n\n[sub-sessions are not shown here; read them by id: "), "{around}");
    assert!(around.contains("marked") && around.contains("timed"), "{around}");
    // A sub-session can be read alone.
    assert!(world.transcript(json!({"session_id": "timed"})).await.contains("## sub-session nested (main)"));
}

#[tokio::test]
async fn a_sub_session_from_before_the_first_message_comes_first() {
    let world = World::new();
    let root = world.session("root title=t").await;
    let child = world.session("child parent=agent:main:chat:root at=2026-11-01T11:00:00Z").await;
    world.messages(&child, &[&text("user", "early")]).await;
    world.messages(&root, &[&text("user", "late")]).await;
    let told = world.transcript(json!({"session_id": "root"})).await;
    assert!(
        told.ends_with(
            "\n\n## sub-session child (main)\n\n## user\nearly\n\n## end of sub-session\n\n## user\nlate\n"
        ),
        "{told}"
    );
}

#[tokio::test]
async fn parents_in_a_loop_show_each_session_once() {
    let world = World::new();
    let a = world.session("a title=t parent=agent:main:chat:b").await;
    assert_eq!(a.parent, None, "the title takes the rest of the line");
    let a = world.session("aa parent=agent:main:chat:bb title=t").await;
    let b = world.session("bb parent=agent:main:chat:aa").await;
    world.messages(&a, &[&text("user", "from a")]).await;
    world.messages(&b, &[&text("user", "from b")]).await;
    let told = world.transcript(json!({"session_id": "aa"})).await;
    assert_eq!((told.matches("from a").count(), told.matches("from b").count()), (1, 1), "{told}");
    let structured = world.structured(json!({"session_id": "aa", "max_bytes": 1_000})).await;
    assert_eq!((&structured["shown"], &structured["omitted"]), (&json!(2), &json!(0)));
}

#[tokio::test]
async fn a_deep_nest_of_sub_sessions_ends_somewhere_and_is_counted_the_same() {
    let world = World::new();
    let mut parent = world.session("n-0 title=t").await;
    world.messages(&parent, &[&text("user", "level 0")]).await;
    for level in 1..60 {
        let line = format!("n-{level} parent={}", parent.key);
        parent = world.session(&line).await;
        world.messages(&parent, &[&text("user", &format!("level {level}"))]).await;
    }
    let whole = world.structured(json!({"session_id": "n-0", "max_bytes": 200_000})).await;
    assert_eq!((&whole["shown"], &whole["omitted"]), (&json!(33), &json!(0)));
    let cut = world.structured(json!({"session_id": "n-0", "max_bytes": 1_000})).await;
    let (shown, omitted) = (cut["shown"].as_u64(), cut["omitted"].as_u64());
    assert_eq!(shown.zip(omitted).map(|(shown, omitted)| shown + omitted), Some(33), "{cut}");
}

#[tokio::test]
async fn the_newest_whole_blocks_that_fit_are_shown_and_the_rest_is_counted() {
    let world = World::new();
    let session = world.session("s title=t").await;
    let messages: Vec<String> =
        (1..=100).map(|n| text("user", &format!("{n:03} {}", "x".repeat(496)))).collect();
    world.messages(&session, &messages.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let told = world.transcript(json!({"session_id": "s"})).await;
    assert!(told.len() <= 24_000 && told.len() > 24_000 - 520, "{}", told.len());
    let shown = told.matches("## user").count();
    let note = format!(
        "Messages: 100\n\n[{} earlier message(s) omitted to fit the context budget; showing the most recent {shown}]\n\n## user\n{:03} x",
        100 - shown,
        101 - shown
    );
    assert!(told.contains(&note), "{}", &told[..300]);
    assert!(told.ends_with("xxx\n"));
    let structured = world.structured(json!({"session_id": "s"})).await;
    assert_eq!((&structured["shown"], &structured["omitted"]), (&json!(shown), &json!(100 - shown)));

    for (asked, budget) in [
        (1_000, 1_000),
        (999, 1_000),
        (0, 1_000),
        (-5, 1_000),
        (30_000, 30_000),
        (200_000, 200_000),
        (i64::MAX, 200_000),
    ] {
        let told = world.transcript(json!({"session_id": "s", "max_bytes": asked})).await;
        assert!(told.len() <= budget, "{asked}: {}", told.len());
        assert!(budget == 200_000 || told.len() + 520 > budget, "{asked}: {}", told.len());
    }
}

#[tokio::test]
async fn a_newest_block_that_is_too_large_loses_its_middle() {
    let world = World::new();
    let session = world.session("s title=t").await;
    let large = format!("begin{}end", "é".repeat(20_000));
    world.messages(&session, &[&text("user", "before"), &text("assistant", &large)]).await;
    let told = world.transcript(json!({"session_id": "s"})).await;
    assert!(told.len() <= 24_000, "{}", told.len());
    assert!(
        told.contains("[1 earlier message(s) omitted to fit the context budget; showing the most recent 1]")
    );
    assert!(told.contains("## assistant\nbeginé") && told.ends_with("éend\n"));
    let cut =
        told.split_once("[… ").and_then(|(_, rest)| rest.split_once(" bytes cut …]")).expect("a mark").0;
    let kept = told.matches('é').count() * 2;
    assert_eq!(cut.parse::<usize>().ok(), Some(40_000 - kept));
}

#[tokio::test]
async fn a_cut_inside_a_sub_session_repeats_its_heading() {
    let world = World::new();
    let root = world.session("root title=t").await;
    world.messages(&root, &[&text("user", "first")]).await;
    let child = world.session("child agent=helper parent=agent:main:chat:root at=2026-11-01T13:00:00Z").await;
    let messages: Vec<String> = (1..=9).map(|n| text("user", &format!("{n} {}", "x".repeat(200)))).collect();
    world.messages(&child, &messages.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let told = world.transcript(json!({"session_id": "root", "max_bytes": 1_000})).await;
    let shown = told.matches("## user").count();
    let top = format!(
        "[{} earlier message(s) omitted to fit the context budget; showing the most recent {shown}]\n\n## sub-session child (helper)\n\n## user\n{} x",
        10 - shown,
        10 - shown
    );
    assert!(told.contains(&top), "{told}");
    assert!(told.ends_with("x\n\n## end of sub-session\n"));
}

#[tokio::test]
async fn reading_around_a_message_grows_in_both_directions() {
    let world = World::new();
    let session = world.session("s title=t").await;
    let messages: Vec<String> =
        (1..=30).map(|n| text("user", &format!("<{n}> {}", "x".repeat(90)))).collect();
    world.messages(&session, &messages.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let page = world.store().messages(&session.id, sess_store::Span::Before(16), 1).await.expect("a page");
    let message = page.messages[0].id.to_string();
    let by_id = world.transcript(json!({"session_id": "s", "around": message, "max_bytes": 1_000})).await;
    for around in [json!("15"), json!(15), json!(" 15 "), json!(message.to_lowercase())] {
        let told = world.transcript(json!({"session_id": "s", "around": around, "max_bytes": 1_000})).await;
        assert_eq!(told, by_id, "{around}");
    }
    let shown = by_id.matches("## user").count();
    assert!(
        by_id.contains("<15>") && by_id.contains("<14>") && by_id.contains("<16>") && by_id.len() <= 1_000,
        "{by_id}"
    );
    let structured = world.structured(json!({"session_id": "s", "around": 15, "max_bytes": 1_000})).await;
    let (earlier, later) =
        (structured["omitted"].as_u64().expect("k"), structured["omitted_later"].as_u64().expect("k"));
    assert_eq!((structured["shown"].as_u64(), earlier + later), (Some(shown as u64), 30 - shown as u64));
    assert!(by_id.contains(&format!(
        "[{earlier} earlier and {later} later message(s) omitted to fit the context budget; showing {shown} around the requested one]"
    )));
    let whole = world.structured(json!({"session_id": "s", "around": 1, "max_bytes": 100_000})).await;
    assert_eq!(
        (&whole["shown"], &whole["omitted"], &whole["omitted_later"]),
        (&json!(30), &json!(0), &json!(0))
    );
    // A blank is what some models send for "not given".
    let blank = world.transcript(json!({"session_id": "s", "around": "", "max_bytes": 1_000})).await;
    assert_eq!(blank, world.transcript(json!({"session_id": "s", "max_bytes": 1_000})).await);
}

#[tokio::test]
async fn reading_around_what_is_not_there_says_so() {
    let world = World::new();
    let session = world.session("s title=t").await;
    let thinking = r#"{"role":"assistant","content":[{"type":"thinking","text":"hm"}]}"#;
    world.messages(&session, &[&text("user", "a"), thinking, &text("user", "c")]).await;
    for missing in ["0", "4", "-1", "x", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        assert_eq!(
            world.transcript(json!({"session_id": "s", "around": missing})).await,
            format!("error: message \"{missing}\" not found in session \"s\"")
        );
    }
    let told = world.transcript(json!({"session_id": "s", "around": 2})).await;
    assert!(told.ends_with("## user\na\n\n[message 2 has nothing to show]\n\n## user\nc\n"), "{told}");
}

#[tokio::test]
async fn secrets_are_masked_on_the_way_out_and_counted_as_far_as_they_are_shown() {
    let world = World::new();
    let session = world.session(&format!("s title=with {SECRET}")).await;
    let call = json!({"role": "assistant", "content": [{"type": "toolCall", "id": "1", "name": "sh", "arguments": {"password": "hunter2hunter2"}}]});
    world
        .messages(
            &session,
            &[
                &text("user", &format!("use {SECRET}")),
                &call.to_string(),
                &text("toolResult", &format!("API_KEY={SECRET}")),
            ],
        )
        .await;
    let told = world.transcript(json!({"session_id": "s"})).await;
    assert!(!told.contains(SECRET) && !told.contains("hunter2"), "{told}");
    assert!(told.starts_with(&format!("# Session s — with {MASKED}\n")), "{told}");
    let structured = world.structured(json!({"session_id": "s"})).await;
    assert_eq!(
        (&structured["redacted"], &structured["title"]),
        (&json!(4), &json!(format!("with {MASKED}")))
    );
    assert!(!structured.to_string().contains(SECRET));
    let stored = world.store().messages(&session.id, sess_store::Span::Last, 9).await.expect("a page");
    assert!(stored.messages[0].body.contains(SECRET), "the stored text is not changed");

    // What is left out is not counted.
    let session = world.session("long title=t").await;
    let filled = text("user", &format!("{SECRET} {}", "x".repeat(600)));
    world.messages(&session, &[&filled, &filled, &filled]).await;
    let cut = world.structured(json!({"session_id": "long", "max_bytes": 1_000})).await;
    assert_eq!((&cut["shown"], &cut["redacted"]), (&json!(1), &json!(1)));
    let cut = world.structured(json!({"session_id": "long", "around": 2, "max_bytes": 1_000})).await;
    assert_eq!((&cut["shown"], &cut["redacted"]), (&json!(1), &json!(1)));
    let whole = world.structured(json!({"session_id": "long", "around": 2})).await;
    assert_eq!((&whole["shown"], &whole["redacted"]), (&json!(3), &json!(3)));
}

#[tokio::test]
async fn the_owner_may_ask_for_the_unmasked_text() {
    let world = World::new();
    let session = world.session(&format!("s title=with {SECRET}")).await;
    world.messages(&session, &[&text("user", SECRET)]).await;
    let ask =
        ReadSession { session_id: "s".to_owned(), redaction: Redaction::None, ..ReadSession::default() };
    let told = world.app.read_session(&world.owner(), &ask).await.expect("a transcript");
    assert_eq!((told.transcript.matches(SECRET).count(), told.redacted), (2, 0));
    assert_eq!(told.title, format!("with {SECRET}"));
}

#[tokio::test]
async fn damaged_messages_are_named_in_their_place_and_the_rest_is_shown() {
    let world = World::new();
    let session = world.session("s title=t").await;
    let texts: Vec<String> = (1..=5).map(|n| text("user", &format!("<{n}>"))).collect();
    world.messages(&session, &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.sql("UPDATE messages SET body = replace(body, '<2>', '<!>') WHERE seq = 2");
    world.sql("UPDATE messages SET shape = 0, crc = 1 WHERE seq = 4");
    let told = world.transcript(json!({"session_id": "s"})).await;
    let blocks = "## user\n<1>\n\n## damaged message\n[message 2 cannot be shown: its checksum does not match]\n\n\
         ## user\n<3>\n\n## damaged message\n[message 4 cannot be shown: its checksum does not match]\n\n## user\n<5>\n";
    assert!(told.ends_with(blocks), "{told}");
    let structured = world.structured(json!({"session_id": "s"})).await;
    assert_eq!((&structured["shown"], &structured["omitted"]), (&json!(5), &json!(0)));
    world.sql("DELETE FROM messages WHERE seq = 3");
    let told = world.transcript(json!({"session_id": "s"})).await;
    assert!(told.contains("[message 3 cannot be shown: it is missing]"), "{told}");
    let told = world.transcript(json!({"session_id": "s", "around": 3})).await;
    assert_eq!(told.matches("[message 3 cannot be shown: it is missing]").count(), 1, "{told}");
    assert_eq!(told.matches("[message 2 cannot").count(), 1, "{told}");
}

#[tokio::test]
async fn a_follower_goes_on_past_any_number_of_damaged_messages() {
    let world = World::new();
    let session = world.session("s title=t").await;
    let texts: Vec<String> = (1..=350).map(|n| text("user", &format!("<{n}>"))).collect();
    world.messages(&session, &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // More than two pages of them, in the middle and at the end.
    world.sql("UPDATE messages SET crc = 1 WHERE seq BETWEEN 3 AND 240");
    world.sql("UPDATE messages SET crc = 1 WHERE seq > 243");
    let (mut seqs, mut after) = (Vec::new(), 0);
    loop {
        let page = world.app.messages_after(&session.id, after, 100).await.expect("readable");
        let Some(last) = page.last() else { break };
        after = last.seq;
        seqs.extend(page.iter().map(|message| message.seq));
    }
    assert_eq!(seqs, [1, 2, 241, 242, 243]);
    world.messages(&session, &[text("user", "later").as_str()]).await;
    let page = world.app.messages_after(&session.id, after, 100).await.expect("readable");
    assert_eq!(page.iter().map(|message| message.seq).collect::<Vec<_>>(), [351]);
}

#[tokio::test]
async fn a_sub_session_out_of_sight_is_not_shown_inside_one_that_is_seen() {
    let world = World::with(|settings| settings.context_visibility = ContextVisibility::Agent);
    let root = world.session("root title=t").await;
    world
        .messages(
            &root,
            &[
                &text("user", "seen"),
                r#"{"role":"user","content":[{"type":"subSession","sessionId":"theirs"}]}"#,
            ],
        )
        .await;
    let theirs = world.session("theirs agent=helper parent=agent:main:chat:root").await;
    world.messages(&theirs, &[&text("user", "hidden words")]).await;
    let ours = world.session("ours parent=agent:main:chat:root").await;
    world.messages(&ours, &[&text("user", "shown words")]).await;
    let told = world.transcript(json!({"session_id": "root"})).await;
    assert!(
        told.contains("shown words") && !told.contains("hidden words") && !told.contains("theirs"),
        "{told}"
    );
    assert_eq!(
        world.transcript(json!({"session_id": "theirs"})).await,
        "error: session \"theirs\" not found"
    );
}

#[tokio::test]
async fn a_sandboxed_caller_reads_what_it_spawned_and_nothing_else() {
    let world = World::new();
    world.session("me").await;
    let mine = world.session("mine agent=helper parent=agent:main:chat:me").await;
    let deeper = world.session("deeper parent=agent:helper:chat:mine").await;
    world.messages(&mine, &[&text("user", "task")]).await;
    world.messages(&deeper, &[&text("user", "sub-task")]).await;
    world.session("other-session").await;
    let read = async |reference: &str| {
        let answer =
            world.answer(&world.sandboxed("me"), "read_session", json!({"session_id": reference})).await;
        crate::world::told(&answer)
    };
    assert!(read("mine").await.contains("sub-task"));
    assert!(read("deeper").await.contains("sub-task"));
    for hidden in ["other-session", "agent:main:chat:other-session", "native:other-session", "other-se"] {
        assert_eq!(read(hidden).await, format!("error: session \"{hidden}\" not found"));
    }
    assert_eq!(
        read("-1").await,
        "error: cannot resolve session \"-1\": session offset 1 out of range (have 0 sessions)"
    );
}
