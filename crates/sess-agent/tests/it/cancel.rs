//! Cancelling, wherever the call is.

use std::time::Duration;

use sess_agent::model::{ModelError, Patience, Piece};
use sess_core::message::Block;
use tokio_util::sync::CancellationToken;

use crate::support::{APIS, heard, model, model_with, outcome, quick, request, spec, stub, user};

/// Only there so that a call that does not end is seen.
const MOMENT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn at_any_piece_what_came_before_is_kept() {
    for api in APIS {
        let stub = stub(
            "[{thinking: hm, text: one two three four five six, chunk_delay_ms: 1, tool_calls: \
             [{name: list, arguments: {path: a long path so that it is in pieces}}, {name: list, arguments: {path: b}}]}]",
        )
        .await;
        let model = model(&stub, api);
        let mut at = 0;
        loop {
            at += 1;
            let cancel = CancellationToken::new();
            let mut pieces = Vec::new();
            let mut told = |piece| {
                pieces.push(piece);
                if pieces.len() == at {
                    cancel.cancel();
                }
            };
            let request = request(vec![user("go")]);
            let reply = tokio::time::timeout(MOMENT, model.reply(&request, &mut told, &cancel)).await;
            let reply = reply.expect("it ends");
            if pieces.len() < at {
                assert!(reply.is_ok(), "{}", outcome(&reply));
                break;
            }
            // The last pieces may come together with the end.
            let Err(error) = reply else { continue };
            let ModelError::Cancelled { partial } = error else { panic!("{error}") };
            let mut text = String::new();
            for block in &partial.content {
                match block {
                    Block::Text { text: part } => text.push_str(part),
                    Block::ToolCall { arguments, .. } => assert_eq!(arguments.len(), 1),
                    _ => {}
                }
            }
            assert_eq!(text, heard(&pieces), "{api:?} at {at}");
        }
        assert!(at > 4, "{api:?}");
    }
}

#[tokio::test]
async fn before_the_first_word_nothing_was_said() {
    let check = async |reply: &str, patience: Patience, cancel_now: bool| {
        for api in APIS {
            let stub = stub(&format!("[{reply}]")).await;
            let model = model_with(&stub, &spec(api), patience);
            let cancel = CancellationToken::new();
            if cancel_now {
                cancel.cancel();
            }
            // While the provider is silent, or while a further try is waited for.
            let cancelling = async {
                while !cancel_now && stub.requests().is_empty() {
                    tokio::task::yield_now().await;
                }
                if reply.contains("hang") {
                    cancel.cancel();
                }
            };
            let mut told = |piece| {
                if matches!(piece, Piece::Retry { .. }) {
                    cancel.cancel();
                }
            };
            let request = request(vec![user("go")]);
            let (reply, ()) = tokio::join!(model.reply(&request, &mut told, &cancel), cancelling);
            assert_eq!(outcome(&reply), "cancelled ()");
        }
    };
    let slow = Patience { first_wait: Duration::from_secs(60), ..quick() };
    tokio::time::timeout(MOMENT, check("{text: x}", quick(), true)).await.expect("it ends");
    tokio::time::timeout(MOMENT, check("{fault: {kind: hang}}", quick(), false)).await.expect("it ends");
    tokio::time::timeout(MOMENT, check("{fault: {kind: hang, bytes: 300}}", quick(), false))
        .await
        .expect("it ends");
    tokio::time::timeout(MOMENT, check("{fault: {status: 500}}", slow, false)).await.expect("it ends");
}
