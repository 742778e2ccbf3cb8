//! Edits of documents: text in, text out, and any text at all.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    document::{Entry, Format, Found, Refusal},
    files,
    json::Dialect,
};

const STRICT: Format = Format::Json(Dialect::Strict);
const RELAXED: Format = Format::Json(Dialect::Relaxed);

fn server() -> Entry {
    Entry::named(&["servers"], "sess", json!({ "command": "/bin/sess" }))
}

fn hook() -> Entry {
    Entry::listed(&["hooks", "Start"], json!({ "run": "sess" }))
}

/// Puts the entry in, and takes it out again as if it were not known what was there before.
#[track_caller]
fn check(format: Format, entry: &Entry, before: &str, after: &str) {
    let (text, made) = format.insert(before, entry).expect("inserted");
    assert_eq!(text, after);
    assert_eq!(format.find(&text, entry), Ok(Found::Same));
    let rest = format.remove(&text, entry, made).expect("removed");
    assert_eq!(format.find(&rest, entry), Ok(Found::Nothing));
}

#[track_caller]
fn refuses(format: Format, before: &str, said: &str) {
    let refusal = format.insert(before, &server()).expect_err("refused");
    assert!(refusal.to_string().contains(said), "{refusal}");
}

#[test]
fn json_keeps_its_order_its_space_and_its_comments() {
    check(
        STRICT,
        &server(),
        "",
        "{\n  \"servers\": {\n    \"sess\": {\n      \"command\": \"/bin/sess\"\n    }\n  }\n}\n",
    );
    check(STRICT, &server(), "{}", r#"{"servers":{"sess":{"command":"/bin/sess"}}}"#);
    check(
        STRICT,
        &server(),
        r#"{"a":1,"servers":{"b":{}}}"#,
        r#"{"a":1,"servers":{"sess":{"command":"/bin/sess"},"b":{}}}"#,
    );
    check(
        STRICT,
        &server(),
        "{\n\t\"servers\": {},\n\t\"a\": 1\n}",
        "{\n\t\"servers\": {\n\t\t\"sess\": {\n\t\t\t\"command\": \"/bin/sess\"\n\t\t}\n\t},\n\t\"a\": 1\n}",
    );
    check(
        RELAXED,
        &server(),
        "// mine\n{ // top\n    // about servers\n    \"servers\": { /* none\n yet */\n    }, // end\n}\n",
        "// mine\n{ // top\n    // about servers\n    \"servers\": { /* none\n yet */\n        \"sess\": {\n            \
         \"command\": \"/bin/sess\"\n        }\n    }, // end\n}\n",
    );
    check(
        RELAXED,
        &server(),
        "{ // first\r\n  // of a\r\n  \"a\": [1, 2,], // last\r\n}",
        "{ // first\r\n  \"servers\": {\r\n    \"sess\": {\r\n      \"command\": \"/bin/sess\"\r\n    }\r\n  },\r\n  \
         // of a\r\n  \"a\": [1, 2,], // last\r\n}",
    );
}

#[test]
fn a_value_of_a_list_stands_beside_those_of_others() {
    check(
        STRICT,
        &hook(),
        r#"{"hooks":{"Start":[{"run":"x"}]}}"#,
        r#"{"hooks":{"Start":[{"run":"sess"},{"run":"x"}]}}"#,
    );
    check(STRICT, &hook(), r#"{"hooks":{}}"#, r#"{"hooks":{"Start":[{"run":"sess"}]}}"#);
    assert_eq!(STRICT.find(r#"{"hooks":{"Start":[{"run":"x"}]}}"#, &hook()), Ok(Found::Nothing));
}

#[test]
fn a_hook_is_known_by_its_command_whatever_else_is_said_of_it() {
    let hook = Entry::listed(
        &["on"],
        json!({ "hooks": [{ "run": "/a/sess hook session-start claude", "timeout": 5 }] }),
    );
    let check = |list: Value, found: Found| {
        assert_eq!(STRICT.find(&json!({ "on": list }).to_string(), &hook), Ok(found), "{list}");
    };
    check(json!([hook.value.clone()]), Found::Same);
    check(
        json!([{}, { "hooks": [{ "run": "/a/sess hook session-start claude", "timeout": 10 }] }]),
        Found::Other,
    );
    check(
        json!([{ "matcher": "x", "hooks": [{ "run": "y" }, { "run": "'/b c/sess' hook session-start claude" }] }]),
        Found::Other,
    );
    check(
        json!([{ "hooks": [{ "run": "/a/sess hook session-start gemini", "timeout": 5 }] }]),
        Found::Nothing,
    );
    check(json!([{ "hooks": [{ "run": "/a/sess hook session-start claude-x" }] }]), Found::Nothing);
    check(json!([{ "hooks": [{ "run": "/a/sess hook session-start claude || true" }] }]), Found::Other);
    check(json!([]), Found::Nothing);
}

#[test]
fn the_byte_order_mark_stays_in_front() {
    check(STRICT, &server(), "\u{feff}{}", "\u{feff}{\"servers\":{\"sess\":{\"command\":\"/bin/sess\"}}}");
    check(
        Format::Toml,
        &server(),
        "\u{feff}a = 1\n",
        "\u{feff}a = 1\n\n[servers.sess]\ncommand = \"/bin/sess\"\n",
    );
}

#[test]
fn toml_gets_a_table_at_the_end() {
    let table = "[servers.sess]\ncommand = \"/bin/sess\"\n";
    check(Format::Toml, &server(), "", table);
    check(Format::Toml, &server(), "a = 1 # one\n", &format!("a = 1 # one\n\n{table}"));
    check(Format::Toml, &server(), "[servers.b]\nc = 2", &format!("[servers.b]\nc = 2\n\n{table}"));
    check(Format::Toml, &server(), "a = 1\r\n", "a = 1\r\n\r\n[servers.sess]\r\ncommand = \"/bin/sess\"\r\n");
    // A table of its own cannot be added to one that is written on a line.
    refuses(Format::Toml, "servers = { b = { c = 2 } }\n", "cannot be edited here");
    refuses(Format::Toml, "servers = 1\n", "servers is not a table in it");
    refuses(Format::Toml, "[[servers]]\n", "servers is not a table in it");
}

#[test]
fn yaml_gets_lines_below_its_key() {
    let block = "  sess:\n    command: \"/bin/sess\"\n";
    check(Format::Yaml, &server(), "", &format!("servers:\n{block}"));
    check(Format::Yaml, &server(), "# mine\na: 1", &format!("# mine\na: 1\nservers:\n{block}"));
    check(Format::Yaml, &server(), "servers:\na: 1\n", &format!("servers:\n{block}a: 1\n"));
    check(
        Format::Yaml,
        &server(),
        "servers: # some\n    # of b\n    b:\n        c: 2\na: 1\n",
        "servers: # some\n    sess:\n      command: \"/bin/sess\"\n    # of b\n    b:\n        c: 2\na: 1\n",
    );
    check(
        Format::Yaml,
        &server(),
        "servers: {}\na: 1\n",
        "servers: {\"sess\": {\"command\":\"/bin/sess\"}}\na: 1\n",
    );
    // What says that there is nothing gives way.
    for nothing in ["{}\n", "null\n", "~"] {
        check(Format::Yaml, &server(), nothing, &format!("servers:\n{block}"));
    }
    check(Format::Yaml, &server(), "{} # mine\n", &format!("servers: # mine\n{block}"));
    check(Format::Yaml, &server(), "# a\n---\n{}\n# b\n", &format!("# a\n---\nservers:\n{block}# b\n"));
    check(Format::Yaml, &server(), "servers: null\na: 1\n", &format!("servers:\n{block}a: 1\n"));
    let lines = format!("servers: # b\n{block}").replace('\n', "\r\n");
    check(Format::Yaml, &server(), "servers: ~ # b\r\n", &lines);
    check(Format::Yaml, &server(), "servers: null", &format!("servers:\n{block}"));
    refuses(Format::Yaml, "servers: []\n", "servers is not a mapping in it");
    refuses(Format::Yaml, "servers: nullable\n", "servers is not a mapping in it");
    refuses(Format::Yaml, "- a\n", "the whole is not a mapping in it");
    refuses(Format::Yaml, "{a: 1}\n", "cannot be edited here");
    refuses(Format::Yaml, "servers: &all\n  b: 1\n", "cannot be edited here");
}

#[test]
fn what_cannot_be_read_is_refused_with_the_place() {
    refuses(STRICT, "{\n  \"a\": 1,\n}", "line 3, column 1: expected a string");
    refuses(STRICT, "{} // no", "line 1, column 4: expected the end");
    refuses(Format::Json(Dialect::Comments), "{\"a\": 1, /* no */ }", "expected a string");
    refuses(STRICT, "{\"a\": tru}", "expected a value");
    refuses(STRICT, "{\"a\": \"b", "expected the end of a string");
    refuses(STRICT, "[]", "the whole is not an object in it");
    refuses(STRICT, "{\"servers\": []}", "servers is not an object in it");
    refuses(STRICT, "{\"servers\": null}", "servers is not an object in it");
    refuses(Format::Toml, "a = \n", "line 1: ");
    refuses(Format::Yaml, "a: [1\n", "it cannot be read (unclosed bracket '['");
    refuses(
        Format::Yaml,
        "a: 1\n---\nb: 2\n",
        "it cannot be read (it has more than one document, and one is read); mend it first",
    );
    refuses(STRICT, &"[".repeat(100_000), "fewer levels");
}

#[test]
fn what_somebody_else_wrote_is_told_apart() {
    let other = r#"{"servers":{"sess":{"command":"/other"}}}"#;
    assert_eq!(STRICT.find(other, &server()), Ok(Found::Other));
    assert_eq!(STRICT.find(r#"{"servers":{"sesso":{}}}"#, &server()), Ok(Found::Nothing));
    assert_eq!(STRICT.find("", &server()), Ok(Found::Nothing));
    assert!(matches!(STRICT.find("{", &server()), Err(Refusal::Unparsable(_))));
    // Of two members with one name hosts see the last.
    let twice = r#"{"servers":{},"servers":{"sess":{"command":"/bin/sess"}}}"#;
    assert_eq!(STRICT.find(twice, &server()), Ok(Found::Same));
}

#[test]
fn half_a_pair_of_surrogates_costs_nothing() {
    check(
        STRICT,
        &server(),
        r#"{"a":"\ud83d"}"#,
        r#"{"servers":{"sess":{"command":"/bin/sess"}},"a":"\ud83d"}"#,
    );
}

/// Takes the entry out of a text in which others changed something since.
#[track_caller]
fn leaves(format: Format, entry: &Entry, before: &str, edit: (&str, &str), rest: &str) {
    let (text, made) = format.insert(before, entry).expect("inserted");
    let edited = text.replacen(edit.0, edit.1, 1);
    assert_ne!(edited, text);
    assert_eq!(format.remove(&edited, entry, made).expect("removed"), rest);
}

#[test]
fn what_others_changed_since_stays() {
    leaves(STRICT, &server(), "{}", ("}}}", r#"},"b":{}},"c":1}"#), r#"{"servers":{"b":{}},"c":1}"#);
    leaves(STRICT, &server(), r#"{"a":1}"#, (":1", ":2"), r#"{"a":2}"#);
    leaves(
        RELAXED,
        &server(),
        "{\n  \"a\": 1\n}\n",
        ("{\n  \"servers\"", "{\n  // mine\n  \"z\": 0,\n  \"servers\""),
        "{\n  // mine\n  \"z\": 0,\n  \"a\": 1\n}\n",
    );
    leaves(
        STRICT,
        &hook(),
        r#"{"hooks":{"Start":[]}}"#,
        ("]", r#",{"run":"x"}]"#),
        r#"{"hooks":{"Start":[{"run":"x"}]}}"#,
    );
    leaves(
        Format::Toml,
        &server(),
        "a = 1\n",
        ("command = \"/bin/sess\"\n", "command = \"/bin/sess\"\n\n# about b\n[b]\nc = 1\n"),
        "a = 1\n\n# about b\n[b]\nc = 1\n",
    );
    // A line that looks like our header is a part of somebody's text.
    for before in ["a = \"\"\"\n[servers.sess]\nb\n\"\"\"\n", "a = '''\n\n[servers.sess]\n'''\n"] {
        let edit = ("command = \"/bin/sess\"\n", "command = \"/bin/sess\"\n[b]\nc = 1\n");
        leaves(Format::Toml, &server(), before, edit, &format!("{before}[b]\nc = 1\n"));
    }
    leaves(
        Format::Yaml,
        &server(),
        "a: 1\n",
        ("    command: \"/bin/sess\"\n", "    command: /bin/sess\n  b:\n    c: 1\n"),
        "a: 1\nservers:\n  b:\n    c: 1\n",
    );
}

#[test]
fn a_comment_in_a_container_that_was_made_stays_in_it() {
    let (before, open) = ("{\n  \"a\": 1\n}\n", "\"servers\": {\n");
    let check = |edit: (&str, &str), rest: &str| {
        let rest = format!("{{\n  {rest},\n  \"a\": 1\n}}\n");
        leaves(RELAXED, &server(), before, edit, &rest);
    };
    check((open, "\"servers\": {\n    // \"db\": {}\n"), "\"servers\": {\n    // \"db\": {}\n  }");
    check((open, "\"servers\": { // mine\n"), "\"servers\": { // mine\n  }");
    check((open, "\"servers\": /* mine */ {\n"), "\"servers\": /* mine */ {}");
    check(
        ("/bin/sess\"\n    }\n", "/bin/sess\"\n    }\n    /* mine */\n"),
        "\"servers\": {\n    /* mine */\n  }",
    );
    leaves(
        RELAXED,
        &hook(),
        before,
        ("\"Start\": [\n", "\"Start\": [\n      // mine\n"),
        "{\n  \"hooks\": {\n    \"Start\": [\n      // mine\n    ]\n  },\n  \"a\": 1\n}\n",
    );
    leaves(
        RELAXED,
        &hook(),
        before,
        ("\"hooks\": {\n", "\"hooks\": {\n    // mine\n"),
        "{\n  \"hooks\": {\n    // mine\n  },\n  \"a\": 1\n}\n",
    );
    let (key, command) = ("servers:\n", "    command: \"/bin/sess\"\n");
    for (edit, rest) in [
        ((key, "servers: # mine\n"), "a: 1\nservers: # mine\n"),
        ((key, "servers:\n  # mine\n"), "a: 1\nservers:\n  # mine\n"),
        ((command, "    command: \"/bin/sess\"\n  # mine\n"), "a: 1\nservers:\n  # mine\n"),
        ((command, "    command: \"/bin/sess\"\n\n# mine\nb: 2\n"), "a: 1\n\n# mine\nb: 2\n"),
    ] {
        leaves(Format::Yaml, &server(), "a: 1\n", edit, rest);
    }
}

#[test]
fn a_temporary_file_is_a_leftover_when_nobody_is_at_work_on_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("settings.json");
    let (file, temporary) = files::temporary(&path).expect("made").keep().expect("kept");
    assert!(temporary.display().to_string().contains("/.settings.json.sess-"), "{}", temporary.display());
    files::remove_leftovers(&path);
    assert!(temporary.exists());
    // As it is when the process ends, however it does.
    drop(file);
    files::remove_leftovers(&path);
    assert!(!temporary.exists());
}

/// Any value that all three formats have.
fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z \"\\\\#:{}/,\u{e4}\u{1f600}-]{0,12}".prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,5}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn document() -> impl Strategy<Value = Value> {
    let servers = prop::option::of(prop::collection::btree_map("[a-z]{5,7}", value(), 0..3));
    (prop::collection::btree_map("[a-d]{1,3}", value(), 0..4), servers).prop_map(|(members, servers)| {
        let mut members: serde_json::Map<String, Value> = members.into_iter().collect();
        if let Some(servers) = servers {
            members.insert("servers".to_owned(), Value::Object(servers.into_iter().collect()));
        }
        Value::Object(members)
    })
}

/// Writes JSON with whatever space and comments the choices say.
fn written(value: &Value, choices: &mut impl Iterator<Item = u8>, format: Format) -> String {
    let mut gap = |text: &mut String| {
        let has_comments = format == RELAXED;
        text.push_str(match choices.next().unwrap_or(0) % 8 {
            1 => " ",
            2 => "\n",
            3 => "\r\n\t",
            4 => "\n    ",
            5 if has_comments => " // a, \"b\": {\n",
            6 if has_comments => "/* [ \n } */",
            7 if has_comments => "\n  // c\r\n  ",
            _ => "",
        });
    };
    fn write(value: &Value, text: &mut String, gap: &mut impl FnMut(&mut String), format: Format) {
        let (open, close, members): (char, char, Vec<(Option<&String>, &Value)>) = match value {
            Value::Object(members) => {
                ('{', '}', members.iter().map(|(key, value)| (Some(key), value)).collect())
            }
            Value::Array(values) => ('[', ']', values.iter().map(|value| (None, value)).collect()),
            scalar => return text.push_str(&scalar.to_string()),
        };
        text.push(open);
        let last = members.len();
        for (index, (key, value)) in members.into_iter().enumerate() {
            gap(text);
            if let Some(key) = key {
                text.push_str(&Value::from(key.as_str()).to_string());
                gap(text);
                text.push(':');
                gap(text);
            }
            write(value, text, gap, format);
            gap(text);
            if index + 1 < last || (format == RELAXED && index % 2 == 0) {
                text.push(',');
            }
        }
        gap(text);
        text.push(close);
    }
    let mut text = String::new();
    gap(&mut text);
    write(value, &mut text, &mut gap, format);
    gap(&mut text);
    text
}

/// Writes a document as YAML, in blocks of this indentation.
fn yaml_blocks(value: &Value, indent: usize, step: usize, newline: &str) -> String {
    let mut text = String::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        text += &format!("{}{key}:", " ".repeat(indent));
        match value {
            Value::Object(members) if !members.is_empty() => {
                text += &format!(" # {key}{newline}{}", yaml_blocks(value, indent + step, step, newline));
            }
            value => text += &format!(" {value}{newline}"),
        }
    }
    text
}

/// The entry goes in and out; everything else that is there stays, to the byte where it was not near.
fn goes_in_and_out(format: Format, text: &str, entry: &Entry) -> Result<(), TestCaseError> {
    let (after, made) = match format.insert(text, entry) {
        Ok(inserted) => inserted,
        Err(refusal) => return Err(TestCaseError::fail(format!("{refusal}: {text:?}"))),
    };
    prop_assert_eq!(format.find(&after, entry), Ok(Found::Same));
    // One piece of text is new, and all of the rest is there before and after it.
    let same = text.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    let added = after.len() - text.len();
    let is_one_piece = (0..=same).rev().any(|at| text.as_bytes()[at..] == after.as_bytes()[at + added..]);
    prop_assert!(is_one_piece, "{:?} {:?}", text, after);
    let rest = format.remove(&after, entry, made);
    let rest = rest.map_err(|refusal| TestCaseError::fail(format!("{refusal}: {after:?}")))?;
    prop_assert_eq!(format.find(&rest, entry), Ok(Found::Nothing));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_json_takes_an_entry_and_gives_it_back(
        document in document(), choices in prop::collection::vec(any::<u8>(), 0..200), is_relaxed in any::<bool>(),
    ) {
        let format = if is_relaxed { RELAXED } else { STRICT };
        let text = written(&document, &mut choices.into_iter(), format);
        goes_in_and_out(format, &text, &server())?;
        goes_in_and_out(format, &text, &hook())?;
    }

    #[test]
    fn any_toml_takes_an_entry_and_gives_it_back(
        document in document(), breaks in any::<bool>(), ends in any::<bool>(),
    ) {
        let newline = if breaks { "\r\n" } else { "\n" };
        let mut text = String::new();
        for (key, value) in document.as_object().into_iter().flatten().filter(|(key, _)| *key != "servers") {
            // Tables on a line have another sign between key and value.
            if !value.to_string().contains('{') {
                text += &format!("{key} = {value} # {key}{newline}");
            }
        }
        for (key, value) in document["servers"].as_object().into_iter().flatten() {
            if !value.to_string().contains('{') {
                text += &format!("{newline}[servers.{key}]{newline}v = {value}{newline}");
            }
        }
        if !ends {
            text.truncate(text.trim_end().len());
        }
        goes_in_and_out(Format::Toml, &text, &server())?;
    }

    #[test]
    fn any_yaml_takes_an_entry_and_gives_it_back(
        document in document(), step in 1..5_usize, breaks in any::<bool>(), ends in any::<bool>(),
    ) {
        let newline = if breaks { "\r\n" } else { "\n" };
        let mut text = format!("---{newline}# mine{newline}{}", yaml_blocks(&document, 0, step, newline));
        if !ends {
            text.truncate(text.trim_end().len());
        }
        goes_in_and_out(Format::Yaml, &text, &server())?;
    }

    #[test]
    fn no_text_at_all_is_too_strange(text in "[\\PC\n\r\t{}\\[\\]\",:/*#]{0,60}") {
        for format in [STRICT, RELAXED, Format::Toml, Format::Yaml] {
            for entry in [server(), hook()] {
                if let Ok((after, made)) = format.insert(&text, &entry) {
                    prop_assert_eq!(format.find(&after, &entry), Ok(Found::Same));
                    let _may_refuse = format.remove(&after, &entry, made);
                }
            }
        }
    }
}
