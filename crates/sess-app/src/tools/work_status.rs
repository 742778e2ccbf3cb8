//! `work_status`: how a work session stands, and how far it went from its plan.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Annotations, Tool, Toolset};
use crate::{App, Caller, Result};

pub(super) struct WorkStatus;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The work session; the one whose workspace you are in when not given.
    #[serde(default)]
    slug: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Standing {
    slug: String,
    state: String,
    /// Lease, branch, changes and gates.
    status: Map<String, Value>,
    /// Criteria, files, sub-sessions, amendments and time, compared with the plan.
    drift: Map<String, Value>,
}

#[async_trait]
impl Tool for WorkStatus {
    const NAME: &'static str = "work_status";
    const TITLE: &'static str = "Work Session Status";
    const DESCRIPTION: &'static str = "Show how a work session stands: its lease, what is changed and not committed, its gates, and the drift \
         from its plan: criteria that are open, files that the plan does not name, files that others change too.";
    const TOOLSET: Toolset = Toolset::Work;
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Args = Args;
    type Output = Standing;

    async fn call(app: &App, caller: &Caller, args: Args, _: Option<String>) -> Result<(String, Standing)> {
        let (slug, status, drift) = app
            .at_work(caller, move |work| {
                let slug = work.meant(args.slug.as_deref())?;
                let (status, drift) = work.status_and_drift(&slug)?;
                Ok((slug, status, drift))
            })
            .await?;
        let drift = object(&drift);
        let state = drift.get("state").and_then(Value::as_str).unwrap_or_default().to_owned();
        let standing = Standing { slug: slug.to_string(), state, status: object(&status), drift };
        let text = serde_json::to_string_pretty(&standing).expect("its keys are strings");
        Ok((text, standing))
    }
}

fn object(answer: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(answer).expect("its keys are strings") {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
