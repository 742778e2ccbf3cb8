//! What SESSION.md says: the front matter for the program, and the sections for whoever does the work.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Error, Result, Slug};

/// What a session's plan says, as far as the program has to know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Brief {
    pub title: String,
    pub kind: WorkKind,
    pub parent: Option<Slug>,
    pub depends: Vec<Slug>,
    /// Globs of the files that it means to change.
    pub touches: Vec<String>,
    pub labels: Vec<String>,
    /// Names of checks that have to pass. What they run, the user's own configuration says.
    pub gates: Vec<String>,
    /// How long it should take, in minutes.
    pub estimate_minutes: Option<u64>,
    pub context: String,
    pub criteria: Vec<Criterion>,
    /// Everything below the front matter.
    pub body: String,
}

/// What a session is for: only one kind may change the knowledge base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKind {
    #[default]
    Standard,
    KbMerge,
}

/// One line of the acceptance criteria.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Criterion {
    pub text: String,
    pub done: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FrontMatter {
    title: Option<String>,
    kind: WorkKind,
    parent: Option<String>,
    depends: Many,
    touches: Many,
    labels: Many,
    gates: Many,
    estimate: Option<String>,
}

/// One word, or a list of them.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Many {
    #[default]
    None,
    One(String),
    All(Vec<String>),
}

impl Many {
    fn words(self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            // `a, b` as people write it.
            Self::One(text) => {
                text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
            }
            Self::All(words) => words,
        }
    }
}

const FENCE: &str = "---";
const CONTEXT: &str = "context";
const CRITERIA: &str = "acceptance criteria";
/// How an empty section is written, so that nobody takes it for an answer.
pub(crate) const TO_BE_WRITTEN: &str = "_To be written._";

impl Brief {
    /// Reads the SESSION.md of a session that can be edited.
    pub(crate) fn of(slug: &Slug, text: &str) -> Result<Self> {
        Self::parse(text).map_err(|error| error.next(format!("sess work edit {slug}")))
    }

    /// Reads a SESSION.md, with any line endings.
    pub fn parse(text: &str) -> Result<Self> {
        let text = plain(text);
        let (front, body) = split(&text);
        let front: FrontMatter = match front {
            None => FrontMatter::default(),
            Some(yaml) if yaml.trim().is_empty() => FrontMatter::default(),
            Some(yaml) => serde_saphyr::from_str(yaml).map_err(|error| {
                let line = || error.to_string().lines().next().unwrap_or_default().to_owned();
                let what = wrong_field(yaml).unwrap_or_else(line);
                Error::usage(format!("the front matter of SESSION.md cannot be read: {what}"))
                    .next("sess work edit <slug>")
            })?,
        };
        let heading = body.lines().find_map(|line| line.strip_prefix("# ")).map(str::trim);
        let slug = |text: String| {
            text.parse::<Slug>().map_err(|error| {
                Error::usage(format!("SESSION.md names another session: {error}"))
                    .next("sess work edit <slug>")
            })
        };
        Ok(Self {
            title: front.title.or_else(|| heading.map(title_of)).unwrap_or_default(),
            kind: front.kind,
            parent: front.parent.map(slug).transpose()?,
            depends: front.depends.words().into_iter().map(slug).collect::<Result<_>>()?,
            touches: front.touches.words(),
            labels: front.labels.words(),
            gates: front.gates.words(),
            estimate_minutes: front.estimate.as_deref().map(minutes).transpose()?,
            context: section(body, CONTEXT).unwrap_or_default(),
            criteria: section(body, CRITERIA).map(|text| criteria(&text)).unwrap_or_default(),
            body: body.to_owned(),
        })
    }

    /// Returns a text with what it lacks of this plan, whatever its template left out: in the front matter what the
    /// program has to know, and the sections that a plan is ready with.
    pub(crate) fn filled_in(&self, text: &str) -> Result<String> {
        let found = Self::parse(text)?;
        let mut lacking: Vec<(&str, String)> = Vec::new();
        if !self.title.is_empty() && found.title != self.title {
            lacking.push(("title", json!(self.title).to_string()));
        }
        if self.kind != WorkKind::default() && found.kind != self.kind {
            lacking.push(("kind", json!(self.kind).to_string()));
        }
        if let Some(parent) = self.parent.as_ref().filter(|_| found.parent != self.parent) {
            lacking.push(("parent", parent.to_string()));
        }
        lacking.extend(joined(found.depends, &self.depends).map(|all| ("depends", json!(all).to_string())));
        lacking.extend(joined(found.labels, &self.labels).map(|all| ("labels", json!(all).to_string())));
        let has_context = self.context.is_empty() || !found.context.is_empty();
        let has_criteria = self.criteria.is_empty() || !found.criteria.is_empty();
        if lacking.is_empty() && has_context && has_criteria {
            return Ok(text.to_owned());
        }
        let text = plain(text);
        let (front, body) = split(&text);
        let mut front = front.unwrap_or_default().to_owned();
        for (key, value) in lacking {
            front = format!("{}{key}: {value}\n", without_key(&front, key));
        }
        let mut body = body.to_owned();
        if !has_context {
            body = with_section(&body, "Context", &self.context);
        }
        if !has_criteria {
            let boxes: Vec<String> =
                self.criteria.iter().map(|criterion| format!("- [ ] {}", criterion.text)).collect();
            body = with_section(&body, "Acceptance Criteria", &boxes.join("\n"));
        }
        let text = if front.is_empty() { body } else { format!("{FENCE}\n{front}{FENCE}\n{body}") };
        // A front matter may be written so that no line can be added to it.
        Self::parse(&text)?;
        Ok(text)
    }

    /// Whether a session with this plan may change the knowledge base: it has to be named for that, and of the kind.
    pub(crate) fn may_change_knowledge(&self, slug: &Slug) -> bool {
        slug.is_kb() && self.kind == WorkKind::KbMerge
    }

    /// Fails when a plan cannot be that of a session: it waits for itself, which would never be over, or is not of the
    /// kind that the session is named for.
    pub(crate) fn check_fits(&self, slug: &Slug) -> Result<()> {
        let next = format!("sess work edit {slug}");
        if self.depends.contains(slug) {
            let what = format!("{slug} depends on itself: `depends` names other sessions");
            return Err(Error::usage(what).next(next));
        }
        if self.kind == WorkKind::KbMerge && !self.may_change_knowledge(slug) {
            return Err(Error::policy(format!(
                "the plan of {slug} is of kind kb-merge, which only those called kb-YYYY-MM-DD-merge-topic are: make it `kind: standard`"
            ))
            .next(next));
        }
        if slug.is_kb() && self.kind != WorkKind::KbMerge {
            return Err(Error::policy(format!(
                "{slug} is named for a session that merges the knowledge base, and its plan is not of that kind: make it `kind: kb-merge`"
            ))
            .next(next));
        }
        Ok(())
    }

    /// Says what is missing before somebody can take it.
    pub fn check_ready(&self, slug: &Slug) -> Result<()> {
        self.check_fits(slug)?;
        let refuse = |what: &str| {
            Err(Error::wrong_state(format!("{slug} is not ready: {what}"))
                .next(format!("sess work edit {slug}")))
        };
        let (context, criteria) =
            ("no text under ## Context", "no checkbox (- [ ] …) under ## Acceptance Criteria");
        match (self.context.trim().is_empty(), self.criteria.is_empty()) {
            (false, false) => Ok(()),
            (true, false) => refuse(&format!("SESSION.md has {context}")),
            (false, true) => refuse(&format!("SESSION.md has {criteria}")),
            (true, true) => refuse(&format!("SESSION.md has {context}, and {criteria}")),
        }
    }
}

/// Says which field of a front matter is none of ours, and what it may be.
fn wrong_field(yaml: &str) -> Option<String> {
    let is_text = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
    let Ok(Value::Object(fields)) = serde_saphyr::from_str::<Value>(yaml) else { return None };
    for (name, value) in &fields {
        let (is_right, expected) = match name.as_str() {
            "title" | "parent" | "estimate" => (is_text(value) || value.is_null(), "one text"),
            "kind" => (matches!(value.as_str(), Some("standard" | "kb-merge")), "standard or kb-merge"),
            "depends" | "touches" | "labels" | "gates" => {
                let is_list = value.as_array().is_some_and(|words| words.iter().all(Value::is_string));
                let expected = "one word or a list of words, such as [a, b], numbers in quotes";
                (is_list || value.is_string() || value.is_null(), expected)
            }
            _ => continue,
        };
        if !is_right {
            return Some(format!("{name} may be {expected}"));
        }
    }
    None
}

/// Returns a text without the mark that some editors begin it with, and with one kind of line endings.
fn plain(text: &str) -> String {
    plain_ended(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Returns a text whose lines end as they are kept, whatever a checkout or an editor made of them.
pub(crate) fn plain_ended(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Returns all of both lists when the first lacks something of the second.
fn joined<T: Clone + PartialEq>(mut known: Vec<T>, wanted: &[T]) -> Option<Vec<T>> {
    let new: Vec<T> = wanted.iter().filter(|one| !known.contains(one)).cloned().collect();
    let has_new = !new.is_empty();
    known.extend(new);
    has_new.then_some(known)
}

/// Returns a front matter without what it says about one thing, which may go on in the lines below it.
fn without_key(front: &str, key: &str) -> String {
    let mut is_inside = false;
    let kept = front.split_inclusive('\n').filter(|line| {
        let goes_on = is_inside && line.starts_with([' ', '\t', '-', ']', '\n']);
        is_inside = goes_on || line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'));
        !is_inside
    });
    kept.collect()
}

/// Puts a text under the heading that it belongs to; at the end when there is none.
fn with_section(body: &str, heading: &str, text: &str) -> String {
    let is_heading =
        |line: &str| line.strip_prefix("## ").is_some_and(|found| found.trim().eq_ignore_ascii_case(heading));
    match body.lines().position(is_heading) {
        Some(at) => {
            let lines: Vec<&str> = body.lines().collect();
            let (before, after) = lines.split_at(at + 1);
            format!("{}\n\n{text}\n{}\n", before.join("\n"), after.join("\n"))
        }
        None => format!("{}\n\n## {heading}\n\n{text}\n", body.trim_end()),
    }
}

/// Separates the front matter from the rest.
fn split(text: &str) -> (Option<&str>, &str) {
    let Some(rest) = text.strip_prefix(FENCE).and_then(|rest| rest.strip_prefix('\n')) else {
        return (None, text);
    };
    let end = rest.match_indices(FENCE).map(|(at, _)| at).find(|at| {
        let starts = *at == 0 || rest[..*at].ends_with('\n');
        let ends = rest[at + FENCE.len()..].is_empty() || rest[at + FENCE.len()..].starts_with('\n');
        starts && ends
    });
    match end {
        Some(end) => (Some(&rest[..end]), rest[end + FENCE.len()..].trim_start_matches('\n')),
        None => (None, text),
    }
}

/// `Session: Add user login` is titled as it says.
fn title_of(heading: &str) -> String {
    heading.strip_prefix("Session:").map_or(heading, str::trim).to_owned()
}

/// Whether a line begins or ends a block of code, in which nothing is a heading.
fn is_code_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

/// Returns what of a text would not stay inside the section that it is put into, if something would not.
pub(crate) fn breaking(text: &str) -> Option<String> {
    let mut is_code = false;
    for line in text.lines() {
        if is_code_fence(line) {
            is_code = !is_code;
        }
        if !is_code && (line.starts_with("# ") || line.starts_with("## ")) {
            return Some(format!("the heading {:?}", line.trim_end()));
        }
    }
    if is_code {
        return Some("a code block that does not end".to_owned());
    }
    let is_open = text.rsplit_once("<!--").is_some_and(|(_, comment)| !comment.contains("-->"));
    is_open.then(|| "a comment that does not end".to_owned())
}

/// Returns the text under a heading of the second level, without comments and placeholders.
fn section(body: &str, name: &str) -> Option<String> {
    let mut found = None;
    let mut is_code = false;
    for line in body.lines() {
        if is_code_fence(line) {
            is_code = !is_code;
        }
        match line.strip_prefix("## ").filter(|_| !is_code) {
            Some(heading) if found.is_none() && heading.trim().eq_ignore_ascii_case(name) => {
                found = Some(String::new());
            }
            Some(_) if found.is_some() => break,
            _ => {
                if let Some(text) = &mut found {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
    }
    let text = without_comments(&found?).replace(TO_BE_WRITTEN, "");
    Some(text.trim().to_owned())
}

fn without_comments(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("<!--") {
        kept.push_str(before);
        rest = after.split_once("-->").map_or("", |(_, after)| after);
    }
    kept + rest
}

/// Returns the checkboxes of a list.
pub(crate) fn criteria(text: &str) -> Vec<Criterion> {
    text.lines()
        .filter_map(|line| {
            let item = line.trim_start().strip_prefix(['-', '*', '+'])?.trim_start().strip_prefix('[')?;
            let (mark, text) = item.split_once(']')?;
            let done = match mark {
                " " | "" => false,
                "x" | "X" => true,
                _ => return None,
            };
            let text = text.trim();
            (!text.is_empty()).then(|| Criterion { text: text.to_owned(), done })
        })
        .collect()
}

/// Reads `90m`, `4h` or `2d`.
fn minutes(text: &str) -> Result<u64> {
    let wrong = || {
        Error::usage(format!("estimate: {text:?} in SESSION.md: expected a number and m, h or d, such as 4h"))
            .next("sess work edit <slug>")
    };
    let text = text.trim();
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| !c.is_ascii_digit()).len());
    let unit = match unit.trim() {
        "m" | "min" => 1,
        "h" => 60,
        "d" => 24 * 60,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "---\ndepends: [2025-10-13-schema]\ntouches: src/auth/**, docs/\nlabels:\n  - rust\ngates: [test]\nestimate: 4h\n---\n# Session: Add user login\n\n## Context\n\n<!-- why -->\nPeople cannot log in.\n\n## Acceptance Criteria\n\n- [ ] A person can log in\n- [x] Tests exist\n* [ ] And *this*\n- no box\n\n## Risks\n\n- [ ] not a criterion\n";

    #[test]
    fn a_plan_is_read() {
        for text in [PLAN.to_owned(), PLAN.replace('\n', "\r\n"), format!("\u{feff}{PLAN}")] {
            let brief = Brief::parse(&text).expect("a plan");
            assert_eq!(brief.title, "Add user login");
            assert_eq!(brief.depends, ["2025-10-13-schema".parse().expect("a slug")]);
            assert_eq!(brief.touches, ["src/auth/**", "docs/"]);
            assert_eq!(brief.labels, ["rust"]);
            assert_eq!(brief.gates, ["test"]);
            assert_eq!(brief.estimate_minutes, Some(240));
            assert_eq!(brief.context, "People cannot log in.");
            let criteria: Vec<(&str, bool)> =
                brief.criteria.iter().map(|criterion| (criterion.text.as_str(), criterion.done)).collect();
            assert_eq!(
                criteria,
                [("A person can log in", false), ("Tests exist", true), ("And *this*", false)]
            );
        }
    }

    #[test]
    fn a_plan_without_front_matter_is_one() {
        let brief = Brief::parse("# X\n\n## Context\n\nc\n\n---\n\nmore\n").expect("a plan");
        assert_eq!(brief.title, "X");
        assert_eq!(brief.context, "c\n\n---\n\nmore");
        assert_eq!(brief.kind, WorkKind::Standard);
    }

    #[test]
    fn what_is_missing_is_named() {
        let slug: Slug = "2025-10-14-x".parse().expect("a slug");
        let check = |text: &str, missing: &str| {
            let error = Brief::parse(text).expect("a plan").check_ready(&slug).expect_err(text).to_string();
            assert!(error.contains(missing), "{error}");
        };
        check("# X\n", "## Context");
        check("# X\n## Context\n_To be written._\n## Acceptance Criteria\n- [ ] a\n", "## Context");
        check("# X\n## Context\nc\n## Acceptance Criteria\n<!-- - [ ] a -->\n", "## Acceptance Criteria");
        check("# X\n## Context\nc\n```\n## Acceptance Criteria\n- [ ] a\n```\n", "## Acceptance Criteria");
    }

    #[test]
    fn what_a_template_leaves_out_is_filled_in() {
        let wanted = Brief {
            title: "Say \"a & b\"".to_owned(),
            kind: WorkKind::KbMerge,
            parent: Some("2025-10-14-x".parse().expect("a slug")),
            depends: vec!["2025-10-13-y".parse().expect("a slug")],
            labels: vec!["rust".to_owned(), "a: b".to_owned()],
            context: "Because.".to_owned(),
            criteria: vec![Criterion { text: "It works".to_owned(), done: false }],
            ..Brief::default()
        };
        for template in [
            "",
            "# Session: other\n",
            "---\n---\n# Session: other\n",
            "---\nestimate: 4h\nlabels:\n- web\n- rust\ntitle : other\nkind: standard\n---\n## context\n\n## Risks\n",
            "---\r\nlabels: [\r\n  web,\r\n]\r\ndepends: 2025-10-12-z\r\n---\r\n# Other\r\n\r\n## Acceptance Criteria\r\n",
        ] {
            let text = wanted.filled_in(template).expect(template);
            let found = Brief::parse(&text).expect(&text);
            assert_eq!((&found.title, found.kind), (&wanted.title, wanted.kind), "{text}");
            assert_eq!((&found.parent, &found.context), (&wanted.parent, &wanted.context), "{text}");
            assert_eq!(found.criteria, wanted.criteria, "{text}");
            assert!(wanted.labels.iter().all(|label| found.labels.contains(label)), "{text}");
            assert!(wanted.depends.iter().all(|slug| found.depends.contains(slug)), "{text}");
            assert_eq!(found.labels.contains(&"web".to_owned()), template.contains("web"), "{text}");
            assert_eq!(found.depends.len(), if template.contains("-z") { 2 } else { 1 }, "{text}");
            assert_eq!(found.estimate_minutes.is_some(), template.contains("estimate"), "{text}");
            // What has everything stays as it is.
            assert_eq!(wanted.filled_in(&text).expect("a plan"), text);
        }
        wanted.filled_in("---\n{estimate: 4h}\n---\n").expect_err("no line can be added to it");
    }

    #[test]
    fn a_front_matter_that_cannot_be_read_says_so() {
        for wrong in [
            "---\ndepends: [\n---\n",
            "---\nkind: other\n---\n",
            "---\ndepends: [../x]\n---\n",
            "---\nestimate: soon\n---\n",
        ] {
            let error = Brief::parse(wrong).expect_err(wrong);
            assert_eq!(error.kind, crate::Kind::Usage, "{error}");
        }
        for (wrong, words) in [
            ("depends: {a: b}", "depends may be one word or a list of words"),
            ("labels: [[a]]", "labels may be one word or a list of words"),
            ("title: [a, b]", "title may be one text"),
            ("kind: other", "kind may be standard or kb-merge"),
            ("kind: [a]", "kind may be standard or kb-merge"),
        ] {
            let told = Brief::parse(&format!("---\n{wrong}\n---\n")).expect_err(wrong).to_string();
            assert!(told.contains(words), "{told}");
        }
    }
}
