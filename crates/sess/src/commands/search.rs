//! `sess search`: the message that said it.

use console::Style;
use sess_core::Timestamp;

use super::{Context, Progress};
use crate::{
    cli,
    config::now,
    output::{Output, ago, visible},
};

pub async fn run(context: &Context, output: &Output, args: cli::Search) -> anyhow::Result<()> {
    let words = args.words.join(" ");
    if context.home()?.join("sess.db").exists() {
        let progress = Progress::new("indexing messages");
        context.app.catch_up(&|done, all| progress.set(done, all)).await?;
    }
    let found =
        context.app.search(&context.caller, &words, args.limit, args.before, context.redaction).await?;
    if output.json {
        return output.data(&found);
    }
    if found.hits.is_empty() {
        output.say("nothing found");
        return Ok(());
    }
    let now = now();
    for hit in &found.hits {
        let at = Timestamp::parse_rfc3339(&hit.timestamp).map(|at| ago(at, now)).unwrap_or_default();
        let title = if hit.session.title.is_empty() { "(untitled)" } else { &hit.session.title };
        let place = format!("{}#{}", hit.session.id, hit.seq);
        let line = format!("{}  {}  {at}", Style::new().bold().apply_to(place), visible(title));
        output.line(&line)?;
        output.line(&format!("    {}", visible(&hit.snippet)))?;
    }
    if let Some(cursor) = found.cursor {
        output.say(&format!("older ones: --before {cursor}"));
    }
    Ok(())
}
