//! `sess work run`: a configured agent carries out a work session.

use std::{path::PathBuf, process::ExitCode, sync::Arc, sync::mpsc};

use anyhow::Context as _;
use serde_json::json;
use sess_app::agents::{Agents, Person, Request};
use sess_core::{
    permission::Trust,
    redact::redact,
    run::{Run, RunState},
    session::NewSession,
};
use sess_work::{Claim, ClaimOptions, Error, Note, PLAN_FILE, Slug, State, Work};
use tokio_util::sync::CancellationToken;

use super::{Here, claiming};
use crate::{
    cli::work::One,
    commands::{
        run::{agents_in, exec, lease, second_signal},
        wait::told,
    },
};

/// How much an agent is told when it begins.
const CONTEXT_BYTES: usize = 32_000;
/// How much of what it says at its end is logged.
const SUMMARY_CHARS_MAX: usize = 2_000;

pub(super) async fn run(here: &Here<'_>, one: One, agent: &str, yolo: bool) -> anyhow::Result<ExitCode> {
    let context = here.context;
    let slug = here.meant(one)?;
    let team = context.config.team.clone().ok_or_else(|| {
        Error::usage("there are no agents: add `agents:` to the configuration, or name a file with --config")
            .next("sess config show")
    })?;
    let onlooker = Arc::new(exec::Onlooker::new(false, context.redaction));
    let trust = if yolo { Trust::All } else { Trust::Ask };
    let mut env = context.env.clone();
    for (name, value) in here.work.env(&slug) {
        env.retain(|(known, _)| known != name);
        env.push((name.to_owned(), value));
    }
    let person = Arc::clone(&onlooker) as Arc<dyn Person>;
    let agents = agents_in(context, env, team, person, trust, lease(context)?)?;
    let name = agents.agent(Some(agent))?.name.clone();

    // An agent that was stopped goes on in the session that has the claim.
    let seen = here.work.see()?;
    let held = here.work.list(&seen)?.into_iter().find(|row| row.slug == slug).and_then(|row| row.holder);
    let before = held.filter(|holder| holder.mine).and_then(|holder| holder.session);
    let reference = context.session.clone().or(before);
    let mut session = agents.open_session(&context.caller, reference.as_deref(), &name).await?;
    session.agent = name;

    let dir = here.work.repo().top().to_owned();
    let work = context.app.work_as(Some(session.agent.to_string()), Some(session.key.to_string()), &dir)?;
    let claimed = work.claim(&slug, &ClaimOptions::default())?;
    here.notice(&claimed.notices);
    if claimed.record.claim.waits() {
        let told = format!("{slug} is done, and waits to be merged: there is nothing left to carry out");
        return Err(Error::wrong_state(told).next(format!("sess work status {slug}")).into());
    }
    here.next(&format!("{slug} is claimed for {agent}, in session {}", session.key));
    let ended = Box::pin(carried_out(here, &agents, &work, &slug, session.clone(), claimed.workspace)).await;
    let finished = finish(here, &work, &slug, &session, &ended);
    if let (Err(_), Err(error)) = (&finished, &ended) {
        // The other one is told as what the verb ended with.
        here.output.notice(&format!("{agent} failed: {error:#}"));
    }
    finished
}

/// Has the agent do it, and keeps the claim meanwhile.
async fn carried_out(
    here: &Here<'_>,
    agents: &Agents,
    work: &Work,
    slug: &Slug,
    mut session: NewSession,
    workspace: Option<PathBuf>,
) -> anyhow::Result<Run> {
    let workspace = workspace.context("the claim has no workspace")?;
    session.cwd = Some(workspace.to_str().context("the workspace's path is not UTF-8 text")?.to_owned());
    let plan = workspace.join(State::Active.dir_of(slug)).join(PLAN_FILE);
    let plan = std::fs::read_to_string(&plan).with_context(|| format!("cannot read {}", plan.display()))?;
    here.context.app.begin_work(&session, plan).await?;
    let told = work.context(slug, CONTEXT_BYTES)?;
    let text = format!(
        "Carry out the work session {slug}. You are in its workspace, a checkout of its own branch: change files only \
         here. Its plan is below, and read_session_plan has it too; leave SESSION.md as it is. When you are done, say \
         in a few sentences what you did and what is left: that is logged, and your changes are committed and landed \
         for you.\n\n{told}"
    );
    let from = agents.speaker(&here.context.caller).await?;
    let agent = session.agent.clone();
    let request = Request { session, agent, text, from, note: None, idempotency_key: None };
    let (done, end) = mpsc::sync_channel::<()>(0);
    let (keeper, kept) = (work.clone(), slug.clone());
    let keeping = tokio::task::spawn_blocking(move || {
        // Ends when the other side is dropped.
        keeper.while_renewing(&kept, || end.recv().is_err())
    });
    let cancel = CancellationToken::new();
    let (queued, known) = tokio::sync::oneshot::channel();
    let saying = agents.say_told(request, &cancel, |run| {
        // Whoever listens does so until the end.
        let _heard = queued.send(run.id.clone());
    });
    // What it leads to is executed beside it: the agent may wait for that.
    let leading = async {
        match known.await {
            Ok(root) => agents.finish_tree(&root, &cancel).await,
            Err(_) => Ok(()),
        }
    };
    let both = async { tokio::try_join!(saying, leading) };
    let ended = tokio::select! {
        ended = both => ended.map(|(run, ())| run).map_err(anyhow::Error::from),
        heard = second_signal(&cancel) => {
            heard.context("signals cannot be heard")?;
            Err(anyhow::anyhow!("interrupted"))
        }
    };
    drop(done);
    keeping.await.context("the lease could not be kept")??;
    ended
}

/// Ends the work session as its agent ended: well and with something done, and it is completed; else it is given back.
fn finish(
    here: &Here<'_>,
    work: &Work,
    slug: &Slug,
    session: &NewSession,
    ended: &anyhow::Result<Run>,
) -> anyhow::Result<ExitCode> {
    let (outcome, said, code) = match ended {
        Ok(run) => {
            let said = run.result.clone().or_else(|| run.error.clone()).unwrap_or_default();
            (told(run.state), said, exec::exit_code(run))
        }
        Err(error) => ("failed", format!("{error:#}"), ExitCode::FAILURE),
    };
    let is_well = ended.as_ref().is_ok_and(|run| run.state == RunState::Done);
    let summary = summary(&said);
    let seen = work.see()?;
    // It may have finished, or lost, its work session by itself.
    let standing = seen.standing(slug);
    let waits = standing.holder().is_some_and(Claim::waits);
    if let Some(state) = standing.state().filter(|state| waits || *state != State::Active) {
        let more = json!({ "session": session.key.as_str(), "outcome": outcome, "summary": summary });
        let how = if waits { "done, and waits to be merged".to_owned() } else { state.to_string() };
        here.tell(slug, state, more, &[], &format!("{slug} is {how}: its agent saw to that"))?;
        return Ok(code);
    }
    here.notice(&work.note(slug, Note::Log, &format!("{}: {outcome}. {summary}", session.agent))?);
    work.commit_all(slug, &format!("feat: what {} did", session.agent))?;
    let agent = &session.agent;
    let (reason, code) = if !is_well {
        (Some(format!("{agent} ended without success ({outcome}): {summary}")), code)
    } else if work.has_work(slug)? {
        (None, code)
    } else {
        (Some(format!("{agent} did nothing that could land: {summary}")), ExitCode::FAILURE)
    };
    let Some(reason) = reason else {
        let done = work.complete(slug, None).inspect_err(|_| {
            here.output.notice(&format!(
                "{} ended well, and {slug} stays claimed: it could not land",
                session.agent
            ));
        })?;
        claiming::tell_completed(here, slug, &done)?;
        return Ok(code);
    };
    let notices = work.release(slug, Some(&reason))?;
    let more = json!({ "session": session.key.as_str(), "outcome": outcome, "summary": summary });
    let sentence = format!("{slug} is given back, with what was done on its branch: {reason}");
    here.tell(slug, State::Planned, more, &notices, &sentence)?;
    Ok(code)
}

/// What is logged is read by everybody: without secrets, and not without end.
fn summary(said: &str) -> String {
    let masked = redact(said).0;
    let mut text: String = masked.trim().chars().take(SUMMARY_CHARS_MAX).collect();
    if masked.trim().chars().count() > SUMMARY_CHARS_MAX {
        text.push('…');
    }
    if text.is_empty() { "it said nothing".to_owned() } else { text }
}
