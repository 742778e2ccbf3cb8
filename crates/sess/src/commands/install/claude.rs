//! Claude Code: servers in `.claude.json`, hooks in `settings.json`, skills beside them.

use serde_json::json;

use super::{
    document::{Entry, Format},
    host::{Machine, NAME, Need, Needs},
    json::Dialect,
};
use crate::cli::HostName;

/// How long it waits for the hook.
const HOOK_SECONDS: u32 = 5;

pub fn needs(machine: &Machine<'_>) -> Needs {
    let homes = machine.homes;
    let (dir, servers) = (homes.claude(), homes.claude_servers());
    let mut server = machine.server();
    server["type"] = "stdio".into();
    let command =
        json!({ "type": "command", "command": machine.hook(HostName::Claude), "timeout": HOOK_SECONDS });
    let hook = Entry::listed(&["hooks", "SessionStart"], json!({ "hooks": [command] }));
    let strict = Format::Json(Dialect::Strict);
    Needs {
        command: "claude",
        traces: vec![dir.clone(), servers.clone()],
        files: vec![
            Need::entries(servers, strict, vec![Entry::named(&["mcpServers"], NAME, server)]),
            Need::entries(dir.join("settings.json"), strict, vec![hook]),
            Need::skill(&dir.join("skills")),
        ],
    }
}
