//! Codex: everything below `$CODEX_HOME`.

use super::{
    document::{Entry, Format},
    host::{Machine, NAME, Need, Needs},
};

/// Codex starts servers with an environment of its own; these say where sessions are kept.
const PASSED_ON: [&str; 6] =
    ["SESS_HOME", "SESS_CONFIG", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"];

pub fn needs(machine: &Machine<'_>) -> Needs {
    let homes = machine.homes;
    let dir = homes.variable("CODEX_HOME").unwrap_or_else(|| homes.home().join(".codex"));
    let mut server = machine.server();
    server["env_vars"] = PASSED_ON.into();
    Needs {
        command: "codex",
        traces: vec![dir.clone()],
        files: vec![
            Need::entries(
                dir.join("config.toml"),
                Format::Toml,
                vec![Entry::named(&["mcp_servers"], NAME, server)],
            ),
            Need::skill(&dir.join("skills")),
        ],
    }
}
