//! What the owner does with sessions from a door: change, start over, delete.

use sess_core::{
    agent::Team,
    key::SessionKind,
    policy::Verb,
    session::{NewSession, Runner, Sending, Session, ThinkingLevel, VerboseLevel},
};
use sess_store::SessionPatch;

use crate::{App, Caller, Error, Result, context::first_row, others::Kept, sessions::may_manage};

/// Who is named when the owner deletes a session.
const DELETED_BY: &str = "owner";
/// The most characters of a name or a label.
const NAME_CHARS_MAX: usize = 200;

/// Changes of a session. What is absent stays; `Some(None)` clears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchSession {
    /// `allow` or `deny`.
    pub send_policy: Option<Option<String>>,
    /// The name of a configured model.
    pub model: Option<Option<String>>,
    /// `off`, `minimal`, `low`, `medium` or `high`.
    pub thinking_level: Option<Option<String>>,
    /// `off`, `on` or `full`.
    pub verbose_level: Option<Option<String>>,
    pub display_name: Option<Option<String>>,
    pub label: Option<Option<String>>,
    pub archived: Option<Option<bool>>,
    pub starred: Option<Option<bool>>,
}

impl App {
    /// Changes a session, all that is asked or nothing.
    pub async fn patch_session(&self, caller: &Caller, given: &str, patch: PatchSession) -> Result<Session> {
        may_manage(caller, "change a session")?;
        let kept = self.find_kept(&self.outlook(caller).await?, given, Verb::Status).await?;
        let patches = self.patches(patch)?;
        let session = match kept {
            Kept::Ours(reached) => self.opened(*reached).await?,
            Kept::Theirs(_, Some(stored)) => *stored,
            // What the owner says about another agent's session is kept in the store.
            Kept::Theirs(foreign, None) => self.store()?.ensure_session(first_row(&foreign)).await?,
        };
        Ok(self.store()?.patch_session_as_one(&session.id, patches, self.now()).await?)
    }

    /// Starts a session over: its key leads to a new transcript, and the old one stays readable by its id.
    ///
    /// A busy session is refused, and so is one that somebody has open: what they are in the middle of
    /// would go on where nobody looks.
    pub async fn reset_session(&self, caller: &Caller, given: &str) -> Result<Session> {
        may_manage(caller, "start a session over")?;
        let reached = self.stored_one(&self.outlook(caller).await?, given, Verb::Status).await?;
        let key = reached.key.clone();
        let store = self.store()?;
        let newest = store.session_by_key(&key).await?;
        let Some(session) = newest else {
            // Nothing was said yet: this is its beginning.
            return self.opened(reached).await;
        };
        if session.facts.runner == Runner::Host {
            return Err(Error::Invalid(format!(
                "session {key} is run by another program ({}), and starts over only there",
                session.source
            )));
        }
        self.not_busy(&session).await?;
        let new = NewSession {
            id: sess_core::id::uuid(self.random()),
            // What it was called after was said in the old one.
            title: String::new(),
            agent: key.agent().unwrap_or_else(|| session.agent.clone()),
            created_at: self.now(),
            ..session.clone().into()
        };
        Ok(store.reset_session(&session.id, new).await?)
    }

    /// Deletes a session for good, with every transcript that its key has led to.
    pub async fn delete_session(&self, caller: &Caller, given: &str) -> Result<()> {
        may_manage(caller, "delete a session")?;
        let reached = self.stored_one(&self.outlook(caller).await?, given, Verb::Status).await?;
        if reached.key.kind() == SessionKind::Main {
            return Err(Error::Invalid(format!(
                "{} is the main session of its agent and cannot be deleted; it can be started over",
                reached.key
            )));
        }
        let store = self.store()?;
        let transcripts = store.transcripts_of(&reached.key).await?;
        for session in &transcripts {
            self.not_busy(session).await?;
        }
        // The oldest first: the key never leads back to one.
        for session in &transcripts {
            store.delete_session(&session.id, DELETED_BY, self.now()).await?;
        }
        self.forget(&*store, &transcripts).await;
        Ok(())
    }

    /// Refuses a session in which something goes on, and says what to do about it.
    async fn not_busy(&self, session: &Session) -> Result<()> {
        let store = self.store()?;
        let conflict = |text: String| Err(Error::Store(sess_store::Error::Conflict(text)));
        let glance = store.glances(std::slice::from_ref(&session.id)).await?.pop().unwrap_or_default();
        if glance.is_running || glance.is_queued {
            return conflict(format!(
                "session {} is busy: a run of it has not ended; wait for it or abort it first",
                session.key
            ));
        }
        if let Some(seat) = store.seat(&session.id).await? {
            return conflict(format!(
                "session {} is open in another process (pid {}); close it there first",
                session.key, seat.process.pid
            ));
        }
        Ok(())
    }

    /// Checks what is asked for, before anything changes.
    fn patches(&self, patch: PatchSession) -> Result<Vec<SessionPatch>> {
        let mut patches = Vec::new();
        if let Some(policy) = patch.send_policy {
            let policy = one_of("sendPolicy", policy, &Sending::ALL, Sending::as_str)?;
            patches.push(SessionPatch::SendPolicy(policy));
        }
        if let Some(model) = patch.model {
            if let Some(name) = &model {
                let configured = self.configured()?;
                let models = configured.team.as_ref().map(Team::models).unwrap_or_default();
                let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
                if !names.contains(&name.as_str()) {
                    return Err(unknown("model", name, &names));
                }
            }
            patches.push(SessionPatch::Model(model));
        }
        if let Some(level) = patch.thinking_level {
            let level = one_of("thinkingLevel", level, &ThinkingLevel::ALL, ThinkingLevel::as_str)?;
            patches.push(SessionPatch::Thinking(level));
        }
        if let Some(level) = patch.verbose_level {
            let level = one_of("verboseLevel", level, &VerboseLevel::ALL, VerboseLevel::as_str)?;
            patches.push(SessionPatch::Verbose(level));
        }
        if let Some(name) = patch.display_name {
            patches.push(SessionPatch::DisplayName(name_of("displayName", name)?));
        }
        if let Some(label) = patch.label {
            patches.push(SessionPatch::Label(name_of("label", label)?));
        }
        if let Some(archived) = patch.archived {
            patches.push(SessionPatch::Archived(archived.unwrap_or(false)));
        }
        if let Some(starred) = patch.starred {
            patches.push(SessionPatch::Starred(starred.unwrap_or(false)));
        }
        if patches.is_empty() {
            return Err(Error::Invalid("there is nothing to change: no field is given".to_owned()));
        }
        Ok(patches)
    }
}

fn one_of<T: Copy>(
    field: &str,
    given: Option<String>,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Option<T>> {
    let Some(given) = given else { return Ok(None) };
    let found = all.iter().copied().find(|value| name(*value) == given);
    let names: Vec<&str> = all.iter().map(|value| name(*value)).collect();
    found.map(Some).ok_or_else(|| unknown(field, &given, &names))
}

fn unknown(field: &str, given: &str, known: &[&str]) -> Error {
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Error::Invalid(format!("{field}: \"{given}\" is none of: {known}"))
}

/// A blank name is none.
fn name_of(field: &str, given: Option<String>) -> Result<Option<String>> {
    let name = given.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| name.chars().count() > NAME_CHARS_MAX) {
        return Err(Error::Invalid(format!("{field} is too long: the most is {NAME_CHARS_MAX} characters")));
    }
    if name.as_ref().is_some_and(|name| name.chars().any(char::is_control)) {
        return Err(Error::Invalid(format!("{field} must not have control characters")));
    }
    Ok(name)
}
