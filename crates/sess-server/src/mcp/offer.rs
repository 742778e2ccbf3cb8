//! Which tools one connection serves, in the form that MCP gives them.
//!
//! Decided once, when the connection opens. A tool that is not offered does not
//! exist for the client: it is not listed, and calling it is an unknown tool.

use std::sync::Arc;

use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use serde_json::Value;
use sess_app::tools::{self, ToolInfo, Toolset};

use crate::Error;

/// Asks hosts that hide MCP tools behind a search to show this one at once.
const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";

/// The tools of one connection, in the app's order.
pub(super) struct Offer(Vec<Tool>);

impl Offer {
    /// Returns the tools of `toolsets`, and of those only `names` when given.
    pub(super) fn new(toolsets: &[Toolset], names: Option<&[String]>) -> Result<Self, Error> {
        let all = tools::all();
        for name in names.unwrap_or_default() {
            // A misspelt name would otherwise be a tool that is silently missing.
            if !all.iter().any(|tool| tool.name == name) {
                let known: Vec<_> = all.iter().map(|tool| tool.name).collect();
                return Err(Error::UnknownTool { name: name.clone(), known: known.join(", ") });
            }
        }
        let offered = all.iter().filter(|tool| {
            toolsets.contains(&tool.toolset)
                && names.is_none_or(|names| names.iter().any(|name| name == tool.name))
        });
        Ok(Self(offered.cloned().map(render).collect()))
    }

    pub(super) fn tools(&self) -> &[Tool] {
        &self.0
    }

    /// Returns whether the tool `name` changes nothing.
    pub(super) fn is_read_only(&self, name: &str) -> bool {
        let is_read_only =
            |tool: &Tool| tool.annotations.as_ref().and_then(|hints| hints.read_only_hint) == Some(true);
        self.0.iter().any(|tool| tool.name == name && is_read_only(tool))
    }

    /// Returns whether the tool `name` is served here.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.name == name)
    }
}

/// Returns whether the tool `name` deals with other sessions.
pub(super) fn is_of_sessions(name: &str) -> bool {
    tools::all().iter().any(|tool| tool.name == name && tool.toolset == Toolset::Sessions)
}

fn render(info: ToolInfo) -> Tool {
    let hints = info.annotations;
    let mut meta = MetaObject::new();
    meta.0.insert(ALWAYS_LOAD.to_owned(), Value::Bool(true));
    Tool::new(info.name, info.description, Arc::new(info.input_schema))
        .with_title(info.title)
        .with_raw_output_schema(Arc::new(info.output_schema))
        .with_annotations(
            ToolAnnotations::with_title(info.title)
                .read_only(hints.read_only)
                .destructive(hints.destructive)
                .idempotent(hints.idempotent)
                .open_world(hints.open_world),
        )
        .with_meta(meta)
}
