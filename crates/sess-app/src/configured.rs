//! What the configuration says now.

use std::{fmt, sync::Arc};

use sess_core::{agent::Team, rules::SessionRules};

use crate::{App, Error, Result};

/// The part of the configuration that may change while a process runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configured {
    /// The configured agents, if there are any.
    pub team: Option<Team>,
    pub rules: SessionRules,
    /// What it says about work sessions.
    pub work: sess_work::Settings,
}

/// Reads the configuration. Asked at each call, so that a change holds from the next one on.
#[derive(Clone)]
pub struct ConfigSource(Arc<ReadConfig>);

type ReadConfig = dyn Fn() -> Result<Arc<Configured>, String> + Send + Sync;

impl ConfigSource {
    pub fn new(read: impl Fn() -> Result<Arc<Configured>, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns a configuration that does not change.
    pub fn fixed(configured: Configured) -> Self {
        let configured = Arc::new(configured);
        Self::new(move || Ok(Arc::clone(&configured)))
    }
}

impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigSource")
    }
}

impl App {
    /// Returns the configuration as it is now; a broken one is an error and never a guess.
    pub fn configured(&self) -> Result<Arc<Configured>> {
        (self.settings().configured.0)().map_err(Error::Unavailable)
    }
}
