//! `sess events`: what happened, in order, now or as it happens.

use sess_app::{Event, Kind};
use sess_core::{policy::Standing, reference::ReferenceError};

use super::Context;
use crate::{
    cli,
    output::{Output, one_line},
};

/// How many events are loaded at a time.
const PAGE_LEN: usize = 500;

/// How many characters of an event's text are shown.
const ABOUT_LEN_MAX: usize = 160;

pub async fn run(context: &Context, output: &Output, args: cli::Events) -> anyhow::Result<()> {
    let app = &context.app;
    let mut after = args.after;
    if let Some(limit) = args.limit {
        after = after.max(app.events_head().await?.saturating_sub(limit));
    }
    let only = match &context.session {
        Some(reference) => Some(app.plan_session(&context.caller, Some(reference)).await?.id.to_string()),
        None => None,
    };
    // Subscribed before the first look, so that nothing falls in between.
    let mut changes = if args.follow { Some(app.changes()?) } else { None };
    loop {
        loop {
            let events = app.events(after, PAGE_LEN, context.redaction).await?;
            let Some(last) = events.last() else { break };
            after = last.cursor;
            for event in &events {
                if is_for(context, event, only.as_deref()).await? {
                    print(output, event)?;
                }
            }
        }
        let Some(changes) = &mut changes else { return Ok(()) };
        tokio::select! {
            changed = changes.changed() => changed?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// Tells whether an event is of the session that was asked for, and of one that this caller may see.
async fn is_for(context: &Context, event: &Event, only: Option<&str>) -> anyhow::Result<bool> {
    let session = event.fields["session_id"].as_str().unwrap_or_default();
    if only.is_some_and(|only| only != session) {
        return Ok(false);
    }
    if context.caller.standing == Standing::Owner {
        return Ok(true);
    }
    match context.app.resolve(&context.caller, session).await {
        Ok(_) | Err(sess_app::Error::Reference(ReferenceError::Current)) => Ok(true),
        Err(error) if error.kind() == Kind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
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
        "damaged" => text("error").to_owned(),
        _ => text("key").to_owned(),
    };
    let about: String =
        about.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(ABOUT_LEN_MAX).collect();
    let line = format!("{:>6}  {:<20}  {}  {about}", event.cursor, text("type"), text("session_id"));
    output.line(&output.fit(&one_line(&line)))
}
