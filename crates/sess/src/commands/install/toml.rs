//! TOML text: an entry is a table of its own at the end of the file.

use serde_json::Value;

use super::document::{Entry, Refusal, line_break};

pub fn parse(text: &str) -> Result<Option<Value>, String> {
    let value: Value = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
        format!("line {line}: {}", error.message())
    })?;
    Ok(Some(value))
}

pub fn insert(text: &str, entry: &Entry) -> Result<String, Refusal> {
    let (Some(key), Value::Object(fields)) = (&entry.key, &entry.value) else { return Err(Refusal::Style) };
    let whole = parse(text).map_err(Refusal::Unparsable)?;
    let container =
        whole.as_ref().and_then(|root| entry.path.iter().try_fold(root, |value, name| value.get(name)));
    if container.is_some_and(|container| !container.is_object()) {
        return Err(Refusal::shape(&entry.path, "a table"));
    }
    let newline = line_break(text);
    let mut added = match text {
        "" => String::new(),
        _ if text.ends_with('\n') => newline.to_owned(),
        _ => newline.repeat(2),
    };
    added += &format!("[{}.{key}]{newline}", entry.path.join("."));
    for (name, value) in fields {
        // Strings and lists of strings are written the same way as in JSON.
        added += &format!("{name} = {value}{newline}");
    }
    Ok(format!("{text}{added}"))
}

/// Returns an entry as it is written between the braces of an inline table, to which no table of its own can be added.
pub fn inline(entry: &Entry) -> Option<String> {
    let (Some(key), Value::Object(fields)) = (&entry.key, &entry.value) else { return None };
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    Some(format!("{key} = {{ {} }}", fields.join(", ")))
}

/// Takes out the table of an entry, and the empty line above it.
pub fn remove(text: &str, entry: &Entry) -> Option<String> {
    let header = format!("[{}.{}]", entry.path.join("."), entry.key.as_ref()?);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_header = |line: &str| {
        let bare = line.split('#').next().unwrap_or_default();
        bare.chars().filter(|c| !c.is_whitespace() && !"\"'".contains(*c)).eq(header.chars())
    };
    // A line of a text over several lines may look like the header: the one counts without which the entry is gone.
    let places = (0..lines.len()).filter(|&at| is_header(lines[at]));
    places.map(|at| without_table(&lines, at)).find(|rest| is_gone(rest, entry))
}

/// Returns the lines without the table whose header is at a place.
fn without_table(lines: &[&str], header: usize) -> String {
    let body = lines[header + 1..].iter().take_while(|line| !line.trim_start().starts_with('['));
    let says = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let last = header + body.collect::<Vec<_>>().iter().rposition(|line| says(line)).map_or(0, |at| at + 1);
    let is_parted = header > 0 && lines[header - 1].trim().is_empty();
    let kept = lines[..header - usize::from(is_parted)].iter().chain(&lines[last + 1..]);
    kept.copied().collect()
}

fn is_gone(text: &str, entry: &Entry) -> bool {
    let whole = parse(text).ok().flatten();
    let names = entry.path.iter().chain(&entry.key);
    whole.is_some_and(|root| names.clone().try_fold(&root, |value, name| value.get(name)).is_none())
}
