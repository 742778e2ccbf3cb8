//! Frames without a connection, for whoever tries out thousands of them.

use std::sync::Arc;

use sess_app::{Access, App};
use sess_protocol::frames::{ConnectParams, RequestFrame};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    super::{cursor::Cursors, errors::Problem, limits::Limits, origin::Names, state::State},
    Refusal, error_frame,
    methods::{self, Ask, Does},
    read_request,
    subscriptions::Subscriptions,
};

/// Answers frames of the owner's one by one, as a connection would, and hears of nothing in between.
pub struct SingleFrames {
    state: Arc<State>,
}

impl SingleFrames {
    pub fn new(app: App) -> Self {
        let names = Names::new(&[], false).expect("no names are no wrong ones");
        let (cursors, stop) = (Cursors::new("nobody keeps these"), CancellationToken::new());
        Self { state: Arc::new(State::new(app, cursors, Limits::default(), names, stop)) }
    }

    /// Returns the frame that answers this text.
    pub async fn answer(&self, text: &str) -> String {
        let RequestFrame { id, method, params, .. } = match read_request(text) {
            Ok(request) => request,
            Err(Refusal::Refused { id, problem }) => return error_frame(id, &problem),
            Err(refusal) => unreachable!("what cannot be read is refused, not {refusal:?}"),
        };
        if method == "connect"
            && let Err(problem) = methods::read::<ConnectParams>("connect", params.as_deref())
        {
            return error_frame(id, &problem);
        }
        let method = match methods::find(&method) {
            Ok(method) => method,
            Err(problem) => return error_frame(id, &problem),
        };
        let (state, access) = (Arc::clone(&self.state), Access::owner());
        let caller = state.app.door_caller(&access, Some("single"));
        // A subscription ends with this call, and what it tells is heard by nobody.
        let (out, _told) = mpsc::channel(1);
        let answer: Result<_, Problem> = match method.does {
            Does::Subscription(change) => {
                Subscriptions::new(state, caller, out).change(change, method.name, params.as_deref()).await
            }
            Does::Task(task) => task(Ask { state, access, caller, method: method.name, params, out }).await.0,
        };
        methods::answer_frame(id, answer)
    }
}
