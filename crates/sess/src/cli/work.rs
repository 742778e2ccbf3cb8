//! `sess work …`, as clap reads it. Doc comments here are the help texts.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use sess_work::{Slug, State};

/// How many bytes of context an agent is given when nobody says.
const CONTEXT_BYTES: usize = 8_000;

/// What every help text ends with: how the verb is called, and what its exit codes mean.
macro_rules! examples {
    ($($line:literal),+) => {
        concat!(
            "Examples:\n", $("  ", $line, "\n",)+
            "\nExit codes: 0 done, 1 failed, 2 usage or bad slug, 3 not found or wrong state, 4 claimed by another, 5 would ",
            "lose work, 6 remote unreachable, 7 merge conflict or rewritten base, 8 policy (plan, knowledge base, gate), 9 ",
            "rejected by the remote. Each error ends with the command to run next."
        )
    };
}

#[derive(Debug, Subcommand)]
pub enum Work {
    /// Set a repository up for work sessions; again, it changes nothing
    #[command(after_help = examples!("sess work init", "sess work init --no-hooks"))]
    Init {
        /// Install no git hooks: nothing then stops a commit that changes the plan or the knowledge base
        #[arg(long)]
        no_hooks: bool,
        /// Also write _bin/claim-session and _bin/complete-session, for those who expect scripts
        #[arg(long)]
        scripts: bool,
    },

    /// Draft a plan; prints the name of the new work session
    #[command(after_help = examples!("sess work new \"Add user login\" --context \"People cannot log in.\" --criterion \"A person can log in\"", "sess work new --from plan.md", "slug=$(sess work new \"Add logout\" --depends 2026-01-31-add-user-login --label backend)"))]
    New(New),

    /// Change a plan that nobody works by yet: in $EDITOR, or from a file
    #[command(after_help = examples!("sess work edit 2026-01-31-add-user-login", "sess work edit 2026-01-31-add-user-login --file plan.md"))]
    Edit {
        #[command(flatten)]
        one: One,
        /// The new plan; - is standard input
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },

    /// Publish a draft, so that it can be claimed; it needs a context and acceptance criteria
    #[command(after_help = examples!("sess work ready 2026-01-31-add-user-login"))]
    Ready(One),

    /// Take a plan back to be worked out
    #[command(after_help = examples!("sess work unready 2026-01-31-add-user-login"))]
    Unready(One),

    /// List work sessions
    #[command(after_help = examples!("sess work list --ready", "sess work list --state active --json"))]
    List(List),

    /// Show all about a work session: its plan, who has it, what was logged, who had it before
    #[command(after_help = examples!("sess work show 2026-01-31-add-user-login"))]
    Show(One),

    /// Watch all work sessions in five columns; q leaves, r looks again
    ///
    /// Left and Right (h and l, Tab) choose a column; Up and Down (k and j), PageUp, PageDown, Home and End scroll it.
    /// Where the terminal is narrow the columns stand one under the other. Without a terminal it is printed once.
    #[command(after_help = examples!("sess work board"))]
    Board,

    /// Take a planned work session, and make its workspace; again by its owner, go on with it
    #[command(after_help = examples!("sess work claim 2026-01-31-add-user-login", "cd \"$(sess work claim --next --label backend --json | jq -r .workspace)\""))]
    Claim(Claim),

    /// Print the identity of a work session, for a shell: eval "$(sess work env)"
    #[command(after_help = examples!("eval \"$(sess work env)\""))]
    Env(One),

    /// Run a command in the workspace, as the work session, and keep the lease meanwhile
    ///
    /// The exit code is the command's own; 4 if it succeeded, but somebody else took the work session over meanwhile.
    /// What it prints is its own, too: with --json, an object with slug, state and exitCode follows when it has ended.
    #[command(after_help = examples!("sess work exec 2026-01-31-add-user-login -- cargo test"))]
    Exec {
        #[command(flatten)]
        one: One,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },

    /// Write down what was done, in worklog.md
    #[command(after_help = examples!("sess work log \"the form is there; what it sends is not checked yet\"", "sess work log --slug 2026-01-31-add-user-login - < notes.txt"))]
    Log(Note),

    /// Write down what is to be done next, in active-plan.md; "[x] …" is done
    #[command(after_help = examples!("sess work plan \"check what the form sends\"", "sess work plan \"[x] make the form\""))]
    Plan(Note),

    /// Write down what turned out to be work of its own, in subsessions.md
    #[command(after_help = examples!("sess work sub \"People forget their passwords\" --new"))]
    Sub {
        #[command(flatten)]
        note: Note,
        /// Also draft it as a work session, whose parent is this one
        #[arg(long)]
        new: bool,
    },

    /// Write down what others should know, in learnings.md
    #[command(after_help = examples!("sess work learn \"passwords are checked by the gateway, never by the form\""))]
    Learn(Note),

    /// Merge the base branch (main, as a rule) into the work session's branch
    #[command(after_help = examples!("sess work sync"))]
    Sync(One),

    /// Bring the work so far to the base branch as one commit, and go on
    #[command(after_help = examples!("sess work land"))]
    Land(One),

    /// Show how a work session stands: who has it and for how long, what is not committed, its gates
    #[command(after_help = examples!("sess work status", "sess work status 2026-01-31-add-user-login --json"))]
    Status(One),

    /// Compare the plan with what was done: criteria, files, sub-sessions, changes of the plan, time
    #[command(after_help = examples!("sess work drift"))]
    Drift(One),

    /// Keep a work session for another while (every verb of yours does that, too), and push its branch
    #[command(after_help = examples!("sess work heartbeat"))]
    Heartbeat(One),

    /// Give a work session back: it is planned again, and its branch stays
    #[command(after_help = examples!("sess work release --reason \"the design has to be decided first\""))]
    Release {
        #[command(flatten)]
        one: One,
        /// Why, for whoever takes it next
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },

    /// Take a work session from somebody whose lease has lapsed
    #[command(after_help = examples!("sess work takeover 2026-01-31-add-user-login", "sess work takeover 2026-01-31-add-user-login --force --reason \"its machine is gone\""))]
    Takeover {
        #[command(flatten)]
        one: One,
        /// Take it although its lease lasts, or somebody seems to be at work; needs --reason
        #[arg(long, requires = "reason")]
        force: bool,
        /// Why, for whoever loses it
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        place: Place,
    },

    /// Change the plan while it is worked by; what it was before, and the reason, stay on record
    #[command(after_help = examples!("sess work amend --reason \"the form needs a second field\" --file plan.md"))]
    Amend {
        #[command(flatten)]
        one: One,
        /// Why it changes
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// The new plan; SESSION.md of the workspace, as you changed it, if not given
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },

    /// End a work session: its work goes to the base branch as one commit, its workspace goes away
    #[command(after_help = examples!("sess work complete", "sess work complete --notes \"Mails are sent by the old server for now.\""))]
    Complete {
        #[command(flatten)]
        one: One,
        /// Final notes: a text, or a file
        #[arg(long, value_name = "TEXT or FILE")]
        notes: Option<String>,
    },

    /// Give a work session up; its branch stays
    #[command(after_help = examples!("sess work abandon --reason \"nobody wants it any more\""))]
    Abandon {
        #[command(flatten)]
        one: One,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },

    /// Plan an abandoned work session anew; what the attempt before left is kept
    #[command(after_help = examples!("sess work retry 2026-01-31-add-user-login"))]
    Retry(One),

    /// Wait for a work session that is ready, claim it, and run a command in its workspace
    #[command(after_help = examples!("sess work watch --label docs --exec 'my-agent --task \"$(sess work context)\"'", "sess work watch --once"))]
    Watch(Watch),

    /// Look at the knowledge base, and have what was learned merged into it
    #[command(subcommand)]
    Kb(Kb),

    /// Make a claimed work session of a worktree or branch that exists
    #[command(after_help = examples!("sess work adopt", "sess work adopt ../login --title \"Add user login\""))]
    Adopt {
        /// The worktree; this one if not given
        path: Option<PathBuf>,
        /// What it is about; the branch's name says it if not given
        #[arg(long)]
        title: Option<String>,
    },

    /// Print what an agent should know before it begins: plan, open criteria, learnings
    #[command(after_help = examples!("sess work context", "my-agent --task \"$(sess work context --bytes 20000)\""))]
    Context {
        #[command(flatten)]
        one: One,
        /// The most bytes to print
        #[arg(long, value_name = "N", default_value_t = CONTEXT_BYTES)]
        bytes: usize,
    },

    /// Say which work session, plan and agents a line of code comes from
    #[command(after_help = examples!("sess work blame src/main.rs:42"))]
    Blame {
        /// The file and the number of the line, such as src/main.rs:42
        #[arg(value_name = "FILE:LINE")]
        place: String,
    },

    /// Claim a work session and have a configured agent carry it out
    ///
    /// The agent works in the workspace and reads SESSION.md as its plan. When it ends well its work is committed
    /// and the work session completed; when not, or when it did nothing that could land, it is abandoned, with the
    /// reason in its log and what was done on its branch: `sess work retry` plans it anew. Ctrl-C gives it back.
    #[command(after_help = examples!("sess work run 2026-01-31-add-user-login --agent coder"))]
    Run {
        #[command(flatten)]
        one: One,
        /// The agent, as the configuration names it
        #[arg(long, value_name = "NAME")]
        agent: String,
        /// Let its tools act without asking, except where a rule denies it
        #[arg(long)]
        yolo: bool,
    },

    /// Explain every half-done state, and repair it
    #[command(after_help = examples!("sess work doctor", "sess work doctor --repair"))]
    Doctor {
        /// Repair what can be repaired
        #[arg(long)]
        repair: bool,
    },

    /// Clean up what is safely merged, and show how large it is
    #[command(after_help = examples!("sess work gc --dry-run"))]
    Gc {
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },

    /// Take hooks, settings and our own files out of this clone; says what stays, and what removes it
    #[command(after_help = examples!("sess work uninstall"))]
    Uninstall,

    /// What the git hooks call
    #[command(hide = true)]
    Hook {
        name: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct One {
    /// The work session; inside its workspace it can be left out
    #[arg(value_name = "SLUG")]
    pub slug: Option<Slug>,
}

#[derive(Debug, Args)]
pub struct New {
    /// What is to be done, in a few words; the heading of the file with --from, if not given
    pub title: Option<String>,

    /// Its name, instead of one made of the date and the title
    #[arg(long)]
    pub slug: Option<Slug>,

    /// Why it is to be done
    #[arg(long, value_name = "TEXT")]
    pub context: Option<String>,

    /// What has to be true when it is done; several times for several
    #[arg(long = "criterion", value_name = "TEXT")]
    pub criteria: Vec<String>,

    /// A word by which agents choose; several times for several
    #[arg(long = "label", value_name = "WORD")]
    pub labels: Vec<String>,

    /// A work session that has to be completed before; several times for several
    #[arg(long = "depends", value_name = "SLUG")]
    pub depends: Vec<Slug>,

    /// Take the whole plan from this file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["context", "criteria", "labels", "depends"])]
    pub from: Option<PathBuf>,
}

/// Reads a state, and tells shells which ones there are.
fn states() -> impl TypedValueParser<Value = State> {
    let names = PossibleValuesParser::new(State::ALL.map(State::as_str));
    names.map(|name| name.parse().expect("it is one of them"))
}

#[derive(Debug, Args)]
pub struct List {
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = states())]
    pub state: Option<State>,

    /// Only those that can be claimed now
    #[arg(long)]
    pub ready: bool,
}

#[derive(Debug, Args)]
pub struct Claim {
    /// The work session; inside its workspace it can be left out
    #[arg(value_name = "SLUG", conflicts_with = "next")]
    pub slug: Option<Slug>,

    /// Take the first one that is ready
    #[arg(long)]
    pub next: bool,

    /// With --next: only one that has this label
    #[arg(long, value_name = "WORD", requires = "next", conflicts_with = "slug")]
    pub label: Option<String>,

    /// Take it although what it depends on is not completed
    #[arg(long)]
    pub ignore_dependencies: bool,

    #[command(flatten)]
    pub place: Place,
}

#[derive(Debug, Args)]
pub struct Place {
    /// Make the workspace a clone of its own, instead of a worktree
    #[arg(long)]
    pub clone: bool,

    /// Make no workspace
    #[arg(long, conflicts_with = "clone")]
    pub no_workspace: bool,

    /// How many minutes it stays yours without a sign of life; work.leaseMinutes, else 30
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=525_600))]
    pub lease: Option<u64>,
}

#[derive(Debug, Args)]
pub struct Note {
    /// What to write down; - is standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,

    /// The work session; inside its workspace it can be left out
    #[arg(long)]
    pub slug: Option<Slug>,
}

#[derive(Debug, Args)]
pub struct Watch {
    /// Run this in the workspace, with a shell; without it, the first claim ends the watch
    #[arg(long, value_name = "COMMAND")]
    pub exec: Option<String>,

    /// Only work sessions that have this label
    #[arg(long, value_name = "WORD")]
    pub label: Option<String>,

    /// End after the first one, with the command's exit code
    #[arg(long)]
    pub once: bool,

    #[command(flatten)]
    pub place: Place,
}

#[derive(Debug, Subcommand)]
pub enum Kb {
    /// List what the knowledge base has
    #[command(after_help = examples!("sess work kb list"))]
    List,
    /// Print a page of it
    #[command(after_help = examples!("sess work kb show README.md"))]
    Show {
        /// Its path, as `sess work kb list` shows it
        path: String,
    },
    /// Plan a work session that brings what others learned into the knowledge base
    #[command(after_help = examples!("sess work kb merge logins"))]
    Merge {
        /// What they are about
        topic: String,
    },
}
