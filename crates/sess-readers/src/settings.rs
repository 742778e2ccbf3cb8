//! Settings of agents, which are not always JSON: each is read as its agent reads it.

use std::{iter::Peekable, path::Path, str::CharIndices};

use serde_json::{Map, Value};

use crate::{Result, files};

/// How deep settings may be nested.
const DEPTH_MAX: usize = 100;

/// What an agent takes for JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// JSON, with a byte order mark or without. Nothing but space says nothing.
    Plain,
    /// JSON with comments.
    Comments,
    /// JSON5: comments, commas at the end, names without quotes, texts in single ones.
    Five,
}

/// What a file of settings says.
#[derive(Debug)]
pub(crate) enum Settings {
    /// It is not there, or says nothing.
    None,
    Some(Map<String, Value>),
    /// Its agent cannot read it either, for this reason.
    Malformed(String),
}

impl Settings {
    /// Reads an agent's settings. An error is that of a file that this program cannot read.
    pub(crate) fn read(path: &Path, dialect: Dialect) -> Result<Self> {
        let Some(bytes) = files::settings(path)? else { return Ok(Self::None) };
        let text = String::from_utf8_lossy(&bytes);
        Ok(match parse(&text, dialect) {
            Ok(None) => Self::None,
            Ok(Some(Value::Object(fields))) => Self::Some(fields),
            Ok(Some(_)) => Self::Malformed("it is no object".to_owned()),
            Err(why) => Self::Malformed(why),
        })
    }
}

fn parse(text: &str, dialect: Dialect) -> std::result::Result<Option<Value>, String> {
    let plain = |text: &str| serde_json::from_str(text).map(Some).map_err(|error| error.to_string());
    match dialect {
        Dialect::Plain => match text.strip_prefix('\u{feff}').unwrap_or(text) {
            text if text.trim().is_empty() => Ok(None),
            text => plain(text),
        },
        Dialect::Comments => plain(&without_comments(text)),
        Dialect::Five => Five { rest: text.char_indices().peekable(), text }.document().map(Some),
    }
}

/// Puts spaces at the place of comments, so that what is wrong is still told by its line.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_comment = rest.starts_with("//") || rest.starts_with("/*");
        let len = match first {
            '"' => string_len(rest),
            _ if rest.starts_with("//") => rest.find(['\n', '\r']).unwrap_or(rest.len()),
            _ if is_comment => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            _ => first.len_utf8(),
        };
        let (piece, after) = rest.split_at(len);
        match is_comment {
            true => out.extend(piece.chars().map(|c| if c == '\n' { c } else { ' ' })),
            false => out.push_str(piece),
        }
        rest = after;
    }
    out
}

/// Returns how long the text in quotes at the beginning is.
fn string_len(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text[1..].find(|c| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 2)
}

/// A reader of JSON5.
struct Five<'a> {
    text: &'a str,
    rest: Peekable<CharIndices<'a>>,
}

type Parsed<T> = std::result::Result<T, String>;

impl Five<'_> {
    fn document(mut self) -> Parsed<Value> {
        let value = self.value(0)?;
        self.space()?;
        if self.rest.peek().is_some() { self.wrong("the end") } else { Ok(value) }
    }

    fn value(&mut self, depth: usize) -> Parsed<Value> {
        self.space()?;
        if depth > DEPTH_MAX {
            return self.wrong("less depth");
        }
        match self.peek() {
            Some('{') => self.object(depth),
            Some('[') => self.list(depth),
            Some('"' | '\'') => self.string().map(Value::String),
            _ => self.bare(),
        }
    }

    fn object(&mut self, depth: usize) -> Parsed<Value> {
        let mut fields = Map::new();
        self.rest.next();
        while !self.ends_with('}')? {
            let name = match self.peek() {
                Some('"' | '\'') => self.string()?,
                _ => self.word()?,
            };
            self.space()?;
            if self.rest.next_if(|(_, c)| *c == ':').is_none() {
                return self.wrong("`:`");
            }
            fields.insert(name, self.value(depth + 1)?);
            self.comma('}')?;
        }
        Ok(Value::Object(fields))
    }

    fn list(&mut self, depth: usize) -> Parsed<Value> {
        let mut values = Vec::new();
        self.rest.next();
        while !self.ends_with(']')? {
            values.push(self.value(depth + 1)?);
            self.comma(']')?;
        }
        Ok(Value::Array(values))
    }

    /// Passes what ends a list or an object, if that is next.
    fn ends_with(&mut self, end: char) -> Parsed<bool> {
        self.space()?;
        Ok(self.rest.next_if(|(_, c)| *c == end).is_some())
    }

    /// Passes the comma behind a value, which may lack before the end.
    fn comma(&mut self, end: char) -> Parsed<()> {
        self.space()?;
        match self.peek() {
            Some(',') => {
                self.rest.next();
                Ok(())
            }
            Some(c) if c == end => Ok(()),
            _ => self.wrong("`,` or an end"),
        }
    }

    fn string(&mut self) -> Parsed<String> {
        let mut text = String::new();
        let quote = self.rest.next().map(|(_, c)| c);
        loop {
            match self.rest.next().map(|(_, c)| c) {
                None | Some('\n' | '\r') => return self.wrong("the end of a text"),
                Some('\\') => text.extend(self.escape()?),
                c if c == quote => return Ok(text),
                Some(c) => text.push(c),
            }
        }
    }

    /// Returns what an escape stands for; nothing for the end of a line.
    fn escape(&mut self) -> Parsed<Option<char>> {
        let Some((_, c)) = self.rest.next() else { return self.wrong("an escape") };
        Ok(Some(match c {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '0' => '\0',
            'x' => self.code(2)?,
            'u' => self.code(4)?,
            '\r' => {
                self.rest.next_if(|(_, c)| *c == '\n');
                return Ok(None);
            }
            '\n' | '\u{2028}' | '\u{2029}' => return Ok(None),
            c => c,
        }))
    }

    /// Returns the character of a number; half a surrogate pair is none.
    fn code(&mut self, digits: usize) -> Parsed<char> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.rest.next_if(|(_, c)| c.is_ascii_hexdigit()).and_then(|(_, c)| c.to_digit(16));
            let Some(digit) = digit else { return self.wrong("a digit") };
            code = code << 4 | digit;
        }
        Ok(char::from_u32(code).unwrap_or('\u{fffd}'))
    }

    /// Reads what stands there without quotes: a number, or a word that JSON has.
    fn bare(&mut self) -> Parsed<Value> {
        let word = self.word()?;
        let (is_negative, digits) = match word.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, word.strip_prefix('+').unwrap_or(&word)),
        };
        let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
        let number = match hex {
            Some(hex) => {
                i64::from_str_radix(hex, 16).ok().map(|it| Value::from(if is_negative { -it } else { it }))
            }
            None => serde_json::from_str::<Value>(word.strip_prefix('+').unwrap_or(&word)).ok(),
        };
        let float = || digits.parse::<f64>().ok().map(|it| Value::from(if is_negative { -it } else { it }));
        match number.or_else(float) {
            Some(value) => Ok(value),
            None => self.wrong("a value"),
        }
    }

    fn word(&mut self) -> Parsed<String> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '+' | '-' | '.');
        let word: String =
            std::iter::from_fn(|| self.rest.next_if(|(_, c)| is_part(*c)).map(|(_, c)| c)).collect();
        if word.is_empty() { self.wrong("a name or a value") } else { Ok(word) }
    }

    /// Passes space and comments.
    fn space(&mut self) -> Parsed<()> {
        loop {
            while self.rest.next_if(|(_, c)| c.is_whitespace() || *c == '\u{feff}').is_some() {}
            let rest = &self.text[self.at()..];
            let len = if rest.starts_with("//") {
                rest.find(['\n', '\r', '\u{2028}', '\u{2029}']).unwrap_or(rest.len())
            } else if let Some(comment) = rest.strip_prefix("/*") {
                match comment.find("*/") {
                    Some(end) => end + 4,
                    None => return self.wrong("the end of a comment"),
                }
            } else {
                return Ok(());
            };
            let end = self.at() + len;
            while self.rest.next_if(|(at, _)| *at < end).is_some() {}
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().map(|(_, c)| *c)
    }

    fn at(&mut self) -> usize {
        self.rest.peek().map_or(self.text.len(), |(at, _)| *at)
    }

    fn wrong<T>(&mut self, expected: &str) -> Parsed<T> {
        let before = &self.text[..self.at()];
        Err(format!("expected {expected} at line {}", before.matches('\n').count() + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: Dialect, text: &str, said: &str) {
        let parsed = match parse(text, dialect) {
            Ok(Some(value)) => value.to_string(),
            Ok(None) => "nothing".to_owned(),
            Err(why) => why,
        };
        assert_eq!(parsed, said, "{text}");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_json_and_comments_are_none_of_it() {
        let check = |text: &str, said: &str| check(Dialect::Plain, text, said);
        check("\u{feff}{\"a\": 1}", r#"{"a":1}"#);
        check(" \n", "nothing");
        check("{ // x\n}", "key must be a string at line 1 column 3");
        check(r#"{"a": 1,}"#, "trailing comma at line 1 column 9");
    }

    #[test]
    fn comments_are_passed_over_where_they_are_allowed() {
        let check = |text: &str, said: &str| check(Dialect::Comments, text, said);
        check("{ // x\n \"a\": /* \" */ 1 } // end", r#"{"a":1}"#);
        check(r#"{"a": "// no /* one", "b\"//": "\\"}"#, r#"{"a":"// no /* one","b\"//":"\\"}"#);
        check("{/* ä\n */\n 7}", "key must be a string at line 3 column 2");
        check(r#"{"a": 1,}"#, "trailing comma at line 1 column 9");
        check("{} /*", "{}");
        check(r#"{"a"#, "EOF while parsing a string at line 1 column 3");
    }

    #[test]
    fn json5_is_read() {
        let check = |text: &str, said: &str| check(Dialect::Five, text, said);
        check(
            "\u{feff}{session: {maintenance: {mode: 'warn',},},} // x\n",
            r#"{"session":{"maintenance":{"mode":"warn"}}}"#,
        );
        check(
            "/**/ [1, -2.5, +3, .5, 4., 0x1F, -0xa, 1e3, true, null,]",
            "[1,-2.5,3,0.5,4.0,31,-10,1000.0,true,null]",
        );
        check(
            r#"{"a": "it's", $b_1: 'a "b"', ü: '\x41\u00e4\'\n\
c'}"#,
            r#"{"a":"it's","$b_1":"a \"b\"","ü":"Aä'\nc"}"#,
        );
        check("[NaN, Infinity]", "[null,null]");
        check("{}", "{}");
        check("[]", "[]");
        check("", "expected a name or a value at line 1");
        check("{a: 1\n b: 2}", "expected `,` or an end at line 2");
        check("{a: yes}", "expected a value at line 1");
        check("{a 1}", "expected `:` at line 1");
        check("{a: 'b\n'}", "expected the end of a text at line 2");
        check("{a: /* b}", "expected the end of a comment at line 1");
        check("[,]", "expected a name or a value at line 1");
        check("{} {}", "expected the end at line 1");
        check(&"[".repeat(1_000), "expected less depth at line 1");
        check(r"'\u12'", "expected a digit at line 1");
        check(r"'\ud83d\ude00'", r#""��""#);
    }
}
