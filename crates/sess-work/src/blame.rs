//! From a line of code to the work session behind it.

use std::path::Path;

use serde::Serialize;

use crate::{Brief, Error, Oid, PLAN_FILE, Result, Seen, Slug, State, Work, state::SESSIONS_DIR};

/// Where a line comes from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blame {
    pub file: String,
    pub line: u64,
    /// What the line says.
    pub text: String,
    /// The commit that the line came with; none while it is not committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Oid>,
    /// The first line of the commit's message.
    pub summary: String,
    pub author: String,
    /// The work session that made it; none when a person did without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slug: Option<Slug>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The title of its plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where its plan is, from the top of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    pub agents: Vec<String>,
    /// The agents' sessions that worked on it, newest first.
    pub sessions: Vec<String>,
}

impl Work {
    /// Finds the work session that wrote a line, as the file has it in the caller's checkout.
    ///
    /// A line that is not committed is of the session whose workspace this is. One that may be older than what a
    /// shallow clone has is nobody's.
    pub fn blame(&self, file: &str, line: u64) -> Result<Blame> {
        if line == 0 || file.is_empty() {
            return Err(Error::usage("a line is meant by its file and number, from 1")
                .next("sess work blame <file>:<line>"));
        }
        let range = format!("{line},{line}");
        // Textconv would run what the repository's configuration says.
        let asked = ["blame", "--porcelain", "--no-textconv", "-L", &range, "--", file];
        let ended = self.repo.here.run(asked)?;
        if !ended.is_ok() {
            let words = crate::git::words_of(&ended.stderr);
            let name = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
            let next = match words.contains("has only") {
                true => format!("git blame -- {}", crate::quoted(file)),
                false => format!("git ls-files --cached --others -- {}", crate::quoted(format!("*{name}"))),
            };
            return Err(Error::wrong_state(format!("{file}:{line} cannot be found: {words}")).next(next));
        }
        let told = ended.text();
        let value =
            |name: &str| told.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        let commit: Oid = told.split(' ').next().unwrap_or_default().parse().map_err(Error::failed)?;
        let commit = Some(commit).filter(|commit| commit.as_str().bytes().any(|byte| byte != b'0'));
        if let Some(commit) = commit.as_ref()
            && self.is_cut_off(commit)?
        {
            return Err(Error::wrong_state(format!(
                "{file}:{line} may be older than what is here: the history of this clone ends at {}",
                commit.short()
            ))
            .next("git fetch --unshallow"));
        }
        let slug = match &commit {
            Some(commit) => self.slug_of(commit)?,
            None => self.repo.slug_here()?.or_else(|| self.made_for_here()),
        };
        let mut blame = Blame {
            file: file.to_owned(),
            line,
            text: value("\t"),
            summary: if commit.is_some() { value("summary ") } else { "not committed yet".to_owned() },
            author: if commit.is_some() { value("author ") } else { self.user.name.clone() },
            commit,
            slug: slug.clone(),
            state: None,
            title: None,
            plan: None,
            agents: Vec::new(),
            sessions: Vec::new(),
        };
        if let Some(slug) = slug {
            self.tell_session(&mut blame, &slug, &self.see_or_recall()?)?;
        }
        Ok(blame)
    }

    /// Whether a commit has parents that a shallow clone is without: git blames it for every line of theirs.
    fn is_cut_off(&self, commit: &Oid) -> Result<bool> {
        let object = self.repo.here.text(["cat-file", "commit", commit.as_str()])?;
        let has_parents =
            object.lines().take_while(|line| !line.is_empty()).any(|line| line.starts_with("parent "));
        if !has_parents {
            return Ok(false);
        }
        let known = self.repo.here.text(["rev-list", "--parents", "--max-count=1", commit.as_str()])?;
        Ok(known.split_whitespace().count() == 1)
    }

    /// Returns the session that a commit says it belongs to: by its trailer, else by how its message begins; else the
    /// one that it completes, which whoever merges a pull request need not say.
    fn slug_of(&self, commit: &Oid) -> Result<Option<Slug>> {
        let told = self.repo.here.text([
            "rev-list",
            "--no-commit-header",
            "--max-count=1",
            "--format=%s%n%(trailers:key=Session,valueonly)",
            commit.as_str(),
        ])?;
        let mut lines = told.lines();
        let subject = lines.next().unwrap_or_default();
        let prefix = subject.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(slug, _)| slug);
        match lines.chain(prefix).find_map(|slug| slug.trim().parse().ok()) {
            Some(slug) => Ok(Some(slug)),
            None => self.completed_by(commit),
        }
    }

    /// Returns the session whose plan came with a commit as a completed one; none when there are several.
    fn completed_by(&self, commit: &Oid) -> Result<Option<Slug>> {
        let dir = format!("{SESSIONS_DIR}/{}/", State::Completed);
        let asked = [
            "diff-tree",
            "-r",
            "-z",
            "--root",
            "--no-commit-id",
            "--name-only",
            "--no-renames",
            "--diff-filter=A",
            commit.as_str(),
            "--",
        ];
        let told = self.repo.git.text(asked.into_iter().chain([dir.as_str()]))?;
        let plans = told.split('\0').filter_map(|path| {
            path.strip_prefix(&dir)?.strip_suffix(PLAN_FILE)?.strip_suffix('/')?.parse().ok()
        });
        let slugs: Vec<Slug> = plans.collect();
        Ok(<[Slug; 1]>::try_from(slugs).ok().map(|[slug]| slug))
    }

    fn tell_session(&self, blame: &mut Blame, slug: &Slug, seen: &Seen) -> Result<()> {
        let chain = self.chain(slug, seen)?;
        blame.state = seen.standing(slug).state();
        // A person may write any name into a message.
        if blame.state.is_none() && chain.is_empty() {
            return Ok(());
        }
        let brief = Brief::parse(&self.plan_now(slug, seen, &chain)?).unwrap_or_default();
        blame.title = Some(brief.title).filter(|title| !title.is_empty());
        let entry = seen.tree.entries.get(slug);
        blame.plan = entry.map(|entry| format!("{}/{PLAN_FILE}", entry.state.dir_of(slug)));
        for claim in chain {
            for (found, list) in
                [(claim.agent, &mut blame.agents), (claim.owner.session, &mut blame.sessions)]
            {
                if let Some(found) = found.filter(|found| !list.contains(found)) {
                    list.push(found);
                }
            }
        }
        Ok(())
    }
}
