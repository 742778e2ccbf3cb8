//! A node at work: it executes runs that anybody queued, and settles what follows them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sess_core::{AgentId, RunId, SessionId, Timestamp};
use sess_store::Store;
use tokio::{
    sync::watch,
    task::{Id, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{Agents, LOOK_AGAIN, executing::Attendance};
use crate::Result;

/// How long a node that is stopped waits for what it executes.
const GIVE_UP_WITHIN: Duration = Duration::from_millis(1_500);
/// How often spawned sessions are looked through for those that are over.
const REAP_EVERY: Duration = Duration::from_secs(60);
/// The most runs of one tree that are cancelled when it is given up.
const TREE_LOOKED_AT: usize = 10_000;

/// Which runs a node takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Every run of an agent that is configured here, in any session that nobody else has open.
    All,
    /// Only what this run led to.
    Tree(RunId),
}

impl Agents {
    /// Executes runs, settles follow-ups, delivers posts and archives what is over, until `stop`.
    ///
    /// Whatever it executes then is given up: what has not begun is queued again, the rest is `aborted`.
    pub async fn work(&self, work: Work, stop: &CancellationToken) -> Result<()> {
        self.work_until(work, stop, stop).await
    }

    /// As [`Agents::work`]; what it executes at `stop` may end, until `give_up`.
    pub async fn work_until(
        &self,
        work: Work,
        stop: &CancellationToken,
        give_up: &CancellationToken,
    ) -> Result<()> {
        let mut node = Node::new(self, work)?;
        while !stop.is_cancelled() {
            node.look().await;
            tokio::select! {
                () = node.woken() => {}
                () = stop.cancelled() => {}
            }
        }
        while !node.tasks.is_empty() && !give_up.is_cancelled() {
            tokio::select! {
                () = node.woken() => {}
                () = give_up.cancelled() => {}
            }
        }
        node.attendance_halt.cancel();
        node.give_up().await;
        Ok(())
    }

    /// Works until everything that `root` led to is over. When `stop` is first, what is open is cancelled.
    pub async fn finish_tree(&self, root: &RunId, stop: &CancellationToken) -> Result<()> {
        let mut node = Node::new(self, Work::Tree(root.clone()))?;
        loop {
            node.look().await;
            if node.tasks.is_empty() && !node.store.is_tree_open(root, &node.names).await? {
                return Ok(());
            }
            tokio::select! {
                () = node.woken() => {}
                () = stop.cancelled() => break,
            }
        }
        for run in node.store.runs_below(root, TREE_LOOKED_AT).await? {
            if !run.state.has_ended() {
                node.store.cancel_run(&run.id, self.app().now()).await?;
            }
        }
        node.give_up().await;
        self.app().settle_ended(&*node.store).await
    }
}

/// What a node is about.
struct Node {
    agents: Agents,
    store: Arc<dyn Store>,
    work: Work,
    names: Vec<AgentId>,
    changes: watch::Receiver<u64>,
    /// What it does now; for runs, in which session.
    tasks: JoinSet<()>,
    busy: HashMap<Id, Busy>,
    /// How many of its runs wait for other runs: these take nobody's place.
    waiting: Arc<AtomicUsize>,
    /// Stops what it executes.
    stop: CancellationToken,
    /// Set when what it executes is given up, rather than cancelled.
    attendance_halt: CancellationToken,
    reaped: Option<Instant>,
}

#[derive(PartialEq, Eq)]
enum Busy {
    Executing(SessionId),
    Posting,
}

impl Node {
    fn new(agents: &Agents, work: Work) -> Result<Self> {
        let store = agents.app().store()?;
        Ok(Self {
            agents: agents.clone(),
            work,
            names: agents.names(),
            changes: store.changes(),
            store,
            tasks: JoinSet::new(),
            busy: HashMap::new(),
            waiting: Arc::default(),
            stop: CancellationToken::new(),
            attendance_halt: CancellationToken::new(),
            reaped: None,
        })
    }

    /// Looks once for everything there is to do. What fails is tried again at the next look.
    async fn look(&mut self) {
        self.changes.mark_unchanged();
        if let Err(error) = self.look_over().await {
            tracing::warn!(%error, "this node cannot work now");
        }
    }

    async fn look_over(&mut self) -> Result<()> {
        let now = self.agents.app().now();
        self.store.settle_lapsed_runs(&sess_store::boot_time()?, now).await?;
        self.agents.app().settle_ended(&*self.store).await?;
        self.begin_due().await?;
        if self.work == Work::All {
            self.begin_posting().await?;
            self.reap(now).await?;
        }
        Ok(())
    }

    /// Waits until there may be something to do.
    async fn woken(&mut self) {
        let patience = LOOK_AGAIN.min(self.agents.inner.setup.lease);
        tokio::select! {
            _ = self.changes.changed() => {}
            () = tokio::time::sleep(patience) => {}
            Some(ended) = self.tasks.join_next_with_id() => {
                let id = match ended {
                    Ok((id, ())) => id,
                    Err(error) => {
                        tracing::error!("a task of this node broke; the lease of its run will lapse");
                        error.id()
                    }
                };
                self.busy.remove(&id);
            }
        }
    }

    /// Begins to execute as many due runs as there is room for.
    async fn begin_due(&mut self) -> Result<()> {
        let most = self.agents.app().configured()?.rules.limits.concurrent as usize;
        let executing = self.busy.values().filter(|busy| **busy != Busy::Posting).count();
        let room = most.saturating_sub(executing.saturating_sub(self.waiting.load(Ordering::Relaxed)));
        if room == 0 {
            return Ok(());
        }
        let root = match &self.work {
            Work::All => None,
            Work::Tree(root) => Some(root),
        };
        let node = &self.agents.inner.node;
        // Those that are about to begin may still count as due.
        let due = self.store.due_sessions(&self.names, node, root, room + executing).await?;
        let begun = due.into_iter().filter(|session| {
            let is_busy = self.busy.values().any(|busy| *busy == Busy::Executing(session.clone()));
            !is_busy && !self.agents.inner.attended.contains(session)
        });
        for session in begun.take(room).collect::<Vec<_>>() {
            self.begin(session);
        }
        Ok(())
    }

    /// Executes the next run of a session, in a task of its own.
    fn begin(&mut self, session: SessionId) {
        let (agents, store, names) = (self.agents.clone(), Arc::clone(&self.store), self.names.clone());
        let (stop, halt) = (self.stop.child_token(), self.attendance_halt.clone());
        let waiting = Arc::clone(&self.waiting);
        let of = session.clone();
        let task = self.tasks.spawn(async move {
            if let Err(error) = agents.execute_next(&*store, &names, &session, &stop, halt, waiting).await {
                tracing::warn!(%error, %session, "a run was not executed to its end");
            }
        });
        self.busy.insert(task.id(), Busy::Executing(of));
    }

    /// Delivers posts, one at a time. What is not there begins nothing, whose end would wake this node again.
    async fn begin_posting(&mut self) -> Result<()> {
        if self.busy.values().any(|busy| *busy == Busy::Posting) {
            return Ok(());
        }
        let Some((post, lease)) = self.agents.take_post(&*self.store).await? else { return Ok(()) };
        let (agents, store) = (self.agents.clone(), Arc::clone(&self.store));
        let task = self.tasks.spawn(async move {
            if let Err(error) = agents.deliver(&*store, &post, &lease).await {
                tracing::warn!(%error, post = post.id, "a post was not delivered now");
            }
        });
        self.busy.insert(task.id(), Busy::Posting);
        Ok(())
    }

    /// Archives spawned sessions that have been over for long enough.
    async fn reap(&mut self, now: Timestamp) -> Result<()> {
        if self.reaped.is_some_and(|reaped| reaped.elapsed() < REAP_EVERY) {
            return Ok(());
        }
        self.reaped = Some(Instant::now());
        let minutes = self.agents.app().configured()?.rules.archive_after_minutes;
        let millis = i64::try_from(minutes.saturating_mul(60_000)).unwrap_or(i64::MAX);
        let before = Timestamp::from_millis_clamped(now.as_millis().saturating_sub(millis));
        for session in self.store.archive_spawned(before, now).await? {
            self.agents.close_toolboxes(&session.id);
        }
        Ok(())
    }

    /// Stops what it executes, and waits for that as long as may be; what is left loses its lease.
    async fn give_up(&mut self) {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GIVE_UP_WITHIN, ended).await.is_err() {
            self.tasks.shutdown().await;
        }
    }
}

impl Agents {
    /// Takes the next run of a session, if it is still there to be taken, and executes it.
    async fn execute_next(
        &self,
        store: &dyn Store,
        names: &[AgentId],
        session: &SessionId,
        stop: &CancellationToken,
        halt: CancellationToken,
        waiting: Arc<AtomicUsize>,
    ) -> Result<()> {
        let lease = self.new_lease()?;
        let Some(run) = store.lease_run(session, names, lease.clone(), self.app().now()).await? else {
            return Ok(());
        };
        let mut attendance = Attendance::in_background(halt, waiting);
        if self.inner.seated.contains(session) {
            attendance.person = Arc::clone(self.person());
        } else if let Some(onlooker) = self.onlooker() {
            attendance.person = onlooker;
        }
        let id = run.id.clone();
        let executed = self.execute(store, run, lease, stop, &attendance).await;
        if let Err(error) = self.executed_alone(store, &id).await {
            // Somebody wrote or reviewed it meanwhile, say: the person can still call it done.
            tracing::warn!(%error, run = %id, "an executed plan was not called done");
        }
        // What it started would pile up: nobody knows when this session is spoken to again.
        if !self.inner.seated.contains(session) {
            self.close_toolboxes(session);
        }
        executed
    }
}
