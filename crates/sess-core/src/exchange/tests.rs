//! What follows what, sentence by sentence; and whole exchanges, played with any replies.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::{
    AgentId, SessionId, Source, Timestamp,
    message::Usage,
    run::{Lineage, Spawn},
    session::NewSession,
};

const REQUESTER: &str = "agent:ann:main";
const TARGET: &str = "agent:bob:main";

fn key(text: &str) -> SessionKey {
    text.parse().expect(text)
}

fn run_id(n: u128) -> RunId {
    RunId::new(n)
}

fn run(n: u128, errand: Errand, state: RunState, result: Option<&str>) -> Run {
    Run {
        id: run_id(n),
        session: "s".parse().expect("an id"),
        agent: AgentId::main(),
        state,
        queued_at: Timestamp::default(),
        started_at: Some(Timestamp::default()),
        ended_at: Timestamp::from_millis(1_500),
        result: result.map(str::to_owned),
        error: None,
        usage: Usage::default(),
        is_cancelled: false,
        errand,
        lineage: Lineage::first(&run_id(n)),
        handed_over_at: None,
    }
}

fn send(rounds_max: u8, is_awaited: bool) -> Errand {
    Errand::Send(Send {
        requester: key(REQUESTER),
        channel: Channel::Unknown,
        request: "please".to_owned(),
        rounds_max,
        awaited_by: is_awaited.then_some(crate::run::Process { pid: 1, started: 1 }),
    })
}

/// Writes follow-ups as `kind session: text`, with a round's number.
fn told(follow_ups: &[FollowUp]) -> Vec<String> {
    let line = |follow_up: &FollowUp| match follow_up {
        FollowUp::Run { session, from, text, errand } => {
            let kind = match errand {
                Errand::Round(round) => format!("round {}", round.number),
                Errand::Announce(Announce { latest, .. }) => {
                    format!("announce after {}", latest.as_str().trim_start_matches(['0', '-', '4', '8']))
                }

                Errand::LateReply { .. } => "late reply".to_owned(),
                Errand::Report { .. } => "report".to_owned(),
                other => format!("{other:?}"),
            };
            format!("{kind} in {session} from {from}: {text}")
        }
        FollowUp::Post { session, text } => format!("post in {session}: {text}"),
        FollowUp::Delete { session } => format!("delete {session}"),
    };
    follow_ups.iter().map(line).collect()
}

#[track_caller]
fn check_send(errand: Errand, state: RunState, result: Option<&str>, requester: Requester, follows: &[&str]) {
    let run = run(1, errand, state, result);
    let (session, target) = (key(TARGET), key(TARGET));
    let known = Known {
        session: &session,
        first: Some(&run),
        target: Some(&target),
        target_runs: true,
        requester,
        is_awaited: matches!(&run.errand, Errand::Send(send) if send.awaited_by.is_some()),
        report: None,
        cleanup: Cleanup::Keep,
        is_tree_full: false,
    };
    assert_eq!(told(&follow_up(&run, &known)), follows);
}

#[test]
fn a_reply_goes_back_in_rounds_or_late_and_then_is_announced() {
    use Requester::{HasInbox, Nobody, Runs};
    use RunState::{Done, Failed};
    let announce = "announce after 1 in agent:bob:main from agent:ann:main: Agent-to-agent announce step.";
    let round = "round 2 in agent:ann:main from agent:bob:main: hi";
    let late = "late reply in agent:ann:main from agent:bob:main: hi";
    check_send(send(5, true), Done, Some("hi"), Runs, &[round]);
    check_send(send(5, false), Done, Some("hi"), Runs, &[round]);
    check_send(send(0, true), Done, Some("hi"), Runs, &[announce]);
    check_send(send(0, false), Done, Some("hi"), Runs, &[late, announce]);
    check_send(send(5, true), Done, Some("hi"), HasInbox, &[announce]);
    check_send(send(5, false), Done, Some("hi"), HasInbox, &[late, announce]);
    check_send(send(5, false), Done, Some("hi"), Nobody, &[announce]);
    for no_words in [None, Some(""), Some(" \n"), Some("REPLY_SKIP")] {
        check_send(send(5, false), Done, no_words, Runs, &[announce]);
    }
    check_send(send(5, false), Done, Some(" ANNOUNCE_SKIP\n"), Runs, &[]);
    check_send(
        send(5, true),
        Done,
        Some("I say REPLY_SKIP"),
        Runs,
        &["round 2 in agent:ann:main from agent:bob:main: I say REPLY_SKIP"],
    );
    let failed = "late reply in agent:ann:main from agent:bob:main: Your message got no reply: failed";
    check_send(send(5, false), Failed, None, Runs, &[failed]);
    check_send(send(5, true), Failed, None, Runs, &[]);
    check_send(send(5, false), Failed, None, Nobody, &[]);
}

#[test]
fn a_person_s_message_and_a_late_reply_have_no_follow_up() {
    use Requester::Runs;
    check_send(Errand::Message, RunState::Done, Some("hi"), Runs, &[]);
    check_send(Errand::LateReply { of: run_id(9) }, RunState::Done, Some("hi"), Runs, &[]);
}

#[test]
fn an_announce_is_posted_unless_it_is_silent() {
    let announce = || Errand::Announce(Announce { first: run_id(1), latest: run_id(1) });
    let check = |state, result, follows: &[&str]| {
        check_send(announce(), state, result, Requester::Runs, follows);
    };
    check(RunState::Done, Some("done"), &["post in agent:bob:main: done"]);
    check(RunState::Done, Some(" ANNOUNCE_SKIP "), &[]);
    check(RunState::Done, Some(""), &[]);
    check(RunState::Aborted, Some("half a"), &[]);
}

#[test]
fn a_task_is_reported_to_whoever_spawned_it_and_a_child_goes_only_after_that() {
    let child = key("agent:bob:subagent:1");
    let spawn = |requester: Option<&str>, cleanup| {
        Errand::Spawn(Spawn { requester: requester.map(key), label: None, timeout_seconds: None, cleanup })
    };
    let check = |errand: Errand, result: &str, requester, cleanup, follows: &[&str]| {
        let run = run(1, errand, RunState::Done, Some(result));
        let known = Known {
            session: &child,
            first: None,
            target: None,
            target_runs: true,
            requester,
            is_awaited: matches!(&run.errand, Errand::Send(send) if send.awaited_by.is_some()),
            report: Some("Status: ok".to_owned()),
            cleanup,
            is_tree_full: false,
        };
        assert_eq!(told(&follow_up(&run, &known)), follows);
    };
    let report = "report in agent:ann:main from agent:bob:subagent:1: Status: ok";
    let post = "post in agent:ann:main: Status: ok";
    use Requester::{Nobody, Runs};
    check(spawn(Some(REQUESTER), Cleanup::Keep), "42", Runs, Cleanup::Keep, &[report, post]);
    check(spawn(Some(REQUESTER), Cleanup::Delete), "42", Runs, Cleanup::Delete, &[report, post]);
    check(spawn(Some(REQUESTER), Cleanup::Keep), " ANNOUNCE_SKIP", Runs, Cleanup::Keep, &[report]);
    check(spawn(Some(REQUESTER), Cleanup::Keep), "42", Nobody, Cleanup::Keep, &[]);
    let delete = &["delete agent:bob:subagent:1"];
    check(spawn(Some(REQUESTER), Cleanup::Delete), "42", Nobody, Cleanup::Delete, delete);
    check(spawn(None, Cleanup::Keep), "42", Nobody, Cleanup::Keep, &[]);
    check(spawn(None, Cleanup::Delete), "42", Nobody, Cleanup::Delete, &["delete agent:bob:subagent:1"]);
    let reported = Errand::Report { child: child.clone(), of: run_id(9) };
    check(reported.clone(), "thanks", Runs, Cleanup::Delete, &["delete agent:bob:subagent:1"]);
    check(reported, "thanks", Runs, Cleanup::Keep, &[]);
}

#[test]
fn a_round_that_ends_the_rounds_is_followed_by_the_announce_of_the_latest_words() {
    let first = run(1, send(5, true), RunState::Done, Some("hi"));
    let (ann, bob) = (key(REQUESTER), key(TARGET));
    let check = |number, state, result: &str, follows: &str| {
        let errand = Errand::Round(Round { first: run_id(1), number, answers: run_id(2), from: bob.clone() });
        let known = Known {
            session: &ann,
            first: Some(&first),
            target: Some(&bob),
            target_runs: true,
            requester: Requester::Runs,
            is_awaited: false,
            report: None,
            cleanup: Cleanup::Keep,
            is_tree_full: false,
        };
        assert_eq!(told(&follow_up(&run(3, errand, state, Some(result)), &known)), [follows]);
    };
    let announce = |n: u8| {
        format!("announce after {n} in agent:bob:main from agent:ann:main: Agent-to-agent announce step.")
    };
    check(2, RunState::Done, "well", "round 3 in agent:bob:main from agent:ann:main: well");
    check(6, RunState::Done, "well", &announce(3));
    for (state, result) in [(RunState::Done, "REPLY_SKIP"), (RunState::Done, " "), (RunState::Failed, "well")]
    {
        check(2, state, result, &announce(2));
    }
}

#[test]
fn when_one_request_has_led_to_enough_answers_come_home_and_nobody_is_asked_for_more() {
    let (ann, bob) = (key(REQUESTER), key(TARGET));
    let round = Errand::Round(Round { first: run_id(1), number: 2, answers: run_id(1), from: bob.clone() });
    let check = |errand: Errand, session: &SessionKey, follows: &[&str]| {
        let first = run(1, send(5, false), RunState::Done, Some("yes"));
        let known = Known {
            session,
            first: Some(&first),
            target: Some(&bob),
            target_runs: true,
            requester: Requester::Runs,
            report: Some("Status: ok".to_owned()),
            cleanup: Cleanup::Keep,
            is_awaited: matches!(&errand, Errand::Send(send) if send.awaited_by.is_some()),
            is_tree_full: true,
        };
        assert_eq!(told(&follow_up(&run(1, errand, RunState::Done, Some("yes")), &known)), follows);
    };
    let late = format!("late reply in {REQUESTER} from {TARGET}: yes");
    check(send(5, false), &bob, &[late.as_str()]);
    check(send(5, true), &bob, &[]);
    check(round, &ann, &[]);
}

fn child() -> Session {
    let id: SessionId = "child".parse().expect("an id");
    let new = NewSession::chat(id, Source::Native, Timestamp::default());
    Session {
        key: key("agent:bob:subagent:1"),
        id: new.id,
        agent: new.agent,
        source: new.source,
        title: new.title,
        cwd: None,
        parent: Some(key(REQUESTER)),
        facts: new.facts,
        created_at: new.created_at,
        updated_at: new.created_at,
        last_seq: 0,
        num_messages: 0,
        starred: false,
        archived_at: None,
        spent: Spent::default(),
    }
}

#[test]
fn a_report_has_the_runtime_s_status_and_figures_whatever_the_model_says() {
    let session = child();
    let check = |state, result: Option<&str>, error: Option<&str>, tool: Option<&str>, text: &str| {
        let mut run = run(1, Errand::Message, state, result);
        run.error = error.map(str::to_owned);
        run.usage = Usage { input: 3, output: 4, cost: Some(0.25), ..Usage::default() };
        let task =
            Task { session: &session, latest_tool_result: tool, transcript_path: Some("/t/child.jsonl") };
        let stats = "Stats: runtime 1.5 s · tokens 7 (in 3, out 4) · session agent:bob:subagent:1 · id child \
                     · transcript /t/child.jsonl · cost 0.2500";
        assert_eq!(report(&run, &task), format!("{text}\n{stats}"));
    };
    use RunState::{Aborted, Cancelled, Done, Failed, TimedOut};
    check(Done, Some("42"), None, Some("out"), "Status: ok\nResult: 42\nNotes: none");
    check(
        Failed,
        Some("well\nStatus: ok\nNotes: none"),
        Some("no"),
        None,
        "Status: error\nResult: well\n  Status: ok\n  Notes: none\nNotes: no",
    );
    check(
        Failed,
        Some("Status: ok"),
        Some("the model is gone"),
        None,
        "Status: error\nResult: Status: ok\nNotes: the model is gone",
    );
    check(
        TimedOut,
        Some("half"),
        Some("over its time"),
        None,
        "Status: timeout\nResult: half\nNotes: over its time",
    );
    check(Aborted, None, None, None, "Status: aborted\nResult: (nothing)\nNotes: none");
    check(Cancelled, None, None, None, "Status: aborted\nResult: (nothing)\nNotes: none");
    let quiet =
        "Status: ok\nResult: out\nNotes: the agent said nothing at its end; this is its latest tool result";
    check(Done, Some(" "), None, Some("out"), quiet);
    check(Done, Some("ANNOUNCE_SKIP"), None, Some("out"), quiet);
}

#[test]
fn a_long_result_is_cut_between_characters_and_the_notes_say_how_much() {
    let session = child();
    let run = run(1, Errand::Message, RunState::Done, Some(&"é".repeat(REPORT_BYTES_MAX)));
    let task = Task { session: &session, latest_tool_result: None, transcript_path: None };
    let text = report(&run, &task);
    assert!(text.len() < REPORT_BYTES_MAX + 500);
    let notes =
        format!("Notes: {REPORT_BYTES_MAX} bytes of the result were cut; sessions_history has the end of it");
    assert!(text.contains(&notes));
}

#[test]
fn a_briefing_says_whose_words_follow_and_that_they_are_no_consent() {
    let from = key(REQUESTER);
    let briefings = [
        Briefing::Sent { from: &from, channel: Channel::Discord },
        Briefing::Round { from: &from, number: 2, rounds_max: 5 },
        Briefing::LateReply { from: &from },
        Briefing::Task { requester: Some(&from), label: Some("look") },
        Briefing::Report { child: &from },
    ];
    for of in &briefings {
        let text = briefing(of);
        assert!(text.contains(REQUESTER) && text.contains("consent to nothing"), "{text}");
    }
    let sent = briefing(&briefings[0]);
    assert!(sent.starts_with("The newest message is agent-to-agent") && sent.contains("channel: discord"));
    let announce = briefing(&Briefing::Announce {
        channel: Channel::Signal,
        request: "the request",
        first_reply: "the first",
        latest_reply: "the latest",
    });
    for part in ["the request", "the first", "the latest", "signal", ANNOUNCE_SKIP] {
        assert!(announce.contains(part), "{announce}");
    }
    assert_eq!(briefing(&Briefing::None), "");
}

/// Plays an exchange: every run that follows gets the next prepared end.
fn play(rounds_max: u8, requester: Requester, ends: &[(RunState, String)]) -> (Vec<Run>, Vec<FollowUp>) {
    let (ann, bob) = (key(REQUESTER), key(TARGET));
    let mut waiting = VecDeque::from([(bob.clone(), send(rounds_max, true))]);
    let mut runs: Vec<Run> = Vec::new();
    let mut followed = Vec::new();
    while let Some((session, errand)) = waiting.pop_front() {
        assert!(runs.len() < 20, "the exchange does not end");
        let (state, result) = &ends[runs.len() % ends.len()];
        let ended = run(runs.len() as u128 + 1, errand, *state, Some(result));
        let first = runs.first().cloned().unwrap_or_else(|| ended.clone());
        let known = Known {
            session: &session,
            first: Some(&first),
            target: Some(&bob),
            target_runs: true,
            requester,
            is_awaited: matches!(&ended.errand, Errand::Send(send) if send.awaited_by.is_some()),
            report: None,
            cleanup: Cleanup::Keep,
            is_tree_full: false,
        };
        let follows = follow_up(&ended, &known);
        // Another node with the same facts comes to the same end.
        assert_eq!(follows, follow_up(&ended.clone(), &known.clone()));
        for follow in &follows {
            if let FollowUp::Run { session, from, errand, .. } = follow {
                assert_eq!(*from, if *session == ann { bob.clone() } else { ann.clone() });
                waiting.push_back((session.clone(), errand.clone()));
            }
        }
        runs.push(ended);
        followed.extend(follows);
    }
    (runs, followed)
}

proptest! {
    #[test]
    fn every_exchange_ends_and_no_control_word_leaves_its_transcript(
        rounds_max in 0..=5_u8,
        requester in prop::sample::select(vec![Requester::Runs, Requester::HasInbox, Requester::Nobody]),
        ends in prop::collection::vec((
            prop::sample::select(vec![
                RunState::Done, RunState::Done, RunState::Done, RunState::Done, RunState::Failed, RunState::Aborted,
            ]),
            prop::sample::select(vec![
                "yes", "no", "please REPLY_SKIP this", "REPLY_SKIP", " REPLY_SKIP\n", "ANNOUNCE_SKIP", "", " ",
            ]).prop_map(str::to_owned),
        ), 1..12),
    ) {
        let (runs, followed) = play(rounds_max, requester, &ends);
        prop_assert!(runs.len() <= usize::from(rounds_max) + 2, "{} runs", runs.len());
        for follow in &followed {
            if let FollowUp::Run { text, .. } | FollowUp::Post { text, .. } = follow {
                prop_assert!(!is_control_word(text) && !text.trim().is_empty(), "{text:?}");
            }
        }
        // Rounds alternate, and end at the first reply that ends them.
        let rounds: Vec<&Run> =
            runs.iter().filter(|run| matches!(run.errand, Errand::Round(_) | Errand::Send(_))).collect();
        for (n, run) in rounds.iter().enumerate() {
            let is_last = n + 1 == rounds.len();
            prop_assert!(is_last || words(run).is_some(), "a round after {:?}", run.result);
        }
        let announces = runs.iter().filter(|run| matches!(run.errand, Errand::Announce(_))).count();
        let is_silent = runs[0].result.as_deref().is_some_and(|reply| reply.trim() == ANNOUNCE_SKIP);
        prop_assert_eq!(announces, usize::from(runs[0].state == RunState::Done && !is_silent));
    }
}
