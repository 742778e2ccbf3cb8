//! From what is written to a [`Team`]: every name leads somewhere, every path is absolute.

use std::path::{Component, Path, PathBuf};

use sess_app::tools::Toolset;
use sess_core::{
    AgentId,
    agent::{
        Agent, Command, Effort, FileAccess, Limits, McpServer, ModelSpec, OpenAiApi, Price, Provider, Team,
        TeamError, Thinking, ToolsetKind, ToolsetSpec,
    },
    permission::{Permissions, Rule},
    sandbox::{Network, Sandbox, SessionTools},
};

use super::{
    de::short,
    file,
    problem::{Problem, Spot, Trail, nearest},
    yaml::Document,
};

/// The tools of the groups that only our own agents have. Those of `session_plan` and `session_context` are
/// listed where they are written, those of an `mcp` server are its own.
pub(super) const FILESYSTEM_TOOLS: &[&str] =
    &["read_file", "write_file", "edit_file", "list_directory", "search_files"];
pub(super) const SHELL_TOOLS: &[&str] = &["shell"];
const USER_PROMPT_TOOLS: &[&str] = &["user_prompt"];
/// What agents are given by their `handoffs` and `sub_agents`.
const TEAM_TOOLS: &[&str] = &["handoff", "transfer_task"];
const SHELL_ARGUMENTS: &[&str] = &["cmd", "cwd", "timeout"];

/// The most agents of one configuration.
const AGENTS_MAX: usize = 500;

/// Names in `agents` that mean something else.
const RESERVED: [&str; 2] = ["defaults", "list"];

/// Makes the team; `None` when no agents are configured.
pub fn build(
    document: &Document,
    file: &file::File,
    user_home: Option<&Path>,
) -> Result<Option<Team>, Vec<Problem>> {
    let mut building = Building { document, file, user_home, models: Vec::new(), found: Vec::new() };
    let team = building.team();
    if building.found.is_empty() { Ok(team) } else { Err(building.found) }
}

struct Building<'a> {
    document: &'a Document,
    file: &'a file::File,
    user_home: Option<&'a Path>,
    models: Vec<ModelSpec>,
    found: Vec<Problem>,
}

/// An agent as it is written, and where.
struct Written<'a> {
    name: AgentId,
    trail: Trail,
    agent: &'a file::Agent,
}

impl<'a> Building<'a> {
    /// Notes what is wrong with the value at a trail.
    fn wrong(&mut self, trail: &Trail, text: impl std::fmt::Display) {
        let at = self.document.spot(trail);
        self.wrong_at(at, format!("{trail}: {text}"));
    }

    fn wrong_at(&mut self, at: Spot, text: String) {
        self.found.push(Problem { at, text });
    }

    fn team(&mut self) -> Option<Team> {
        let root = Trail::default();
        for (name, model) in &self.file.models.0 {
            let trail = root.key("models").key(name);
            let model = self.model(name, model, &trail);
            self.models.push(model);
        }
        let written = self.written();
        let names: Vec<AgentId> = written.iter().map(|written| written.name.clone()).collect();
        let agents: Vec<Agent> = written.iter().map(|written| self.agent(written, &names)).collect();
        let toolsets = || agents.iter().flat_map(|agent| &agent.toolsets);
        let has_outside_tools = toolsets().any(|toolset| matches!(toolset.kind, ToolsetKind::Mcp(_)));
        let permissions = self.permissions(&root.key("permissions"), has_outside_tools);
        if names.is_empty() {
            return None;
        }
        let on_approve = self.file.plans.on_approve.as_deref();
        let on_approve =
            on_approve.and_then(|name| self.known_agent(name, &names, &root.key("plans").key("on_approve")));
        if !self.found.is_empty() {
            return None;
        }
        match Team::new(agents, std::mem::take(&mut self.models), permissions, on_approve) {
            Ok(team) => Some(team),
            Err(error) => {
                let at = match &error {
                    TeamError::SubAgentCycle { agent, .. } | TeamError::Itself { agent, .. } => {
                        let written = written.iter().find(|written| written.name == *agent);
                        written.map(|written| written.trail.key("sub_agents"))
                    }
                    TeamError::Empty
                    | TeamError::Twice(_)
                    | TeamError::UnknownAgent { .. }
                    | TeamError::UnknownModel { .. } => None,
                };
                let at = self.document.key_spot(&at.unwrap_or_else(|| root.key("agents")));
                self.wrong_at(at, error.to_string());
                None
            }
        }
    }

    /// Returns the agents in both forms, in the order they were written.
    fn written(&mut self) -> Vec<Written<'a>> {
        let agents = &self.file.agents;
        let root = Trail::default().key("agents");
        let mut all: Vec<(Option<&str>, Trail, &'a file::Agent)> = Vec::new();
        for (name, agent) in &agents.named {
            let trail = root.key(name);
            let own_name = [agent.id.as_ref().map(|_| "id"), agent.name.as_ref().map(|_| "name")];
            for key in own_name.into_iter().flatten() {
                let text = format!("only an agent in agents.list has it; here the key \"{name}\" is it");
                self.wrong(&trail.key(key), text);
            }
            self.only_in_defaults(agent, &trail);
            all.push((Some(name), trail, agent));
        }
        for (index, agent) in agents.list.iter().flatten().enumerate() {
            let trail = root.key("list").index(index);
            if agent.id.is_some() && agent.name.is_some() {
                self.wrong(&trail.key("name"), "give \"id\" or \"name\", not both");
            }
            self.only_in_defaults(agent, &trail);
            all.push((agent.id.as_deref().or(agent.name.as_deref()), trail, agent));
        }
        if let Some(defaults) = &agents.defaults
            && (defaults.id.is_some() || defaults.name.is_some())
        {
            self.wrong(&root.key("defaults"), "defaults are of all agents, and have no \"id\" or \"name\"");
        }
        if all.len() > AGENTS_MAX {
            let at = self.document.key_spot(&root);
            self.wrong_at(at, format!("there are {} agents; the most is {AGENTS_MAX}", all.len()));
            return Vec::new();
        }
        let mut written: Vec<Written<'a>> = Vec::new();
        for (name, trail, agent) in all {
            let at = self.document.key_spot(&trail);
            let Some(name) = name else {
                self.wrong_at(at, format!("{trail}: the key \"id\" is missing"));
                continue;
            };
            match name.parse::<AgentId>() {
                Err(error) => self.wrong_at(at, error.to_string()),
                Ok(name) if RESERVED.contains(&name.as_str()) => {
                    self.wrong_at(at, format!("\"{name}\" is no name for an agent"));
                }
                Ok(name) if written.iter().any(|other| other.name == name) => {
                    self.wrong_at(at, TeamError::Twice(name).to_string());
                }
                Ok(name) => written.push(Written { name, trail, agent }),
            }
        }
        written
    }

    fn agent(&mut self, written: &Written<'a>, names: &[AgentId]) -> Agent {
        let Written { name, trail, agent } = written;
        let nothing = file::Agent::default();
        let file = self.file;
        let defaults = file.agents.defaults.as_ref().unwrap_or(&nothing);
        let defaults_trail = Trail::default().key("agents").key("defaults");
        // Each key comes from the agent itself, else from the defaults, and is looked up where it was written.
        let of = |key: &str, is_own: bool| if is_own { trail.key(key) } else { defaults_trail.key(key) };

        let model = match agent.model.as_deref().or(defaults.model.as_deref()) {
            Some(model) => self.model_name(model, &of("model", agent.model.is_some())),
            None => {
                let at = self.document.key_spot(trail);
                self.wrong_at(at, format!("{trail}: no model: set \"model\" here or in agents.defaults"));
                String::new()
            }
        };
        let toolsets_trail = of("toolsets", agent.toolsets.is_some());
        let toolsets = agent.toolsets.as_ref().or(defaults.toolsets.as_ref()).map(|toolsets| {
            let each = toolsets.iter().enumerate();
            each.filter_map(|(n, toolset)| self.toolset(toolset, &toolsets_trail.index(n))).collect()
        });
        let commands_trail = of("commands", agent.commands.is_some());
        let commands = agent.commands.as_ref().or(defaults.commands.as_ref()).map(|commands| {
            let each = commands.0.iter();
            each.map(|(word, command)| self.command(word, command, names, &commands_trail.key(word)))
                .collect()
        });
        let mut others = |own: &Option<Vec<String>>, default: &Option<Vec<String>>, key| {
            let list_trail = of(key, own.is_some());
            let mut others: Vec<AgentId> = Vec::new();
            for (n, other) in own.as_ref().or(default.as_ref()).into_iter().flatten().enumerate() {
                let trail = list_trail.index(n);
                let Some(other) = self.known_agent(other, names, &trail) else { continue };
                if other == *name {
                    // In the defaults it means the others.
                    if own.is_some() {
                        self.wrong(&trail, format!("\"{name}\" names itself"));
                    }
                } else if !others.contains(&other) {
                    others.push(other);
                }
            }
            others
        };
        let handoffs = others(&agent.handoffs, &defaults.handoffs, "handoffs");
        let sub_agents = others(&agent.sub_agents, &defaults.sub_agents, "sub_agents");
        for (n, toolset) in agent.toolsets.iter().flatten().enumerate() {
            let needed = match toolset.kind {
                file::ToolsetType::Handoff if handoffs.is_empty() => "handoffs",
                file::ToolsetType::TransferTask if sub_agents.is_empty() => "sub_agents",
                _ => continue,
            };
            self.wrong(
                &trail.key("toolsets").index(n),
                format!("there is nobody to give to: set \"{needed}\""),
            );
        }
        let sandbox = agent.sandbox.as_ref().or(defaults.sandbox.as_ref());
        let sandbox_trail = of("sandbox", agent.sandbox.is_some());
        Agent {
            name: name.clone(),
            description: agent.description.clone().or(defaults.description.clone()).unwrap_or_default(),
            instruction: agent.instruction.clone().or(defaults.instruction.clone()).unwrap_or_default(),
            model,
            toolsets: toolsets.unwrap_or_default(),
            commands: commands.unwrap_or_default(),
            handoffs,
            sub_agents,
            sandbox: sandbox.and_then(|sandbox| {
                let made = self.sandbox(sandbox, &sandbox_trail)?;
                let said = |sandbox: &Option<file::Sandbox>| match sandbox {
                    Some(file::Sandbox::Settings(settings)) => settings.session_tools_visibility,
                    Some(file::Sandbox::Switch(_)) | None => None,
                };
                let session_tools = match said(&agent.sandbox).or_else(|| said(&defaults.sandbox)) {
                    Some(file::SessionTools::All) => SessionTools::All,
                    Some(file::SessionTools::Spawned) | None => SessionTools::Spawned,
                };
                Some(Sandbox { session_tools, ..made })
            }),
            allow_agents: self.allow_agents(agent, defaults, &of),
            limits: self.limits(
                agent.limits.unwrap_or_default(),
                defaults.limits.unwrap_or_default(),
                [&trail.key("limits"), &defaults_trail.key("limits")],
            ),
        }
    }

    /// What counts for a whole process or tree is set once.
    fn only_in_defaults(&mut self, agent: &file::Agent, trail: &Trail) {
        let sub_agents = agent.subagents.as_ref();
        let is_given = |given: fn(&file::SubAgents) -> bool| sub_agents.is_some_and(given);
        let below = trail.key("subagents");
        for (trail, is_given) in [
            (trail.key("maxConcurrent"), agent.max_concurrent.is_some()),
            (below.key("maxChildren"), is_given(|given| given.max_children.is_some())),
            (below.key("maxDepth"), is_given(|given| given.max_depth.is_some())),
            (below.key("runTimeoutSeconds"), is_given(|given| given.run_timeout_seconds.is_some())),
            (below.key("archiveAfterMinutes"), is_given(|given| given.archive_after_minutes.is_some())),
        ] {
            if is_given {
                let at = self.document.key_spot(&trail);
                self.wrong_at(at, format!("{trail}: only agents.defaults has it"));
            }
        }
    }

    /// Returns whom an agent may spawn. Names need not be configured: then that is what a spawn is told.
    fn allow_agents(
        &mut self,
        agent: &file::Agent,
        defaults: &file::Agent,
        of: &dyn Fn(&str, bool) -> Trail,
    ) -> Vec<String> {
        let list = |agent: &'_ file::Agent| agent.subagents.as_ref().and_then(|own| own.allow_agents.clone());
        let own = list(agent);
        let trail = of("subagents", own.is_some()).key("allowAgents");
        let names = own.or_else(|| list(defaults)).unwrap_or_default();
        let (names, problems) = super::rules::agent_names(&names, &trail);
        for (trail, text) in problems {
            let at = self.document.spot(&trail);
            // The defaults are looked at with every agent, and told once.
            if !self.found.iter().any(|problem| problem.at == at) {
                self.wrong(&trail, text);
            }
        }
        names
    }

    fn known_agent(&mut self, name: &str, names: &[AgentId], trail: &Trail) -> Option<AgentId> {
        let parsed = name.parse::<AgentId>().ok().filter(|parsed| names.contains(parsed));
        if parsed.is_none() {
            let near = nearest(name, names.iter().map(AgentId::as_str));
            self.wrong(trail, format!("there is no agent \"{}\"{near}", short(name)));
        }
        parsed
    }

    fn limits(&mut self, own: file::Limits, defaults: file::Limits, trails: [&Trail; 2]) -> Limits {
        for (limits, trail) in [(own, trails[0]), (defaults, trails[1])] {
            for (key, is_none) in [
                ("turns", limits.turns == Some(0)),
                ("tokens", limits.tokens == Some(0)),
                ("seconds", limits.seconds == Some(0)),
                ("cost", limits.cost.is_some_and(|cost| !(cost > 0.0 && cost.is_finite()))),
            ] {
                let trail = trail.key(key);
                let at = self.document.spot(&trail);
                // The defaults are looked at with every agent, and told once.
                if is_none && !self.found.iter().any(|problem| problem.at == at) {
                    self.wrong(&trail, "expected more than 0: without the key there is no limit");
                }
            }
        }
        Limits {
            turns: own.turns.or(defaults.turns).unwrap_or(Limits::TURNS),
            tokens: own.tokens.or(defaults.tokens),
            cost: own.cost.or(defaults.cost),
            seconds: own.seconds.or(defaults.seconds),
        }
    }

    fn command(&mut self, word: &str, command: &file::Command, names: &[AgentId], trail: &Trail) -> Command {
        if word.is_empty() || word.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
            let at = self.document.key_spot(trail);
            let text = format!("{trail}: a command is one word, written without its slash");
            self.wrong_at(at, text);
        }
        match command {
            file::Command::Instruction(text) => Command {
                name: word.to_owned(),
                description: String::new(),
                instruction: Some(text.clone()),
                agent: None,
            },
            file::Command::Full(full) => {
                if full.instruction.is_none() && full.agent.is_none() {
                    let at = self.document.key_spot(trail);
                    self.wrong_at(at, format!("{trail}: it has neither \"instruction\" nor \"agent\""));
                }
                let agent = full.agent.as_deref();
                Command {
                    name: word.to_owned(),
                    description: full.description.clone().unwrap_or_default(),
                    instruction: full.instruction.clone(),
                    agent: agent.and_then(|agent| self.known_agent(agent, names, &trail.key("agent"))),
                }
            }
        }
    }

    fn toolset(&mut self, toolset: &file::Toolset, trail: &Trail) -> Option<ToolsetSpec> {
        use file::ToolsetType as Type;

        let found = self.found.len();
        for (key, is_given, kind, of) in [
            ("readonly", toolset.readonly.is_some(), Type::Filesystem, "filesystem"),
            ("timeout", toolset.timeout.is_some(), Type::Shell, "shell"),
            ("command", toolset.command.is_some(), Type::Mcp, "mcp"),
            ("args", toolset.args.is_some(), Type::Mcp, "mcp"),
            ("env", toolset.env.is_some(), Type::Mcp, "mcp"),
            ("url", toolset.url.is_some(), Type::Mcp, "mcp"),
            ("headers", toolset.headers.is_some(), Type::Mcp, "mcp"),
        ] {
            if is_given && toolset.kind != kind {
                let at = self.document.key_spot(&trail.key(key));
                self.wrong_at(at, format!("{}: only a toolset of type {of} has it", trail.key(key)));
            }
        }
        let kind = match toolset.kind {
            Type::SessionPlan => ToolsetKind::SessionPlan,
            Type::SessionContext => ToolsetKind::SessionContext,
            Type::Sessions => ToolsetKind::Sessions,
            Type::Work => ToolsetKind::Work,
            Type::UserPrompt => ToolsetKind::UserPrompt,
            Type::Filesystem => ToolsetKind::Filesystem {
                access: match toolset.readonly {
                    Some(true) => FileAccess::ReadOnly,
                    Some(false) | None => FileAccess::ReadWrite,
                },
            },
            Type::Shell => {
                if toolset.timeout == Some(0) {
                    self.wrong(&trail.key("timeout"), "expected 1 second or more");
                }
                ToolsetKind::Shell { timeout_seconds: toolset.timeout }
            }
            Type::Mcp => ToolsetKind::Mcp(self.mcp_server(toolset, trail)?),
            // The lists of agents give these tools: there is nothing to add.
            Type::Handoff | Type::TransferTask => return None,
        };
        let known: Option<Vec<&str>> = match toolset.kind {
            _ if toolset.tools.is_none() => None,
            Type::SessionPlan => Some(own_tools(Toolset::SessionPlan)),
            Type::SessionContext => Some(own_tools(Toolset::SessionContext)),
            Type::Sessions => Some(own_tools(Toolset::Sessions)),
            Type::Work => Some(own_tools(Toolset::Work)),
            Type::Filesystem => Some(FILESYSTEM_TOOLS.to_vec()),
            Type::Shell => Some(SHELL_TOOLS.to_vec()),
            Type::UserPrompt => Some(USER_PROMPT_TOOLS.to_vec()),
            Type::Mcp | Type::Handoff | Type::TransferTask => None,
        };
        for (n, tool) in toolset.tools.iter().flatten().enumerate() {
            if let Some(known) = &known
                && !known.contains(&tool.as_str())
            {
                let near = nearest(tool, known.iter().copied());
                let text = format!("there is no such tool in this toolset, \"{}\"{near}", short(tool));
                self.wrong(&trail.key("tools").index(n), text);
            }
        }
        (self.found.len() == found).then(|| ToolsetSpec { kind, tools: toolset.tools.clone() })
    }

    fn mcp_server(&mut self, toolset: &file::Toolset, trail: &Trail) -> Option<McpServer> {
        let pairs = |entries: &Option<file::Entries<String>>| {
            entries.as_ref().map(|entries| entries.0.clone()).unwrap_or_default()
        };
        let misplaced = |this: &mut Self, key: &str, is_given: bool, with: &str| {
            if is_given {
                let at = this.document.key_spot(&trail.key(key));
                this.wrong_at(at, format!("{}: it goes with \"{with}\"", trail.key(key)));
            }
        };
        match (&toolset.command, &toolset.url) {
            (Some(command), None) => {
                misplaced(self, "headers", toolset.headers.is_some(), "url");
                if command.trim().is_empty() {
                    self.wrong(&trail.key("command"), "expected a program");
                }
                let args = toolset.args.clone().unwrap_or_default();
                Some(McpServer::Command { command: command.clone(), args, env: pairs(&toolset.env) })
            }
            (None, Some(url)) => {
                misplaced(self, "args", toolset.args.is_some(), "command");
                misplaced(self, "env", toolset.env.is_some(), "command");
                self.check_url(url, &trail.key("url"));
                Some(McpServer::Url { url: url.clone(), headers: pairs(&toolset.headers) })
            }
            (Some(_), Some(_)) => {
                self.wrong(&trail.key("url"), "give \"command\" or \"url\", not both");
                None
            }
            (None, None) => {
                let at = self.document.spot(trail);
                self.wrong_at(at, format!("{trail}: an mcp toolset needs \"command\" or \"url\""));
                None
            }
        }
    }

    fn check_url(&mut self, url: &str, trail: &Trail) {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let is_url = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
        if !is_url || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            self.wrong(trail, "expected an address that begins with http:// or https://");
        }
    }

    fn sandbox(&mut self, sandbox: &file::Sandbox, trail: &Trail) -> Option<Sandbox> {
        let settings = match sandbox {
            file::Sandbox::Switch(false) => return None,
            file::Sandbox::Switch(true) => return Some(Sandbox::default()),
            file::Sandbox::Settings(settings) => settings,
        };
        let mut paths = |key: &str, paths: &Option<Vec<String>>| {
            let trail = trail.key(key);
            let each = paths.iter().flatten().enumerate();
            each.filter_map(|(n, path)| self.absolute(path, &trail.index(n))).collect()
        };
        Some(Sandbox {
            network: match settings.network {
                Some(true) => Network::Allowed,
                Some(false) | None => Network::None,
            },
            write: paths("write", &settings.write),
            read: paths("read", &settings.read),
            // The defaults may say it for an agent's own sandbox.
            session_tools: SessionTools::Spawned,
        })
    }

    /// Returns a path from its file's directory, or from the person's home, without `.` and `..`.
    fn absolute(&mut self, path: &str, trail: &Trail) -> Option<String> {
        if path.is_empty() || path.contains('\0') {
            self.wrong(trail, "expected a path");
            return None;
        }
        let of_home = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let joined = match (of_home, self.user_home) {
            (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
            (Some(_), None) => {
                self.wrong(trail, "HOME is not set, so ~ leads nowhere");
                return None;
            }
            (None, _) => {
                let dir = self.document.origin(trail).map(|origin| origin.dir.clone());
                dir.unwrap_or_default().join(path)
            }
        };
        let absolute = std::path::absolute(joined).map(|path| plain(&path)).ok();
        let text = absolute.and_then(|path| path.to_str().map(str::to_owned));
        if text.is_none() {
            self.wrong(trail, "the path cannot be made absolute, or is not UTF-8");
        }
        text
    }

    /// Returns the name of the model that an agent uses; one that is given inline joins the others.
    fn model_name(&mut self, written: &str, trail: &Trail) -> String {
        if self.file.models.get(written).is_some() || self.models.iter().any(|model| model.name == written) {
            return written.to_owned();
        }
        let provider = match written.split_once('/') {
            Some(("openai", rest)) if !rest.is_empty() => Provider::OpenAi(OpenAiApi::default()),
            Some(("anthropic", rest)) if !rest.is_empty() => Provider::Anthropic,
            Some(("scripted", rest)) if !rest.is_empty() => Provider::Scripted,
            Some((provider, _)) => {
                let text = format!(
                    "there is no provider \"{}\": a model is a name from models, or openai/…, anthropic/… or \
                     scripted/…",
                    short(provider)
                );
                self.wrong(trail, text);
                return String::new();
            }
            None => {
                let near = nearest(written, self.file.models.names());
                let near = if near.starts_with(": did") {
                    near
                } else {
                    ": name one of models, or write provider/model".to_owned()
                };
                self.wrong(trail, format!("there is no model \"{}\"{near}", short(written)));
                return String::new();
            }
        };
        let model = written.split_once('/').map_or("", |(_, model)| model);
        let model = match provider {
            Provider::Scripted => self.absolute(model, trail).unwrap_or_default(),
            Provider::OpenAi(_) | Provider::Anthropic => model.to_owned(),
        };
        self.models.push(ModelSpec {
            name: written.to_owned(),
            provider,
            model,
            base_url: None,
            token_key: None,
            max_tokens: None,
            temperature: None,
            thinking: Thinking::Unset,
            context_window: None,
            price: None,
        });
        written.to_owned()
    }

    fn model(&mut self, name: &str, model: &file::Model, trail: &Trail) -> ModelSpec {
        let provider = match (model.provider, model.api) {
            (file::Provider::OpenAi, None | Some(file::Api::Chat)) => Provider::OpenAi(OpenAiApi::Chat),
            (file::Provider::OpenAi, Some(file::Api::Responses)) => Provider::OpenAi(OpenAiApi::Responses),
            (file::Provider::Anthropic, _) => Provider::Anthropic,
            (file::Provider::Scripted, _) => Provider::Scripted,
        };
        if model.api.is_some() && model.provider != file::Provider::OpenAi {
            self.wrong(&trail.key("api"), "only a model of the provider openai has it");
        }
        if model.model.trim().is_empty() {
            self.wrong(&trail.key("model"), "expected the model's name");
        }
        if let Some(url) = &model.base_url {
            self.check_url(url, &trail.key("base_url"));
        }
        if let Some(variable) = &model.token_key
            && !is_variable(variable)
        {
            // Whoever wrote the key itself here does not want to read it again.
            self.wrong(
                &trail.key("token_key"),
                "expected the name of an environment variable that holds the key, not the key itself",
            );
        }
        for (key, value) in [("max_tokens", model.max_tokens), ("context_window", model.context_window)] {
            if value == Some(0) {
                self.wrong(&trail.key(key), "expected 1 or more");
            }
        }
        if model.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
            self.wrong(&trail.key("temperature"), "expected a number from 0 to 2");
        }
        let price = model.price;
        if let Some(price) = price {
            for (key, cost) in [
                ("input", price.input),
                ("output", price.output),
                ("cache_read", price.cache_read),
                ("cache_write", price.cache_write),
            ] {
                if !(cost >= 0.0 && cost.is_finite()) {
                    self.wrong(&trail.key("price").key(key), "expected 0 or more");
                }
            }
        }
        let named = match provider {
            Provider::Scripted => self.absolute(&model.model, &trail.key("model")).unwrap_or_default(),
            Provider::OpenAi(_) | Provider::Anthropic => model.model.clone(),
        };
        ModelSpec {
            name: name.to_owned(),
            provider,
            model: named,
            base_url: model.base_url.clone(),
            token_key: model.token_key.clone(),
            max_tokens: model.max_tokens,
            temperature: model.temperature,
            thinking: match model.thinking {
                None => Thinking::Unset,
                Some(file::Thinking::Switch(false) | file::Thinking::Tokens(0)) => Thinking::Off,
                Some(file::Thinking::Switch(true) | file::Thinking::Effort(file::Effort::Medium)) => {
                    Thinking::Effort(Effort::Medium)
                }
                Some(file::Thinking::Tokens(tokens)) => Thinking::Tokens(tokens),
                Some(file::Thinking::Effort(file::Effort::Low)) => Thinking::Effort(Effort::Low),
                Some(file::Thinking::Effort(file::Effort::High)) => Thinking::Effort(Effort::High),
            },
            context_window: model.context_window,
            price: price.map(|price| Price {
                input: price.input,
                output: price.output,
                cache_read: price.cache_read,
                cache_write: price.cache_write,
            }),
        }
    }

    /// A rule that can never match would deny nothing in silence.
    fn permissions(&mut self, trail: &Trail, has_outside_tools: bool) -> Permissions {
        let mut tools: Vec<&str> = sess_app::tools::all().iter().map(|tool| tool.name).collect();
        tools.extend([FILESYSTEM_TOOLS, SHELL_TOOLS, USER_PROMPT_TOOLS, TEAM_TOOLS].concat());
        let check = |rule: &Rule| {
            let tool = rule.tool();
            if !tool.contains('*') && !has_outside_tools && !tools.contains(&tool) {
                let near = nearest(tool, tools.iter().copied());
                return Err(format!("there is no tool \"{}\"{near}", short(tool)));
            }
            let unknown = rule.arguments().find(|name| tool == "shell" && !SHELL_ARGUMENTS.contains(name));
            unknown.map_or(Ok(()), |name| {
                let near = nearest(name, SHELL_ARGUMENTS.iter().copied());
                Err(format!("shell has no argument \"{}\"{near}", short(name)))
            })
        };
        let written = &self.file.permissions;
        let mut rules = |key: &str, texts: &[String]| {
            let trail = trail.key(key);
            let mut rules = Vec::new();
            for (n, text) in texts.iter().enumerate() {
                match text.parse::<Rule>() {
                    Ok(rule) => {
                        if let Err(text) = check(&rule) {
                            self.wrong(&trail.index(n), text);
                        }
                        rules.push(rule);
                    }
                    Err(error) => self.wrong(&trail.index(n), error),
                }
            }
            rules
        };
        Permissions {
            allow: rules("allow", &written.allow),
            ask: rules("ask", &written.ask),
            deny: rules("deny", &written.deny),
            always: Vec::new(),
        }
    }
}

fn own_tools(toolset: Toolset) -> Vec<&'static str> {
    sess_app::tools::all().iter().filter(|tool| tool.toolset == toolset).map(|tool| tool.name).collect()
}

fn is_variable(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Takes `.` and `..` out of an absolute path, by its words alone: what is named need not exist yet.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}
