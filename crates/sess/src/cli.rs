//! The command line, as clap reads it. Doc comments here are the help texts.

pub mod work;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sess_core::Source;

/// Options that every command has are listed apart from its own.
const GLOBAL: &str = "Global options";

/// The session layer for AI agents.
///
/// Plans that survive the session that wrote them, earlier sessions that the next agent can read, and sessions
/// that talk to each other. Agents reach it through `sess mcp`; you, through the commands below.
#[derive(Debug, Parser)]
#[command(
    name = "sess",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 not found or wrong state, 4 somebody else got there \
                  first, 5 would lose work, 6 unavailable, 7 merge conflict, 8 refused by policy, 9 rejected by the \
                  remote, 124 out of time.\nData goes to stdout, talk to stderr. \
                  NO_COLOR is honoured. Environment: SESS_HOME, SESS_CONFIG, SESS_SESSION, SESS_LOG."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Print JSON, with a schema_version
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,

    /// Act in this session: an id, a key or <source>:<id>; for plans, send and spawn also -1, the newest
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "REF", allow_negative_numbers = true)]
    pub session: Option<String>,

    /// Read the configuration from this file
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Show secrets instead of masking them; for you, never for an agent
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub no_redact: bool,

    /// Say more on stderr; twice for more still
    #[arg(short, long, global = true, help_heading = GLOBAL, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show two agents draft, review and execute a plan, in a temporary store: no key, no network
    Demo,

    /// Talk to the agents of the configuration: draft a plan, review it, have it executed
    ///
    /// A first word that is a YAML file is the configuration; the rest is the message. Without a terminal, or
    /// with --exec, that one message is answered and nothing is asked.
    Run(Run),

    /// Serve the tools to an agent over MCP, on standard input and output
    Mcp(Mcp),

    /// Serve sessions over HTTP, WebSocket and MCP, with a web page, and execute the agents' runs
    ///
    /// Programs get in with a token (`sess token`), people with `sess open`. It listens on this machine alone
    /// unless --listen or gateway.listen says otherwise, and then needs TLS. Ctrl-C lets what is under way finish;
    /// a second one does not.
    Serve(Serve),

    /// Open the web page, logged in; a gateway is started when none runs on this store
    Open(Open),

    /// Print the token that programs need for the gateway; make and revoke others
    ///
    /// Without a command: your own token, which allows everything. Only for you, never for an agent.
    Token {
        #[command(subcommand)]
        command: Option<Token>,
    },

    /// List sessions, most recent activity first
    #[command(visible_alias = "ls")]
    List(List),

    /// Print a session's transcript
    Read(Read),

    /// Show the newest messages of a session, and who really wrote them
    History(History),

    /// Send a message into a session, and wait for its reply
    ///
    /// The message is stored before anything else happens. When the agent of the session is configured here, a
    /// process in the background has it answer, and goes on when you stop waiting. A session that another
    /// program runs gets it in its inbox.
    ///
    /// With --session the message is that session's: its rules say whether it may be sent, and the two go on
    /// replying to each other. Otherwise it is yours.
    ///
    /// Exit codes: 0 replied (or queued, with --wait 0), 1 the run failed, 3 there is no such session, 8 refused
    /// by policy, 124 no reply in time.
    Send(Send),

    /// Give an agent a task in a session of its own
    ///
    /// Prints the run and the key of the new session. With --session it is that session's task: its rules say
    /// who may get it, and it is told what came of it. With --wait its end is waited for, and the exit code tells
    /// how it ended: 0 done, 1 failed, 124 out of time, 130 cancelled.
    Spawn(Spawn),

    /// List runs: what was asked of agents, and how it stands
    Runs(Runs),

    /// Wait for a run's end, and print its result
    ///
    /// One that is queued is executed, if its agent is configured here. Exit codes: 0 done, 1 failed, 124 out of
    /// time (the run, or this wait: stderr says which), 130 cancelled.
    Wait(Wait),

    /// Stop a run: a queued one ends at once, a running one is asked to
    Cancel(OneRun),

    /// Find messages of all agents: words, "phrases", beginnings*, -absent
    Search(Search),

    /// Make searches of other agents' sessions faster: remember which words each of them has
    ///
    /// A search works without it and finds the same. What is new or changed since is read; it can be broken off at any
    /// time and goes on from there. Sessions that changed after it are searched as before.
    #[command(
        after_help = "Examples:\n  sess index\n  sess index --source claude\n  sess index --status\n  sess index --forget\n"
    )]
    Index(Index),

    /// Hand a session over to another agent: goal, plan, decisions, files and last state in a few pages
    ///
    /// Without --to the bundle is printed. With it the bundle is kept in the data directory, and the command that
    /// goes on there is printed: run it, or give it to whoever shall.
    Handoff(Handoff),

    /// Show, write and review a session's plan
    ///
    /// Without --session: the plan of the most recently active session that has one; for an agent, its own.
    #[command(subcommand)]
    Plan(Plan),

    /// Plan work on a git repository, share it out among agents, and land it
    ///
    /// A work session is a plan that an agent claims, works on in a workspace of its own, and lands. Everything is in
    /// the repository and goes through its remote: no server, no daemon. Inside a workspace the slug can be left out.
    ///
    /// Exit codes: 0 done, 1 failed, 2 usage or bad slug, 3 not found or wrong state, 4 claimed by another, 5 would
    /// lose work, 6 remote unreachable, 7 merge conflict or rewritten base, 8 policy, 9 rejected by the remote.
    #[command(subcommand)]
    Work(work::Work),

    /// Print what happened, in order; with --session in that one alone
    Events(Events),

    /// Mark a session with a star
    Star(One),
    /// Take the star away
    Unstar(One),
    /// Give a session a title
    Rename(Rename),
    /// Hide a session from lists; it stays readable
    Archive(One),
    /// Show an archived session in lists again
    Unarchive(One),

    /// Bring in sessions from JSON Lines files or a docker-agent database
    Import(Import),
    /// Print a session in the format that import reads, as it is, with its secrets
    Export(One),

    /// Say which session a call from here would belong to, and how we know
    Whoami,

    /// Take secrets out of what is stored: messages, plans, results, search index, mirrors
    ///
    /// They are masked whenever an agent reads them, but stay in the store until this takes them out. Without
    /// --yes it only counts them.
    Scrub(Scrub),

    /// Keep copies of other agents' sessions, for when their agents delete them
    ///
    /// Copies what is new and nothing twice. A session that its agent has deleted is then listed, read and searched
    /// as before. Nothing is copied unless you call this: `sess doctor` says which agents delete what.
    Snapshot(Snapshot),

    /// Show every agent that runs on this machine, and what it is doing
    ///
    /// States: busy, idle, needs input (where its vendor tells), dead (its registry has it, its process is gone).
    Ps(Ps),

    /// Give the tools to other programs' agents: an MCP entry, a skill, and hooks where there are any
    ///
    /// Each host's own configuration gets what it needs, and nothing else in it changes. What somebody else wrote there
    /// under the name sess is left alone. Doing it again changes nothing.
    Install(Install),
    /// Take back what install wrote; files that nobody changed since are as they were, byte for byte
    Uninstall(Install),

    /// Check the store, and say what to do about what is wrong; say which agents delete their sessions
    Doctor(Doctor),

    /// Check, show and trust the configuration
    ///
    /// It is read from --config, else $SESS_CONFIG, else $XDG_CONFIG_HOME/intersession/config.yaml and over it
    /// ./sess.yaml, once you trust that. SESS_* variables win over all of them.
    #[command(subcommand)]
    Config(Config),

    /// Call a tool as an agent would
    #[command(subcommand)]
    Tool(Tool),

    /// Run a program, or a tool on files that standard input names, in a sandbox
    #[command(hide = true)]
    Confined(Confined),

    /// Execute a run and whatever it leads to, with nobody to ask
    #[command(hide = true)]
    Node(OneRun),

    /// Tell a host's session, in the words of the host's hooks, what waits for it
    #[command(hide = true)]
    Hook {
        #[command(subcommand)]
        event: HookEvent,
    },

    /// Print the completion script of a shell
    Completions {
        /// The shell that will read it
        #[arg(value_enum)]
        shell: Shell,
    },

    /// Print the manual page: sess man | man -l -
    Man {
        /// A command, for its own page
        command: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct Confined {
    /// What may be reached, as JSON
    pub policy: String,

    /// The program and its arguments
    #[arg(last = true)]
    pub program: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub struct Run {
    /// The configuration, if it is a YAML file that exists; then the message
    #[arg(value_name = "FILE or MESSAGE")]
    pub words: Vec<String>,

    /// Talk to this agent; otherwise root, else the first
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,

    /// Answer one message and exit by its outcome: 0 done, 1 failed, 124 out of time, 130 cancelled
    #[arg(long)]
    pub exec: bool,

    /// Let tools act without asking, except where a rule denies it; never approves a plan
    #[arg(long)]
    pub yolo: bool,
}

#[derive(Debug, Args)]
pub struct Mcp {
    /// Serve only these groups: session_plan, session_context, sessions, work; all by default, and work inside a
    /// repository that has work sessions
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub toolsets: Vec<String>,

    /// Serve only these tools; `sess tool list` lists them
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub tools: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen, as address:port; gateway.listen, else 127.0.0.1:4747. Port 0 is any free one
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,

    /// Listen beyond this machine without TLS: whoever is on the way reads along, tokens included
    #[arg(long)]
    pub insecure: bool,

    /// The certificate chain for TLS, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Print a unit that starts this gateway with the machine, instead of serving
    #[arg(long, value_name = "KIND")]
    pub print_service: Option<ServiceKind>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ServiceKind {
    /// For ~/.config/systemd/user/sess.service
    Systemd,
    /// For ~/Library/LaunchAgents/dev.intersession.sess.plist
    Launchd,
}

#[derive(Debug, Args)]
pub struct Open {
    /// Only print the link; it logs in whoever opens it first, within a minute
    #[arg(long)]
    pub print: bool,
}

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token with fewer rights; it is printed this once
    ///
    /// With --session it stands for that session: an agent that is given `/mcp/<token>` as the address of its MCP
    /// server acts as that session.
    Create {
        /// What it allows: read, write, review, admin; several with commas
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', required = true)]
        scopes: Vec<TokenScope>,

        /// Only sessions of this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,

        /// When it ends by itself, such as 12h, 30d or 8w; never if not given
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,

        /// What it is for, to know it again in the list
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
    },
    /// List tokens, newest first, without what would let anybody in
    List,
    /// Make a token worthless: whoever uses it is cut off within a second
    Revoke {
        /// Its id, as `sess token list` shows it
        id: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TokenScope {
    /// List, history, follow, wait
    Read,
    /// Send, start runs, spawn
    Write,
    /// Approve plans and send them back
    Review,
    /// Change, reset and delete sessions; tokens; and all of the others
    Admin,
}

#[derive(Debug, Args)]
pub struct List {
    /// How many, 100 at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, allow_negative_numbers = true)]
    pub limit: i64,

    /// Only sessions of this kind of agent, such as native, claude or codex
    #[arg(long)]
    pub source: Option<Source>,

    /// Sessions of this repository, or all
    #[arg(long, value_enum, default_value_t = Scope::All)]
    pub scope: Scope,

    /// Only titles that contain this
    #[arg(long)]
    pub query: Option<String>,

    /// Also archived sessions
    #[arg(long)]
    pub archived: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Scope {
    Repo,
    All,
}

#[derive(Debug, Args)]
pub struct One {
    /// An id, the first 8 or more characters of one, a key, or -1 for the newest
    #[arg(value_name = "REF", allow_negative_numbers = true)]
    pub reference: String,
}

#[derive(Debug, Args)]
pub struct Scrub {
    /// Only this session: an id, the first 8 or more characters of one, a key, or -1 for the newest
    #[arg(value_name = "REF", allow_negative_numbers = true)]
    pub reference: Option<String>,

    /// Do it; there is no way back
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct Read {
    #[command(flatten)]
    pub one: One,

    /// Read around this message: its id or its number
    #[arg(long, value_name = "MESSAGE")]
    pub around: Option<String>,

    /// Leave out tool calls and their results
    #[arg(long)]
    pub no_tools: bool,

    /// The most bytes to print, 1000 to 200000
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub max_bytes: i64,

    /// Read the copy that `sess snapshot` took of it, though its agent still has the session
    #[arg(long)]
    pub snapshot: bool,
}

#[derive(Debug, Args)]
pub struct History {
    /// A key such as agent:ops:main, an id, its first 8 or more characters, or -1; --session names it as well
    #[arg(value_name = "REF", allow_negative_numbers = true)]
    pub reference: Option<String>,

    /// How many messages, 1000 at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub limit: u32,

    /// Also what tools answered
    #[arg(long)]
    pub tools: bool,
}

#[derive(Debug, Args)]
pub struct Send {
    /// The session: a key such as agent:ops:main, an id, its first 8 or more characters, or -1
    #[arg(value_name = "REF", allow_negative_numbers = true)]
    pub reference: String,

    /// What to say; - or nothing is standard input
    #[arg(value_name = "MESSAGE")]
    pub words: Vec<String>,

    /// How many seconds to wait for the reply, 600 at most; 0 only queues the message
    #[arg(short, long, value_name = "SECONDS", default_value_t = sess_app::WAIT_SECONDS)]
    pub wait: u64,

    /// A retry with the same key acts once and gets the first answer
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
pub struct Spawn {
    /// The task; - or nothing is standard input
    #[arg(value_name = "TASK")]
    pub words: Vec<String>,

    /// The agent that gets it; otherwise the first, or an agent's own
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,

    /// Use this model of the configuration instead of the agent's
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,

    /// How hard it thinks: off, minimal, low, medium or high
    #[arg(long, value_name = "LEVEL")]
    pub thinking: Option<String>,

    /// What to call it in lists
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// The seconds after which it is stopped; 0 is never
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,

    /// What becomes of its session: keep or delete
    #[arg(long, value_name = "WHAT")]
    pub cleanup: Option<String>,

    /// Give it a copy of this file; may be repeated
    #[arg(long, value_name = "FILE")]
    pub attach: Vec<PathBuf>,

    /// Have it executed and wait this many seconds for its end
    #[arg(short, long, value_name = "SECONDS")]
    pub wait: Option<u64>,

    /// A retry with the same key acts once and gets the first answer
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
pub struct Runs {
    /// How many, 1000 at most; of a tree, how many to begin with
    #[arg(short = 'n', long, value_name = "N", default_value_t = sess_app::RUNS_LEN)]
    pub limit: usize,

    /// Show what each led to below it, with tokens and cost summed up
    #[arg(short, long)]
    pub tree: bool,

    /// Show changes as they happen, until interrupted; without a terminal, a line for each
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
pub struct OneRun {
    /// A run's id, or its first 8 or more characters
    #[arg(value_name = "RUN")]
    pub run: String,
}

#[derive(Debug, Args)]
pub struct Wait {
    #[command(flatten)]
    pub one: OneRun,

    /// Wait no longer than this
    #[arg(short, long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Search {
    /// Words; in one pair of quotes all of it works: 'upload* "exactly once" -retry'
    #[arg(required = true)]
    pub words: Vec<String>,

    /// The words are a regular expression
    #[arg(short = 'e', long)]
    pub regex: bool,

    /// Only sessions of this agent: native, claude, codex, gemini, opencode, …
    #[arg(long, value_name = "SOURCE")]
    pub source: Option<Source>,

    /// Only sessions of the repository around this directory
    #[arg(long, value_enum, default_value_t = Scope::All)]
    pub scope: Scope,

    /// How many, 100 at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, allow_negative_numbers = true)]
    pub limit: i64,

    /// Go on from here: the cursor of an earlier search
    #[arg(long, value_name = "CURSOR")]
    pub before: Option<String>,
}

#[derive(Debug, Args)]
pub struct Index {
    /// Only sessions of this agent: claude, codex, gemini, opencode, …
    #[arg(long, value_name = "SOURCE")]
    pub source: Option<Source>,

    /// Only say how it stands
    #[arg(long, conflicts_with_all = ["source", "forget"])]
    pub status: bool,

    /// Delete it
    #[arg(long, conflicts_with = "source")]
    pub forget: bool,
}

#[derive(Debug, Args)]
pub struct Handoff {
    #[command(flatten)]
    pub one: One,

    /// The agent that shall go on: claude, codex, gemini, opencode, goose, cursor, …
    #[arg(long, value_name = "AGENT")]
    pub to: Option<Source>,
}

#[derive(Debug, Args)]
pub struct Rename {
    #[command(flatten)]
    pub one: One,

    /// The new title; '' takes it away
    pub title: String,
}

#[derive(Debug, Args)]
pub struct Events {
    /// Wait for more, until interrupted
    #[arg(short, long)]
    pub follow: bool,

    /// Only what came after this cursor
    #[arg(long, value_name = "CURSOR", default_value_t = 0)]
    pub after: u64,

    /// Only the newest N
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Import {
    /// JSON Lines files, or a docker-agent session.db; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Snapshot {
    #[command(subcommand)]
    pub command: Option<SnapshotCommand>,

    /// Only sessions of this agent: claude, codex, gemini, opencode, …
    #[arg(long, value_name = "SOURCE")]
    pub source: Option<Source>,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// List the snapshots there are, and whether their originals still are
    List,
    /// Delete a snapshot, with those of its sub-agents
    Forget {
        /// Its id as the list shows it, the native one, or the first 8 or more characters of either
        #[arg(value_name = "REF")]
        reference: String,
    },
}

#[derive(Debug, Args)]
pub struct Install {
    /// The programs whose agents use the tools
    #[arg(value_name = "HOST")]
    pub hosts: Vec<HostName>,

    /// Every one that is found on this machine; to uninstall, every one that was installed
    #[arg(long, conflicts_with = "hosts")]
    pub all: bool,

    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostName {
    Claude,
    Codex,
    Opencode,
    Gemini,
    Goose,
    Zed,
    Cursor,
}

impl HostName {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Opencode => "opencode",
            Self::Gemini => "gemini",
            Self::Goose => "goose",
            Self::Zed => "zed",
            Self::Cursor => "cursor",
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum HookEvent {
    /// A session has begun, or goes on
    SessionStart {
        /// Whose session it is
        host: HostName,
    },
}

#[derive(Debug, Args)]
pub struct Ps {
    /// Look again every second, until q or Ctrl-C; without a terminal, print each change
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Copy what can be read of a damaged store into a new one in this directory
    #[arg(long, value_name = "NEW DIR")]
    pub salvage: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Say whether the configuration is valid, and what it comes to
    Check {
        /// The file; what is in effect here if not given
        file: Option<PathBuf>,
    },
    /// Print what is in effect, and where each value comes from
    Show,
    /// Print the JSON Schema of the configuration, for editors
    Schema,
    /// Make a repository's sess.yaml count, as it is now
    ///
    /// Read it first: it chooses agents, what they are told and which programs they start. It can set neither
    /// permissions nor where your keys are sent. When the file changes it is ignored again.
    Trust {
        /// The file; ./sess.yaml if not given
        file: Option<PathBuf>,
        /// Ignore it again
        #[arg(long)]
        remove: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Call a tool and print its answer; exit 1 on a tool error
    Call {
        /// The tool; `sess tool list` lists them
        name: String,
        /// The arguments, as a JSON object
        arguments: Option<String>,
        /// A retry with the same key acts once and gets the first answer
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
    },
    /// List the tools
    List,
}

#[derive(Debug, Subcommand)]
pub enum Plan {
    /// Print the plan
    Show {
        /// Print this revision instead of the newest
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
    },
    /// Write the plan from a file or standard input
    ///
    /// Without --session it replaces the plan that `sess plan show` prints; when there is none, it begins a
    /// session of its own. An id that does not exist yet begins a session with that id.
    Write {
        /// The file; - or nothing is standard input
        file: Option<PathBuf>,
        #[command(flatten)]
        guard: Guard,
    },
    /// Change the plan in $EDITOR
    Edit,
    /// List the plan's revisions
    Log,
    /// Show what changed between two revisions
    Diff {
        /// The older revision; the one before the newest if not given
        from: Option<u64>,
        /// The newer revision; the newest if not given
        to: Option<u64>,
    },
    /// Approve the plan, so that it is executed
    Approve(Review),
    /// Send the plan back to its author, with -m to say why
    RequestChanges(Review),
    /// Say that the plan has been carried out
    Done(Review),
    /// Write the plan to a file
    Export {
        /// Where to; standard output if not given
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub struct Guard {
    /// Refuse (exit 4) unless this is the newest revision
    #[arg(long, value_name = "N")]
    pub expect_revision: Option<u64>,

    /// A retry with the same key acts once and gets the first answer
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
pub struct Review {
    /// The revision you looked at; the newest if not given
    #[arg(long, value_name = "N")]
    pub revision: Option<u64>,

    /// What you want to say about it
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
}
