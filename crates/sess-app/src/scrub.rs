//! Taking secrets out of what is stored.

use serde::Serialize;
use sess_core::{SessionId, redact::redact_json, session::Session};
use sess_store::Scrubbing;

use crate::{App, Caller, Result, sessions::may_manage};

/// How many sessions are asked for at a time.
const PAGE_LEN: usize = 500;

/// What was found, or taken out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Scrubbed {
    /// How many sessions were looked at.
    pub looked_at: u64,
    /// Those with something to mask.
    pub sessions: Vec<ScrubbedSession>,
    /// Secrets are still in the log of the store, because another process reads it.
    pub stays_in_log: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct ScrubbedSession {
    pub id: String,
    /// How many stored texts had a secret.
    pub texts: u64,
}

impl App {
    /// Masks the secrets in the stored texts of a session, or of all; `how` may ask for their number alone.
    ///
    /// What is masked is what every reader but the owner sees masked. Index and mirrors are made
    /// again even when nothing was found: an earlier scrub may have been interrupted before that.
    pub async fn scrub(&self, caller: &Caller, one: Option<&Session>, how: Scrubbing) -> Result<Scrubbed> {
        may_manage(caller, "take secrets out of the store")?;
        let mut scrubbed = Scrubbed::default();
        if !self.has_store() {
            return Ok(scrubbed);
        }
        let store = self.store()?;
        match one {
            Some(session) => self.scrub_one(&session.id, how, &mut scrubbed).await?,
            None => {
                let mut after: Option<SessionId> = None;
                loop {
                    let page = store.sessions_after(after.as_ref(), PAGE_LEN).await?;
                    let Some(last) = page.last() else { break };
                    after = Some(last.clone());
                    for id in &page {
                        self.scrub_one(id, how, &mut scrubbed).await?;
                    }
                }
            }
        }
        if how == Scrubbing::Rewrite {
            scrubbed.stays_in_log = !store.forget_scrubbed().await?;
        }
        Ok(scrubbed)
    }

    async fn scrub_one(&self, id: &SessionId, how: Scrubbing, scrubbed: &mut Scrubbed) -> Result<()> {
        if how == Scrubbing::Rewrite {
            self.scrub_plan_file(id).await?;
        }
        let texts = self.store()?.scrub(id, redact_json, how, self.now()).await?;
        scrubbed.looked_at += 1;
        if texts > 0 {
            scrubbed.sessions.push(ScrubbedSession { id: id.to_string(), texts });
        }
        Ok(())
    }

    /// The file first: a crash in between leaves a masked file, which counts as another program's
    /// revision, and never a file that brings the secret back.
    async fn scrub_plan_file(&self, id: &SessionId) -> Result<()> {
        let files = self.plan_files()?;
        let is_clean = |content: &str| sess_core::redact::redact(content).1 == 0;
        if files.read(id)?.is_none_or(|content| is_clean(&content)) {
            return Ok(());
        }
        let dir = self.lock_plans().await?;
        if let Some(content) = dir.read(id)? {
            let (masked, _) = sess_core::redact::redact(&content);
            self.put_in_place(&dir, id, &masked)?;
        }
        Ok(())
    }
}
