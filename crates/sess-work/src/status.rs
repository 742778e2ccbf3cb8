//! How one session is doing, at a glance.

use serde::Serialize;

use crate::{Drift, Holder, Result, Slug, State, Work};

/// A session's lease, workspace, branch and gates, and how far it is from its plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub slug: Slug,
    pub state: State,
    /// Who has it, and until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Holder>,
    pub workspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchStatus>,
    /// Files of the workspace with changes that are not committed.
    pub uncommitted: Vec<String>,
    pub gates: Vec<GateStatus>,
    /// What `complete` will not let through.
    pub refused: Vec<String>,
    /// That somebody changed the plan on the base, and what to run about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_plan: Option<String>,
    pub drift: DriftCounts,
    /// The remote could not be asked: this is what was seen last.
    pub is_old: bool,
}

/// How many commits a branch and the base have that the other has not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchStatus {
    pub name: String,
    pub ahead: u64,
    pub behind: u64,
    /// Others can see its last commit.
    pub shared: bool,
}

/// A gate that the plan names, and whether the user's configuration says what it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GateStatus {
    pub name: String,
    pub configured: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftCounts {
    pub criteria: usize,
    pub criteria_done: usize,
    pub criteria_changed: usize,
    pub files_changed: usize,
    pub files_outside: usize,
    pub files_shared: usize,
    pub subsessions: usize,
    pub amendments: usize,
}

impl Work {
    /// Tells how a session is doing.
    pub fn status(&self, slug: &Slug) -> Result<Status> {
        self.status_and_drift(slug).map(|(status, _)| status)
    }

    /// Tells how a session is doing, and how far it went from its plan.
    pub fn status_and_drift(&self, slug: &Slug) -> Result<(Status, Drift)> {
        let seen = self.look_and_keep(slug)?;
        let (drift, brief) = self.drift_in(slug, &seen)?;
        let tip = self.last_commit(slug, &seen)?;
        let branch = match &tip {
            None => None,
            Some(tip) => {
                let both = format!("{}...{tip}", seen.view.base);
                let told = self.repo.git.text(["rev-list", "--left-right", "--count", &both])?;
                let mut counts = told.split_whitespace().map(|count| count.parse().unwrap_or_default());
                let (behind, ahead) = (counts.next().unwrap_or_default(), counts.next().unwrap_or_default());
                let shared = seen.written_tip(slug) == Some(tip);
                Some(BranchStatus { name: slug.branch(), ahead, behind, shared })
            }
        };
        let workspace = self.workspace(slug);
        let uncommitted = match &workspace {
            None => Vec::new(),
            Some(path) => self.uncommitted_in(path, [])?,
        };
        let (criteria, criteria_done) = drift.criteria_counts();
        let status = Status {
            slug: slug.clone(),
            state: drift.state,
            lease: seen.standing(slug).holder().map(|claim| self.holder(claim, self.now())),
            workspace: workspace.map(|path| path.display().to_string()),
            branch,
            uncommitted,
            gates: brief
                .gates
                .into_iter()
                .map(|name| GateStatus { configured: self.settings.gates.contains_key(&name), name })
                .collect(),
            drift: DriftCounts {
                criteria,
                criteria_done,
                criteria_changed: drift.criteria.iter().filter(|one| one.change.is_some()).count(),
                files_changed: drift.files.changed.len(),
                files_outside: drift.files.outside.len(),
                files_shared: drift.files.shared.len(),
                subsessions: drift.subsessions.len(),
                amendments: drift.amendments.len(),
            },
            refused: drift.refused.clone(),
            base_plan: drift.base_plan.clone(),
            is_old: seen.view.is_old,
        };
        Ok((status, drift))
    }
}
