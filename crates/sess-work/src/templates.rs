//! The files that a session begins with: the repository's own templates, else the built-in ones.

use std::{fmt, io, sync::Arc};

use minijinja::{
    Environment, Value, context,
    value::{Enumerator, Object, ObjectRepr},
};

use crate::{Brief, Criterion, Error, Result, Slug, WorkKind, brief::TO_BE_WRITTEN, claim::User};

pub(crate) const SESSION: &str = "SESSION.md.j2";
pub(crate) const KB_MERGE: &str = "kb-merge-SESSION.md.j2";
pub(crate) const SESSION_ENV: &str = "session-env.template.j2";

/// How many steps a template may take: anybody can push one, and it shall not hold up a verb.
const STEPS_MAX: u64 = 1_000_000;
/// How long the text may be that a template makes.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// What somebody wants done.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub title: String,
    pub context: Option<String>,
    pub criteria: Vec<String>,
    pub labels: Vec<String>,
    pub depends: Vec<Slug>,
    pub parent: Option<Slug>,
}

/// Some lines that a template prints as a Markdown list, or goes through one by one as it likes.
#[derive(Debug)]
struct Listed {
    lines: Vec<String>,
    /// What each line of the list begins with.
    mark: &'static str,
    /// What is printed when there are none.
    nothing: &'static str,
}

impl Object for Listed {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.lines.get(key.as_usize()?).map(Value::from)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.lines.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return f.write_str(self.nothing);
        }
        for (n, line) in self.lines.iter().enumerate() {
            let end = if n == 0 { "" } else { "\n" };
            write!(f, "{end}{}{line}", self.mark)?;
        }
        Ok(())
    }
}

/// Returns the built-in template of a name.
fn built_in(name: &str) -> &'static str {
    match name {
        KB_MERGE => include_str!("../templates/kb-merge-SESSION.md.j2"),
        SESSION_ENV => include_str!("../templates/session-env.template.j2"),
        _ => include_str!("../templates/SESSION.md.j2"),
    }
}

fn render(name: &str, own: Option<&[u8]>, values: Value) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_keep_trailing_newline(true);
    environment.set_fuel(Some(STEPS_MAX));
    // The usual one writes `&` and others as a page of the web needs them.
    environment.add_filter("tojson", |value: Value| {
        serde_json::to_string(&value)
            .map_err(|error| minijinja::Error::new(minijinja::ErrorKind::BadSerialization, error.to_string()))
    });
    let wrong = |error: minijinja::Error| {
        let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
        match error.kind() {
            minijinja::ErrorKind::OutOfFuel => {
                unusable(name, &format!("{line}: it takes more than {STEPS_MAX} steps"))
            }
            minijinja::ErrorKind::WriteFailure => {
                unusable(name, &format!(": its text has more than {TEXT_BYTES_MAX} bytes"))
            }
            _ => unusable(name, &format!("{line}: {error}")),
        }
    };
    let source = match own {
        None => built_in(name),
        // One in UTF-16 without its mark is UTF-8 with zeros in it.
        Some(own) => std::str::from_utf8(own)
            .ok()
            .filter(|text| !text.contains('\0'))
            .ok_or_else(|| unusable(name, ": it is not UTF-8 text"))?,
    };
    environment.add_template(name, source).map_err(wrong)?;
    let mut text = Bounded(Vec::new());
    environment
        .get_template(name)
        .and_then(|template| template.render_captured_to(values, &mut text).map(drop))
        .map_err(wrong)?;
    String::from_utf8(text.0).map_err(|error| unusable(name, &format!(": {error}")))
}

/// A text that does not grow for ever.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > TEXT_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn unusable(name: &str, why: &str) -> Error {
    Error::failed(format!("the template _templates/{name} cannot be used{why}"))
        .next(format!("git log -1 -- _AGENTS/sessions/_templates/{name}"))
}

/// Renders a plan that says what it was asked for, whatever the template has a place for.
fn plan(name: &str, own: Option<&[u8]>, values: Value, asked_for: &Brief) -> Result<String> {
    let text = render(name, own, values)?;
    asked_for
        .filled_in(&text)
        .map_err(|error| unusable(name, &format!(": it makes a plan in which {}", error.message())))
}

pub(crate) fn session(slug: &Slug, draft: &Draft, own: Option<&[u8]>) -> Result<String> {
    let criterion = |text: &String| Criterion { text: one_line(text), done: false };
    // By that name it is for nothing else.
    let kind = if slug.is_kb() { WorkKind::KbMerge } else { WorkKind::Standard };
    let asked_for = Brief {
        title: one_line(&draft.title),
        kind,
        parent: draft.parent.clone(),
        depends: draft.depends.clone(),
        labels: draft.labels.iter().map(|word| one_line(word)).collect(),
        context: draft.context.as_deref().unwrap_or_default().trim().to_owned(),
        criteria: draft
            .criteria
            .iter()
            .map(criterion)
            .filter(|criterion| !criterion.text.is_empty())
            .collect(),
        ..Brief::default()
    };
    let criteria: Vec<String> = asked_for.criteria.iter().map(|criterion| criterion.text.clone()).collect();
    let depends: Vec<String> = draft.depends.iter().map(Slug::to_string).collect();
    let criteria = Listed { lines: criteria, mark: "- [ ] ", nothing: TO_BE_WRITTEN };
    let dependencies = Listed { lines: depends.clone(), mark: "- ", nothing: "None." };
    let values = context! {
        SESSION_SLUG => slug.as_str(),
        TITLE => asked_for.title,
        CONTEXT => draft.context.as_deref().map_or(TO_BE_WRITTEN, str::trim),
        PROBLEM_STATEMENT => TO_BE_WRITTEN,
        ACCEPTANCE_CRITERIA => Value::from_object(criteria),
        SUBSESSIONS => TO_BE_WRITTEN,
        RISKS => TO_BE_WRITTEN,
        DEPENDENCIES => Value::from_object(dependencies),
        EDGE_CASES => TO_BE_WRITTEN,
        NOTES => "",
        LABELS => asked_for.labels,
        DEPENDS => depends,
        PARENT => draft.parent.as_ref().map(Slug::as_str),
    };
    plan(SESSION, own, values, &asked_for)
}

pub(crate) fn kb_merge(
    slug: &Slug,
    source: &Slug,
    at: sess_core::Timestamp,
    own: Option<&[u8]>,
) -> Result<String> {
    let values = context! {
        SESSION_SLUG => slug.as_str(),
        TOPIC => slug.topic(),
        SOURCE_SESSION => source.as_str(),
        TIMESTAMP => at.to_string(),
    };
    // Whoever takes it needs a context and criteria, which a template of one's own may lack.
    let usual = Brief::parse(&render(KB_MERGE, None, values.clone())?)?;
    let asked_for = Brief {
        kind: WorkKind::KbMerge,
        parent: Some(source.clone()),
        context: usual.context,
        criteria: usual.criteria,
        ..Brief::default()
    };
    plan(KB_MERGE, own, values, &asked_for)
}

/// Renders `.session-env`: whatever is in a name, sourcing the file runs nothing of it.
pub(crate) fn session_env(slug: &Slug, user: &User, own: Option<&[u8]>) -> Result<String> {
    let values = context! {
        SESSION_SLUG => quoted(slug.as_str()),
        USER_NAME => quoted(identity_name(user, slug)),
        USER_EMAIL => quoted(&user.email),
    };
    render(SESSION_ENV, own, values)
}

/// The name that a session's commits are made under.
pub fn identity_name(user: &User, slug: &Slug) -> String {
    format!("{} ({slug})", user.name)
}

/// Writes a word so that a shell takes it for one, whatever is in it; one that needs no quotes gets none.
pub fn quoted(word: impl fmt::Display) -> String {
    let printable: String = word.to_string().chars().filter(|c| !c.is_control()).collect();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@%+=".contains(c);
    if !printable.is_empty() && printable.chars().all(is_plain) {
        return printable;
    }
    format!("'{}'", printable.replace('\'', r"'\''"))
}

/// Returns a text for the middle of a line, whatever is in it.
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
