//! `sess` alone, and `sess whoami`: what is here, and who you are.

use console::Style;
use sess_app::ListSessions;

use super::{Context, list};
use crate::output::{Output, visible};

pub async fn run(context: &Context, output: &Output) -> anyhow::Result<()> {
    let ask = ListSessions { limit: Some(5), ..ListSessions::default() };
    let listing = context.app.list_sessions(&context.caller, &ask).await?;
    if output.json {
        return output.data(&listing);
    }
    let bold = Style::new().bold();
    output.line(&format!("{} — the session layer for AI agents", bold.apply_to("sess")))?;
    output.line(&format!("Data: {}\n", context.home()?.display()))?;
    if listing.sessions.is_empty() {
        output.line("There are no sessions yet. Next:")?;
        output
            .line("  sess demo                        see plans and context at work, in a temporary store")?;
        output.line(
            "  claude mcp add sess -- sess mcp  give the tools to Claude Code (other hosts: the README)",
        )?;
        output.line("  sess import <file.jsonl>         bring in a session")?;
    } else {
        list::table(output, &listing)?;
        output.line(
            "\nNext: `sess read -1` prints the newest, `sess search <words>` finds a message, \
                     `sess plan show` prints a plan.",
        )?;
    }
    output.line("All commands: `sess --help`.")
}

pub async fn whoami(context: &Context, output: &Output) -> anyhow::Result<()> {
    let whoami = context.app.whoami(&context.caller).await;
    if output.json {
        return output.data(&whoami);
    }
    let mut rows = vec![("standing", whoami.standing.to_owned())];
    rows.extend(whoami.session_id.map(|id| ("session", id)));
    rows.extend(whoami.key.map(|key| ("key", key)));
    rows.extend(whoami.source.map(|source| ("source", source.to_string())));
    rows.push(("agent", whoami.agent));
    rows.push(("known by", whoami.how));
    rows.push((
        "stored",
        if whoami.stored { "yes" } else { "not yet: it is made at its first write" }.to_owned(),
    ));
    rows.extend(whoami.error.map(|error| ("error", error)));
    for (name, value) in rows {
        output.line(&format!("{name:<9} {}", visible(&value)))?;
    }
    Ok(())
}
