//! What an address says besides the route: its parts and its parameters, decoded strictly.

use std::ops::RangeInclusive;

use super::errors::Problem;

/// The most bytes of one decoded part of a path.
const PART_BYTES_MAX: usize = 512;

/// The parameters of a request, decoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads parameters that the route knows, each of them once; those in `lists` as often as one likes.
    pub(super) fn parse(text: Option<&str>, known: &[String], lists: &[String]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| decoded(&text.replace('+', "%20"));
            let wrong = |what: &str| {
                Problem::invalid(format!("{what} is not percent-encoded UTF-8, or has a NUL character"))
            };
            let name = decode(name).ok_or_else(|| wrong("the name of a parameter"))?;
            let value = decode(value).ok_or_else(|| wrong(&format!("the parameter {name:?}")))?;
            if !known.contains(&name) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Problem::invalid(format!(
                    "unknown parameter {name:?}; the parameters are: {known}"
                )));
            }
            if !lists.contains(&name) && pairs.iter().any(|(other, _)| *other == name) {
                return Err(Problem::invalid(format!("the parameter {name} is given twice")));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns a whole number, or says what it must be.
    pub(super) fn number(&self, name: &str, allowed: RangeInclusive<u64>) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| is_plain && allowed.contains(number));
        number.map(Some).ok_or_else(|| {
            let (least, most) = allowed.into_inner();
            Problem::invalid(format!("{name} must be a whole number from {least} to {most}, not {text:?}"))
        })
    }

    /// Returns a number of any size, or says what it must be.
    pub(super) fn amount(&self, name: &str) -> Result<Option<f64>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(Some).ok_or_else(|| Problem::invalid(format!("{name} must be a number, not {text:?}")))
    }

    /// `1` and `true` are yes, `0` and `false` are no.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        match self.text(name) {
            None => Ok(None),
            Some("1" | "true") => Ok(Some(true)),
            Some("0" | "false") => Ok(Some(false)),
            Some(other) => Err(Problem::invalid(format!("{name} must be 1 or 0, not {other:?}"))),
        }
    }

    /// Returns names: with commas between them, or one each time the parameter is given.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        let given = self.0.iter().filter(|(other, _)| other == name);
        let names = given.flat_map(|(_, value)| value.split(','));
        names.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

/// Decodes one part of a path; `what` names it in the refusal.
pub(super) fn path_part(text: &str, what: &str) -> Result<String, Problem> {
    let decoded = decoded(text).ok_or_else(|| {
        Problem::invalid(format!("the {what} is not percent-encoded UTF-8, or has a NUL character"))
    })?;
    if decoded.len() > PART_BYTES_MAX {
        return Err(Problem::invalid(format!("the {what} is longer than {PART_BYTES_MAX} bytes")));
    }
    Ok(decoded)
}

/// Undoes percent-encoding; `None` when it is broken, no UTF-8, or has a NUL.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_decoded_strictly() {
        let part = |text: &str| path_part(text, "session key").map_err(|problem| problem.message);
        assert_eq!(part("agent%3Amain%3Amain").as_deref(), Ok("agent:main:main"));
        assert_eq!(part("%2e%2e%2f").as_deref(), Ok("../"));
        assert_eq!(part("%c3%a4").as_deref(), Ok("ä"));
        for broken in ["%", "%4", "%zz", "%00", "a%00b", "%ff", "%c3", "%+1"] {
            assert!(part(broken).is_err(), "{broken}");
        }
        assert!(part(&"a".repeat(512)).is_ok());
        assert!(part(&"a".repeat(513)).is_err());
        assert!(part(&"%61".repeat(512)).is_ok());
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        let known = ["limit".to_owned(), "follow".to_owned()];
        let limit = |text: &str| {
            let query = Query::parse(Some(text), &known, &[]).map_err(|problem| problem.message)?;
            query.number("limit", 1..=1_000).map_err(|problem| problem.message)
        };
        assert_eq!(limit("limit=5"), Ok(Some(5)));
        assert_eq!(limit(""), Ok(None));
        for wrong in ["-1", "0", "abc", "1e9", "1001", "", "5.0", "+5", "%35%00", "99999999999999999999"] {
            let refused = limit(&format!("limit={wrong}")).expect_err(wrong);
            assert!(refused.contains("limit"), "{wrong}: {refused}");
        }
        for wrong in ["%00", "%ff", "%"] {
            let refused = limit(&format!("limit={wrong}")).expect_err(wrong);
            assert!(refused.starts_with("the parameter \"limit\" is not"), "{refused}");
            assert!(limit(&format!("{wrong}=1")).expect_err(wrong).starts_with("the name of a parameter"));
        }
        assert!(limit("limit=1&limit=2").expect_err("twice").contains("twice"));
        assert!(limit("x=1").expect_err("unknown").contains("\"x\""));
    }

    #[test]
    fn a_list_has_commas_or_is_given_again() {
        let known = ["source".to_owned()];
        let list = |text: &str| {
            let query = Query::parse(Some(text), &known, &known).map_err(|problem| problem.message)?;
            Ok::<_, String>(query.list("source").join(" "))
        };
        assert_eq!(list("source=claude,codex").as_deref(), Ok("claude codex"));
        assert_eq!(list("source=claude&source=codex,%20zed").as_deref(), Ok("claude codex zed"));
        assert_eq!(list("").as_deref(), Ok(""));
    }
}
