//! Any bytes as the frames of a WebSocket, one a line: each is answered or refused, never a panic.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use sess_app::{App, Settings};
use sess_core::{Timestamp, policy::ContextVisibility};
use sess_server::gateway::SingleFrames;
use tempfile::TempDir;
use tokio::runtime::Runtime;

struct World {
    runtime: Runtime,
    frames: SingleFrames,
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
        let runtime = runtime.expect("a runtime");
        let frames = {
            let _inside = runtime.enter();
            SingleFrames::new(app)
        };
        World { runtime, frames, _home: home }
    })
}

fuzz_target!(|data: &[u8]| {
    let world = world();
    for line in data.split(|byte| *byte == b'\n').take(20) {
        // What is not UTF-8 never gets past the protocol below.
        let Ok(text) = str::from_utf8(line) else { continue };
        let answer = world.runtime.block_on(world.frames.answer(text));
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("an answer is JSON");
        assert_eq!(answer["type"], "res");
        assert_eq!(answer["ok"] == true, answer.get("error").is_none());
        assert_ne!(answer["error"]["code"], "internal", "{text:?} {answer}");
    }
});
