//! `list_sessions`: finds earlier sessions.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};
use sess_core::Source;

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, ListSessions, Listing, Result, Scope};

pub(super) struct ListSessionsTool;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// How many sessions to return: 20 when not given, 100 at most.
    #[serde(default, deserialize_with = "super::whole_number")]
    limit: Option<i64>,
    /// "repo" for sessions of the repository you work in, "all" for every session (the default).
    #[serde(default)]
    scope: Option<ScopeArg>,
    /// Only sessions of this kind of agent: native, claude, codex, gemini, opencode, goose, docker-agent,
    /// openclaw, cursor, zed, crush, amp.
    #[serde(default, deserialize_with = "source")]
    #[schemars(with = "Option<String>")]
    source: Option<Source>,
    /// Only sessions whose title contains this.
    #[serde(default)]
    query: Option<String>,
    /// Also sessions that were archived.
    #[serde(default)]
    include_archived: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScopeArg {
    Repo,
    All,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Repo => Self::Repo,
            ScopeArg::All => Self::All,
        }
    }
}

pub(super) fn source<'de, D: Deserializer<'de>>(input: D) -> std::result::Result<Option<Source>, D::Error> {
    let name = Option::<String>::deserialize(input)?;
    name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
}

#[async_trait]
impl Tool for ListSessionsTool {
    const NAME: &'static str = "list_sessions";
    const TITLE: &'static str = "List Sessions";
    const DESCRIPTION: &'static str = "List previous sessions, most recent first, with id, title, creation time and message count. The \
         current session is never listed. Read one with read_session.";
    const TOOLSET: Toolset = Toolset::SessionContext;
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Args = Args;
    type Output = Listing;

    async fn call(app: &App, caller: &Caller, args: Args, _: Option<String>) -> Result<(String, Listing)> {
        let ask = ListSessions {
            limit: args.limit,
            scope: args.scope.map_or(Scope::All, Into::into),
            source: args.source,
            query: args.query,
            include_archived: args.include_archived.unwrap_or(false),
        };
        let listing = app.list_sessions(caller, &ask).await?;
        let text = serde_json::to_string(&listing.sessions).expect("a listing has string keys only");
        Ok((text, listing))
    }
}
