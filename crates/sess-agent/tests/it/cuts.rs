//! A connection that ends at any byte of an answer.

use sess_agent::model::{ModelError, Patience, Reply};
use sess_core::agent::Provider;
use sess_core::message::Block;
use stub_models::{Call, Fault, FaultKind, Reply as Prepared, Script, Stub};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{APIS, ask, model, model_with, quick, retries, shown, spec, user};

fn prepared() -> Prepared {
    let call =
        |path: &str| Call { name: "list".to_owned(), arguments: serde_json::json!({"path": path}), id: None };
    Prepared {
        thinking: Some("hm".to_owned()),
        tool_calls: vec![call("src/zwölf")],
        chunk_chars: Some(9),
        ..Prepared::text("Ich sehe für dich nach.")
    }
}

/// Returns how many bytes the whole answer has on the wire.
async fn length(api: Provider) -> (usize, Reply) {
    let stub = Stub::start(Script { replies: vec![prepared()] }).await.expect("a port");
    let reply = ask(&model(&stub, api), vec![user("cut at 12345.")]).await.0.expect("a reply");
    let recorded = &stub.requests()[0];
    let body = recorded.body.to_string();
    let head = format!("POST {} HTTP/1.1\r\ncontent-length: {}\r\n\r\n", recorded.path, body.len());
    let mut stream =
        tokio::net::TcpStream::connect(stub.url.trim_start_matches("http://")).await.expect("it");
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(body.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        stream.read_buf(&mut answer).await.expect("an answer");
    }
    (answer.len(), reply)
}

/// Cuts the answer of every API after each number of bytes that `step` leads to.
async fn cut_everywhere(step: usize, times: Option<u32>, check: impl Fn(Provider, usize, &Reply, Outcome)) {
    for api in APIS {
        let (length, whole) = length(api).await;
        let replies = (0..length)
            .step_by(step)
            .map(|bytes| {
                let fault = Fault { kind: FaultKind::Cut, bytes: Some(bytes), times, ..Fault::default() };
                prepared().when(format!("cut at {bytes}.")).fault(fault)
            })
            .collect();
        let stub = Stub::start(Script { replies }).await.expect("a port");
        let tries = if times.is_some() { 2 } else { 1 };
        let model = model_with(&stub, &spec(api), Patience { tries, ..quick() });
        for bytes in (0..length).step_by(step) {
            let (reply, pieces) = ask(&model, vec![user(&format!("cut at {bytes}."))]).await;
            check(api, bytes, &whole, Outcome { reply, retries: retries(&pieces), left: length - bytes });
        }
    }
}

struct Outcome {
    reply: Result<Reply, ModelError>,
    retries: usize,
    /// How many bytes were cut off.
    left: usize,
}

#[tokio::test]
async fn what_came_before_the_cut_is_a_true_part_of_the_reply() {
    cut_everywhere(1, None, |api, bytes, whole, outcome| match outcome.reply {
        // After the last word it does not matter any more.
        Ok(reply) => {
            assert_eq!(reply.content, whole.content, "{api:?} {bytes}");
            assert!(outcome.left < 700, "{api:?} cut at {bytes} with {} bytes to come", outcome.left);
        }
        Err(ModelError::Unavailable { partial, reason }) => {
            assert!(reason.contains("broke") || reason.contains("reached"), "{reason}");
            assert_part(&partial.content, &whole.content);
        }
        Err(error) => panic!("{api:?} {bytes}: {error}"),
    })
    .await;
}

#[tokio::test]
async fn after_a_cut_the_second_try_brings_all_of_it_once() {
    cut_everywhere(13, Some(1), |api, bytes, whole, outcome| {
        let reply = outcome.reply.unwrap_or_else(|error| panic!("{api:?} {bytes}: {error}"));
        assert_eq!(shown(&reply), shown(whole), "{api:?} {bytes}");
        assert!(outcome.retries <= 1);
    })
    .await;
}

/// Every block came: as a whole, or the last text as its beginning.
#[track_caller]
fn assert_part(part: &[Block], whole: &[Block]) {
    let mut rest = whole.iter();
    for block in part {
        let found = rest.any(|original| match (block, original) {
            (Block::Text { text }, Block::Text { text: all }) => all.starts_with(text.as_str()),
            (Block::Thinking { text, signature }, Block::Thinking { text: all, signature: signed }) => {
                all.starts_with(text.as_str()) && (signature.is_none() || signature == signed)
            }
            (block, original) => block == original,
        });
        assert!(found, "{block:?} is not in {whole:?} at its place");
    }
}
