//! `work_note`: writes something down while the work goes on.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Annotations, Tool, Toolset, with_notices};
use crate::{App, Caller, Error, Result};

pub(super) struct WorkNote;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Args {
    /// Where it belongs.
    #[schemars(with = "NoteKind", required)] // and not `default`, which would make it optional
    kind: Option<NoteKind>,
    /// What to write down. For kind plan, "[x] …" says that it is done: an acceptance criterion in the same words
    /// counts as met then.
    #[schemars(with = "String", required)]
    text: Option<String>,
    /// The work session; the one whose workspace you are in when not given.
    #[serde(default)]
    slug: Option<String>,
    /// For kind sub: also draft it as a work session of its own.
    #[serde(default)]
    draft: Option<bool>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum NoteKind {
    /// What was done and decided.
    Log,
    /// What is to be done next.
    Plan,
    /// What turned out to be work of its own.
    Sub,
    /// What others should know.
    Learning,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Noted {
    slug: String,
    state: String,
    /// The work session that was drafted.
    #[serde(skip_serializing_if = "Option::is_none")]
    drafted: Option<String>,
    notices: Vec<String>,
}

#[async_trait]
impl Tool for WorkNote {
    const NAME: &'static str = "work_note";
    const TITLE: &'static str = "Note In Work Session";
    const DESCRIPTION: &'static str = "Write something down in a work session that is yours: progress (log), next steps (plan), work that should \
         be done separately (sub), or what others should know (learning). It also renews your lease.";
    const TOOLSET: Toolset = Toolset::Work;
    const ANNOTATIONS: Annotations = Annotations::ACTS;
    type Args = Args;
    type Output = Noted;

    async fn call(app: &App, caller: &Caller, args: Args, _: Option<String>) -> Result<(String, Noted)> {
        let none = || Error::Invalid("kind must be log, plan, sub or learning".to_owned());
        let kind = args.kind.ok_or_else(none)?;
        let text = args.text.unwrap_or_default();
        let noted = app
            .at_work(caller, move |work| {
                let slug = work.meant(args.slug.as_deref())?;
                let note = match kind {
                    NoteKind::Log => sess_work::Note::Log,
                    NoteKind::Plan => sess_work::Note::Plan,
                    NoteKind::Sub => sess_work::Note::Sub,
                    NoteKind::Learning => sess_work::Note::Learning,
                };
                let (drafted, notices) = match note {
                    sess_work::Note::Sub => work.sub(&slug, &text, args.draft.unwrap_or(false))?,
                    note => (None, work.note(&slug, note, &text)?),
                };
                Ok(Noted {
                    slug: slug.to_string(),
                    state: sess_work::State::Active.to_string(),
                    drafted: drafted.map(|drafted| drafted.to_string()),
                    notices,
                })
            })
            .await?;
        let drafted =
            noted.drafted.as_ref().map(|slug| format!(", and drafted as {slug}")).unwrap_or_default();
        let told = format!("Written down in {}{drafted}.", noted.slug);
        Ok((with_notices(told, &noted.notices), noted))
    }
}
