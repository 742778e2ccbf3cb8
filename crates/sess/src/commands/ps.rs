//! `sess ps`: every agent that runs on this machine; live, when watched.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    time::Duration,
};

use console::{Style, truncate_str};
use ratatui::crossterm::{
    cursor::{Hide, MoveTo, Show},
    event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    execute, queue,
    style::Print,
    terminal::{
        Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
    },
};
use serde_json::json;
use sess_app::{LiveAgent, LiveState};
use sess_core::Source;

use super::Context;
use crate::{cli, output::Output};

/// How often it looks again when it is watched.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// On narrower terminals a directory is told by its last part.
const WIDE: usize = 110;
/// On those that are narrower still, the branch is left out, or nothing would be left of what was said.
const NARROW: usize = 70;
/// The most columns of a directory, on wide and on narrow terminals, and of a branch.
const DIRECTORY_MAX: usize = 28;
const NARROW_DIRECTORY_MAX: usize = 16;
const BRANCH_MAX: usize = 20;

pub async fn run(context: &Context, output: &Output, args: cli::Ps) -> anyhow::Result<()> {
    if args.watch {
        let is_drawn = !output.json && output.is_terminal() && io::stdin().is_terminal();
        return if is_drawn { watch(context, output).await } else { changes(context, output).await };
    }
    let agents = context.app.live_agents(&context.caller).await?;
    if output.json {
        return output.data(&json!({ "agents": agents }));
    }
    if agents.is_empty() {
        output.say("no agent runs here");
        return Ok(());
    }
    print(context, output, &agents)
}

fn print(context: &Context, output: &Output, agents: &[LiveAgent]) -> anyhow::Result<()> {
    for line in lines(context, output, agents) {
        output.line(&line)?;
    }
    Ok(())
}

/// Prints the list whenever it is another one, until interrupted.
async fn changes(context: &Context, output: &Output) -> anyhow::Result<()> {
    let mut told: Option<Vec<LiveAgent>> = None;
    loop {
        let agents = context.app.live_agents(&context.caller).await?;
        if told.as_ref() != Some(&agents) {
            if output.json {
                output.data_line(&json!({ "agents": agents }))?;
            } else {
                print(context, output, &agents)?;
                output.line("")?;
            }
            told = Some(agents);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// The terminal while it is drawn on: as it was before, whatever happens meanwhile.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing put back.
        let _gone = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _gone = disable_raw_mode();
    }
}

async fn watch(context: &Context, output: &Output) -> anyhow::Result<()> {
    let _screen = Screen::enter()?;
    loop {
        let agents = context.app.live_agents(&context.caller).await?;
        draw(context, output, &agents)?;
        if event::poll(LOOK_EVERY)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                _ => {}
            }
        }
    }
}

fn draw(context: &Context, output: &Output, agents: &[LiveAgent]) -> anyhow::Result<()> {
    let height = usize::from(console::Term::stdout().size().0).max(3);
    let mut shown = lines(context, output, agents);
    if shown.len() > height - 1 {
        let more = shown.len() + 2 - height;
        shown.truncate(height - 2);
        shown.push(Style::new().dim().apply_to(format!("… {more} more")).to_string());
    }
    let foot = format!("{} · q leaves", summary(agents));
    shown.push(Style::new().dim().apply_to(output.fit(&foot)).to_string());
    let mut stdout = io::stdout();
    for (row, line) in (0..).zip(&shown) {
        queue!(stdout, MoveTo(0, row), Print(line), Clear(ClearType::UntilNewLine))?;
    }
    queue!(stdout, Clear(ClearType::FromCursorDown))?;
    Ok(stdout.flush()?)
}

fn summary(agents: &[LiveAgent]) -> String {
    let count = |state: LiveState| agents.iter().filter(|agent| agent.state == state).count();
    let (waiting, busy) = (count(LiveState::NeedsInput), count(LiveState::Busy));
    let all = if agents.len() == 1 { "1 agent".to_owned() } else { format!("{} agents", agents.len()) };
    let need = if waiting == 1 { "needs" } else { "need" };
    format!("{all}: {waiting} {need} input, {busy} busy")
}

/// Returns the table, ready to be printed. Columns in which nobody has anything are left out.
fn lines(context: &Context, output: &Output, agents: &[LiveAgent]) -> Vec<String> {
    let is_wide = output.width().is_none_or(|width| width >= WIDE);
    let is_narrow = output.width().is_some_and(|width| width < NARROW);
    let home = context.app.settings().homes.as_ref().map(|homes| homes.home().to_owned());
    let directory = |agent: &LiveAgent| {
        let Some(cwd) = &agent.cwd else { return String::new() };
        directory(Path::new(cwd), home.as_deref(), is_wide)
    };
    let branch = |agent: &LiveAgent| {
        let branch = agent.branch.as_deref().filter(|_| !is_narrow).unwrap_or_default();
        truncate_str(branch, BRANCH_MAX, "…").into_owned()
    };
    let said =
        |agent: &LiveAgent| if agent.last_line.is_empty() { &agent.title } else { &agent.last_line }.clone();
    type Column<'a> = (&'static str, Box<dyn Fn(&LiveAgent) -> String + 'a>);
    let columns: [Column<'_>; 8] = [
        ("AGENT", Box::new(name)),
        ("STATE", Box::new(|agent| state(agent.state).to_owned())),
        ("PID", Box::new(|agent| agent.pid.to_string())),
        ("DIRECTORY", Box::new(directory)),
        ("BRANCH", Box::new(branch)),
        (
            "UNREAD",
            Box::new(|agent| if agent.unread == 0 { String::new() } else { agent.unread.to_string() }),
        ),
        ("PLAN", Box::new(|agent| agent.plan.unwrap_or_default().replace('_', " "))),
        ("LAST", Box::new(said)),
    ];
    let is_shown =
        |column: &&Column<'_>| column.0 == "LAST" || agents.iter().any(|agent| !(column.1)(agent).is_empty());
    let columns: Vec<&Column<'_>> = columns.iter().filter(is_shown).collect();
    let header: Vec<&str> = columns.iter().map(|column| column.0).collect();
    let cells: Vec<Vec<String>> =
        agents.iter().map(|agent| columns.iter().map(|column| (column.1)(agent)).collect()).collect();
    // What was said last gives way first: where an agent is and on which branch is told in few words or not at all.
    let yielding: Vec<usize> = ["LAST", "BRANCH", "DIRECTORY"]
        .iter()
        .filter_map(|name| header.iter().position(|shown| shown == name))
        .collect();
    output.lines(&header, &yielding, &cells, &|row, column| match header[column] {
        "STATE" => colour(agents[row].state),
        "UNREAD" => Style::new().bold(),
        "LAST" => Style::new().dim(),
        _ => Style::new(),
    })
}

fn name(agent: &LiveAgent) -> String {
    match agent.source {
        Source::Native => agent.command.clone(),
        source => source.to_string(),
    }
}

fn directory(cwd: &Path, home: Option<&Path>, is_wide: bool) -> String {
    let last = || cwd.file_name().map_or_else(|| cwd.to_string_lossy(), |name| name.to_string_lossy());
    let shown = match home.and_then(|home| cwd.strip_prefix(home).ok()) {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        _ if !is_wide => last().into_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => cwd.display().to_string(),
    };
    // Its end tells more than its beginning.
    let (len, most) = (shown.chars().count(), if is_wide { DIRECTORY_MAX } else { NARROW_DIRECTORY_MAX });
    if len <= most {
        return shown;
    }
    format!("…{}", shown.chars().skip(len - most + 1).collect::<String>())
}

fn state(state: LiveState) -> &'static str {
    match state {
        LiveState::NeedsInput => "needs input",
        LiveState::Busy => "busy",
        LiveState::Idle => "idle",
        LiveState::Dead => "dead",
    }
}

fn colour(state: LiveState) -> Style {
    match state {
        LiveState::NeedsInput => Style::new().yellow().bold(),
        LiveState::Busy => Style::new().green(),
        LiveState::Idle => Style::new().dim(),
        LiveState::Dead => Style::new().red(),
    }
}
