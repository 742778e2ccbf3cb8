//! `sess events`: what happened, in order, now or as it happens.

use std::collections::VecDeque;

use sess_app::{Event, ReadEvents};

use super::Context;
use crate::{
    cli,
    output::{Output, one_line},
};

/// How many events are loaded at a time.
const PAGE_LEN: usize = 500;

/// How many characters of an event's text are shown.
const ABOUT_CHARS_MAX: usize = 160;

pub async fn run(context: &Context, output: &Output, args: cli::Events) -> anyhow::Result<()> {
    let app = &context.app;
    let only = match &context.session {
        Some(reference) => Some(app.plan_session(&context.caller, Some(reference)).await?.id),
        None => None,
    };
    let mut ask = ReadEvents { after: args.after, limit: PAGE_LEN, only, redaction: context.redaction };
    // Subscribed before the first look, so that nothing falls in between.
    let mut changes = if args.follow { Some(app.changes()?) } else { None };
    if let Some(wanted) = args.limit {
        for event in newest(context, &mut ask, usize::try_from(wanted)?).await? {
            print(output, &event)?;
        }
    }
    loop {
        loop {
            let page = app.events(&context.caller, &ask).await?;
            for event in &page.events {
                print(output, event)?;
            }
            if page.cursor == ask.after {
                break;
            }
            ask.after = page.cursor;
        }
        let Some(changes) = &mut changes else { return Ok(()) };
        tokio::select! {
            changed = changes.changed() => changed?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// Returns the newest events, oldest first, and leaves `ask` behind them.
///
/// Looks at the end of the feed first, and further back only when most of it is not asked for.
async fn newest(context: &Context, ask: &mut ReadEvents, wanted: usize) -> anyhow::Result<VecDeque<Event>> {
    let first = ask.after;
    let head = context.app.events_head().await?.max(first);
    let mut width = wanted as u64;
    loop {
        ask.after = head.saturating_sub(width).max(first);
        let is_all = ask.after == first;
        let mut found = VecDeque::new();
        loop {
            let page = context.app.events(&context.caller, ask).await?;
            found.extend(page.events);
            found.drain(..found.len().saturating_sub(wanted));
            if page.cursor == ask.after {
                break;
            }
            ask.after = page.cursor;
        }
        if is_all || found.len() == wanted {
            return Ok(found);
        }
        width = width.saturating_mul(8).max(8);
    }
}

fn print(output: &Output, event: &Event) -> anyhow::Result<()> {
    if output.json {
        return output.data_line(event);
    }
    let text = |field: &str| event.fields.get(field).and_then(|value| value.as_str()).unwrap_or_default();
    let about = match text("type") {
        "message" => {
            let message = &event.fields["message"];
            let said = message["content"][0]["text"].as_str().unwrap_or_default();
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
        "run_state" => {
            format!("run {} of {} is {} {}", text("run_id"), text("agent"), text("state"), text("error"))
        }
        "damaged" => text("error").to_owned(),
        _ => text("key").to_owned(),
    };
    let about: String =
        about.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(ABOUT_CHARS_MAX).collect();
    let line = format!("{:>6}  {:<20}  {}  {about}", event.cursor, text("type"), text("session_id"));
    output.line(&output.fit(&one_line(&line)))
}
