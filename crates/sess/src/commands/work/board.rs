//! `sess work board`: all work sessions in five columns, live; printed once where nobody looks at a terminal.

use std::{
    io::IsTerminal as _,
    sync::mpsc::{self, Receiver, SyncSender},
    time::{Duration, Instant},
};

use ratatui::{
    DefaultTerminal, Frame,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Borders, Paragraph, Wrap},
};
use serde_json::json;
use sess_core::Timestamp;
use sess_work::{Row, State, Work};

use super::{Here, OLD, holder_of, lease_of};
use crate::{
    config::now,
    output::{ago, one_line},
};

/// How often it looks by itself: each look asks the remote.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long a key is waited for before the times are drawn anew.
const TICK: Duration = Duration::from_millis(250);
/// How many looks may be asked for at a time.
const LOOKS_MAX: usize = 1;
/// Below this width the columns stand one under the other.
const WIDE: u16 = 100;

/// What does not fit into a line goes on in the next: names are there to be typed.
const WHOLE: Wrap = Wrap { trim: false };

/// What was seen last.
#[derive(Default)]
struct Seen {
    rows: Vec<Row>,
    /// What is wrong with it.
    note: Option<String>,
}

pub(super) async fn run(here: &Here<'_>) -> anyhow::Result<()> {
    let is_live = !here.output.json && here.output.is_terminal() && std::io::stdin().is_terminal();
    if is_live {
        let (ask, asked) = mpsc::sync_channel(LOOKS_MAX);
        let (answer, answers) = mpsc::sync_channel(LOOKS_MAX);
        let work = here.work.clone();
        // Nobody waits for its last look: it ends with the process, and changes nothing.
        std::thread::spawn(move || looking(&work, &asked, &answer));
        let mut terminal = ratatui::try_init()?;
        let ended = live(&mut terminal, &ask, &answers);
        ratatui::try_restore()?;
        return ended;
    }
    let Seen { rows, note } = look(&here.work)?;
    if here.output.json {
        return here.output.data(&json!({ "workSessions": rows, "isOld": note.is_some() }));
    }
    if let Some(note) = note {
        here.output.notice(&note);
    }
    for (state, rows) in columns(&rows) {
        here.output.line(&format!("{state} ({})", rows.len()))?;
        for row in rows {
            for line in card(row, now()) {
                here.output.hanging("  ", &line)?;
            }
        }
    }
    Ok(())
}

fn look(work: &Work) -> sess_work::Result<Seen> {
    let seen = work.see_or_recall()?;
    let note = seen.view.is_old.then(|| OLD.to_owned());
    Ok(Seen { rows: work.list(&seen)?, note })
}

/// Looks whenever it is asked to, where waiting for the remote stops nobody.
fn looking(work: &Work, asked: &Receiver<()>, answer: &SyncSender<Seen>) {
    while asked.recv().is_ok() {
        let seen =
            look(work).unwrap_or_else(|error| Seen { rows: Vec::new(), note: Some(error.to_string()) });
        if answer.send(seen).is_err() {
            return;
        }
    }
}

fn live(
    terminal: &mut DefaultTerminal,
    ask: &SyncSender<()>,
    answers: &Receiver<Seen>,
) -> anyhow::Result<()> {
    let mut seen: Option<Seen> = None;
    let mut asked_at: Option<Instant> = None;
    let mut is_asking = false;
    loop {
        if !is_asking && asked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            is_asking = ask.send(()).is_ok();
            asked_at = Some(Instant::now());
        }
        if let Ok(new) = answers.try_recv() {
            is_asking = false;
            seen = Some(new);
        }
        terminal.draw(|frame| draw(frame, seen.as_ref(), is_asking, now()))?;
        if !event::poll(TICK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
            KeyCode::Char('r') => asked_at = None,
            _ => {}
        }
    }
}

fn columns(rows: &[Row]) -> Vec<(State, Vec<&Row>)> {
    let of = |state| rows.iter().filter(|row| row.state == state).collect();
    State::ALL.into_iter().map(|state| (state, of(state))).collect()
}

/// Says what there is to say about one, a line each.
fn card(row: &Row, now: Timestamp) -> Vec<String> {
    let mut lines = vec![one_line(&row.title), row.slug.to_string()];
    if let Some(holder) = &row.holder {
        lines.push(one_line(&format!("{} · {}", holder_of(holder), lease_of(holder, now))));
    }
    if !row.waits_for.is_empty() {
        lines.push(format!("waits for {}", row.waits_for.join(", ")));
    }
    let is_open = !matches!(row.state, State::Completed | State::Abandoned);
    lines.extend(row.last_log.as_deref().filter(|_| is_open).map(|line| logged(line, now)));
    lines.extend(row.note.as_deref().map(one_line));
    lines
}

/// Says what a line of the log says, and then when it was written: where there is room for one of them, for the text.
fn logged(line: &str, now: Timestamp) -> String {
    let timed = line.split_once(' ').and_then(|(at, text)| Some((Timestamp::parse_rfc3339(at)?, text)));
    match timed {
        Some((at, text)) => one_line(&format!("{text} · {}", ago(at, now))),
        None => one_line(line),
    }
}

fn draw(frame: &mut Frame<'_>, seen: Option<&Seen>, is_asking: bool, now: Timestamp) {
    let [body, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    let rows = seen.map(|seen| seen.rows.as_slice()).unwrap_or_default();
    let columns = columns(rows);
    if body.width >= WIDE {
        let places: [Rect; 5] = Layout::horizontal([Constraint::Fill(1); 5]).areas(body);
        for ((state, rows), place) in columns.iter().zip(places) {
            let block = Block::new().borders(Borders::ALL).title(heading(*state, rows.len()));
            frame.render_widget(Paragraph::new(cards(rows, now)).wrap(WHOLE).block(block), place);
        }
    } else {
        let mut lines = Vec::new();
        // What is going on comes first, where there is no room for all.
        for state in [State::Active, State::Planned, State::Drafting, State::Abandoned, State::Completed] {
            let Some((_, rows)) = columns.iter().find(|(of, _)| *of == state) else { continue };
            lines.push(heading(state, rows.len()));
            lines.extend(cards(rows, now));
        }
        frame.render_widget(Paragraph::new(lines).wrap(WHOLE), body);
    }
    let status = match (seen, is_asking) {
        (None, _) | (_, true) => "looking …".to_owned(),
        (Some(Seen { note: Some(note), .. }), _) => one_line(note),
        (Some(_), false) => String::new(),
    };
    let foot_text = format!("q leaves · r looks again  {status}");
    frame.render_widget(Paragraph::new(foot_text).style(Style::new().add_modifier(Modifier::DIM)), foot);
}

fn heading(state: State, count: usize) -> Line<'static> {
    let colour = match state {
        State::Drafting => Color::Reset,
        State::Planned => Color::Cyan,
        State::Active => Color::Yellow,
        State::Completed => Color::Green,
        State::Abandoned => Color::Red,
    };
    Line::styled(format!("{state} {count}"), Style::new().fg(colour).add_modifier(Modifier::BOLD))
}

fn cards(rows: &[&Row], now: Timestamp) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for row in rows {
        for (n, text) in card(row, now).into_iter().enumerate() {
            let style = match n {
                0 => Style::new(),
                2 if row.holder.as_ref().is_some_and(|holder| holder.stale) => Style::new().fg(Color::Red),
                _ => Style::new().add_modifier(Modifier::DIM),
            };
            lines.push(Line::from(Span::styled(text, style)));
        }
        lines.push(Line::default());
    }
    lines
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};
    use sess_work::{Holder, WorkKind};

    use super::*;

    fn row(slug: &str, state: State, title: &str) -> Row {
        Row {
            slug: slug.parse().expect("a slug"),
            state,
            title: title.to_owned(),
            kind: WorkKind::Standard,
            ready: state == State::Planned,
            depends: Vec::new(),
            waits_for: Vec::new(),
            labels: Vec::new(),
            parent: None,
            holder: None,
            note: None,
            last_log: None,
        }
    }

    fn drawn(width: u16, height: u16) -> String {
        let mut active = row("2025-10-14-a-login-for-people", State::Active, "Add\u{1b}[2J login");
        active.last_log = Some("2025-10-14T00:02:00Z wrote the form".to_owned());
        active.holder = Some(Holder {
            name: "Ann".to_owned(),
            agent: Some("coder".to_owned()),
            session: None,
            host: "here".to_owned(),
            since: "2025-10-14T00:00:00Z".to_owned(),
            until: "2025-10-14T00:30:00Z".to_owned(),
            stale: false,
            waits: false,
            fence: 1,
            attempt: 1,
            mine: false,
        });
        let rows = vec![row("2025-10-14-docs", State::Planned, "Write docs"), active];
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        let now = Timestamp::parse_rfc3339("2025-10-14T00:05:00Z").expect("a time");
        let seen = Seen { rows, note: None };
        terminal.draw(|frame| draw(frame, Some(&seen), false, now)).expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn five_columns_show_who_has_what_until_when() {
        let wide = drawn(150, 10);
        for shown in ["drafting 0", "planned 1", "active 1", "completed 0", "abandoned 0", "Write docs"] {
            assert!(wide.contains(shown), "{shown}\n{wide}");
        }
        let texts = ["Add␛[2J login", "coder of Ann · 25 min", "wrote the form · 3 min ago", "q leaves"];
        for shown in texts {
            assert!(wide.contains(shown), "{shown}\n{wide}");
        }
        assert!(!wide.contains('\u{1b}'));
        // What a column has no room for goes on below.
        let columns = drawn(100, 14);
        for shown in ["2025-10-14-a-login", "-for-people", "wrote the form"] {
            assert!(columns.contains(shown), "{shown}\n{columns}");
        }
    }

    #[test]
    fn a_narrow_terminal_shows_what_is_going_on_first() {
        let narrow = drawn(30, 8);
        assert!(narrow.contains("active 1") && narrow.contains("wrote the form"), "{narrow}");
        // Where there is hardly any room, the beginnings of what is going on and of the keys are left.
        assert_eq!(drawn(3, 2), "\"act\"\n\"q l\"\n");
    }
}
