//! `sess mcp`: the tools, for any agent that speaks MCP.

use std::io::IsTerminal as _;

use sess_app::tools::Toolset;
use sess_server::mcp::{McpOptions, serve_stdio};

use super::Context;
use crate::{
    cli,
    output::{Output, Usage},
};

pub async fn run(context: &Context, output: &Output, args: cli::Mcp) -> anyhow::Result<()> {
    let mut toolsets = Vec::new();
    for name in &args.toolsets {
        toolsets.push(name.parse::<Toolset>().map_err(|error| Usage(error.to_string()))?);
    }
    if toolsets.is_empty() {
        toolsets.extend(Toolset::ALL);
    }
    if std::io::stdin().is_terminal() {
        output.say(
            "This speaks MCP, for agents: `claude mcp add sess -- sess mcp` is how one gets it. Ctrl-D ends.",
        );
    }
    let options = McpOptions {
        toolsets,
        tools: (!args.tools.is_empty()).then_some(args.tools),
        explicit_session: context.session.clone(),
        env: context.env.clone(),
    };
    serve_stdio(context.app.clone(), options).await.map_err(|error| match error {
        sess_server::Error::UnknownTool { .. } => Usage(error.to_string()).into(),
        sess_server::Error::Stopped(_) => anyhow::Error::new(error),
    })
}
