//! `sess list`, and the lines that other commands show of a session.

use sess_app::{ListSessions, Listed, Listing, Scope};
use sess_core::Timestamp;

use super::Context;
use crate::{
    cli,
    config::now,
    output::{Output, Usage, ago, visible},
};

pub async fn run(context: &Context, output: &Output, args: cli::List) -> anyhow::Result<()> {
    let source = args.source.map(|name| name.parse()).transpose();
    let source = source.map_err(|error: sess_core::session::UnknownSource| Usage(error.to_string()))?;
    let ask = ListSessions {
        limit: Some(args.limit),
        scope: match args.scope {
            cli::Scope::Repo => Scope::Repo,
            cli::Scope::All => Scope::All,
        },
        source,
        query: args.query,
        include_archived: args.archived,
    };
    let listing = context.app.list_sessions(&context.caller, &ask).await?;
    if output.json {
        return output.data(&listing);
    }
    if listing.sessions.is_empty() {
        output.say("no sessions; `sess import` brings some in, `sess demo` shows what they are for");
        return Ok(());
    }
    table(output, &listing)?;
    let shown = listing.sessions.len() as u64;
    if shown < listing.total {
        let more = if listing.total_is_minimum { "more than " } else { "" };
        output.say(&format!("{shown} of {more}{}; `--limit` shows more", listing.total));
    }
    Ok(())
}

pub fn table(output: &Output, listing: &Listing) -> anyhow::Result<()> {
    let now = now();
    let rows = listing.sessions.iter().enumerate().map(|(index, session)| {
        let updated =
            Timestamp::parse_rfc3339(&session.updated_at).map(|at| ago(at, now)).unwrap_or_default();
        vec![
            format!("-{}", index + 1),
            session.id.clone(),
            format!("{}{}", if session.starred { "★ " } else { "" }, title(session)),
            session.num_messages.to_string(),
            updated,
            session.agent.clone(),
        ]
    });
    output.table(&["REF", "ID", "TITLE", "MESSAGES", "ACTIVE", "AGENT"], &rows.collect::<Vec<_>>())
}

/// Says what was done to a session.
pub fn changed(output: &Output, what: &str, session: &Listed) -> anyhow::Result<()> {
    if output.json {
        return output.data(session);
    }
    output.say(&format!("{what} {} ({})", session.id, visible(title(session))));
    Ok(())
}

fn title(session: &Listed) -> &str {
    if session.title.is_empty() { "(untitled)" } else { &session.title }
}
