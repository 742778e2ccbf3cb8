//! Random lives of a store beside a model in memory: whole or absent, dense, one
//! order for all, and never a message fewer.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use sess_core::plan::State;
use sess_store::{
    Appended, Error, Imported, ImportedSession, PlanChange, PlanWrite, PlanWritten, Position, SessionPatch,
    Span, Store,
};

use crate::support::{Scratch, at, cases, chat, follow, id, key, plan, run, say, shown, told};

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Op {
    Ensure(usize),
    Append { session: usize, len: usize, key: Option<u8> },
    Import { session: usize, same: usize, more: usize },
    Patch { session: usize, star: bool },
    WritePlan { session: usize, expect: Option<u64>, key: Option<u8> },
    Announce { session: usize, revision: u64 },
    Withdraw { session: usize },
    Ready { session: usize, revision: u64 },
    Reopen,
    OtherHandle,
}

fn op() -> impl Strategy<Value = Op> {
    let session = 0..NAMES.len();
    let request = || proptest::option::weighted(0.4, 0_u8..6);
    prop_oneof![
        2 => session.clone().prop_map(Op::Ensure),
        8 => (session.clone(), 0_usize..4, request()).prop_map(|(session, len, key)| Op::Append { session, len, key }),
        3 => (session.clone(), 0_usize..12, 0_usize..3)
            .prop_map(|(session, same, more)| Op::Import { session, same, more }),
        2 => (session.clone(), any::<bool>()).prop_map(|(session, star)| Op::Patch { session, star }),
        3 => (session.clone(), proptest::option::weighted(0.3, 0_u64..3), request())
            .prop_map(|(session, expect, key)| Op::WritePlan { session, expect, key }),
        2 => (session.clone(), 0_u64..5).prop_map(|(session, revision)| Op::Announce { session, revision }),
        1 => session.clone().prop_map(|session| Op::Withdraw { session }),
        2 => (session, 0_u64..4).prop_map(|(session, revision)| Op::Ready { session, revision }),
        1 => Just(Op::Reopen),
        2 => Just(Op::OtherHandle),
    ]
}

/// What the store should be, kept the simplest way.
#[derive(Default)]
struct Model {
    sessions: BTreeMap<&'static str, ModelSession>,
    /// Key to (fingerprint, answer).
    requests: BTreeMap<String, (String, Answer)>,
    feed: Vec<String>,
    /// Makes every text a new one.
    spoken: usize,
}

#[derive(Clone, Copy)]
enum Answer {
    Appended(Appended),
    Plan(u64),
}

#[derive(Default)]
struct ModelSession {
    texts: Vec<String>,
    plan: Vec<ModelRevision>,
    state: Option<State>,
    announced: u64,
}

struct ModelRevision {
    content: String,
    before: Option<State>,
    key: Option<String>,
}

impl Model {
    fn ensure(&mut self, name: &'static str) -> &mut ModelSession {
        if !self.sessions.contains_key(name) {
            self.feed.push(format!("{name} created as agent:main:chat:{name}"));
        }
        self.sessions.entry(name).or_default()
    }

    fn speak(&mut self, len: usize) -> Vec<String> {
        self.spoken += len;
        (self.spoken - len..self.spoken).map(|n| format!("text {n}")).collect()
    }

    fn append(&mut self, name: &'static str, texts: &[String]) -> Appended {
        let session = self.sessions.get_mut(name).expect("checked before");
        let first_seq = session.texts.len() as u64 + 1;
        for text in texts {
            session.texts.push(text.clone());
            self.feed.push(format!("{name} {} {text}", session.texts.len()));
        }
        Appended { first_seq, last_seq: first_seq + texts.len() as u64 - 1 }
    }

    fn known(&self, key: &str, fingerprint: &str) -> Option<Result<Answer, Error>> {
        let (known, answer) = self.requests.get(key)?;
        Some(if known == fingerprint { Ok(*answer) } else { Err(Error::KeyReused(key.to_owned())) })
    }
}

fn messages(texts: &[String]) -> Vec<sess_store::NewMessage> {
    texts.iter().map(|text| say(text)).collect()
}

async fn perform(store: &dyn Store, model: &mut Model, op: &Op) {
    match *op {
        Op::Ensure(session) => {
            let made = store.ensure_session(chat(NAMES[session])).await.expect("made");
            assert_eq!(made.last_seq, model.ensure(NAMES[session]).texts.len() as u64);
        }
        Op::Append { session, len, key: request } => {
            let name = NAMES[session];
            let texts = model.speak(len);
            // The fingerprint leaves the text out, so that some retries are of the same request.
            let request = request.map(|n| (format!("k{n}"), format!("append {name} {len}")));
            let answer = store
                .append(&id(name), messages(&texts), request.as_ref().and_then(|(k, f)| key(k, f)))
                .await;
            let known = request.as_ref().and_then(|(key, fingerprint)| model.known(key, fingerprint));
            let expected = match known {
                Some(Ok(Answer::Appended(appended))) => Ok(appended),
                Some(Ok(Answer::Plan(_))) => unreachable!("its fingerprint differs"),
                Some(Err(error)) => Err(error),
                None if len == 0 => Err(Error::Conflict("there is no message to append".to_owned())),
                None if !model.sessions.contains_key(name) => Err(Error::NoSession(id(name))),
                None => {
                    let appended = model.append(name, &texts);
                    if let Some((key, fingerprint)) = request {
                        model.requests.insert(key, (fingerprint, Answer::Appended(appended)));
                    }
                    Ok(appended)
                }
            };
            assert_eq!(answer, expected);
        }
        Op::Import { session, same, more } => {
            let name = NAMES[session];
            let existed = model.sessions.contains_key(name);
            let have = model.sessions.get(name).map_or(0, |session| session.texts.len());
            let same = same.min(have);
            let new = model.speak(more);
            let mut texts = model.sessions.get(name).map_or(vec![], |session| session.texts[..same].to_vec());
            texts.extend(new.clone());
            let imported =
                ImportedSession { session: chat(name), starred: false, messages: messages(&texts) };
            let answer = store.import(imported).await;
            if same < have && more > 0 {
                assert!(matches!(answer, Err(Error::Conflict(_))), "{answer:?}");
            } else {
                model.ensure(name);
                if more > 0 {
                    model.append(name, &new);
                }
                let total = (have + more) as u64;
                assert_eq!(answer, Ok(Imported { added: more as u64, total, existed }));
            }
        }
        Op::Patch { session, star } => {
            let name = NAMES[session];
            let answer = store.patch_session(&id(name), SessionPatch::Starred(star), at(5)).await;
            if model.sessions.contains_key(name) {
                assert_eq!(answer.expect("patched").starred, star);
                model.feed.push(format!("{name} {}", if star { "starred" } else { "unstarred" }));
            } else {
                assert_eq!(answer, Err(Error::NoSession(id(name))));
            }
        }
        Op::WritePlan { session, expect, key: request } => {
            let name = NAMES[session];
            let content = model.speak(1).remove(0);
            let request = request.map(|n| (format!("k{n}"), format!("plan {name}")));
            let write = PlanWrite {
                expect_revision: expect,
                key: request.as_ref().and_then(|(k, f)| key(k, f)),
                ..plan(&content)
            };
            let answer = store.write_plan(chat(name), write).await;
            let newest = model.sessions.get(name).map_or(0, |session| session.plan.len() as u64);
            let expected = match request.as_ref().and_then(|(key, fingerprint)| model.known(key, fingerprint))
            {
                Some(Ok(Answer::Plan(revision))) => Ok(PlanWritten { revision, replayed: true }),
                Some(Ok(Answer::Appended(_))) => unreachable!("its fingerprint differs"),
                Some(Err(error)) => Err(error),
                None if expect.is_some_and(|expected| expected != newest) => {
                    Err(Error::StaleRevision { expected: expect.unwrap_or_default(), actual: newest })
                }
                None => {
                    let session = model.ensure(name);
                    let key = request.as_ref().map(|(key, _)| key.clone());
                    session.plan.push(ModelRevision { content, before: session.state, key });
                    session.state = Some(State::Draft);
                    if let Some((key, fingerprint)) = request {
                        model.requests.insert(key, (fingerprint, Answer::Plan(newest + 1)));
                    }
                    Ok(PlanWritten { revision: newest + 1, replayed: false })
                }
            };
            assert_eq!(answer, expected);
        }
        Op::Announce { session, revision } => {
            let name = NAMES[session];
            let answer = store.announce_plan(&id(name), revision, "/p").await;
            let Some(session) = model.sessions.get_mut(name) else {
                assert_eq!(answer, Err(Error::NoSession(id(name))));
                return;
            };
            answer.expect("announced");
            for told in session.announced + 1..=revision.min(session.plan.len() as u64) {
                let written = &session.plan[usize::try_from(told).expect("small") - 1];
                model.feed.push(format!("{name} plan {told} by ann in /p: {}", written.content));
                if written.before.is_some_and(|state| state != State::Draft) {
                    model.feed.push(format!("{name} plan {told} draft by ann -"));
                }
                session.announced = told;
            }
        }
        Op::Withdraw { session } => {
            let name = NAMES[session];
            let Some(session) = model.sessions.get_mut(name) else { return };
            let newest = session.plan.len() as u64;
            let answer = store.withdraw_plan(&id(name), newest).await;
            if newest == 0 || session.announced >= newest {
                assert!(matches!(answer, Err(Error::Conflict(_))), "{answer:?}");
                return;
            }
            answer.expect("withdrawn");
            let revision = session.plan.pop().expect("one at least");
            session.state = revision.before;
            if session.plan.is_empty() {
                session.announced = 0;
            }
            if let Some(key) = revision.key {
                model.requests.remove(&key);
            }
        }
        Op::Ready { session, revision } => {
            let name = NAMES[session];
            let change = PlanChange {
                revision,
                from: State::Draft,
                to: State::Ready,
                by: "eve".to_owned(),
                note: None,
                at: at(9),
            };
            let answer = store.change_plan_state(&id(name), change).await;
            let Some(session) = model.sessions.get_mut(name) else {
                assert_eq!(answer, Err(Error::NoSession(id(name))));
                return;
            };
            if session.plan.len() as u64 == revision && session.state == Some(State::Draft) {
                answer.expect("changed");
                session.state = Some(State::Ready);
                model.feed.push(format!("{name} plan {revision} ready by eve -"));
            } else {
                assert!(matches!(answer, Err(Error::Conflict(_))), "{answer:?}");
            }
        }
        Op::Reopen | Op::OtherHandle => {}
    }
}

async fn compare(store: &dyn Store, model: &Model) {
    let told: Vec<String> = follow(store, Position(0), 7).await.iter().map(told).collect();
    assert_eq!(told, model.feed, "the feed");
    for name in NAMES {
        let stored = store.session(&id(name)).await.expect("read");
        assert_eq!(stored.is_some(), model.sessions.contains_key(name));
        let Some(session) = model.sessions.get(name) else { continue };
        let page = store.messages(&id(name), Span::After(0), 10_000).await.expect("a page");
        let expected: Vec<String> =
            session.texts.iter().zip(1..).map(|(text, seq)| format!("{seq} {text}")).collect();
        assert_eq!(shown(&page), expected);
        assert_eq!(stored.map(|session| session.last_seq), Some(expected.len() as u64));
        let plan = store.plan(&id(name)).await.expect("read");
        assert_eq!(plan.as_ref().map_or(0, |plan| plan.revision), session.plan.len() as u64);
        assert_eq!(plan.as_ref().map(|plan| plan.state), session.state);
        assert_eq!(plan.map_or(0, |plan| plan.announced), session.announced);
        for (revision, number) in session.plan.iter().zip(1..) {
            let found = store.plan_revision(&id(name), number).await.expect("read").expect("an old revision");
            assert_eq!(found.content, revision.content);
        }
    }
}

async fn count(store: &dyn Store) -> usize {
    let mut all = 0;
    for name in NAMES {
        if let Ok(page) = store.messages(&id(name), Span::After(0), 10_000).await {
            all += page.messages.len();
        }
    }
    all
}

#[test]
fn a_store_lives_like_its_model_across_handles_and_restarts() {
    let config = ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(ops in prop::collection::vec(op(), 1..40))| {
        let scratch = Scratch::new();
        run(async {
            let mut handles: [Arc<dyn Store>; 2] = [scratch.open(), scratch.open()];
            let mut current = 0;
            let mut model = Model::default();
            let mut messages = 0;
            for op in &ops {
                match op {
                    Op::Reopen => handles[current] = scratch.open(),
                    Op::OtherHandle => current = 1 - current,
                    _ => perform(&*handles[current], &mut model, op).await,
                }
                // Read through the other handle: one order for all, and seen at once.
                let now = count(&*handles[1 - current]).await;
                assert!(now >= messages, "nothing is deleted unless asked");
                messages = now;
            }
            compare(&*handles[0], &model).await;
            compare(&*handles[1], &model).await;
            drop(handles);
            compare(&*scratch.open(), &model).await;
        });
        let health = sess_store::health(scratch.path()).expect("readable");
        assert_eq!(health.damage, Vec::<String>::new());
    });
}
