//! `sess config`: is it valid, what is in effect, which repositories are trusted.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Value, json};
use sess_app::Redaction;
use sess_core::{
    agent::{Agent, Team, ToolsetKind},
    policy::Standing,
    redact::redact_json,
    rules::SessionRules,
    session::Sending,
};

use super::Context;
use crate::{
    cli,
    config::{self, Choice, Config, Document, Node, REPOSITORY_FILE, file, trust},
    output::{Output, Usage},
};

pub fn run(context: &Context, output: &Output, args: cli::Config) -> anyhow::Result<()> {
    match args {
        cli::Config::Check { .. } => check(context, output),
        cli::Config::Show => show(context, output),
        cli::Config::Schema => schema(output),
        cli::Config::Trust { file, remove } => trust(context, output, file, remove),
    }
}

/// Prints the JSON Schema; docs/config.schema.json is a copy.
pub fn schema(output: &Output) -> anyhow::Result<()> {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<file::File>();
    output.json_text(&(serde_json::to_string_pretty(&schema)? + "\n"))
}

fn check(context: &Context, output: &Output) -> anyhow::Result<()> {
    let config = &context.config;
    if let Some(problem) = &config.problem {
        return Err(problem.clone().into());
    }
    for notice in &config.notices {
        output.notice(notice);
    }
    let agents: Vec<Summary> =
        config.team.iter().flat_map(|team| team.agents().iter().map(|agent| summary(team, agent))).collect();
    if output.json {
        return output.data(&json!({ "valid": true, "files": config.files, "agents": agents }));
    }
    let used = config.files.iter().filter(|file| file.state == "used");
    let used: Vec<String> = used.map(|file| file.path.display().to_string()).collect();
    output.line(&format!("ok: {}", if used.is_empty() { "no file".to_owned() } else { used.join(", ") }))?;
    if agents.is_empty() {
        return output.line("No agents are configured.");
    }
    let rows: Vec<Vec<String>> = agents
        .into_iter()
        .map(|agent| vec![agent.name, agent.model, agent.toolsets.join(", "), agent.description])
        .collect();
    output.table(&["AGENT", "MODEL", "TOOLSETS", "DESCRIPTION"], 3, &rows)
}

#[derive(Serialize)]
struct Summary {
    name: String,
    model: String,
    toolsets: Vec<&'static str>,
    sandboxed: bool,
    description: String,
}

fn summary(team: &Team, agent: &Agent) -> Summary {
    Summary {
        name: agent.name.to_string(),
        model: team.model_of(agent).name.clone(),
        toolsets: agent.toolsets.iter().map(|toolset| toolset_name(&toolset.kind)).collect(),
        sandboxed: agent.sandbox.is_some(),
        description: agent.description.clone(),
    }
}

fn toolset_name(kind: &ToolsetKind) -> &'static str {
    match kind {
        ToolsetKind::SessionPlan => "session_plan",
        ToolsetKind::SessionContext => "session_context",
        ToolsetKind::Sessions => "sessions",
        ToolsetKind::Work => "work",
        ToolsetKind::Filesystem { .. } => "filesystem",
        ToolsetKind::Shell { .. } => "shell",
        ToolsetKind::UserPrompt => "user_prompt",
        ToolsetKind::Mcp(_) => "mcp",
    }
}

/// One value that is in effect.
#[derive(Serialize)]
struct Shown {
    key: String,
    value: Value,
    from: String,
}

fn show(context: &Context, output: &Output) -> anyhow::Result<()> {
    let config = &context.config;
    let mut values = config.document.root.to_json();
    if context.redaction == Redaction::Masked || context.caller.standing != Standing::Owner {
        redact_json(&mut values);
    }
    let mut shown = Vec::new();
    flatten(&config.document, &config.document.root, &values, String::new(), &mut shown);
    let rules = SessionRules::default();
    let settings = context.app.settings();
    let plans_dir =
        settings.plans_dir.clone().or_else(|| Some(settings.home.as_ref()?.join("session_plans")));
    for (key, value) in [
        ("plans.dir", json!(plans_dir)),
        ("plans.keep_days", json!(config::PLANS_KEEP_DAYS)),
        ("tools.context.visibility", json!("all")),
        ("tools.sessions.visibility", json!(rules.visibility.as_str())),
        ("tools.agentToAgent.enabled", json!(rules.agent_to_agent.is_enabled)),
        ("session.scope", json!("per-agent")),
        ("session.sendPolicy.default", json!(Sending::Allow.as_str())),
        ("session.agentToAgent.maxPingPongTurns", json!(rules.rounds_max)),
        ("session.agentToAgent.maxHops", json!(rules.limits.hops)),
        ("session.agentToAgent.maxRuns", json!(rules.limits.tree_runs)),
        ("session.maxQueue", json!(rules.limits.queue)),
        ("agents.defaults.maxConcurrent", json!(rules.limits.concurrent)),
        ("agents.defaults.subagents.maxChildren", json!(rules.limits.children)),
        ("agents.defaults.subagents.maxDepth", json!(rules.limits.depth)),
        ("agents.defaults.subagents.runTimeoutSeconds", json!(0)),
        ("agents.defaults.subagents.archiveAfterMinutes", json!(rules.archive_after_minutes)),
        ("gateway.listen", json!(sess_server::gateway::LISTEN)),
    ] {
        if !shown.iter().any(|shown: &Shown| shown.key == key) {
            shown.push(Shown { key: key.to_owned(), value, from: "default".to_owned() });
        }
    }
    if output.json {
        return output.data(&json!({ "files": config.files, "values": shown, "notices": config.notices }));
    }
    for file in &config.files {
        output.line(&format!("{:<8} {}", file.state, file.path.display()))?;
    }
    output.line("")?;
    let rows: Vec<Vec<String>> = shown
        .into_iter()
        .map(|shown| {
            let value = match shown.value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            vec![shown.key, value, shown.from]
        })
        .collect();
    for notice in &config.notices {
        output.notice(notice);
    }
    output.table(&["KEY", "VALUE", "FROM"], 1, &rows)
}

/// Lists the values of the tree by their keys; `value` is the node as it may be shown.
fn flatten(document: &Document, node: &Node, value: &Value, key: String, shown: &mut Vec<Shown>) {
    match (&node.value, value) {
        (config::Value::Map(entries), Value::Object(fields)) if !entries.is_empty() => {
            for entry in entries {
                let key = if key.is_empty() { entry.key.clone() } else { format!("{key}.{}", entry.key) };
                let value = fields.get(&entry.key).unwrap_or(&Value::Null);
                flatten(document, &entry.node, value, key, shown);
            }
        }
        (config::Value::List(items), Value::Array(values)) if !items.is_empty() => {
            for (n, (item, value)) in items.iter().zip(values).enumerate() {
                flatten(document, item, value, format!("{key}[{n}]"), shown);
            }
        }
        _ if key.is_empty() => {}
        _ => shown.push(Shown { key, value: value.clone(), from: node.at.told(&document.origins) }),
    }
}

fn trust(context: &Context, output: &Output, file: Option<PathBuf>, remove: bool) -> anyhow::Result<()> {
    if context.caller.standing != Standing::Owner {
        let text = "a repository is trusted by a person: an agent cannot do that";
        return Err(sess_app::Error::Denied(text.to_owned()).into());
    }
    let file = match file {
        None => PathBuf::from(REPOSITORY_FILE),
        Some(dir) if dir.is_dir() => dir.join(REPOSITORY_FILE),
        Some(file) => file,
    };
    if file.file_name() != Some(REPOSITORY_FILE.as_ref()) {
        let text = format!(
            "only a {REPOSITORY_FILE} needs trust, {} does not: a file that you name counts because you name it",
            file.display()
        );
        return Err(Usage(text).into());
    }
    let home = context.home()?;
    let path = absolute(&file)?;
    let answer = if remove {
        let was_trusted = trust::remove(home, &path)?;
        let text = if was_trusted { "is not trusted any more" } else { "was not trusted" };
        (format!("{} {text}.", path.display()), false)
    } else {
        let usage = |error: anyhow::Error| Usage(format!("{error:#}"));
        let bytes = config::read_file(&file).map_err(usage)?;
        // What would stop every command here afterwards is told now.
        let (_, problem) = Config::load(Choice::Trying(&file)).map_err(usage)?;
        if let Some(problem) = problem {
            return Err(usage(problem).into());
        }
        trust::add(home, &path, &bytes)?;
        (format!("{} is trusted as it is now. When it changes, it is ignored again.", path.display()), true)
    };
    let (text, is_trusted) = answer;
    if output.json {
        output.data(&json!({ "path": path, "trusted": is_trusted }))
    } else {
        output.line(&text)
    }
}

/// Returns the path under which `sess` meets the file when it is started beside it: links on the way to the
/// directory are followed, as the system does for a working directory.
fn absolute(file: &Path) -> anyhow::Result<PathBuf> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    Ok(dir.join(REPOSITORY_FILE))
}
