//! `sess hook`, hidden: what hosts run when something happens in a session of theirs.
//!
//! A host waits for its hooks, and shows what they complain about: so this is quick, and silent unless there is
//! something to tell.

use std::{io::Read as _, time::Duration};

use serde::Deserialize;
use serde_json::json;
use sess_app::{App, Signals, Waiting};
use sess_core::plan::State;

use super::Context;
use crate::{
    cli::{HookEvent, HostName},
    output::Output,
};

/// How long it takes at most.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most that a host tells about the event.
const TOLD_BYTES_MAX: u64 = 1_000_000;

/// What hosts write to the standard input of a hook, as far as it is asked for.
#[derive(Deserialize)]
struct Told {
    session_id: String,
}

pub async fn run(context: &Context, output: &Output, event: &HookEvent) {
    let HookEvent::SessionStart { host } = event;
    let told = tokio::time::timeout(PATIENCE, session_start(&context.app, *host));
    let Ok(Some(text)) = told.await else { return };
    // Claude Code and Gemini CLI read the same form, and hand the text to the model.
    let answer = json!({
        "hookSpecificOutput": { "hookEventName": "SessionStart", "additionalContext": text },
    });
    let _gone = output.line(&answer.to_string());
}

async fn session_start(app: &App, host: HostName) -> Option<String> {
    let read = tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        std::io::stdin().take(TOLD_BYTES_MAX).read_to_string(&mut text).map(|_| text)
    });
    let told: Told = serde_json::from_str(&read.await.ok()?.ok()?).ok()?;
    let explicit = Some(format!("{}:{}", host.as_str(), told.session_id));
    let caller = app.caller(&Signals { explicit, ..Signals::default() });
    match app.waiting(&caller).await {
        Ok(waiting) => sentence(&waiting),
        Err(error) => {
            tracing::info!("{error}");
            None
        }
    }
}

fn sentence(waiting: &Waiting) -> Option<String> {
    let mut lines = Vec::new();
    match waiting.unread {
        0 => {}
        1 => lines
            .push("1 message from another session waits for you: read it with sessions_inbox.".to_owned()),
        n => lines
            .push(format!("{n} messages from other sessions wait for you: read them with sessions_inbox.")),
    }
    match waiting.plan {
        Some(State::Ready) => {
            lines.push("This session's plan is ready and waits for the person's review.".to_owned());
        }
        Some(State::Approved) => {
            lines.push(
                "This session's plan is approved: read it with read_session_plan before you go on."
                    .to_owned(),
            );
        }
        Some(State::ChangesRequested) => {
            lines.push("Changes to this session's plan were asked for: read_session_plan has it.".to_owned());
        }
        Some(State::Draft | State::Done) | None => {}
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unread: usize, plan: Option<State>, told: &str) {
        assert_eq!(sentence(&Waiting { unread, plan }).unwrap_or_default(), told);
    }

    #[test]
    fn only_what_waits_is_told() {
        check(0, None, "");
        check(0, Some(State::Draft), "");
        check(0, Some(State::Done), "");
        check(1, None, "1 message from another session waits for you: read it with sessions_inbox.");
        check(
            2,
            Some(State::Approved),
            "2 messages from other sessions wait for you: read them with sessions_inbox.\n\
             This session's plan is approved: read it with read_session_plan before you go on.",
        );
    }
}
