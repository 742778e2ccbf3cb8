//! What is wrong with a configuration, and where.

use std::{fmt, path::PathBuf};

/// The most problems that are told at once.
const TOLD_MAX: usize = 20;

/// Where a part of the configuration came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A file as the person would name it, or a variable of the environment.
    pub name: String,
    /// The directory that relative paths in it begin at.
    pub dir: PathBuf,
}

/// Line and column in an [`Origin`]; a variable of the environment has no lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    pub origin: usize,
    pub line: u64,
    pub column: u64,
}

impl Spot {
    pub fn told(self, origins: &[Origin]) -> String {
        let name = origins.get(self.origin).map_or("configuration", |origin| origin.name.as_str());
        if self.line == 0 { name.to_owned() } else { format!("{name}:{}:{}", self.line, self.column) }
    }
}

/// The way from the top of the configuration to one value in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail(pub Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Key(String),
    Index(usize),
}

impl Trail {
    pub fn key(&self, key: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.to_owned()));
        Self(steps)
    }

    pub fn index(&self, index: usize) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Index(index));
        Self(steps)
    }
}

impl fmt::Display for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if n == 0 => write!(f, "{key}")?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub at: Spot,
    pub text: String,
}

/// Everything that was found wrong, in the order of the files. Never empty.
#[derive(Debug, thiserror::Error)]
#[error("{}", told(.origins, .found))]
pub struct Problems {
    pub origins: Vec<Origin>,
    pub found: Vec<Problem>,
}

fn told(origins: &[Origin], found: &[Problem]) -> String {
    let mut found: Vec<&Problem> = found.iter().collect();
    found.sort_by_key(|problem| (problem.at.origin, problem.at.line, problem.at.column));
    let mut lines: Vec<String> = found
        .iter()
        .take(TOLD_MAX)
        .map(|problem| format!("{}: {}", problem.at.told(origins), problem.text))
        .collect();
    lines.dedup();
    if found.len() > TOLD_MAX {
        lines.push(format!("… and {} more", found.len() - TOLD_MAX));
    }
    lines.join("\n")
}

/// Returns `: did you mean "…"?` with the nearest of the known names, or `: expected …` when none is near.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    // A long list would bury the sentence.
    const LISTED_MAX: usize = 12;
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(written, name), *name))
        .filter(|(distance, name)| *distance <= name.len().max(written.len()) / 3)
        .min_by_key(|(distance, _)| *distance);
    match near {
        Some((_, name)) => format!(": did you mean \"{name}\"?"),
        None if known.is_empty() || known.len() > LISTED_MAX => String::new(),
        None => format!(": expected {}", one_of(&known)),
    }
}

/// Returns `a, b or c`.
pub fn one_of(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_when_one_is_near() {
        let known = ["instruction", "description", "model"];
        assert_eq!(nearest("instrution", known), ": did you mean \"instruction\"?");
        assert_eq!(nearest("modle", known), ": did you mean \"model\"?");
        assert_eq!(nearest("xyz", known), ": expected instruction, description or model");
        assert_eq!(nearest("xyz", []), "");
        assert_eq!(nearest("a", ["b"]), ": expected b");
    }
}
