//! The configuration as it is written. Doc comments here are the descriptions in the JSON Schema.
//!
//! What the words in it mean together is settled in `team`.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer},
};

/// The configuration of `sess`: agents, models, permissions and settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Intersession configuration")]
pub struct File {
    /// The agents, by name.
    pub agents: Agents,
    /// Models that agents name; an agent can also name one inline, as provider/model.
    pub models: Entries<Model>,
    /// Which tools may act without asking. Not in a repository's sess.yaml.
    pub permissions: Permissions,
    /// Where plans are kept, how long, and who executes them.
    pub plans: Plans,
    /// Settings of the tools that agents call.
    pub tools: Tools,
    /// How sessions are addressed, and how far they go with each other.
    pub session: Sessions,
    /// Where `sess serve` listens, and how far its clients may go. Not in a repository's sess.yaml.
    pub gateway: Gateway,
    /// How work sessions are held, landed and checked.
    pub work: WorkSessions,
}

/// A map in the order in which it was written.
#[derive(Debug)]
pub struct Entries<T>(pub Vec<(String, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Entries<T> {
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn schema_name() -> Cow<'static, str> {
        BTreeMap::<String, T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, T>::json_schema(generator)
    }

    fn inline_schema() -> bool {
        true
    }
}

/// Agents by name; `defaults` holds what all of them share, `list` is another way to write them.
#[derive(Debug, Default)]
pub struct Agents {
    pub defaults: Option<Agent>,
    pub list: Option<Vec<Agent>>,
    pub named: Vec<(String, Agent)>,
}

impl<'de> Deserialize<'de> for Agents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EitherForm;

        impl<'de> Visitor<'de> for EitherForm {
            type Value = Agents;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of agents")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut agents = Agents::default();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "defaults" => agents.defaults = map.next_value()?,
                        "list" => agents.list = map.next_value()?,
                        _ => {
                            let agent: Option<Agent> = map.next_value()?;
                            agents.named.push((name, agent.unwrap_or_default()));
                        }
                    }
                }
                Ok(agents)
            }
        }

        deserializer.deserialize_map(EitherForm)
    }
}

impl JsonSchema for Agents {
    fn schema_name() -> Cow<'static, str> {
        "Agents".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let agent = generator.subschema_for::<Agent>();
        schemars::json_schema!({
            "description": "Agents by name; `defaults` holds what all of them share, `list` is another way to \
                            write them.",
            "type": "object",
            "properties": {
                "defaults": agent,
                "list": { "type": "array", "items": agent },
            },
            "propertyNames": { "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$" },
            "additionalProperties": agent,
        })
    }
}

/// One agent: a model, what it is told, and what it may use.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Agent {
    /// The agent's name. Only in `agents.list`; elsewhere the key is the name.
    pub id: Option<String>,
    /// The same as `id`.
    pub name: Option<String>,
    /// A name from `models`, or provider/model: anthropic/claude-sonnet-4-5, openai/gpt-5,
    /// scripted/replies.yaml.
    pub model: Option<String>,
    /// What it is for, in one line; other agents read it before they hand over.
    pub description: Option<String>,
    /// What the model is told before anything else.
    pub instruction: Option<String>,
    /// The groups of tools it is given.
    pub toolsets: Option<Vec<Toolset>>,
    /// Words that begin a message with a slash.
    pub commands: Option<Entries<Command>>,
    /// Agents that it may hand the session to. They may hand it back.
    pub handoffs: Option<Vec<String>>,
    /// Agents that it may give a task, each in a session of its own.
    pub sub_agents: Option<Vec<String>>,
    /// Confines its tools: true, or what they may reach. false is the same as nothing.
    pub sandbox: Option<Sandbox>,
    /// How far one run may go.
    pub limits: Option<Limits>,
    /// The sub-agents that it spawns.
    pub subagents: Option<SubAgents>,
    /// How many runs one process executes beside the conversation it shows, 1 to 100; 8 when not given. Only in
    /// `agents.defaults`. SESS_AGENTS_DEFAULTS_MAX_CONCURRENT.
    #[serde(rename = "maxConcurrent")]
    #[schemars(range(min = 1, max = 100))]
    pub max_concurrent: Option<u32>,
}

/// Sub-agents: sessions that an agent spawns for a task. All but allowAgents only in `agents.defaults`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct SubAgents {
    /// Agents that it may spawn besides itself; "*" is any. SESS_AGENTS_DEFAULTS_SUBAGENTS_ALLOW_AGENTS.
    pub allow_agents: Option<Vec<String>>,
    /// How many unfinished ones a session may have, 1 to 100; 5 when not given.
    /// SESS_AGENTS_DEFAULTS_SUBAGENTS_MAX_CHILDREN.
    #[schemars(range(min = 1, max = 100))]
    pub max_children: Option<u32>,
    /// How many sessions may be below each other, 1 to 20; 5 when not given.
    /// SESS_AGENTS_DEFAULTS_SUBAGENTS_MAX_DEPTH.
    #[schemars(range(min = 1, max = 20))]
    pub max_depth: Option<u32>,
    /// The seconds after which one is stopped; 0, when not given, is never.
    /// SESS_AGENTS_DEFAULTS_SUBAGENTS_RUN_TIMEOUT_SECONDS.
    #[schemars(range(max = 604800))]
    pub run_timeout_seconds: Option<u64>,
    /// The minutes after its end at which one is archived, 1 to 525600; 60 when not given.
    /// SESS_AGENTS_DEFAULTS_SUBAGENTS_ARCHIVE_AFTER_MINUTES.
    #[schemars(range(min = 1, max = 525600))]
    pub archive_after_minutes: Option<u64>,
}

/// A group of tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Toolset {
    /// Which group.
    #[serde(rename = "type")]
    pub kind: ToolsetType,
    /// Only these of its tools; all when not given.
    pub tools: Option<Vec<String>>,
    /// filesystem: reading only.
    pub readonly: Option<bool>,
    /// shell: the seconds after which a command is ended.
    #[schemars(range(min = 1))]
    pub timeout: Option<u32>,
    /// mcp: the program that is started as a server on its standard input and output.
    pub command: Option<String>,
    /// mcp: the program's arguments.
    pub args: Option<Vec<String>>,
    /// mcp: variables of the program's environment.
    pub env: Option<Entries<String>>,
    /// mcp: the address of a server that is reached over HTTP.
    pub url: Option<String>,
    /// mcp: headers of every request to it.
    pub headers: Option<Entries<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolsetType {
    /// Draft, read and finish this session's plan.
    SessionPlan,
    /// List and read earlier sessions.
    SessionContext,
    /// List sessions, read their history, send to them and spawn sub-agents.
    Sessions,
    /// List, claim and finish work sessions of the repository, and note what is done.
    Work,
    /// Read and change files in the workspace.
    Filesystem,
    /// Run commands.
    Shell,
    /// Ask the person.
    UserPrompt,
    /// Hand the session over to one of `handoffs`; given without being named, too.
    Handoff,
    /// Give a task to one of `sub_agents`; given without being named, too.
    TransferTask,
    /// The tools of an outside MCP server.
    Mcp,
}

/// A word that begins a message with a slash: what the agent is told, or more.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Command {
    /// What the agent is told; ${args} stands for the rest of the line.
    Instruction(String),
    Full(FullCommand),
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FullCommand {
    /// What it does, in one line.
    pub description: Option<String>,
    /// What the agent is told; ${args} stands for the rest of the line.
    pub instruction: Option<String>,
    /// The agent that the session is switched to.
    pub agent: Option<String>,
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        either(deserializer, "an instruction, or a map of description, instruction and agent").and_then(
            |found| match found {
                Either::Scalar(Scalar::Text(text)) => Ok(Self::Instruction(text)),
                Either::Map(full) => Ok(Self::Full(full)),
                Either::Scalar(_) => Err(D::Error::custom(
                    "expected an instruction, or a map of description, instruction and agent",
                )),
            },
        )
    }
}

/// Confines an agent's tools.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Sandbox {
    /// true: writes in the workspace alone, no network. false: not confined.
    Switch(bool),
    Settings(SandboxSettings),
}

/// What a confined agent's tools may reach beside the workspace.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSettings {
    /// Whether they reach the network; false when not given.
    pub network: Option<bool>,
    /// Directories that they may write; ~ is your home, others begin at this file's directory.
    pub write: Option<Vec<String>>,
    /// Directories that they may read.
    pub read: Option<Vec<String>>,
    /// Which sessions its session tools show.
    #[serde(rename = "sessionToolsVisibility")]
    pub session_tools_visibility: Option<SessionTools>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionTools {
    /// Its own session and what that started.
    Spawned,
    /// Whatever it would see without a sandbox.
    All,
}

impl<'de> Deserialize<'de> for Sandbox {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "true, false, or a map of network, write, read and sessionToolsVisibility";
        either(deserializer, expected).and_then(|found| match found {
            Either::Scalar(Scalar::Bool(switch)) => Ok(Self::Switch(switch)),
            Either::Map(settings) => Ok(Self::Settings(settings)),
            Either::Scalar(_) => Err(D::Error::custom(format!("expected {expected}"))),
        })
    }
}

/// How far one run may go. What is not given comes from agents.defaults.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// How often the model is asked; 100 when not given.
    #[schemars(range(min = 1))]
    pub turns: Option<u32>,
    /// Tokens in and out, of all calls.
    #[schemars(range(min = 1))]
    pub tokens: Option<u64>,
    /// What it may cost, in the currency of `price`.
    pub cost: Option<f64>,
    /// How long it may take.
    #[schemars(range(min = 1))]
    pub seconds: Option<u64>,
}

/// A model, and how it is reached.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Whose interface it speaks.
    pub provider: Provider,
    /// How the provider calls it; for `scripted`, the file of replies, from this file's directory.
    pub model: String,
    /// openai: Chat Completions (chat, when not given) or Responses.
    pub api: Option<Api>,
    /// Where it is; OPENAI_BASE_URL, ANTHROPIC_BASE_URL or the provider's own when not given.
    pub base_url: Option<String>,
    /// The environment variable that holds the key; OPENAI_API_KEY or ANTHROPIC_API_KEY when not given.
    pub token_key: Option<String>,
    /// The most tokens of one answer.
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// How freely it chooses words, 0 to 2.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// How much it thinks first: false, true (medium), low, medium, high, or a number of tokens.
    pub thinking: Option<Thinking>,
    /// How many tokens it takes in; older messages are summed up before it is full.
    #[schemars(range(min = 1))]
    pub context_window: Option<u32>,
    /// What a million tokens cost; for limits.cost and the cost line.
    pub price: Option<Price>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// OpenAI, and what speaks like it.
    #[serde(rename = "openai")]
    OpenAi,
    Anthropic,
    /// Prepared replies from a file.
    Scripted,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// Chat Completions.
    Chat,
    /// Responses.
    Responses,
}

/// How much a model thinks first.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Thinking {
    /// true is medium.
    Switch(bool),
    /// At most this many tokens; 0 is none.
    Tokens(u32),
    Effort(Effort),
}

#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum Effort {
    Low,
    Medium,
    High,
}

impl<'de> Deserialize<'de> for Thinking {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "true, false, low, medium, high or a number of tokens";
        let wrong = || D::Error::custom(format!("expected {expected}"));
        match either::<D, Nothing>(deserializer, expected)? {
            Either::Scalar(Scalar::Bool(switch)) => Ok(Self::Switch(switch)),
            Either::Scalar(Scalar::Whole(tokens)) => {
                u32::try_from(tokens).map(Self::Tokens).map_err(|_| wrong())
            }
            Either::Scalar(Scalar::Text(text)) => match text.as_str() {
                "low" => Ok(Self::Effort(Effort::Low)),
                "medium" => Ok(Self::Effort(Effort::Medium)),
                "high" => Ok(Self::Effort(Effort::High)),
                _ => Err(wrong()),
            },
            Either::Map(Nothing {}) => Err(wrong()),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Nothing {}

/// What a million tokens cost. What is not given costs nothing.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Price {
    /// Tokens that the model takes in.
    pub input: f64,
    /// Tokens that it writes.
    pub output: f64,
    /// Tokens that it takes in from its cache.
    pub cache_read: f64,
    /// Tokens that it puts into its cache.
    pub cache_write: f64,
}

/// Rules of the form tool, or tool:argument=pattern, with * for any text. deny comes before ask before allow.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Permissions {
    /// What may act without asking.
    pub allow: Vec<String>,
    /// What is asked about, even if allow has it.
    pub ask: Vec<String>,
    /// What may never act.
    pub deny: Vec<String>,
}

/// Settings of plans.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Plans {
    /// Where plan files are. SESS_PLANS_DIR.
    pub dir: Option<String>,
    /// The days after which an unused plan file is removed; 0 keeps all, 30 when not given.
    /// SESS_PLANS_KEEP_DAYS.
    pub keep_days: Option<u32>,
    /// The agent that executes an approved plan. SESS_PLANS_ON_APPROVE.
    pub on_approve: Option<String>,
}

/// Settings of tools.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tools {
    /// list_sessions and read_session.
    pub context: ContextTools,
    /// sessions_list, sessions_history and sessions_send.
    pub sessions: SessionsTools,
    /// Whether agents reach sessions of other agents. Not in a repository's sess.yaml.
    #[serde(rename = "agentToAgent")]
    pub agent_to_agent: AgentToAgent,
    /// What spawned sessions are given.
    pub subagents: SubAgentTools,
}

/// Settings of sessions_list, sessions_history and sessions_send.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionsTools {
    /// Which sessions an agent reaches; tree when not given. SESS_TOOLS_SESSIONS_VISIBILITY. Not in a
    /// repository's sess.yaml.
    pub visibility: Option<SessionsVisibility>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionsVisibility {
    /// Its own.
    #[serde(rename = "self")]
    Own,
    /// Its own and what that spawned, at any depth.
    Tree,
    /// Every session of the same agent.
    Agent,
    /// Those of other agents too, as far as tools.agentToAgent allows.
    All,
}

/// Whether agents reach sessions of other agents.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentToAgent {
    /// false when not given. SESS_TOOLS_AGENT_TO_AGENT_ENABLED.
    pub enabled: Option<bool>,
    /// Both agents must be named here, with * for any text; all when it is empty.
    /// SESS_TOOLS_AGENT_TO_AGENT_ALLOW.
    pub allow: Option<Vec<String>>,
}

/// Settings of spawned sessions' tools.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SubAgentTools {
    /// Which tools they are given: all of their agent's but those for sessions, when not given.
    pub tools: ToolFilter,
}

/// Tools by name, with * for any text. deny comes before allow.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolFilter {
    /// Only these; tools for sessions only when they are named. SESS_TOOLS_SUBAGENTS_TOOLS_ALLOW.
    pub allow: Option<Vec<String>>,
    /// Never these. SESS_TOOLS_SUBAGENTS_TOOLS_DENY.
    pub deny: Option<Vec<String>>,
}

/// How sessions are addressed, and how far they go with each other.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Sessions {
    /// Whether direct chats are one for each agent or one for all; per-agent when not given.
    /// SESS_SESSION_SCOPE.
    pub scope: Option<DirectScope>,
    /// May messages be sent into sessions, and replies leave for channels? Not in a repository's sess.yaml.
    pub send_policy: SendPolicy,
    /// How far messages between agents go.
    pub agent_to_agent: Exchanges,
    /// How many runs may wait in one session, 1 to 10000; 100 when not given. SESS_SESSION_MAX_QUEUE.
    #[schemars(range(min = 1, max = 10000))]
    pub max_queue: Option<u32>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DirectScope {
    /// Each agent has its own main session.
    PerAgent,
    /// The same as per-agent, as other tools call it.
    PerSender,
    /// Every direct chat is one session, `main` to every agent.
    Global,
}

/// May messages be sent? A session's own word comes first, then any rule that denies, then any that allows, then
/// the default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SendPolicy {
    /// What holds when no rule matches; allow when not given. SESS_SESSION_SEND_POLICY_DEFAULT.
    pub default: Option<Sending>,
    /// Rules by what a session is.
    pub rules: Vec<SendRule>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sending {
    Allow,
    Deny,
}

/// A rule about sending.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendRule {
    /// What it says.
    pub action: Sending,
    /// Which sessions it is about; all of what is given must fit, and nothing fits all.
    #[serde(default, rename = "match")]
    pub matching: SendMatch,
}

/// Which sessions a rule is about.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct SendMatch {
    /// Where they are held with people.
    pub channel: Option<Channel>,
    /// Who takes part.
    pub chat_type: Option<ChatType>,
    /// How their keys begin, such as cron: or agent:ops:.
    pub key_prefix: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Whatsapp,
    Telegram,
    Discord,
    Signal,
    Imessage,
    Webchat,
    Internal,
    Unknown,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatType {
    Direct,
    Group,
    Channel,
}

/// How far messages between agents go.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Exchanges {
    /// How many further rounds of replies follow a message, 0 to 5; 5 when not given.
    /// SESS_SESSION_AGENT_TO_AGENT_MAX_PING_PONG_TURNS.
    #[schemars(range(max = 5))]
    pub max_ping_pong_turns: Option<u32>,
    /// How many messages may lead to each other, 1 to 100; 12 when not given.
    /// SESS_SESSION_AGENT_TO_AGENT_MAX_HOPS.
    #[schemars(range(min = 1, max = 100))]
    pub max_hops: Option<u32>,
    /// How many runs one request may lead to in all, 1 to 10000; 200 when not given.
    /// SESS_SESSION_AGENT_TO_AGENT_MAX_RUNS.
    #[schemars(range(min = 1, max = 10000))]
    pub max_runs: Option<u32>,
}

/// How work sessions are held, landed and checked.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct WorkSessions {
    /// The minutes that a claim lasts without a sign of life, 1 to 525600; 30 when not given.
    /// SESS_WORK_LEASE_MINUTES.
    #[schemars(range(min = 1, max = 525600))]
    pub lease_minutes: Option<u64>,
    /// How work gets to the base branch; push when not given. SESS_WORK_LAND.
    pub land: Option<Landing>,
    /// The directory of workspaces; ~ is your home, others begin at this file's directory. `.sessions` of the
    /// checkout when not given. SESS_WORK_WORKSPACES.
    pub workspaces: Option<String>,
    /// What the gates that plans name run, in the workspace, with a shell. A repository's plans name gates, and
    /// only what you wrote or trust says what they run.
    pub gates: Entries<String>,
    /// The knowledge base.
    pub kb: KnowledgeBase,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Landing {
    /// It is pushed to the base branch.
    Push,
    /// It waits on its own branch, for somebody to merge it.
    Pr,
    /// It stays in this clone.
    None,
}

/// The knowledge base of a repository.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KnowledgeBase {
    /// How a work session that merges what was learned begins; planned when not given. SESS_WORK_KB_STATE.
    pub state: Option<KbState>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KbState {
    /// Any agent can claim it.
    Planned,
    /// A person looks at it first.
    Drafting,
}

/// Where `sess serve` listens, and how far its clients may go.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Address and port; 127.0.0.1:4747 when not given. SESS_GATEWAY_LISTEN.
    pub listen: Option<String>,
    /// Further host names under which clients reach it; others are refused. SESS_GATEWAY_NAMES.
    pub names: Option<Vec<String>>,
    /// The certificate with which it listens beyond this machine.
    pub tls: GatewayTls,
    /// How far clients may go.
    pub limits: GatewayLimits,
}

/// A certificate and its key, as PEM; ~ is your home, others begin at this file's directory.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayTls {
    /// The file with the certificate chain. SESS_GATEWAY_TLS_CERT.
    pub cert: Option<String>,
    /// The file with the private key. SESS_GATEWAY_TLS_KEY.
    pub key: Option<String>,
}

/// How far the gateway's clients may go.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct GatewayLimits {
    /// Bytes of a request's body, 1024 to 1073741824; 1 MiB when not given. SESS_GATEWAY_LIMITS_BODY_BYTES.
    #[schemars(range(min = 1024, max = 1073741824))]
    pub body_bytes: Option<u64>,
    /// Bytes of a body that holds a plan, an attachment or a call over MCP, 1024 to 1073741824; 12 MiB when
    /// not given. SESS_GATEWAY_LIMITS_UPLOAD_BYTES.
    #[schemars(range(min = 1024, max = 1073741824))]
    pub upload_bytes: Option<u64>,
    /// Bytes of a frame that comes in over WebSocket, 1024 to 1073741824; 1 MiB when not given.
    /// SESS_GATEWAY_LIMITS_FRAME_BYTES.
    #[schemars(range(min = 1024, max = 1073741824))]
    pub frame_bytes: Option<u64>,
    /// Seconds that a WebSocket has to say who it is, 1 to 600; 10 when not given.
    /// SESS_GATEWAY_LIMITS_CONNECT_SECONDS.
    #[schemars(range(min = 1, max = 600))]
    pub connect_seconds: Option<u64>,
    /// Bytes that it may send before that, 1024 to 1048576; 64 KiB when not given.
    /// SESS_GATEWAY_LIMITS_BEFORE_CONNECT_BYTES.
    #[schemars(range(min = 1024, max = 1048576))]
    pub before_connect_bytes: Option<u64>,
    /// Connections at a time, 1 to 1000000; 10000 when not given. SESS_GATEWAY_LIMITS_CONNECTIONS.
    #[schemars(range(min = 1, max = 1000000))]
    pub connections: Option<u64>,
    /// Sessions that one WebSocket follows, 1 to 100000; 256 when not given.
    /// SESS_GATEWAY_LIMITS_SUBSCRIPTIONS.
    #[schemars(range(min = 1, max = 100000))]
    pub subscriptions: Option<u64>,
    /// Requests of one WebSocket that are worked on at a time, 1 to 10000; 64 when not given.
    /// SESS_GATEWAY_LIMITS_IN_FLIGHT.
    #[schemars(range(min = 1, max = 10000))]
    pub in_flight: Option<u64>,
    /// Wrong tokens and login codes a minute from one address (of IPv6: one /64), after which further ones are
    /// refused for a while, 1 to 100000; 30 when not given. SESS_GATEWAY_LIMITS_FAILED_LOGINS.
    #[schemars(range(min = 1, max = 100000))]
    pub failed_logins: Option<u64>,
    /// Seconds that the head of a request may take to arrive, 1 to 600; 10 when not given.
    /// SESS_GATEWAY_LIMITS_HEADER_SECONDS.
    #[schemars(range(min = 1, max = 600))]
    pub header_seconds: Option<u64>,
    /// Seconds that its body may take, 1 to 3600; 30 when not given. SESS_GATEWAY_LIMITS_BODY_SECONDS.
    #[schemars(range(min = 1, max = 3600))]
    pub body_seconds: Option<u64>,
    /// Seconds that a client may take to read anything of what is written to it, 1 to 3600; 60 when not given.
    /// SESS_GATEWAY_LIMITS_TAKE_SECONDS.
    #[schemars(range(min = 1, max = 3600))]
    pub take_seconds: Option<u64>,
    /// Seconds that runs and requests may take to end once the gateway is stopped, 0 to 3600; 10 when not given.
    /// SESS_GATEWAY_LIMITS_DRAIN_SECONDS.
    #[schemars(range(max = 3600))]
    pub drain_seconds: Option<u64>,
    /// Bytes of memory that uploaded files take together, 1024 to 17179869184; 128 MiB when not given.
    /// SESS_GATEWAY_LIMITS_ATTACHMENTS_BYTES.
    #[schemars(range(min = 1024, max = 17179869184_u64))]
    pub attachments_bytes: Option<u64>,
    /// Minutes that an uploaded file is kept, 1 to 1440; 10 when not given.
    /// SESS_GATEWAY_LIMITS_ATTACHMENT_MINUTES.
    #[schemars(range(min = 1, max = 1440))]
    pub attachment_minutes: Option<u64>,
    /// Seconds that a stream is silent at most, 1 to 600; 15 when not given.
    /// SESS_GATEWAY_LIMITS_KEEPALIVE_SECONDS.
    #[schemars(range(min = 1, max = 600))]
    pub keepalive_seconds: Option<u64>,
}

impl GatewayLimits {
    /// Returns each limit by its key: what is written, the least and the most that it may be.
    pub fn ranges(&self) -> [(&'static str, Option<u64>, (u64, u64)); 16] {
        [
            ("bodyBytes", self.body_bytes, (1_024, 1_073_741_824)),
            ("uploadBytes", self.upload_bytes, (1_024, 1_073_741_824)),
            ("frameBytes", self.frame_bytes, (1_024, 1_073_741_824)),
            ("connectSeconds", self.connect_seconds, (1, 600)),
            ("beforeConnectBytes", self.before_connect_bytes, (1_024, 1_048_576)),
            ("connections", self.connections, (1, 1_000_000)),
            ("subscriptions", self.subscriptions, (1, 100_000)),
            ("inFlight", self.in_flight, (1, 10_000)),
            ("failedLogins", self.failed_logins, (1, 100_000)),
            ("headerSeconds", self.header_seconds, (1, 600)),
            ("bodySeconds", self.body_seconds, (1, 3_600)),
            ("takeSeconds", self.take_seconds, (1, 3_600)),
            ("drainSeconds", self.drain_seconds, (0, 3_600)),
            ("attachmentsBytes", self.attachments_bytes, (1_024, 17_179_869_184)),
            ("attachmentMinutes", self.attachment_minutes, (1, 1_440)),
            ("keepaliveSeconds", self.keepalive_seconds, (1, 600)),
        ]
    }
}

/// Settings of list_sessions and read_session.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContextTools {
    /// Which sessions an agent sees; all when not given. SESS_TOOLS_CONTEXT_VISIBILITY. Not in a repository's
    /// sess.yaml.
    pub visibility: Option<Visibility>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// Those of the same agent.
    Agent,
    /// Every one.
    All,
}

/// A value that has a short form.
enum Either<T> {
    Scalar(Scalar),
    Map(T),
}

enum Scalar {
    Bool(bool),
    Whole(u64),
    Text(String),
}

/// Reads a value that is a scalar or a map. Unlike an untagged enum it keeps the places of mistakes inside.
fn either<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<Either<T>, D::Error> {
    struct Both<T>(&'static str, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Both<T> {
        type Value = Either<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
            Ok(Either::Scalar(Scalar::Bool(value)))
        }

        fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
            Ok(Either::Scalar(Scalar::Whole(value)))
        }

        fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
            Ok(Either::Scalar(Scalar::Text(value.to_owned())))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Either::Map)
        }
    }

    deserializer.deserialize_any(Both(expected, PhantomData))
}
