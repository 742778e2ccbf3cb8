//! One caller in one repository: what every verb begins with.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::Deserialize;
use sess_core::Timestamp;

use crate::{
    Claim, Error, Kind, Oid, Owner, PLAN_FILE, Record, Refusal, Repo, Result, Slug, Standing, State, Tree,
    User, Verb, View, may, standing, standing::is_contradicted, state::SESSIONS_DIR,
};

/// What the user's own configuration says about work sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub lease: Duration,
    pub land: Land,
    /// Where workspaces are, unless in `.sessions` of the checkout.
    pub workspaces: Option<PathBuf>,
    /// The commands behind the names of gates. A repository names gates, and never says what they run.
    pub gates: BTreeMap<String, String>,
    /// Whether what was learned waits for a person's look before it is merged.
    pub kb_drafts: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30 * 60),
            land: Land::Push,
            workspaces: None,
            gates: BTreeMap::new(),
            kb_drafts: false,
        }
    }
}

/// How work gets to the base branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Land {
    #[default]
    Push,
    /// Somebody merges the session's branch, because nobody may push to the base.
    Pr,
    /// Its owner brings it there in some other way: what is to land is a commit in this clone. The branch is shared all
    /// the same, so that others can go on with it.
    None,
}

/// Who is calling.
#[derive(Clone, Debug)]
pub struct Who {
    /// The agent that works, by its name.
    pub agent: Option<String>,
    /// The agent's own session, when that is known.
    pub session: Option<String>,
    pub host: String,
    pub pid: u32,
}

/// A caller in a repository.
#[derive(Clone, Debug)]
pub struct Work {
    pub(crate) repo: Repo,
    pub(crate) settings: Settings,
    pub(crate) who: Who,
    pub(crate) user: User,
    /// Why that is nobody.
    unknown: Option<Error>,
    pub(crate) owner: Owner,
    now: fn() -> Timestamp,
    /// The remote could not be asked, and what it said last was made do with.
    has_recalled: Arc<AtomicBool>,
}

/// Everything that is known about all sessions at one time.
#[derive(Clone, Debug)]
pub struct Seen {
    pub view: View,
    pub tree: Tree,
}

impl Seen {
    pub fn standing(&self, slug: &Slug) -> Standing {
        standing(self.tree.state(slug), self.record(slug).map(|record| &record.claim))
    }

    pub fn record(&self, slug: &Slug) -> Option<&Record> {
        self.view.claims.get(slug)
    }

    /// Returns the claim that a session's directory has to follow, and the state that it leads to.
    pub(crate) fn behind(&self, slug: &Slug) -> Option<(Box<Claim>, State)> {
        match self.standing(slug) {
            // What a claim says is done, but is not on the base, has to be landed again by a person.
            Standing::Pending { to: State::Completed, .. } => None,
            Standing::Pending { claim, to } => Some((claim, to)),
            Standing::Unknown
            | Standing::Rests(_)
            | Standing::Held(_)
            | Standing::Merged(_)
            | Standing::Orphaned
            | Standing::Lost(_) => None,
        }
    }

    /// Whether a claim says something else than the directory, and is not just ahead of it.
    pub(crate) fn is_contradicted(&self, slug: &Slug) -> bool {
        let plan = self.tree.entries.get(slug).and_then(|entry| entry.files.get(PLAN_FILE));
        self.record(slug).is_some_and(|record| {
            is_contradicted(self.tree.state(slug), plan.map(|plan| &plan.oid), &record.claim)
        })
    }

    /// Whether a claim may have come too late: nobody has worked by it, and the directory contradicts it.
    pub(crate) fn is_doubtful(&self, slug: &Slug) -> bool {
        self.is_contradicted(slug) && self.record(slug).is_some_and(|record| record.claim.is_untouched())
    }

    /// Returns why the ref of a session's claim leads to none.
    pub(crate) fn damage(&self, slug: &Slug) -> Option<&str> {
        let damaged = self.view.damaged.iter().find(|(name, _)| name == slug.as_str());
        damaged.map(|(_, reason)| reason.as_str())
    }

    /// Returns the last commit of a session's branch that others see; of what waits to be merged, the last of those
    /// that it was made of, which its claim keeps also when the branch is gone.
    pub(crate) fn shared_tip(&self, slug: &Slug) -> Option<&Oid> {
        let shared = self.view.branches.get(slug);
        let waiting = self.record(slug).filter(|record| record.claim.waits());
        let landed = waiting.and_then(|record| record.claim.landed.as_ref());
        match (shared, landed) {
            (Some(shared), Some(landed)) if landed.commit != *shared => Some(shared),
            (shared, landed) => landed.map(|landed| &landed.tip).or(shared),
        }
    }

    /// Returns the last commit that others see of what a session wrote down: what waits to be merged shows that it is
    /// completed, whoever has committed there since, and is told by what it was made of.
    pub(crate) fn written_tip(&self, slug: &Slug) -> Option<&Oid> {
        let waiting = self.record(slug).filter(|record| record.claim.waits());
        let made_of = waiting.and_then(|record| record.claim.landed.as_ref()).map(|landed| &landed.tip);
        made_of.or_else(|| self.view.branches.get(slug))
    }

    /// Returns every session, whether it has a directory or only a claim.
    pub fn slugs(&self) -> Vec<Slug> {
        let mut slugs: Vec<Slug> = self.tree.entries.keys().chain(self.view.claims.keys()).cloned().collect();
        slugs.sort();
        slugs.dedup();
        slugs
    }
}

impl Work {
    pub fn new(repo: Repo, settings: Settings, who: Who, now: fn() -> Timestamp) -> Result<Self> {
        // Who only reads need not be anybody.
        let (user, unknown) = match user(&repo) {
            Err(error) if error.kind == Kind::WrongState => {
                (User { name: String::new(), email: String::new() }, Some(error))
            }
            user => (user?, None),
        };
        repo.keep_main()?;
        let owner = Owner { clone: repo.clone_id()?, session: who.session.clone() };
        Ok(Self { repo, settings, who, user, unknown, owner, now, has_recalled: Arc::default() })
    }

    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    pub fn user(&self) -> &User {
        &self.user
    }

    /// Fails unless git says who the user is.
    pub(crate) fn check_known(&self) -> Result<()> {
        self.unknown.clone().map_or(Ok(()), Err)
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Looks at what is there now.
    pub fn see(&self) -> Result<Seen> {
        self.seen(self.repo.look()?)
    }

    /// Looks, and makes do with what was seen last when the remote cannot be asked.
    pub fn see_or_recall(&self) -> Result<Seen> {
        let view = self.repo.look_or_recall()?;
        self.has_recalled.fetch_or(view.is_old, Ordering::Relaxed);
        self.seen(view)
    }

    /// Whether something that was told is old, because the remote cannot be reached.
    pub fn has_recalled(&self) -> bool {
        self.has_recalled.load(Ordering::Relaxed)
    }

    fn seen(&self, view: View) -> Result<Seen> {
        self.follow();
        if !view.is_old {
            self.observe(&view);
        }
        let tree = self.repo.tree(&view.base)?;
        Ok(Seen { view, tree })
    }

    /// Fails unless the caller may do this with a session now.
    pub(crate) fn check(&self, verb: Verb, slug: &Slug, seen: &Seen) -> Result<()> {
        self.check_known()?;
        if let Some(reason) = seen.damage(slug) {
            return Err(Error::wrong_state(format!("the claim of {slug} is damaged: {reason}"))
                .next("sess work doctor --repair"));
        }
        let refusal = match may(verb, slug, &seen.standing(slug), &self.owner, self.now()) {
            Ok(()) => return Ok(()),
            Err(refusal) => refusal,
        };
        Err(match refusal {
            Refusal::Claimed { told, .. }
                if matches!(verb, Verb::Own | Verb::End) && self.had(slug, seen)? =>
            {
                Refusal::Dispossessed(slug.clone(), told).into()
            }
            // An adoption that was stopped has renamed the branch, and no more.
            Refusal::NotFound(_) if self.repo.slug_here()?.as_ref() == Some(slug) => {
                Error::from(refusal).next("sess work adopt")
            }
            refusal => refusal.into(),
        })
    }

    /// Says that a session went to somebody else, and to whom, to whoever had it or stands in its workspace.
    pub(crate) fn lost_to(&self, slug: &Slug, seen: &Seen) -> Result<Option<String>> {
        let standing = seen.standing(slug);
        let Some(claim) = standing.holder().filter(|claim| !claim.owner.includes(&self.owner)) else {
            return Ok(None);
        };
        let is_here = self.fence_of(slug)?.is_some_and(|fence| claim.fence > fence);
        if !is_here && !self.had(slug, seen)? {
            return Ok(None);
        }
        Ok(Some(Refusal::Dispossessed(slug.clone(), claim.told(self.now())).to_string()))
    }

    /// Whether the caller had a session before somebody else took it.
    fn had(&self, slug: &Slug, seen: &Seen) -> Result<bool> {
        Ok(self.chain(slug, seen)?.iter().any(|claim| claim.owner.includes(&self.owner)))
    }

    /// Fails unless a session is the caller's; renews its lease.
    pub fn check_own(&self, slug: &Slug) -> Result<()> {
        self.record_for(Verb::End, slug, &self.see_and_keep(slug)?).map(drop)
    }

    /// Returns the record of a session that the caller has and goes on with.
    pub(crate) fn own_record(&self, slug: &Slug, seen: &Seen) -> Result<Record> {
        self.record_for(Verb::Own, slug, seen)
    }

    /// Returns the record of a session that the caller has, and may do this with.
    pub(crate) fn record_for(&self, verb: Verb, slug: &Slug, seen: &Seen) -> Result<Record> {
        self.check(verb, slug, seen)?;
        let record =
            seen.record(slug).ok_or_else(|| Error::failed(format!("the claim of {slug} is gone")))?;
        // Whoever goes on with one that came too late would make it count.
        if self.late(slug, seen)?.is_some() {
            let base = &self.repo.base;
            return Err(Error::wrong_state(format!(
                "{slug} is yours, and {base} shows something else: the claim may have come too late"
            ))
            .next(format!("sess work claim {slug}")));
        }
        Ok(record.clone())
    }

    /// Returns the session that is meant: the one that was named, else that of the workspace around.
    pub fn meant(&self, given: Option<&str>) -> Result<Slug> {
        if let Some(given) = given {
            return Ok(given.parse::<Slug>()?);
        }
        // In the middle of a rebase no branch says so.
        self.repo.slug_here()?.or_else(|| self.made_for_here()).ok_or_else(|| {
            Error::usage("this is no session's workspace: name the session").next("sess work list")
        })
    }

    /// Returns a template of the repository's own, as its bytes are: whether they are text is seen when it is used.
    pub(crate) fn template(&self, tree: &Tree, name: &str) -> Result<Option<Vec<u8>>> {
        // Names without the ending are accepted, as older trees have them.
        let names = [name, name.strip_suffix(".j2").unwrap_or(name)];
        for name in names {
            if let Some(file) = tree.files.get(&format!("{SESSIONS_DIR}/_templates/{name}")) {
                return self.repo.bytes_of(&file.oid).map(Some);
            }
        }
        Ok(None)
    }
}

/// Says who commits, in the place of the user's configuration.
const IDENTITY: [&str; 4] =
    ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];

/// Returns who git says the user is, apart from the session whose environment this may be.
///
/// The user's configuration says it. The environment is asked where that does not: it may be another session's, or an
/// agent's.
fn user(repo: &Repo) -> Result<User> {
    // Without the setting git would make a name up, before the environment was asked.
    let configured =
        repo.here.without(&IDENTITY).run(["-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT"])?;
    let told =
        if configured.is_ok() { configured.text() } else { repo.here.text(["var", "GIT_AUTHOR_IDENT"])? };
    let (name, rest) = told.split_once(" <").unwrap_or((told.trim(), ""));
    let email = rest.split('>').next().unwrap_or_default();
    let name = name.rsplit_once(" (").filter(|(_, slug)| slug.trim_end_matches(')').parse::<Slug>().is_ok());
    let name = name.map_or_else(|| told.split(" <").next().unwrap_or_default(), |(name, _)| name);
    Ok(User { name: name.trim().to_owned(), email: email.to_owned() })
}
