//! Everything that is printed: data to stdout, talk to stderr.

use std::{
    fmt::{self, Write as _},
    io::{self, Write as _},
    process::ExitCode,
};

use console::{Style, Term, measure_text_width, truncate_str};
use serde::Serialize;
use serde_json::{Value, json};
use sess_app::Kind;
use sess_core::{Timestamp, plan::ReviewError, redact::redact, reference::ReferenceError};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::commands::progress::beside;

/// The version of what `--json` prints. Fields are only ever added under one number.
const SCHEMA_VERSION: u32 = 1;

/// The fewest columns that are left of the one that gives way, and of any other.
const YIELDING_MIN: usize = 8;
/// In a wide terminal more is left of it: this part of all.
const YIELDING_SHARE: usize = 6;

/// As much is left of the column that gives way, or rows take several lines.
const YIELDED_MIN: usize = 20;

/// Where the values of fields begin.
const FIELD_COLUMNS: usize = 14;

pub struct Output {
    pub json: bool,
    stdout: Term,
}

impl Output {
    pub fn new(json: bool) -> Self {
        Self { json, stdout: Term::stdout() }
    }

    pub fn is_terminal(&self) -> bool {
        self.stdout.is_term()
    }

    /// Returns how many columns there are to write in; `None` when nobody looks at them.
    pub fn width(&self) -> Option<usize> {
        self.is_terminal().then(|| usize::from(self.stdout.size().1))
    }

    /// Cuts a line that is longer than the terminal is wide.
    pub fn fit(&self, line: &str) -> String {
        match self.width() {
            Some(width) => truncate_str(line, width, "…").into_owned(),
            None => line.to_owned(),
        }
    }

    /// Prints data as one JSON object with its version.
    pub fn data(&self, data: &impl Serialize) -> anyhow::Result<()> {
        let object = versioned(data)?;
        let text = if self.is_terminal() {
            serde_json::to_string_pretty(&object)?
        } else {
            serde_json::to_string(&object)?
        };
        self.json_text(&(text + "\n"))
    }

    /// Prints one object of a stream of data: one line, whoever reads.
    pub fn data_line(&self, data: &impl Serialize) -> anyhow::Result<()> {
        self.json_text(&(serde_json::to_string(&versioned(data)?)? + "\n"))
    }

    /// Prints JSON. In a terminal, what could steer it is written as an escape: JSON itself only asks for
    /// that below U+0020.
    pub fn json_text(&self, text: &str) -> anyhow::Result<()> {
        if !self.is_terminal() {
            return self.raw(text.as_bytes());
        }
        let mut escaped = String::with_capacity(text.len());
        for c in text.chars() {
            if steers(c) {
                let _infallible = write!(escaped, "\\u{:04x}", c as u32);
            } else {
                escaped.push(c);
            }
        }
        self.raw(escaped.as_bytes())
    }

    /// Prints text that came from somewhere else. In a terminal its control characters are made visible, and
    /// its last line is ended.
    pub fn foreign(&self, text: &str) -> anyhow::Result<()> {
        if !self.is_terminal() {
            return self.raw(text.as_bytes());
        }
        let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
        self.raw((visible(text) + end).as_bytes())
    }

    pub fn line(&self, text: &str) -> anyhow::Result<()> {
        self.raw(format!("{text}\n").as_bytes())
    }

    /// Writes bytes as they are.
    pub fn raw(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
            written => Ok(written?),
        }
    }

    /// Says something that is no data.
    pub fn say(&self, text: &str) {
        // Nobody is left to be told when stderr is gone.
        let _gone = beside(|| writeln!(io::stderr(), "{text}"));
    }

    /// Says what the person should know, and what stops nothing.
    pub fn notice(&self, text: &str) {
        self.say(&notice(text));
    }

    /// Prints rows in columns; in a terminal the column `yielding` gives way when they are too wide.
    pub fn table(&self, header: &[&str], yielding: usize, rows: &[Vec<String>]) -> anyhow::Result<()> {
        let lines = self.lines(header, &[yielding], rows, &|_, _| Style::new());
        self.raw((lines.join("\n") + "\n").as_bytes())
    }

    /// Returns rows in columns; `style` tells how the cell of a row and a column looks. In a terminal the first of
    /// `yielding` gives way when they are too wide, then the others of them.
    pub fn lines(
        &self,
        header: &[&str],
        yielding: &[usize],
        rows: &[Vec<String>],
        style: &dyn Fn(usize, usize) -> Style,
    ) -> Vec<String> {
        let header: Vec<String> = header.iter().map(|&cell| cell.to_owned()).collect();
        let mut rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
        rows.insert(0, header);
        let mut widths = vec![0; rows[0].len()];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(measure_text_width(cell));
            }
        }
        if let Some(room) = self.width() {
            narrow(&mut widths, room, yielding);
        }
        let mut lines = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let mut line = String::new();
            let last = row.iter().rposition(|cell| !cell.is_empty()).unwrap_or_default();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate().take(last + 1) {
                let style = if index == 0 { Style::new().dim() } else { style(index - 1, column) };
                let cell = truncate_str(cell, width, "…");
                let width = if column == last { 0 } else { width };
                let space = width.saturating_sub(measure_text_width(&cell));
                let gap = if column == last { "" } else { "  " };
                let _infallible = write!(line, "{}{}{gap}", style.apply_to(cell), " ".repeat(space));
            }
            lines.push(self.fit(&line));
        }
        lines
    }

    /// Prints rows in columns, of which `yielding` gives way in a terminal. Where less than [`YIELDED_MIN`] would be
    /// left of it, each row takes lines of its own, and nothing is cut: the first two cells, then a field for every
    /// other one.
    ///
    /// `below` is what is said under a row, in full.
    pub fn rows(
        &self,
        header: &[&str],
        yielding: usize,
        rows: &[Vec<String>],
        below: &[Vec<String>],
        style: &dyn Fn(usize, usize) -> Style,
    ) -> anyhow::Result<()> {
        let widest = |column: usize| {
            let cells = rows.iter().map(|row| measure_text_width(&one_line(&row[column])));
            cells.max().unwrap_or_default().max(measure_text_width(header[column]))
        };
        let widths: Vec<usize> = (0..header.len()).map(widest).collect();
        let least = widths.iter().sum::<usize>() - widths[yielding] + 2 * (widths.len() - 1);
        let is_stacked = self.width().is_some_and(|room| least + widths[yielding].min(YIELDED_MIN) > room);
        let lines = if is_stacked { Vec::new() } else { self.lines(header, &[yielding], rows, style) };
        if let Some(header) = lines.first() {
            self.line(header)?;
        }
        let nothing = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            if let Some(line) = lines.get(n + 1) {
                self.line(line)?;
            } else {
                self.stacked(header, widths[0], row, &|column| style(n, column))?;
            }
            for text in below.get(n).unwrap_or(&nothing) {
                self.hanging("  ", &one_line(text))?;
            }
        }
        Ok(())
    }

    /// Prints a row in lines of its own; the second cell begins after `first_columns`, as in every row.
    fn stacked(
        &self,
        header: &[&str],
        first_columns: usize,
        row: &[String],
        style: &dyn Fn(usize) -> Style,
    ) -> anyhow::Result<()> {
        let cell = |column: usize| style(column).apply_to(one_line(&row[column])).to_string();
        let space = first_columns.saturating_sub(measure_text_width(&cell(0)));
        self.hanging(&format!("{}{}  ", cell(0), " ".repeat(space)), &cell(1))?;
        let name_columns = header.iter().skip(2).map(|name| name.len()).max().unwrap_or_default();
        for (column, name) in header.iter().enumerate().skip(2).filter(|(column, _)| !row[*column].is_empty())
        {
            let name = format!("{:name_columns$}", name.to_lowercase());
            self.hanging(&format!("  {}  ", Style::new().dim().apply_to(name)), &cell(column))?;
        }
        Ok(())
    }

    /// Prints a Markdown text that came from somewhere else. In a terminal its control characters are made visible,
    /// and its paragraphs and items go on below where they began; code and tables stay as they are.
    pub fn markdown(&self, text: &str) -> anyhow::Result<()> {
        match self.width() {
            Some(width) => self.raw(wrapped(&visible(text), width).as_bytes()),
            None => self.raw(text.as_bytes()),
        }
    }

    /// Prints what something is called, and what it is; nothing when it is nothing.
    pub fn field(&self, name: &str, value: &str) -> anyhow::Result<()> {
        if value.is_empty() {
            return Ok(());
        }
        let space = " ".repeat(FIELD_COLUMNS.saturating_sub(measure_text_width(name)).max(1));
        self.hanging(&format!("{}{space}", Style::new().dim().apply_to(name)), value)
    }

    /// Prints a text after `lead`; in a terminal what does not fit goes on below where it began.
    pub fn hanging(&self, lead: &str, text: &str) -> anyhow::Result<()> {
        self.line(&hanging(lead, text, self.width()))
    }

    /// Says why something did not end well.
    pub fn failed(&self, text: &str) {
        let label = Style::new().for_stderr().red().bold().apply_to("error:");
        self.say(&format!("{label} {}", visible(text)));
    }

    /// Prints an error and what it means for the exit code.
    pub fn fail(&self, error: &anyhow::Error) -> ExitCode {
        if error.is::<ReaderGone>() {
            return ExitCode::SUCCESS;
        }
        let label = Style::new().for_stderr().red().bold().apply_to("error:");
        self.say(&format!("{label} {}", visible(&format!("{error:#}"))));
        let hint = hint(error);
        if let Some(hint) = hint {
            let label = Style::new().for_stderr().dim().apply_to("hint:");
            self.say(&format!("{label} {hint}"));
        }
        let code = exit_code(error);
        let work = work_error(error);
        let message = work.map_or_else(|| format!("{error:#}"), |error| error.message().to_owned());
        self.fail_data(code, &message, work.map(sess_work::Error::next_command), hint);
        ExitCode::from(code)
    }

    /// Prints an error for a program, which asked for JSON.
    pub fn fail_data(&self, code: u8, message: &str, next: Option<&str>, hint: Option<&str>) {
        if !self.json {
            return;
        }
        let mut error = json!({ "type": error_type(code), "message": message, "exitCode": code });
        for (name, value) in [("next", next), ("hint", hint)] {
            if let Some(value) = value {
                error[name] = value.into();
            }
        }
        // Whoever reads no answer reads no error either.
        let _gone = self.data(&json!({ "error": error }));
    }
}

/// Where what is logged goes: to stderr, with secrets masked. A name of a file or directory may hold one.
pub struct Log;

impl io::Write for Log {
    /// An event comes in one piece.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let masked = redact(&text).0;
        beside(|| io::stderr().write_all(masked.as_bytes()))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// What is logged, as it is said to a person.
pub struct Notices;

impl<S, N> FormatEvent<S, N> for Notices
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut sentence = Sentence::default();
        event.record(&mut sentence);
        writeln!(writer, "{}", notice(&(sentence.message + &sentence.more)))
    }
}

/// What is logged, as a sentence: the cause follows a colon, and what else is known stands in parentheses.
#[derive(Default)]
struct Sentence {
    message: String,
    more: String,
}

impl Visit for Sentence {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _infallible = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "error" => write!(self.more, ": {value:?}"),
            name => write!(self.more, " ({name}: {value:?})"),
        };
    }
}

/// Takes from columns what does not fit into `room`.
fn narrow(widths: &mut [usize], room: usize, yielding: &[usize]) {
    let gaps = 2 * (widths.len() - 1);
    let too_wide = |widths: &[usize]| (widths.iter().sum::<usize>() + gaps).saturating_sub(room);
    let Some((&first, others)) = yielding.split_first() else { return };
    let least = (room / YIELDING_SHARE).max(YIELDING_MIN);
    widths[first] = widths[first].saturating_sub(too_wide(widths)).max(widths[first].min(least));
    // What is still too wide is cut where most is left: of the others that give way, and only then of all.
    let all: Vec<usize> = (0..widths.len()).collect();
    for columns in [others, &all] {
        while too_wide(widths) > 0 {
            let widest = columns.iter().copied().max_by_key(|&column| widths[column]);
            let Some(widest) = widest.filter(|&column| widths[column] > YIELDING_MIN) else { break };
            widths[widest] -= 1;
        }
    }
}

fn notice(text: &str) -> String {
    let label = Style::new().for_stderr().yellow().apply_to("notice:");
    format!("{label} {}", visible(&redact(text).0))
}

/// Writes a text after `lead`, in lines of `width` columns that begin below each other; words stay whole.
fn hanging(lead: &str, text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return format!("{lead}{text}") };
    let indent = measure_text_width(lead);
    let (mut written, mut column) = (lead.to_owned(), indent);
    for word in text.split(' ') {
        let columns = measure_text_width(word);
        if column > indent {
            let fits = column + 1 + columns <= width;
            written += &if fits { " ".to_owned() } else { format!("\n{}", " ".repeat(indent)) };
            column = if fits { column + 1 } else { indent };
        }
        written += word;
        column += columns;
    }
    written
}

/// Writes a Markdown text in lines of `width` columns.
fn wrapped(text: &str, width: usize) -> String {
    let mut written = String::new();
    let mut is_code = false;
    for line in text.lines() {
        let inner = line.trim_start();
        let is_fence = inner.starts_with("```") || inner.starts_with("~~~");
        is_code ^= is_fence;
        let is_plain = !is_code && !is_fence && !inner.starts_with('|') && measure_text_width(line) > width;
        if is_plain {
            let (lead, rest) = line.split_at(line.len() - inner.len() + marker(inner));
            written += &hanging(lead, rest, Some(width));
        } else {
            written += line;
        }
        written.push('\n');
    }
    written
}

/// Returns how many bytes of a line of Markdown say that an item begins.
fn marker(line: &str) -> usize {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let bullet = match &line[digits..] {
        rest if digits > 0 && (rest.starts_with(". ") || rest.starts_with(") ")) => digits + 2,
        rest if digits == 0 && ["- ", "* ", "+ ", "> "].iter().any(|mark| rest.starts_with(mark)) => 2,
        _ => return 0,
    };
    let boxed = ["[ ] ", "[x] ", "[X] "].iter().any(|mark| line[bullet..].starts_with(mark));
    if boxed { bullet + 4 } else { bullet }
}

/// Whoever read our output has seen enough (`| head`): an end, not a failure.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output")]
pub struct ReaderGone;

/// A problem with how the command was called.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The table of exit codes, in one place.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Usage>().is_some() {
        return 2;
    }
    // Work sessions have more to tell apart: each kind of theirs has its own code.
    if let Some(error) = work_error(error) {
        return error.kind.exit_code();
    }
    let Some(error) = error.downcast_ref::<sess_app::Error>() else { return 1 };
    match error.kind() {
        Kind::Invalid => 2,
        Kind::NotFound => 3,
        Kind::Conflict => 4,
        Kind::Unavailable => 6,
        Kind::Denied => 8,
        Kind::Damaged => 1,
    }
}

/// What a program calls the kind of an error: one word for each exit code.
fn error_type(code: u8) -> &'static str {
    match code {
        2 => "usage",
        3 => "not_found",
        4 => "conflict",
        5 => "would_lose_work",
        6 => "unavailable",
        7 => "merge_conflict",
        8 => "policy",
        9 => "rejected",
        _ => "failed",
    }
}

fn work_error(error: &anyhow::Error) -> Option<&sess_work::Error> {
    match error.downcast_ref::<sess_app::Error>() {
        Some(sess_app::Error::Work(error)) => Some(error),
        _ => error.downcast_ref::<sess_work::Error>(),
    }
}

fn hint(error: &anyhow::Error) -> Option<&'static str> {
    let error = error.downcast_ref::<sess_app::Error>()?;
    match (error, error.kind()) {
        (sess_app::Error::Reference(ReferenceError::Ambiguous { .. }), _)
        | (sess_app::Error::Reference(_), Kind::NotFound) => Some("`sess list` shows the sessions there are"),
        (sess_app::Error::Review(ReviewError::NotReady { .. }), _) => Some(
            "its author calls exit_plan_mode when it is ready; you can do that yourself with \
             `sess tool call exit_plan_mode --session <id>`",
        ),
        (sess_app::Error::Denied(text), _) if text == "send blocked by session policy" => {
            Some("`/send on` in its chat allows it; `sess config show` has session.sendPolicy")
        }
        (sess_app::Error::Denied(text), _) if text.contains("tools.") => Some(
            "`sess whoami` says as which session you were recognised; its person decides what it reaches",
        ),
        (sess_app::Error::Denied(text), _) if text.starts_with("a token ") => None,
        (sess_app::Error::Denied(_), _) => {
            Some("an agent's session was recognised here (`sess whoami` says how); ask its person")
        }
        (_, Kind::Damaged) => Some("`sess doctor` checks the whole store"),
        _ => None,
    }
}

fn versioned(data: &impl Serialize) -> anyhow::Result<serde_json::Map<String, Value>> {
    let mut object = serde_json::Map::from_iter([("schema_version".to_owned(), SCHEMA_VERSION.into())]);
    match serde_json::to_value(data)? {
        Value::Object(fields) => object.extend(fields),
        other => drop(object.insert("data".to_owned(), other)),
    }
    Ok(object)
}

/// Makes control characters visible, so that text cannot steer the terminal.
pub fn visible(text: &str) -> String {
    let shown = |c: char| match c {
        c if !steers(c) => c,
        '\u{7f}' => '\u{2421}',
        c if (c as u32) < 0x20 => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        _ => '\u{fffd}',
    };
    text.chars().map(shown).collect()
}

/// [`visible`], on one line.
pub fn one_line(text: &str) -> String {
    visible(text).replace(['\n', '\t'], " ")
}

/// Tells whether a character acts on the terminal instead of being shown in it.
fn steers(c: char) -> bool {
    // Besides control characters these, which turn the direction of writing around.
    let turns =
        matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}');
    turns || c.is_control() && !matches!(c, '\n' | '\t')
}

/// Says how long ago something was, in one short word.
pub fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_millis() - then.as_millis()) / 1000;
    match seconds {
        ..0 => then.to_string(),
        0..60 => "just now".to_owned(),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..2_592_000 => format!("{} d ago", seconds / 86_400),
        _ => then.to_string().chars().take(10).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_cannot_steer_the_terminal() {
        assert_eq!(visible("a\u{1b}[2Jb\n\tc\u{7}\u{9b}\u{202e}"), "a␛[2Jb\n\tc␇\u{fffd}\u{fffd}");
    }

    #[test]
    fn columns_give_way_in_their_order_and_the_others_last() {
        let narrowed = |widths: &[usize], room, yielding: &[usize]| {
            let mut widths = widths.to_vec();
            narrow(&mut widths, room, yielding);
            widths
        };
        assert_eq!(narrowed(&[11, 20, 60], 100, &[2, 1]), [11, 20, 60]);
        assert_eq!(narrowed(&[11, 20, 60], 80, &[2, 1]), [11, 20, 45]);
        assert_eq!(narrowed(&[30, 20, 60], 60, &[2, 1]), [30, 16, 10]);
        assert_eq!(narrowed(&[30, 20, 60], 60, &[2]), [26, 20, 10]);
        assert_eq!(narrowed(&[30, 20, 60], 30, &[2, 1]), [10, 8, 8]);
        assert_eq!(narrowed(&[30, 20, 60], 10, &[2, 1]), [8, 8, 8], "no column goes");
    }

    #[test]
    fn what_is_logged_is_said_as_a_sentence() {
        let file = tempfile::NamedTempFile::new().expect("made");
        let writer = std::sync::Mutex::new(file.reopen().expect("opened"));
        let log = tracing_subscriber::fmt().with_writer(writer).event_format(Notices).finish();
        tracing::subscriber::with_default(log, || {
            let error = "it is not yours; run `this`";
            tracing::warn!(%error, "the lease was not renewed");
            tracing::warn!(path = "/x", %error, "no file was removed");
        });
        let said = std::fs::read_to_string(file.path()).expect("read");
        let expected = "notice: the lease was not renewed: it is not yours; run `this`\n\
                        notice: no file was removed (path: /x): it is not yours; run `this`\n";
        assert_eq!(console::strip_ansi_codes(&said), expected);
    }

    #[test]
    fn a_long_text_goes_on_below_where_it_began() {
        assert_eq!(hanging("name  ", "one two three", None), "name  one two three");
        assert_eq!(hanging("name  ", "one two three", Some(13)), "name  one two\n      three");
        assert_eq!(
            hanging("- ", "a/path/that/is/longer than it", Some(8)),
            "- a/path/that/is/longer\n  than\n  it"
        );
        assert_eq!(hanging("", "", Some(8)), "");
    }

    #[test]
    fn markdown_is_wrapped_where_that_changes_nothing() {
        let text = "# A heading that is long\n\n- [ ] one two three\n  12. four five six\n```\ncode that is longer\n```\n\
                    | a table that is longer |\nshort";
        let expected = "# A heading\nthat is long\n\n- [ ] one two\n      three\n  12. four\n      five six\n```\n\
                        code that is longer\n```\n| a table that is longer |\nshort\n";
        assert_eq!(wrapped(text, 14), expected);
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let at = |ms| Timestamp::from_millis(ms).expect("in range");
        let now = at(1_800_000_000_000);
        let told = |seconds: i64| ago(at(1_800_000_000_000 - seconds * 1000), now);
        assert_eq!(told(5), "just now");
        assert_eq!(told(300), "5 min ago");
        assert_eq!(told(7_200), "2 h ago");
        assert_eq!(told(200_000), "2 d ago");
        assert_eq!(told(100_000_000), "2023-11-14");
        assert_eq!(told(-60), "2027-01-15T08:01:00Z");
    }
}
