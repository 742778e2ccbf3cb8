//! What the owner does with sessions: star, rename, archive.

use sess_core::{SessionId, policy, session::Session};
use sess_store::SessionPatch;

use crate::{App, Caller, Error, Listed, Result};

/// The most characters a title has.
const TITLE_CHARS_MAX: usize = 500;

impl App {
    /// Returns a session by its id, once it is stored.
    pub async fn find_session(&self, id: &SessionId) -> Result<Option<Session>> {
        self.stored_session(id).await
    }

    pub async fn star(&self, caller: &Caller, session: &Session, starred: bool) -> Result<Listed> {
        self.patch(caller, session, SessionPatch::Starred(starred)).await
    }

    pub async fn rename(&self, caller: &Caller, session: &Session, title: &str) -> Result<Listed> {
        let title = title.trim();
        if title.chars().count() > TITLE_CHARS_MAX {
            return Err(Error::Invalid(format!(
                "the title is too long: the most is {TITLE_CHARS_MAX} characters"
            )));
        }
        self.patch(caller, session, SessionPatch::Title(title.to_owned())).await
    }

    pub async fn archive(&self, caller: &Caller, session: &Session, archived: bool) -> Result<Listed> {
        self.patch(caller, session, SessionPatch::Archived(archived)).await
    }

    async fn patch(&self, caller: &Caller, session: &Session, patch: SessionPatch) -> Result<Listed> {
        may_manage(caller, "change a session")?;
        let patched = self.store()?.patch_session(&session.id, patch, self.now()).await?;
        self.listed(&self.with_files(patched).await?).await
    }
}

/// Refuses what is the owner's to do, and says so.
pub(crate) fn may_manage(caller: &Caller, what: &str) -> Result<()> {
    if policy::may_manage_sessions(caller.standing) {
        return Ok(());
    }
    Err(Error::Denied(format!("only the owner may {what}")))
}
