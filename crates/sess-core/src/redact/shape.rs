//! Secrets known by their look: vendors' tokens, JWTs, PEM keys, passwords in URLs.

use std::ops::Range;

use super::value;

/// How the rest of a token looks, after its prefix.
enum Rest {
    /// At least so many letters and digits.
    Alphanumeric(usize),
    /// At least so many letters, digits, `-` and `_`.
    Word(usize),
    /// The same, and random: names with dashes begin with `sk-` as well.
    Random(usize),
    /// Exactly so many capitals and digits.
    Capitals(usize),
    /// At least so many characters of base 64.
    Base64(usize),
    /// Parts divided by dots: so many, each of at least so many characters.
    Dotted { parts: usize, chars_min: usize },
    /// A path, of which the last part is the secret.
    Path,
}

const SHAPES: &[(&str, Rest)] = &[
    // The gateway's own.
    ("sess_", Rest::Alphanumeric(64)),
    ("sk-", Rest::Random(16)),
    ("sk_live_", Rest::Alphanumeric(10)),
    ("sk_test_", Rest::Alphanumeric(10)),
    ("rk_live_", Rest::Alphanumeric(10)),
    ("rk_test_", Rest::Alphanumeric(10)),
    ("ghp_", Rest::Alphanumeric(20)),
    ("gho_", Rest::Alphanumeric(20)),
    ("ghu_", Rest::Alphanumeric(20)),
    ("ghs_", Rest::Alphanumeric(20)),
    ("ghr_", Rest::Alphanumeric(20)),
    ("github_pat_", Rest::Word(20)),
    ("xoxa-", Rest::Random(10)),
    ("xoxb-", Rest::Random(10)),
    ("xoxe-", Rest::Random(10)),
    ("xoxe.", Rest::Random(10)),
    ("xoxo-", Rest::Random(10)),
    ("xoxp-", Rest::Random(10)),
    ("xoxr-", Rest::Random(10)),
    ("xoxs-", Rest::Random(10)),
    ("xapp-", Rest::Random(10)),
    ("AIza", Rest::Word(35)),
    ("AKIA", Rest::Capitals(16)),
    ("ASIA", Rest::Capitals(16)),
    ("npm_", Rest::Alphanumeric(30)),
    ("glpat-", Rest::Word(16)),
    ("gldt-", Rest::Random(16)),
    ("glrt-", Rest::Random(16)),
    ("hf_", Rest::Alphanumeric(24)),
    ("eyJ", Rest::Dotted { parts: 3, chars_min: 8 }),
    ("SG.", Rest::Dotted { parts: 2, chars_min: 16 }),
    ("ya29.", Rest::Word(20)),
    ("pypi-AgEI", Rest::Word(20)),
    ("dop_v1_", Rest::Alphanumeric(32)),
    ("doo_v1_", Rest::Alphanumeric(32)),
    ("dor_v1_", Rest::Alphanumeric(32)),
    ("shpat_", Rest::Alphanumeric(24)),
    ("shpss_", Rest::Alphanumeric(24)),
    ("shpca_", Rest::Alphanumeric(24)),
    ("shppa_", Rest::Alphanumeric(24)),
    ("whsec_", Rest::Base64(20)),
    ("GOCSPX-", Rest::Word(20)),
    ("AGE-SECRET-KEY-", Rest::Alphanumeric(40)),
    ("hooks.slack.com/services/", Rest::Path),
    ("discord.com/api/webhooks/", Rest::Path),
    ("discordapp.com/api/webhooks/", Rest::Path),
];

/// Returns what the tokens begin with.
pub(super) fn prefixes() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|(prefix, _)| *prefix)
}

/// Whether this is what a token begins with.
pub(super) fn is_prefix(found: &str) -> bool {
    prefixes().any(|prefix| prefix == found)
}

/// Returns where the token that begins with this prefix ends, if it is one.
pub(super) fn token(text: &str, start: usize) -> Option<Range<usize>> {
    let (prefix, rest) = SHAPES.iter().find(|(prefix, _)| text[start..].starts_with(prefix))?;
    let after = start + prefix.len();
    if let Rest::Path = rest {
        return webhook(text, after);
    }
    if !is_start(text, start) {
        return None;
    }
    let tail = |of: fn(u8) -> bool| run(text, after, of);
    let end = match rest {
        Rest::Alphanumeric(least) => at_least(*least, tail(is_alphanumeric)),
        Rest::Word(least) => at_least(*least, tail(is_word)),
        Rest::Random(least) => at_least(*least, tail(is_word)).filter(|rest| is_random(rest)),
        Rest::Capitals(exactly) => {
            let rest = tail(is_alphanumeric);
            let capitals = rest.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
            (rest.len() == *exactly && capitals).then_some(rest)
        }
        Rest::Base64(least) => at_least(*least, tail(is_base64)),
        Rest::Dotted { parts, chars_min } => {
            let rest = tail(|b| is_word(b) || b == b'.').trim_end_matches('.');
            let long = rest.split('.').take(*parts).filter(|part| part.len() >= *chars_min).count();
            (long == *parts).then_some(rest)
        }
        Rest::Path => None,
    };
    // `ghp_xxxxxxxx…` shows how a token looks, and is none.
    let rest = end.filter(|rest| !value::is_one_character(rest))?;
    Some(start..after + rest.len())
}

/// Returns the last part of a webhook's path, which is its password.
fn webhook(text: &str, start: usize) -> Option<Range<usize>> {
    let path = run(text, start, |b| is_word(b) || b == b'/').trim_end_matches('/');
    let secret = path.rfind('/')? + 1;
    let long = path.len() - secret >= 16 && !value::is_one_character(&path[secret..]);
    long.then_some(start + secret..start + path.len())
}

/// Returns a Telegram bot's token: 8 to 10 digits, `:`, 35 characters.
pub(super) fn telegram(text: &str, trigger: Range<usize>) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let mut start = trigger.start;
    while start > 0 && bytes[start - 1].is_ascii_digit() {
        start -= 1;
        if trigger.end - start > 11 {
            return None;
        }
    }
    // In the API's URLs the token follows the word `bot`.
    if !is_start(text, start) && !text[..start].ends_with("bot") {
        return None;
    }
    let rest = run(text, trigger.end, is_word);
    let mixed = rest.bytes().any(|b| b.is_ascii_uppercase()) && rest.bytes().any(|b| b.is_ascii_lowercase());
    (rest.len() == 35 && mixed).then_some(start..trigger.end + rest.len())
}

/// Returns the password in the user part of the URL whose authority starts here.
pub(super) fn url_password(text: &str, start: usize) -> Option<Range<usize>> {
    let scheme = start.checked_sub(4)?;
    if !text.as_bytes()[scheme].is_ascii_alphanumeric() {
        return None;
    }
    let authority = run(text, start, |b| !matches!(b, b'/' | b'?' | b'#' | b'\\') && !value::is_delimiter(b));
    let user_info = &authority[..authority.rfind('@')?];
    let colon = user_info.find(':')?;
    let password = &user_info[colon + 1..];
    let secret = !password.is_empty() && !value::is_template(password);
    secret.then_some(start + colon + 1..start + user_info.len())
}

/// The longest PEM block that is looked at.
const PEM_BYTES_MAX: usize = 16_384;

/// Returns the body of a private key, up to its end or to where the text was cut.
pub(super) fn pem(text: &str, trigger: Range<usize>) -> Option<Range<usize>> {
    let label_end = trigger.end + text[trigger.end..].bytes().take(64).position(|b| b == b'-')?;
    let label = &text[trigger.end..label_end];
    if !label.contains("PRIVATE KEY") || !text[label_end..].starts_with("-----") {
        return None;
    }
    let body_start = label_end + 5;
    let most = text.floor_char_boundary(text.len().min(body_start + PEM_BYTES_MAX));
    let body = &text[body_start..most];
    // Looking no further than the next dashes keeps a text full of headers cheap.
    let (end, ended) = match body.find("-----") {
        Some(end) if body[end..].starts_with("-----END") => (end, true),
        Some(_) | None => (key_lines(body), false),
    };
    let body = &body[..end];
    // Line breaks may be written as `\n`: they stay, so that the rest still reads well.
    let lead = breaks(body);
    let inner = body[lead..].trim_end_matches(|c: char| !is_base64_char(c) || c == '/');
    let inner = inner.strip_suffix("\\n").unwrap_or(inner);
    let is_key = inner.split(|c: char| !is_base64_char(c)).any(|line| line.len() >= 16);
    // Between both headers anything is the key, unless it is code that names them.
    let is_body = ended
        && inner.starts_with(is_base64_char)
        && (body[..lead].contains(['\n', '\\']) || !inner.contains(char::is_whitespace))
        && !inner.contains(['"', '\'', '`', '(', '<', '{', '$']);
    (is_key || is_body).then(|| body_start + lead..body_start + lead + inner.len())
}

/// Returns how far white space goes, also where its line breaks are written as `\n`.
fn breaks(body: &str) -> usize {
    let mut rest = body;
    loop {
        rest = rest.trim_start();
        let escape = rest.trim_start_matches('\\');
        match escape.strip_prefix(['n', 'r']) {
            Some(after) if escape.len() < rest.len() => rest = after,
            Some(_) | None => return body.len() - rest.len(),
        }
    }
}

/// Returns how far lines of base 64 go.
fn key_lines(body: &str) -> usize {
    let mut end = 0;
    for line in body.split_inclusive(|c: char| !is_base64_char(c)) {
        let digits = line.trim_end_matches(|c: char| !is_base64_char(c));
        let is_line_break = digits.len() <= 1;
        if digits.len() < 16 && !is_line_break {
            break;
        }
        end += line.len();
    }
    end
}

fn is_base64_char(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_base64)
}

/// Whether a token may begin here: not inside a word, and not at the end of a masked one.
pub(super) fn is_start(text: &str, at: usize) -> bool {
    let before = &text[..at];
    match before.as_bytes().last() {
        None => true,
        // In JSON a line break is written `\n`, and the token follows an `n`.
        Some(b'n' | b'r' | b't') if before.len() > 1 => before.as_bytes()[before.len() - 2] == b'\\',
        Some(&b) => !is_word(b) && b != b'.' && !before.ends_with('…'),
    }
}

/// Returns the characters from here on that belong together, as far as one looks.
fn run(text: &str, start: usize, of: fn(u8) -> bool) -> &str {
    let rest = &text[start..];
    let length = rest.bytes().take(TOKEN_BYTES_MAX).take_while(|&b| of(b)).count();
    &rest[..rest.floor_char_boundary(length)]
}

/// The longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 8_192;

fn at_least(least: usize, rest: &str) -> Option<&str> {
    (rest.len() >= least).then_some(rest)
}

fn is_alphanumeric(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')
}

fn is_base64(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=')
}

/// Whether a part of it is longer than any word, or mixes digits into letters.
fn is_random(rest: &str) -> bool {
    rest.split(['-', '_'])
        .any(|part| part.len() >= 20 || part.len() >= 10 && part.bytes().any(|b| b.is_ascii_digit()))
}
