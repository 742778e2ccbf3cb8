//! What is masked, what stays readable, and that masking twice changes nothing.

use proptest::prelude::*;
use serde_json::json;

use super::*;

mod ordinary;
mod secrets;

fn masked(text: &str) -> String {
    redact(text).0.into_owned()
}

/// Writes letters and slashes of JSON as escapes.
fn escaped(json: &str) -> String {
    let mut after_backslash = false;
    json.chars()
        .map(|c| {
            let is_escaped = after_backslash;
            after_backslash = c == '\\' && !is_escaped;
            match c {
                '/' if !is_escaped => "\\/".to_owned(),
                'a'..='z' | 'A'..='Z' if !is_escaped => format!("\\u{:04x}", u32::from(c)),
                c => c.to_string(),
            }
        })
        .collect()
}

#[test]
fn json_without_a_secret_is_handed_on_as_it_is_written() {
    let json = r#"{"role":"user","content":"nothing to hide\n","n":1.50}"#;
    assert!(matches!(redact_json_text(json), Ok(Cow::Borrowed(text)) if text == json));
    let json = r#"{"role":"user","content":"the key to it","n":1.50}"#;
    assert!(matches!(redact_json_text(json), Ok(Cow::Borrowed(text)) if text == json));
}

#[test]
fn every_known_form_is_masked() {
    for (text, expected) in secrets::FORMS {
        assert_eq!(masked(text), *expected, "{text}");
        assert_eq!(redact(text).1, 1, "{text}");
    }
    assert!(secrets::FORMS.len() >= 60);
}

#[test]
fn a_form_is_masked_wherever_it_stands() {
    for (text, expected) in secrets::FORMS {
        let told = format!("Here it is:\n\n{text}\n\nDone.");
        assert_eq!(masked(&told), format!("Here it is:\n\n{expected}\n\nDone."));
        let twice = format!("{text}\n{text}");
        assert_eq!(redact(&twice).1, 2, "{twice}");
        // As it stands in the arguments of a tool call.
        let (escaped, expected) = (json!(format!("a\n{text}\n")), json!(format!("a\n{expected}\n")));
        assert_eq!(masked(&escaped.to_string()), expected.to_string());
    }
}

#[test]
fn ordinary_code_stays_as_it_is() {
    for line in ordinary::LINES {
        let (text, count) = redact(line);
        assert_eq!(text, *line);
        assert_eq!(count, 0);
        assert!(matches!(text, Cow::Borrowed(_)));
    }
    let file = ordinary::LINES.join("\n");
    assert_eq!(masked(&file), file);
}

#[test]
fn short_secrets_vanish_and_longer_ones_keep_their_ends() {
    assert_eq!(masked("DB_PASSWORD=a2345678901234567"), "DB_PASSWORD=***");
    assert_eq!(masked("DB_PASSWORD=a23456789012345678"), "DB_PASSWORD=a23456…5678");
    assert_eq!(masked("DB_PASSWORD=äöü4567890123456ß"), "DB_PASSWORD=***", "characters count, not bytes");
    assert_eq!(masked("DB_PASSWORD=äöüäöü789012345ßßß"), "DB_PASSWORD=äöüäöü…5ßßß");
}

#[test]
fn several_secrets_on_a_line_are_each_masked() {
    let line = "curl -H 'Authorization: Bearer abc123def456ghi7' 'https://u:pw@h/x?token=q1w2e3r4t5&page=2'";
    let told = "curl -H 'Authorization: Bearer ***' 'https://u:***@h/x?token=***&page=2'";
    assert_eq!(redact(line), (Cow::Borrowed(told), 3));
}

#[test]
fn a_private_key_is_masked_whole_also_when_its_end_is_missing() {
    let line = "MIIEpAIBAAKCAQEA4ej0p7bQ7L/r4rVGUz9RN4VQWoej1Bg1mYWIDYslvKrk1gpj";
    let check = |text: &str, expected: &str| assert_eq!(masked(text), expected);
    let (begin, end) = ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----");
    check(&format!("{begin}\n{line}\n{line}\n{end}\nok"), &format!("{begin}\n***\n{end}\nok"));
    check(&format!("{begin}\\n{line}\\n{line}\\n{end}\\n"), &format!("{begin}\\n***\\n{end}\\n"));
    check(&format!("{begin}\n{line}\n{line}\n\nand so on"), &format!("{begin}\n***\n\nand so on"));
    check(&format!("{begin}\n{line}\n{line}"), &format!("{begin}\n***"));
    let public = format!("-----BEGIN PUBLIC KEY-----\n{line}\n-----END PUBLIC KEY-----");
    check(&public, &public);
    let code = format!("if key.startswith(\"{begin}\") and key.endswith(\"{end}\"):");
    check(&code, &code);
}

#[test]
fn json_is_masked_by_the_names_of_its_fields_and_in_its_strings() {
    let mut value = json!({
        "apiKey": "q1w2e3r4t5y6u7i8o9p0",
        "password": "hunter2",
        "nested": [{"client_secret": "a1b2c3d4e5", "note": "use sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12"}],
        "Authorization": "Bearer abc123def456",
        "sessionKey": "agent:main:subagent:3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90",
        "key": "agent:main:main",
        "nextPageToken": "q1w2e3r4t5y6u7i8o9p0",
        "totalTokens": 4096,
        "token": null,
        "password_hint": "the usual1",
    });
    assert_eq!(redact_json(&mut value), 5);
    assert_eq!(
        value,
        json!({
            "apiKey": "q1w2e3…o9p0",
            "password": "***",
            "nested": [{"client_secret": "***", "note": "use sk-pro…Kl12"}],
            "Authorization": "Bearer ***",
            "sessionKey": "agent:main:subagent:3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90",
            "key": "agent:main:main",
            "nextPageToken": "q1w2e3r4t5y6u7i8o9p0",
            "totalTokens": 4096,
            "token": null,
            "password_hint": "the usual1",
        })
    );
    let once = value.clone();
    assert_eq!(redact_json(&mut value), 0);
    assert_eq!(value, once);
}

#[test]
fn long_hostile_texts_take_no_longer_than_others() {
    // Quadratic work on these would be felt by whoever runs the tests.
    let parts = [
        "sk-",
        "key",
        "key=",
        "password:",
        "eyJ.",
        "://a:",
        "12345678:",
        "-----BEGIN PRIVATE KEY-----",
        "Bearer ",
        "authorization:",
        "ghp_",
        "token=\"",
        "--secret ",
        "…key=",
        "\\n",
        "a@",
    ];
    for part in parts {
        let text = part.repeat(200_000 / part.len());
        redact(&text);
        redact(&format!("password=\"{text}"));
    }
}

proptest! {
    #[test]
    fn anything_goes_in_and_masked_text_stays_as_it_is(text in any::<String>()) {
        let once = masked(&text);
        prop_assert_eq!(redact(&once), (Cow::Borrowed(once.as_str()), 0));
    }

    #[test]
    fn masking_twice_is_masking_once(parts in proptest::collection::vec(pieces(), 0..12)) {
        let once = masked(&parts.concat());
        prop_assert_eq!(masked(&once), once);
    }

    /// Written plainly, or with every character of it escaped.
    #[test]
    fn json_is_masked_as_it_is_written(name in pieces(), parts in proptest::collection::vec(pieces(), 0..6)) {
        let mut value = json!({ "said": [{ name: parts.concat() }] });
        let plain = value.to_string();
        let escaped = escaped(&plain);
        prop_assert_eq!(serde_json::from_str::<Value>(&escaped).expect("JSON"), value.clone());
        redact_json(&mut value);
        for written in [plain, escaped] {
            let masked = redact_json_text(&written).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<Value>(&masked).expect("JSON"), value.clone());
        }
    }

    #[test]
    fn json_is_masked_once(name in pieces(), parts in proptest::collection::vec(pieces(), 0..6)) {
        let mut once = json!({ name: parts.concat() });
        redact_json(&mut once);
        let mut twice = once.clone();
        redact_json(&mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn a_secret_is_found_between_any_words(
        place in any::<proptest::sample::Index>(),
        before in "[a-zé…]{0,5}[ \n]",
        after in "[ \n][a-zé…]{0,5}",
    ) {
        let (text, expected) = secrets::FORMS[place.index(secrets::FORMS.len())];
        // Not every form is one that a line may go on after, so only lines of their own are tried.
        let told = masked(&format!("{before}\n{text}\n{after}"));
        prop_assert_eq!(told, format!("{before}\n{expected}\n{after}"));
    }
}

/// Pieces that triggers, names, values and masks are made of.
fn pieces() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9]{1,24}",
        "[ \n=:,;'\"`\\\\{}<>()@/?&!.-]{1,2}",
        proptest::sample::select(vec![
            "key",
            "api_key",
            "TOKEN=",
            "password",
            "PASSWORD=",
            "secret: ",
            "sk-",
            "ghp_",
            "eyJ",
            "://",
            "***",
            "…",
            "Authorization: ",
            "Bearer ",
            "Basic ",
            "-----BEGIN PRIVATE KEY-----",
            "-----END",
            "\\n",
            "\\\"",
            "12345678:",
            "AKIA",
            "é",
            "😀",
            "--token ",
            "export ",
            "<password>",
            "hooks.slack.com/services/",
            "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7",
            "hunter2hunter2",
        ])
        .prop_map(str::to_owned),
    ]
}

#[test]
fn a_secret_longer_than_what_is_looked_at_is_masked_to_its_end() {
    let long = "a1b2c3d4e5".repeat(100) + "zzzz";
    assert_eq!(masked(&format!("TOKEN={long} x")), "TOKEN=a1b2c3…zzzz x");
    assert_eq!(masked(&format!("token = \"{long}\" x")), "token = \"a1b2c3…zzzz\" x");
    assert_eq!(masked(&format!("Authorization: Bearer {long}\n")), "Authorization: Bearer a1b2c3…zzzz\n");
    assert_eq!(masked(r#"password = "a1\"b2\"c3" + x"#), r#"password = "***" + x"#);
}

/// A cut at `|` leaves what is before `{` and what is after `}`.
#[test]
fn a_cut_takes_the_whole_secret_with_it() {
    let check = |marked: &str| {
        let text = marked.replace(['{', '|', '}'], "");
        let before = &marked[..marked.find('|').expect("a cut")];
        let at = before.len() - before.matches('{').count();
        let range = around_cut(&text, at);
        let mut told = text.clone();
        told.insert(range.end, '}');
        told.insert(at, '|');
        told.insert(range.start, '{');
        assert_eq!(told, marked);
    };
    check("plain {|}words");
    check("TOKEN={a1b2c3|d4e5f6} after");
    check("{|TOKEN=a1b2c3d4e5f6} after");
    check("TOK{|EN=a1b2c3d4e5f6} after");
    check("Authorization: {|Bearer abc123def456ghi7}\nnext");
    check("TOKEN={a1b2c3d4e5f6|} after");
    check("TOKEN='{a1b2c3d4e5f6'|} after");
    check("é\n-----BEGIN PRIVATE KEY-----\n{MC4CAQAwBQYDK2|VwBCIEIBftnHPp22Se}\n-----END PRIVATE KEY-----");
}

proptest! {
    /// Wherever a text is cut: neither part shows anything of the secret that was whole before.
    #[test]
    fn no_cut_leaves_half_a_secret(form in any::<proptest::sample::Index>(), at in any::<proptest::sample::Index>()) {
        let (text, _) = secrets::FORMS[form.index(secrets::FORMS.len())];
        let text = format!("Before é.\n{text}\nAfter é.");
        let at = text.floor_char_boundary(at.index(text.len()));
        let cut = around_cut(&text, at);
        let (head, tail) = (masked(&text[..cut.start]), masked(&text[cut.end..]));
        let (secret, _) = super::secrets(&text).next().expect("one");
        let elsewhere = format!("{} {}", &text[..secret.start], &text[secret.end..]);
        let chars: Vec<char> = text[secret].chars().collect();
        // A mask shows six characters.
        for part in chars.windows(7).map(String::from_iter) {
            let is_shown = head.contains(&part) || tail.contains(&part);
            prop_assert!(!is_shown || elsewhere.contains(&part), "{part}: {head} | {tail}");
        }
    }
}
