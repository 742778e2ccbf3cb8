//! `sess history`: the newest messages of a session, with whose words they really are.

use std::fmt::Write as _;

use console::Style;
use serde_json::Value;
use sess_app::ReadHistory;
use sess_core::{Timestamp, exchange::is_control_word};

use super::{Context, progress::Progress};
use crate::{
    cli,
    output::{Output, Usage, one_line, visible},
};

/// How many characters of a call's arguments are shown.
const ARGUMENTS_CHARS_MAX: usize = 200;

pub async fn run(context: &Context, output: &Output, args: cli::History) -> anyhow::Result<()> {
    let refused = |text: &str| Err(Usage(text.to_owned()).into());
    let reference = match (args.reference, &context.session) {
        (Some(named), None) => named,
        (None, Some(named)) => named.clone(),
        (Some(_), Some(_)) => return refused("a session is named twice: leave out --session"),
        (None, None) => return refused("which session: name it, as in `sess history -1`"),
    };
    let ask = ReadHistory {
        session: context.absolute(reference).await?,
        limit: Some(i64::from(args.limit)),
        include_tools: args.tools,
        redaction: context.redaction,
    };
    let progress = Progress::new("reading");
    let history = context.app.history(&context.caller, &ask).await?;
    drop(progress);
    if output.json {
        return output.data(&history);
    }
    if history.messages.is_empty() {
        output.say(&format!("{} has no messages yet", history.session_key));
        return Ok(());
    }
    if history.truncated || history.dropped_messages > 0 {
        output.say("older messages are left out; `--limit` shows more, `sess read` has all");
    }
    let mut text = String::new();
    for message in &history.messages {
        render(message, &mut text);
    }
    output.raw(text.trim_end().as_bytes())?;
    output.line("")?;
    if history.content_redacted {
        output.say("secrets are masked; --no-redact shows them");
    }
    Ok(())
}

/// Writes a message with a heading; one that shows nothing has none.
fn render(message: &Value, text: &mut String) {
    let blocks = message["content"].as_array().into_iter().flatten();
    let shown: Vec<String> = blocks.map(shown).filter(|shown| !shown.trim().is_empty()).collect();
    if shown.is_empty() {
        return;
    }
    let (who, style) = author(message);
    let at = message["timestamp"].as_i64().and_then(Timestamp::from_millis);
    let at = at.map(|at| format!(" · {at}")).unwrap_or_default();
    let head = style.apply_to(format!("{who} #{}", message["seq"]));
    let _infallible = writeln!(text, "{head}{}", Style::new().dim().apply_to(at));
    for row in shown.iter().flat_map(|shown| shown.trim_end().lines()) {
        let _infallible = writeln!(text, "  {row}");
    }
    text.push('\n');
}

/// Returns what is shown of a block; what has no words is named.
fn shown(block: &Value) -> String {
    let word = |key: &str| block[key].as_str().unwrap_or_default();
    let dim = |text: &str| Style::new().dim().apply_to(text).to_string();
    match word("type") {
        // What a model thinks is not what it says; `--json` has it.
        "thinking" => String::new(),
        "toolCall" => {
            let arguments: String =
                one_line(&block["arguments"].to_string()).chars().take(ARGUMENTS_CHARS_MAX).collect();
            let name = Style::new().bold().apply_to(one_line(word("name")));
            format!("● {name} {}", dim(&arguments))
        }
        "image" => {
            let size = block["bytes"].as_u64().map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
            dim(&one_line(&format!("[image {}{size}]", word("mimeType"))))
        }
        "subSession" => dim(&one_line(&format!("[another session ran here: {}]", word("sessionId")))),
        "compaction" => {
            format!("{}\n{}", dim("[what was said before was compacted]"), visible(word("summary")))
        }
        // A word for the program is no message.
        "text" if is_control_word(word("text")) => {
            dim(&format!("(nothing more to say: {})", word("text").trim()))
        }
        "text" => visible(word("text")),
        kind => dim(&one_line(&format!("[{kind}]"))),
    }
}

/// Says who wrote a message. A peer's words never look like the person's.
fn author(message: &Value) -> (String, Style) {
    let word = |key: &str| message[key].as_str().map(one_line).unwrap_or_default();
    let provenance = &message["provenance"];
    match (word("role").as_str(), provenance["kind"].as_str()) {
        ("user", Some("inter_session")) => {
            let from = provenance["sourceSessionKey"].as_str().map(one_line).unwrap_or_default();
            let tool = provenance["sourceTool"].as_str().map(one_line);
            let tool = tool.map(|tool| format!(" ({tool})")).unwrap_or_default();
            (format!("↪ from {from}{tool}"), Style::new().magenta().bold())
        }
        ("user", Some("internal_system")) | ("system", _) => ("the program".to_owned(), Style::new().dim()),
        ("user", _) => ("you".to_owned(), Style::new().cyan().bold()),
        ("toolResult", _) => {
            let failed = if message["isError"] == true { " failed" } else { "" };
            (format!("{}{failed}", word("toolName")), Style::new().dim())
        }
        _ => {
            let agent = word("agentId");
            let name = if agent.is_empty() { "assistant".to_owned() } else { agent };
            (name, Style::new().green().bold())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mark_is_named_and_nothing_has_no_heading() {
        let shown = |content: Value| {
            let mut text = String::new();
            render(&json!({ "role": "system", "seq": 5, "content": content }), &mut text);
            text
        };
        let sub_session = shown(json!([{ "type": "subSession", "sessionId": "child-1" }]));
        assert!(sub_session.contains("[another session ran here: child-1]"), "{sub_session}");
        let compaction = shown(json!([{ "type": "compaction", "summary": "what was\nsaid" }]));
        assert!(
            compaction.contains("  [what was said before was compacted]\n  what was\n  said\n"),
            "{compaction}"
        );
        assert!(shown(json!([{ "type": "hologram" }])).contains("[hologram]"));
        let thought = json!([{ "type": "thinking", "text": "they may not like it" }]);
        for nothing in [json!([]), json!([{ "type": "text", "text": " \n" }]), thought] {
            assert_eq!(shown(nothing), "");
        }
    }

    #[test]
    fn an_image_is_shown_as_its_type_and_size() {
        let image = json!({ "type": "image", "mimeType": "image/png", "bytes": 5, "omitted": true });
        let mut text = String::new();
        render(&json!({ "role": "user", "seq": 1, "content": [image] }), &mut text);
        assert!(text.contains("[image image/png, 5 bytes]"), "{text}");
    }
}
