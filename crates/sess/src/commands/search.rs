//! `sess search`: the message that said it.

use console::{Style, truncate_str};
use sess_app::SearchMessages;
use sess_core::Timestamp;

use super::{Context, progress::Progress};
use crate::{
    cli,
    config::now,
    output::{Output, ago, one_line},
};

pub async fn run(context: &Context, output: &Output, args: cli::Search) -> anyhow::Result<()> {
    let ask = SearchMessages {
        text: args.words.join(" "),
        is_expression: args.regex,
        scope: args.scope.into(),
        sources: args.source.into_iter().collect(),
        limit: Some(args.limit),
        before: args.before,
        redaction: context.redaction,
    };
    if context.app.has_store() {
        let progress = Progress::new("indexing messages");
        context.app.catch_up(&|done, all| progress.set(done, all)).await?;
    }
    let progress = Progress::new("searching");
    let found = context.app.search(&context.caller, &ask, move |done, all| progress.set(done, all)).await?;
    if output.json {
        return output.data(&found);
    }
    if found.hits.is_empty() {
        output.say("nothing found; fewer words, or the beginning of one with a star (upl*), find more");
        return Ok(());
    }
    let now = now();
    for hit in &found.hits {
        let at = Timestamp::parse_rfc3339(&hit.time).map(|at| ago(at, now)).unwrap_or_default();
        let title = if hit.session.title.is_empty() { "(untitled)" } else { &hit.session.title };
        let (place, title) = (format!("{}#{}", hit.session.id, hit.seq), one_line(title));
        // The title gives way; where and when stay.
        let room =
            output.width().map_or(usize::MAX, |width| width.saturating_sub(place.len() + at.len() + 4));
        let title = truncate_str(&title, room, "…");
        output.line(&format!("{}  {title}  {at}", Style::new().bold().apply_to(place)))?;
        output.line(&format!("    {}", one_line(&hit.snippet)))?;
    }
    if let Some(cursor) = found.cursor {
        output.say(&format!("older ones: --before {cursor}"));
    }
    Ok(())
}
