//! Everything that is printed: data to stdout, talk to stderr.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
};

use console::{Alignment, Style, Term, measure_text_width, pad_str, truncate_str};
use serde::Serialize;
use serde_json::Value;
use sess_app::Kind;
use sess_core::{Timestamp, plan::ReviewError};

/// The version of what `--json` prints. Fields are only ever added under one number.
const SCHEMA_VERSION: u32 = 1;

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

    /// Prints data as one JSON object with its version.
    pub fn data(&self, data: &impl Serialize) -> anyhow::Result<()> {
        let mut object = serde_json::Map::from_iter([("schema_version".to_owned(), SCHEMA_VERSION.into())]);
        match serde_json::to_value(data)? {
            Value::Object(fields) => object.extend(fields),
            other => drop(object.insert("data".to_owned(), other)),
        }
        let text = if self.is_terminal() {
            serde_json::to_string_pretty(&object)?
        } else {
            serde_json::to_string(&object)?
        };
        self.line(&text)
    }

    /// Prints text that came from somewhere else; in a terminal its control characters are made visible.
    pub fn foreign(&self, text: &str) -> anyhow::Result<()> {
        if self.is_terminal() { self.raw(visible(text).as_bytes()) } else { self.raw(text.as_bytes()) }
    }

    pub fn line(&self, text: &str) -> anyhow::Result<()> {
        self.raw(format!("{text}\n").as_bytes())
    }

    /// Writes bytes as they are. A reader that went away (`| head`) is no error.
    pub fn raw(&self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    /// Says something that is no data.
    pub fn say(&self, text: &str) {
        // Nobody is left to be told when stderr is gone.
        let _gone = writeln!(io::stderr(), "{text}");
    }

    /// Prints rows in columns; in a terminal the widest column gives way.
    pub fn table(&self, header: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
        let is_terminal = self.is_terminal();
        let mut widths: Vec<usize> = header.iter().map(|cell| measure_text_width(cell)).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(measure_text_width(cell));
            }
        }
        if is_terminal {
            let room = usize::from(self.stdout.size().1);
            let used = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
            if let Some(widest) = widths.iter_mut().max()
                && used > room
            {
                *widest = widest.saturating_sub(used - room).max(8);
            }
        }
        let mut text = String::new();
        let mut write_row = |cells: &mut dyn Iterator<Item = String>, style: &Style| {
            let mut line = String::new();
            for (cell, width) in cells.zip(&widths) {
                let cell = if is_terminal { truncate_str(&cell, *width, "…").into_owned() } else { cell };
                let padded = pad_str(&cell, *width, Alignment::Left, None).into_owned();
                let _infallible = write!(line, "{padded}  ");
            }
            let _infallible = writeln!(text, "{}", style.apply_to(line.trim_end()));
        };
        write_row(&mut header.iter().map(|&cell| cell.to_owned()), &Style::new().dim());
        for row in rows {
            write_row(&mut row.iter().map(|cell| visible(cell).replace(['\n', '\t'], " ")), &Style::new());
        }
        self.raw(text.as_bytes())
    }

    /// Prints an error and what it means for the exit code.
    pub fn fail(&self, error: &anyhow::Error) -> ExitCode {
        let label = Style::new().for_stderr().red().bold().apply_to("error:");
        self.say(&format!("{label} {}", visible(&format!("{error:#}"))));
        if let Some(hint) = hint(error) {
            let label = Style::new().for_stderr().dim().apply_to("hint:");
            self.say(&format!("{label} {hint}"));
        }
        ExitCode::from(exit_code(error))
    }
}

/// A problem with how the command was called.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The table of exit codes, in one place.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Usage>().is_some() {
        return 2;
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

fn hint(error: &anyhow::Error) -> Option<&'static str> {
    let error = error.downcast_ref::<sess_app::Error>()?;
    match (error, error.kind()) {
        (sess_app::Error::Reference(_), Kind::NotFound) => Some("`sess list` shows the sessions there are"),
        (sess_app::Error::Review(ReviewError::NotReady { .. }), _) => {
            Some("its author calls exit_plan_mode when it is ready; `sess plan log` shows its revisions")
        }
        (_, Kind::Damaged) => Some("`sess doctor` checks the whole store"),
        _ => None,
    }
}

/// Makes control characters visible, so that text cannot steer the terminal.
pub fn visible(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        '\u{7f}' => '\u{2421}',
        c if (c as u32) < 0x20 => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        c if c.is_control() => '\u{fffd}',
        // These turn the direction of writing around.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
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
    fn times_are_told_in_the_unit_that_fits() {
        let at = |ms| Timestamp::from_millis(ms).expect("in range");
        let now = at(1_800_000_000_000);
        let told = |seconds: i64| ago(at(1_800_000_000_000 - seconds * 1000), now);
        assert_eq!(told(5), "just now");
        assert_eq!(told(300), "5 min ago");
        assert_eq!(told(7_200), "2 h ago");
        assert_eq!(told(200_000), "2 d ago");
        assert_eq!(told(100_000_000), "2023-11-16");
        assert_eq!(told(-60), "2027-01-15T08:01:00Z");
    }
}
