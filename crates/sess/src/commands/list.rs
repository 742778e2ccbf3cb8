//! `sess list`, and the lines that other commands show of a session.

use std::collections::HashSet;

use sess_app::{ListSessions, Listed, Listing, Scope};
use sess_core::{
    Timestamp,
    id::{UUID_LEN, is_uuid},
    policy::Standing,
    reference::PREFIX_LEN_MIN,
};

use super::{Context, progress::Progress};
use crate::{
    cli,
    config::now,
    output::{Output, ago, visible},
};

/// On narrower terminals ids are shown as far as they tell sessions apart, so that titles can be read.
pub const FULL_IDS_WIDTH: usize = 110;

pub async fn run(context: &Context, output: &Output, args: cli::List) -> anyhow::Result<()> {
    let ask = ListSessions {
        limit: Some(args.limit),
        scope: args.scope.into(),
        source: args.source,
        query: args.query,
        include_archived: args.archived,
    };
    let progress = Progress::new("looking for sessions");
    let listing = context.app.list_sessions(&context.caller, &ask).await?;
    drop(progress);
    if output.json {
        return output.data(&listing);
    }
    let is_filtered = ask.source.is_some() || ask.query.is_some() || ask.scope == Scope::Repo;
    if listing.sessions.is_empty() {
        output.say(match context.caller.standing {
            _ if is_filtered => "no session fits; `sess list` alone shows all",
            Standing::Agent => "no sessions besides the one that asks, which is not listed",
            Standing::Owner => {
                "no sessions; `sess import` brings some in, `sess demo` shows what they are for"
            }
        });
        return Ok(());
    }
    let is_whole = !is_filtered && !ask.include_archived;
    table(output, &listing, if is_whole { Refs::Relative } else { Refs::None })?;
    let damaged: Vec<&Listed> = listing.sessions.iter().filter(|session| session.damaged > 0).collect();
    if let Some(first) = damaged.first() {
        let others =
            if damaged.len() > 1 { format!(" (and {} more)", damaged.len() - 1) } else { String::new() };
        // One of which nothing could be counted cannot be read at all.
        output.notice(&if first.num_messages_is_minimum {
            format!("{} cannot be read{others}; `sess read {}` says why", first.id, first.id)
        } else {
            format!("{} has {} record(s) that cannot be read{others}; the rest can", first.id, first.damaged)
        });
    }
    let shown = listing.sessions.len() as u64;
    if shown < listing.total {
        let more = if listing.total_is_minimum { "more than " } else { "" };
        output.say(&format!("{shown} of {more}{}; `--limit` shows more", listing.total));
    }
    Ok(())
}

impl From<cli::Scope> for Scope {
    fn from(scope: cli::Scope) -> Self {
        match scope {
            cli::Scope::Repo => Self::Repo,
            cli::Scope::All => Self::All,
        }
    }
}

/// Whether the rows of a list are the ones that `-1`, `-2`, … mean.
#[derive(Clone, Copy)]
pub enum Refs {
    Relative,
    /// A filter was used: the rows have other places in the whole list.
    None,
}

pub fn table(output: &Output, listing: &Listing, refs: Refs) -> anyhow::Result<()> {
    let now = now();
    let reference = |index: usize| match refs {
        Refs::Relative => format!("-{}", index + 1),
        Refs::None => String::new(),
    };
    let ids = shown_ids(output, listing.sessions.iter().map(|session| &*session.id).collect());
    let rows = listing.sessions.iter().zip(ids).enumerate().map(|(index, (session, id))| {
        let updated =
            Timestamp::parse_rfc3339(&session.updated_at).map(|at| ago(at, now)).unwrap_or_default();
        vec![
            reference(index),
            id.to_owned(),
            format!("{}{}", marks(session), title(session)),
            format!("{}{}", session.num_messages, if session.num_messages_is_minimum { "+" } else { "" }),
            updated,
            session.agent.clone(),
        ]
    });
    output.table(&["REF", "ID", "TITLE", "MESSAGES", "ACTIVE", "AGENT"], 2, &rows.collect::<Vec<_>>())
}

/// Returns what stands before a title.
fn marks(session: &Listed) -> String {
    let star = if session.starred { "★ " } else { "" };
    let sub_agent = if session.is_sub_agent { "sub-agent: " } else { "" };
    format!("{star}{sub_agent}")
}

/// Returns ids as a table has room for them.
pub fn shown_ids<'a>(output: &Output, ids: Vec<&'a str>) -> Vec<&'a str> {
    let is_narrow = output.width().is_some_and(|width| width < FULL_IDS_WIDTH);
    if is_narrow { short(&ids) } else { ids }
}

/// Cuts ids to what tells them apart and is taken as a reference.
///
/// Only UUIDs are cut: no session has the beginning of one as its whole id, so that it names that session or is refused
/// as ambiguous. `20261112_1` names another session than `20261112_12`, be that one in the table or not.
fn short<'a>(ids: &[&'a str]) -> Vec<&'a str> {
    let uuids: Vec<&str> = ids.iter().copied().filter(|id| is_uuid(native(id))).collect();
    let is_telling = |len: &usize| {
        let beginnings: HashSet<&str> = uuids.iter().map(|id| beginning(id, *len)).collect();
        beginnings.len() == uuids.len()
    };
    let len = (PREFIX_LEN_MIN..UUID_LEN).find(is_telling).unwrap_or(UUID_LEN);
    ids.iter().map(|id| if is_uuid(native(id)) { beginning(id, len) } else { id }).collect()
}

/// Returns an id as its agent gave it. Whose it is does not count: that alone names nothing.
fn native(id: &str) -> &str {
    id.split_once(':').map_or(id, |(_, native)| native)
}

/// Returns so many characters of an id as its agent gave it, behind whose it is.
fn beginning(id: &str, len: usize) -> &str {
    let whose = id.len() - native(id).len();
    id.get(..whose.saturating_add(len)).unwrap_or(id)
}

/// Says what was done to a session.
pub fn changed(output: &Output, what: &str, session: &Listed) -> anyhow::Result<()> {
    if output.json {
        return output.data(session);
    }
    output.say(&format!("{what} {}: {}", session.id, visible(title(session))));
    Ok(())
}

fn title(session: &Listed) -> &str {
    if session.title.is_empty() { "(untitled)" } else { &session.title }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_whose_beginnings_are_nobodys_id_are_cut() {
        let check = |ids: &[&str], shown: &[&str]| assert_eq!(short(ids), shown);
        let (a, b) = ("3a1f9c52-8f1e-4c0a-9b1a-6f2d5b7c8e90", "3a1f9c52-8f2e-4c0a-9b1a-6f2d5b7c8e91");
        check(&[a], &["3a1f9c52"]);
        check(&[a, b], &["3a1f9c52-8f1", "3a1f9c52-8f2"]);
        check(&[&format!("codex:{a}"), "short"], &["codex:3a1f9c52", "short"]);
        check(&["goose:20261112_12", "goose:20261112_3"], &["goose:20261112_12", "goose:20261112_3"]);
        let (thread, odd) = (format!("amp:T-{a}"), a.replace('f', "x"));
        check(&[&thread, &odd], &[&thread, &odd]);
    }
}
