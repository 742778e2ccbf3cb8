//! What is inside records: prompts, tool calls, their results.

use serde_json::{Map, Value, json};
use sess_core::message::Block;

use super::{asked, either};
use crate::json;

/// A tool call that is over.
pub(super) struct Done {
    pub name: String,
    pub arguments: Value,
    pub result: Option<(Vec<Block>, bool)>,
    /// The threads that it started.
    pub children: Vec<String>,
}

/// Returns the blocks of an event that says what a person typed.
pub(super) fn prompt(event: &Value) -> Vec<Block> {
    let text = asked(json::field(event, "message").unwrap_or_default());
    let mut content = Vec::new();
    if !text.is_empty() {
        content.push(json::text(text));
    }
    let list = |name: &str| event.get(name).and_then(Value::as_array).into_iter().flatten();
    content.extend(list("images").filter_map(Value::as_str).map(|url| json::file("", "", url)));
    for name in ["local_images", "local_audio"] {
        let path = |file: &Value| file.as_str().or_else(|| json::field(file, "path")).map(str::to_owned);
        content.extend(list(name).filter_map(path).map(|path| json::file(&path, "", "")));
    }
    content
}

/// Returns the blocks of a message, its texts changed by `keep`: an empty one is left out.
pub(super) fn content(parts: Option<&Value>, keep: impl Fn(&str) -> &str) -> Vec<Block> {
    let block = |part: &Value| {
        if let Some(text) = json::field(part, "text") {
            let text = keep(text);
            return (!text.is_empty()).then(|| json::text(text));
        }
        let field = |name: &str| json::field(part, name).unwrap_or_default();
        let url = part.get("image_url").or_else(|| part.get("url")).and_then(Value::as_str);
        match (url, field("path"), field("data")) {
            (Some(url), ..) => Some(json::file("", "", url)),
            (None, path, _) if !path.is_empty() => Some(json::file(path, "", "")),
            // As tools of other servers hand over images.
            (None, _, data) if !data.is_empty() && field("type") == "image" => {
                Some(Block::Image { mime_type: field("mimeType").to_owned(), data: data.to_owned() })
            }
            _ => part.as_object().map(|fields| json::other(fields.clone())),
        }
    };
    match parts {
        Some(Value::String(text)) => vec![json::text(keep(text))],
        Some(Value::Array(parts)) => parts.iter().filter_map(block).collect(),
        _ => Vec::new(),
    }
}

/// Returns what the model thought, as far as it is told.
pub(super) fn reasoning(item: &Value) -> String {
    let parts = |snake: &str, camel: &str| {
        let parts = either(item, snake, camel).and_then(Value::as_array).into_iter().flatten();
        let texts = parts.filter_map(|part| part.as_str().or_else(|| json::field(part, "text")));
        texts.collect::<Vec<_>>().join("\n")
    };
    let tellings = [
        parts("summary", "summary"),
        parts("summary_text", "summaryText"),
        parts("content", "content"),
        parts("raw_content", "rawContent"),
    ];
    tellings.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

/// Returns the call that an item for the model is.
pub(super) fn call(item: &mut Value) -> Block {
    let kind = json::field(item, "type").unwrap_or_default().trim_end_matches("_call").to_owned();
    let named = ["arguments", "input", "action"].into_iter().find(|name| item.get(*name).is_some());
    let arguments = named.and_then(|name| item.get_mut(name)).map(Value::take).unwrap_or_default();
    let field = |name: &str| json::field(item, name);
    let name = match (field("namespace"), field("name")) {
        (Some(namespace), Some(name)) if !name.starts_with(namespace) => format!("{namespace}{name}"),
        (_, name) => name.unwrap_or(&kind).to_owned(),
    };
    json::tool_call(field("call_id").or_else(|| field("id")).unwrap_or_default(), &name, arguments)
}

/// Returns a tool's result, and whether it failed.
pub(super) fn output(item: &Value) -> (Vec<Block>, bool) {
    let output = item.get("output").or_else(|| item.get("tools")).unwrap_or(&Value::Null);
    match output {
        Value::String(text) => {
            // Some tools wrap what they printed together with how they ended.
            let wrapped = text.starts_with('{').then(|| json::from_str::<Value>(text).ok()).flatten();
            match wrapped.as_ref().and_then(|wrapped| json::field(wrapped, "output")) {
                Some(printed) => {
                    let code = wrapped.as_ref().and_then(|it| it.pointer("/metadata/exit_code"));
                    let is_error = code.and_then(Value::as_i64).is_some_and(|code| code != 0);
                    (vec![json::text(printed)], is_error)
                }
                None => (vec![json::text(text)], false),
            }
        }
        Value::Object(fields) => {
            let is_error = fields.get("success").and_then(Value::as_bool) == Some(false);
            (content(fields.get("content"), |text| text), is_error)
        }
        parts => (content(Some(parts), |text| text), false),
    }
}

/// Returns the thread that a result says was started.
pub(super) fn spawned(content: &[Block]) -> Option<String> {
    let Some(Block::Text { text }) = content.first() else { return None };
    let answer: Value = json::from_str(text).ok()?;
    json::field(&answer, "agent_id").map(str::to_owned)
}

/// Returns the image that was made.
pub(super) fn image(item: &Value) -> Block {
    let field = |name: &str| json::field(item, name).unwrap_or_default();
    if field("result").is_empty() {
        return json::named("image", &[("path", field("saved_path")), ("prompt", field("revised_prompt"))]);
    }
    Block::Image { mime_type: "image/png".to_owned(), data: field("result").to_owned() }
}

/// Returns the tool call that an item is; none for a kind that is not known.
pub(super) fn done(item: &mut Value) -> Option<Done> {
    let kind = json::field(item, "type")?.to_owned();
    let mut arguments = item.get_mut("arguments").map(Value::take).unwrap_or_default();
    let field = |name: &str| json::field(item, name).unwrap_or_default();
    let only = |names: &[&str]| {
        let given = names.iter().filter_map(|name| Some(((*name).to_owned(), item.get(*name)?.clone())));
        Value::Object(given.filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
    };
    let has_failed = matches!(field("status"), "failed" | "declined");
    let printed = |text: &str| (!text.is_empty()).then(|| json::text(text));
    let mut children = Vec::new();
    let (name, result) = match &*kind {
        "CommandExecution" => {
            arguments = only(&["command", "cwd"]);
            let output = either(item, "aggregated_output", "aggregatedOutput").and_then(Value::as_str);
            let code = either(item, "exit_code", "exitCode").and_then(Value::as_i64);
            let content = printed(output.unwrap_or_default()).into_iter().collect();
            ("exec_command".to_owned(), (content, has_failed || code.is_some_and(|code| code != 0)))
        }
        "FileChange" => {
            arguments = only(&["changes"]);
            let content = ["stdout", "stderr"].iter().filter_map(|name| printed(field(name))).collect();
            ("apply_patch".to_owned(), (content, has_failed))
        }
        "McpToolCall" => {
            let error = item.pointer("/error/message").and_then(Value::as_str);
            let content = match error {
                Some(error) => vec![json::text(error)],
                None => content(item.pointer("/result/content"), |text| text),
            };
            (format!("mcp__{}__{}", field("server"), field("tool")), (content, has_failed || error.is_some()))
        }
        "DynamicToolCall" => {
            let error = json::field(item, "error");
            let parts = either(item, "content_items", "contentItems");
            let content = error.map_or_else(|| content(parts, |text| text), |error| vec![json::text(error)]);
            (field("tool").to_owned(), (content, has_failed || error.is_some()))
        }
        "CollabAgentToolCall" => {
            arguments = only(&["prompt", "model"]);
            let tool = field("tool");
            let receivers = either(item, "receiver_thread_ids", "receiverThreadIds");
            let receivers = receivers.and_then(Value::as_array).into_iter().flatten();
            let receivers = receivers.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
            if matches!(tool, "spawn_agent" | "spawnAgent") {
                children = receivers;
            } else if let Value::Object(fields) = &mut arguments {
                fields.insert("receivers".to_owned(), json!(receivers));
            }
            (tool.to_owned(), (printed(field("status")).into_iter().collect(), has_failed))
        }
        "WebSearch" => {
            arguments = only(&["query", "action"]);
            ("web_search".to_owned(), (Vec::new(), false))
        }
        "ImageView" => {
            arguments = only(&["path"]);
            ("view_image".to_owned(), (Vec::new(), false))
        }
        _ => return None,
    };
    // A search or a look at an image has no result that is written down.
    let has_result = !matches!(&*kind, "WebSearch" | "ImageView");
    Some(Done { name, arguments, result: has_result.then_some(result), children })
}
