//! Tells values that are secrets from values that are code, words or hashes.

use super::name::{self, Kind};

/// Where a value stands, which says how much it must look like a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `NAME=value` in capitals, as of a shell or an `.env` file: always a secret.
    Env,
    /// A parameter of a query and the like: never code.
    Shell,
    /// A field of JSON.
    Field,
    /// A string literal.
    Quoted,
    /// A line of its own: YAML, an `.ini` file, a flag.
    Line,
    /// Anything else: most likely code.
    Bare,
}

/// Whether a value of such a name, in such a place, is a secret.
pub(super) fn is_secret(kind: Kind, place: Place, value: &str) -> bool {
    match (kind, place) {
        (_, Place::Env) => return is_env_literal(kind, value),
        (Kind::Password | Kind::Secret, Place::Field) => return is_field_literal(value),
        _ => {}
    }
    let look = Look::of(value);
    if look.white || is_one_character(value) || is_path(value) {
        return false;
    }
    let mixed = look.chars >= 8 && look.is_mixed();
    let random = look.chars >= 16 && look.is_mixed();
    let looks_secret = match (kind, place) {
        (Kind::Password, Place::Env | Place::Shell | Place::Field) => {
            look.chars >= 6 && (look.is_chosen() || look.is_word(8)) && !is_sample(value)
        }
        (Kind::Password, Place::Quoted | Place::Line) => {
            look.chars >= 6 && look.is_chosen() && !is_sample(value)
        }
        (Kind::Password, Place::Bare) => mixed && !is_constant(value),
        (Kind::Secret, Place::Env | Place::Shell) => {
            let made_up = look.chars >= 8 && look.is_chosen() && look.dividers == 0 || look.is_word(12);
            mixed || look.is_strong() || made_up && !is_sample(value)
        }
        (Kind::Secret, Place::Field | Place::Quoted | Place::Line) => {
            mixed || look.is_strong() || look.is_word(20)
        }
        (Kind::Secret, Place::Bare) => random && !is_constant(value) && !value.contains('.'),
        (Kind::Key, Place::Bare) => false,
        (Kind::Key, Place::Env | Place::Shell | Place::Field | Place::Quoted | Place::Line) => {
            let named = value.contains(['.', ':', '/', '\\']) && !value.ends_with('=');
            random && look.chars >= 20 && !named && !is_hash(value)
        }
    };
    looks_secret && !is_template(value)
}

/// Whether what follows a scheme such as `Bearer` is a credential, and not a word about one.
pub(super) fn is_credential(value: &str) -> bool {
    if is_template(value) || is_one_character(value) {
        return false;
    }
    let look = Look::of(value);
    let cased = look.lower > 0 && look.upper > 0 && look.changes >= 2;
    let made_up = look.is_chosen() && (look.is_mixed() || look.chars >= 12);
    look.chars >= 6 && !look.white && (made_up || cased || look.is_word(16))
}

/// Whether the value of an environment variable is written out, however short or plain it is.
fn is_env_literal(kind: Kind, value: &str) -> bool {
    // Small numbers count or enumerate; a password may be one.
    let number = kind != Kind::Password && value.len() <= 5 && value.parse::<f64>().is_ok();
    let hex = value.starts_with("0x") && value.len() <= 10;
    // `TOKEN=OTHER_TOKEN` names another one.
    let named = value.contains('_')
        && value.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
        && name::kind(value).is_some();
    !(number || hex || named || is_path(value) || is_reference(value) || is_placeholder(value))
}

/// Whether the string of a JSON field is the secret itself, and no label of a form.
fn is_field_literal(value: &str) -> bool {
    let last = value.trim_end_matches(['.', ':', '?', '!', '*']).rsplit(' ').next().unwrap_or_default();
    let label =
        name::is_secret_word(&last.to_ascii_lowercase()) && value.bytes().all(|b| !b.is_ascii_digit());
    !(label || is_path(value) || is_sample(value) || is_placeholder(value))
}

/// Whether the value of `Authorization` is written out.
pub(super) fn is_header_literal(value: &str) -> bool {
    !(is_sample(value) || is_reference(value) || is_placeholder(value) || name::kind(value).is_some())
}

/// Whether the one word after `password:` on a line of its own is no type, variable or sample.
pub(super) fn is_line_literal(value: &str) -> bool {
    let typed = value.trim_end_matches(['!', '?']);
    let typed = typed.starts_with(|c: char| c.is_ascii_uppercase() || c == '&' || c == '*')
        && typed.bytes().all(|b| b.is_ascii_alphabetic() || b"&*_.'".contains(&b));
    let number = value.parse::<f64>().is_ok() && value.len() <= 5;
    let dotted = value.contains('.') && value.bytes().all(|b| !b.is_ascii_digit());
    let code = value.contains(['=', '?', '"', '`']) && !Look::of(value).is_mixed() || dotted;
    value.len() >= 3 && !(typed || number || code || is_path(value)) && is_header_literal(value)
}

/// Whether it is a long random key, and neither a hash nor a name.
pub(super) fn is_long_key(value: &str) -> bool {
    let of_key = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'=');
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().any(|b| b.is_ascii_alphabetic());
    value.len() >= 24 && value.bytes().all(of_key) && digits >= 2 && letters && !is_hash(value)
}

/// Whether it names where the value is to be found.
fn is_reference(value: &str) -> bool {
    const ROOTS: &str = "args config env github import inputs os process secrets self settings this var vars";
    value.split_once('.').is_some_and(|(root, _)| name::lists(ROOTS, root))
}

/// Whether nothing is written out where the value goes: a variable, a keyword, a sample, a mask.
fn is_placeholder(value: &str) -> bool {
    const KEYWORDS: &str = "auth boolean bool credentials false header int integer jwt missing nil no none \
        null number off on optional read required str string text true undefined value write yes";
    let lower = value.to_ascii_lowercase();
    let within = |open: &str, close: char| value.find(open).is_some_and(|at| value[at..].contains(close));
    let variable = value
        .strip_prefix('$')
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        || value.starts_with('%') && (value.len() <= 3 || value.ends_with('%') || value.starts_with("%("))
        || value.starts_with(['<', '`', '['])
        || value.contains("$(")
        || within("{", '}')
        || within("<", '>');
    let sample =
        ["…", "...", "***", "xxxx", "your", "example", "placeholder", "redacted", "change", "-----begin "]
            .iter()
            .any(|part| lower.contains(part));
    let repeated = is_one_character(value) && value.starts_with(['x', 'X', '0']);
    !value.contains(char::is_alphanumeric) || variable || sample || repeated || name::lists(KEYWORDS, &lower)
}

/// What is counted in a value, in one go.
#[derive(Default)]
struct Look {
    chars: usize,
    lower: usize,
    upper: usize,
    digits: usize,
    /// Characters that people put into passwords and programmers not into names.
    special: usize,
    /// What names are divided by.
    dividers: usize,
    white: bool,
    /// How often lower case, capitals and digits follow each other within a run
    /// of letters and digits. A capital before lower case starts a word, and is
    /// not counted.
    changes: usize,
    /// Has a run of letters and digits that no word is.
    unlike_words: bool,
}

/// A run of letters and digits, as it is being counted.
#[derive(Default)]
struct Run {
    chars: usize,
    letters: usize,
    digits: usize,
    digit_groups: usize,
    changes: usize,
    upper: bool,
    last: u8,
    digits_at_end: usize,
}

impl Look {
    fn of(value: &str) -> Self {
        let mut look = Self::default();
        let mut run = Run::default();
        for c in value.chars() {
            look.chars += 1;
            match c {
                'a'..='z' => look.lower += 1,
                'A'..='Z' => look.upper += 1,
                '0'..='9' => look.digits += 1,
                '!' | '@' | '#' | '$' | '%' | '^' | '&' | '*' | '+' | '~' | '?' => look.special += 1,
                c if c.is_whitespace() => look.white = true,
                c if c.is_alphabetic() => look.lower += 1,
                '.' | '_' | '-' | ':' | '\\' => look.dividers += 1,
                _ => {}
            }
            match u8::try_from(c) {
                Ok(b) if b.is_ascii_alphanumeric() => run.push(b),
                Ok(_) | Err(_) => look.end(&std::mem::take(&mut run)),
            }
        }
        look.end(&run);
        look
    }

    fn end(&mut self, run: &Run) {
        self.changes += run.changes;
        self.unlike_words |= run.is_unlike_words();
    }

    /// Letters and digits, in a way that no name is made.
    fn is_mixed(&self) -> bool {
        let alphanumeric = self.lower + self.upper + self.digits;
        let restless = alphanumeric >= 12 && self.changes * 4 >= alphanumeric;
        self.lower + self.upper > 0 && self.digits > 0 && (self.unlike_words || restless)
    }

    /// Letters with a digit or a special character: what forms ask people for.
    fn is_chosen(&self) -> bool {
        self.lower + self.upper > 0 && self.digits + self.special > 0
    }

    /// A good password, or base 64 with too few digits to be sure of in other places.
    fn is_strong(&self) -> bool {
        let special = self.chars >= 8 && self.lower + self.upper > 0 && self.digits > 0 && self.special > 0;
        let alphanumeric = self.lower + self.upper + self.digits;
        let base64 = self.chars >= 32 && self.lower > 0 && self.upper > 0 && self.digits > 0;
        special || base64 && self.dividers == 0 && self.changes * 5 >= alphanumeric
    }

    /// Lower-case letters only, so many of them: a word, but no type and no variable in capitals.
    fn is_word(&self, least: usize) -> bool {
        self.lower >= least && self.lower == self.chars
    }
}

impl Run {
    fn push(&mut self, b: u8) {
        let class = |b: u8| (b.is_ascii_digit(), b.is_ascii_uppercase());
        if self.chars > 0 && class(b) != class(self.last) {
            let word_start = self.last.is_ascii_uppercase() && b.is_ascii_lowercase();
            self.changes += usize::from(!word_start);
        }
        if b.is_ascii_digit() {
            self.digits += 1;
            self.digit_groups += usize::from(!self.last.is_ascii_digit());
            self.digits_at_end += 1;
        } else {
            self.letters += 1;
            self.digits_at_end = 0;
        }
        self.upper |= b.is_ascii_uppercase();
        self.chars += 1;
        self.last = b;
    }

    fn is_unlike_words(&self) -> bool {
        if self.letters == 0 || self.digits == 0 || self.chars < 8 {
            return false;
        }
        // `report2024` is a word with a number.
        let numbered = self.digits <= 4 && self.digits == self.digits_at_end && self.letters >= 5;
        let repeated = self.digit_groups >= 2 && !self.upper;
        let half = self.digits >= 4 && self.letters >= 4 && !numbered;
        self.changes * 4 >= self.chars || repeated || half
    }
}

/// Whether something stands in for the value: a variable, a format, a mask.
pub(super) fn is_template(value: &str) -> bool {
    let starts = value.starts_with(['%', '<', '`'])
        || value.strip_prefix('$').is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    let holds = [
        "…", "...", "***", "$(", "{", "}", "<", ">", "%s", "%d", "%v", "::", "->", "()", "[", "]", "|",
        "\\x", "\\u",
    ];
    starts || holds.iter().any(|part| value.contains(part))
}

/// Whether one character is repeated, as in `xxxxxxxx`.
pub(super) fn is_one_character(value: &str) -> bool {
    let mut chars = value.chars();
    let first = chars.next();
    chars.all(|c| Some(c) == first)
}

/// Whether a value that was not read to its quote ends here.
pub(super) fn is_delimiter(b: u8) -> bool {
    b.is_ascii_whitespace() || b.is_ascii_control() || b"\"'`;,()[]{}<>|\\".contains(&b)
}

fn is_path(value: &str) -> bool {
    let rooted = value.starts_with('/') && value[1..].contains('/');
    rooted || ["./", "../", "~/", "@/"].iter().any(|root| value.starts_with(root)) || value.contains("://")
}

/// Whether people write this word where a secret goes.
fn is_sample(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let parts = ["your", "example", "change", "placeholder", "redacted", "password", "passwd", "required"];
    let words = [
        "boolean",
        "disabled",
        "enabled",
        "optional",
        "passphrase",
        "passwords",
        "integer",
        "undefined",
        "keychain",
        "interactive",
        "username",
        "default",
        "nullable",
        "confirmation",
        "incorrect",
        "invalid",
    ];
    let only_letters = lower.bytes().all(|b| !b.is_ascii_digit());
    only_letters && parts.iter().any(|part| lower.contains(part)) || words.contains(&lower.as_str())
}

/// Whether it is the name of a constant: `CHACHA20_POLY1305`.
fn is_constant(value: &str) -> bool {
    let constant = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    value.contains('_') && value.bytes().all(constant)
}

/// Whether it is a hash or a UUID, which keys of caches and tables often are.
fn is_hash(value: &str) -> bool {
    let digits = value.strip_prefix("0x").unwrap_or(value);
    digits.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}
