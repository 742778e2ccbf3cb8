//! Plans before anybody works by them.

use std::collections::BTreeSet;

use crate::{
    Brief, Draft, Error, Kind, Move, Moved, Oid, PLAN_FILE, Phase, Record, Result, Seen, Slug, State, Verb,
    Work,
    brief::{self, plain_ended},
    projecting::{Step, message},
    repo::random_hex,
    templates,
    tree::Edit,
};

/// As many may have the same name on one day.
const NUMBER_MAX: u32 = 1_000;

impl Work {
    /// Writes down what somebody wants done; returns what it is called.
    ///
    /// With `text` the plan is that; else the template says what it looks like.
    pub fn draft(&self, slug: Option<&Slug>, draft: &Draft, text: Option<&str>) -> Result<Slug> {
        if draft.title.trim().is_empty() && slug.is_none() {
            return Err(Error::usage("a title is missing").next("sess work new \"<title>\""));
        }
        if let Some(text) = text {
            Brief::parse(text).map_err(|error| error.next("sess work new --from <file>"))?;
        } else if let Some(what) = draft.context.as_deref().map(str::trim).and_then(brief::breaking) {
            return Err(Error::usage(format!(
                "the context has {what}, and is one section of the plan: a file can have all of them"
            ))
            .next("sess work new \"<title>\" --from <file>"));
        }
        let day = self.day()?;
        let wanted = slug.cloned().unwrap_or_else(|| Slug::from_title(&draft.title, day));
        let mut made = wanted.clone();
        self.on_base(|seen| {
            made = match slug {
                Some(slug) if is_taken(slug, seen) => {
                    return Err(Error::wrong_state(format!("there is a work session {slug} already"))
                        .next(format!("sess work show {slug}")));
                }
                Some(slug) => slug.clone(),
                None => free(&wanted, seen)?,
            };
            let text = match text {
                Some(text) => plain_ended(text),
                None => templates::session(
                    &made,
                    draft,
                    self.template(&seen.tree, templates::SESSION)?.as_deref(),
                )?,
            };
            Brief::parse(&text)
                .and_then(|brief| brief.check_fits(&made))
                .map_err(|error| error.next(format!("sess work new --slug {made} --from <file>")))?;
            let path = format!("{}/{PLAN_FILE}", State::Drafting.dir_of(&made));
            let edits = vec![Edit::Put(path, self.repo.file(&text)?)];
            Ok(Some(Step { message: message(&made, "Draft session", &self.by(), None), edits }))
        })?;
        Ok(made)
    }

    /// Returns the plan of a session that can be changed, for an editor; one that has none gets one to begin with.
    pub fn editable(&self, slug: &Slug) -> Result<(Option<Oid>, String)> {
        let seen = self.see()?;
        self.check(Verb::Edit, slug, &seen)?;
        let entry = seen.tree.entries.get(slug);
        if entry.is_some_and(|entry| entry.files.contains_key(PLAN_FILE)) {
            return self.plan_in(&seen, slug).map(|(oid, text)| (Some(oid), text));
        }
        let draft = Draft { title: slug.topic().replace('-', " "), ..Draft::default() };
        let own = self.template(&seen.tree, templates::SESSION)?;
        Ok((None, templates::session(slug, &draft, own.as_deref())?))
    }

    pub(crate) fn plan_in(&self, seen: &Seen, slug: &Slug) -> Result<(Oid, String)> {
        let entry = seen.tree.entries.get(slug);
        let file = entry.and_then(|entry| entry.files.get(PLAN_FILE)).ok_or_else(|| {
            Error::wrong_state(format!("{slug} has no SESSION.md"))
                .next(format!("sess work edit {slug} --file <file>"))
        })?;
        Ok((file.oid.clone(), self.repo.text_of(&file.oid)?))
    }

    /// Puts a new plan into the place of one, unless somebody changed that meanwhile.
    pub fn edit(&self, slug: &Slug, before: Option<&Oid>, text: &str) -> Result<()> {
        let text = plain_ended(text);
        let brief = Brief::of(slug, &text)?;
        brief.check_fits(slug)?;
        self.on_base(|seen| {
            self.check(Verb::Edit, slug, seen)?;
            let entry = seen.tree.entries.get(slug);
            // What anybody can claim stays as `ready` let it through.
            if entry.is_some_and(|entry| entry.state == State::Planned) {
                brief.check_ready(slug).map_err(|error| {
                    let message = format!("{}; as a draft it can be anything", error.message());
                    Error::new(error.kind, message).next(format!("sess work unready {slug}"))
                })?;
            }
            let state = entry.map_or(State::Drafting, |entry| entry.state);
            let now = entry.and_then(|entry| entry.files.get(PLAN_FILE)).map(|file| &file.oid);
            if before.is_some() && before != now {
                return Err(Error::new(
                    Kind::Conflict,
                    format!("somebody changed the plan of {slug} meanwhile"),
                )
                .next(format!("sess work edit {slug}")));
            }
            let file = self.repo.file(&text)?;
            if now == Some(&file.oid) {
                return Ok(None);
            }
            let edits = vec![Edit::Put(format!("{}/{PLAN_FILE}", state.dir_of(slug)), file)];
            Ok(Some(Step { message: message(slug, "Edit session", &self.by(), None), edits }))
        })?;
        Ok(())
    }

    /// Makes a draft one that can be claimed.
    pub fn ready(&self, slug: &Slug) -> Result<()> {
        self.on_base(|seen| {
            self.check(Verb::Ready, slug, seen)?;
            Brief::of(slug, &self.plan_in(seen, slug)?.1)?.check_ready(slug)?;
            let message = message(slug, "Session ready", &self.by(), None);
            Ok(Some(Step { message, edits: seen.tree.moved(slug, State::Planned) }))
        })?;
        Ok(())
    }

    /// Takes a plan back to be worked out.
    pub fn unready(&self, slug: &Slug) -> Result<()> {
        self.on_base(|seen| {
            self.check(Verb::Unready, slug, seen)?;
            let message = message(slug, "Session back to drafting", &self.by(), None);
            Ok(Some(Step { message, edits: seen.tree.moved(slug, State::Drafting) }))
        })?;
        Ok(())
    }

    /// Plans an abandoned session anew. What the attempt before left is kept beside the plan.
    pub fn retry(&self, slug: &Slug) -> Result<u32> {
        // What the attempt before wrote down is taken from its branch, and only then that goes.
        let seen = self.roll_forward()?;
        self.check(Verb::Retry, slug, &seen)?;
        if let Some(path) = self.workspace(slug).filter(|_| self.repo.remote.is_none()) {
            self.check_switch(slug, &path, &seen.view.base)?;
        }
        // The old branch is not what the new attempt begins with: it goes before anybody can claim.
        self.set_branch_aside(slug, &seen)?;
        let mut attempt = 0;
        self.on_base_from(self.see()?, |seen| {
            self.check(Verb::Retry, slug, seen)?;
            let Some(entry) = seen.tree.entries.get(slug) else { return Ok(None) };
            let before = seen.record(slug).map_or(1, |record| record.claim.attempt);
            attempt = before.saturating_add(1);
            let (old, new) = (State::Abandoned.dir_of(slug), State::Planned.dir_of(slug));
            let mut edits = Vec::new();
            for (name, file) in &entry.files {
                edits.push(Edit::Remove(format!("{old}/{name}")));
                let is_kept_in_place = name == PLAN_FILE || name.starts_with("attempts/");
                let place = if is_kept_in_place {
                    format!("{new}/{name}")
                } else {
                    format!("{new}/attempts/{before}/{name}")
                };
                edits.push(Edit::Put(place, file.clone()));
            }
            // The abandoned claim says where the directory belongs, so that the two move together.
            let planned = seen.record(slug).map(|record| self.planned_anew(record)).transpose()?;
            let message = message(slug, &format!("Retry session, attempt {attempt}"), &self.by(), None);
            Ok(Some((Step { message, edits }, planned)))
        })?;
        Ok(attempt)
    }

    /// Returns the move of an abandoned session's claim to one that nobody has, in the next attempt.
    fn planned_anew(&self, record: &Record) -> Result<Move> {
        let mut claim = record.claim.clone();
        (claim.claimed_at, claim.renewed_at) = (self.now(), self.now());
        claim.phase = Phase::Released;
        claim.attempt = claim.attempt.saturating_add(1);
        claim.amendments.clear();
        claim.landed = None;
        claim.reason = Some(format!("planned anew by {}", self.by()));
        claim.nonce = random_hex();
        let oid = self.repo.write_claim(&claim, &[&record.oid])?;
        let name = self.repo.claim_ref(&claim.slug);
        Ok(Move { name, from: Some(record.oid.clone()), to: Some(oid) })
    }

    /// Keeps a session's branch, as it was seen, where nobody goes on with it.
    fn set_branch_aside(&self, slug: &Slug, seen: &Seen) -> Result<()> {
        let name = slug.branch_ref();
        if let Some(tip) = self.repo.commit(&name)? {
            self.keep_for_rescue(slug, &tip)?;
            match self.workspace(slug) {
                None => self.repo.remove_branch(slug, &tip)?,
                // Without a remote this branch is the one that a claim goes on with.
                Some(path) if self.repo.remote.is_none() => self.switch(slug, &path, &seen.view.base)?,
                Some(_) => {}
            }
        }
        let shared = seen.view.branches.get(slug).filter(|_| self.repo.remote.is_some()).cloned();
        let Some(shared) = shared else { return Ok(()) };
        let mut moves = [
            Move { name: self.repo.shared_rescue_ref(slug, &shared), from: None, to: Some(shared.clone()) },
            Move { name, from: Some(shared.clone()), to: None },
        ];
        let mut moved = self.repo.advance(&moves)?;
        if let Moved::Rejected(_) = moved {
            // Where no branch can be removed it goes on, with what the base has and nothing of the attempt before.
            let base = &seen.view.base;
            let text = message(slug, "Begin anew", &self.by(), seen.record(slug));
            let anew = self.repo.commit_tree(format!("{base}^{{tree}}"), &[base, &shared], &text)?;
            moves[1].to = Some(anew);
            moved = self.repo.advance(&moves)?;
        }
        match moved {
            Moved::Done => Ok(()),
            Moved::Overtaken { .. } => Err(Error::failed(format!(
                "the branch of the attempt before moved meanwhile, and is still in the way of {slug}"
            ))
            .next(format!("sess work retry {slug}"))),
            Moved::Rejected(words) => Err(self.repo.denied(&words).unwrap_or_else(|| {
                let remote = self.repo.remote.as_deref().unwrap_or_default();
                Error::new(
                    Kind::Rejected,
                    format!("the branch of the attempt before is still in the way of {slug}, and {remote} does not let go of it: {words}; whoever keeps {remote} has to allow that"),
                )
                .next(format!("git push {remote} --delete {}", slug.branch()))
            })),
        }
    }

    pub(crate) fn day(&self) -> Result<jiff::civil::Date> {
        let now = jiff::Timestamp::from_millisecond(self.now().as_millis())
            .map_err(|error| Error::failed(format!("the clock is outside the calendar: {error}")))?;
        Ok(now.to_zoned(jiff::tz::TimeZone::UTC).date())
    }
}

pub(crate) fn is_taken(slug: &Slug, seen: &Seen) -> bool {
    seen.tree.entries.contains_key(slug) || seen.view.claims.contains_key(slug)
}

/// Returns the first name of its kind that nobody has.
pub(crate) fn free(wanted: &Slug, seen: &Seen) -> Result<Slug> {
    free_beside(wanted, seen, &BTreeSet::new())
}

/// As [`free`], and that is none of these.
pub(crate) fn free_beside(wanted: &Slug, seen: &Seen, others: &BTreeSet<Slug>) -> Result<Slug> {
    let is_free = |slug: &Slug| !is_taken(slug, seen) && !others.contains(slug);
    (1..NUMBER_MAX).map(|n| wanted.numbered(n)).find(is_free).ok_or_else(|| {
        Error::wrong_state(format!("{wanted} is taken, and so is every number after it"))
            .next("sess work new --slug …")
    })
}
