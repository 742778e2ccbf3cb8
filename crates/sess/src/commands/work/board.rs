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
    widgets::{Block, Borders, Paragraph},
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
/// Below this height there is room for one of those that stand one under the other.
const STACKED_ROWS_MIN: u16 = 9;
/// How far cards stand in from the headings above them there.
const INDENT: u16 = 2;
/// How many lines of a note are shown.
const NOTE_ROWS_MAX: usize = 3;
/// The keys, as the last line names them.
const KEYS: &str = "q leaves · r looks again · ←→ Tab column · ↑↓ PgUp PgDn scroll";

/// What was seen last.
#[derive(Default)]
struct Seen {
    rows: Vec<Row>,
    /// What is wrong with it.
    note: Option<String>,
}

/// What of it is looked at.
#[derive(Default)]
struct View {
    /// The column that the keys scroll; until one was chosen, the first that has something going on.
    chosen: Option<usize>,
    /// The first card that is shown of each column; more than there are means the last.
    tops: [usize; State::ALL.len()],
    /// How many cards of the column in focus were shown last.
    page: usize,
}

impl View {
    /// Returns which column has the focus.
    fn focus(&self, rows: &[Row]) -> usize {
        let has_some = |state: &State| rows.iter().any(|row| row.state == *state);
        let busy = [State::Active, State::Planned, State::Drafting].into_iter().find(has_some);
        let place = |state| State::ALL.into_iter().position(|of| of == state);
        self.chosen.or_else(|| place(busy.unwrap_or(State::Active))).unwrap_or_default()
    }

    /// Looks at something else, if the key says so.
    fn press(&mut self, key: KeyCode, rows: &[Row]) {
        let (focus, columns) = (self.focus(rows), State::ALL.len());
        let top = &mut self.tops[focus];
        match key {
            KeyCode::Right | KeyCode::Tab | KeyCode::Char('l') => self.chosen = Some((focus + 1) % columns),
            KeyCode::Left | KeyCode::BackTab | KeyCode::Char('h') => {
                self.chosen = Some((focus + columns - 1) % columns);
            }
            KeyCode::Down | KeyCode::Char('j') => *top = top.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => *top = top.saturating_sub(1),
            KeyCode::PageDown => *top = top.saturating_add(self.page.max(1)),
            KeyCode::PageUp => *top = top.saturating_sub(self.page.max(1)),
            KeyCode::Home => *top = 0,
            // As far as there is something: that is known where it is drawn.
            KeyCode::End => *top = usize::MAX,
            _ => {}
        }
    }
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
    let mut view = View::default();
    loop {
        if !is_asking && asked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            is_asking = ask.send(()).is_ok();
            asked_at = Some(Instant::now());
        }
        if let Ok(new) = answers.try_recv() {
            is_asking = false;
            seen = Some(new);
        }
        terminal.draw(|frame| draw(frame, &mut view, seen.as_ref(), is_asking, now()))?;
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
            key => view.press(key, seen.as_ref().map(|seen| seen.rows.as_slice()).unwrap_or_default()),
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

fn draw(frame: &mut Frame<'_>, view: &mut View, seen: Option<&Seen>, is_asking: bool, now: Timestamp) {
    let area = frame.area();
    let note = seen.and_then(|seen| seen.note.as_deref()).map(one_line);
    let mut foot_lines = note.map(|note| wrapped(&note, area.width)).unwrap_or_default();
    foot_lines.truncate(NOTE_ROWS_MAX);
    let status = if seen.is_none() || is_asking { "  looking …" } else { "" };
    foot_lines.push(format!("{KEYS}{status}"));
    let foot_rows = u16::try_from(foot_lines.len()).unwrap_or(1);
    let [body, foot] = Layout::vertical([Constraint::Min(1), Constraint::Length(foot_rows)]).areas(area);
    let foot_lines: Vec<Line<'_>> = foot_lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(foot_lines).style(Style::new().add_modifier(Modifier::DIM)), foot);

    let rows = seen.map(|seen| seen.rows.as_slice()).unwrap_or_default();
    let focus = view.focus(rows);
    if body.width >= WIDE {
        columned(frame, body, view, focus, rows, now);
    } else {
        stacked(frame, body, view, focus, rows, now);
    }
}

/// Draws the columns side by side.
fn columned(frame: &mut Frame<'_>, body: Rect, view: &mut View, focus: usize, rows: &[Row], now: Timestamp) {
    let places: [Rect; State::ALL.len()] =
        Layout::horizontal([Constraint::Fill(1); State::ALL.len()]).areas(body);
    for (n, ((state, rows), place)) in columns(rows).into_iter().zip(places).enumerate() {
        let title = heading(state, rows.len(), n == focus);
        let block = Block::new().borders(Borders::ALL).title(title);
        let inner = block.inner(place);
        let (lines, shown) =
            scrolled(&cards(&rows, now, inner.width), &mut view.tops[n], inner.height.into());
        if n == focus {
            view.page = shown;
        }
        frame.render_widget(Paragraph::new(lines).block(block), place);
    }
}

/// Draws the columns one under the other: each has its heading, the one in focus as many lines as it needs, and the
/// others share what is left.
fn stacked(frame: &mut Frame<'_>, body: Rect, view: &mut View, focus: usize, rows: &[Row], now: Timestamp) {
    let columns = columns(rows);
    let cards: Vec<Vec<Card>> =
        columns.iter().map(|(_, rows)| cards(rows, now, body.width.saturating_sub(INDENT))).collect();
    let is_low = body.height < STACKED_ROWS_MIN;
    let headings = if is_low { 1 } else { columns.len() };
    let needs: Vec<usize> = cards.iter().map(|cards| rows_of(cards)).collect();
    let rooms = shares(&needs, focus, usize::from(body.height).saturating_sub(headings));
    let mut lines = Vec::new();
    for (n, (state, rows)) in columns.iter().enumerate().filter(|(n, _)| !is_low || *n == focus) {
        lines.push(heading(*state, rows.len(), n == focus));
        let (column, shown) = scrolled(&cards[n], &mut view.tops[n], rooms[n]);
        lines.extend(column.into_iter().map(|mut line| {
            line.spans.insert(0, Span::raw(" ".repeat(INDENT.into())));
            line
        }));
        if n == focus {
            view.page = shown;
        }
    }
    frame.render_widget(Paragraph::new(lines), body);
}

/// Shares lines out: first to the column in focus, then to the others in turn.
fn shares(needs: &[usize], focus: usize, total: usize) -> Vec<usize> {
    let mut rooms = vec![0; needs.len()];
    rooms[focus] = needs[focus].min(total);
    let mut left = total - rooms[focus];
    while left > 0 && rooms != needs {
        for (room, need) in rooms.iter_mut().zip(needs) {
            if *room < *need && left > 0 {
                *room += 1;
                left -= 1;
            }
        }
    }
    rooms
}

fn heading(state: State, count: usize, is_focus: bool) -> Line<'static> {
    let colour = match state {
        State::Drafting => Color::Reset,
        State::Planned => Color::Cyan,
        State::Active => Color::Yellow,
        State::Completed => Color::Green,
        State::Abandoned => Color::Red,
    };
    let mut style = Style::new().fg(colour).add_modifier(Modifier::BOLD);
    if is_focus {
        style = style.add_modifier(Modifier::REVERSED);
    }
    Line::styled(format!("{state} {count}"), style)
}

/// What is shown of one work session.
type Card = Vec<Line<'static>>;

/// Returns the cards of a column, in lines of this width: what does not fit into a line goes on in the next, because
/// names are there to be typed.
fn cards(rows: &[&Row], now: Timestamp, width: u16) -> Vec<Card> {
    let of = |row: &Row| {
        let mut lines = Vec::new();
        for (n, text) in card(row, now).into_iter().enumerate() {
            let style = match n {
                0 => Style::new(),
                2 if row.holder.as_ref().is_some_and(|holder| holder.stale) => Style::new().fg(Color::Red),
                _ => Style::new().add_modifier(Modifier::DIM),
            };
            lines.extend(wrapped(&text, width).into_iter().map(|text| Line::styled(text, style)));
        }
        lines
    };
    rows.iter().map(|row| of(row)).collect()
}

/// Returns how many lines cards take, with a free one between each two.
fn rows_of(cards: &[Card]) -> usize {
    cards.iter().map(|card| card.len() + 1).sum::<usize>().saturating_sub(1)
}

/// Returns the lines of a column from the card `top` on, and how many cards they show; at both ends they say how many
/// there are more. A `top` that leaves room free at the end is set right.
fn scrolled(cards: &[Card], top: &mut usize, room: usize) -> (Vec<Line<'static>>, usize) {
    if rows_of(cards) <= room {
        *top = 0;
    } else {
        // The line that tells about those above takes one, as does each that is free between two cards.
        let mut rows = 0;
        let is_room = |card: &&Card| {
            rows += card.len() + 1;
            rows <= room
        };
        let fit = cards.iter().rev().take_while(is_room).count();
        let last = cards.len() - fit.max(1);
        *top = (*top).min(last);
    }
    let more = |arrow: char, count: usize| {
        let style = Style::new().add_modifier(Modifier::DIM | Modifier::ITALIC);
        Line::from(Span::styled(format!("{arrow} {count} more"), style))
    };
    let mut lines = Vec::new();
    // Where there is hardly any room, the beginning of a card says more than a number does.
    if *top > 0 && room > 2 {
        lines.push(more('↑', *top));
    }
    let mut shown = 0;
    for (n, card) in cards.iter().enumerate().skip(*top) {
        let (is_first, is_last) = (n == *top, n + 1 == cards.len());
        let wanted = lines.len() + usize::from(!is_first) + card.len() + usize::from(!is_last);
        if wanted > room && !is_first {
            break;
        }
        if !is_first {
            lines.push(Line::default());
        }
        lines.extend(card.iter().cloned());
        shown += 1;
    }
    let below = cards.len() - *top - shown;
    if below > 0 && room > 1 {
        lines.truncate(room - 1);
        lines.push(more('↓', below));
    }
    lines.truncate(room);
    (lines, shown)
}

/// Writes a text in lines of this width, between words where that is possible.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width.max(1));
    let columns = |text: &str| Span::raw(text).width();
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() || columns(line) + 1 + columns(word) <= width {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
        // A word that is longer than a line is cut.
        while let Some(line) = lines.last_mut()
            && columns(line) > width
        {
            // At least one character stays, however wide it is.
            let ends = line.char_indices().skip(1).map(|(at, _)| at);
            let Some(at) = ends.clone().take_while(|at| columns(&line[..*at]) <= width).last().or(ends.min())
            else {
                break;
            };
            let rest = line.split_off(at);
            lines.push(rest);
        }
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

    fn shown(rows: Vec<Row>, view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        let now = Timestamp::parse_rfc3339("2025-10-14T00:05:00Z").expect("a time");
        let seen = Seen { rows, note: None };
        terminal.draw(|frame| draw(frame, view, Some(&seen), false, now)).expect("drawn");
        terminal.backend().to_string()
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
        shown(rows, &mut View::default(), width, height)
    }

    /// Eighteen that are planned, and one of each other state.
    fn many() -> Vec<Row> {
        let planned =
            (1..=18).map(|n| row(&format!("2025-10-14-p{n}"), State::Planned, &format!("Plan {n}.")));
        let others = State::ALL.into_iter().filter(|state| *state != State::Planned);
        planned.chain(others.map(|state| row(&format!("2025-10-14-{state}"), state, "Other"))).collect()
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

    #[test]
    fn every_column_is_reached_and_scrolled_with_the_keys() {
        for (width, height) in [(80, 24), (120, 24), (40, 12), (80, 9), (30, 6)] {
            let mut view = View::default();
            let mut at = |keys: &[KeyCode]| {
                // Drawn after each, as somebody sees it who presses them.
                keys.iter().for_each(|key| {
                    view.press(*key, &many());
                    shown(many(), &mut view, width, height);
                });
                let board = shown(many(), &mut view, width, height);
                // The line of the keys has arrows, too.
                board.trim_end().rsplit_once('\n').expect("some lines").0.to_owned()
            };
            let check = |board: &str, shows: &[&str], hides: &[&str]| {
                for text in shows {
                    assert!(board.contains(text), "{text} at {width}x{height}\n{board}");
                }
                for text in hides {
                    assert!(!board.contains(text), "no {text} at {width}x{height}\n{board}");
                }
            };
            let first = at(&[]);
            check(&first, &["active 1"], &["Plan 18."]);
            if height > 9 {
                check(&first, &["drafting 1", "planned 18", "completed 1", "abandoned 1"], &[]);
            }
            check(&at(&[KeyCode::Left]), &["planned 18", "Plan 1.", "↓ ", " more"], &["↑", "Plan 18."]);
            check(&at(&[KeyCode::Char('j')]), &["Plan 2.", "↑ 1 more", "↓ "], &["Plan 1."]);
            check(&at(&[KeyCode::Up]), &["Plan 1."], &["↑"]);
            check(&at(&[KeyCode::End]), &["Plan 18.", "↑ "], &["↓", "Plan 1."]);
            // The last one stays at the end, and one step goes back at once.
            let last = at(&[]);
            assert_eq!(at(&[KeyCode::PageDown, KeyCode::Down]), last);
            check(&at(&[KeyCode::Char('k')]), &["↑ ", "↓ "], &["Plan 18."]);
            check(&at(&[KeyCode::Home]), &["Plan 1."], &["↑"]);
            check(&at(&[KeyCode::PageDown; 18]), &["Plan 18."], &["↓"]);
            check(&at(&[KeyCode::Tab, KeyCode::Char('l')]), &["completed 1", "2025-10-14-completed"], &[]);
            check(&at(&[KeyCode::Right, KeyCode::Right]), &["drafting 1", "2025-10-14-drafting"], &[]);
            check(&at(&[KeyCode::BackTab]), &["abandoned 1", "2025-10-14-abandoned"], &[]);
        }
    }

    #[test]
    fn as_many_cards_are_shown_as_fit_and_the_others_are_counted() {
        let wide = shown(many(), &mut View::default(), 120, 24);
        // Of 22 lines seven cards take 20, with a free one between each two.
        for n in 1..=7 {
            assert!(wide.contains(&format!("Plan {n}.")), "{n}\n{wide}");
        }
        assert!(wide.contains("↓ 11 more") && wide.contains(KEYS), "{wide}");
        // Under each other, what is not looked at gets what is left.
        let narrow = shown(many(), &mut View::default(), 80, 24);
        for text in ["Plan 1.", "↓ ", "2025-10-14-abandoned", "2025-10-14-completed", KEYS] {
            assert!(narrow.contains(text), "{text}\n{narrow}");
        }
    }

    #[test]
    fn lines_are_broken_between_words_and_long_words_anywhere() {
        let check =
            |text: &str, width: u16, lines: &[&str]| assert_eq!(wrapped(text, width), lines, "{text}");
        check("", 5, &[""]);
        check("one two three", 7, &["one two", "three"]);
        check("a 2025-10-14-long b", 8, &["a", "2025-10-", "14-long", "b"]);
        check("界界界", 4, &["界界", "界"]);
        check("界界", 1, &["界", "界"]);
        check("ab", 0, &["a", "b"]);
    }
}
