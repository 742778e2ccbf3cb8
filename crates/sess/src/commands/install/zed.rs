//! Zed: a context server in `settings.json`, which has comments.

use serde_json::json;

use super::{
    document::{Entry, Format},
    host::{Machine, NAME, Need, Needs},
    json::Dialect,
};

pub fn needs(machine: &Machine<'_>) -> Needs {
    let dir = machine.homes.config().join("zed");
    let mut server = machine.server();
    server["env"] = json!({});
    let entry = Entry::named(&["context_servers"], NAME, server);
    Needs {
        command: "zed",
        traces: vec![dir.clone(), machine.homes.data().join("zed")],
        files: vec![Need::entries(dir.join("settings.json"), Format::Json(Dialect::Relaxed), vec![entry])],
    }
}
