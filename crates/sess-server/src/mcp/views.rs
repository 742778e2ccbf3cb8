//! Resources and the prompt: what tools return, for people and hosts to attach.
//!
//! Each view stands on a tool and is offered only with it, so a filter on tools
//! is a filter on everything. `session://current` stands on no tool.

use rmcp::RoleServer;
use rmcp::model::{
    ErrorData, GetPromptResult, Prompt, PromptMessage, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate, Role,
};
use rmcp::service::RequestContext;
use serde_json::json;

use super::offer::Offer;
use super::{Door, wire};

pub(super) const READ_PLAN: &str = "read_session_plan";
pub(super) const READ_SESSION: &str = "read_session";

const PLAN_URI: &str = "plan://current";
const SESSION_URI: &str = "session://current";
const SESSION_SCHEME: &str = "session://";
const REVIEW_PLAN: &str = "review-plan";

const MARKDOWN: &str = "text/markdown";

/// Returns the resources that have a fixed address, the one that always exists
/// first.
pub(super) fn resources(offer: &Offer) -> Vec<Resource> {
    let plan = Resource::new(PLAN_URI, "plan")
        .with_title("Current plan")
        .with_description("The plan of the calling session, as Markdown")
        .with_mime_type(MARKDOWN);
    let session = Resource::new(SESSION_URI, "session")
        .with_title("Current session")
        .with_description("Which session is calling, and how that is known")
        .with_mime_type("application/json");
    [session].into_iter().chain(offer.has(READ_PLAN).then_some(plan)).collect()
}

/// Returns the resources that are addressed by an id.
pub(super) fn resource_templates(offer: &Offer) -> Vec<ResourceTemplate> {
    let session = ResourceTemplate::new("session://{id}", "transcript")
        .with_title("Session transcript")
        .with_description("An earlier session as a Markdown transcript, by id or by -1, -2, …")
        .with_mime_type(MARKDOWN);
    offer.has(READ_SESSION).then_some(session).into_iter().collect()
}

/// Returns the prompts.
pub(super) fn prompts(offer: &Offer) -> Vec<Prompt> {
    let review = Prompt::new(REVIEW_PLAN, Some("Review the current plan of this session"), None)
        .with_title("Review plan");
    offer.has(READ_PLAN).then_some(review).into_iter().collect()
}

impl Door {
    /// Returns what is at `uri`, or the protocol's "resource not found" with a
    /// sentence that says why.
    pub(super) async fn resource(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let not_found =
            |why: String| ErrorData::resource_not_found(why, Some(json!({ "uri": wire::clip(uri) })));
        if uri == SESSION_URI {
            let whoami = self.app.whoami(&self.caller(context)).await;
            let whoami = serde_json::to_string_pretty(&whoami).expect("an identity has string keys only");
            let text = ResourceContents::text(whoami, uri);
            return Ok(ReadResourceResult::new(vec![text.with_mime_type("application/json")]));
        }
        let answer = if uri == PLAN_URI {
            self.call(context, READ_PLAN, json!({})).await?
        } else if let Some(id) = uri.strip_prefix(SESSION_SCHEME).and_then(percent_decode) {
            self.call(context, READ_SESSION, json!({ "session_id": id })).await?
        } else {
            None
        };
        match answer {
            Some(answer) if answer.is_error => Err(not_found(answer.text)),
            Some(answer) => {
                let text = ResourceContents::text(answer.text, uri).with_mime_type(MARKDOWN);
                Ok(ReadResourceResult::new(vec![text]))
            }
            None => Err(not_found(format!("unknown resource {:?}", wire::clip(uri)))),
        }
    }

    /// Returns the prompt `name`, filled in.
    pub(super) async fn prompt(
        &self,
        name: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResult, ErrorData> {
        let answer = match name {
            REVIEW_PLAN => self.call(context, READ_PLAN, json!({})).await?,
            _ => None,
        };
        let Some(plan) = answer else {
            let sentence = format!("unknown prompt {:?}", wire::clip(name));
            return Err(ErrorData::invalid_params(sentence, None));
        };
        let text = if plan.is_error {
            format!("There is no plan to review: {}.", plan.text)
        } else {
            format!(
                "Review the plan below before it is carried out. Say what is missing, what is \
                 risky, what is in the wrong order, and what could be left out; name the step you \
                 mean. If it is sound, say so in one sentence. Change nothing yet.\n\n\
                 <plan>\n{}\n</plan>",
                plan.text
            )
        };
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)])
            .with_description("Review the current plan of this session"))
    }
}

/// Returns `text` with `%XX` replaced, or `None` if that leaves no UTF-8.
///
/// Clients encode what they put into the template: `:` in an id may come as
/// `%3A`. A `%` that begins no escape stands for itself.
fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escape = tail.get(..2).filter(|_| first == b'%');
        let byte = escape
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::percent_decode;

    #[track_caller]
    fn check(text: &str, decoded: Option<&str>) {
        assert_eq!(percent_decode(text).as_deref(), decoded, "{text}");
    }

    #[test]
    fn escapes_are_decoded_and_stray_percent_signs_stay() {
        check("claude%3Aab-1", Some("claude:ab-1"));
        check("%C3%A9", Some("é"));
        check("100%", Some("100%"));
        check("%zz%+1", Some("%zz%+1"));
        check("%ff", None);
    }
}
