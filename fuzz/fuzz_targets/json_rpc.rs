//! Any bytes on the MCP door's input: answers or refusals, never a panic.
#![no_main]

use std::{io::Cursor, sync::OnceLock};

use libfuzzer_sys::fuzz_target;
use sess_app::{App, Settings, tools::Toolset};
use sess_core::{Timestamp, policy::ContextVisibility};
use sess_server::mcp::{McpOptions, serve};
use tempfile::TempDir;
use tokio::runtime::Runtime;

struct World {
    runtime: Runtime,
    app: App,
    _home: TempDir,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let home = tempfile::tempdir().expect("a temporary directory");
        let app = App::new(Settings {
            home: Some(home.path().to_owned()),
            plans_dir: None,
            plans_keep_days: 0,
            context_visibility: ContextVisibility::All,
            configured: sess_app::ConfigSource::fixed(sess_app::Configured::default()),
            cwd: None,
            repo: None,
            now: Timestamp::default,
            random: || 7,
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        World { runtime: runtime.expect("a runtime"), app, _home: home }
    })
}

fuzz_target!(|data: &[u8]| {
    let world = world();
    let options = McpOptions {
        toolsets: Toolset::ALL.to_vec(),
        tools: None,
        explicit_session: Some("fuzz".to_owned()),
        env: Vec::new(),
        sessions_called: std::sync::Arc::default(),
    };
    let input = Cursor::new(data.to_vec());
    let served = world.runtime.block_on(serve(world.app.clone(), options, input, tokio::io::sink()));
    served.expect("whatever comes in, the connection ends in order");
});
