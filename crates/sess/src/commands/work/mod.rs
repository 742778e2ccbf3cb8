//! `sess work …`: work sessions, one file a group of verbs; here is what they share.

mod board;
mod claiming;
mod drafting;
mod knowledge;
mod listing;
mod notes;
mod reports;
mod repository;
mod running;
mod watching;

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use console::Style;
use serde_json::{Map, Value, json};
use sess_app::Signals;
use sess_core::{Timestamp, policy::Standing};
use sess_work::{Error, Kind, Slug, State, quoted};

use super::Context;
use crate::{
    cli::work::{One, Work as Verb},
    output::{Output, ReaderGone, Usage, one_line},
};

/// The largest plan or text that is read from a file.
const TEXT_BYTES_MAX: u64 = 10_000_000;

/// What is said about what the remote could not be asked for.
const OLD: &str = "the remote cannot be reached: this is what it said last";

/// A caller in the repository around the working directory, and where the answers go.
struct Here<'a> {
    context: &'a Context,
    output: &'a Output,
    work: sess_work::Work,
}

pub async fn run(context: &Context, output: &Output, verb: Verb) -> anyhow::Result<ExitCode> {
    carry_out(context, output, verb).await.map_err(with_next)
}

/// Every error of a work session says what to run next: one that does not know better, where to look.
fn with_next(error: anyhow::Error) -> anyhow::Error {
    let is_told = error.is::<Error>() || error.is::<ReaderGone>();
    if let Some(told) = error.downcast_ref::<sess_app::Error>() {
        let of = |kind: Kind, next: &str| Error::new(kind, told.to_string()).next(next).into();
        return match told.kind() {
            _ if matches!(told, sess_app::Error::Work(_)) => error,
            // It has a hint, which says more.
            sess_app::Kind::Denied => error,
            sess_app::Kind::Invalid => of(Kind::Usage, "sess work --help"),
            sess_app::Kind::NotFound => of(Kind::WrongState, "sess list"),
            sess_app::Kind::Conflict => of(Kind::Claimed, "sess list"),
            sess_app::Kind::Unavailable => of(Kind::Unreachable, "sess doctor"),
            sess_app::Kind::Damaged => of(Kind::Failed, "sess doctor"),
        };
    }
    match error.downcast_ref::<Usage>() {
        _ if is_told => error,
        Some(Usage(text)) => Error::usage(text.clone()).next("sess work --help").into(),
        None => Error::failed(format!("{error:#}")).into(),
    }
}

async fn carry_out(context: &Context, output: &Output, verb: Verb) -> anyhow::Result<ExitCode> {
    let dir = context.app.settings().cwd.as_ref().map(PathBuf::from);
    let dir = dir.ok_or_else(|| Error::wrong_state("the working directory is gone").next("cd"))?;
    // An agent is the session that its host says. `run` opens the one that is named for its agent.
    let named = context.session.as_ref().filter(|_| context.caller.standing == Standing::Owner);
    let work = match named.filter(|_| !matches!(verb, Verb::Run { .. })) {
        Some(named) => {
            let whole = context.app.whole_name(named).await?.unwrap_or_else(|| named.clone());
            let signals = Signals { explicit: Some(whole), ..Signals::default() };
            context.app.work(&context.app.caller(&signals), &dir).await?
        }
        None => context.app.work(&context.caller, &dir).await?,
    };
    let here = Here { context, output, work };
    // The others say so where it matters to them.
    let tells_old = matches!(verb, Verb::Show(_) | Verb::Drift(_) | Verb::Context { .. } | Verb::Kb(_));
    match verb {
        Verb::Init { no_hooks, scripts } => repository::init(&here, !no_hooks, scripts)?,
        Verb::New(args) => drafting::new(&here, args)?,
        Verb::Edit { one, file } => drafting::edit(&here, one, file.as_deref())?,
        Verb::Ready(one) => drafting::ready(&here, one)?,
        Verb::Unready(one) => drafting::unready(&here, one)?,
        Verb::List(args) => listing::list(&here, &args)?,
        Verb::Show(one) => listing::show(&here, one)?,
        Verb::Board => board::run(&here).await?,
        Verb::Claim(args) => claiming::claim(&here, args)?,
        Verb::Env(one) => claiming::env(&here, one)?,
        Verb::Exec { one, command } => return claiming::exec(&here, one, &command),
        Verb::Log(note) => notes::note(&here, sess_work::Note::Log, note)?,
        Verb::Plan(note) => notes::note(&here, sess_work::Note::Plan, note)?,
        Verb::Sub { note, new } => notes::sub(&here, note, new)?,
        Verb::Learn(note) => notes::note(&here, sess_work::Note::Learning, note)?,
        Verb::Sync(one) => notes::sync(&here, one)?,
        Verb::Land(one) => notes::land(&here, one)?,
        Verb::Status(one) => reports::status(&here, one)?,
        Verb::Drift(one) => reports::drift(&here, one)?,
        Verb::Heartbeat(one) => claiming::heartbeat(&here, one)?,
        Verb::Release { one, reason } => claiming::release(&here, one, reason.as_deref())?,
        Verb::Takeover { one, force, reason, place } => {
            claiming::takeover(&here, one, force, reason.as_deref(), &place)?;
        }
        Verb::Amend { one, reason, file } => claiming::amend(&here, one, &reason, file.as_deref())?,
        Verb::Complete { one, notes } => claiming::complete(&here, one, notes)?,
        Verb::Abandon { one, reason } => claiming::abandon(&here, one, &reason)?,
        Verb::Retry(one) => drafting::retry(&here, one)?,
        Verb::Watch(args) => return watching::watch(&here, args).await,
        Verb::Kb(args) => knowledge::kb(&here, args)?,
        Verb::Adopt { path, title } => claiming::adopt(&here, path.as_deref(), title.as_deref())?,
        Verb::Context { one, bytes } => knowledge::context(&here, one, bytes)?,
        Verb::Blame { place } => reports::blame(&here, &place)?,
        Verb::Run { one, agent, yolo } => return Box::pin(running::run(&here, one, &agent, yolo)).await,
        Verb::Doctor { repair } => repository::doctor(&here, repair)?,
        Verb::Gc { dry_run } => repository::gc(&here, dry_run)?,
        Verb::Uninstall => repository::uninstall(&here)?,
        Verb::Hook { name, args } => repository::hook(&here, &name, args)?,
    }
    if tells_old {
        here.tell_old();
    }
    Ok(ExitCode::SUCCESS)
}

impl Here<'_> {
    /// Returns the work session that is meant: the one that was named, else that of the workspace around.
    fn meant(&self, one: One) -> anyhow::Result<Slug> {
        self.meant_by(one.slug)
    }

    fn meant_by(&self, slug: Option<Slug>) -> anyhow::Result<Slug> {
        match slug {
            Some(slug) => Ok(slug),
            None => Ok(self.work.meant(None)?),
        }
    }

    /// Returns the state of a work session as everybody sees it.
    fn state(&self, slug: &Slug) -> anyhow::Result<Option<State>> {
        Ok(self.work.see_or_recall()?.standing(slug).state())
    }

    /// Prints what came of a verb: data with the name and the state, or a sentence.
    fn tell(
        &self,
        slug: &Slug,
        state: State,
        more: Value,
        notices: &[String],
        sentence: &str,
    ) -> anyhow::Result<()> {
        let notices: Vec<String> = notices.iter().cloned().chain(self.gone()).collect();
        if self.output.json {
            let mut data =
                Map::from_iter([("slug".to_owned(), json!(slug)), ("state".to_owned(), json!(state))]);
            if let Value::Object(more) = more {
                data.extend(more);
            }
            data.insert("notices".to_owned(), json!(notices));
            return self.output.data(&data);
        }
        self.output.line(&one_line(sentence))?;
        self.notice(&notices);
        Ok(())
    }

    /// Tells a caller whose own directory went with the workspace where to go.
    fn gone(&self) -> Option<String> {
        let dir = self.context.app.settings().cwd.as_ref()?;
        let home = quoted(self.work.repo().main().display());
        (!Path::new(dir).exists()).then(|| {
            format!("the workspace is removed, and with it the directory that you are in: run `cd {home}`")
        })
    }

    /// Says so when something that is told is old.
    fn tell_old(&self) {
        if self.work.has_recalled() {
            self.output.notice(OLD);
        }
    }

    fn notice(&self, notices: &[String]) {
        for notice in notices {
            self.output.notice(notice);
        }
    }

    /// Says what to do now, to a person.
    fn next(&self, text: &str) {
        if !self.output.json {
            self.output.say(&Style::new().for_stderr().dim().apply_to(one_line(text)).to_string());
        }
    }
}

/// Reads a text that a file, or standard input as `-`, holds.
///
/// What to run when that is impossible: whatever shows why the file cannot be read, or `piped`, which makes a command
/// of one that writes the text; for standard input `otherwise`.
fn text_of(file: &Path, otherwise: &str, piped: impl Fn(&str) -> String) -> sess_work::Result<String> {
    let is_input = file.as_os_str() == "-";
    let name = if is_input { "standard input".to_owned() } else { file.display().to_string() };
    let look = || if is_input { otherwise.to_owned() } else { format!("ls -la -- {}", nearest(file)) };
    let wrong = |what: String| Error::usage(what).next(look());
    let mut bytes = Vec::new();
    let read = if is_input {
        std::io::stdin().take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|opened| opened.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| wrong(format!("cannot read {name}: {error}")))?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(wrong(format!("{name} is larger than {TEXT_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let bytes = error.as_bytes();
        let written = match bytes {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16"),
            _ if bytes.contains(&0) => None,
            _ => Some("ISO-8859-1"),
        };
        let told = wrong(format!("{name} is not UTF-8 text"));
        match written.filter(|_| !is_input) {
            Some(written) => {
                told.next(piped(&format!("iconv -f {written} -t UTF-8 {}", quoted(file.display()))))
            }
            None => told,
        }
    })
}

/// Returns as much of a path as there is, for a shell.
fn nearest(file: &Path) -> String {
    let there = file.ancestors().find(|path| path.symlink_metadata().is_ok());
    quoted(there.unwrap_or(Path::new(".")).display())
}

/// Returns how the word for a state looks.
fn style_of(state: State) -> Style {
    match state {
        State::Drafting => Style::new().dim(),
        State::Planned => Style::new().cyan(),
        State::Active => Style::new().yellow(),
        State::Completed => Style::new().green(),
        State::Abandoned => Style::new().red(),
    }
}

/// Says how long a lease lasts yet, or since when it has lapsed.
fn lease_left(until: &str, now: Timestamp) -> String {
    let Some(until) = Timestamp::parse_rfc3339(until) else { return until.to_owned() };
    let left_ms = until.as_millis() - now.as_millis();
    // A minute that has begun is one that is left.
    let minutes = if left_ms > 0 { (left_ms + 59_999) / 60_000 } else { left_ms.div_euclid(60_000) };
    let told = |minutes: i64| match minutes {
        ..60 => format!("{minutes} min"),
        60..2_880 => format!("{} h", minutes / 60),
        _ => format!("{} d", minutes / 1_440),
    };
    if minutes >= 0 { told(minutes) } else { format!("lapsed {} ago", told(-minutes)) }
}

/// Says how long somebody has a work session yet.
fn lease_of(holder: &sess_work::Holder, now: Timestamp) -> String {
    if holder.waits { "waits to be merged".to_owned() } else { lease_left(&holder.until, now) }
}

/// Says who has a work session.
fn holder_of(holder: &sess_work::Holder) -> String {
    match (&holder.agent, holder.mine) {
        (Some(agent), _) => format!("{agent} of {}", holder.name),
        (None, true) => format!("{} (you)", holder.name),
        (None, false) => holder.name.clone(),
    }
}

/// Says how much some bytes are.
fn size_of(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
