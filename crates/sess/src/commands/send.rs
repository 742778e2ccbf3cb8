//! `sess send`: a message into a session, and its reply.

use std::process::ExitCode;

use sess_app::{SendMessage, WAIT_SECONDS_MAX};

use super::{Context, node, run::message_of, wait::INTERRUPTED};
use crate::{
    cli,
    output::{Output, Usage},
};

/// As `sess run --exec` ends when there was no time left.
pub const TIMED_OUT: u8 = 124;

pub async fn run(context: &Context, output: &Output, args: cli::Send) -> anyhow::Result<ExitCode> {
    if args.wait > WAIT_SECONDS_MAX {
        return Err(Usage(format!("--wait is 0 to {WAIT_SECONDS_MAX} seconds")).into());
    }
    let Some(message) = message_of(&args.words)? else {
        return Err(Usage("there is no message: sess send <session> \"what to say\"".to_owned()).into());
    };
    let sender = context.sender().await?;
    let ask = SendMessage {
        to: context.absolute(args.reference).await?,
        message,
        timeout_seconds: Some(args.wait),
        idempotency_key: args.idempotency_key,
        redaction: context.redaction,
    };
    let begun = std::cell::RefCell::new(Ok(()));
    let is_awaited = args.wait > 0;
    let sending = context.app.send_told(&sender, ask, |run| {
        if is_awaited {
            *begun.borrow_mut() = node::start(context, run);
        }
    });
    tokio::pin!(sending);
    let answer = tokio::select! {
        answer = &mut sending => answer?,
        _ = tokio::signal::ctrl_c() => {
            // Recorded before we leave, so that the reply finds the sender later.
            sender.gone.cancel();
            let answer = sending.await?;
            if answer.status == "timeout" {
                output.say("no longer waiting; the message stays: `sess runs` shows it, `sess cancel` takes it back");
                return Ok(ExitCode::from(INTERRUPTED));
            }
            answer
        }
    };
    begun.replace(Ok(()))?;
    let code = match answer.status.as_str() {
        "ok" | "accepted" => 0,
        "timeout" => TIMED_OUT,
        _ => 1,
    };
    if output.json {
        output.data(&answer)?;
        return Ok(ExitCode::from(code));
    }
    let short = short(&answer.run_id);
    match answer.status.as_str() {
        "ok" => match answer.reply.as_deref().map(str::trim_end).filter(|reply| !reply.is_empty()) {
            Some(reply) => output.foreign(&format!("{reply}\n"))?,
            None => output.say("(no reply: the agent had nothing to say)"),
        },
        "accepted" => {
            output.line(&answer.run_id)?;
            output
                .say(&format!("queued for {}; `sess wait {short}` waits for the reply", answer.session_key));
        }
        "timeout" => {
            let delivery = answer.delivery.as_deref().map(|delivery| match delivery {
                "delivered" => "it was delivered",
                "replied" => "it was answered",
                _ => "it is queued",
            });
            output.say(&format!(
                "no reply from {} within {} s: {}, and goes on without you",
                answer.session_key,
                args.wait,
                delivery.unwrap_or("it is queued")
            ));
            output.say(&format!("next: `sess wait {short}` waits longer, `sess cancel {short}` stops it"));
        }
        _ => {
            let error = answer.error.as_deref().unwrap_or("the run failed");
            output.failed(error);
            output.say(&format!("next: `sess history {}` shows what happened", answer.session_key));
        }
    }
    Ok(ExitCode::from(code))
}

/// Returns as much of a run's id as people copy.
pub fn short(run: &str) -> &str {
    run.get(..8).unwrap_or(run)
}
