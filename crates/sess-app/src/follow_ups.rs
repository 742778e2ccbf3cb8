//! What follows runs that have ended: what the core's decision needs is loaded, and the decision committed.

use std::path::Path;

use sess_agent::files::attachments;
use sess_core::{
    MessageId, RunId, SessionKey,
    exchange::{self, FollowUp, Known, Requester, Task},
    message::{Body, Provenance, Role},
    redact::redact,
    run::{Errand, Lineage, Run},
    session::{Address, Channel, Cleanup, Runner, Sending, Session},
};
use sess_store::{Cap, Ending, Lease, NewMessage, NewRun, Span, Step, Store};

use crate::{App, Error, Result, transcript_path};

/// How many ended runs are settled at one look.
const UNSETTLED_LOOKED_AT: usize = 100;
/// How many of a child's messages are looked through for its latest tool result.
const MESSAGES_LOOKED_AT: usize = 100;
/// Who deletes a session that has done what it was spawned for.
const DELETED_BY: &str = "runtime";

impl App {
    /// Lets follow what has to follow the runs that have ended.
    pub async fn settle(&self) -> Result<()> {
        self.settle_ended(&*self.store()?).await
    }

    /// Settles the ended runs that nobody has settled yet. What cannot be settled costs itself only.
    pub(crate) async fn settle_ended(&self, store: &dyn Store) -> Result<()> {
        for run in store.unsettled_runs(UNSETTLED_LOOKED_AT).await? {
            match self.settle_run(store, &run).await {
                Ok(()) => {}
                // A session that is to be deleted is busy: the next look may find it free.
                Err(Error::Store(sess_store::Error::Conflict(reason))) => {
                    tracing::debug!(reason, run = %run.id, "what follows a run is not settled yet");
                }
                Err(error) => {
                    tracing::warn!(%error, run = %run.id, "what follows a run is not settled yet");
                }
            }
        }
        Ok(())
    }

    /// Settles a run that was executed here. Whatever fails is left to the next look of any node.
    pub(crate) async fn settle_one(&self, store: &dyn Store, run: &RunId) {
        let settled = async {
            match store.run(run).await? {
                Some(run) if run.state.has_ended() && has_follow_up(&run.errand) => {
                    self.settle_run(store, &run).await
                }
                _ => Ok(()),
            }
        };
        if let Err(error) = settled.await {
            tracing::warn!(%error, %run, "what follows a run is not settled yet");
        }
    }

    /// Commits what follows an ended run, unless somebody was first. Who comes second in this process waits
    /// for the first.
    async fn settle_run(&self, store: &dyn Store, run: &Run) -> Result<()> {
        let settling = &self.inner.settling;
        if settling.send_if_modified(|runs| runs.insert(run.id.clone())) {
            let _settled = Settling { app: self, run: &run.id };
            return self.settle_alone(store, run).await;
        }
        let mut settled = settling.subscribe();
        settled.wait_for(|runs| !runs.contains(&run.id)).await.expect("the sender lives as long as the app");
        Ok(())
    }

    async fn settle_alone(&self, store: &dyn Store, run: &Run) -> Result<()> {
        let is_full = self.is_tree_full(store, run).await?;
        match self.settle_with(store, run, is_full).await {
            // What follows may itself fill the tree, and so may others that end at the same time.
            Err(Error::Store(sess_store::Error::Full(_))) => self.settle_with(store, run, true).await,
            settled => settled,
        }
    }

    async fn settle_with(&self, store: &dyn Store, run: &Run, is_tree_full: bool) -> Result<()> {
        let steps = self.steps_after(store, run, is_tree_full).await?;
        let deleted = deleted_by(store, &steps).await?;
        if store.settle_run(&run.id, steps, self.now()).await? {
            self.forget(store, &deleted).await;
        }
        Ok(())
    }

    /// Ends a run that is executed here, with what follows it where that can be told before.
    pub(crate) async fn end(
        &self,
        store: &dyn Store,
        run: &Run,
        lease: &Lease,
        ending: Ending,
    ) -> Result<()> {
        let follow_up = match self.follow_up_of(store, run, &ending).await {
            Ok(follow_up) => follow_up,
            Err(error) => {
                tracing::warn!(%error, run = %run.id, "what follows a run is settled later");
                None
            }
        };
        let deleted = match &follow_up {
            Some((_, steps)) => deleted_by(store, steps).await?,
            None => Vec::new(),
        };
        let is_settled = store.end_run_with(&run.id, lease, Ending { follow_up, ..ending }).await?;
        if is_settled {
            self.forget(store, &deleted).await;
        } else {
            self.settle_one(store, &run.id).await;
        }
        Ok(())
    }

    async fn follow_up_of(
        &self,
        store: &dyn Store,
        run: &Run,
        ending: &Ending,
    ) -> Result<Option<(Errand, Vec<Step>)>> {
        let Ending { outcome, at, .. } = ending;
        let is_told = outcome.result.as_deref().is_some_and(|result| !result.trim().is_empty());
        // Who says nothing at the end is reported on from the transcript, once all of it is there.
        if !has_follow_up(&run.errand) || matches!(run.errand, Errand::Spawn(_)) && !is_told {
            return Ok(None);
        }
        // As it stands now: its sender may have stopped waiting.
        let Some(current) = store.run(&run.id).await? else { return Ok(None) };
        let outcome = outcome.clone();
        let ended = Run {
            state: outcome.state,
            result: outcome.result,
            error: outcome.error,
            usage: outcome.usage,
            ended_at: Some(*at),
            ..current
        };
        let is_full = self.is_tree_full(store, &ended).await?;
        let steps = self.steps_after(store, &ended, is_full).await?;
        Ok(Some((ended.errand, steps)))
    }

    /// Returns what follows a run that has ended.
    async fn steps_after(&self, store: &dyn Store, run: &Run, is_tree_full: bool) -> Result<Vec<Step>> {
        let Some(session) = store.session(&run.session).await? else { return Ok(Vec::new()) };
        let first = match &run.errand {
            Errand::Round(round) => store.run(&round.first).await?,
            Errand::Announce(announce) => store.run(&announce.first).await?,
            Errand::Send(_) => Some(run.clone()),
            Errand::Message | Errand::LateReply { .. } | Errand::Spawn(_) | Errand::Report { .. } => None,
        };
        let target = match &first {
            Some(first) => store.session(&first.session).await?,
            None => None,
        };
        let (requester, report) = match (&run.errand, first.as_ref().map(|first| &first.errand)) {
            (Errand::Spawn(spawn), _) => match &spawn.requester {
                Some(key) => {
                    let requester = store.session_by_key(key).await?;
                    let report = self.report(store, run, &session, requester.as_ref()).await?;
                    (standing(requester.as_ref()), Some(report))
                }
                None => (Requester::Nobody, None),
            },
            (_, Some(Errand::Send(send))) => {
                (standing(store.session_by_key(&send.requester).await?.as_ref()), None)
            }
            _ => (Requester::Nobody, None),
        };
        let cleanup = match &run.errand {
            Errand::Report { of, .. } => match store.run(of).await?.map(|of| of.errand) {
                Some(Errand::Spawn(spawn)) => spawn.cleanup,
                _ => Cleanup::Keep,
            },
            _ => Cleanup::Keep,
        };
        let known = Known {
            session: &session.key,
            first: first.as_ref(),
            target: target.as_ref().map(|target| &target.key),
            target_runs: target.as_ref().is_some_and(|target| target.facts.runner == Runner::Here),
            requester,
            is_awaited: match &run.errand {
                // Who died while it waited waits no longer.
                Errand::Send(send) => send.awaited_by.is_some_and(sess_store::is_alive),
                _ => false,
            },
            report,
            cleanup,
            is_tree_full,
        };
        let mut steps = Vec::new();
        for follow_up in exchange::follow_up(run, &known) {
            steps.extend(self.step(store, run, &session, follow_up).await?);
        }
        Ok(steps)
    }

    /// Tells whether the request that led to an exchange has led to as many runs as it may.
    async fn is_tree_full(&self, store: &dyn Store, run: &Run) -> Result<bool> {
        if !matches!(run.errand, Errand::Send(_) | Errand::Round(_)) {
            return Ok(false);
        }
        let most = self.configured()?.rules.limits.tree_runs;
        Ok(store.count_below(&run.lineage.root).await? >= u64::from(most))
    }

    /// Turns a decision into what the store commits; nothing when its session is gone.
    async fn step(
        &self,
        store: &dyn Store,
        run: &Run,
        session: &Session,
        follow_up: FollowUp,
    ) -> Result<Option<Step>> {
        Ok(match follow_up {
            FollowUp::Run { session: key, from, text, errand } => {
                let Some(to) = store.session_by_key(&key).await? else { return Ok(None) };
                let mut next = self.next_run(run, session, to, from, &text, errand);
                // Whether the tree was full was asked before, and others of it may end at the same time.
                if matches!(next.errand, Errand::Round(_) | Errand::Announce(_)) {
                    next.caps.push(Cap::Tree { most: self.configured()?.rules.limits.tree_runs });
                }
                Some(Step::Queue(Box::new(next)))
            }
            FollowUp::Post { session: key, text } => {
                let Some(to) = store.session_by_key(&key).await? else { return Ok(None) };
                let address = self.address_of(&to)?;
                let text = redact(&text).0.into_owned();
                address.map(|address| Step::Post { session: to.id, address, text })
            }
            FollowUp::Delete { session: key } => {
                let gone = store.session_by_key(&key).await?;
                gone.map(|session| Step::Delete { session: session.id, by: DELETED_BY.to_owned() })
            }
        })
    }

    fn next_run(
        &self,
        run: &Run,
        session: &Session,
        to: Session,
        from: SessionKey,
        text: &str,
        errand: Errand,
    ) -> NewRun {
        let at = self.now();
        let mut message = Body::text(Role::User, redact(text).0.into_owned(), at);
        message.provenance = Some(match &errand {
            // These words are the program's own.
            Errand::Announce(_) => Provenance::InternalSystem,
            Errand::Message
            | Errand::Send(_)
            | Errand::Round(_)
            | Errand::LateReply { .. }
            | Errand::Spawn(_)
            | Errand::Report { .. } => {
                let channel = (from == session.key).then(|| session.channel());
                let tool = match &errand {
                    Errand::Spawn(_) | Errand::Report { .. } => "sessions_spawn",
                    _ => "sessions_send",
                };
                Provenance::InterSession {
                    source_session_key: from,
                    source_channel: channel
                        .filter(|channel| *channel != Channel::Unknown)
                        .map(|c| c.to_string()),
                    source_tool: Some(tool.to_owned()),
                }
            }
        });
        let id = RunId::new(self.random());
        message.run_id = Some(id.to_string());
        NewRun {
            id,
            agent: to.agent.clone(),
            session: to.into(),
            at,
            messages: vec![NewMessage { id: MessageId::new(at, self.random()), body: message }],
            key: None,
            errand,
            lineage: Lineage::below(run),
            caps: Vec::new(),
        }
    }

    /// Writes the report on a task that has ended.
    async fn report(
        &self,
        store: &dyn Store,
        run: &Run,
        child: &Session,
        requester: Option<&Session>,
    ) -> Result<String> {
        let mut latest_tool_result = None;
        if run.result.as_deref().is_none_or(|result| result.trim().is_empty()) {
            let page = store.messages(&child.id, Span::Last, MESSAGES_LOOKED_AT).await?;
            for message in page.messages.iter().rev() {
                let body = message.parse()?;
                if body.role == Role::ToolResult && body.run_id.as_deref() == Some(run.id.as_str()) {
                    latest_tool_result = Some(body.plain_text());
                    break;
                }
            }
        }
        let transcript = match requester {
            // Who is confined is not told about files outside.
            Some(requester) if self.is_sandboxed(requester).await? => None,
            _ => {
                let home = self.settings().home.as_ref();
                home.map(|home| transcript_path(home, &child.id).display().to_string())
            }
        };
        let task = Task {
            session: child,
            latest_tool_result: latest_tool_result.as_deref(),
            transcript_path: transcript.as_deref(),
        };
        Ok(exchange::report(run, &task))
    }

    async fn is_sandboxed(&self, session: &Session) -> Result<bool> {
        let configured = self.configured()?;
        let agent = configured.team.as_ref().and_then(|team| Some((team, team.agent(&session.agent)?)));
        match agent {
            Some((team, agent)) => Ok(self.sandbox(team, session, agent).await?.is_some()),
            None => Ok(false),
        }
    }

    /// Tells whether the replies of a session may leave for its channel, and where they go then.
    pub(crate) fn address_of(&self, session: &Session) -> Result<Option<Address>> {
        let channel = session.channel();
        if !channel.reaches_people() {
            return Ok(None);
        }
        let rules = &self.configured()?.rules;
        match rules.send_policy.decide(session.facts.send_policy, &session.key, channel) {
            Sending::Deny => Ok(None),
            Sending::Allow => {
                let known = session.facts.delivery.clone().filter(|address| address.channel == channel);
                Ok(Some(known.unwrap_or(Address { channel, to: None, account_id: None })))
            }
        }
    }

    /// Takes away what the store does not hold of sessions that were deleted.
    pub(crate) async fn forget(&self, store: &dyn Store, deleted: &[Session]) {
        for Session { id, cwd, .. } in deleted {
            match store.session(id).await {
                Ok(Some(_)) | Err(_) => continue,
                Ok(None) => {}
            }
            if let Err(error) = self.remove_plan_file(id).await {
                tracing::warn!(%error, session = %id, "the plan file of a deleted session stays");
            }
            let Some(workspace) = cwd else { continue };
            if let Err(error) = attachments::remove_all(Path::new(workspace), id.as_str()) {
                tracing::warn!(%error, session = %id, "attachments of a deleted session stay");
            }
        }
    }
}

/// Returns the sessions that may be gone after these steps.
async fn deleted_by(store: &dyn Store, steps: &[Step]) -> Result<Vec<Session>> {
    let mut deleted = Vec::new();
    for step in steps {
        match step {
            Step::Delete { session, .. } => deleted.extend(store.session(session).await?),
            Step::Queue(_) | Step::Post { .. } => {}
        }
    }
    Ok(deleted)
}

/// A run that is being settled in this process, until this is dropped.
struct Settling<'a> {
    app: &'a App,
    run: &'a RunId,
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.app.inner.settling.send_modify(|runs| _ = runs.remove(self.run));
    }
}

/// Tells whether anything may follow a run on such an errand.
fn has_follow_up(errand: &Errand) -> bool {
    match errand {
        Errand::Message | Errand::LateReply { .. } => false,
        Errand::Send(_)
        | Errand::Round(_)
        | Errand::Announce(_)
        | Errand::Spawn(_)
        | Errand::Report { .. } => true,
    }
}

fn standing(requester: Option<&Session>) -> Requester {
    match requester.map(|session| session.facts.runner) {
        Some(Runner::Here) => Requester::Runs,
        Some(Runner::Host) => Requester::HasInbox,
        None => Requester::Nobody,
    }
}
