//! What is written, and the team or the sentence that comes of it.

use std::path::{Path, PathBuf};

use sess_core::{
    AgentId,
    agent::{
        Effort, FileAccess, McpServer, OpenAiApi, Price, Provider, Team, Thinking, ToolsetKind, ToolsetSpec,
    },
    key::ChatType,
    rules::{
        AgentToAgent, DirectScope, SendPolicy, SendRule, SessionLimits, SessionRules, ToolFilter, Visibility,
    },
    sandbox::{Network, Sandbox, SessionTools},
    session::{Channel, Sending},
};

use super::{
    de, file, gateway,
    problem::{Origin, Problem, Problems},
    rules, team, yaml,
};

/// The plan seed's example, byte for byte.
const SEED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/session_plan.yaml"));

/// Reads `agents.yaml` in `/work`, for a person at home in `/home/ann`.
fn load(text: &str) -> Result<Option<Team>, String> {
    read(text, |document, file| team::build(document, file, Some(Path::new("/home/ann"))))
}

fn rules_of(text: &str) -> Result<SessionRules, String> {
    read(text, rules::build)
}

fn read<T>(
    text: &str,
    build: impl FnOnce(&yaml::Document, &file::File) -> Result<T, Vec<Problem>>,
) -> Result<T, String> {
    let origin = Origin { name: "agents.yaml".to_owned(), dir: PathBuf::from("/work") };
    let mut document = yaml::Document { origins: vec![origin], ..yaml::Document::default() };
    let told = |found| Problems { origins: document.origins.clone(), found }.to_string();
    let node = yaml::parse(text.as_bytes(), 0).map_err(|problem| told(vec![problem]))?;
    document.lay_over(node);
    let told = |found| Problems { origins: document.origins.clone(), found }.to_string();
    let file: file::File = de::read(&document).map_err(told)?;
    build(&document, &file).map_err(told)
}

#[track_caller]
fn team_of(text: &str) -> Team {
    load(text).expect("valid").expect("with agents")
}

#[track_caller]
fn refused(text: &str, said: &str) {
    assert_eq!(load(text).expect_err(text), said);
}

#[test]
fn the_seeds_example_is_a_team_of_two() {
    let team = team_of(SEED);
    let names: Vec<&str> = team.agents().iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["root", "planner"]);
    assert_eq!(team.entry().name.as_str(), "root");
    let [root, planner] = team.agents() else { panic!("two agents") };
    assert_eq!(root.description, "Executes approved plans");
    assert!(root.instruction.starts_with("You execute plans the planner has handed off."));
    assert!(root.instruction.ends_with("through its steps in order.\n"));
    let all = |kind| ToolsetSpec { kind, tools: None };
    assert_eq!(
        root.toolsets,
        [
            ToolsetSpec { kind: ToolsetKind::SessionPlan, tools: Some(vec!["read_session_plan".to_owned()]) },
            all(ToolsetKind::Filesystem { access: FileAccess::ReadWrite }),
            all(ToolsetKind::Shell { timeout_seconds: None }),
        ]
    );
    let [plan] = root.commands.as_slice() else { panic!("one command") };
    assert_eq!((plan.name.as_str(), plan.description.as_str()), ("plan", "Switch to the planner"));
    assert_eq!(plan.agent.as_ref(), Some(&planner.name));
    assert_eq!(plan.instruction, None);
    assert_eq!(
        planner.toolsets,
        [
            all(ToolsetKind::SessionPlan),
            all(ToolsetKind::Filesystem { access: FileAccess::ReadOnly }),
            all(ToolsetKind::UserPrompt),
        ]
    );
    let model = team.model_of(root);
    assert_eq!(
        (model.provider, model.model.as_str(), model.name.as_str()),
        (Provider::Anthropic, "claude-sonnet-4-5", "anthropic/claude-sonnet-4-5")
    );
    assert_eq!(team.models().len(), 1);
}

#[test]
fn a_list_with_defaults_is_the_same_as_a_map() {
    let shared = "model: openai/gpt-5\n    limits: {turns: 7, cost: 2.5}\n    handoffs: [one, two]";
    let list = team_of(&format!(
        "agents:\n  defaults:\n    {shared}\n  list:\n  - id: one\n    limits: {{turns: 9}}\n  - name: two\n"
    ));
    let map =
        team_of(&format!("agents:\n  one:\n    limits: {{turns: 9}}\n  two:\n  defaults:\n    {shared}\n"));
    assert_eq!(list, map);
    let [one, two] = list.agents() else { panic!("two agents") };
    assert_eq!((one.limits.turns, one.limits.cost), (9, Some(2.5)));
    assert_eq!((two.limits.turns, two.limits.cost), (7, Some(2.5)));
    // In the defaults, the others are meant.
    assert_eq!(
        (one.handoffs.as_slice(), two.handoffs.as_slice()),
        ([two.name.clone()].as_slice(), [one.name.clone()].as_slice())
    );
    assert_eq!(load("agents:\n"), Ok(None));
    assert_eq!(load("agents: {defaults: {model: openai/x}}"), Ok(None));
    assert_eq!(load(""), Ok(None));
    assert_eq!(load("# nothing\n"), Ok(None));
}

#[test]
fn a_model_has_all_its_settings() {
    let team = team_of(
        "models:
  big:
    provider: openai
    model: gpt-5
    api: responses
    base_url: https://models.example/v1
    token_key: EXAMPLE_KEY
    max_tokens: 8000
    temperature: 1
    thinking: high
    context_window: 200000
    price: {input: 1.25, output: 10, cache_read: 0.1}
  play: {provider: scripted, model: replies.yaml, thinking: 2000}
  calm: {provider: anthropic, model: claude, thinking: false}
agents:
  root: {model: big}
  actor: {model: play}
  inline: {model: scripted/sub/../other.yaml}
plans: {on_approve: root}
permissions: {allow: ['shell:cmd=ls*'], deny: [write_file]}
",
    );
    let model = |name: &str| team.models().iter().find(|model| model.name == name).expect("there");
    let big = model("big");
    assert_eq!(big.provider, Provider::OpenAi(OpenAiApi::Responses));
    assert_eq!(big.base_url.as_deref(), Some("https://models.example/v1"));
    assert_eq!(big.token_key.as_deref(), Some("EXAMPLE_KEY"));
    assert_eq!((big.max_tokens, big.temperature, big.context_window), (Some(8000), Some(1.0), Some(200_000)));
    assert_eq!(big.thinking, Thinking::Effort(Effort::High));
    assert_eq!(big.price, Some(Price { input: 1.25, output: 10.0, cache_read: 0.1, cache_write: 0.0 }));
    assert_eq!(
        (model("play").model.as_str(), model("play").thinking),
        ("/work/replies.yaml", Thinking::Tokens(2000))
    );
    assert_eq!(model("calm").thinking, Thinking::Off);
    assert_eq!(model("scripted/sub/../other.yaml").model, "/work/other.yaml");
    assert_eq!(team.on_approve.as_ref().map(AgentId::as_str), Some("root"));
    assert_eq!(team.permissions.allow[0].as_str(), "shell:cmd=ls*");
    assert_eq!(team.permissions.deny.len(), 1);
}

#[test]
fn an_mcp_server_is_a_command_or_an_address() {
    let team = team_of(
        "agents:
  root:
    model: openai/x
    toolsets:
    - {type: mcp, command: server, args: [-v], env: {A: b}, tools: [anything]}
    - {type: mcp, url: 'https://mcp.example', headers: {Authorization: Bearer x}}
    - {type: shell, timeout: 30}
",
    );
    let kinds: Vec<&ToolsetKind> = team.entry().toolsets.iter().map(|toolset| &toolset.kind).collect();
    let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    assert_eq!(
        kinds,
        [
            &ToolsetKind::Mcp(McpServer::Command {
                command: "server".to_owned(),
                args: vec!["-v".to_owned()],
                env: pair("A", "b")
            }),
            &ToolsetKind::Mcp(McpServer::Url {
                url: "https://mcp.example".to_owned(),
                headers: pair("Authorization", "Bearer x")
            }),
            &ToolsetKind::Shell { timeout_seconds: Some(30) },
        ]
    );
}

#[test]
fn a_sandbox_has_absolute_paths() {
    let sandbox = |text: &str| {
        team_of(&format!("agents: {{root: {{model: openai/x, sandbox: {text}}}}}")).entry().sandbox.clone()
    };
    assert_eq!(sandbox("false"), None);
    assert_eq!(sandbox("true"), Some(Sandbox::default()));
    assert_eq!(sandbox("{}"), Some(Sandbox::default()));
    let paths = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect::<Vec<String>>();
    assert_eq!(
        sandbox(
            "{network: true, write: [out, ~/w, ../x/./y], read: [/etc, '~'], sessionToolsVisibility: all}"
        ),
        Some(Sandbox {
            network: Network::Allowed,
            write: paths(&["/work/out", "/home/ann/w", "/x/y"]),
            read: paths(&["/etc", "/home/ann"]),
            session_tools: SessionTools::All,
        })
    );
}

#[test]
fn sessions_among_themselves_have_their_rules() {
    assert_eq!(rules_of("").expect("valid"), SessionRules::default());
    let rules = rules_of(
        "tools:
  sessions: {visibility: all}
  agentToAgent: {enabled: true, allow: [ops-*, Main]}
  subagents: {tools: {allow: [shell, sessions_list], deny: ['write_*']}}
session:
  scope: global
  sendPolicy:
    default: deny
    rules:
    - {action: allow, match: {channel: discord, chatType: group, keyPrefix: 'agent:ops:'}}
    - action: deny
  agentToAgent: {maxPingPongTurns: 0, maxHops: 3, maxRuns: 40}
  maxQueue: 7
agents:
  defaults:
    model: openai/x
    maxConcurrent: 2
    subagents: {maxChildren: 3, maxDepth: 1, runTimeoutSeconds: 90, archiveAfterMinutes: 5, allowAgents: [Ops]}
  main: {subagents: {allowAgents: ['*']}}
  other: {}
",
    )
    .expect("valid");
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<String>>();
    assert_eq!(
        rules,
        SessionRules {
            visibility: Visibility::All,
            agent_to_agent: AgentToAgent { is_enabled: true, allow: texts(&["ops-*", "Main"]) },
            send_policy: SendPolicy {
                default: Some(Sending::Deny),
                rules: vec![
                    SendRule {
                        action: Sending::Allow,
                        channel: Some(Channel::Discord),
                        chat_type: Some(ChatType::Group),
                        key_prefix: Some("agent:ops:".to_owned()),
                    },
                    SendRule { action: Sending::Deny, channel: None, chat_type: None, key_prefix: None },
                ],
            },
            scope: DirectScope::Global,
            rounds_max: 0,
            limits: SessionLimits { children: 3, depth: 1, concurrent: 2, queue: 7, hops: 3, tree_runs: 40 },
            sub_agent_tools: ToolFilter {
                allow: texts(&["shell", "sessions_list"]),
                deny: texts(&["write_*"])
            },
            sub_agent_timeout_seconds: Some(90),
            archive_after_minutes: 5,
            default_allow_agents: texts(&["ops"]),
        }
    );
    assert_eq!(rules_of("session: {scope: per-sender}").expect("valid").scope, DirectScope::PerAgent);
}

#[test]
fn whom_an_agent_may_spawn_is_its_own_list_or_the_defaults() {
    let shared = "defaults: {model: openai/x, subagents: {allowAgents: [Ops, ops]}}";
    let allowed = |team: &Team| -> Vec<Vec<String>> {
        team.agents().iter().map(|agent| agent.allow_agents.clone()).collect()
    };
    let map = team_of(&format!("agents:\n  {shared}\n  a: {{subagents: {{allowAgents: ['*']}}}}\n  b:\n"));
    assert_eq!(allowed(&map), [["*"], ["ops"]]);
    let list =
        format!("agents:\n  {shared}\n  list: [{{id: a, subagents: {{allowAgents: []}}}}, {{id: b}}]\n");
    assert_eq!(allowed(&team_of(&list)), [vec![], vec!["ops".to_owned()]]);
}

#[test]
fn what_a_sandbox_shows_of_sessions_may_come_from_the_defaults() {
    let with = |defaults: &str, own: &str| {
        let text = format!(
            "agents: {{defaults: {{model: openai/x, sandbox: {defaults}}}, root: {{sandbox: {own}}}}}"
        );
        team_of(&text).entry().sandbox.clone().map(|sandbox| sandbox.session_tools)
    };
    assert_eq!(with("{sessionToolsVisibility: all}", "true"), Some(SessionTools::All));
    assert_eq!(
        with("{sessionToolsVisibility: all}", "{sessionToolsVisibility: spawned}"),
        Some(SessionTools::Spawned)
    );
    assert_eq!(with("{sessionToolsVisibility: all}", "false"), None);
    assert_eq!(with("true", "{network: true}"), Some(SessionTools::Spawned));
}

#[test]
fn a_limit_is_a_sane_number() {
    for (text, said) in [
        ("session: {maxQueue: 0}", "session.maxQueue: expected a number from 1 to 10000, found 0"),
        (
            "session: {agentToAgent: {maxPingPongTurns: 6}}",
            "session.agentToAgent.maxPingPongTurns: expected a number from 0 to 5, found 6",
        ),
        (
            "session: {agentToAgent: {maxHops: 0}}",
            "session.agentToAgent.maxHops: expected a number from 1 to 100, found 0",
        ),
        (
            "agents: {defaults: {maxConcurrent: 0}}",
            "agents.defaults.maxConcurrent: expected a number from 1 to 100, found 0",
        ),
        (
            "agents: {defaults: {subagents: {maxChildren: 1000}}}",
            "agents.defaults.subagents.maxChildren: expected a number from 1 to 100, found 1000",
        ),
        (
            "session: {sendPolicy: {rules: [{action: maybe}]}}",
            "session.sendPolicy.rules[0].action: \"maybe\" is not known here: expected allow or deny",
        ),
        (
            "session: {sendPolicy: {rules: [{action: deny, match: {chanel: discord}}]}}",
            "unknown key \"chanel\" in session.sendPolicy.rules[0].match: did you mean \"channel\"?",
        ),
        (
            "tools: {agentToAgent: {allow: ['a b']}}",
            "tools.agentToAgent.allow[0]: \"a b\" matches no agent: expected a name, with * for any text",
        ),
        (
            "tools: {sessions: {visibility: everything}}",
            "tools.sessions.visibility: \"everything\" is not known here: expected self, tree, agent or all",
        ),
    ] {
        let told = rules_of(text).expect_err(text);
        assert_eq!(told.split_once(": ").map(|(_, told)| told), Some(said), "{told}");
    }
}

#[test]
fn a_mistake_in_an_agent_is_told_with_its_spot() {
    let agent = |rest: &str, said: &str| {
        refused(
            &format!("agents:\n  root:\n    model: openai/x\n{rest}  other: {{model: openai/x}}\n"),
            said,
        );
    };
    for (rest, said) in [
        (
            "    instrution: x\n",
            "agents.yaml:4:5: unknown key \"instrution\" in agents.root: did you mean \"instruction\"?",
        ),
        (
            "    id: x\n",
            "agents.yaml:4:9: agents.root.id: only an agent in agents.list has it; here the key \"root\" is it",
        ),
        (
            "    description: 3\n",
            "agents.yaml:4:18: agents.root.description: expected text, found the number 3: put it in quotes",
        ),
        ("    description: [a]\n", "agents.yaml:4:18: agents.root.description: expected text, found a list"),
        ("    handoffs: other\n", "agents.yaml:4:15: agents.root.handoffs: expected a list, found \"other\""),
        (
            "    handoffs: [othr]\n",
            "agents.yaml:4:16: agents.root.handoffs[0]: there is no agent \"othr\": did you mean \"other\"?",
        ),
        ("    handoffs: [root]\n", "agents.yaml:4:16: agents.root.handoffs[0]: \"root\" names itself"),
        (
            "    sub_agents:\n    - somebody\n",
            "agents.yaml:5:7: agents.root.sub_agents[0]: there is no agent \"somebody\": expected root or other",
        ),
        (
            "    toolsets: [{type: filesystm}]\n",
            "agents.yaml:4:23: agents.root.toolsets[0].type: \"filesystm\" is not known here: did you mean \"filesystem\"?",
        ),
        (
            "    toolsets: [{type: handoff}]\n",
            "agents.yaml:4:16: agents.root.toolsets[0]: there is nobody to give to: set \"handoffs\"",
        ),
        (
            "    handoffs: [other]\n    toolsets: [{type: handoff}, {type: transfer_task}]\n",
            "agents.yaml:5:33: agents.root.toolsets[1]: there is nobody to give to: set \"sub_agents\"",
        ),
        (
            "    toolsets: [{type: sesions}]\n",
            "agents.yaml:4:23: agents.root.toolsets[0].type: \"sesions\" is not known here: did you mean \"sessions\"?",
        ),
        (
            "    toolsets: [{type: x}]\n",
            "agents.yaml:4:23: agents.root.toolsets[0].type: \"x\" is not known here: expected session_plan, session_context, sessions, work, filesystem, shell, user_prompt, handoff, transfer_task or mcp",
        ),
        (
            "    subagents: {allowAgents: [a b]}\n",
            "agents.yaml:4:31: agents.root.subagents.allowAgents[0]: \"a b\" is no agent's name: expected one, or \"*\" for any",
        ),
        (
            "    subagents: {maxDepth: 2}\n",
            "agents.yaml:4:17: agents.root.subagents.maxDepth: only agents.defaults has it",
        ),
        ("    maxConcurrent: 2\n", "agents.yaml:4:5: agents.root.maxConcurrent: only agents.defaults has it"),
        (
            "    toolsets: [{tools: [shell]}]\n",
            "agents.yaml:4:16: agents.root.toolsets[0]: the key \"type\" is missing",
        ),
        (
            "    toolsets: [{type: shell, readonly: true}]\n",
            "agents.yaml:4:30: agents.root.toolsets[0].readonly: only a toolset of type filesystem has it",
        ),
        (
            "    toolsets: [{type: filesystem, readonly: yes}]\n",
            "agents.yaml:4:45: agents.root.toolsets[0].readonly: expected true or false, found \"yes\"",
        ),
        (
            "    toolsets: [{type: shell, timeout: 0}]\n",
            "agents.yaml:4:39: agents.root.toolsets[0].timeout: expected 1 second or more",
        ),
        (
            "    toolsets: [{type: session_plan, tools: [read_plan]}]\n",
            "agents.yaml:4:45: agents.root.toolsets[0].tools[0]: there is no such tool in this toolset, \"read_plan\": expected write_session_plan, read_session_plan or exit_plan_mode",
        ),
        (
            "    toolsets: [{type: filesystem, tools: [raed_file]}]\n",
            "agents.yaml:4:43: agents.root.toolsets[0].tools[0]: there is no such tool in this toolset, \"raed_file\": did you mean \"read_file\"?",
        ),
        (
            "    toolsets: [{type: mcp}]\n",
            "agents.yaml:4:16: agents.root.toolsets[0]: an mcp toolset needs \"command\" or \"url\"",
        ),
        (
            "    toolsets: [{type: mcp, command: a, url: 'http://b'}]\n",
            "agents.yaml:4:45: agents.root.toolsets[0].url: give \"command\" or \"url\", not both",
        ),
        (
            "    toolsets: [{type: mcp, url: b.example}]\n",
            "agents.yaml:4:33: agents.root.toolsets[0].url: expected an address that begins with http:// or https://",
        ),
        (
            "    toolsets: [{type: mcp, url: 'http://b', env: {A: b}}]\n",
            "agents.yaml:4:45: agents.root.toolsets[0].env: it goes with \"command\"",
        ),
        (
            "    commands: {go: {}}\n",
            "agents.yaml:4:16: agents.root.commands.go: it has neither \"instruction\" nor \"agent\"",
        ),
        (
            "    commands: {/go: hello}\n",
            "agents.yaml:4:16: agents.root.commands./go: a command is one word, written without its slash",
        ),
        (
            "    commands: {go: {agent: nobody}}\n",
            "agents.yaml:4:28: agents.root.commands.go.agent: there is no agent \"nobody\": expected root or other",
        ),
        (
            "    commands: {go: {agnt: other}}\n",
            "agents.yaml:4:21: unknown key \"agnt\" in agents.root.commands.go: did you mean \"agent\"?",
        ),
        (
            "    sandbox: 1\n",
            "agents.yaml:4:14: agents.root.sandbox: expected true, false, or a map of network, write, read and sessionToolsVisibility",
        ),
        ("    sandbox: {write: ['']}\n", "agents.yaml:4:23: agents.root.sandbox.write[0]: expected a path"),
        (
            "    limits: {turns: 0}\n",
            "agents.yaml:4:21: agents.root.limits.turns: expected more than 0: without the key there is no limit",
        ),
        (
            "    limits: {cost: -1}\n",
            "agents.yaml:4:20: agents.root.limits.cost: expected more than 0: without the key there is no limit",
        ),
    ] {
        agent(rest, said);
    }
}

#[test]
fn a_mistake_elsewhere_is_told_with_its_spot() {
    for (text, said) in [
        ("agnts: {}\n", "agents.yaml:1:1: unknown key \"agnts\": did you mean \"agents\"?"),
        (
            "store: {}\n",
            "agents.yaml:1:1: unknown key \"store\": expected agents, models, permissions, plans, tools, session, gateway or work",
        ),
        ("agents: [root]\n", "agents.yaml:1:9: agents: expected a map of keys, found a list"),
        (
            "agents: {root: {}}\n",
            "agents.yaml:1:10: agents.root: no model: set \"model\" here or in agents.defaults",
        ),
        (
            "agents: {root: {model: gpt}}\n",
            "agents.yaml:1:24: agents.root.model: there is no model \"gpt\": name one of models, or write provider/model",
        ),
        (
            "agents: {root: {model: gogle/x}}\n",
            "agents.yaml:1:24: agents.root.model: there is no provider \"gogle\": a model is a name from models, or openai/…, anthropic/… or scripted/…",
        ),
        (
            "agents: {a b: {model: openai/x}}\n",
            "agents.yaml:1:10: invalid agent id \"a b\": agent ids match [a-z0-9][a-z0-9_-]{0,63}",
        ),
        (
            "agents: {a: {model: openai/x}, A: {model: openai/x}}\n",
            "agents.yaml:1:32: two agents are called \"a\"",
        ),
        (
            "agents:\n  list:\n  - model: openai/x\n",
            "agents.yaml:3:5: agents.list[0]: the key \"id\" is missing",
        ),
        (
            "agents:\n  list:\n  - {id: list, model: openai/x}\n",
            "agents.yaml:3:5: \"list\" is no name for an agent",
        ),
        (
            "agents:\n  a: {model: openai/x, sub_agents: [b]}\n  b: {model: openai/x, sub_agents: [a]}\n",
            "agents.yaml:2:24: agent \"a\" is its own sub-agent: a → b → a",
        ),
        (
            "agents: {a: {model: openai/x}}\nplans: {on_approve: b}\n",
            "agents.yaml:2:21: plans.on_approve: there is no agent \"b\": expected a",
        ),
        ("models: {m: {provider: openai}}\n", "agents.yaml:1:13: models.m: the key \"model\" is missing"),
        (
            "models: {m: {provider: openia, model: x}}\n",
            "agents.yaml:1:24: models.m.provider: \"openia\" is not known here: did you mean \"openai\"?",
        ),
        (
            "models: {m: {provider: anthropic, model: x, api: chat}}\n",
            "agents.yaml:1:50: models.m.api: only a model of the provider openai has it",
        ),
        (
            "models: {m: {provider: openai, model: x, thinking: lots}}\n",
            "agents.yaml:1:52: models.m.thinking: expected true, false, low, medium, high or a number of tokens",
        ),
        (
            "models: {m: {provider: openai, model: x, temperature: 3}}\n",
            "agents.yaml:1:55: models.m.temperature: expected a number from 0 to 2",
        ),
        (
            "models: {m: {provider: openai, model: x, base_url: here}}\n",
            "agents.yaml:1:52: models.m.base_url: expected an address that begins with http:// or https://",
        ),
        (
            "models: {m: {provider: openai, model: x, token_key: sk-proj-12}}\n",
            "agents.yaml:1:53: models.m.token_key: expected the name of an environment variable that holds the key, not the key itself",
        ),
        (
            "permissions: {allow: ['']}\n",
            "agents.yaml:1:23: permissions.allow[0]: \"\" is no rule: expected a tool's name, or name:argument=pattern",
        ),
        (
            "tools: {context: {visibility: some}}\n",
            "agents.yaml:1:31: tools.context.visibility: \"some\" is not known here: expected agent or all",
        ),
        (
            "plans: {keep_days: -1}\n",
            "agents.yaml:1:20: plans.keep_days: expected a whole number, 0 or more, found the number -1",
        ),
        ("plans: {}\nplans: {}\n", "agents.yaml:2:1: the key \"plans\" is there twice"),
        ("plans: {}\n---\nplans: {}\n", "agents.yaml:3:1: the file holds more than one YAML document"),
        ("plans: [\n", "agents.yaml:1:8: not valid YAML: unclosed bracket '['"),
        ("plans: *nowhere\n", "agents.yaml:1:8: not valid YAML: alias references unknown anchor"),
        // All that can be told at once is.
        (
            "a1: 1\nplns: 1\nagents: 1\n",
            "agents.yaml:1:1: unknown key \"a1\": expected agents, models, permissions, plans, tools, session, gateway or work\nagents.yaml:2:1: unknown key \"plns\": did you mean \"plans\"?\nagents.yaml:3:9: agents: expected a map of keys, found the number 1",
        ),
    ] {
        refused(text, said);
    }
}

#[test]
fn handoffs_may_go_in_circles_and_teams_may_be_deep() {
    team_of("agents:\n  a: {model: openai/x, handoffs: [b]}\n  b: {model: openai/x, handoffs: [a]}\n");
    // 2^40 ways lead down through this one.
    let mut text = String::from("agents:\n  defaults: {model: openai/x}\n");
    for layer in 0..40 {
        for side in ["a", "b"] {
            let below = layer + 1;
            text += &format!("  {side}{layer}: {{sub_agents: [a{below}, b{below}]}}\n");
        }
    }
    text += "  a40:\n  b40:\n";
    assert_eq!(team_of(&text).agents().len(), 82);
    let many: String = (0..501).map(|n| format!("  a{n}:\n")).collect();
    refused(
        &format!("agents:\n  defaults: {{model: openai/x}}\n{many}"),
        "agents.yaml:1:1: there are 501 agents; the most is 500",
    );
}

#[test]
fn a_repository_lies_over_what_is_there() {
    let mut document = yaml::Document::default();
    for (origin, text) in [
        "agents: {a: {model: openai/x}}\nmodels: {m: {provider: openai, model: one}, n: {provider: openai, model: two}}\nplans: {dir: x, keep_days: 3}\n",
        "agents: {b: {model: m}}\nmodels: {m: {provider: anthropic, model: three}}\nplans: {keep_days: 4}\n",
    ]
    .into_iter()
    .enumerate()
    {
        document.lay_over(yaml::parse(text.as_bytes(), origin).expect("YAML"));
    }
    let expected = r#"{"agents":{"b":{"model":"m"}},"models":{"m":{"provider":"anthropic","model":"three"},"n":{"provider":"openai","model":"two"}},"plans":{"dir":"x","keep_days":4}}"#;
    assert_eq!(document.root.to_json().to_string(), expected);
}

/// The names that a configuration may use are those of the tools there are.
#[test]
fn tools_that_may_be_named_are_the_tools_there_are() {
    let names = |toolbox: &dyn sess_agent::tool::Toolbox| -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(toolbox.tools()).into_iter().map(|tool| tool.name).collect()
    };
    let files = sess_agent::files::Files::new("/".into(), FileAccess::ReadWrite, None);
    assert_eq!(names(&files), super::team::FILESYSTEM_TOOLS);
    let shell = sess_agent::shell::Shell::new("/".into(), Vec::new(), None, None);
    assert_eq!(names(&shell), super::team::SHELL_TOOLS);
}

fn gateway_of(text: &str) -> Result<gateway::Gateway, String> {
    read(text, |document, file| gateway::build(document, file, Some(Path::new("/home/ann"))))
}

#[test]
fn the_gateways_settings_are_an_address_names_a_certificate_and_limits() {
    let nothing = gateway_of("{}").expect("valid");
    assert!(nothing.listen.is_none() && nothing.names.is_empty() && nothing.tls.is_none());
    let gateway = gateway_of(
        "gateway:\n  listen: '[::]:443'\n  names: [Sess.Example.org]\n  tls: {cert: chain.pem, key: ~/key.pem}\n  \
         limits: {bodyBytes: 2048, drainSeconds: 0}\n",
    )
    .expect("valid");
    assert_eq!(gateway.listen.map(|address| address.to_string()).as_deref(), Some("[::]:443"));
    assert_eq!(gateway.names, ["sess.example.org"]);
    let tls = gateway.tls.expect("given");
    assert_eq!((tls.cert, tls.key), ("/work/chain.pem".into(), "/home/ann/key.pem".into()));
    assert_eq!((gateway.limits.body_bytes, gateway.limits.drain_seconds), (Some(2048), Some(0)));
    assert_eq!(gateway.limits.connections, None);
    let local = gateway_of("gateway: {listen: 'localhost:80'}").expect("valid").listen;
    assert_eq!(local.map(|address| address.to_string()).as_deref(), Some("127.0.0.1:80"));
}

#[test]
fn mistakes_in_the_gateways_settings_are_told_where_they_are() {
    let refused = |text: &str, said: &str| {
        let told = gateway_of(text).expect_err(text);
        assert!(told.contains(said), "expected {said:?} in {told:?}");
    };
    refused("gateway: {listn: 'x'}", "did you mean \"listen\"?");
    refused("gateway: {limits: {bodyByte: 1}}", "did you mean \"bodyBytes\"?");
    refused(
        "gateway: {listen: '4747'}",
        "agents.yaml:1:19: gateway.listen: \"4747\" is no address to listen on",
    );
    refused("gateway: {names: ['https://x']}", "gateway.names[0]: \"https://x\" is no host name");
    refused("gateway: {names: ['*']}", "is no host name");
    refused("gateway: {tls: {cert: a}}", "gateway.tls: a certificate needs its key");
    refused("gateway: {tls: {key: a}}", "gateway.tls: a key needs its certificate");
    refused(
        "gateway: {limits: {connections: 0}}",
        "gateway.limits.connections: expected a number from 1 to 1000000, found 0",
    );
}
