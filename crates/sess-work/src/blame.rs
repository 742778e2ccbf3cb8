//! From a line of code to the work session behind it.

use serde::Serialize;

use crate::{Brief, Error, Oid, PLAN_FILE, Result, Seen, Slug, State, Work};

/// Where a line comes from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blame {
    pub file: String,
    pub line: u64,
    /// What the line says.
    pub text: String,
    pub commit: Oid,
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
    /// Finds the work session that wrote a line, as the last commit of the caller's checkout has it.
    pub fn blame(&self, file: &str, line: u64) -> Result<Blame> {
        if line == 0 || file.is_empty() {
            return Err(Error::usage("a line is meant by its file and number, from 1")
                .next("sess work blame <file>:<line>"));
        }
        let range = format!("{line},{line}");
        // Textconv would run what the repository's configuration says.
        let asked = ["blame", "--porcelain", "--no-textconv", "-L", &range, "HEAD", "--", file];
        let ended = self.repo.here.run(asked)?;
        if !ended.is_ok() {
            let words = crate::git::words_of(&ended.stderr);
            return Err(Error::wrong_state(format!("{file}:{line} cannot be found: {words}"))
                .next(format!("git blame -- {}", crate::quoted(file))));
        }
        let told = ended.text();
        let value =
            |name: &str| told.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        let commit: Oid = told.split(' ').next().unwrap_or_default().parse().map_err(Error::failed)?;
        let slug = self.slug_of(&commit)?;
        let mut blame = Blame {
            file: file.to_owned(),
            line,
            text: value("\t"),
            summary: value("summary "),
            author: value("author "),
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

    /// Returns the session that a commit says it belongs to: by its trailer, else by how its message begins.
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
        Ok(lines.chain(prefix).find_map(|slug| slug.trim().parse().ok()))
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
