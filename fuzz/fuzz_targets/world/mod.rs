//! What targets that need a whole program share: an empty store, and somewhere to run.

use sess_app::{App, ConfigSource, Configured, Settings};
use sess_core::{Timestamp, policy::ContextVisibility};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub struct World {
    pub runtime: Runtime,
    pub app: App,
    _home: TempDir,
}

impl World {
    pub fn new() -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let app = App::new(Settings {
            home: Some(home.path().to_owned()),
            plans_dir: None,
            plans_keep_days: 0,
            context_visibility: ContextVisibility::All,
            configured: ConfigSource::fixed(Configured::default()),
            cwd: None,
            repo: None,
            homes: None,
            host: "here".to_owned(),
            now: Timestamp::default,
            random: || 7,
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self { runtime: runtime.expect("a runtime"), app, _home: home }
    }
}
