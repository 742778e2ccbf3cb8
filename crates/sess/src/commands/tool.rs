//! `sess tool call`: a tool's answer, as an agent would get it.

use std::process::ExitCode;

use serde_json::{Value, json};
use sess_app::tools::{self, ToolCall};

use super::Context;
use crate::{
    cli,
    output::{Output, Usage, visible},
};

pub async fn run(context: &Context, output: &Output, args: cli::Tool) -> anyhow::Result<ExitCode> {
    match args {
        cli::Tool::List => list(output),
        cli::Tool::Call { name, arguments, idempotency_key } => {
            let arguments = match arguments {
                None => Value::Null,
                Some(text) => serde_json::from_str(&text)
                    .map_err(|error| Usage(format!("the arguments are not valid JSON: {error}")))?,
            };
            call(context, output, ToolCall { name, arguments, idempotency_key }).await
        }
    }
}

async fn call(context: &Context, output: &Output, call: ToolCall) -> anyhow::Result<ExitCode> {
    // A tool is called by an agent; the owner who tries one out plays it.
    let name = call.name.clone();
    let Some(answer) = context.app.call_tool(&context.tool_caller, call).await else {
        let known: Vec<_> = tools::all().iter().map(|tool| tool.name).collect();
        return Err(Usage(format!("no tool is called \"{name}\"; the tools are {}", known.join(", "))).into());
    };
    if output.json {
        output.data(&json!({
            "text": answer.text, "structuredContent": answer.structured, "isError": answer.is_error,
        }))?;
    } else if answer.is_error {
        output.say(&visible(&answer.text));
    } else {
        output.foreign(&answer.text)?;
    }
    Ok(ExitCode::from(u8::from(answer.is_error)))
}

fn list(output: &Output) -> anyhow::Result<ExitCode> {
    let tools = tools::all();
    if output.json {
        let tools: Vec<_> = tools
            .iter()
            .map(|tool| {
                json!({
                    "name": tool.name, "title": tool.title, "description": tool.description,
                    "toolset": tool.toolset.as_str(), "inputSchema": tool.input_schema,
                    "outputSchema": tool.output_schema,
                })
            })
            .collect();
        output.data(&json!({ "tools": tools }))?;
    } else {
        let rows = tools.iter().map(|tool| {
            let what = tool.description.split_inclusive(". ").next().unwrap_or_default();
            vec![tool.name.to_owned(), tool.toolset.to_string(), what.trim().to_owned()]
        });
        output.table(&["TOOL", "TOOLSET", "WHAT IT DOES"], 2, &rows.collect::<Vec<_>>())?;
    }
    Ok(ExitCode::SUCCESS)
}
