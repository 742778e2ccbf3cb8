//! The largest source files and functions: where to ask whether there are two ideas.
//!
//! Functions are found by indentation, which the formatter guarantees: one
//! ends at the first line that is a lone brace at the depth of its `fn`.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use crate::files;

/// How many of each are shown unless asked otherwise.
pub(crate) const SHOWN_DEFAULT: usize = 15;

/// Returns the table of the `shown` largest files and functions.
pub(crate) fn report(root: &Path, shown: usize) -> Result<String> {
    let mut sources = Vec::new();
    let mut functions = Vec::new();
    for path in files::below(root, "rs")? {
        let text = files::read(&path)?;
        let place = files::shown(root, &path);
        sources.push((text.lines().count(), place.clone()));
        for function in functions_of(&text) {
            functions.push((function.lines, format!("{place}:{} {}", function.starts_at, function.name)));
        }
    }

    let mut out = String::new();
    for (title, mut rows) in [("files", sources), ("functions", functions)] {
        rows.sort_by(|a, b| b.cmp(a));
        writeln!(out, "{} {title}, the largest (lines):", rows.len())?;
        for (lines, place) in rows.iter().take(shown) {
            writeln!(out, "{lines:>6}  {place}")?;
        }
    }
    Ok(out)
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    starts_at: usize,
    lines: usize,
}

fn functions_of(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let mut functions = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = &line[..line.len() - line.trim_start().len()];
        let closing = format!("{indent}}}");
        // A one-line body or a signature without a body ends where it starts.
        if line.ends_with(['}', ';']) {
            continue;
        }
        if let Some(length) = lines[index..].iter().position(|line| **line == closing) {
            functions.push(Function { name, starts_at: index + 1, lines: length + 1 });
        }
    }
    functions
}

/// Returns the name of the function whose signature starts on this line.
fn function_name(line: &str) -> Option<String> {
    const QUALIFIERS: &[&str] = &["const", "async", "unsafe", "extern", "\"C\""];
    let mut words = line
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub") || word.ends_with(')') || QUALIFIERS.contains(word));
    if words.next()? != "fn" {
        return None;
    }
    let name = words.next()?;
    Some(name.split(['(', '<']).next().unwrap_or(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions are written `name start+lines`.
    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> = functions_of(text)
            .iter()
            .map(|function| format!("{} {}+{}", function.name, function.starts_at, function.lines))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn functions_are_measured_from_signature_to_closing_brace() {
        check("fn a() {\n    x();\n}\n", &["a 1+3"]);
        check("pub(crate) async fn b<T>(\n    t: T,\n) {\n    x();\n}\n", &["b 1+5"]);
        check("pub(in crate::x) const fn c() {\n}\n", &["c 1+2"]);
        check("impl X {\n    fn d(&self) {\n        x();\n    }\n}\n", &["d 2+3"]);
    }

    #[test]
    fn what_has_no_body_of_its_own_is_not_counted() {
        check("trait X {\n    fn a(&self);\n    fn b(&self) {}\n}\n", &[]);
        check("// fn in a comment {\n}\n", &[]);
        check("let x = fn_like(1);\n", &[]);
    }
}
