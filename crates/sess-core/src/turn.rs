//! A turn as a state machine: what comes next, given what happened. It does nothing itself.
//!
//! A driver carries out the [`Effect`]s and reports back with [`Input`]s, until
//! [`Effect::End`]. Every way through ends there, and leaves a transcript in which
//! each tool call has a result.

use std::collections::VecDeque;

use serde_json::{Map, Value};

use crate::{
    AgentId,
    agent::Limits,
    message::Usage,
    permission::{Decision, Permissions, Reach, Trust},
    run::RunState,
};

/// The most calls of one reply that are carried out.
pub const CALLS_LEN_MAX: usize = 128;
/// How many harmless tools run at the same time.
pub const PARALLEL_MAX: usize = 8;
/// Compaction begins when this part of the window is full, in percent.
const COMPACT_AT_PERCENT: u64 = 80;

/// What a turn may do, for the agent that is active.
#[derive(Clone, Debug)]
pub struct Rules {
    pub permissions: Permissions,
    pub trust: Trust,
    pub asking: Asking,
    pub limits: Limits,
    /// How many tokens the model takes in.
    pub context_window: Option<u32>,
    /// The tools the model was told about.
    pub tools: Vec<(String, Reach)>,
}

/// Whether somebody is there to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    Possible,
    /// No terminal: what no rule allows is refused.
    Nobody,
}

/// A tool call as the model made it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    pub arguments: Map<String, Value>,
    /// Why it cannot be carried out as it came.
    pub problem: Option<String>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    Begin,
    /// The next question is put together, and this large.
    Prepared {
        tokens: u64,
    },
    Replied {
        text: String,
        calls: Vec<Call>,
        usage: Usage,
        ending: Ending,
    },
    ModelFailed(Failure),
    Compacted {
        usage: Usage,
    },
    /// The person answered about this call of the reply.
    Permitted {
        call: usize,
        permit: Permit,
    },
    /// This call of the reply has its result.
    ToolEnded {
        call: usize,
        next: Next,
    },
    /// The person, or the time limit, wants the turn to end.
    Stop(StopCause),
}

/// How a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Complete,
    /// Cut off by the limit on its length.
    Length,
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    TooLong(String),
    Other(String),
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permit {
    Granted,
    /// This one, and every other call of the tool in this turn.
    Always,
    Refused(String),
}

/// What a tool's end means for the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    /// The session goes on with another agent.
    HandOff(AgentId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    Cancelled,
    TimeUp,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Put the next question together, for the agent that is active.
    Prepare,
    AskModel,
    /// Replace the model's view of what came before by a summary.
    Compact,
    /// Carry out this call of the last reply.
    Run(usize),
    /// Ask the person about this call.
    Ask(usize),
    /// Record this as the result of a call that is not carried out.
    Refuse {
        call: usize,
        reason: String,
    },
    /// Stop the model and the tools that run; they report back.
    Interrupt,
    Switch(AgentId),
    End(Verdict),
}

/// How the turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub state: RunState,
    pub error: Option<String>,
}

/// One turn. `step` is the only way on.
#[derive(Debug)]
pub struct Turn {
    rules: Rules,
    phase: Phase,
    asked_model: u32,
    usage: Usage,
    /// How much the last question and its reply took, in the provider's own count.
    reported: u64,
    /// The model has said or done something in this turn.
    has_spoken: bool,
    /// The question did not fit, and was compacted once for that.
    was_too_long: bool,
    was_compacted: bool,
    calls: Vec<Call>,
    waiting: VecDeque<usize>,
    running: Vec<usize>,
    hand_off: Option<AgentId>,
    stop: Option<StopCause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Preparing,
    Compacting,
    AtModel,
    /// Tools run or wait; with a call the person is asked about.
    AtTools {
        asking: Option<usize>,
    },
    Ended,
}

impl Turn {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            phase: Phase::New,
            asked_model: 0,
            usage: Usage::default(),
            reported: 0,
            has_spoken: false,
            was_too_long: false,
            was_compacted: false,
            calls: Vec::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            hand_off: None,
            stop: None,
        }
    }

    /// What the model's calls have taken so far.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The calls of the last reply.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Another agent is active from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        if self.phase == Phase::Ended {
            return Vec::new();
        }
        match input {
            Input::Begin => self.prepare(),
            Input::Prepared { tokens } => self.prepared(tokens),
            Input::Replied { text, calls, usage, ending } => self.replied(&text, calls, &usage, ending),
            Input::ModelFailed(failure) => self.model_failed(failure),
            Input::Compacted { usage } => {
                add(&mut self.usage, &usage);
                (self.was_compacted, self.reported) = (true, 0);
                self.prepare()
            }
            Input::Permitted { call, permit } => self.permitted(call, &permit),
            Input::ToolEnded { call, next } => {
                self.running.retain(|running| *running != call);
                if let Next::HandOff(agent) = next {
                    self.hand_off = Some(agent);
                }
                self.go_on()
            }
            Input::Stop(cause) => self.stopped(cause),
        }
    }

    /// The next question, unless a limit is reached.
    fn prepare(&mut self) -> Vec<Effect> {
        if let Some(cause) = self.stop {
            return self.end_stopped(cause);
        }
        if let Some(limit) = self.reached_limit() {
            return self.end(RunState::Failed, Some(limit));
        }
        self.phase = Phase::Preparing;
        vec![Effect::Prepare]
    }

    fn reached_limit(&self) -> Option<String> {
        let Limits { turns, tokens, cost, seconds: _ } = self.rules.limits;
        let used = self.usage.input + self.usage.output + self.usage.cache_read + self.usage.cache_write;
        if self.asked_model >= turns {
            return Some(format!("stopped after {turns} calls of the model (limits.turns)"));
        }
        if let Some(most) = tokens
            && used >= most
        {
            return Some(format!("stopped after {used} tokens, the most is {most} (limits.tokens)"));
        }
        match (cost, self.usage.cost) {
            (Some(most), Some(spent)) if spent >= most => {
                Some(format!("stopped after a cost of {spent:.4}, the most is {most} (limits.cost)"))
            }
            _ => None,
        }
    }

    fn prepared(&mut self, tokens: u64) -> Vec<Effect> {
        if let Some(cause) = self.stop {
            return self.end_stopped(cause);
        }
        let tokens = tokens.max(self.reported);
        let is_filling = self.rules.context_window.is_some_and(|window| {
            tokens.saturating_mul(100) >= u64::from(window).saturating_mul(COMPACT_AT_PERCENT)
        });
        // Once in a row: what is still too long then is the provider's to refuse.
        if is_filling && !self.was_compacted {
            self.phase = Phase::Compacting;
            return vec![Effect::Compact];
        }
        self.was_compacted = false;
        self.asked_model += 1;
        self.phase = Phase::AtModel;
        vec![Effect::AskModel]
    }

    fn replied(&mut self, text: &str, calls: Vec<Call>, usage: &Usage, ending: Ending) -> Vec<Effect> {
        add(&mut self.usage, usage);
        self.was_too_long = false;
        self.reported = usage.input + usage.cache_read + usage.cache_write + usage.output;
        let is_empty = text.trim().is_empty() && calls.is_empty();
        if is_empty && !self.has_spoken && ending == Ending::Complete {
            return self.end(RunState::Failed, Some("the model's reply was empty".to_owned()));
        }
        self.has_spoken = true;
        self.calls = calls;
        self.waiting = (0..self.calls.len()).collect();
        self.phase = Phase::AtTools { asking: None };
        if self.calls.is_empty() {
            return match (self.stop, ending) {
                (Some(cause), _) => self.end_stopped(cause),
                (None, Ending::Complete) => self.end(RunState::Done, None),
                (None, Ending::Length) => {
                    let error = "the reply was cut off by the limit on its length (max_tokens)";
                    self.end(RunState::Failed, Some(error.to_owned()))
                }
                (None, Ending::Refused) => {
                    self.end(RunState::Failed, Some("the provider refused to go on".to_owned()))
                }
            };
        }
        self.go_on()
    }

    fn model_failed(&mut self, failure: Failure) -> Vec<Effect> {
        if let Some(cause) = self.stop {
            return self.end_stopped(cause);
        }
        match failure {
            Failure::TooLong(_) if !self.was_too_long && self.phase == Phase::AtModel => {
                self.was_too_long = true;
                self.phase = Phase::Compacting;
                vec![Effect::Compact]
            }
            Failure::TooLong(reason) | Failure::Other(reason) => self.end(RunState::Failed, Some(reason)),
            Failure::Cancelled => self.end_stopped(StopCause::Cancelled),
        }
    }

    fn permitted(&mut self, call: usize, permit: &Permit) -> Vec<Effect> {
        if self.phase != (Phase::AtTools { asking: Some(call) }) {
            return Vec::new();
        }
        self.phase = Phase::AtTools { asking: None };
        let mut effects = match permit {
            _ if self.stop.is_some() => vec![Effect::Refuse { call, reason: INTERRUPTED.to_owned() }],
            Permit::Granted | Permit::Always => {
                if *permit == Permit::Always {
                    self.rules.permissions.always.push(self.calls[call].name.clone());
                }
                self.running.push(call);
                vec![Effect::Run(call)]
            }
            Permit::Refused(reason) => vec![Effect::Refuse { call, reason: reason.clone() }],
        };
        effects.extend(self.go_on());
        effects
    }

    /// Starts what may start now; goes back to the model when all calls have their result.
    fn go_on(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Phase::AtTools { asking: None } = self.phase
            && let Some(&call) = self.waiting.front()
        {
            match self.gate(call) {
                Gate::Refuse(reason) => effects.push(Effect::Refuse { call, reason }),
                // Whatever changes something runs alone, in the order it was asked for.
                Gate::Alone if !self.running.is_empty() => break,
                Gate::Together if self.running.len() >= PARALLEL_MAX || self.is_one_alone() => break,
                Gate::Alone | Gate::Together => {
                    self.running.push(call);
                    effects.push(Effect::Run(call));
                }
                Gate::Ask if !self.running.is_empty() => break,
                Gate::Ask => {
                    self.phase = Phase::AtTools { asking: Some(call) };
                    effects.push(Effect::Ask(call));
                }
            }
            self.waiting.pop_front();
        }
        let is_idle = self.waiting.is_empty() && self.running.is_empty();
        if self.phase != (Phase::AtTools { asking: None }) || !is_idle {
            return effects;
        }
        if let Some(agent) = self.hand_off.take() {
            effects.push(Effect::Switch(agent));
        }
        effects.extend(self.prepare());
        effects
    }

    fn is_one_alone(&self) -> bool {
        self.running.iter().any(|call| self.reach(&self.calls[*call].name) != Some(Reach::Harmless))
    }

    fn reach(&self, tool: &str) -> Option<Reach> {
        self.rules.tools.iter().find(|(name, _)| name == tool).map(|(_, reach)| *reach)
    }

    fn gate(&self, index: usize) -> Gate {
        let call = &self.calls[index];
        if self.stop.is_some() {
            return Gate::Refuse(INTERRUPTED.to_owned());
        }
        if index >= CALLS_LEN_MAX {
            return Gate::Refuse(format!("not done: a reply may have at most {CALLS_LEN_MAX} tool calls"));
        }
        let Some(reach) = self.reach(&call.name) else {
            let known: Vec<&str> = self.rules.tools.iter().map(|(name, _)| name.as_str()).collect();
            let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
            return Gate::Refuse(format!("unknown tool \"{}\"; the tools are: {known}", call.name));
        };
        if let Some(problem) = &call.problem {
            return Gate::Refuse(problem.clone());
        }
        let rules = &self.rules;
        match (rules.permissions.decide(rules.trust, &call.name, reach, &call.arguments), rules.asking) {
            (Decision::Deny(rule), _) => {
                Gate::Refuse(format!("refused by the rule \"{rule}\" of permissions.deny"))
            }
            (Decision::Ask, Asking::Nobody) => Gate::Refuse(format!(
                "refused: nobody is there to be asked; `permissions.allow` or --yolo would allow {}",
                call.name
            )),
            (Decision::Ask, Asking::Possible) => Gate::Ask,
            (Decision::Allow, _) => match reach {
                Reach::Harmless => Gate::Together,
                Reach::Own | Reach::World => Gate::Alone,
            },
        }
    }

    fn stopped(&mut self, cause: StopCause) -> Vec<Effect> {
        if self.stop.is_some() {
            return Vec::new();
        }
        self.stop = Some(cause);
        let mut effects = vec![Effect::Interrupt];
        match self.phase {
            // Whoever is at work reports back, and the turn ends then.
            Phase::AtModel | Phase::Compacting | Phase::Preparing | Phase::Ended => {}
            Phase::New => effects.extend(self.end_stopped(cause)),
            Phase::AtTools { asking } => {
                if let Some(call) = asking {
                    self.phase = Phase::AtTools { asking: None };
                    effects.push(Effect::Refuse { call, reason: INTERRUPTED.to_owned() });
                }
                effects.extend(self.go_on());
            }
        }
        effects
    }

    fn end_stopped(&mut self, cause: StopCause) -> Vec<Effect> {
        match cause {
            StopCause::Cancelled => self.end(RunState::Cancelled, Some("cancelled".to_owned())),
            StopCause::TimeUp => {
                let seconds = self.rules.limits.seconds.unwrap_or(0);
                let error = format!("stopped after {seconds} s (limits.seconds or runTimeoutSeconds)");
                self.end(RunState::TimedOut, Some(error))
            }
        }
    }

    fn end(&mut self, state: RunState, error: Option<String>) -> Vec<Effect> {
        self.phase = Phase::Ended;
        vec![Effect::End(Verdict { state, error })]
    }
}

/// The result of a call that the end of the turn kept from being carried out.
pub const INTERRUPTED: &str = "not done: the turn was stopped";

enum Gate {
    Alone,
    Together,
    Ask,
    Refuse(String),
}

/// Adds what one call took to what the calls before it took.
pub fn add(total: &mut Usage, more: &Usage) {
    total.input += more.input;
    total.output += more.output;
    total.cache_read += more.cache_read;
    total.cache_write += more.cache_write;
    total.cost = match (total.cost, more.cost) {
        (None, None) => None,
        (one, other) => Some(one.unwrap_or(0.0) + other.unwrap_or(0.0)),
    };
}

#[cfg(test)]
mod tests;
