//! `sess events`: what happened, in order, now or as it happens.

use sess_app::Event;

use super::Context;
use crate::{
    cli,
    output::{Output, visible},
};

/// How many events are loaded at a time.
const PAGE_LEN: usize = 500;

pub async fn run(context: &Context, output: &Output, args: cli::Events) -> anyhow::Result<()> {
    let app = &context.app;
    let mut after = args.after;
    if let Some(limit) = args.limit {
        after = after.max(app.events_head().await?.saturating_sub(limit));
    }
    // Subscribed before the first look, so that nothing falls in between.
    let mut changes = if args.follow { Some(app.changes()?) } else { None };
    loop {
        loop {
            let events = app.events(after, PAGE_LEN, context.redaction).await?;
            let Some(last) = events.last() else { break };
            after = last.cursor;
            for event in &events {
                print(output, event)?;
            }
        }
        let Some(changes) = &mut changes else { return Ok(()) };
        tokio::select! {
            changed = changes.changed() => changed?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

fn print(output: &Output, event: &Event) -> anyhow::Result<()> {
    if output.json {
        // One object a line: this is a stream, and each line says what it is.
        return output.line(&serde_json::to_string(event)?);
    }
    let text = |field: &str| event.fields.get(field).and_then(|value| value.as_str()).unwrap_or_default();
    let about = match text("type") {
        "message" => {
            let message = &event.fields["message"];
            let said = message["content"][0]["text"].as_str().unwrap_or_default();
            let said: String =
                said.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
            format!("#{} {} {said}", message["seq"], message["role"].as_str().unwrap_or_default())
        }
        "session_plan_updated" => {
            format!("revision {} by {}", event.fields["revision"], text("agent_name"))
        }
        "session_plan_state" => {
            format!(
                "revision {} is {}, by {} {}",
                event.fields["revision"],
                text("state"),
                text("by"),
                text("note")
            )
        }
        "session_changed" => text("change").to_owned(),
        _ => text("key").to_owned(),
    };
    let line =
        format!("{:>6}  {:<20}  {}  {}", event.cursor, text("type"), text("session_id"), about.trim_end());
    output.line(&visible(&line).replace('\n', " "))
}
