//! Cursor: servers in `mcp.json`.

use super::{
    document::{Entry, Format},
    host::{Machine, NAME, Need, Needs},
    json::Dialect,
};

pub fn needs(machine: &Machine<'_>) -> Needs {
    let dir = machine.homes.home().join(".cursor");
    let mut server = machine.server();
    server["type"] = "stdio".into();
    let entry = Entry::named(&["mcpServers"], NAME, server);
    Needs {
        command: "cursor",
        traces: vec![dir.clone()],
        files: vec![
            Need::entries(dir.join("mcp.json"), Format::Json(Dialect::Relaxed), vec![entry]),
            Need::skill(&dir.join("skills")),
        ],
    }
}
