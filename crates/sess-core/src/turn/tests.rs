//! Turns as plain text: what happened in, what to do out.

use proptest::prelude::*;

use super::*;

fn rules() -> Rules {
    Rules {
        permissions: Permissions {
            deny: vec!["burn".parse().expect("a rule")],
            allow: vec!["write".parse().expect("a rule")],
            ..Permissions::default()
        },
        trust: Trust::Ask,
        asking: Asking::Possible,
        limits: Limits { turns: 4, tokens: Some(10_000), cost: None, seconds: Some(9) },
        context_window: Some(1_000),
        tools: [
            ("read", Reach::Harmless),
            ("plan", Reach::Own),
            ("write", Reach::World),
            ("shell", Reach::World),
            ("burn", Reach::World),
        ]
        .map(|(name, reach)| (name.to_owned(), reach))
        .to_vec(),
    }
}

fn reply(text: &str, calls: &[&str]) -> Input {
    let call = |(n, name): (usize, &&str)| Call {
        id: format!("c{n}"),
        name: (*name).to_owned(),
        arguments: Map::new(),
        problem: name.ends_with('!').then(|| "malformed".to_owned()),
    };
    Input::Replied {
        text: text.to_owned(),
        calls: calls.iter().enumerate().map(call).collect(),
        usage: Usage { input: 10, output: 5, ..Usage::default() },
        ending: Ending::Complete,
    }
}

fn ended(call: usize) -> Input {
    Input::ToolEnded { call, next: Next::GoOn }
}

fn shown(effects: &[Effect]) -> String {
    let one = |effect: &Effect| match effect {
        Effect::Prepare => "prepare".to_owned(),
        Effect::AskModel => "model".to_owned(),
        Effect::Compact => "compact".to_owned(),
        Effect::Run(call) => format!("run {call}"),
        Effect::Ask(call) => format!("ask {call}"),
        Effect::Refuse { call, reason } => format!("refuse {call}: {reason}"),
        Effect::Interrupt => "interrupt".to_owned(),
        Effect::Switch(agent) => format!("switch to {agent}"),
        Effect::End(verdict) => {
            format!("{}{}", verdict.state, verdict.error.as_ref().map_or(String::new(), |e| format!(": {e}")))
        }
    };
    effects.iter().map(one).collect::<Vec<_>>().join(" | ")
}

/// Plays the inputs and compares the effects of each.
#[track_caller]
fn check(rules: Rules, story: &[(Input, &str)]) {
    let mut turn = Turn::new(rules);
    for (n, (input, expected)) in story.iter().enumerate() {
        assert_eq!(shown(&turn.step(input.clone())), *expected, "step {n}: {input:?}");
    }
}

const PREPARED: Input = Input::Prepared { tokens: 100 };

#[test]
fn a_reply_without_calls_ends_the_turn() {
    check(rules(), &[(Input::Begin, "prepare"), (PREPARED, "model"), (reply("hello", &[]), "done")]);
}

#[test]
fn harmless_calls_run_together_and_others_alone_in_their_order() {
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply("", &["read", "read", "write", "read"]), "run 0 | run 1"),
            (ended(1), ""),
            (ended(0), "run 2"),
            (ended(2), "run 3"),
            (ended(3), "prepare"),
            (PREPARED, "model"),
            (reply("", &[]), "done"),
        ],
    );
}

#[test]
fn what_changes_the_session_runs_in_order_and_is_not_asked_about() {
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply("", &["read", "plan", "plan", "read"]), "run 0"),
            (ended(0), "run 1"),
            (ended(1), "run 2"),
            (ended(2), "run 3"),
        ],
    );
}

#[test]
fn the_person_is_asked_before_the_world_is_touched() {
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply("", &["shell", "shell", "burn"]), "ask 0"),
            (Input::Permitted { call: 0, permit: Permit::Granted }, "run 0"),
            (ended(0), "ask 1"),
            (
                Input::Permitted { call: 1, permit: Permit::Refused("not now".to_owned()) },
                "refuse 1: not now | refuse 2: refused by the rule \"burn\" of permissions.deny | prepare",
            ),
        ],
    );
}

#[test]
fn what_is_always_allowed_is_asked_about_once() {
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply("", &["shell", "shell"]), "ask 0"),
            (Input::Permitted { call: 0, permit: Permit::Always }, "run 0"),
            (ended(0), "run 1"),
        ],
    );
}

#[test]
fn without_anybody_to_ask_the_answer_is_no() {
    let nobody = Rules { asking: Asking::Nobody, ..rules() };
    check(
        nobody,
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (
                reply("", &["shell", "write"]),
                "refuse 0: refused: nobody is there to be asked; `permissions.allow` or --yolo would allow shell \
                 | run 1",
            ),
        ],
    );
    let trusted = Rules { asking: Asking::Nobody, trust: Trust::All, ..rules() };
    check(
        trusted,
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (
                reply("", &["burn", "shell"]),
                "refuse 0: refused by the rule \"burn\" of permissions.deny | run 1",
            ),
        ],
    );
}

#[test]
fn calls_that_make_no_sense_get_an_answer_that_says_so() {
    check(
        Rules {
            tools: vec![("read".to_owned(), Reach::Harmless), ("read!".to_owned(), Reach::Harmless)],
            ..rules()
        },
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (
                reply("", &["fly", "read!"]),
                "refuse 0: unknown tool \"fly\"; the tools are: read, read! | refuse 1: malformed | prepare",
            ),
        ],
    );
    let many: Vec<&str> = vec!["read"; CALLS_LEN_MAX + 1];
    let mut turn = Turn::new(rules());
    turn.step(Input::Begin);
    turn.step(PREPARED);
    assert_eq!(turn.step(reply("", &many)).len(), PARALLEL_MAX);
    for call in 0..CALLS_LEN_MAX - 1 {
        turn.step(ended(call));
    }
    let told = shown(&turn.step(ended(CALLS_LEN_MAX - 1)));
    assert_eq!(told, "prepare", "the last one was refused when its turn came");
}

#[test]
fn an_empty_reply_is_a_failure_only_when_nothing_was_said_before() {
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply(" ", &[]), "failed: the model's reply was empty"),
            (PREPARED, ""),
        ],
    );
}

#[test]
fn a_reply_that_was_cut_off_or_refused_is_a_failure() {
    for (ending, told) in [
        (Ending::Length, "failed: the reply was cut off by the limit on its length (max_tokens)"),
        (Ending::Refused, "failed: the provider refused to go on"),
    ] {
        let Input::Replied { text, calls, usage, .. } = reply("half", &[]) else { unreachable!("a reply") };
        check(
            rules(),
            &[
                (Input::Begin, "prepare"),
                (PREPARED, "model"),
                (Input::Replied { text, calls, usage, ending }, told),
            ],
        );
    }
}

#[test]
fn limits_end_the_turn_by_their_name() {
    let few = Rules { limits: Limits { turns: 1, ..rules().limits }, ..rules() };
    check(
        few,
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply("", &["read"]), "run 0"),
            (ended(0), "failed: stopped after 1 calls of the model (limits.turns)"),
        ],
    );
    let small = Rules { limits: Limits { tokens: Some(15), ..rules().limits }, ..rules() };
    check(
        small,
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply("", &["read"]), "run 0"),
            (ended(0), "failed: stopped after 15 tokens, the most is 15 (limits.tokens)"),
        ],
    );
}

#[test]
fn the_window_is_compacted_before_it_is_full_and_when_the_provider_says_so() {
    let compacted = Input::Compacted { usage: Usage::default() };
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (Input::Prepared { tokens: 799 }, "model"),
            (reply("", &["read"]), "run 0"),
            (ended(0), "prepare"),
            (Input::Prepared { tokens: 800 }, "compact"),
            (compacted.clone(), "prepare"),
            (Input::Prepared { tokens: 900 }, "model"),
            (Input::ModelFailed(Failure::TooLong("too long".to_owned())), "compact"),
            (compacted, "prepare"),
            (Input::Prepared { tokens: 900 }, "model"),
            (Input::ModelFailed(Failure::TooLong("too long".to_owned())), "failed: too long"),
        ],
    );
}

#[test]
fn the_providers_own_count_fills_the_window_too() {
    let Input::Replied { text, calls, ending, .. } = reply("", &["read"]) else { unreachable!("a reply") };
    let usage = Usage { input: 790, output: 10, ..Usage::default() };
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (Input::Replied { text, calls, usage, ending }, "run 0"),
            (ended(0), "prepare"),
            (PREPARED, "compact"),
            (Input::Compacted { usage: Usage::default() }, "prepare"),
            (PREPARED, "model"),
        ],
    );
}

#[test]
fn a_handoff_happens_when_all_calls_have_their_result() {
    let planner: AgentId = "planner".parse().expect("an id");
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply("", &["read", "read"]), "run 0 | run 1"),
            (Input::ToolEnded { call: 0, next: Next::HandOff(planner) }, ""),
            (ended(1), "switch to planner | prepare"),
        ],
    );
}

#[test]
fn a_stop_waits_for_what_runs_and_answers_for_what_does_not() {
    let stop = Input::Stop(StopCause::Cancelled);
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply("", &["read", "shell"]), "run 0"),
            (stop.clone(), "interrupt | refuse 1: not done: the turn was stopped"),
            (stop.clone(), ""),
            (ended(0), "cancelled: cancelled"),
        ],
    );
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (reply("", &["shell"]), "ask 0"),
            (
                Input::Stop(StopCause::TimeUp),
                "interrupt | refuse 0: not done: the turn was stopped | timed_out: stopped after 9 s (limits.seconds or runTimeoutSeconds)",
            ),
        ],
    );
    check(
        rules(),
        &[
            (Input::Begin, "prepare"),
            (PREPARED, "model"),
            (stop, "interrupt"),
            (Input::ModelFailed(Failure::Cancelled), "cancelled: cancelled"),
        ],
    );
}

/// What a driver owes the machine.
#[derive(Default)]
struct Owed {
    model: bool,
    prepare: bool,
    compact: bool,
    running: Vec<usize>,
    asking: Option<usize>,
    answered: usize,
    has_ended: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever the model, the tools and the person do, the turn ends, every call gets one
    /// result, and nothing that changes the world runs beside anything else.
    #[test]
    fn every_turn_ends_with_a_result_for_every_call(choices in prop::collection::vec(0_u8..=255, 1..200)) {
        let mut turn = Turn::new(rules());
        let mut owed = Owed::default();
        let mut choices = choices.into_iter().chain(std::iter::repeat(0));
        let mut effects = turn.step(Input::Begin);
        let mut calls = 0;
        for _ in 0..2_000 {
            for effect in effects {
                prop_assert!(!owed.has_ended, "nothing follows the end");
                match effect {
                    Effect::Prepare => owed.prepare = true,
                    Effect::AskModel => owed.model = true,
                    Effect::Compact => owed.compact = true,
                    Effect::Run(call) => {
                        let is_world = |call: usize| !turn.calls()[call].name.starts_with("read");
                        prop_assert!(!is_world(call) || owed.running.is_empty());
                        prop_assert!(!owed.running.iter().any(|other| is_world(*other)));
                        owed.running.push(call);
                    }
                    Effect::Ask(call) => owed.asking = Some(call),
                    Effect::Refuse { .. } => owed.answered += 1,
                    Effect::Interrupt => owed.asking = None,
                    Effect::Switch(_) => {}
                    Effect::End(_) => owed.has_ended = true,
                }
            }
            if owed.has_ended {
                break;
            }
            let choice = choices.next().unwrap_or(0);
            let input = if choice == 255 {
                Input::Stop(StopCause::Cancelled)
            } else if std::mem::take(&mut owed.prepare) {
                Input::Prepared { tokens: u64::from(choice) * 5 }
            } else if std::mem::take(&mut owed.compact) {
                Input::Compacted { usage: Usage::default() }
            } else if std::mem::take(&mut owed.model) {
                prop_assert_eq!(owed.answered, calls, "all calls were answered");
                let names = ["read", "write", "shell", "burn", "fly", "read!"];
                let made: Vec<&str> = (0..usize::from(choice % 7)).map(|n| names[(n + usize::from(choice)) % 6]).collect();
                if choice % 50 == 49 {
                    Input::ModelFailed(Failure::TooLong("long".to_owned()))
                } else {
                    calls += made.len();
                    reply(if choice % 3 == 0 { "text" } else { "" }, &made)
                }
            } else if let Some(call) = owed.asking.take() {
                let permit = if choice % 2 == 0 { Permit::Granted } else { Permit::Refused("no".to_owned()) };
                Input::Permitted { call, permit }
            } else {
                prop_assert!(!owed.running.is_empty(), "somebody is at work");
                owed.answered += 1;
                ended(owed.running.remove(usize::from(choice) % owed.running.len()))
            };
            effects = turn.step(input);
        }
        prop_assert!(owed.has_ended);
        prop_assert_eq!(owed.answered, calls);
        prop_assert!(owed.running.is_empty());
    }
}
