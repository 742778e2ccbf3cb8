//! Finding sessions: our own and other agents', as one list.
//!
//! One session is one row: what other agents keep in their files, and what the store knows
//! of the same session (a star, a plan, a name of the owner's), are put together.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::PoisonError,
};

use sess_core::{
    SessionId, Source, Timestamp,
    identity::Claim,
    message::Role,
    policy::{self, Standing},
    reference::{Reference, ReferenceError, may_be_prefix},
    session::{NewSession, Session},
};
use sess_readers::{Foreign, Homes, Look, Problem, Repository, Told, dir_of_project, worktrees};
use sess_store::{Archived, SessionFilter, Store};

use super::{ListSessions, Listed, Scope, blocking, listed, plain};
use crate::{App, Caller, Error, Result};

/// How many sessions are looked at to tell whether a prefix is unique.
const PREFIX_MATCHES_MAX: usize = 1_000;
/// Up to this size a session of another agent is counted when it is listed.
const COUNTED_SIZE_BYTES_MAX: u64 = 2 << 20;

/// A session in which nothing was said for longer is not the one that calls.
const LIVE_FOR_MS: i64 = 15 * 60 * 1_000;

/// A session that was found.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Stored(Box<Session>),
    /// Another agent's, read in place; with what is stored about it.
    Foreign(Box<Foreign>, Option<Box<Session>>),
}

impl Found {
    pub(crate) fn id(&self) -> &SessionId {
        match self {
            Self::Stored(session) => &session.id,
            Self::Foreign(foreign, _) => &foreign.id,
        }
    }

    /// Returns what the store has of it.
    pub(crate) fn stored(&self) -> Option<&Session> {
        match self {
            Self::Stored(session) => Some(session),
            Self::Foreign(_, stored) => stored.as_deref(),
        }
    }

    pub(crate) fn source(&self) -> Source {
        match self {
            Self::Stored(session) => session.source,
            Self::Foreign(foreign, _) => foreign.source,
        }
    }

    pub(crate) fn title(&self) -> &str {
        match self {
            Self::Stored(session) => &session.title,
            Self::Foreign(_, Some(stored)) if !stored.title.is_empty() => &stored.title,
            Self::Foreign(foreign, _) => &foreign.title,
        }
    }

    /// Returns the directory that it ran in, as it is called: for commands, not to be shown.
    pub(crate) fn cwd(&self) -> Option<&str> {
        match self {
            Self::Stored(session) => session.cwd.as_deref(),
            Self::Foreign(foreign, _) => foreign.cwd.as_deref(),
        }
    }

    pub(crate) fn updated_at(&self) -> Timestamp {
        match self {
            Self::Stored(session) => session.updated_at,
            Self::Foreign(foreign, None) => foreign.updated_at,
            Self::Foreign(foreign, Some(stored)) => foreign.updated_at.max(stored.updated_at),
        }
    }

    fn created_at(&self) -> Timestamp {
        match self {
            Self::Stored(session) => session.created_at,
            Self::Foreign(foreign, _) => foreign.created_at.unwrap_or(foreign.updated_at),
        }
    }

    pub(crate) fn is_archived(&self) -> bool {
        match self {
            Self::Stored(session) => session.archived_at.is_some(),
            Self::Foreign(foreign, stored) => is_archived(foreign, stored.as_deref()),
        }
    }
}

/// Sessions in the order of the list, and how many there are in all.
pub(super) struct Page {
    pub(super) sessions: Vec<Found>,
    /// Counted up to what was asked for.
    pub(super) total: u64,
}

impl App {
    /// Names the sessions of other agents, sub-agents' too, and warns of what cannot be read.
    pub(crate) async fn foreign_sessions(&self, source: Option<Source>) -> Result<Vec<Foreign>> {
        let look = self.look_at_agents(source).await?;
        self.warn_of(&look.problems);
        Ok(look.sessions)
    }

    /// Names the sessions of other agents and what of theirs cannot be read: for who wants one session, what is
    /// wrong with another is no news.
    pub(crate) async fn look_at_agents(&self, source: Option<Source>) -> Result<Look> {
        match &self.settings().homes {
            Some(homes) => self.look(homes.clone(), source).await,
            None => Ok(Look::default()),
        }
    }

    /// Names the sessions of other agents that are kept in these places.
    pub(crate) async fn foreign_sessions_in(
        &self,
        homes: Homes,
        source: Option<Source>,
    ) -> Result<Vec<Foreign>> {
        let look = self.look(homes, source).await?;
        self.warn_of(&look.problems);
        Ok(look.sessions)
    }

    pub(crate) fn warn_of(&self, problems: &[Problem]) {
        let Some(text) = warning(problems) else { return };
        // What is asked for twice, or every second, is told once.
        let mut last = self.inner.last_warning.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != text {
            tracing::warn!("{text}");
            *last = text;
        }
    }

    async fn look(&self, homes: Homes, source: Option<Source>) -> Result<Look> {
        if source == Some(Source::Native) {
            return Ok(Look::default());
        }
        let app = self.clone();
        blocking(move || {
            let mut catalogue = app.inner.catalogue.lock().unwrap_or_else(PoisonError::into_inner);
            catalogue.look(&homes, source)
        })
        .await
    }

    /// Lists the first `limit` sessions that fit, most recent activity first.
    pub(super) async fn page(
        &self,
        caller: &Caller,
        ask: &ListSessions,
        limit: usize,
        most: u64,
    ) -> Result<Page> {
        self.home()?;
        // The owner is no session: what it names is only what it asks about.
        if let (Standing::Agent, Claim::Invalid(error)) = (caller.standing, &caller.identity.session) {
            return Err(error.clone().into());
        }
        let scope = self.visible(caller).await?;
        // Everything below the caller is a sub-session, and those are never listed.
        if matches!(scope, policy::Scope::Tree(_) | policy::Scope::Nothing) {
            return Ok(Page { sessions: Vec::new(), total: 0 });
        }
        let mut filter = self.filter(caller, ask, &scope).await?;
        // What is stored of a session may say otherwise about its title and its archive: both count below.
        let any = ListSessions { include_archived: true, ..ask.clone() };
        let fitting = self.foreign_that_fit(caller, &any, &scope, Children::LeftOut).await?;
        let mut found: Vec<Found> =
            fitting.into_iter().map(|foreign| Found::Foreign(Box::new(foreign), None)).collect();
        if self.has_store() {
            // What is in both is listed once.
            filter.except.extend(join(&*self.store()?, &mut found).await?);
        }
        found.retain(|found| ask.include_archived || !found.is_archived());
        let query = ask.query.as_deref().map(str::to_lowercase).filter(|query| !query.is_empty());
        let mut total = 0;
        if self.has_store() {
            let store = self.store()?;
            // The store compares titles as they are: all that it finds are looked at again below.
            let enough = if query.is_some() { usize::try_from(most).unwrap_or(usize::MAX) } else { limit };
            let stored = first_readable(&*store, &filter, enough).await?;
            total = match query {
                Some(_) => 0,
                None => store.count_sessions(&filter, most).await?.saturating_sub(stored.len() as u64),
            };
            found.extend(stored.into_iter().map(|session| Found::Stored(Box::new(session))));
        }
        if let Some(query) = query {
            // Titles are shown masked, and what a mask hides is not there to be found.
            found.retain(|found| plain(found.title()).to_lowercase().contains(&query));
        }
        total = total.saturating_add(found.len() as u64);
        found.sort_by(|a, b| {
            b.updated_at()
                .cmp(&a.updated_at())
                .then_with(|| b.created_at().cmp(&a.created_at()))
                .then_with(|| a.id().cmp(b.id()))
        });
        found.truncate(limit);
        Ok(Page { sessions: found, total: total.min(most) })
    }

    /// Returns other agents' sessions that the question is about and the caller may see, whatever their titles: those
    /// are sure when the question is about titles.
    pub(crate) async fn foreign_that_fit(
        &self,
        caller: &Caller,
        ask: &ListSessions,
        scope: &policy::Scope,
        children: Children,
    ) -> Result<Vec<Foreign>> {
        // Who was given one agent's sessions was given those of the store.
        if caller.only.is_some() {
            return Ok(Vec::new());
        }
        let line = self.own_line(caller).await?;
        let is_own = |foreign: &Foreign| match line.split_first() {
            Some(((source, id), above)) => {
                is_part_of(foreign, *source, id) || is_among(above, foreign.source, &foreign.id)
            }
            None => false,
        };
        let mut repositories = Repositories::of(self, ask.scope)?;
        let fits = |foreign: &Foreign| {
            (children == Children::Included || !foreign.is_part())
                && !is_own(foreign)
                && is_visible(scope, foreign)
                && (ask.include_archived || !foreign.is_archived)
                && repositories.has_foreign(foreign)
        };
        let mut found = self.foreign_sessions(ask.source).await?;
        found.retain(fits);
        if ask.query.as_deref().is_some_and(|query| !query.is_empty()) {
            found = self.with_sure_titles(found).await?;
        }
        Ok(found)
    }

    /// Makes sure of what sessions are called, wherever in their files that stands, and remembers it.
    async fn with_sure_titles(&self, mut sessions: Vec<Foreign>) -> Result<Vec<Foreign>> {
        let app = self.clone();
        blocking(move || {
            sess_readers::make_sure(&mut sessions);
            let mut catalogue = app.inner.catalogue.lock().unwrap_or_else(PoisonError::into_inner);
            catalogue.learn_titles(&sessions);
            sessions
        })
        .await
    }

    /// Returns the caller's own session and those above it, as far as its call and its agent's files tell.
    ///
    /// Of a caller that only says whose agent it is, the session is taken that went on last where it works:
    /// that is too little to write in its name, and enough not to show it to itself.
    pub(crate) async fn own_line(&self, caller: &Caller) -> Result<Vec<(Source, SessionId)>> {
        if caller.standing == Standing::Owner {
            return Ok(Vec::new());
        }
        let Ok(own) = self.named_session(caller).await else { return Ok(Vec::new()) };
        let source = caller.host.unwrap_or(own.source);
        let mut line = vec![(own.source, own.id)];
        line.extend(caller.root.clone());
        let kept = self.look_at_agents(Some(source)).await?.sessions;
        if caller.host.is_some() {
            line.extend(self.at_work_here(&kept).map(|foreign| (source, foreign.id.clone())));
        }
        let mut at = 0;
        while let Some((source, id)) = line.get(at) {
            let own = kept.iter().find(|foreign| foreign.source == *source && foreign.id == *id);
            if let Some(parent) = own.and_then(|own| own.parent.clone())
                && !is_among(&line, *source, &parent)
            {
                let above = (*source, parent);
                line.push(above);
            }
            at += 1;
        }
        Ok(line)
    }

    /// Returns which of these sessions is taken for the caller's when it does not say: the one that went on last
    /// where it works.
    fn at_work_here<'a>(&self, kept: &'a [Foreign]) -> Option<&'a Foreign> {
        let since = self.now().as_millis() - LIVE_FOR_MS;
        let cwd = self.settings().cwd.as_deref()?;
        let is_live = |foreign: &&Foreign| foreign.ran_in(cwd) && foreign.updated_at.as_millis() >= since;
        kept.iter().filter(is_live).max_by_key(|foreign| foreign.updated_at)
    }

    /// Returns the session that is taken for the caller's where only its host is known, so that what is not shown to
    /// it as its own is also what it reads as its own.
    pub(super) async fn taken_for_own(&self, caller: &Caller) -> Result<Option<Foreign>> {
        let Some(host) = caller.host else { return Ok(None) };
        let kept = self.look_at_agents(Some(host)).await?.sessions;
        // Its sub-agents say something while it waits for them.
        let above = |of: &&Foreign| kept.iter().find(|foreign| Some(&foreign.id) == of.parent.as_ref());
        Ok(std::iter::successors(self.at_work_here(&kept), above).last().cloned())
    }

    /// Finds the session that a reference means to this caller, to be read.
    ///
    /// What the caller may not see does not exist for it, and neither does another agent's session of which
    /// nothing is left but what the owner said about it.
    pub(crate) async fn find(&self, caller: &Caller, text: &str) -> Result<Found> {
        match self.find_any(caller, text).await? {
            Found::Stored(session) if self.is_gone(&session).await? => {
                Err(ReferenceError::NotFound(text.trim().to_owned()).into())
            }
            found => Ok(found),
        }
    }

    /// Tells whether nothing is left to read of a session that its agent does not have.
    async fn is_gone(&self, session: &Session) -> Result<bool> {
        Ok(self.settings().homes.is_some()
            && session.source != Source::Native
            && self.store()?.is_bare(&session.id).await?)
    }

    async fn find_any(&self, caller: &Caller, text: &str) -> Result<Found> {
        self.home()?;
        let reference = Reference::parse(text)?;
        let text = text.trim();
        let not_found = || ReferenceError::NotFound(text.to_owned());
        if self.is_own(caller, &reference).await? {
            return Err(ReferenceError::Current.into());
        }
        if let Reference::Relative(offset) = reference {
            return self.relative(caller, text, offset).await;
        }
        let scope = self.visible(caller).await?;
        if let Some(session) = self.find_stored(caller, (&reference, text), &scope).await? {
            // A session out of sight is not there, and nothing else has its name.
            if !self.is_inside(&scope, &session).await? {
                return Err(not_found().into());
            }
            if is_among(&self.own_line(caller).await?, session.source, &session.id) {
                return Err(ReferenceError::Current.into());
            }
            return self.with_files(session).await;
        }
        let (source, id) = match &reference {
            Reference::Native(source, id) => (Some(*source), id),
            Reference::Id(id) => (None, id),
            Reference::Key(_) | Reference::Nothing | Reference::Relative(_) => return Err(not_found().into()),
        };
        let Look { sessions: mut matches, problems } = self.look_at_agents(source).await?;
        matches.retain(|foreign| is_visible(&scope, foreign));
        keep_named(&mut matches, source, id);
        let mut found: Vec<Found> = Vec::new();
        let is_exact = matches.iter().any(|foreign| foreign.id == *id);
        if !is_exact && source.is_none() && may_be_prefix(None, id) {
            let stored = self.stored_by_prefix(&scope, id.as_str()).await?;
            found.extend(stored.into_iter().map(|session| Found::Stored(Box::new(session))));
        }
        let is_new = |foreign: &Foreign, found: &[Found]| {
            !found.iter().any(|known| *known.id() == foreign.id && known.source() == foreign.source)
        };
        for foreign in matches {
            if is_new(&foreign, &found) {
                found.push(Found::Foreign(Box::new(foreign), None));
            }
        }
        if found.len() > 1 {
            let (reference, matches) = (text.to_owned(), found.len() as u64);
            return Err(ReferenceError::Ambiguous { reference, matches }.into());
        }
        match found.pop() {
            None => {
                // It may be in what cannot be read.
                self.warn_of(&problems);
                Err(not_found().into())
            }
            Some(found) if self.is_current(caller, &found).await? => Err(ReferenceError::Current.into()),
            Some(Found::Stored(session)) => self.with_files(*session).await,
            Some(found) => self.with_row(found).await,
        }
    }

    /// Returns the whole name of another agent's session of which `<source>:<beginning of its id>` is given; none when
    /// none is meant, and the text names a session of its own.
    pub async fn whole_name(&self, text: &str) -> Result<Option<String>> {
        let Ok(Reference::Native(source, id)) = Reference::parse(text) else { return Ok(None) };
        let mut matches = self.look_at_agents(Some(source)).await?.sessions;
        keep_named(&mut matches, Some(source), &id);
        if matches.len() > 1 {
            let (reference, matches) = (text.trim().to_owned(), matches.len() as u64);
            return Err(ReferenceError::Ambiguous { reference, matches }.into());
        }
        Ok(matches.pop().map(|foreign| foreign.reference()))
    }

    /// Adds what is stored of another agent's session, such as the owner's name for it.
    pub(crate) async fn with_row(&self, found: Found) -> Result<Found> {
        let mut found = [found];
        if self.has_store() {
            join(&*self.store()?, &mut found).await?;
        }
        let [found] = found;
        Ok(found)
    }

    /// Finds a session and makes its row when it has none yet: what the owner says about another
    /// agent's session is kept in the store.
    pub async fn resolve(&self, caller: &Caller, text: &str) -> Result<Session> {
        match self.find_any(caller, text).await? {
            Found::Stored(session) | Found::Foreign(_, Some(session)) => Ok(*session),
            Found::Foreign(foreign, None) => Ok(self.store()?.ensure_session(first_row(&foreign)).await?),
        }
    }

    /// Looks a reference up in the store, without prefixes.
    async fn find_stored(
        &self,
        caller: &Caller,
        (reference, text): (&Reference, &str),
        scope: &policy::Scope,
    ) -> Result<Option<Session>> {
        if !self.has_store() {
            return Ok(None);
        }
        let store = self.store()?;
        let found = match reference {
            Reference::Key(key) => store.session_by_key(key).await,
            Reference::Native(source, id) => {
                store.session(id).await.map(|found| found.filter(|session| session.source == *source))
            }
            Reference::Id(id) => store.session(id).await,
            Reference::Relative(_) | Reference::Nothing => Ok(None),
        };
        let session = match found {
            // Whose a damaged session is cannot be told, so only who sees all hears of it; to the others its id is not
            // the beginning of another one either.
            Err(sess_store::Error::Damaged(_)) if *scope != policy::Scope::All => {
                return Err(ReferenceError::NotFound(text.to_owned()).into());
            }
            found => found?,
        };
        let Some(session) = session else { return Ok(None) };
        if self.lineage(caller).await?.iter().any(|own| own.id == session.id) {
            return Err(ReferenceError::Current.into());
        }
        Ok(Some(session))
    }

    /// Adds what its agent keeps of a session to what is stored of it.
    pub(crate) async fn with_files(&self, session: Session) -> Result<Found> {
        if session.source == Source::Native {
            return Ok(Found::Stored(Box::new(session)));
        }
        let kept = self.look_at_agents(Some(session.source)).await?.sessions;
        Ok(match kept.into_iter().find(|foreign| foreign.id == session.id) {
            // Its own file is the session, whatever else was stored about it: an import, or its mail.
            Some(foreign) => Found::Foreign(Box::new(foreign), Some(Box::new(session))),
            None => Found::Stored(Box::new(session)),
        })
    }

    /// Tells whether what was found is the session that asks, or one above it.
    async fn is_current(&self, caller: &Caller, found: &Found) -> Result<bool> {
        if let Found::Stored(session) = found
            && self.lineage(caller).await?.iter().any(|own| own.id == session.id)
        {
            return Ok(true);
        }
        Ok(is_among(&self.own_line(caller).await?, found.source(), found.id()))
    }

    /// Tells whether a reference names the session that asks, be it stored yet or not.
    async fn is_own(&self, caller: &Caller, reference: &Reference) -> Result<bool> {
        if caller.standing == Standing::Owner {
            return Ok(false);
        }
        let own = match self.named_session(caller).await {
            Err(Error::Store(sess_store::Error::Damaged(_))) => return Ok(false),
            own => own?,
        };
        Ok(match reference {
            Reference::Id(id) => *id == own.id,
            Reference::Native(source, id) => *source == own.source && *id == own.id,
            Reference::Key(key) => *key == own.key,
            Reference::Relative(_) | Reference::Nothing => false,
        })
    }

    async fn relative(&self, caller: &Caller, text: &str, offset: u64) -> Result<Found> {
        let out_of_range = |have| ReferenceError::OutOfRange { reference: text.to_owned(), have };
        let place = usize::try_from(offset).unwrap_or(usize::MAX);
        // An offset past the end must not make anybody read as many rows.
        let all = self.page(caller, &ListSessions::default(), 0, u64::MAX).await?.total;
        if offset > all {
            return Err(out_of_range(all).into());
        }
        let mut page = self.page(caller, &ListSessions::default(), place, u64::MAX).await?;
        let have = page.sessions.len() as u64;
        match page.sessions.pop() {
            Some(found) if have == offset => Ok(found),
            _ => Err(out_of_range(have).into()),
        }
    }

    async fn stored_by_prefix(&self, scope: &policy::Scope, prefix: &str) -> Result<Vec<Session>> {
        if !self.has_store() {
            return Ok(Vec::new());
        }
        let mut matches = Vec::new();
        for session in self.store()?.sessions_by_prefix(prefix, PREFIX_MATCHES_MAX).await? {
            // Sessions out of sight do not make a prefix ambiguous.
            if self.is_inside(scope, &session).await? {
                matches.push(session);
            }
        }
        Ok(matches)
    }

    /// Writes the question as a filter of the store.
    async fn filter(
        &self,
        caller: &Caller,
        ask: &ListSessions,
        scope: &policy::Scope,
    ) -> Result<SessionFilter> {
        let agent = match scope {
            policy::Scope::Agent(agent) => Some(agent.clone()),
            policy::Scope::All | policy::Scope::Tree(_) | policy::Scope::Nothing => None,
        };
        let mut except: Vec<SessionId> =
            self.lineage(caller).await?.into_iter().map(|session| session.id).collect();
        except.extend(self.own_line(caller).await?.into_iter().map(|(_, id)| id));
        Ok(SessionFilter {
            agent,
            source: ask.source,
            title: ask.query.clone().filter(|query| !query.is_empty()),
            dirs: self.dirs(ask.scope)?,
            archived: if ask.include_archived { Archived::Included } else { Archived::Hidden },
            // Those whose agent has them are listed as its sessions; the others have nothing to read.
            without_bare: self.settings().homes.is_some(),
            except,
        })
    }

    /// Returns the directories whose sessions are asked for, with all work trees of the repository; none for all.
    pub(crate) fn dirs(&self, scope: Scope) -> Result<Vec<String>> {
        let Scope::Repo = scope else { return Ok(Vec::new()) };
        let dir = self.repository_dir()?;
        let trees = worktrees(Path::new(dir)).into_iter().filter_map(|tree| tree.to_str().map(str::to_owned));
        Ok(std::iter::once(dir.to_owned()).chain(trees).collect())
    }

    /// Returns the repository that the caller works in, or the directory when it is in none.
    fn repository_dir(&self) -> Result<&str> {
        let dir = self.settings().repo.as_deref().or(self.settings().cwd.as_deref());
        dir.ok_or_else(|| {
            Error::Invalid("scope \"repo\" needs a working directory, and there is none".to_owned())
        })
    }

    /// Returns a session as a list shows it.
    pub(crate) async fn listed(&self, found: &Found) -> Result<Listed> {
        let (foreign, stored) = match found {
            Found::Stored(session) => return Ok(listed(session)),
            Found::Foreign(foreign, stored) => (foreign, stored),
        };
        let is_short = foreign.place.size_bytes.is_none_or(|size| size <= COUNTED_SIZE_BYTES_MAX);
        let is_counted = foreign.num_messages.is_none() && is_short;
        let (counted, told) = if is_counted { count(foreign).await? } else { (None, Told::default()) };
        let counted = foreign.num_messages.or(counted);
        let is_named = stored.as_ref().is_some_and(|stored| !stored.title.is_empty());
        let title = told.title.as_deref().filter(|_| !is_named).unwrap_or(found.title());
        Ok(Listed {
            title: plain(title),
            num_messages: counted.unwrap_or(1),
            num_messages_is_minimum: counted.is_none(),
            damaged: told.bad,
            starred: stored.as_ref().is_some_and(|stored| stored.starred),
            updated_at: found.updated_at().to_string(),
            ..listed_foreign(foreign)
        })
    }
}

/// Returns what is stored of another agent's session once the owner says something about it.
///
/// A title is none of it: a stored one is the owner's, and hides what the agent calls its session.
pub(crate) fn first_row(foreign: &Foreign) -> NewSession {
    let created_at = foreign.created_at.unwrap_or(foreign.updated_at);
    let mut new = NewSession::chat(foreign.id.clone(), foreign.source, created_at);
    new.cwd.clone_from(&foreign.cwd);
    new
}

/// Returns another agent's session as a list shows it, without counting its messages.
fn listed_foreign(foreign: &Foreign) -> Listed {
    Listed {
        id: foreign.reference(),
        title: plain(&foreign.title),
        created_at: foreign.created_at.unwrap_or(foreign.updated_at).to_string(),
        num_messages: foreign.num_messages.unwrap_or(1),
        starred: false,
        updated_at: foreign.updated_at.to_string(),
        source: foreign.source.to_string(),
        agent: foreign.source.agent().to_string(),
        cwd: foreign.cwd.as_deref().map(plain),
        num_messages_is_minimum: foreign.num_messages.is_none(),
        damaged: 0,
        is_sub_agent: foreign.is_orphan,
    }
}

/// Says what could not be read, agent by agent: a thousand broken files are one piece of news.
fn warning(problems: &[Problem]) -> Option<String> {
    let mut told: Vec<String> = Vec::new();
    for of_agent in problems.chunk_by(|a, b| a.source == b.source) {
        let (source, what) = (of_agent[0].source, &of_agent[0].what);
        told.push(match of_agent.len() {
            1 => format!("{source}: {what}"),
            count => format!("{source}, {count} files, the first: {what}"),
        });
    }
    if problems.len() > told.len() {
        told.push("`sess doctor` names all".to_owned());
    }
    (!told.is_empty()).then(|| told.join("; "))
}

/// Whether sub-agents' sessions are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Children {
    Included,
    LeftOut,
}

/// Which repository's sessions are asked for.
struct Repositories {
    wanted: Option<Wanted>,
    /// What was looked up before: many sessions share a directory, or a project that is named after one.
    known: HashMap<String, bool>,
}

struct Wanted {
    repository: Option<Repository>,
    dir: String,
}

impl Repositories {
    fn of(app: &App, scope: Scope) -> Result<Self> {
        let wanted = match scope {
            Scope::All => None,
            Scope::Repo => {
                let dir = app.repository_dir()?.to_owned();
                Some(Wanted { repository: Repository::around(Path::new(&dir)), dir })
            }
        };
        Ok(Self { wanted, known: HashMap::new() })
    }

    /// Tells whether a session is asked for, by where it ran.
    fn has_foreign(&mut self, foreign: &Foreign) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        let (named, is_project) = match (&foreign.cwd, foreign.project().and_then(Path::to_str)) {
            (Some(cwd), _) => (cwd.as_str(), false),
            (None, Some(project)) => (project, true),
            (None, None) => return false,
        };
        if let Some(known) = self.known.get(named) {
            return *known;
        }
        let dir = if is_project { dir_of_project(Path::new(named)) } else { Some(PathBuf::from(named)) };
        let has = dir.is_some_and(|dir| match &wanted.repository {
            // What is below may be a repository of its own.
            Some(repository) => repository.has(&dir),
            None => dir.starts_with(&wanted.dir),
        });
        self.known.insert(named.to_owned(), has);
        has
    }
}

/// Tells whether another agent's session is archived: the owner's word counts, else its agent's.
pub(crate) fn is_archived(foreign: &Foreign, stored: Option<&Session>) -> bool {
    let archived_here = stored.is_some_and(|stored| stored.archived_at.is_some());
    let unarchived_here = stored.is_some_and(|stored| stored.facts.is_unarchived);
    archived_here || (foreign.is_archived && !unarchived_here)
}

pub(crate) fn is_among(line: &[(Source, SessionId)], source: Source, id: &SessionId) -> bool {
    line.iter().any(|(its, known)| *its == source && known == id)
}

/// Keeps the sessions that an id names, given with its source or alone: those that have it, else those whose ids
/// begin with it.
pub(crate) fn keep_named(sessions: &mut Vec<Foreign>, source: Option<Source>, id: &SessionId) {
    let is_exact = sessions.iter().any(|foreign| foreign.id == *id);
    let is_telling = may_be_prefix(source, id);
    sessions.retain(|foreign| match is_exact {
        true => foreign.id == *id,
        false => is_telling && foreign.id.as_str().starts_with(id.as_str()),
    });
    // Who gives a beginning has it from a list: sub-agents count where nothing in a list is meant.
    if sessions.iter().any(|foreign| !foreign.is_part()) {
        sessions.retain(|foreign| foreign.id == *id || !foreign.is_part());
    }
}

/// Tells whether a session is the one named, or its sub-agent's.
fn is_part_of(foreign: &Foreign, source: Source, id: &SessionId) -> bool {
    foreign.source == source && (foreign.id == *id || foreign.parent.as_ref() == Some(id))
}

/// Tells whether a caller with this scope may see another agent's session.
pub(crate) fn is_visible(scope: &policy::Scope, foreign: &Foreign) -> bool {
    match scope {
        policy::Scope::All => true,
        policy::Scope::Agent(agent) => foreign.source.agent() == *agent,
        policy::Scope::Tree(_) | policy::Scope::Nothing => false,
    }
}

/// Adds what is stored about other agents' sessions; returns of which something is.
pub(crate) async fn join(store: &dyn Store, found: &mut [Found]) -> Result<Vec<SessionId>> {
    let mut by_source: HashMap<Source, Vec<SessionId>> = HashMap::new();
    for found in found.iter() {
        by_source.entry(found.source()).or_default().push(found.id().clone());
    }
    let mut both: HashMap<SessionId, Session> = HashMap::new();
    for (source, ids) in by_source {
        let any =
            SessionFilter { source: Some(source), archived: Archived::Included, ..SessionFilter::default() };
        if store.count_sessions(&any, 1).await? == 0 {
            continue;
        }
        let known = store.known_sessions(&ids).await?;
        let known = known.into_iter().filter(|session| session.source == source);
        both.extend(known.map(|session| (session.id.clone(), session)));
    }
    for found in found.iter_mut() {
        if let Found::Foreign(foreign, stored) = found
            && let Some(session) = both.get(&foreign.id).filter(|session| session.source == foreign.source)
        {
            *stored = Some(Box::new(session.clone()));
        }
    }
    Ok(both.into_keys().collect())
}

/// Counts the messages of another agent's session, and says what else was seen. What cannot be read is not counted,
/// and is damage.
async fn count(foreign: &Foreign) -> Result<(Option<u64>, Told)> {
    let foreign = foreign.clone();
    blocking(move || {
        let mut count = 0;
        let read = sess_readers::read(&foreign, &mut |entry| {
            count += u64::from(!entry.is_taken_back && entry.body.role != Role::System);
            ControlFlow::Continue(())
        });
        match read {
            Ok(told) => (Some(count), told),
            // It goes on, or was deleted, since it was listed.
            Err(sess_readers::Error::Gone(_) | sess_readers::Error::Busy(_)) => (None, Told::default()),
            Err(_) => (None, Told { bad: 1, ..Told::default() }),
        }
    })
    .await
}

/// Returns the first `limit` sessions that can be read.
///
/// The store leaves out damaged ones after it has counted to its limit: what
/// they leave open is filled from further down, so that a list is as long as
/// it can be, and `-2` is the second of it.
async fn first_readable(store: &dyn Store, filter: &SessionFilter, limit: usize) -> Result<Vec<Session>> {
    let mut readable = store.list_sessions(filter, 0, limit).await?;
    let mut seen = limit as u64;
    while readable.len() < limit && seen < store.count_sessions(filter, u64::MAX).await? {
        let more = limit - readable.len();
        readable.extend(store.list_sessions(filter, seen, more).await?);
        seen += more as u64;
    }
    Ok(readable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_told_agent_by_agent() {
        let check = |problems: &[(Source, &str)], told: Option<&str>| {
            let problem =
                |(source, what): &(Source, &str)| Problem { source: *source, what: (*what).to_owned() };
            let problems: Vec<Problem> = problems.iter().map(problem).collect();
            assert_eq!(warning(&problems).as_deref(), told);
        };
        check(&[], None);
        check(&[(Source::Goose, "a is bad")], Some("goose: a is bad"));
        check(
            &[(Source::Claude, "a is bad"), (Source::Goose, "b is bad")],
            Some("claude: a is bad; goose: b is bad"),
        );
        check(
            &[(Source::Claude, "a is bad"), (Source::Claude, "b is bad"), (Source::Zed, "c is bad")],
            Some("claude, 2 files, the first: a is bad; zed: c is bad; `sess doctor` names all"),
        );
    }
}
