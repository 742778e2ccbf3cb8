//! Any bytes on the MCP door's input: answers or refusals, never a panic.
#![no_main]

mod world;

use std::{io::Cursor, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use sess_app::tools::Toolset;
use sess_server::mcp::{McpOptions, serve};
use world::World;

static WORLD: LazyLock<World> = LazyLock::new(World::new);

fuzz_target!(|data: &[u8]| {
    let options = McpOptions {
        toolsets: Toolset::ANYWHERE.to_vec(),
        tools: None,
        explicit_session: Some("fuzz".to_owned()),
        env: Vec::new(),
        sessions_called: std::sync::Arc::default(),
    };
    let input = Cursor::new(data.to_vec());
    let served = WORLD.runtime.block_on(serve(WORLD.app.clone(), options, input, tokio::io::sink()));
    served.expect("whatever comes in, the connection ends in order");
});
