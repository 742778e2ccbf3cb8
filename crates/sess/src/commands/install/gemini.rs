//! Gemini CLI: servers and hooks in one file, `settings.json`.

use serde_json::json;

use super::{
    document::{Entry, Format},
    host::{Machine, NAME, Need, Needs},
    json::Dialect,
};
use crate::cli::HostName;

/// How long it waits for the hook.
const HOOK_MS: u32 = 5_000;

pub fn needs(machine: &Machine<'_>) -> Needs {
    let dir = machine.homes.gemini();
    let command = json!({
        "name": "intersession", "type": "command", "command": machine.hook(HostName::Gemini), "timeout": HOOK_MS,
    });
    let entries = vec![
        Entry::named(&["mcpServers"], NAME, machine.server()),
        Entry::listed(&["hooks", "SessionStart"], json!({ "hooks": [command] })),
    ];
    Needs {
        command: "gemini",
        traces: vec![dir.clone()],
        files: vec![
            Need::entries(dir.join("settings.json"), Format::Json(Dialect::Comments), entries),
            Need::skill(&dir.join("skills")),
        ],
    }
}
