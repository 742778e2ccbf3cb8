//! A plan against what became of it: criteria, files, sub-sessions, amendments, time.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sess_core::Timestamp;

use crate::{
    Amendment, Brief, Claim, Criterion, Error, Note, Oid, PLAN_FILE, Phase, Result, Seen, Slug, State, Work,
    WorkKind, brief::criteria, listing::trouble, projecting::ENV_FILE,
};

/// How far a session went from its plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    pub slug: Slug,
    pub state: State,
    pub criteria: Vec<DriftCriterion>,
    pub files: DriftFiles,
    /// What turned out to be work of its own.
    pub subsessions: Vec<String>,
    /// Changes of the plan in this attempt, oldest first.
    pub amendments: Vec<Amendment>,
    /// What `complete` will not let through: a changed plan, changes of the knowledge base.
    pub refused: Vec<String>,
    /// That somebody changed the plan on the base, and the command that makes it the one that is worked by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_plan: Option<String>,
    pub time: DriftTime,
    /// That the caller lost the session, and to whom.
    pub notices: Vec<String>,
}

impl Drift {
    /// Returns how many criteria the plan has now, and how many of them are done.
    pub fn criteria_counts(&self) -> (usize, usize) {
        let of_plan = self.criteria.iter().filter(|criterion| criterion.change != Some(Change::Removed));
        (of_plan.clone().count(), of_plan.filter(|criterion| criterion.done).count())
    }
}

/// An acceptance criterion, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftCriterion {
    pub text: String,
    pub done: bool,
    /// How the plan differs from the one that the attempt began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Added,
    Removed,
}

/// The files that a session changes, apart from what work sessions are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftFiles {
    pub changed: Vec<String>,
    /// What the plan does not name.
    pub outside: Vec<String>,
    /// What other active sessions change, too.
    pub shared: Vec<SharedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedFile {
    pub path: String,
    pub with: Vec<Slug>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftTime {
    /// How long somebody had the session in this attempt.
    pub spent_minutes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate_minutes: Option<u64>,
}

/// For git: everything but what work sessions are made of, with what they learned.
const NOT_OURS: &str = ":(top,exclude)_AGENTS";
/// For git: everything but plans and logs; the knowledge base is there.
const NOT_SESSIONS: &str = ":(top,exclude)_AGENTS/sessions";

/// Two commits with a session's work between them.
type Span = (Oid, Oid);

impl Work {
    /// Compares a session's plan with what was done.
    pub fn drift(&self, slug: &Slug) -> Result<Drift> {
        self.drift_in(slug, &self.look_and_keep(slug)?).map(|(drift, _)| drift)
    }

    /// Whether something was done in a session that its plan could have asked for, and not only logged.
    pub fn has_work(&self, slug: &Slug) -> Result<bool> {
        let seen = self.see()?;
        let chain = self.chain(slug, &seen)?;
        let attempt = this_attempt(&chain);
        let brief = Brief::of(slug, &self.plan_now(slug, &seen, attempt)?)?;
        if !self.drift_files(slug, &seen, attempt, &brief)?.changed.is_empty()
            || !self.ticked(slug, &seen)?.is_empty()
        {
            return Ok(true);
        }
        let Some((from, to)) = self.unlanded(slug, &seen)? else { return Ok(false) };
        let dir = State::Active.dir_of(slug);
        let excluded =
            [Note::Log.file(), PLAN_FILE, ENV_FILE].map(|name| format!(":(top,exclude){dir}/{name}"));
        let asked = ["diff-tree", "-r", "--name-only", from.as_str(), to.as_str(), "--", ":/"];
        let told = self.repo.git.text(asked.into_iter().chain(excluded.iter().map(String::as_str)))?;
        Ok(!told.is_empty())
    }

    /// As [`Self::drift`] of what was seen, with the plan that counts.
    pub(crate) fn drift_in(&self, slug: &Slug, seen: &Seen) -> Result<(Drift, Brief)> {
        let state = self.state_in(slug, seen)?;
        let chain = self.chain(slug, seen)?;
        let attempt = this_attempt(&chain);
        let plan = self.plan_now(slug, seen, attempt)?;
        let first = match attempt.last() {
            Some(claim) => {
                self.repo.text_of(claim.amendments.first().map_or(&claim.plan, |change| &change.from))?
            }
            None => plan.clone(),
        };
        let (brief, first) = (Brief::of(slug, &plan)?, Brief::of(slug, &first)?);
        let (mut refused, mut base_plan) = (Vec::new(), None);
        refused.extend(trouble(slug, seen));
        if let Some(claim) = seen.standing(slug).holder() {
            if let Some(tip) = self.last_commit(slug, seen)? {
                let workspace = self.workspace(slug).filter(|_| claim.owner.includes(&self.owner));
                refused.extend(self.refused(slug, claim, &tip, seen, workspace.as_deref())?);
                if let Some(record) = seen.record(slug).filter(|_| claim.owner.includes(&self.owner)) {
                    refused.extend(self.obstacles(slug, record, &tip, seen)?);
                }
            }
            let plan = self.plan_on_base(slug, claim, seen)?;
            base_plan = plan.map(|plan| format!("{}: run `{}`", plan.told, plan.next));
        }
        let drift = Drift {
            slug: slug.clone(),
            refused,
            base_plan,
            state,
            criteria: compared(&first.criteria, &brief.criteria, &self.ticked(slug, seen)?),
            files: self.drift_files(slug, seen, attempt, &brief)?,
            subsessions: self.subsessions(slug, seen)?,
            amendments: amendments(attempt),
            time: DriftTime {
                spent_minutes: minutes_held(attempt, self.now()),
                estimate_minutes: brief.estimate_minutes,
            },
            notices: self.lost_to(slug, seen)?.into_iter().collect(),
        };
        Ok((drift, brief))
    }

    /// Returns the boxes that were ticked while the session was worked on.
    fn ticked(&self, slug: &Slug, seen: &Seen) -> Result<BTreeSet<String>> {
        let mut noted = String::new();
        for note in [Note::Plan, Note::Log] {
            noted += &self.noted(slug, note, seen)?.unwrap_or_default();
            noted.push('\n');
        }
        Ok(ticked(&noted))
    }

    pub(crate) fn state_in(&self, slug: &Slug, seen: &Seen) -> Result<State> {
        let state = seen.standing(slug).state();
        state.ok_or_else(|| Error::from(crate::Refusal::NotFound(slug.clone())))
    }

    /// Returns the plan that counts: the one of the claim, else that of the directory.
    pub(crate) fn plan_now(&self, slug: &Slug, seen: &Seen, chain: &[Claim]) -> Result<String> {
        let entry = seen.tree.entries.get(slug);
        let shown = entry.and_then(|entry| entry.files.get(PLAN_FILE)).map(|file| &file.oid);
        // An ended claim is history, unless it ended with the work done.
        let claimed = chain.first().filter(|claim| !claim.phase.has_ended() || claim.landed.is_some());
        match claimed.map(|claim| &claim.plan).or(shown) {
            Some(plan) => self.repo.text_of(plan),
            None => Ok(String::new()),
        }
    }

    fn drift_files(&self, slug: &Slug, seen: &Seen, attempt: &[Claim], brief: &Brief) -> Result<DriftFiles> {
        let spans = self.spans(slug, seen, attempt)?;
        // What it is about, when it merges knowledge; otherwise only sessions' own learnings are there.
        let apart = if brief.may_change_knowledge(slug) { NOT_SESSIONS } else { NOT_OURS };
        let all = |specs: &[String]| -> Result<BTreeSet<String>> {
            let mut paths = self.changed(&spans, specs, apart)?;
            paths.extend(self.uncommitted(slug, seen, specs, apart)?);
            Ok(paths)
        };
        let changed = all(&[])?;
        let globs: Vec<String> = brief.touches.iter().filter_map(|glob| pathspec(glob)).collect();
        let meant = if globs.is_empty() { BTreeSet::new() } else { all(&globs)? };
        let outside = changed.iter().filter(|path| !meant.contains(*path) && !is_named(path, &brief.body));
        let mut outside: Vec<String> = outside.cloned().collect();
        let mut with: BTreeMap<&String, Vec<Slug>> = BTreeMap::new();
        let others = seen.slugs().into_iter().filter(|other| other != slug);
        for other in others.filter(|other| seen.standing(other).holder().is_some()) {
            let theirs = self.unlanded(&other, seen)?;
            for path in self.changed(theirs.as_slice(), &[], NOT_SESSIONS)? {
                if let Some(path) = changed.get(&path) {
                    with.entry(path).or_default().push(other.clone());
                }
            }
        }
        let shared = with.into_iter().map(|(path, with)| SharedFile { path: path.clone(), with }).collect();
        let mut changed: Vec<String> = changed.into_iter().collect();
        if let (Some(tip), Some(_)) = (self.last_commit(slug, seen)?, seen.standing(slug).holder()) {
            let left = self.left_behind(slug, seen, &tip)?;
            changed.extend(left.iter().cloned());
            outside.extend(left);
        }
        Ok(DriftFiles { changed, outside, shared })
    }

    /// Returns where a session's work is: what landed already, and what its branch has.
    fn spans(&self, slug: &Slug, seen: &Seen, attempt: &[Claim]) -> Result<Vec<Span>> {
        let mut spans = Vec::new();
        let Some(last) = attempt.first() else { return Ok(spans) };
        let first = attempt.last().map_or(&last.base_commit, |claim| &claim.base_commit);
        if self.is_here(first)? {
            let begins = format!("[{slug}] Land: ");
            let told = self.repo.git.text([
                "rev-list",
                "--no-commit-header",
                "--format=%H %P%x09%s",
                "--fixed-strings",
                &format!("--grep={begins}"),
                &format!("{first}..{}", seen.view.base),
            ])?;
            for line in told.lines() {
                let Some((oids, subject)) = line.split_once('\t') else { continue };
                let mut oids = oids.split(' ').filter_map(|oid| oid.parse::<Oid>().ok());
                if let (true, Some(to), Some(from)) = (subject.starts_with(&begins), oids.next(), oids.next())
                {
                    spans.push((from, to));
                }
            }
        }
        match &last.landed {
            Some(landed) if self.is_here(&landed.commit)? && self.is_here(&landed.base)? => {
                spans.push((landed.base.clone(), landed.commit.clone()));
            }
            // It landed nowhere that this clone can see.
            Some(_) => {}
            None => spans.extend(self.unlanded(slug, seen)?),
        }
        Ok(spans)
    }

    /// Returns what a session's branch has and the base does not.
    fn unlanded(&self, slug: &Slug, seen: &Seen) -> Result<Option<Span>> {
        let Some(tip) = self.last_commit(slug, seen)? else { return Ok(None) };
        // Without anything in common there is nothing to compare it with.
        let begun = self.repo.merge_base(&seen.view.base, &tip)?;
        Ok(begun.map(|begun| (begun, tip)))
    }

    /// Returns the last commit of a session's branch: the one here when it is the caller's, else the one that was
    /// shared.
    pub(crate) fn last_commit(&self, slug: &Slug, seen: &Seen) -> Result<Option<Oid>> {
        let is_mine = seen.record(slug).is_some_and(|record| record.claim.owner.includes(&self.owner));
        let shared = match seen.written_tip(slug) {
            // What was handed over and not pushed is nowhere but with its owner.
            Some(tip) if seen.view.branches.get(slug) != Some(tip) && !self.is_here(tip)? => None,
            tip => tip.cloned(),
        };
        if !is_mine && shared.is_some() {
            return Ok(shared);
        }
        Ok(self.tip(slug)?.or(shared))
    }

    fn is_here(&self, oid: &Oid) -> Result<bool> {
        Ok(self.repo.commit(oid.as_str())?.is_some())
    }

    /// Returns the files that differ over some spans, as far as they match one of the pathspecs, and not `apart`.
    fn changed(&self, spans: &[Span], pathspecs: &[String], apart: &str) -> Result<BTreeSet<String>> {
        let mut paths = BTreeSet::new();
        for (from, to) in spans {
            let asked =
                ["diff-tree", "-r", "-z", "--name-only", "--no-renames", from.as_str(), to.as_str(), "--"];
            let specs = pathspecs.iter().map(String::as_str).chain([apart]);
            let told = self.repo.git.text(asked.into_iter().chain(specs))?;
            paths.extend(told.split('\0').filter(|path| !path.is_empty()).map(str::to_owned));
        }
        Ok(paths)
    }

    /// Returns the files that its owner is changing in the workspace here, and has not committed.
    fn uncommitted(
        &self,
        slug: &Slug,
        seen: &Seen,
        pathspecs: &[String],
        apart: &str,
    ) -> Result<BTreeSet<String>> {
        let standing = seen.standing(slug);
        let is_mine = standing.holder().is_some_and(|claim| claim.owner.includes(&self.owner));
        let Some(path) = self.workspace(slug).filter(|_| is_mine) else { return Ok(BTreeSet::new()) };
        let specs = pathspecs.iter().map(String::as_str).chain([apart]);
        Ok(self.uncommitted_in(&path, specs)?.into_iter().collect())
    }

    /// Returns what the session wrote down, and the sessions that say that they come from it.
    fn subsessions(&self, slug: &Slug, seen: &Seen) -> Result<Vec<String>> {
        let text = self.noted(slug, Note::Sub, seen)?.unwrap_or_default();
        let mut found: Vec<String> =
            text.lines().filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect();
        let children = self.list(seen)?.into_iter();
        for child in children.filter(|row| row.parent.as_ref() == Some(slug) && row.kind != WorkKind::KbMerge)
        {
            if !text.contains(&format!("`{}`", child.slug)) {
                found.push(format!("{} (`{}`)", child.title, child.slug));
            }
        }
        Ok(found)
    }
}

/// Returns the records of the attempt that is the last, newest first.
fn this_attempt(chain: &[Claim]) -> &[Claim] {
    let Some(last) = chain.first() else { return chain };
    let end = chain.iter().position(|claim| claim.attempt != last.attempt).unwrap_or(chain.len());
    // Planning it anew is no part of it: until somebody claims it, nothing is begun.
    let begun = chain[..end].iter().rposition(|claim| claim.phase != Phase::Released);
    &chain[..begun.map_or(0, |first| first + 1)]
}

fn amendments(attempt: &[Claim]) -> Vec<Amendment> {
    let mut found: Vec<Amendment> = Vec::new();
    for amendment in attempt.iter().rev().flat_map(|claim| &claim.amendments) {
        if !found.contains(amendment) {
            found.push(amendment.clone());
        }
    }
    found
}

/// Adds up how long each holder had the session. The newest record of each fence says until when; of what waited to be
/// merged, the one that handed it over.
fn minutes_held(attempt: &[Claim], now: Timestamp) -> u64 {
    let mut held_ms = 0;
    for records in attempt.chunk_by(|one, other| one.fence == other.fence) {
        let handed_over = records.iter().find(|claim| claim.waits());
        let Some(claim) = handed_over.or(records.first()) else { continue };
        let is_going_on = claim.phase == Phase::Active && Some(claim) == attempt.first();
        let until = if is_going_on { now } else { claim.renewed_at };
        held_ms += until.as_millis().saturating_sub(claim.claimed_at.as_millis()).max(0);
    }
    u64::try_from(held_ms / 60_000).unwrap_or_default()
}

/// Returns the words of every box that is ticked. Entries of the worklog have a time before it.
fn ticked(text: &str) -> BTreeSet<String> {
    let boxes: Vec<String> = text
        .lines()
        .map(|line| match line.strip_prefix("- ").and_then(|line| line.split_once(' ')) {
            Some((time, rest)) if Timestamp::parse_rfc3339(time).is_some() => format!("- {rest}"),
            _ => line.to_owned(),
        })
        .collect();
    let found = criteria(&boxes.join("\n")).into_iter();
    found.filter(|criterion| criterion.done).map(|criterion| words(&criterion.text)).collect()
}

/// Letters and digits alone: how a line is set does not count.
fn words(text: &str) -> String {
    let lower = text.to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Compares the criteria that an attempt began with to those of now.
fn compared(first: &[Criterion], now: &[Criterion], ticked: &BTreeSet<String>) -> Vec<DriftCriterion> {
    let has = |list: &[Criterion], text: &str| list.iter().any(|known| words(&known.text) == words(text));
    let told = |criterion: &Criterion, change| DriftCriterion {
        text: criterion.text.clone(),
        done: criterion.done || ticked.contains(&words(&criterion.text)),
        change,
    };
    let current =
        now.iter().map(|criterion| told(criterion, (!has(first, &criterion.text)).then_some(Change::Added)));
    let removed = first.iter().filter(|criterion| !has(now, &criterion.text));
    current.chain(removed.map(|criterion| told(criterion, Some(Change::Removed)))).collect()
}

/// Returns a glob of a plan as git takes it; `None` for what leads out of the repository.
fn pathspec(glob: &str) -> Option<String> {
    let glob = glob.trim().trim_start_matches("./");
    let leads_out = glob.starts_with('/') || glob.split('/').any(|part| part == "..");
    (!glob.is_empty() && !leads_out && !glob.contains('\0')).then(|| format!(":(top,glob){glob}"))
}

/// Whether a text names a file, or a directory (with a slash at its end) that it is in.
fn is_named(path: &str, text: &str) -> bool {
    let is_edge = |c: char| c.is_whitespace() || "`'\"()[]<>,;:*".contains(c);
    text.split(is_edge).any(|word| {
        let word = word.trim_start_matches("./").trim_end_matches(['.', '!', '?']);
        word == path || (word.ends_with('/') && word.len() > 1 && path.starts_with(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_files_and_directories() {
        let text = "Change `src/login.rs`, (docs/) and ./readme.md.";
        for (path, named) in [
            ("src/login.rs", true),
            ("docs/a/b.md", true),
            ("readme.md", true),
            ("src/login.r", false),
            ("login.rs", false),
            ("doc", false),
        ] {
            assert_eq!(is_named(path, text), named, "{path}");
        }
    }

    #[test]
    fn globs_that_lead_out_are_left_alone() {
        for glob in ["", "/etc", "../x", "a/../../b", " "] {
            assert_eq!(pathspec(glob), None, "{glob}");
        }
        assert_eq!(pathspec("./src/**").as_deref(), Some(":(top,glob)src/**"));
    }

    #[test]
    fn boxes_are_ticked_in_lists_and_in_the_worklog() {
        let found = ticked("- [x] It  *works*.\n- [ ] not\n- 2026-01-02T03:04:05.000Z [X] logged\n* text\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["it works", "logged"]);
    }

    #[test]
    fn criteria_that_came_and_went_are_told() {
        let list = |text: &str| criteria(text);
        let told = compared(&list("- [ ] a\n- [ ] b"), &list("- [ ] b!\n- [x] c"), &ticked("- [x] a"));
        let told: Vec<_> = told.iter().map(|one| (one.text.as_str(), one.done, one.change)).collect();
        assert_eq!(
            told,
            [("b!", false, None), ("c", true, Some(Change::Added)), ("a", true, Some(Change::Removed))]
        );
    }
}
