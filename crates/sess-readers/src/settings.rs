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
        let value = match &*word {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            word => number(word),
        };
        value.map_or_else(|| self.wrong("a value"), Ok)
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

/// Returns the number that a word is; one that JSON cannot say is nothing.
fn number(word: &str) -> Option<Value> {
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    let signed = |number: f64| Value::from(if word.starts_with('-') { -number } else { number });
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        return hexadecimal(hex, word.starts_with('-'));
    }
    if matches!(digits, "NaN" | "Infinity") {
        return Some(Value::Null);
    }
    let mut begin = digits.bytes();
    // Rust knows more numbers: signs of their own, words in any case.
    let is_number = match begin.next()? {
        b'0' => !begin.next().is_some_and(|second| second.is_ascii_digit()),
        first => first.is_ascii_digit() || first == b'.',
    };
    let whole = || serde_json::from_str(word.strip_prefix('+').unwrap_or(word)).ok();
    let float = || digits.parse().ok().map(signed);
    if is_number { whole().or_else(float) } else { None }
}

fn hexadecimal(digits: &str, is_negative: bool) -> Option<Value> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let whole = i64::from_str_radix(digits, 16).ok();
    let whole = if is_negative { whole.and_then(i64::checked_neg) } else { whole };
    // What is too long for that is as exact as the agent has it.
    let digits = || digits.chars().filter_map(|digit| digit.to_digit(16)).map(f64::from);
    let float = || digits().fold(0.0, |number: f64, digit| number.mul_add(16.0, digit));
    let float = || if is_negative { -float() } else { float() };
    Some(whole.map_or_else(|| Value::from(float()), Value::from))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_settings_say_is_read_or_refused(
            text in prop_oneof![
                any::<String>(),
                r#"[-+0-9a-fA-FxX.nNiItruls_$,:{}'"/*\\\[\] \n\r]{0,40}"#,
                "[-+]{0,2}(0[xX])?[-+]{0,2}[0-9a-fA-F.eE]{0,20}",
                "[-+]{0,2}0[xX][-+]?(7fffffffffffffff|8000000000000000|ffffffffffffffff)",
                "[-+]{0,2}(nan|inf|NaN|infinity|Infinity|INF|true|null)",
            ],
        ) {
            for dialect in [Dialect::Plain, Dialect::Comments, Dialect::Five] {
                let _ = parse(&text, dialect);
            }
        }

        #[test]
        fn json_is_read_alike_in_all_dialects(text in any::<String>(), number in any::<i64>(), float in -1e300..1e300) {
            let json = serde_json::json!({ &text: [number, float, text, null, true, {}, []] }).to_string();
            let value: Value = serde_json::from_str(&json).expect("JSON");
            for dialect in [Dialect::Plain, Dialect::Comments, Dialect::Five] {
                prop_assert_eq!(parse(&json, dialect), Ok(Some(value.clone())));
            }
        }
    }

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
        check("[NaN, Infinity, -Infinity]", "[null,null,null]");
        check("[-0x7FFFFFFFFFFFFFFF, 0x10000000000000000]", "[-9223372036854775807,1.8446744073709552e+19]");
        check("-0x8000000000000000", "-9.223372036854776e+18");
        for number in "-0x-8000000000000000 0x-1 0x+1 0x nan INF -inf infinity --1 -+1 +true 010".split(' ') {
            check(number, "expected a value at line 1");
        }
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
