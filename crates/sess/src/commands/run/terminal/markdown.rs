//! Markdown as it comes: lines in, styled rows of the terminal out.
//!
//! A small reader of its own: what models write is headings, lists, quotes, code and emphasis. A line is
//! shown while it grows, and printed for good when it is complete. Whatever else stays as it was written.

use console::{Style, measure_text_width};

use crate::output::visible;

/// Prose that is wider is hard to read.
const PROSE_WIDTH_MAX: usize = 100;
/// A line that grows longer is printed from its beginning: what has scrolled away cannot be drawn again.
const GROWING_ROWS_MAX: usize = 6;
/// How far the end of a link is looked for.
const LINK_BYTES_MAX: usize = 1_000;
const TAB: &str = "    ";

/// One text, read line by line.
#[derive(Debug, Default)]
pub struct Markdown {
    /// The line that is not complete yet, or the part of it that is not printed.
    line: String,
    /// Its beginning was printed: how it goes on.
    carried: Option<Carried>,
    /// What closes the code block that is open.
    fence: Option<String>,
    has_rows: bool,
    /// A blank row comes before the next one; at the end there is none.
    is_after_blank: bool,
}

#[derive(Clone, Debug)]
struct Carried {
    prefix: String,
    look: Look,
    base: Look,
    wrap: Wrap,
}

/// How characters look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Look {
    bold: bool,
    italic: bool,
    code: bool,
    strike: bool,
    underlined: bool,
    dim: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrap {
    Words,
    /// Anywhere: code and tables.
    Hard,
}

/// A character, how it looks, and where in the line it was written.
#[derive(Clone, Copy, Debug)]
struct Cell {
    c: char,
    look: Look,
    at: usize,
}

/// A line, understood.
struct Shape {
    /// Before the first row, and before those below.
    first: String,
    rest: String,
    cells: Vec<Cell>,
    base: Look,
    wrap: Wrap,
}

/// Whether more of a line may come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    Growing,
}

impl Markdown {
    /// Takes the next piece; returns the rows that are complete with it.
    pub fn push(&mut self, text: &str, width: usize) -> Vec<String> {
        let mut rows = Vec::new();
        let mut pieces = text.split('\n');
        self.add(pieces.next().unwrap_or_default());
        for piece in pieces {
            self.end_line(width, &mut rows);
            self.add(piece);
        }
        self.print_long(width, &mut rows);
        rows
    }

    /// Returns the rows of the line that is not complete yet.
    pub fn growing(&self, width: usize) -> Vec<String> {
        if self.line.trim().is_empty() {
            return Vec::new();
        }
        let shape = self.shape(&self.line, Extent::Growing, width);
        let blank = self.is_after_blank.then(String::new);
        blank.into_iter().chain(wrapped(&shape, width).into_iter().map(|(row, _)| row)).collect()
    }

    /// Ends the text; returns the rows that are left of it.
    pub fn finish(&mut self, width: usize) -> Vec<String> {
        let mut rows = Vec::new();
        if !self.line.trim().is_empty() {
            self.end_line(width, &mut rows);
        }
        *self = Self::default();
        rows
    }

    fn add(&mut self, piece: &str) {
        self.line.push_str(&visible(&piece.replace('\r', "")).replace('\t', TAB));
    }

    fn end_line(&mut self, width: usize, rows: &mut Vec<String>) {
        let line = std::mem::take(&mut self.line);
        let carried = self.carried.is_some();
        if line.trim().is_empty() && self.fence.is_none() && !carried {
            // Blank rows at the beginning and the end, and all but one in a row, are left out.
            self.is_after_blank = self.has_rows;
            return;
        }
        let shape = self.shape(&line, Extent::Whole, width);
        rows.extend(self.is_after_blank.then(String::new));
        rows.extend(wrapped(&shape, width).into_iter().map(|(row, _)| row));
        (self.has_rows, self.is_after_blank, self.carried) = (true, false, None);
        if carried {
            return;
        }
        match (&self.fence, fence(&line)) {
            (None, Some((mark, _))) => self.fence = Some(mark),
            (Some(open), Some((mark, ""))) if mark.starts_with(open.as_str()) => self.fence = None,
            _ => {}
        }
    }

    /// Prints the beginning of a line that has grown long.
    fn print_long(&mut self, width: usize, rows: &mut Vec<String>) {
        let width = width.max(1);
        // Cheaper than wrapping each time: a row has at least half as many characters as columns.
        if self.line.len() < GROWING_ROWS_MAX * width / 2 {
            return;
        }
        let shape = self.shape(&self.line, Extent::Growing, width);
        let mut wrapped = wrapped(&shape, width);
        if wrapped.len() <= GROWING_ROWS_MAX {
            return;
        }
        let (_, last) = wrapped.pop().expect("there are several");
        let Some(cell) = shape.cells.get(last) else { return };
        rows.extend(self.is_after_blank.then(String::new));
        rows.extend(wrapped.into_iter().map(|(row, _)| row));
        self.line.drain(..cell.at);
        self.carried =
            Some(Carried { prefix: shape.rest, look: cell.look, base: shape.base, wrap: shape.wrap });
        (self.has_rows, self.is_after_blank) = (true, false);
    }

    fn shape(&self, line: &str, extent: Extent, width: usize) -> Shape {
        if let Some(Carried { prefix, look, base, wrap }) = self.carried.clone() {
            let cells = match wrap {
                Wrap::Words => inline(line, 0, base, look, extent),
                Wrap::Hard => plain(line, 0, base),
            };
            return Shape { first: prefix.clone(), rest: prefix, cells, base, wrap };
        }
        let dim = Style::new().dim();
        let bare = |first: String, cells| Shape {
            first,
            rest: String::new(),
            cells,
            base: Look::default(),
            wrap: Wrap::Hard,
        };
        if let Some(open) = &self.fence {
            if fence(line).is_some_and(|(mark, rest)| rest.is_empty() && mark.starts_with(open.as_str())) {
                return bare(dim.apply_to("╰─").to_string(), Vec::new());
            }
            let gutter = dim.apply_to("│ ").to_string();
            let cells = plain(line, 0, Look::default());
            return Shape { rest: gutter.clone(), ..bare(gutter, cells) };
        }
        if let Some((_, language)) = fence(line) {
            return bare(dim.apply_to(format!("╭─ {language}").trim_end()).to_string(), Vec::new());
        }
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if is_rule(text) && extent == Extent::Whole {
            return bare(dim.apply_to("─".repeat(width.min(PROSE_WIDTH_MAX))).to_string(), Vec::new());
        }
        if text.starts_with('|') {
            return bare(String::new(), plain(line, 0, Look::default()));
        }
        let prose = |first: String, rest: String, from: usize, base: Look| Shape {
            first,
            rest,
            cells: inline(&line[from..], from, base, base, extent),
            base,
            wrap: Wrap::Words,
        };
        let space = " ".repeat(indent.min(width / 2));
        let level = text.bytes().take_while(|b| *b == b'#').count();
        if (1..=6).contains(&level) && text[level..].starts_with(' ') {
            let base = Look { bold: true, underlined: level == 1, italic: level > 2, ..Look::default() };
            let from = line.len() - text[level..].trim_start().len();
            return prose(String::new(), String::new(), from, base);
        }
        if let Some(quoted) = text.strip_prefix('>') {
            let bar = dim.apply_to("▌ ").to_string();
            let from = line.len() - quoted.strip_prefix(' ').unwrap_or(quoted).len();
            return prose(bar.clone(), bar, from, Look { italic: true, dim: true, ..Look::default() });
        }
        if let Some((mark, len)) = item(text) {
            let hanging = format!("{space}{}", " ".repeat(measure_text_width(&mark)));
            let mark = format!("{space}{}", Style::new().cyan().apply_to(mark));
            return prose(mark, hanging, indent + len, Look::default());
        }
        prose(space.clone(), space, indent, Look::default())
    }
}

/// Returns the marks that open or close a code block, and what follows them.
fn fence(line: &str) -> Option<(String, &str)> {
    let text = line.trim();
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let len = text.chars().take_while(|c| *c == mark).count();
    let rest = text[len..].trim();
    (len >= 3 && !rest.contains('`')).then(|| (mark.to_string().repeat(len), rest))
}

fn is_rule(text: &str) -> bool {
    let text = text.trim_end();
    let is_of = |mark: char| text.chars().all(|c| c == mark || c == ' ');
    text.chars().filter(|c| *c != ' ').count() >= 3 && ['-', '*', '_'].into_iter().any(is_of)
}

/// Returns how an item of a list is marked, and how long that was in the source.
fn item(text: &str) -> Option<(String, usize)> {
    let first = text.chars().next()?;
    let (mark, len) = if matches!(first, '-' | '*' | '+') && text[1..].starts_with(' ') {
        ("• ".to_owned(), 2)
    } else {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let rest = &text[digits..];
        let is_number = (1..=9).contains(&digits) && (rest.starts_with(". ") || rest.starts_with(") "));
        if !is_number {
            return None;
        }
        (text[..digits + 2].to_owned(), digits + 2)
    };
    for (written, shown) in [("[ ] ", "☐ "), ("[x] ", "☑ "), ("[X] ", "☑ ")] {
        if text[len..].starts_with(written) {
            let mark = if len == 2 { shown.to_owned() } else { mark + shown };
            return Some((mark, len + written.len()));
        }
    }
    Some((mark, len))
}

fn plain(text: &str, from: usize, look: Look) -> Vec<Cell> {
    text.char_indices().map(|(at, c)| Cell { c, look, at: from + at }).collect()
}

/// Reads emphasis, code and links. What is opened and not closed yet counts as open while a line grows.
///
/// `start` is how the text before it ended, `base` how all of it looks.
fn inline(text: &str, from: usize, base: Look, start: Look, extent: Extent) -> Vec<Cell> {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let mut cells: Vec<Cell> = Vec::with_capacity(chars.len());
    let mut look = start;
    let mut n = 0;
    if start.code {
        let code = text.split('`').next().unwrap_or_default();
        cells.extend(plain(code, from, start));
        n = code.chars().count() + 1;
        look.code = false;
    }
    while n < chars.len() {
        let (at, c) = chars[n];
        let rest = &text[at..];
        let before = (n > 0).then(|| chars[n - 1].1);
        let is_mark = matches!(c, '`' | '*' | '_' | '~');
        let run = if is_mark { rest.bytes().take_while(|b| char::from(*b) == c).count() } else { 1 };
        let add = |cells: &mut Vec<Cell>, c: char, look: Look, at: usize| {
            cells.push(Cell { c, look, at: from + at });
        };
        match c {
            '\\' if chars.get(n + 1).is_some_and(|(_, next)| next.is_ascii_punctuation()) => {
                add(&mut cells, chars[n + 1].1, look, at);
                n += 2;
                continue;
            }
            '`' => {
                let body = &rest[run..];
                let end = closing_ticks(body, run);
                let code = match (end, extent) {
                    (Some(end), _) => Some(&body[..end]),
                    (None, Extent::Growing) => Some(body),
                    (None, Extent::Whole) => None,
                };
                if let Some(code) = code {
                    let span = Look { code: true, ..look };
                    code.char_indices().for_each(|(i, c)| add(&mut cells, c, span, at + run + i));
                    n += run + code.chars().count() + if end.is_some() { run } else { 0 };
                    continue;
                }
                (0..run).for_each(|i| add(&mut cells, c, look, at + i));
                n += run;
                continue;
            }
            '*' | '_' | '~' => {
                let len = if c == '~' { 2 } else { run.min(2) };
                let after = rest[run.max(1)..].chars().next();
                let is_open = match (c, len) {
                    ('~', _) => look.strike && !base.strike,
                    (_, 2) => look.bold && !base.bold,
                    _ => look.italic && !base.italic,
                };
                let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
                let is_space = |c: Option<char>| c.is_none_or(char::is_whitespace);
                let may_close = !is_space(before) && (c != '_' || !is_word(after));
                let mark = &rest[..len.min(run)];
                let comes_later = extent == Extent::Growing || rest[run..].contains(mark);
                let may_open = !is_space(after) && (c != '_' || !is_word(before)) && comes_later;
                if run >= len && run <= 3 && (is_open && may_close || !is_open && may_open) {
                    match (c, len) {
                        ('~', _) => look.strike = !is_open,
                        (_, 2) => look.bold = !is_open,
                        _ => look.italic = !is_open,
                    }
                    n += len;
                    continue;
                }
                (0..run).for_each(|i| add(&mut cells, c, look, at + i));
                n += run;
                continue;
            }
            '[' => {
                if let Some((words, address, len)) = link(rest) {
                    let shown = Look { underlined: true, ..look };
                    words.char_indices().for_each(|(i, c)| add(&mut cells, c, shown, at + 1 + i));
                    if address != words {
                        let aside = Look { dim: true, ..look };
                        let end = at + len - 1;
                        format!(" ({address})").chars().for_each(|c| add(&mut cells, c, aside, end));
                    }
                    n += rest[..len].chars().count();
                    continue;
                }
            }
            _ => {}
        }
        add(&mut cells, c, look, at);
        n += 1;
    }
    cells
}

fn closing_ticks(body: &str, run: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = body[at..].find('`') {
        let begin = at + found;
        let len = body[begin..].bytes().take_while(|b| *b == b'`').count();
        if len == run {
            return Some(begin);
        }
        at = begin + len;
    }
    None
}

/// Reads `[words](address)`; returns both and how long it was.
fn link(text: &str) -> Option<(&str, &str, usize)> {
    let text = &text[..text.floor_char_boundary(LINK_BYTES_MAX)];
    let (words, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (address, _) = rest.split_once(')')?;
    let is_plain = !words.is_empty() && !words.contains(['[', '`']) && !address.contains(char::is_whitespace);
    is_plain.then(|| (words, address, words.len() + address.len() + 4))
}

/// Returns rows that fit, each with the number of the cell it begins with.
fn wrapped(shape: &Shape, width: usize) -> Vec<(String, usize)> {
    let width = match shape.wrap {
        Wrap::Words => width.min(PROSE_WIDTH_MAX),
        Wrap::Hard => width,
    };
    let prefix = measure_text_width(&shape.first).max(measure_text_width(&shape.rest));
    let room = width.saturating_sub(prefix).max(8);
    let cells = &shape.cells;
    let mut rows = Vec::new();
    let mut begin = 0;
    loop {
        let mut used = 0;
        let mut end = begin;
        let mut space = None;
        while end < cells.len() {
            let cell = cells[end];
            let columns = columns(cell.c);
            if used + columns > room && cell.c != ' ' {
                break;
            }
            if cell.c == ' ' && shape.wrap == Wrap::Words {
                space = Some(end);
            } else if used + columns > room {
                break;
            }
            used += columns;
            end += 1;
        }
        // Between words, if there is a place; what is longer than a row is cut.
        let (stop, next) = match space {
            Some(space) if end < cells.len() && space > begin => (space, space + 1),
            _ => (end, end),
        };
        let next = next.max(begin + usize::from(begin < cells.len()));
        let prefix = if rows.is_empty() { &shape.first } else { &shape.rest };
        let row = painted(&cells[begin..stop.max(begin)], shape.wrap);
        rows.push((format!("{prefix}{row}"), begin));
        if next >= cells.len() {
            return rows;
        }
        begin = next;
    }
}

fn columns(c: char) -> usize {
    if c.is_ascii() { 1 } else { measure_text_width(c.encode_utf8(&mut [0; 4])) }
}

fn painted(cells: &[Cell], wrap: Wrap) -> String {
    let mut text = String::new();
    for run in cells.chunk_by(|a, b| a.look == b.look) {
        let part: String = run.iter().map(|cell| cell.c).collect();
        text.push_str(&style(run[0].look).apply_to(part).to_string());
    }
    match wrap {
        Wrap::Words => text.trim_end().to_owned(),
        Wrap::Hard => text,
    }
}

fn style(look: Look) -> Style {
    let mut style = Style::new();
    let Look { bold, italic, code, strike, underlined, dim } = look;
    if bold {
        style = style.bold();
    }
    if italic {
        style = style.italic();
    }
    if code {
        style = style.cyan();
    }
    if strike {
        style = style.strikethrough();
    }
    if underlined {
        style = style.underlined();
    }
    if dim {
        style = style.dim();
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text in pieces of some length, and the rows that came of it.
    fn rows(text: &str, width: usize, piece: usize) -> Vec<String> {
        console::set_colors_enabled(false);
        let mut markdown = Markdown::default();
        let mut rows = Vec::new();
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(piece) {
            rows.extend(markdown.push(&piece.iter().collect::<String>(), width));
            markdown.growing(width);
        }
        rows.extend(markdown.finish(width));
        rows
    }

    #[track_caller]
    fn check(text: &str, width: usize, expected: &[&str]) {
        for piece in [1, 3, 1_000] {
            assert_eq!(rows(text, width, piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn blocks_are_told_apart() {
        check("\n\n# Head\n\n\n\ntext\n", 40, &["Head", "", "text"]);
        check(
            "- one\n* two\n  - deep\n10. ten\n- [x] done",
            40,
            &["• one", "• two", "  • deep", "10. ten", "☑ done"],
        );
        check("> said\n---\n| a | b |\n|---|---|", 10, &["▌ said", "──────────", "| a | b |", "|---|---|"]);
        check(
            "```rust\nlet **x** = 1;\n\n```\nafter",
            40,
            &["╭─ rust", "│ let **x** = 1;", "│ ", "╰─", "after"],
        );
        check("#hash and 3.14 and -1", 40, &["#hash and 3.14 and -1"]);
    }

    #[test]
    fn emphasis_is_read_and_arithmetic_is_not() {
        check("a **b** *c* _d_ `e*f*` ~~g~~", 60, &["a b c d e*f* g"]);
        check("2 * 3 * 4 and snake_case_name and a ** b", 60, &["2 * 3 * 4 and snake_case_name and a ** b"]);
        check("not **closed and `open", 60, &["not **closed and `open"]);
        check("***both*** and \\*plain\\*", 60, &["both and *plain*"]);
        check("see [the docs](https://x.test/a) and [1]", 60, &["see the docs (https://x.test/a) and [1]"]);
    }

    #[test]
    fn words_wrap_and_lists_hang() {
        check("- one two three four", 12, &["• one two", "  three four"]);
        check("one two three", 9, &["one two", "three"]);
        check("abcdefghijklmnop", 10, &["abcdefghij", "klmnop"]);
        check("日本語の文章です", 10, &["日本語の文", "章です"]);
        check("```\nabcdefghijklmnop\n```", 12, &["╭─", "│ abcdefghij", "│ klmnop", "╰─"]);
    }

    #[test]
    fn a_long_line_is_printed_while_it_grows_and_nothing_is_lost() {
        let text = (0..400).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
        for piece in [1, 7, 10_000] {
            assert_eq!(rows(&text, 40, piece).join(" "), text);
        }
        let mut markdown = Markdown::default();
        assert!(markdown.push(&text, 40).len() > 50, "the beginning is printed");
        assert!(markdown.growing(40).len() <= GROWING_ROWS_MAX);
    }

    #[test]
    fn what_looks_like_markup_without_end_takes_no_time() {
        for text in ["[", "`", "*a ", "**", "_", "[a](", "> "] {
            let text = text.repeat(50_000);
            let mut markdown = Markdown::default();
            markdown.push(&text, 80);
            markdown.finish(80);
        }
    }

    #[test]
    fn nothing_steers_the_terminal() {
        check("a\u{1b}[2Jb\u{7}\r\n\tc", 40, &["a␛[2Jb␇", "    c"]);
    }
}
