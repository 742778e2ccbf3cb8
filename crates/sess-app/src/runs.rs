//! Runs as rows: how they stand, what they led to, and what all of it took.

use std::collections::{HashMap, HashSet};

use sess_core::{
    RunId, SessionId, SessionKey, Timestamp,
    policy::{Standing, Verb},
    run::{Delivery, Errand, Run, RunState},
    session::Spent,
};

use sess_protocol::runs as wire;

use crate::{
    App, Caller, Error, Reached, Redaction, Result,
    context::{allowed, masked},
    reach::Outlook,
};

/// How many runs are listed when nobody says, and at most.
pub const RUNS_LEN: usize = 20;
pub const RUNS_LEN_MAX: usize = 1_000;
/// How many runs of one tree are shown.
const TREE_LEN_MAX: usize = 1_000;
/// How many runs are looked at to tell whether a prefix is unique.
const PREFIX_MATCHES_MAX: usize = 1_000;
/// The fewest characters of a run's id that name it.
const PREFIX_LEN_MIN: usize = 8;

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct ListRuns {
    /// Only runs of this session: a key or an id.
    pub session: Option<String>,
    /// [`RUNS_LEN`] when not given.
    pub limit: Option<usize>,
    /// With everything that those runs led to, each below the run that asked for it.
    pub as_tree: bool,
    pub redaction: Redaction,
}

/// One run. What is not known is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    pub run_id: RunId,
    pub session_id: SessionId,
    pub session_key: Option<SessionKey>,
    pub agent: String,
    pub state: RunState,
    /// What it is for, as [`Errand::as_str`] says it.
    pub errand: &'static str,
    /// What whoever spawned it calls it.
    pub label: Option<String>,
    /// The session whose words it answers.
    pub from: Option<SessionKey>,
    /// How far its message has come.
    pub delivery: Delivery,
    pub queued_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub is_cancelled: bool,
    pub tokens: u64,
    pub cost: Option<f64>,
    /// With those of everything that it led to; only in a tree.
    pub total_tokens: Option<u64>,
    pub total_cost: Option<f64>,
    pub result: Option<String>,
    pub error: Option<String>,
    pub root: RunId,
    pub parent: Option<RunId>,
    /// How deep it stands in a tree.
    pub depth: usize,
}

impl From<RunRow> for wire::RunRow {
    fn from(row: RunRow) -> Self {
        Self {
            run_id: row.run_id.to_string(),
            session_id: row.session_id.to_string(),
            session_key: row.session_key.map(|key| key.to_string()),
            agent: row.agent,
            state: row.state.as_str().to_owned(),
            errand: row.errand.to_owned(),
            label: row.label,
            from: row.from.map(|key| key.to_string()),
            delivery: row.delivery.as_str().to_owned(),
            queued_at: row.queued_at.as_millis(),
            started_at: row.started_at.map(Timestamp::as_millis),
            ended_at: row.ended_at.map(Timestamp::as_millis),
            is_cancelled: row.is_cancelled,
            tokens: row.tokens,
            cost: row.cost,
            total_tokens: row.total_tokens,
            total_cost: row.total_cost,
            result: row.result,
            error: row.error,
            root: row.root.to_string(),
            parent: row.parent.map(|run| run.to_string()),
            depth: row.depth,
        }
    }
}

impl App {
    /// Lists the runs of sessions that this caller reaches, newest first; what they led to, in order.
    pub async fn runs(&self, caller: &Caller, ask: &ListRuns) -> Result<Vec<RunRow>> {
        let limit = ask.limit.unwrap_or(RUNS_LEN).clamp(1, RUNS_LEN_MAX);
        let only = match &ask.session {
            None => None,
            Some(given) => {
                let outlook = self.outlook(caller).await?;
                match self.reach_from(&outlook, given, Verb::Status).await {
                    Ok(Reached { session: Some(session), .. }) => Some(session.id),
                    Ok(Reached { session: None, .. }) => return Ok(Vec::new()),
                    // One that another agent keeps, and of which nothing is stored, has no runs.
                    Err(missing) => {
                        self.kept_elsewhere(&outlook, given, missing).await?;
                        return Ok(Vec::new());
                    }
                }
            }
        };
        if !self.has_store() {
            return Ok(Vec::new());
        }
        let store = self.store()?;
        // A node that died has no runs; a store that takes no writes can still be read.
        if let Err(error) = store.settle_lapsed_runs(&sess_store::boot_time()?, self.now()).await {
            tracing::warn!(%error, "runs of nodes that died are shown as they left them");
        }
        let mut sight = self.sight(caller, ask.redaction).await?;
        let mut rows = Vec::new();
        let newest = store.runs(only.as_ref(), limit).await?;
        if !ask.as_tree {
            for run in newest {
                rows.extend(self.row(&mut sight, &run).await?);
            }
            return Ok(rows);
        }
        let mut roots = HashSet::new();
        for run in newest {
            if !roots.insert(run.lineage.root.clone()) {
                continue;
            }
            let mut tree = store.runs_below(&run.lineage.root, TREE_LEN_MAX).await?;
            if tree.is_empty() {
                // Its root is gone, and it stands for itself.
                tree.push(run);
            }
            for (run, depth, spent) in in_order(&tree) {
                let Some(row) = self.row(&mut sight, run).await? else { continue };
                rows.push(RunRow { depth, total_tokens: Some(spent.tokens), total_cost: spent.cost, ..row });
            }
        }
        Ok(rows)
    }

    /// Returns the run that a text names to this caller: its id, or a unique beginning of it.
    pub async fn find_run(&self, caller: &Caller, text: &str, redaction: Redaction) -> Result<Run> {
        let given = text.trim().to_ascii_lowercase();
        let id = given.parse::<RunId>();
        let is_prefix = given.len() >= PREFIX_LEN_MIN
            && given.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if id.is_err() && !is_prefix {
            return Err(Error::NotFound(format!(
                "run \"{}\" not found: expected a run's id, or its first {PREFIX_LEN_MIN} or more characters",
                text.trim()
            )));
        }
        if !self.has_store() {
            return Err(no_run(text.trim()));
        }
        let store = self.store()?;
        let named = match id {
            Ok(id) => store.run(&id).await?.into_iter().collect(),
            Err(_) => store.runs_by_prefix(&given, PREFIX_MATCHES_MAX).await?,
        };
        let mut sight = self.sight(caller, redaction).await?;
        let mut seen = Vec::new();
        for run in named {
            // What is out of sight is answered for as what does not exist.
            if self.look_at(&mut sight, &run).await?.is_seen {
                seen.push(shown(run, sight.redaction));
            }
        }
        match (seen.pop(), seen.len()) {
            (None, _) => Err(no_run(text.trim())),
            (Some(run), 0) => Ok(run),
            (_, more) => {
                let text = format!("\"{given}\" is the beginning of {} runs: give more of it", more + 1);
                Err(Error::Invalid(text))
            }
        }
    }

    /// Returns a run as a row.
    pub async fn run_row(&self, caller: &Caller, run: &Run, redaction: Redaction) -> Result<RunRow> {
        let mut sight = self.sight(caller, redaction).await?;
        self.row(&mut sight, run).await?.ok_or_else(|| no_run(run.id.as_str()))
    }

    /// Returns what a run led to, itself included, oldest first.
    pub async fn led_to(&self, root: &RunId) -> Result<Vec<Run>> {
        Ok(self.store()?.runs_below(root, TREE_LEN_MAX).await?)
    }

    /// Returns a row, unless it is out of sight: what may not be seen is left out in silence.
    async fn row(&self, sight: &mut Sight, run: &Run) -> Result<Option<RunRow>> {
        let Look { is_seen: true, key } = self.look_at(sight, run).await? else { return Ok(None) };
        let run = shown(run.clone(), sight.redaction);
        let spent = Spent::from(&run.usage);
        let (from, label) = match &run.errand {
            Errand::Message | Errand::Announce(_) | Errand::LateReply { .. } => (None, None),
            Errand::Send(send) => (Some(send.requester.clone()), None),
            Errand::Round(round) => (Some(round.from.clone()), None),
            Errand::Spawn(spawn) => (spawn.requester.clone(), spawn.label.clone()),
            Errand::Report { child, .. } => (Some(child.clone()), None),
        };
        Ok(Some(RunRow {
            agent: run.agent.to_string(),
            errand: run.errand.as_str(),
            delivery: run.delivery(),
            run_id: run.id,
            session_id: run.session,
            session_key: key,
            state: run.state,
            label,
            from,
            queued_at: run.queued_at,
            started_at: run.started_at,
            ended_at: run.ended_at,
            is_cancelled: run.is_cancelled,
            tokens: spent.tokens,
            cost: spent.cost,
            total_tokens: None,
            total_cost: None,
            result: run.result,
            error: run.error,
            root: run.lineage.root,
            parent: run.lineage.parent,
            depth: 0,
        }))
    }

    /// Returns what this caller sees of runs; its session is stored then.
    async fn sight(&self, caller: &Caller, redaction: Redaction) -> Result<Sight> {
        let outlook = match (caller.standing, &caller.only) {
            (Standing::Owner, None) => None,
            (Standing::Owner, Some(_)) | (Standing::Agent, _) => Some(self.outlook(caller).await?),
        };
        Ok(Sight { outlook, redaction: allowed(caller, redaction), known: HashMap::new() })
    }

    /// Tells whether a run is in sight: its session is in reach, or the caller asked for it. What came
    /// of it stays readable for whoever asked, also when its session is gone.
    async fn look_at(&self, sight: &mut Sight, run: &Run) -> Result<Look> {
        let asked_for = match (&run.errand, sight.outlook.as_ref().and_then(|outlook| outlook.own.as_ref())) {
            (Errand::Send(send), Some(own)) => send.requester == own.key,
            (Errand::Spawn(spawn), Some(own)) => spawn.requester.as_ref() == Some(&own.key),
            _ => false,
        };
        if !sight.known.contains_key(&run.session) {
            let session = match self.store()?.session(&run.session).await {
                // Whose it is cannot be told.
                Err(sess_store::Error::Damaged(_)) => None,
                found => found?,
            };
            let is_seen = match (&sight.outlook, &session) {
                (None, _) => true,
                (Some(outlook), Some(session)) => self.is_in_reach(outlook, session, Verb::Status).await?,
                (Some(_), None) => false,
            };
            let look = Look { is_seen, key: session.map(|session| session.key) };
            sight.known.insert(run.session.clone(), look);
        }
        let known = &sight.known[&run.session];
        Ok(Look { is_seen: known.is_seen || asked_for, key: known.key.clone() })
    }
}

/// What a caller sees of runs, for the length of one call.
struct Sight {
    /// `None` is the owner's, who sees all.
    outlook: Option<Outlook>,
    redaction: Redaction,
    /// Sessions that were asked about before.
    known: HashMap<SessionId, Look>,
}

struct Look {
    is_seen: bool,
    /// The key of the session; `None` when that was deleted.
    key: Option<SessionKey>,
}

/// Returns a run as it may be shown.
pub(crate) fn shown(mut run: Run, redaction: Redaction) -> Run {
    let mask = |text: &mut String| *text = masked(text, redaction).0;
    run.result.as_mut().map(mask);
    run.error.as_mut().map(mask);
    match &mut run.errand {
        Errand::Send(send) => mask(&mut send.request),
        Errand::Spawn(spawn) => {
            spawn.label.as_mut().map(mask);
        }
        Errand::Message
        | Errand::Round(_)
        | Errand::Announce(_)
        | Errand::LateReply { .. }
        | Errand::Report { .. } => {}
    }
    run
}

pub(crate) fn no_run(run: &str) -> Error {
    Error::NotFound(format!("run \"{run}\" not found"))
}

/// Returns the runs of one tree, each behind the run that asked for it, with its depth and what it and all
/// below it took.
fn in_order(tree: &[Run]) -> Vec<(&Run, usize, Spent)> {
    let ids: HashSet<&RunId> = tree.iter().map(|run| &run.id).collect();
    let mut below: HashMap<Option<&RunId>, Vec<&Run>> = HashMap::new();
    for run in tree {
        // What hangs on a run that is not here hangs on nothing.
        let parent = run.lineage.parent.as_ref().filter(|parent| ids.contains(parent) && **parent != run.id);
        below.entry(parent).or_default().push(run);
    }
    let mut rows = Vec::new();
    for top in below.get(&None).into_iter().flatten() {
        branch(top, 0, &below, &mut rows);
    }
    rows
}

fn branch<'a>(
    run: &'a Run,
    depth: usize,
    below: &HashMap<Option<&'a RunId>, Vec<&'a Run>>,
    rows: &mut Vec<(&'a Run, usize, Spent)>,
) -> Spent {
    let at = rows.len();
    let mut spent = Spent::from(&run.usage);
    rows.push((run, depth, spent));
    for child in below.get(&Some(&run.id)).into_iter().flatten() {
        spent = spent.plus(branch(child, depth + 1, below, rows));
    }
    rows[at].2 = spent;
    spent
}

#[cfg(test)]
mod tests {
    use sess_core::{message::Usage, run::Lineage};

    use super::*;

    /// Runs are written `id parent tokens`.
    fn tree(lines: &[(u128, Option<u128>, u64)]) -> Vec<Run> {
        let id = |n: u128| RunId::new(n << 64);
        let at = Timestamp::default();
        let run = |&(n, parent, tokens): &(u128, Option<u128>, u64)| Run {
            id: id(n),
            session: "s".parse().expect("an id"),
            agent: "main".parse().expect("an id"),
            state: RunState::Done,
            queued_at: at,
            started_at: None,
            ended_at: None,
            result: None,
            error: None,
            usage: Usage { input: tokens, cost: (n == 3).then_some(0.5), ..Usage::default() },
            is_cancelled: false,
            errand: Errand::Message,
            lineage: Lineage { root: id(1), parent: parent.map(id), hops: 0 },
            handed_over_at: None,
        };
        lines.iter().map(run).collect()
    }

    #[test]
    fn what_children_took_is_summed_up_at_their_parents() {
        let tree =
            tree(&[(1, None, 1), (2, Some(1), 10), (4, Some(1), 1000), (3, Some(2), 100), (9, Some(8), 5)]);
        let rows: Vec<(String, usize, u64, Option<f64>)> = in_order(&tree)
            .into_iter()
            .map(|(run, depth, spent)| (run.id.as_str()[..23].to_owned(), depth, spent.tokens, spent.cost))
            .collect();
        let shown: Vec<(usize, u64, Option<f64>)> = rows.iter().map(|row| (row.1, row.2, row.3)).collect();
        assert_eq!(
            shown,
            [(0, 1111, Some(0.5)), (1, 110, Some(0.5)), (2, 100, Some(0.5)), (1, 1000, None), (0, 5, None)]
        );
    }
}
