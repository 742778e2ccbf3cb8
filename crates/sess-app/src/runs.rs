//! Runs as rows: how they stand, what they led to, and what all of it took.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use sess_core::{
    RunId, SessionId, SessionKey, Timestamp,
    policy::{Standing, Verb},
    run::{Delivery, Errand, Run, RunState},
    session::{Session, Spent},
};

use crate::{
    App, Caller, Error, Redaction, Result,
    context::{allowed, masked},
};

/// How many runs are listed when nobody says, and at most.
pub const RUNS_LEN: usize = 20;
pub const RUNS_LEN_MAX: usize = 1_000;
/// How many runs of one tree are shown.
const TREE_LEN_MAX: usize = 1_000;
/// How many runs are looked through for the one that a prefix names.
const PREFIX_LOOKED_AT: usize = 10_000;
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
}

/// One run. What is not known is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunRow {
    pub run_id: RunId,
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    pub agent: String,
    pub state: RunState,
    /// What it is for: `message`, `send`, `round`, `announce`, `late_reply`, `spawn` or `report`.
    pub errand: &'static str,
    /// What whoever spawned it calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The session whose words it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<SessionKey>,
    /// How far its message has come.
    pub delivery: Delivery,
    /// Milliseconds, like the times below.
    pub queued_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cancelled: bool,
    pub tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// With those of everything that it led to; only in a tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub root: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// How deep it stands in a tree.
    pub depth: usize,
}

impl App {
    /// Lists the runs of sessions that this caller reaches, newest first; what they led to, in order.
    pub async fn runs(&self, caller: &Caller, ask: &ListRuns) -> Result<Vec<RunRow>> {
        let limit = ask.limit.unwrap_or(RUNS_LEN).clamp(1, RUNS_LEN_MAX);
        let only = match &ask.session {
            None => None,
            Some(given) => match self.reach(caller, given, Verb::Status).await?.session {
                Some(session) => Some(session.id),
                None => return Ok(Vec::new()),
            },
        };
        if !self.has_store() {
            return Ok(Vec::new());
        }
        let store = self.store()?;
        let mut known = Known::default();
        let mut rows = Vec::new();
        let newest = store.runs(only.as_ref(), limit).await?;
        if !ask.as_tree {
            for run in newest {
                if let Some(row) = self.row(caller, &run, &mut known).await? {
                    rows.push(row);
                }
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
                let Some(row) = self.row(caller, run, &mut known).await? else { continue };
                rows.push(RunRow { depth, total_tokens: Some(spent.tokens), total_cost: spent.cost, ..row });
            }
        }
        Ok(rows)
    }

    /// Returns the run that a text names to this caller: its id, or a unique beginning of it.
    pub async fn find_run(&self, caller: &Caller, text: &str) -> Result<Run> {
        let given = text.trim().to_ascii_lowercase();
        let not_found = || Error::NotFound(format!("run not found: {}", text.trim()));
        let is_prefix = given.len() >= PREFIX_LEN_MIN
            && given.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let mut known = Known::default();
        if let Ok(id) = given.parse::<RunId>() {
            let found = if self.has_store() { self.store()?.run(&id).await? } else { None };
            let run = found.ok_or_else(not_found)?;
            return match self.reachable(caller, &run.session, &mut known).await {
                Ok(_) => Ok(run),
                Err(error) => Err(error),
            };
        }
        if !is_prefix {
            return Err(Error::Invalid(format!(
                "\"{}\" is no run: expected a run's id, or its first {PREFIX_LEN_MIN} or more characters",
                text.trim()
            )));
        }
        if !self.has_store() {
            return Err(not_found());
        }
        let mut found: Vec<Run> = Vec::new();
        for run in self.store()?.runs(None, PREFIX_LOOKED_AT).await? {
            if run.id.as_str().starts_with(&given)
                && self.reachable(caller, &run.session, &mut known).await.is_ok()
            {
                found.push(run);
            }
        }
        match found.len() {
            0 => Err(not_found()),
            1 => Ok(found.remove(0)),
            n => Err(Error::Invalid(format!("\"{given}\" is the beginning of {n} runs: give more of it"))),
        }
    }

    /// Returns a run as a row.
    pub async fn run_row(&self, caller: &Caller, run: &Run) -> Result<RunRow> {
        let row = self.row(caller, run, &mut Known::default()).await?;
        row.ok_or_else(|| Error::NotFound(format!("run not found: {}", run.id)))
    }

    /// Returns what a run led to, itself included, oldest first.
    pub async fn led_to(&self, root: &RunId) -> Result<Vec<Run>> {
        Ok(self.store()?.runs_below(root, TREE_LEN_MAX).await?)
    }

    /// Returns a row, unless its session is out of reach: what may not be seen is left out in silence.
    async fn row(&self, caller: &Caller, run: &Run, known: &mut Known) -> Result<Option<RunRow>> {
        let session = match self.reachable(caller, &run.session, known).await {
            Ok(session) => session,
            Err(Error::Denied(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let spent = Spent::from(&run.usage);
        let (errand, from) = match &run.errand {
            Errand::Message => ("message", None),
            Errand::Send(send) => ("send", Some(send.requester.clone())),
            Errand::Round(round) => ("round", Some(round.from.clone())),
            Errand::Announce(_) => ("announce", None),
            Errand::LateReply { .. } => ("late_reply", None),
            Errand::Spawn(spawn) => ("spawn", spawn.requester.clone()),
            Errand::Report { child, .. } => ("report", Some(child.clone())),
        };
        let label = match &run.errand {
            Errand::Spawn(spawn) => spawn.label.as_ref(),
            _ => None,
        };
        // Only the owner may see more.
        let redaction = allowed(caller, Redaction::None);
        let shown = |text: Option<&String>| text.map(|text| masked(text, redaction).0);
        Ok(Some(RunRow {
            run_id: run.id.clone(),
            session_id: run.session.clone(),
            session_key: session.map(|session| session.key),
            agent: run.agent.to_string(),
            state: run.state,
            errand,
            label: shown(label),
            from,
            delivery: run.delivery(),
            queued_at: run.queued_at,
            started_at: run.started_at,
            ended_at: run.ended_at,
            is_cancelled: run.is_cancelled,
            tokens: spent.tokens,
            cost: spent.cost,
            total_tokens: None,
            total_cost: None,
            result: shown(run.result.as_ref()),
            error: shown(run.error.as_ref()),
            root: run.lineage.root.clone(),
            parent: run.lineage.parent.clone(),
            depth: 0,
        }))
    }

    /// Returns the session of a run, if the caller reaches it; `None` when it was deleted.
    async fn reachable(
        &self,
        caller: &Caller,
        session: &SessionId,
        known: &mut Known,
    ) -> Result<Option<Session>> {
        if let Some(reached) = known.0.get(session) {
            return reached.clone();
        }
        let reached = match self.store()?.session(session).await? {
            Some(session) => {
                let reached = self.reach(caller, session.key.as_str(), Verb::Status).await;
                reached.map(|_| Some(session))
            }
            None if caller.standing == Standing::Owner => Ok(None),
            None => Err(Error::Denied("its session was deleted".to_owned())),
        };
        known.0.insert(session.clone(), reached.clone());
        reached
    }
}

/// Sessions that were asked about before, in one call.
#[derive(Default)]
struct Known(HashMap<SessionId, Result<Option<Session>>>);

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
