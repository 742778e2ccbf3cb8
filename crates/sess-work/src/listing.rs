//! What there is, a row a session.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use sess_core::Timestamp;

use crate::{
    Brief, Claim, Criterion, Note, PLAN_FILE, Phase, Result, Seen, Slug, Standing, State, Work, WorkKind,
    claiming, refs::read_all,
};

/// What a list says about a session.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub slug: Slug,
    pub state: State,
    pub title: String,
    pub kind: WorkKind,
    /// It can be claimed now.
    pub ready: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<Slug>,
    /// What it depends on and is not completed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<Slug>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// What is half done, and who finishes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The last line of its worklog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_log: Option<String>,
}

/// Who has a session.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub host: String,
    pub since: String,
    pub until: String,
    pub stale: bool,
    /// The work is done, and waits to be merged.
    pub waits: bool,
    pub fence: u64,
    pub attempt: u32,
    /// It is the caller's.
    pub mine: bool,
}

/// Everything about one session.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    #[serde(flatten)]
    pub row: Row,
    pub plan: String,
    pub criteria: Vec<Criterion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worklog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The agents' sessions that worked on it, newest first.
    pub sessions: Vec<String>,
    /// Claims and ends, newest first.
    pub history: Vec<Past>,
}

/// A record of the chain, as people read it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    pub at: String,
    pub phase: Phase,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub fence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Returns the command that helps a session whose directory has no plan.
pub(crate) fn without_plan(slug: &Slug, state: State) -> String {
    if state.is_editable() {
        format!("sess work edit {slug}")
    } else {
        format!("git log --oneline --all -- {}/{PLAN_FILE}", State::Active.dir_of(slug))
    }
}

/// Says what is wrong with a session's claim or directory, and what to run about it.
pub(crate) fn trouble(slug: &Slug, seen: &Seen) -> Option<String> {
    let what = match (seen.damage(slug), seen.standing(slug)) {
        (Some(reason), _) => format!("its claim is damaged ({reason})"),
        (None, Standing::Orphaned) => "nobody has claimed it".to_owned(),
        (None, Standing::Lost(_)) => "its directory is gone".to_owned(),
        _ => return None,
    };
    Some(format!("{what}: `sess work doctor --repair` repairs that"))
}

/// Returns for each session that waits for itself, by way of others, whom it waits for, from itself to itself.
pub(crate) fn circles(rows: &[Row]) -> Vec<Vec<Slug>> {
    let known: BTreeMap<&str, &Row> = rows.iter().map(|row| (row.slug.as_str(), row)).collect();
    let waiting = rows.iter().filter(|row| !row.waits_for.is_empty());
    waiting.filter_map(|row| circle(row, &known)).collect()
}

fn circle(row: &Row, known: &BTreeMap<&str, &Row>) -> Option<Vec<Slug>> {
    // The shortest way is found first.
    let (mut found, mut reached_from) = (VecDeque::from([row]), BTreeMap::new());
    while let Some(next) = found.pop_front() {
        for other in &next.waits_for {
            if *other == row.slug.as_str() {
                let mut around = vec![row.slug.clone()];
                let mut at = next;
                while at.slug != row.slug {
                    around.push(at.slug.clone());
                    at = reached_from[at.slug.as_str()];
                }
                around.push(row.slug.clone());
                around.reverse();
                return Some(around);
            }
            if let Some(other) = known.get(other.as_str())
                && !reached_from.contains_key(other.slug.as_str())
            {
                reached_from.insert(other.slug.as_str(), next);
                found.push_back(other);
            }
        }
    }
    None
}

/// Says that nobody can ever claim a session, because it waits for itself.
pub(crate) fn told_around(around: &[Slug]) -> String {
    let slugs: Vec<&str> = around.iter().map(Slug::as_str).collect();
    format!("it waits for itself ({})", slugs.join(", "))
}

impl Work {
    /// Returns every session, in the order of the states and then of the slugs.
    pub fn list(&self, seen: &Seen) -> Result<Vec<Row>> {
        let slugs = seen.slugs();
        let name = |slug: &Slug, file: &str| {
            let entry = seen.tree.entries.get(slug);
            entry
                .and_then(|entry| entry.files.get(file))
                .map_or_else(|| "-".to_owned(), |file| file.oid.to_string())
        };
        let plans: Vec<String> = slugs.iter().map(|slug| name(slug, PLAN_FILE)).collect();
        // What its owner wrote is on the session's branch, as far as it was shared.
        let logs: Vec<String> = slugs
            .iter()
            .map(|slug| match seen.written_tip(slug) {
                Some(tip) => format!("{tip}:{}", Note::Log.path(slug)),
                None => name(slug, Note::Log.file()),
            })
            .collect();
        let texts = read_all(&self.repo.git, &[plans, logs].concat())?;
        let (plans, logs) = texts.split_at(slugs.len());
        let mut rows = Vec::new();
        for ((slug, plan), log) in slugs.into_iter().zip(plans).zip(logs) {
            let text = |bytes: &Option<Vec<u8>>| {
                bytes.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            };
            rows.extend(self.row(slug, seen, text(plan).as_deref(), text(log).as_deref())?);
        }
        rows.sort_by(|one, other| (one.state, &one.slug).cmp(&(other.state, &other.slug)));
        for around in circles(&rows) {
            let row = rows.iter_mut().find(|row| row.slug == around[0]);
            if let Some(row) = row.filter(|row| row.note.is_none()) {
                row.note =
                    Some(format!("{}: `sess work edit {}` can change that", told_around(&around), row.slug));
            }
        }
        Ok(rows)
    }

    fn row(&self, slug: Slug, seen: &Seen, plan: Option<&str>, log: Option<&str>) -> Result<Option<Row>> {
        let standing = seen.standing(&slug);
        let Some(state) = standing.state() else { return Ok(None) };
        let parsed = plan.map(Brief::parse);
        let unreadable = match &parsed {
            Some(parsed) => parsed.as_ref().err().map(ToString::to_string),
            None => Some(format!("it has no {PLAN_FILE}: `{}` helps", without_plan(&slug, state))),
        };
        let is_readable = parsed.as_ref().is_some_and(Result::is_ok);
        let brief = parsed.and_then(Result::ok).unwrap_or_default();
        let unready = match state {
            State::Planned if is_readable => brief.check_ready(&slug).err().map(|error| error.to_string()),
            _ => unreadable,
        };
        let waits_for = if state.is_editable() { claiming::unmet(&brief, seen) } else { Vec::new() };
        let now = self.now();
        let damage = seen.damage(&slug);
        let told = self.lateness(&slug, seen)?.map(str::to_owned).or_else(|| trouble(&slug, seen));
        let note = told.or_else(|| match &standing {
            Standing::Pending { .. } => Some("the directory follows its claim with the next verb".to_owned()),
            Standing::Merged(_) => Some("it is merged, and its claim ends with the next verb".to_owned()),
            _ => unready.clone(),
        });
        Ok(Some(Row {
            ready: state == State::Planned
                && unready.is_none()
                && damage.is_none()
                && waits_for.is_empty()
                && matches!(standing, Standing::Rests(_) | Standing::Pending { .. }),
            title: if brief.title.is_empty() { slug.topic().replace('-', " ") } else { brief.title },
            kind: brief.kind,
            depends: brief.depends,
            waits_for,
            labels: brief.labels,
            parent: brief.parent,
            holder: standing.holder().map(|claim| self.holder(claim, now)),
            note,
            last_log: log
                .and_then(|log| log.lines().rev().find(|line| line.starts_with("- ")))
                .map(|line| line[2..].to_owned()),
            slug,
            state,
        }))
    }

    /// Says so when a session's claim seems to have come too late, whether its directory is elsewhere or gone.
    pub(crate) fn lateness(&self, slug: &Slug, seen: &Seen) -> Result<Option<&'static str>> {
        let late = self.late(slug, seen)?;
        Ok(late.map(|_| "its claim may have come too late: the next verb ends it then"))
    }

    pub(crate) fn holder(&self, claim: &Claim, now: Timestamp) -> Holder {
        Holder {
            name: claim.user.name.clone(),
            agent: claim.agent.clone(),
            session: claim.owner.session.clone(),
            host: claim.host.clone(),
            since: claim.claimed_at.to_string(),
            until: claim.lapses_at().to_string(),
            stale: claim.is_stale(now),
            waits: claim.waits(),
            fence: claim.fence,
            attempt: claim.attempt,
            mine: claim.owner.includes(&self.owner),
        }
    }

    pub fn show(&self, slug: &Slug, seen: &Seen) -> Result<Shown> {
        let row = self.list(seen)?.into_iter().find(|row| row.slug == *slug);
        let row = row.ok_or_else(|| crate::Error::from(crate::Refusal::NotFound(slug.clone())))?;
        let tip = self.tip(slug)?.or_else(|| seen.written_tip(slug).cloned());
        let claims = self.events(slug, seen)?;
        let landed = seen.tree.entries.get(slug).filter(|entry| entry.state == State::Completed);
        let plan = match landed.and_then(|entry| entry.files.get(PLAN_FILE)) {
            // With what was noted at the end.
            Some(file) => self.repo.text_of(&file.oid)?,
            None => self.plan_now(slug, seen, &claims)?,
        };
        let history = history_of(&claims);
        let mut sessions: Vec<String> = Vec::new();
        for session in history.iter().filter_map(|past| past.session.clone()) {
            if !sessions.contains(&session) {
                sessions.push(session);
            }
        }
        Ok(Shown {
            criteria: Brief::parse(&plan).map(|brief| brief.criteria).unwrap_or_default(),
            plan,
            worklog: self.noted(slug, Note::Log, seen)?,
            branch: tip.map(|_| slug.branch()),
            workspace: self.workspace(slug).map(|path| path.display().to_string()),
            sessions,
            history,
            row,
        })
    }

    /// Returns what became of a session, newest first, also when its claim is archived.
    pub fn history(&self, slug: &Slug, seen: &Seen) -> Result<Vec<Past>> {
        Ok(history_of(&self.events(slug, seen)?))
    }
}

fn history_of(claims: &[Claim]) -> Vec<Past> {
    let reason = |n: usize, claim: &Claim| {
        let before = claims.get(n + 1).map_or(0, |older| older.amendments.len());
        match claim.amendments.last().filter(|_| claim.amendments.len() > before) {
            Some(amendment) => Some(format!("the plan was amended: {}", amendment.reason)),
            None => claim.reason.clone(),
        }
    };
    let past = |(n, claim): (usize, &Claim)| Past {
        at: claim.renewed_at.to_string(),
        phase: claim.phase,
        name: claim.user.name.clone(),
        agent: claim.agent.clone(),
        session: claim.owner.session.clone(),
        fence: claim.fence,
        reason: reason(n, claim),
    };
    claims.iter().enumerate().map(past).collect()
}
