//! `sess work run`: a configured agent carries out a work session.

use std::{path::PathBuf, process::ExitCode, sync::Arc, sync::mpsc};

use anyhow::Context as _;
use serde_json::{Value, json};
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
        send::TIMED_OUT,
        wait::{INTERRUPTED, told},
    },
};

/// How much an agent is told when it begins.
const CONTEXT_BYTES: usize = 32_000;
/// How much of what it says at its end is logged.
const SUMMARY_CHARS_MAX: usize = 2_000;
/// The exit code of a run in which nothing was done that could land.
const FAILED: u8 = 1;

/// Somebody did not want to wait for the agent's own end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

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
    let known = agents.agent(Some(agent)).map_err(|error| {
        let next = format!("sess work run {slug} --agent {}", agents.team().entry().name);
        Error::wrong_state(error.to_string()).next(next)
    });
    let name = known?.name.clone();

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
    let finished = finish(here, &work, &slug, &session, &Ending::of(&ended));
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
    let (told, _) = work.context(slug, CONTEXT_BYTES)?;
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
            Err(Interrupted.into())
        }
    };
    drop(done);
    keeping.await.context("the lease could not be kept")??;
    ended
}

/// How the agent's part ended.
struct Ending {
    outcome: &'static str,
    summary: String,
    code: u8,
    is_well: bool,
    /// Somebody wanted it to end: that says nothing about the work.
    is_cancelled: bool,
}

impl Ending {
    fn of(ended: &anyhow::Result<Run>) -> Self {
        let (state, said) = match ended {
            Ok(run) => {
                let said = run.result.clone().or_else(|| run.error.clone()).unwrap_or_default();
                (run.state, said)
            }
            Err(error) if error.is::<Interrupted>() => (RunState::Cancelled, error.to_string()),
            Err(error) => (RunState::Failed, format!("{error:#}")),
        };
        let code = match state {
            RunState::Done => 0,
            RunState::TimedOut => TIMED_OUT,
            RunState::Cancelled => INTERRUPTED,
            RunState::Queued | RunState::Running | RunState::Failed | RunState::Aborted => FAILED,
        };
        Self {
            outcome: told(state),
            summary: summary(&said),
            code,
            is_well: state == RunState::Done,
            is_cancelled: state == RunState::Cancelled,
        }
    }
}

/// Ends the work session as its agent ended: well and with something done, and it is completed; cancelled, and it is
/// given back; else it is abandoned, because whoever watches for what is ready would have it fail again for ever.
fn finish(
    here: &Here<'_>,
    work: &Work,
    slug: &Slug,
    session: &NewSession,
    ending: &Ending,
) -> anyhow::Result<ExitCode> {
    let Ending { outcome, summary, code, .. } = ending;
    let agent = &session.agent;
    let without = format!("{agent} ended without success ({outcome}): {summary}");
    let seen = work.see()?;
    // It may have finished, or lost, its work session by itself.
    let standing = seen.standing(slug);
    let waits = standing.holder().is_some_and(Claim::waits);
    if let Some(state) = standing.state().filter(|state| waits || *state != State::Active) {
        let how = if waits { "done, and waits to be merged".to_owned() } else { state.to_string() };
        let sentence = format!("{slug} is {how}: its agent saw to that");
        let next = format!("sess work show {slug}");
        let failed = (!ending.is_well).then_some((*code, without.as_str(), next.as_str()));
        here.tell(slug, state, data_of(session, ending, failed), &[], &sentence)?;
        if failed.is_some() {
            here.next(&format!("{agent} ended without success ({outcome}); `{next}` shows all about it"));
        }
        return Ok(ExitCode::from(*code));
    }
    here.notice(&work.note(slug, Note::Log, &format!("{agent}: {outcome}. {summary}"))?);
    work.commit_all(slug, &format!("feat: what {agent} did"))?;
    let (reason, code) = if !ending.is_well {
        (without, *code)
    } else if work.has_work(slug)? {
        let done = work.complete(slug, None).inspect_err(|_| {
            here.output.notice(&format!("{agent} ended well, and {slug} stays claimed: it could not land"));
        })?;
        claiming::tell_completed(here, slug, &done)?;
        return Ok(ExitCode::from(*code));
    } else {
        (format!("{agent} did nothing that could land: {summary}"), FAILED)
    };
    let (state, how, next, does) = if ending.is_cancelled {
        let next = format!("sess work run {slug} --agent {agent}");
        (State::Planned, "given back", next, "goes on with it")
    } else {
        (State::Abandoned, "abandoned", format!("sess work retry {slug}"), "plans it anew")
    };
    let notices = match state {
        State::Planned => work.release(slug, Some(&reason))?,
        _ => work.abandon(slug, &reason)?,
    };
    let sentence = format!("{slug} is {how}, with what was done on its branch: {reason}");
    let more = data_of(session, ending, Some((code, &reason, &next)));
    here.tell(slug, state, more, &notices, &sentence)?;
    here.next(&format!("`{next}` {does}"));
    Ok(ExitCode::from(code))
}

/// Returns what a program is told about the agent's part; what failed, with its exit code, why, and what to run next.
fn data_of(session: &NewSession, ending: &Ending, failed: Option<(u8, &str, &str)>) -> Value {
    let mut data = json!({
        "session": session.key.as_str(),
        "outcome": ending.outcome,
        "summary": ending.summary,
    });
    if let Some((code, reason, next)) = failed {
        data["reason"] = reason.into();
        // As every error is told, beside what became of the work session.
        data["error"] = json!({ "type": "failed", "message": reason, "exitCode": code, "next": next });
    }
    data
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
