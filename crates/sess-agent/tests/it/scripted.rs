//! Prepared replies.

use std::path::Path;
use std::sync::Arc;

use sess_agent::model::{Endpoint, Model, Piece, open};
use sess_core::agent::{ModelSpec, Provider};
use sess_core::message::Block;
use tokio_util::sync::CancellationToken;

use crate::support::{ask, assistant, outcome, request, result, spec, user};

const SCRIPT: &str = r#"
- {when: plan, thinking: hm, text: "Let me look.", tool_calls: [{name: list, arguments: {path: src}}, {name: list}]}
- {when: a.rs, text: I have seen it.}
- {text: First of the rest.}
- {text: Second of the rest., agent: root}
"#;

fn write(dir: &Path, name: &str, text: &str) -> ModelSpec {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a file");
    ModelSpec { model: path.display().to_string(), ..spec(Provider::Scripted) }
}

fn scripted(spec: &ModelSpec) -> Arc<dyn Model> {
    open(spec, Endpoint::default()).expect("a script")
}

#[tokio::test]
async fn a_conversation_goes_on_where_it_was_in_another_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let spec = write(dir.path(), "script.yaml", SCRIPT);
    let mut messages = vec![user("make a plan")];
    let mut said = Vec::new();
    for next in ["", "thanks", "and now", "more"] {
        // Opened anew each time: nothing is remembered outside of the conversation.
        let reply = ask(&scripted(&spec), messages.clone()).await.0.expect("a reply");
        assert_eq!(reply.model, "scripted");
        said.push(outcome(&Ok(reply.clone())));
        messages.push(assistant(&reply));
        for block in &reply.content {
            if let Block::ToolCall { id, .. } = block {
                messages.push(result(id, "a.rs"));
            }
        }
        if !next.is_empty() {
            messages.push(user(next));
        }
    }
    said.push(outcome(&ask(&scripted(&spec), messages).await.0));
    assert_eq!(
        said,
        [
            "(hm) “Let me look.” list{\"path\":\"src\"} list{} [tool_calls]",
            "“I have seen it.” [end]",
            "“First of the rest.” [end]",
            "“Second of the rest.” [end]",
            "“The script has no reply left for this.” [end]",
        ]
    );
}

#[tokio::test]
async fn replies_of_other_models_and_for_other_agents_are_passed_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = scripted(&write(
        dir.path(),
        "s.jsonl",
        "{\"text\":\"a\",\"agent\":\"planner\"}\n\n{\"text\":\"b\"}\n",
    ));
    let mut other = assistant(&ask(&script, vec![user("x")]).await.0.expect("a reply"));
    other.model = Some("claude".to_owned());
    let mut request = request(vec![user("x"), other, user("y")]);
    for (agent, told) in [("planner", "“a” [end]"), ("root", "“b” [end]")] {
        request.agent = Some(agent.parse().expect("a name"));
        let reply = script.reply(&request, &mut |_| {}, &CancellationToken::new()).await;
        assert_eq!(outcome(&reply), told);
    }
}

#[tokio::test]
async fn it_comes_in_pieces_and_can_be_cancelled_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = scripted(&write(dir.path(), "s.yaml", "[{text: one two, delay_ms: 100000}]"));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let reply = script.reply(&request(vec![user("x")]), &mut |_| {}, &cancel).await;
    assert_eq!(outcome(&reply), "cancelled ()");

    let script = scripted(&write(dir.path(), "s.yaml", "[{text: one two}]"));
    let pieces = ask(&script, vec![user("x")]).await.1;
    assert_eq!(pieces, [Piece::Text("one ".to_owned()), Piece::Text("two".to_owned())]);
}

#[test]
fn a_script_that_cannot_be_used_says_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |spec: &ModelSpec, reason: &str| {
        let told = open(spec, Endpoint::default()).err().map(|error| error.to_string()).unwrap_or_default();
        let start = format!("the script {} cannot be used: ", spec.model);
        assert!(told.starts_with(&start) && told.contains(reason), "{told}");
    };
    check(&ModelSpec { model: "/no/such/file".to_owned(), ..spec(Provider::Scripted) }, "No such file");
    check(&write(dir.path(), "a.yaml", "[{txt: x}]"), "txt");
    check(&write(dir.path(), "a.jsonl", "{\"text\":\"x\"}\n{\"text\":5}\n"), "line 2");
    check(&write(dir.path(), "big.yaml", &"#".repeat(5 << 20)), "over 4 MiB");
}
