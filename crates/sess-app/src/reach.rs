//! Which sessions a caller reaches with the session tools.
//!
//! What was given is made canonical first; then the one policy function of the core is asked.

use sess_core::{SessionKey, policy::Verb, session::Session};

use crate::{App, Caller, Result};

/// A session that the caller may act on.
#[derive(Clone, Debug)]
pub struct Reached {
    pub key: SessionKey,
    /// `None` for the main session of a configured agent before its first use.
    pub session: Option<Session>,
}

impl App {
    /// Finds the session that `given` names to this caller, if it may do `verb` to it.
    pub async fn reach(&self, _caller: &Caller, _given: &str, _verb: Verb) -> Result<Reached> {
        todo!()
    }
}
