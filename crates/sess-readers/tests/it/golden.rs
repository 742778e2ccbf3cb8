//! What is listed and read of each sample is what was looked at once and found right.

use std::{fs, path::Path};

use crate::homes::{copy, written};

/// Compares with the golden file; `SESS_BLESS=1` writes it.
#[expect(clippy::disallowed_methods, reason = "who runs the tests says whether to write")]
fn check(agent: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{agent}.txt"));
    let written = written(copy(agent).path());
    if std::env::var_os("SESS_BLESS").is_some() {
        fs::write(&golden, &written).expect("written");
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(written, expected, "{agent}: SESS_BLESS=1 accepts what is written now");
}

#[test]
fn claude_code() {
    check("claude-code");
}

#[test]
fn opencode() {
    check("opencode");
}

#[test]
fn codex() {
    check("codex");
}

#[test]
fn gemini_cli() {
    check("gemini-cli");
}

#[test]
fn cursor() {
    check("cursor");
}

#[test]
fn amp() {
    check("amp");
}

#[test]
fn goose() {
    check("goose");
}

#[test]
fn docker_agent() {
    check("docker-agent");
}

#[test]
fn openclaw() {
    check("openclaw");
}

#[test]
fn crush() {
    check("crush");
}

#[test]
fn zed() {
    check("zed");
}
