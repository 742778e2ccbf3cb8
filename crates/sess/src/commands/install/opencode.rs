//! opencode: `opencode.json`, or `opencode.jsonc` where that is the one.

use serde_json::json;

use super::{
    document::{Entry, Format},
    host::{Machine, NAME, Need, Needs},
    json::Dialect,
};

/// It gives up on a call after 5 s, and a search through everything may take longer.
const TIMEOUT_MS: u32 = 60_000;

pub fn needs(machine: &Machine<'_>) -> Needs {
    let dir = machine.homes.config().join("opencode");
    // All of them are read, and what the last says counts.
    let [old, plain, commented] =
        ["config.json", "opencode.json", "opencode.jsonc"].map(|name| dir.join(name));
    let (file, other) =
        if commented.exists() && !plain.exists() { (commented, plain) } else { (plain, commented) };
    let server = json!({
        "type": "local", "command": [machine.program, "mcp"], "enabled": true, "timeout": TIMEOUT_MS,
    });
    let entry = Entry::named(&["mcp"], NAME, server);
    Needs {
        command: "opencode",
        traces: vec![dir.clone(), machine.homes.data().join("opencode")],
        files: vec![
            Need::entries(file, Format::Json(Dialect::Relaxed), vec![entry]).besides(vec![other, old]),
            Need::skill(&dir.join("skills")),
        ],
    }
}
