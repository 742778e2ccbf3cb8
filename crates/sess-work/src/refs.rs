//! Where everybody meets: the remote's refs, or this repository's own when there is no remote.
//!
//! A ref moves only from where it was seen. What a push did is read from the refs, never from git's words.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use crate::{
    Claim, Error, Git, Kind, Oid, Repo, Result, Slug,
    branch::rescue_ref,
    git::{Ended, is_denied, is_disk_full, left_lock, lock_in_the_way, pause, words_of},
    guard::{self, TRUST_COMMAND},
    namespace::{SEEN_HERE, SEEN_OTHER},
    repo::CLAIMS,
};

/// What was seen there last, kept apart from the refs of the user's own.
const SEEN: &str = "refs/intersession/seen";
const SEEN_BASE: &str = "refs/intersession/seen/base";
const SEEN_CLAIMS: &str = "refs/intersession/seen/claims";
const SEEN_BRANCHES: &str = "refs/intersession/seen/branches";
const SEEN_LOG: &str = "refs/intersession/seen/log";
/// What was made here last for everybody to see.
pub(crate) const SEEN_MADE: &str = "refs/intersession/seen/made";
/// How an entry of the chain of ended claims begins; the session's name follows.
pub(crate) const LOG_LINE: &str = "ended ";
const BRANCHES: &str = "refs/heads/session";

/// What was there when it was looked at.
#[derive(Clone, Debug)]
pub struct View {
    /// The last commit of the base branch.
    pub base: Oid,
    pub claims: BTreeMap<Slug, Record>,
    /// The last commits of the sessions' branches, as far as they were shared.
    pub branches: BTreeMap<Slug, Oid>,
    /// The sessions whose branches this clone has.
    pub(crate) here: BTreeSet<Slug>,
    /// This clone has a branch whose name leaves no room for those of sessions.
    pub(crate) is_in_the_way: bool,
    /// The chain of claims that have ended.
    pub log: Option<Oid>,
    /// Refs that lead to no claim, with the reason.
    pub damaged: Vec<(String, String)>,
    /// What tells whether claims are elsewhere.
    pub(crate) elsewhere: Vec<(Oid, String)>,
    /// The remote could not be asked: this is what it said last.
    pub is_old: bool,
}

/// A claim and the commit that holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub oid: Oid,
    pub claim: Claim,
}

/// A ref that is to move from one commit to another; `None` is its absence.
#[derive(Clone, Debug)]
pub struct Move {
    pub name: String,
    pub from: Option<Oid>,
    pub to: Option<Oid>,
}

/// What became of moves that go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    Done,
    /// Somebody else moved one of them; this is where it is.
    Overtaken {
        name: String,
        at: Option<Oid>,
    },
    /// They are where they were, and this is what the other side said.
    Rejected(String),
}

impl Repo {
    pub(crate) fn base_ref(&self) -> String {
        format!("refs/heads/{}", self.base)
    }

    pub(crate) fn claim_ref(&self, slug: &Slug) -> String {
        format!("{}/{slug}", self.claims())
    }

    pub(crate) fn log_ref(&self) -> String {
        format!("{}log", self.claims().trim_end_matches("claims"))
    }

    /// Returns the ref that keeps commits where others see them, in a place that the remote takes.
    pub(crate) fn shared_rescue_ref(&self, slug: &Slug, tip: &Oid) -> String {
        let name = rescue_ref(slug, tip);
        match self.claims().strip_suffix("claims").filter(|_| self.remote.is_some()) {
            Some(lead) => name.replacen("refs/intersession/", lead, 1),
            None => name,
        }
    }

    /// Looks at what is there now.
    pub fn look(&self) -> Result<View> {
        let Some(remote) = &self.remote else {
            return self.view(false);
        };
        for _ in 0..TRIES_MAX {
            self.fetch(remote)?;
            let view = self.view(false)?;
            if self.is_settled(remote, &view)? {
                return Ok(view);
            }
        }
        Err(Error::new(Kind::Unreachable, format!("claims are on the move at {remote} all the time"))
            .next("sess work doctor"))
    }

    fn fetch(&self, remote: &str) -> Result<()> {
        let base = format!("+{}:{SEEN_BASE}", self.base_ref());
        let claims = format!("+{}/*:{SEEN_CLAIMS}/*", self.claims());
        let fetch = [
            // Of some tens of objects, a file for each costs several times as much as one pack.
            "-c",
            "fetch.unpackLimit=20",
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--prune",
            "--no-auto-gc",
            // The user's own remote-tracking branches are left alone: of two who move one, the later would fail.
            "--refmap=",
            "--end-of-options",
        ];
        let branches = format!("+{BRANCHES}/*:{SEEN_BRANCHES}/*");
        // With a star, because it need not be there.
        let log = format!("+{}*:{SEEN_LOG}*", self.log_ref());
        let places = self.namespace_refspecs();
        let asked = fetch.into_iter().chain([remote, &base, &claims, &branches, &log]);
        let asked = asked.chain(places.iter().map(String::as_str));
        let asked: Vec<&str> = asked.collect();
        let fetched = self.write_seen(|| self.git.talk(&asked))?;
        if !fetched.is_ok() {
            return Err(self.unreachable(&fetched.stderr));
        }
        Ok(())
    }

    /// Runs a command that changes what was seen last.
    pub(crate) fn write_seen(&self, run: impl Fn() -> Result<Ended>) -> Result<Ended> {
        // Of two that write the same refs at once, one would fail.
        let _turn = self.lock("look")?;
        let ended = run()?;
        let place = self.common.join(SEEN);
        if !lock_in_the_way(&ended.stderr).is_some_and(|lock| lock.starts_with(&place)) {
            return Ok(ended);
        }
        // Nobody else writes these refs, and it is our turn: whoever left locks there was ended.
        remove_locks(&place)
            .map_err(|error| Error::failed(format!("cannot tidy up {}: {error}", place.display())))?;
        run()
    }

    /// Looks, and when the remote cannot be reached, at what was seen last.
    pub fn look_or_recall(&self) -> Result<View> {
        match self.look() {
            Err(error) if error.kind == Kind::Unreachable => self.view(true).map_err(|_| error),
            seen => seen,
        }
    }

    /// Returns the branch that a remote says is its main one, to be put into a command.
    fn head_of(&self, remote: &str) -> String {
        let told = self.git.talk(["ls-remote", "--quiet", "--symref", "--end-of-options", remote, "HEAD"]);
        let told = told.map(|told| told.text()).unwrap_or_default();
        let head =
            told.lines().find_map(|line| line.strip_prefix("ref: refs/heads/")?.strip_suffix("\tHEAD"));
        head.filter(|head| **head != *self.base).map_or_else(|| "<branch>".to_owned(), crate::quoted)
    }

    fn unreachable(&self, stderr: &str) -> Error {
        let words = words_of(stderr);
        let (remote, base) = (self.remote.as_deref().unwrap_or_default(), &self.base);
        if words.contains("couldn't find remote ref") {
            let heads = self.git.talk(["ls-remote", "--heads", "--quiet", "--end-of-options", remote]);
            if heads.is_ok_and(|heads| heads.is_ok() && heads.stdout.is_empty()) {
                let is_empty = matches!(self.commit("HEAD"), Ok(None));
                let first = if is_empty { "git commit --allow-empty -m \"first commit\" && " } else { "" };
                return Error::wrong_state(format!("{remote} has no commit yet"))
                    .next(format!("{first}git push {remote} HEAD:refs/heads/{base}"));
            }
            return Error::new(
                Kind::Conflict,
                format!("{remote} has no branch {base}: it was renamed or deleted"),
            )
            .next(format!("git config intersession.base {}", self.head_of(remote)));
        }
        if is_disk_full(&words) || words.contains("couldn't write") {
            return Error::failed(format!("the disk is full, or nothing can be written to it: {words}"))
                .next("df -h .");
        }
        if let Some(error) = left_lock(&words) {
            return error;
        }
        if let Some(error) = self.unknown_remote() {
            return error;
        }
        let (kind, what) = match is_denied(&words) {
            true => (Kind::Rejected, format!("{remote} does not let you in: {words}")),
            false => (Kind::Unreachable, format!("{remote} cannot be reached: {words}")),
        };
        match guard::unrun_transport(self.git.guards()) {
            Some(name) => Error::new(
                kind,
                format!(
                    "{what}; the {name} of this clone's own configuration is not run, unless you trust it"
                ),
            )
            .next(TRUST_COMMAND),
            None => Error::new(kind, what).next(format!("git ls-remote {remote}")),
        }
    }

    /// Says that the remote is none of this clone's, when it was renamed or removed here.
    fn unknown_remote(&self) -> Option<Error> {
        let remote = self.remote.as_deref()?;
        // A place that is named as it is needs no name.
        let names = self.git.text(["remote"]).ok()?;
        if remote.contains(['/', ':', '.']) || names.lines().any(|name| name == remote) {
            return None;
        }
        let other = names.lines().next().map_or_else(|| "<remote>".to_owned(), crate::quoted);
        Some(
            Error::new(Kind::Unreachable, format!("this clone has no remote called {remote} any more"))
                .next(format!("git config intersession.remote {other}")),
        )
    }

    /// Says that nothing can be written there, when that is what git says: the caller may not, or a lock is left.
    pub(crate) fn denied(&self, words: &str) -> Option<Error> {
        let Some(remote) = self.remote.as_deref() else { return left_lock(words) };
        if let Some(lock) = lock_in_the_way(words) {
            let is_here = lock.parent().is_some_and(Path::is_dir);
            let lock = lock.display();
            let message = format!(
                "{remote} has {lock}, left from a git that was ended, or another one is at work: whoever keeps {remote} removes it there"
            );
            // A remote on another machine has a path that is nobody's here.
            let next = match is_here {
                true => format!("rm {}", crate::quoted(lock)),
                false => format!("git ls-remote {remote}"),
            };
            return Some(Error::new(Kind::Rejected, message).next(next));
        }
        if words.contains(&format!("'{BRANCHES}' exists")) {
            let message = format!(
                "{remote} has a branch called session, and those of work sessions, session/…, cannot be beside it"
            );
            let next = format!(
                "git fetch {remote} session && git push {remote} FETCH_HEAD:refs/heads/<another name> :session"
            );
            return Some(Error::new(Kind::Rejected, message).next(next));
        }
        if !is_denied(words) {
            return None;
        }
        let message = format!(
            "{remote} does not let you write: {words}; ask whoever keeps it, or name another remote that you may push to"
        );
        Some(Error::new(Kind::Rejected, message).next("git config intersession.remote <remote>"))
    }

    fn view(&self, is_old: bool) -> Result<View> {
        let (base, claims, branches, log) = match self.remote {
            Some(_) => (SEEN_BASE.to_owned(), SEEN_CLAIMS, SEEN_BRANCHES, SEEN_LOG.to_owned()),
            None => (self.base_ref(), self.claims(), BRANCHES, self.log_ref()),
        };
        let asked = ["for-each-ref", "--format=%(objectname) %(refname)", &base, &log, SEEN_HERE, SEEN_OTHER];
        let dirs = [claims, branches].map(|dir| format!("{dir}/"));
        let dirs = dirs.iter().map(String::as_str).chain([BRANCHES]);
        let told = self.git.text(asked.into_iter().chain(dirs))?;
        let refs = told.lines().filter_map(|line| line.split_once(' '));
        let mut refs: Vec<(Oid, &str)> =
            refs.filter_map(|(oid, name)| Some((oid.parse().ok()?, name))).collect();
        let mut taken = |wanted: &str| {
            let at = refs.iter().position(|(_, name)| *name == wanted)?;
            Some(refs.swap_remove(at).0)
        };
        let (base_oid, log) = (taken(&base), taken(&log));
        let Some(base_oid) = base_oid else {
            let next = "git commit --allow-empty -m \"first commit\"";
            return Err(Error::wrong_state(format!("there is no commit on {} yet", self.base)).next(next));
        };
        let is_in_the_way = refs.iter().any(|(_, name)| *name == BRANCHES) || base == BRANCHES;
        let (elsewhere, refs): (Vec<_>, Vec<_>) = refs
            .into_iter()
            .partition(|(_, name)| name.starts_with(SEEN_HERE) || name.starts_with(SEEN_OTHER));
        let short_of =
            |name: &str, dir: &str| name.strip_prefix(dir).unwrap_or(name).trim_start_matches('/').to_owned();
        let here = refs.iter().filter(|(_, name)| name.starts_with(BRANCHES));
        let here = here.filter_map(|(_, name)| short_of(name, BRANCHES).parse().ok()).collect();
        let (branch_refs, refs): (Vec<_>, Vec<_>) =
            refs.into_iter().partition(|(_, name)| name.starts_with(branches) || name.starts_with(BRANCHES));
        let branches = branch_refs
            .into_iter()
            .filter_map(|(oid, name)| Some((name.strip_prefix(branches)?.get(1..)?.parse().ok()?, oid)));
        let mut view = View {
            base: base_oid,
            claims: BTreeMap::new(),
            branches: branches.collect(),
            here,
            is_in_the_way,
            log,
            damaged: Vec::new(),
            elsewhere: elsewhere.into_iter().map(|(oid, name)| (oid, name.to_owned())).collect(),
            is_old,
        };
        let oids: Vec<&Oid> = refs.iter().map(|(oid, _)| oid).collect();
        let read = read_claims(&self.git, &oids)?;
        for ((oid, name), json) in refs.into_iter().zip(read) {
            let short = short_of(name, claims);
            match record(&short, oid, json) {
                Ok((slug, record)) => drop(view.claims.insert(slug, record)),
                Err(reason) => view.damaged.push((short, reason)),
            }
        }
        Ok(view)
    }

    /// Returns the claims that this clone keeps for itself, as it does without a remote.
    pub(crate) fn claims_here(&self) -> Result<Vec<(Oid, Slug)>> {
        let told = self.git.text(["for-each-ref", "--format=%(objectname) %(refname)", CLAIMS])?;
        let claim = |line: &str| {
            let (oid, name) = line.split_once(' ')?;
            Some((oid.parse().ok()?, name.strip_prefix(CLAIMS)?.trim_start_matches('/').parse().ok()?))
        };
        Ok(told.lines().filter_map(claim).collect())
    }

    /// Returns where a claim is kept as it was seen last.
    pub(crate) fn seen_claim_ref(&self, name: &str) -> String {
        let dir = if self.remote.is_some() { SEEN_CLAIMS } else { self.claims() };
        format!("{dir}/{name}")
    }

    /// Returns the base as it was seen last, without asking anybody.
    pub(crate) fn seen_base(&self) -> Result<Option<Oid>> {
        self.commit(&if self.remote.is_some() { SEEN_BASE.to_owned() } else { self.base_ref() })
    }

    /// Returns a session's claim as it was seen last, without asking anybody.
    pub(crate) fn seen_record(&self, slug: &Slug) -> Result<Option<Record>> {
        let Some(oid) = self.commit(&self.seen_claim_ref(slug.as_str()))? else { return Ok(None) };
        let json = read_claims(&self.git, &[&oid])?.pop().flatten();
        Ok(record(slug.as_str(), oid, json).ok().map(|(_, record)| record))
    }

    /// Moves refs together, or none of them.
    ///
    /// Refs are locked for a moment while others move, which is no refusal: it is tried again before one is told.
    pub fn advance(&self, moves: &[Move]) -> Result<Moved> {
        let mut moved = Moved::Rejected(String::new());
        for _ in 0..TRIES_MAX {
            moved = match &self.remote {
                None => self.advance_here(moves)?,
                Some(remote) => self.push(remote, moves)?,
            };
            if !matches!(moved, Moved::Rejected(_)) {
                break;
            }
            pause();
        }
        Ok(moved)
    }

    /// Removes a ref that may lead to anything.
    pub(crate) fn remove_raw(&self, name: &str, from: &Oid) -> Result<Moved> {
        if self.remote.is_some() {
            return self.advance(&[Move { name: name.to_owned(), from: Some(from.clone()), to: None }]);
        }
        let ended = self.git.run(["update-ref", "-d", name, from.as_str()])?;
        Ok(if ended.is_ok() { Moved::Done } else { Moved::Rejected(words_of(&ended.stderr)) })
    }

    fn advance_here(&self, moves: &[Move]) -> Result<Moved> {
        let zero = "0".repeat(self.zero_len(moves));
        let text = |oid: &Option<Oid>| oid.as_ref().map_or(zero.clone(), Oid::to_string);
        let mut input = "start\n".to_owned();
        for step in moves {
            input += &format!("update {} {} {}\n", step.name, text(&step.to), text(&step.from));
        }
        input += "prepare\ncommit\n";
        let ended = self.git.run_with(["update-ref", "--stdin"], Some(input.as_bytes()), &[], None)?;
        let now = |name: &str| self.commit(name);
        judge(moves, now, &ended.stderr)
    }

    fn zero_len(&self, moves: &[Move]) -> usize {
        moves
            .iter()
            .find_map(|step| step.to.as_ref().or(step.from.as_ref()))
            .map_or(40, |oid| oid.as_str().len())
    }

    pub(crate) fn push(&self, remote: &str, moves: &[Move]) -> Result<Moved> {
        let mut args: Vec<String> =
            ["push", "--quiet", "--no-verify", "--porcelain", "--no-follow-tags"].map(str::to_owned).to_vec();
        if moves.len() > 1 {
            args.push("--atomic".to_owned());
        }
        for step in moves {
            let from = step.from.as_ref().map_or("", Oid::as_str);
            args.push(format!("--force-with-lease={}:{from}", step.name));
        }
        args.extend(["--end-of-options".to_owned(), remote.to_owned()]);
        for step in moves {
            args.push(format!("{}:{}", step.to.as_ref().map_or("", Oid::as_str), step.name));
        }
        let pushed = self.git.talk(&args)?;
        let places = self.namespace_pattern(moves);
        let names: Vec<&str> = moves.iter().map(|step| step.name.as_str()).chain(places.as_deref()).collect();
        let now = self.remote_refs(remote, &names)?;
        if places.is_some()
            && let Some((name, at)) = self.misplaced(now.iter())
        {
            return Ok(Moved::Overtaken { name, at: Some(at) });
        }
        let moved = judge(moves, |name| Ok(now.get(name).cloned()), &pushed.stderr)?;
        if moved == Moved::Done {
            self.remember(moves);
        }
        Ok(moved)
    }

    /// Keeps what was just done as what was seen last: hooks go by it, and they ask nobody.
    fn remember(&self, moves: &[Move]) {
        let base = self.base_ref();
        let places = [(self.claims(), SEEN_CLAIMS), (BRANCHES, SEEN_BRANCHES), (base.as_str(), SEEN_BASE)];
        let lines = moves.iter().filter_map(|step| {
            let seen = places.iter().find_map(|(place, seen)| {
                let rest = step.name.strip_prefix(place)?;
                (rest.is_empty() || rest.starts_with('/')).then(|| format!("{seen}{rest}"))
            })?;
            Some(match &step.to {
                Some(oid) => format!("update {seen} {oid}\n"),
                None => format!("delete {seen}\n"),
            })
        });
        let input: String = lines.collect();
        if input.is_empty() {
            return;
        }
        let kept = self
            .write_seen(|| self.git.run_with(["update-ref", "--stdin"], Some(input.as_bytes()), &[], None));
        // It is done, whether it is kept or not: the next look finds it.
        match kept {
            Ok(kept) if kept.is_ok() => {}
            Ok(kept) => tracing::debug!(words = %words_of(&kept.stderr), "what was seen last is not kept"),
            Err(error) => tracing::debug!(%error, "what was seen last is not kept"),
        }
    }

    /// Asks the remote where these refs are.
    pub(crate) fn remote_refs(&self, remote: &str, names: &[&str]) -> Result<BTreeMap<String, Oid>> {
        let asked = ["ls-remote", "--quiet", "--end-of-options", remote];
        let told = self.git.talk(asked.into_iter().chain(names.iter().copied()))?;
        if !told.is_ok() {
            return Err(self.unreachable(&told.stderr));
        }
        let text = told.text();
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        Ok(lines.filter_map(|(oid, name)| Some((name.to_owned(), oid.parse().ok()?))).collect())
    }

    /// Writes a record that follows upon another one, the first of its parents.
    pub(crate) fn write_claim(&self, claim: &Claim, parents: &[&Oid]) -> Result<Oid> {
        let before = parents.first().expect("there is one before");
        self.write_claim_with(&format!("{before}^{{tree}}"), claim, parents)
    }

    /// Writes a record with the session's directory as it was claimed, so that its plan is kept with it.
    pub(crate) fn write_claim_with(&self, dir: &str, claim: &Claim, parents: &[&Oid]) -> Result<Oid> {
        let (slug, phase, fence) = (&claim.slug, claim.phase.as_str(), claim.fence);
        let json = serde_json::to_string_pretty(claim).expect("its keys are strings");
        self.commit_tree(dir, parents, &format!("[{slug}] {phase}, fence {fence}\n\n{json}\n"))
    }

    pub(crate) fn write_blob(&self, bytes: &[u8]) -> Result<Oid> {
        self.git.feed_oid(["hash-object", "-w", "--stdin"], bytes)
    }
}

/// How often refs that are where they were are tried to be moved.
const TRIES_MAX: u32 = 4;

pub(crate) fn record(
    name: &str,
    oid: Oid,
    json: Option<Vec<u8>>,
) -> std::result::Result<(Slug, Record), String> {
    let slug: Slug = name.parse().map_err(|error: crate::slug::InvalidSlug| error.to_string())?;
    let json = json.ok_or("it leads to no claim")?;
    let claim: Claim =
        serde_json::from_slice(&json).map_err(|error| format!("its claim cannot be read: {error}"))?;
    if claim.slug != slug {
        return Err(format!("its claim is that of {}", claim.slug));
    }
    Ok((slug, Record { oid, claim }))
}

/// Says what became of moves, from where the refs are now.
fn judge(moves: &[Move], now: impl Fn(&str) -> Result<Option<Oid>>, words: &str) -> Result<Moved> {
    let mut is_done = true;
    for step in moves {
        let at = now(&step.name)?;
        if at != step.to {
            is_done = false;
            if at != step.from {
                return Ok(Moved::Overtaken { name: step.name.clone(), at });
            }
        }
    }
    Ok(if is_done { Moved::Done } else { Moved::Rejected(words_of(words)) })
}

/// Reads what claims say, in one go; `None` for what is no claim.
pub(crate) fn read_claims(git: &Git, oids: &[&Oid]) -> Result<Vec<Option<Vec<u8>>>> {
    let names: Vec<String> = oids.iter().map(|oid| format!("{oid}^{{commit}}")).collect();
    let read = read_all(git, &names)?.into_iter();
    // Its parents and who made it, its subject, and the record: as it is, because bytes that were damaged would be
    // taken for what somebody wrote.
    let told = |commit: Vec<u8>| Some(after_blank_line(after_blank_line(&commit)?)?.to_owned());
    Ok(read.map(|commit| commit.and_then(told)).collect())
}

fn after_blank_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n")?;
    bytes.get(end + 2..)
}

/// Reads objects by their names, in one go; `None` for what is not there.
pub(crate) fn read_all(git: &Git, names: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let input = names.iter().map(|name| format!("{name}\n")).collect::<String>();
    let told = git.feed(["cat-file", "--batch"], input.as_bytes())?;
    let mut rest = told.as_slice();
    let mut read = Vec::with_capacity(names.len());
    for _ in names {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = rest.get(end + 1..).unwrap_or_default();
        // "<oid> <type> <size>", or "<name> missing".
        let size = head.rsplit(' ').next().and_then(|text| text.parse::<usize>().ok());
        match size.filter(|size| *size < rest.len()) {
            Some(size) => {
                read.push(Some(rest[..size].to_vec()));
                rest = &rest[size + 1..];
            }
            None => read.push(None),
        }
    }
    Ok(read)
}

/// Removes the locks of refs below a directory.
fn remove_locks(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_locks(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "lock") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
