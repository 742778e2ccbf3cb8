//! The knowledge base: what was learned and agreed upon, as the base branch has it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::{
    Brief, Error, Note, Oid, PLAN_FILE, Result, Seen, Slug, State, Work, WorkKind, drafting,
    projecting::{Step, message},
    refs::read_all,
    state::KNOWLEDGE_DIR,
    templates,
    tree::{Edit, PLAIN},
};

/// A text of the knowledge base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KbEntry {
    /// From the directory of the knowledge base.
    pub path: String,
    pub title: String,
    pub bytes: u64,
}

impl Work {
    /// Lists the knowledge base, and what sessions left there to be merged.
    pub fn kb_list(&self) -> Result<Vec<KbEntry>> {
        let texts = self.kb_texts(&self.see_or_recall()?)?;
        Ok(texts.into_iter().map(|(path, text)| entry(path, &text)).collect())
    }

    /// Returns a text of the knowledge base, by its path in there.
    pub fn kb_show(&self, path: &str) -> Result<String> {
        let given = path.strip_prefix(KNOWLEDGE_DIR).and_then(|rest| rest.strip_prefix('/')).unwrap_or(path);
        let is_inside = !given.is_empty() && given.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !is_inside {
            return Err(
                Error::usage(format!("{path:?} is no path in {KNOWLEDGE_DIR}")).next("sess work kb list")
            );
        }
        // Only what the list knows is read: no link, no name that means something to git.
        let files = self.kb_files(&self.see_or_recall()?)?;
        match files.into_iter().find(|(known, _)| known == given) {
            Some((_, oid)) => self.repo.text_of(&oid),
            None => Err(Error::wrong_state(format!("there is no {given:?} in the knowledge base"))
                .next("sess work kb list")),
        }
    }

    /// Makes a session that merges every learning that none merges yet.
    pub fn kb_merge(&self, topic: &str) -> Result<Slug> {
        if topic.trim().is_empty() {
            return Err(Error::usage("a topic is missing").next("sess work kb merge <topic>"));
        }
        let wanted = Slug::kb_merge(topic, self.day()?);
        let mut made = wanted.clone();
        self.on_base(|seen| {
            let sources = self.unmerged(seen)?;
            let Some(first) = sources.first() else {
                return Err(Error::wrong_state("everything that was learned is merged, or about to be")
                    .next("sess work kb list"));
            };
            made = drafting::free_beside(&wanted, seen, &self.offered_beside(None, seen)?)?;
            let own = self.template(&seen.tree, templates::KB_MERGE)?;
            let mut text = templates::kb_merge(&made, first, self.now(), own.as_deref())?;
            text = format!("{}\n\n## Sources\n\n", text.trim_end());
            for source in &sources {
                text += &format!("- `{}`\n", Note::Learning.path(source));
            }
            let edits = self.kb_session(&made, &text, &format!("made by {}", self.by()))?.to_vec();
            Ok(Some(Step { message: message(&made, "Draft session", &self.by(), None), edits }))
        })?;
        Ok(made)
    }

    /// Returns the files of a new session that merges what was learned, whose worklog says how it came to be.
    pub(crate) fn kb_session(&self, kb: &Slug, plan: &str, how: &str) -> Result<[Edit; 2]> {
        let state = if self.settings.kb_drafts { State::Drafting } else { State::Planned };
        let dir = state.dir_of(kb);
        let worklog = format!("{}- {} {how}\n", Note::Log.heading(kb), self.now());
        Ok([
            Edit::Put(format!("{dir}/{PLAN_FILE}"), self.repo.file(plan)?),
            Edit::Put(format!("{dir}/{}", Note::Log.file()), self.repo.file(&worklog)?),
        ])
    }

    /// Returns the sessions that come to the base with what waits to be merged, but for the work of one.
    pub(crate) fn offered_beside(&self, slug: Option<&Slug>, seen: &Seen) -> Result<BTreeSet<Slug>> {
        let mut slugs = BTreeSet::new();
        for (other, record) in &seen.view.claims {
            let waiting =
                record.claim.landed.as_ref().filter(|_| record.claim.waits() && slug != Some(other));
            let Some(landed) = waiting else { continue };
            // What was not pushed is nowhere but with its owner.
            if self.repo.commit(landed.commit.as_str())?.is_some() {
                slugs.extend(self.repo.tree(&landed.commit)?.entries.into_keys());
            }
        }
        Ok(slugs)
    }

    /// Returns the session that comes to the base with the work of another one that waits to be merged, and merges what
    /// that learned.
    pub(crate) fn offered_with(&self, slug: &Slug, seen: &Seen) -> Result<Option<Slug>> {
        let waiting = seen.record(slug).filter(|record| record.claim.waits());
        let Some(landed) = waiting.and_then(|record| record.claim.landed.as_ref()) else { return Ok(None) };
        if self.repo.commit(landed.commit.as_str())?.is_none() {
            return Ok(None);
        }
        let before = self.repo.tree(&landed.base)?.entries;
        let mut new = self.repo.tree(&landed.commit)?.entries.into_keys();
        Ok(new.find(|new| new.is_kb() && new != slug && !before.contains_key(new)))
    }

    /// Returns the sessions with learnings that no session merges or has merged.
    fn unmerged(&self, seen: &Seen) -> Result<Vec<Slug>> {
        let mut sources: Vec<Slug> =
            self.kb_files(seen)?.iter().filter_map(|(path, _)| learner(path)).collect();
        let merging = seen.tree.entries.values().filter(|entry| entry.state != State::Abandoned);
        let plans = merging.filter_map(|entry| entry.files.get(PLAN_FILE)).map(|file| file.oid.to_string());
        for plan in read_all(&self.repo.git, &plans.collect::<Vec<_>>())?.into_iter().flatten() {
            let text = String::from_utf8_lossy(&plan);
            let Ok(brief) = Brief::parse(&text) else { continue };
            if brief.kind == WorkKind::KbMerge {
                sources.retain(|source| {
                    brief.parent.as_ref() != Some(source)
                        && !brief.body.contains(&Note::Learning.path(source))
                });
            }
        }
        Ok(sources)
    }

    /// Returns the texts of the knowledge base, by their paths in there.
    pub(crate) fn kb_texts(&self, seen: &Seen) -> Result<Vec<(String, String)>> {
        let files = self.kb_files(seen)?;
        let names: Vec<String> = files.iter().map(|(_, oid)| oid.to_string()).collect();
        let texts = read_all(&self.repo.git, &names)?.into_iter();
        let texts = texts.map(|bytes| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned());
        Ok(files.into_iter().map(|(path, _)| path).zip(texts).collect())
    }

    fn kb_files(&self, seen: &Seen) -> Result<Vec<(String, Oid)>> {
        let files = self.repo.files_of(seen.view.base.as_str(), KNOWLEDGE_DIR)?.into_iter();
        let texts = files.filter(|(path, file)| file.mode == PLAIN && path.ends_with(".md"));
        let inner = |path: &str| Some(path.strip_prefix(KNOWLEDGE_DIR)?.strip_prefix('/')?.to_owned());
        Ok(texts.filter_map(|(path, file)| Some((inner(&path)?, file.oid))).collect())
    }
}

/// Returns the session whose learnings are in a file of the knowledge base.
pub(crate) fn learner(path: &str) -> Option<Slug> {
    let dir = path.strip_prefix("sessions/")?.strip_suffix(Note::Learning.file())?;
    dir.strip_suffix('/')?.parse().ok()
}

fn entry(path: String, text: &str) -> KbEntry {
    let title = Brief::parse(text).map(|brief| brief.title).unwrap_or_default();
    let title = if title.is_empty() { path.trim_end_matches(".md").to_owned() } else { title };
    KbEntry { title, bytes: u64::try_from(text.len()).unwrap_or(u64::MAX), path }
}
