//! Tools that touch the world, attacked as a model or a hostile repository would.
#![cfg(test)]

mod files;
mod shell;

use serde_json::{Map, Value};
use sess_agent::tool::{ToolOutput, Toolbox};
use tokio_util::sync::CancellationToken;

/// Calls a tool with arguments written as JSON.
async fn call(tools: &dyn Toolbox, name: &str, arguments: Value) -> ToolOutput {
    tools.call(name, object(arguments), &CancellationToken::new()).await
}

fn object(arguments: Value) -> Map<String, Value> {
    match arguments {
        Value::Object(arguments) => arguments,
        other => panic!("{other} is no object"),
    }
}
