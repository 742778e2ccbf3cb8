//! goose: an extension in `config.yaml`.

use serde_json::json;

use super::{
    document::{Entry, Format},
    host::{Machine, NAME, Need, Needs},
};

/// How long it waits for a call.
const TIMEOUT_SECONDS: u32 = 300;

pub fn needs(machine: &Machine<'_>) -> Needs {
    let dir = machine.homes.goose_config();
    let extension = json!({
        "enabled": true, "type": "stdio", "name": NAME, "description": "Plans, earlier sessions, other sessions",
        "cmd": machine.program, "args": ["mcp"], "envs": {}, "env_keys": [], "timeout": TIMEOUT_SECONDS,
    });
    let entry = Entry::named(&["extensions"], NAME, extension);
    Needs {
        command: "goose",
        traces: vec![dir.clone(), machine.homes.goose_data()],
        files: vec![Need::entries(dir.join("config.yaml"), Format::Yaml, vec![entry])],
    }
}
