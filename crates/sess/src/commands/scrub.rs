//! `sess scrub`: secrets are taken out of what is stored.

use serde::Serialize;
use sess_app::{Scrubbed, Scrubbing};

use super::{Context, progress::Progress};
use crate::{cli, output::Output};

#[derive(Serialize)]
struct Answer {
    /// Whether they were taken out, or only counted.
    rewritten: bool,
    #[serde(flatten)]
    scrubbed: Scrubbed,
}

pub async fn run(context: &Context, output: &Output, args: cli::Scrub) -> anyhow::Result<()> {
    let one = match &args.reference {
        Some(reference) => Some(context.resolve(reference).await?),
        None => None,
    };
    let how = if args.yes { Scrubbing::Rewrite } else { Scrubbing::Count };
    let scrubbed = context.app.scrub(&context.caller, one.as_ref(), how).await?;
    if args.yes && scrubbed.looked_at > 0 {
        let progress = Progress::new("indexing messages");
        context.app.catch_up(&|done, all| progress.set(done, all)).await?;
    }
    if output.json {
        return output.data(&Answer { rewritten: args.yes, scrubbed });
    }
    for session in &scrubbed.sessions {
        output.line(&format!("{}  {}", session.id, texts(session.texts)))?;
    }
    let all = texts(scrubbed.sessions.iter().map(|session| session.texts).sum());
    output.say(&match (scrubbed.sessions.len(), args.yes) {
        (0, _) => format!("no secrets found in {} sessions", scrubbed.looked_at),
        (_, false) => format!("{all} with secrets; `sess scrub --yes` masks them for good"),
        (_, true) => format!("{all} masked; where agents keep files of their own, secrets may stay"),
    });
    if scrubbed.stays_in_log {
        output.say(
            "another process reads the store, whose log still has what was masked: `sess scrub --yes` again, when \
             it is done, empties the log",
        );
    }
    Ok(())
}

fn texts(count: u64) -> String {
    if count == 1 { "1 text".to_owned() } else { format!("{count} texts") }
}
