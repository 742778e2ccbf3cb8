//! The files that a session begins with: the repository's own templates, else the built-in ones.

use minijinja::{Environment, Value, context};

use crate::{Error, Result, Slug, brief::TO_BE_WRITTEN, claim::User};

pub(crate) const SESSION: &str = "SESSION.md.j2";
pub(crate) const KB_MERGE: &str = "kb-merge-SESSION.md.j2";
pub(crate) const SESSION_ENV: &str = "session-env.template.j2";

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

/// Returns the built-in template of a name.
fn built_in(name: &str) -> &'static str {
    match name {
        KB_MERGE => include_str!("../templates/kb-merge-SESSION.md.j2"),
        SESSION_ENV => include_str!("../templates/session-env.template.j2"),
        _ => include_str!("../templates/SESSION.md.j2"),
    }
}

fn render(name: &str, own: Option<&str>, values: Value) -> Result<String> {
    let mut environment = Environment::new();
    environment.set_keep_trailing_newline(true);
    let wrong = |error: minijinja::Error| {
        let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
        Error::failed(format!("the template _templates/{name} cannot be used{line}: {error}"))
            .next(format!("git log -1 -- _AGENTS/sessions/_templates/{name}"))
    };
    let source = own.unwrap_or_else(|| built_in(name));
    environment.add_template(name, source).map_err(wrong)?;
    environment.get_template(name).and_then(|template| template.render(values)).map_err(wrong)
}

pub(crate) fn session(slug: &Slug, draft: &Draft, own: Option<&str>) -> Result<String> {
    let criteria: Vec<String> =
        draft.criteria.iter().map(|text| format!("- [ ] {}", one_line(text))).collect();
    let list = |words: &[String]| words.iter().map(|word| one_line(word)).collect::<Vec<_>>();
    let depends: Vec<String> = draft.depends.iter().map(Slug::to_string).collect();
    let values = context! {
        SESSION_SLUG => slug.as_str(),
        TITLE => one_line(&draft.title),
        CONTEXT => draft.context.as_deref().map_or(TO_BE_WRITTEN, str::trim),
        PROBLEM_STATEMENT => TO_BE_WRITTEN,
        ACCEPTANCE_CRITERIA => if criteria.is_empty() { TO_BE_WRITTEN.to_owned() } else { criteria.join("\n") },
        SUBSESSIONS => TO_BE_WRITTEN,
        RISKS => TO_BE_WRITTEN,
        DEPENDENCIES => if depends.is_empty() { "None.".to_owned() } else { bullets(&depends) },
        EDGE_CASES => TO_BE_WRITTEN,
        NOTES => "",
        LABELS => list(&draft.labels),
        DEPENDS => depends,
        PARENT => draft.parent.as_ref().map(Slug::as_str),
    };
    render(SESSION, own, values)
}

pub(crate) fn kb_merge(
    slug: &Slug,
    source: &Slug,
    at: sess_core::Timestamp,
    own: Option<&str>,
) -> Result<String> {
    let values = context! {
        SESSION_SLUG => slug.as_str(),
        TOPIC => slug.topic(),
        SOURCE_SESSION => source.as_str(),
        TIMESTAMP => at.to_string(),
    };
    render(KB_MERGE, own, values)
}

/// Renders `.session-env`: whatever is in a name, sourcing the file runs nothing of it.
pub(crate) fn session_env(slug: &Slug, user: &User, own: Option<&str>) -> Result<String> {
    let values = context! {
        SESSION_SLUG => quoted(slug.as_str()),
        USER_NAME => quoted(&identity_name(user, slug)),
        USER_EMAIL => quoted(&user.email),
    };
    render(SESSION_ENV, own, values)
}

/// The name that a session's commits are made under.
pub fn identity_name(user: &User, slug: &Slug) -> String {
    format!("{} ({slug})", user.name)
}

/// Quotes a word for a shell.
pub fn quoted(text: &str) -> String {
    let printable: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("'{}'", printable.replace('\'', r"'\''"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn bullets(words: &[String]) -> String {
    words.iter().map(|word| format!("- {word}\n")).collect::<String>().trim_end().to_owned()
}
