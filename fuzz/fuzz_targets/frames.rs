//! Any bytes as the frames of a WebSocket, one a line: each is answered or refused, never a panic.
#![no_main]

mod world;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sess_server::gateway::SingleFrames;
use world::World;

static GATEWAY: LazyLock<(World, SingleFrames)> = LazyLock::new(|| {
    let world = World::new();
    let frames = {
        let _inside = world.runtime.enter();
        SingleFrames::new(world.app.clone())
    };
    (world, frames)
});

fuzz_target!(|data: &[u8]| {
    let (world, frames) = &*GATEWAY;
    for line in data.split(|byte| *byte == b'\n').take(20) {
        // What is not UTF-8 never gets past the protocol below.
        let Ok(text) = str::from_utf8(line) else { continue };
        let answer = world.runtime.block_on(frames.answer(text));
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("an answer is JSON");
        assert_eq!(answer["type"], "res");
        assert_eq!(answer["ok"] == true, answer.get("error").is_none());
        assert_ne!(answer["error"]["code"], "internal", "{text:?} {answer}");
    }
});
