//! `sess read`: a session's transcript.

use sess_app::ReadSession;

use super::{Context, progress::Progress};
use crate::{cli, output::Output};

pub async fn run(context: &Context, output: &Output, args: cli::Read) -> anyhow::Result<()> {
    let ask = ReadSession {
        session_id: args.one.reference,
        around: args.around,
        without_tools: args.no_tools,
        max_bytes: Some(args.max_bytes),
        redaction: context.redaction,
        from_snapshot: args.snapshot,
    };
    let progress = Progress::new("reading");
    let transcript = context.app.read_session(&context.caller, &ask).await?;
    drop(progress);
    if output.json {
        return output.data(&transcript);
    }
    output.foreign(&transcript.transcript)?;
    if transcript.damaged > 0 {
        output.notice(&format!("{} record(s) of it cannot be read; the rest is shown", transcript.damaged));
    }
    if transcript.lacks_beginning {
        output.notice("it goes on where another file ended, and that file is gone: its beginning is missing");
    }
    if transcript.redacted > 0 {
        output.say(&format!("{} secret(s) masked; --no-redact shows them", transcript.redacted));
    }
    Ok(())
}
