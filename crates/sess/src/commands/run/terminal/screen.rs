//! What is on the terminal while a turn runs: rows that stay, and below them the part that is drawn anew.

use std::{
    collections::HashMap,
    io::{self, Write as _},
    time::{Duration, Instant},
};

use console::{Style, Term, measure_text_width, truncate_str};
use serde_json::{Map, Value};
use sess_app::agents::{News, Place};
use sess_core::{AgentId, RunId, message::Usage};

use super::{calls, markdown::Markdown};
use crate::output::{one_line, visible};

/// How often the moving part is drawn at most; the eye sees no more.
const DRAW_EVERY: Duration = Duration::from_millis(30);
/// How many running tools are shown.
const RUNNING_SHOWN_MAX: usize = 6;
/// How many rows of a tool's result are shown.
const PREVIEW_ROWS: usize = 3;
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const FRAME: Duration = Duration::from_millis(80);
const INDENT: usize = 2;
/// The first row below is the one the cursor is in; rows end with both, for the terminal may be in raw mode.
const END: &str = "\r\n";

#[derive(Default)]
pub struct Screen {
    /// How wide the rows of the moving part are that are on the terminal now.
    moving: Vec<usize>,
    drawn_at: Option<Instant>,
    /// The turn that runs.
    turn: Option<Turn>,
    /// The person is typing: rows wait.
    is_asking: bool,
    held: Vec<String>,
    last: Last,
}

struct Turn {
    agent: AgentId,
    since: Instant,
    is_stopping: bool,
    voices: HashMap<RunId, Voice>,
    /// Who spoke or acted last.
    speaker: Option<RunId>,
    running: Vec<Running>,
    /// Arguments of calls that the person was asked about.
    asked: HashMap<String, Map<String, Value>>,
    waiting: Waiting,
    context: Option<(u64, Option<u32>)>,
}

struct Voice {
    place: Place,
    text: Markdown,
    /// What a sub-agent has said so far. Several may speak at once, so each is shown when it has finished.
    whole: String,
    thought: Option<Thought>,
}

struct Thought {
    since: Instant,
    text: String,
}

struct Running {
    id: String,
    run: RunId,
    depth: usize,
    name: String,
    summary: String,
    since: Instant,
}

struct Waiting {
    what: String,
    since: Instant,
}

/// What the last row was: different things are kept apart by a blank row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Last {
    #[default]
    Nothing,
    Text,
    Tool,
    Talk,
    Plan,
    /// What the person typed.
    Line,
}

impl Screen {
    pub fn width(&self) -> usize {
        usize::from(Term::stdout().size().1).max(20)
    }

    /// Prints rows that stay, apart from what is not of their kind.
    pub fn print(&mut self, kind: Last, rows: impl IntoIterator<Item = String>) {
        let mut rows: Vec<String> = rows.into_iter().collect();
        if rows.is_empty() {
            return;
        }
        if self.last != kind && self.last != Last::Nothing {
            rows.insert(0, String::new());
        }
        self.last = kind;
        self.held.extend(rows);
        self.draw(false);
    }

    /// A blank row, unless there is one.
    pub fn gap(&mut self) {
        if self.last != Last::Nothing {
            self.held.push(String::new());
            self.last = Last::Nothing;
        }
        self.draw(true);
    }

    /// What comes next belongs to the row above, whatever it is.
    pub fn join(&mut self) {
        self.last = Last::Nothing;
    }

    /// Somebody else has written rows of this kind.
    pub fn wrote(&mut self, kind: Last) {
        self.last = kind;
    }

    pub fn begin(&mut self, agent: &AgentId) {
        let now = Instant::now();
        self.turn = Some(Turn {
            agent: agent.clone(),
            since: now,
            is_stopping: false,
            voices: HashMap::new(),
            speaker: None,
            running: Vec::new(),
            asked: HashMap::new(),
            waiting: Waiting { what: format!("{agent} is asked"), since: now },
            context: None,
        });
        self.draw(true);
    }

    pub fn stopping(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.is_stopping = true;
        }
        self.draw(true);
    }

    /// Ends the turn; returns how full the model's window was.
    pub fn end(&mut self) -> Option<(u64, Option<u32>)> {
        let speakers: Vec<RunId> =
            self.turn.iter().flat_map(|turn| turn.voices.keys().cloned().collect::<Vec<_>>()).collect();
        for run in speakers {
            self.finish_text(&run);
        }
        let context = self.turn.take().and_then(|turn| turn.context);
        self.draw(true);
        context
    }

    /// The person is about to type: nothing moves until [`Self::resume`].
    pub fn pause(&mut self) {
        self.draw(true);
        self.write(&self.erased());
        self.moving.clear();
        self.is_asking = true;
        self.write("\x1b[?25h");
    }

    pub fn resume(&mut self) {
        self.is_asking = false;
        if self.held.is_empty() {
            self.last = Last::Line;
        } else {
            self.held.insert(0, String::new());
        }
        self.draw(true);
    }

    /// Lets the clock run on.
    pub fn tick(&mut self) {
        self.draw(true);
    }

    /// Remembers what the person was asked about; a call that is refused is never started.
    pub fn asked(&mut self, id: &str, arguments: &Map<String, Value>) {
        if let Some(turn) = &mut self.turn {
            turn.asked.insert(id.to_owned(), arguments.clone());
        }
    }

    pub fn news(&mut self, place: &Place, news: &News) {
        let width = self.width();
        let Some(turn) = &mut self.turn else { return };
        let now = Instant::now();
        let depth = place.depth * INDENT;
        match news {
            News::Text(text) => {
                let what = format!("{} answers", place.agent);
                if turn.waiting.what != what {
                    turn.waiting = Waiting { what, since: now };
                }
                self.finish_thought(&place.run);
                let Some(voice) = self.voice(place) else { return };
                if place.depth > 0 {
                    voice.whole.push_str(text);
                    return;
                }
                let rows = voice.text.push(text, width.saturating_sub(depth));
                self.print(Last::Text, rows.into_iter().map(|row| indented(depth, &row)));
                self.draw(false);
            }
            News::Thinking(text) => {
                let Some(voice) = self.voice(place) else { return };
                let thought =
                    voice.thought.get_or_insert_with(|| Thought { since: now, text: String::new() });
                thought.text.push_str(text);
                self.draw(false);
            }
            News::Calling { name } => {
                turn.waiting =
                    Waiting { what: format!("{} writes {}", place.agent, one_line(name)), since: now };
                self.finish_text(&place.run);
            }
            News::Waiting { why } => {
                let text = Style::new().dim().apply_to(format!("waiting: {}", one_line(why))).to_string();
                self.print(Last::Talk, [indented(depth, &text)]);
            }
            News::Retry { why, after_ms } => {
                if let Some(voice) = turn.voices.get_mut(&place.run) {
                    (voice.text, voice.thought) = (Markdown::default(), None);
                    voice.whole.clear();
                }
                let seconds = Duration::from_millis(*after_ms);
                let text = format!("↻ {}; asked again in {}", one_line(why), elapsed(seconds));
                self.print(Last::Talk, [indented(depth, &Style::new().yellow().apply_to(text).to_string())]);
            }
            News::ToolStarted { id, name, arguments } => {
                self.finish_text(&place.run);
                let summary = calls::summary(name, arguments);
                if name == calls::TASK {
                    self.speak(place);
                    // What the other agent does is shown below it.
                    let row =
                        call_row("◆", &Style::new().magenta(), name, &summary, "", width - depth.min(width));
                    self.print(Last::Tool, [indented(depth, &row)]);
                }
                let Some(turn) = &mut self.turn else { return };
                turn.running.push(Running {
                    id: id.clone(),
                    run: place.run.clone(),
                    depth,
                    name: name.clone(),
                    summary,
                    since: now,
                });
                self.draw(true);
            }
            News::ToolEnded { id, name, text, is_error } => self.tool_ended(place, id, name, text, *is_error),
            News::Replied { usage: _, context_tokens, context_window } => {
                if place.depth == 0 {
                    turn.context = Some((*context_tokens, *context_window));
                }
                turn.waiting = Waiting { what: format!("{} is asked", place.agent), since: now };
                self.finish_text(&place.run);
            }
            News::Compacting => {
                turn.waiting =
                    Waiting { what: "the context is nearly full: summarising".to_owned(), since: now };
                self.draw(true);
            }
            News::Compacted => {
                let text = Style::new().dim().apply_to("⟲ what came before was summarised for the model");
                self.print(Last::Talk, [indented(depth, &text.to_string())]);
            }
            News::Switched(agent) => {
                if place.depth == 0 {
                    turn.agent = agent.clone();
                }
                turn.waiting = Waiting { what: format!("{agent} is asked"), since: now };
                let text = format!("→ {} {agent}", Style::new().dim().apply_to("now"));
                self.print(Last::Talk, [indented(depth, &text)]);
            }
        }
    }

    fn tool_ended(&mut self, place: &Place, id: &str, name: &str, text: &str, is_error: bool) {
        let (width, depth) = (self.width(), place.depth * INDENT);
        self.finish_text(&place.run);
        let Some(turn) = &mut self.turn else { return };
        let place_of = |call: &Running| call.id == id && call.run == place.run;
        let started = turn.running.iter().position(place_of).map(|at| turn.running.remove(at));
        let took =
            started.as_ref().map(|call| format!(" {}", elapsed(call.since.elapsed()))).unwrap_or_default();
        let summary = match (started, turn.asked.remove(id)) {
            (Some(call), _) => call.summary,
            (None, Some(arguments)) => calls::summary(name, &arguments),
            (None, None) => String::new(),
        };
        turn.waiting = Waiting { what: format!("{} is asked", place.agent), since: Instant::now() };
        self.speak(place);
        let style = if is_error { Style::new().red() } else { Style::new().green() };
        let mark = style.apply_to(if is_error { "✗" } else { "✓" });
        let end = format!("{mark}{}", Style::new().dim().apply_to(took));
        let room = width.saturating_sub(depth);
        let mut rows = vec![call_row("●", &style, name, &summary, &end, room)];
        rows.extend(preview(name, text, is_error, room));
        self.print(Last::Tool, rows.into_iter().map(|row| indented(depth, &row)));
    }

    fn voice(&mut self, place: &Place) -> Option<&mut Voice> {
        let voices = &mut self.turn.as_mut()?.voices;
        Some(voices.entry(place.run.clone()).or_insert_with(|| Voice {
            place: place.clone(),
            text: Markdown::default(),
            whole: String::new(),
            thought: None,
        }))
    }

    /// Somebody speaks or acts: a sub-agent says its name first, unless it was the last one to.
    fn speak(&mut self, place: &Place) {
        let Some(turn) = &mut self.turn else { return };
        let former = turn.speaker.replace(place.run.clone());
        if former.as_ref() != Some(&place.run) && place.depth > 0 {
            let name = Style::new().magenta().apply_to(format!("◆ {}", place.agent)).to_string();
            self.gap();
            self.print(Last::Nothing, [indented((place.depth - 1) * INDENT, &name)]);
        }
    }

    fn finish_thought(&mut self, run: &RunId) {
        let Some(voice) = self.turn.as_mut().and_then(|turn| turn.voices.get_mut(run)) else { return };
        let Some(thought) = voice.thought.take() else { return };
        let place = voice.place.clone();
        let depth = place.depth * INDENT;
        self.speak(&place);
        let text = format!("✻ thought for {}", elapsed(thought.since.elapsed()));
        self.print(Last::Talk, [indented(depth, &Style::new().dim().apply_to(text).to_string())]);
    }

    fn finish_text(&mut self, run: &RunId) {
        self.finish_thought(run);
        let width = self.width();
        let Some(voice) = self.turn.as_mut().and_then(|turn| turn.voices.get_mut(run)) else { return };
        let place = voice.place.clone();
        let depth = place.depth * INDENT;
        let width = width.saturating_sub(depth);
        let whole = std::mem::take(&mut voice.whole);
        let mut rows = voice.text.push(&whole, width);
        rows.extend(voice.text.finish(width));
        if !rows.is_empty() {
            self.speak(&place);
        }
        self.print(Last::Text, rows.into_iter().map(|row| indented(depth, &row)));
        self.draw(true);
    }

    /// Writes the rows that wait and the moving part below them, in one go.
    fn draw(&mut self, now: bool) {
        if self.is_asking {
            return;
        }
        let is_soon = self.drawn_at.is_some_and(|at| at.elapsed() < DRAW_EVERY);
        if self.held.is_empty() && is_soon && !now {
            return;
        }
        let mut text = self.erased();
        for row in self.held.drain(..) {
            text.push_str(&row);
            text.push_str(END);
        }
        let mut moving = self.moving_rows();
        // What has scrolled away could not be taken away again.
        let height_max = usize::from(Term::stdout().size().0).saturating_sub(1).max(1);
        moving.drain(..moving.len().saturating_sub(height_max));
        if moving.is_empty() {
            text.push_str("\x1b[?25h");
        } else {
            text.push_str("\x1b[?25l");
            text.push_str(&moving.join(END));
        }
        self.moving = moving.iter().map(|row| measure_text_width(row)).collect();
        self.drawn_at = Some(Instant::now());
        self.write(&text);
    }

    /// What takes the moving part away: up to its first row, and everything from there.
    fn erased(&self) -> String {
        // A terminal that became narrower has wrapped them.
        let width = self.width();
        let rows: usize = self.moving.iter().map(|row| row.div_ceil(width).max(1)).sum();
        match rows {
            0 => String::new(),
            1 => "\r\x1b[J".to_owned(),
            rows => format!("\r\x1b[{}A\x1b[J", rows - 1),
        }
    }

    fn moving_rows(&self) -> Vec<String> {
        let Some(turn) = &self.turn else { return Vec::new() };
        let width = self.width();
        let mut rows: Vec<String> = Vec::new();
        if let Some(voice) = turn.voices.values().find(|voice| voice.place.depth == 0) {
            let growing = voice.text.growing(width);
            if !growing.is_empty() && self.last != Last::Text && self.last != Last::Nothing {
                rows.push(String::new());
            }
            rows.extend(growing);
        }
        if !rows.is_empty() || self.last != Last::Nothing {
            rows.push(String::new());
        }
        let frame = turn.since.elapsed().as_millis() / FRAME.as_millis();
        let frame = FRAMES[usize::try_from(frame).unwrap_or_default() % FRAMES.len()];
        let frame = Style::new().cyan().apply_to(frame).to_string();
        let dim = Style::new().dim();
        if turn.is_stopping {
            rows.push(format!("{frame} {}", dim.apply_to("stopping · Ctrl-C again leaves")));
            return rows;
        }
        let running = turn.running.iter().rev().take(RUNNING_SHOWN_MAX).rev();
        for call in running {
            let end = dim.apply_to(elapsed(call.since.elapsed())).to_string();
            let room = width.saturating_sub(call.depth);
            let row = call_row(&frame, &Style::new(), &call.name, &call.summary, &end, room);
            rows.push(indented(call.depth, &row));
        }
        let thought = turn.voices.values().find_map(|voice| Some((voice, voice.thought.as_ref()?)));
        let (what, since) = match thought {
            Some((voice, thought)) => {
                (format!("{} thinks: {}", voice.place.agent, newest(&thought.text, width / 2)), thought.since)
            }
            None if turn.running.is_empty() => (turn.waiting.what.clone(), turn.waiting.since),
            None => return rows,
        };
        let text = format!("{what} · {} · Ctrl-C stops", elapsed(since.elapsed()));
        rows.push(format!("{frame} {}", dim.apply_to(truncate_str(&text, width.saturating_sub(2), "…"))));
        rows
    }

    fn write(&self, text: &str) {
        let mut stdout = io::stdout().lock();
        // When the terminal is gone, so is the person: the signal that comes with it ends the chat.
        let _gone = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }
}

/// Returns `● name  summary  end` in one row.
fn call_row(mark: &str, style: &Style, name: &str, summary: &str, end: &str, width: usize) -> String {
    let name = one_line(name);
    let room = width.saturating_sub(measure_text_width(&name) + measure_text_width(end) + 6);
    let summary = truncate_str(summary, room, "…");
    let mut row = format!("{} {}", style.apply_to(mark), Style::new().bold().apply_to(name));
    for part in [summary.as_ref(), end] {
        if !part.is_empty() {
            row.push_str("  ");
            row.push_str(part);
        }
    }
    row
}

/// Returns the beginning of a tool's result.
fn preview(name: &str, text: &str, is_error: bool, width: usize) -> Vec<String> {
    if !is_error && calls::is_told_by_its_line(name) {
        return Vec::new();
    }
    let text = visible(text).replace('\t', "    ");
    let lines: Vec<&str> = text.trim_end().lines().filter(|line| !line.trim().is_empty()).collect();
    let style = if is_error { Style::new().red() } else { Style::new().dim() };
    let more = lines.len().saturating_sub(PREVIEW_ROWS);
    let row = |(n, line): (usize, &&str)| {
        let end =
            if n + 1 == PREVIEW_ROWS && more > 0 { format!("  … {more} more") } else { String::new() };
        let room = width.saturating_sub(4 + end.len());
        let line = style.apply_to(truncate_str(line, room, "…"));
        let gutter = Style::new().dim().apply_to("│");
        format!("  {gutter} {line}{}", Style::new().dim().apply_to(end))
    };
    lines.iter().take(PREVIEW_ROWS).enumerate().map(row).collect()
}

/// Returns the newest part of a thought, on one line.
fn newest(text: &str, columns: usize) -> String {
    let tail: String = text.chars().rev().take(columns * 2).collect::<Vec<_>>().into_iter().rev().collect();
    let line = one_line(&tail).split_whitespace().collect::<Vec<_>>().join(" ");
    let count = line.chars().count();
    if count <= columns {
        line
    } else {
        format!("…{}", line.chars().skip(count - columns).collect::<String>())
    }
}

fn indented(depth: usize, row: &str) -> String {
    if row.is_empty() { String::new() } else { format!("{}{row}", " ".repeat(depth)) }
}

/// Says how long something took, in the unit that fits.
pub fn elapsed(time: Duration) -> String {
    match time.as_secs() {
        0 if time.as_millis() < 100 => format!("{}ms", time.as_millis()),
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

/// Returns the line about what a turn took.
pub fn taken(agent: &AgentId, usage: &Usage, context: Option<(u64, Option<u32>)>, time: Duration) -> String {
    let input = usage.input + usage.cache_read + usage.cache_write;
    let mut parts = vec![agent.to_string(), elapsed(time)];
    parts.push(format!("{} in, {} out", tokens(input), tokens(usage.output)));
    if let Some((used, Some(window))) = context.filter(|(_, window)| window.is_some_and(|window| window > 0))
    {
        parts.push(format!("context {}%", used.saturating_mul(100) / u64::from(window)));
    }
    if let Some(cost) = usage.cost {
        parts.push(if cost < 0.1 { format!("${cost:.4}") } else { format!("${cost:.2}") });
    }
    Style::new().dim().apply_to(parts.join(" · ")).to_string()
}

fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1_000.0),
        _ => format!("{:.1}M", count as f64 / 1_000_000.0),
    }
}
