//! What a connection follows: one task each, which waits while the connection's queue is full.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::value::RawValue;
use sess_app::Caller;
use sess_core::SessionKey;
use sess_protocol::{
    errors::ErrorType,
    methods::{SubscribeMessages, Subscribed},
    sessions::OneSession,
};
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc,
    },
    task::AbortHandle,
};

use super::{
    super::{
        errors::Problem,
        follower::{Follower, Heard},
        http::unseen,
        hub::{News, Told},
        state::State,
    },
    connection::Out,
    events::{self, Event},
    methods::{self, Answer, Nothing},
};

/// How long is waited after the store could not be read.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// What a request does to subscriptions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    FollowAll,
    LeaveAll,
    Follow,
    Leave,
}

pub(super) struct Subscriptions {
    state: Arc<State>,
    caller: Caller,
    out: mpsc::Sender<Out>,
    everything: Option<Pump>,
    sessions: HashMap<SessionKey, Followed>,
    /// The sessions that are followed on their own: their messages are not told twice.
    alone: Arc<Mutex<HashSet<SessionKey>>>,
}

struct Followed {
    /// What the client called it.
    given: String,
    shown: String,
    _pump: Pump,
}

/// A task that ends when this is dropped.
struct Pump(AbortHandle);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Subscriptions {
    pub(super) fn new(state: Arc<State>, caller: Caller, out: mpsc::Sender<Out>) -> Self {
        let (sessions, alone) = (HashMap::new(), Arc::default());
        Self { state, caller, out, everything: None, sessions, alone }
    }

    pub(super) async fn change(&mut self, change: Change, method: &str, params: Option<&RawValue>) -> Answer {
        let subscribed = match change {
            Change::FollowAll => {
                methods::read::<Nothing>(method, params)?;
                self.follow_all()
            }
            Change::LeaveAll => {
                methods::read::<Nothing>(method, params)?;
                self.everything = None;
                Subscribed { subscribed: false, key: None, session_id: None, last_seq: None }
            }
            Change::Follow => self.follow(method, methods::read(method, params)?).await?,
            Change::Leave => self.leave(methods::read(method, params)?),
        };
        Ok(methods::json(&subscribed))
    }

    fn follow_all(&mut self) -> Subscribed {
        let (state, caller) = (Arc::clone(&self.state), self.caller.clone());
        let (out, alone) = (self.out.clone(), Arc::clone(&self.alone));
        let all = self.state.hub.follow_all();
        let task = tokio::spawn(async move { tell_all(&state, &caller, all, &alone, &out).await });
        self.everything = Some(Pump(task.abort_handle()));
        Subscribed { subscribed: true, key: None, session_id: None, last_seq: None }
    }

    async fn follow(&mut self, method: &str, ask: SubscribeMessages) -> Result<Subscribed, Problem> {
        let invalid = |what: String| Problem::invalid(format!("invalid {method} params: {what}"));
        if ask.from_seq.is_some() && ask.session_id.is_none() {
            let what =
                "fromSeq: give the sessionId that it counts in; a key may lead to another session by now";
            return Err(invalid(what.to_owned()));
        }
        let app = &self.state.app;
        let page = app.transcript_page(&self.caller, &ask.key, None, 1, true).await;
        let mut page = page.map_err(|error| unseen(error, &ask.key))?;
        if page.in_place {
            let what = "key: this session is read from another agent's files and cannot be followed";
            return Err(invalid(what.to_owned()));
        }
        let key = page.session.key.clone();
        if let Some(id) = &ask.session_id
            && id != page.session.id.as_str()
        {
            let wrong = || invalid(format!("sessionId: {id:?} is no session of {}", page.key));
            let named = app.transcript_page(&self.caller, id, None, 1, true).await.map_err(|_| wrong())?;
            if named.session.key != key || named.session.id.as_str() != id {
                return Err(wrong());
            }
            page = named;
        }
        let last_seq = page.last_seq;
        let from = ask.from_seq.unwrap_or(last_seq);
        if from > last_seq {
            return Err(invalid(format!(
                "fromSeq: {from} is beyond the newest message, which is {last_seq}"
            )));
        }
        let most = self.state.limits.subscriptions;
        if !self.sessions.contains_key(&key) && self.sessions.len() >= most {
            let text = format!("this connection follows {most} sessions, which is the most: leave one first");
            return Err(Problem::new(ErrorType::RateLimited, text));
        }
        let session = page.session.id.clone();
        let follower = Follower::new(app.clone(), &self.state.hub, key.clone(), session.clone(), from);
        let (state, out, shown) = (Arc::clone(&self.state), self.out.clone(), page.key.clone());
        let task = tokio::spawn(async move { tell_messages(&state, follower, shown, &out).await });
        let pump = Pump(task.abort_handle());
        self.alone.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        self.sessions.insert(key, Followed { given: ask.key, shown: page.key.clone(), _pump: pump });
        Ok(Subscribed {
            subscribed: true,
            key: Some(page.key),
            session_id: Some(session.to_string()),
            last_seq: Some(last_seq),
        })
    }

    /// Stops to follow a session. Who follows none of this name is told that it does not.
    fn leave(&mut self, ask: OneSession) -> Subscribed {
        let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        self.sessions.retain(|key, followed| {
            let is_meant = ask.key == followed.given || ask.key == followed.shown || ask.key == key.as_str();
            if is_meant {
                alone.remove(key);
            }
            !is_meant
        });
        Subscribed { subscribed: false, key: Some(ask.key), session_id: None, last_seq: None }
    }
}

/// Tells the messages of one session until nobody listens.
async fn tell_messages(state: &State, mut follower: Follower, shown: String, out: &mpsc::Sender<Out>) {
    let _present = state.metrics.followers.enter();
    loop {
        let event = match follower.next().await {
            Ok(Heard::Message { session, message }) => {
                events::message(&state.app, &follower.key, &session, &message)
            }
            Ok(Heard::Lagged) => {
                state.metrics.lags.add(1);
                Event::lagged(Some(shown.clone()))
            }
            // Each message says which session it is of, and `sessions.changed` tells of the end.
            Ok(Heard::Reset(_) | Heard::Deleted(_)) => continue,
            Err(error) => {
                tracing::warn!(%error, "a session cannot be followed now; it is tried again");
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
        };
        if out.send(Out::Event(event)).await.is_err() {
            return;
        }
    }
}

/// Tells everything that the caller may hear of, until nobody listens.
async fn tell_all(
    state: &State,
    caller: &Caller,
    mut all: broadcast::Receiver<Arc<Told>>,
    alone: &Mutex<HashSet<SessionKey>>,
    out: &mpsc::Sender<Out>,
) {
    let _present = state.metrics.followers.enter();
    loop {
        let told = match all.recv().await {
            Ok(told) => told,
            Err(RecvError::Lagged(_)) => {
                state.metrics.lags.add(1);
                if out.send(Out::Event(Event::lagged(None))).await.is_err() {
                    return;
                }
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        match state.app.hears_of(caller, &told.key).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                tracing::warn!(%error, "who may hear of something cannot be told; nobody does");
                continue;
            }
        }
        let is_alone = || alone.lock().unwrap_or_else(PoisonError::into_inner).contains(&told.key);
        let message = match &told.news {
            News::Message(message) if !is_alone() => {
                Some(events::message(&state.app, &told.key, &told.session, message))
            }
            _ => None,
        };
        let changed = events::changed(&state.app, caller, &told).await;
        for event in [message, changed, events::other(&state.app, &told)].into_iter().flatten() {
            if out.send(Out::Event(event)).await.is_err() {
                return;
            }
        }
    }
}
