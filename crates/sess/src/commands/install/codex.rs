//! Codex: everything below `$CODEX_HOME`.

use sess_readers::MOVERS;

use super::{
    document::{Entry, Format},
    host::{Machine, NAME, Need, Needs},
};

/// Codex starts servers with an environment of its own; these say where our files are, beside `MOVERS`.
const PASSED_ON: [&str; 2] = ["SESS_HOME", "SESS_CONFIG"];

pub fn needs(machine: &Machine<'_>) -> Needs {
    let dir = machine.homes.codex();
    let mut server = machine.server();
    server["env_vars"] = [&PASSED_ON[..], &MOVERS].concat().into();
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
