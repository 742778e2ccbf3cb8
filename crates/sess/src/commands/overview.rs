//! `sess` alone, and `sess whoami`: what is here, and who you are.

use console::Style;
use sess_app::{Caller, ListSessions};
use sess_core::policy::Standing;

use super::{Context, list, progress::Progress};
use crate::output::{Output, visible};

pub async fn run(context: &Context, output: &Output) -> anyhow::Result<()> {
    let ask = ListSessions { limit: Some(5), ..ListSessions::default() };
    let progress = Progress::new("looking for sessions");
    let listing = context.app.list_sessions(&context.caller, &ask).await?;
    drop(progress);
    if output.json {
        return output.data(&listing);
    }
    let bold = Style::new().bold();
    output.line(&format!("{} — the session layer for AI agents", bold.apply_to("sess")))?;
    output.line(&format!("Data: {}\n", context.home()?.display()))?;
    if listing.sessions.is_empty() {
        output.line("There are no sessions yet. Next:")?;
        output.line("  sess demo                        see two agents draft, review and execute a plan")?;
        output.line("  sess run agents.yaml             talk to agents of your own; README: an example")?;
        output.line(
            "  sess install --all               give the tools to the agents that are here; --dry-run first",
        )?;
        output.line("  sess import <file.jsonl>         bring in a session")?;
    } else {
        list::table(output, &listing, list::Refs::Relative)?;
        output.line("\nNext:")?;
        if let Some(waiting) = waiting_plan(context).await {
            output.line(&format!("  sess plan show      review the plan of {waiting}"))?;
        } else {
            output.line("  sess plan show      print the newest plan")?;
        }
        output.line("  sess read -1        print the newest session")?;
        output.line("  sess search <words> find a message")?;
    }
    output.line("All commands: `sess --help`.")
}

/// Returns the session whose plan is ready for review, if it is the one that `sess plan show` prints.
async fn waiting_plan(context: &Context) -> Option<String> {
    let session = context.app.plan_session(&context.caller, None).await.ok()?;
    let plan = context.app.plan_of(&session).await.ok()?.plan;
    (plan.state == "ready").then_some(plan.session_id)
}

pub async fn whoami(context: &Context, output: &Output) -> anyhow::Result<()> {
    let asked = Caller { standing: context.caller.standing, ..context.tool_caller.clone() };
    let whoami = context.app.whoami(&asked).await;
    if output.json {
        return output.data(&whoami);
    }
    if context.caller.standing == Standing::Owner && context.session.is_none() {
        output.line("You are the owner: nothing here says that an agent is calling.")?;
        return output.line("A tool called from here works in a new session, unless --session names one.");
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
