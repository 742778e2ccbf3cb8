//! A stage for `sess run --exec`: a world, a configuration, and a model API that answers from a script.

use std::{
    process::{Command, Stdio},
    sync::mpsc,
};

use serde_json::Value;
use stub_models::{Recorded, Reply, Script, Stub};

use crate::world::{Beside, Run, World};

pub use Api::{Anthropic, Chat, Responses};

/// The words that the model answers with [`AGAIN`], whatever came before.
pub const AGAIN: &str = "Here again.";
/// A key that must never be seen.
pub const KEY: &str = "sk-ant-REDACTED";
pub const APIS: [Api; 3] = [Anthropic, Chat, Responses];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Anthropic,
    Chat,
    Responses,
}

pub struct Stage {
    pub world: World,
    pub stub: Stub,
    /// The stub's runtime ends with it.
    _end: tokio::sync::oneshot::Sender<()>,
}

/// One agent with every tool of ours.
pub const ROOT: &str = "
agents:
  root:
    model: m
    instruction: You are the root.
    toolsets: [{type: session_plan}, {type: filesystem}, {type: shell, timeout: 20}, {type: user_prompt}]
";

impl Stage {
    /// An agent with every tool, and what its model says.
    pub fn new(api: Api, script: &str) -> Self {
        Self::with(api, ROOT, script)
    }

    /// `config` may use the models `m` and, with context windows of 2000 and 20000 tokens, `small` and `middle`.
    pub fn with(api: Api, config: &str, script: &str) -> Self {
        let mut script = Script::parse(script).expect(script);
        script.replies.insert(0, Reply::text(AGAIN).when("once more"));
        let (sender, started) = mpsc::sync_channel(1);
        let (end, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                sender.send(Stub::start(script).await.expect("a port")).expect("awaited");
                let _dropped = ended.await;
            });
        });
        let stub = started.recv().expect("a stub");
        let world = World::new();
        let (provider, url) = match api {
            Anthropic => ("anthropic", stub.url.clone()),
            Chat => ("openai, api: chat", format!("{}/v1", stub.url)),
            Responses => ("openai, api: responses", format!("{}/v1", stub.url)),
        };
        let model = format!("provider: {provider}, model: stub-1, base_url: \"{url}\", token_key: STUB_KEY");
        let price = "price: {input: 1000000, output: 1000000}";
        let models = format!(
            "models:\n  m: {{{model}, {price}}}\n  small: {{{model}, context_window: 2000}}\n  \
             middle: {{{model}, context_window: 20000}}\n"
        );
        world.write("agents.yaml", &(models + config));
        Self { world, stub, _end: end }
    }

    pub fn command(&self, options: &[&str], message: &str) -> Command {
        let args = ["run", "agents.yaml", "--exec", "--session", "s1"].iter().chain(options).copied();
        let mut command = self.world.command(args.chain([message]));
        command.env("STUB_KEY", KEY).stdin(Stdio::null());
        command
    }

    /// Says something in session `s1`, and waits for the end.
    pub fn say(&self, options: &[&str], message: &str) -> Run {
        let run: Run = self.command(options, message).output().expect("sess starts").into();
        for seen in [&run.stdout, &run.stderr] {
            assert!(!seen.contains("panicked") && !seen.contains(KEY), "{run:?}");
        }
        run
    }

    /// Says what is answered well; returns the answer.
    #[track_caller]
    pub fn ok(&self, options: &[&str], message: &str) -> String {
        let run = self.say(options, message);
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout
    }

    /// Says what does not end well: the exit code, and what is said about it.
    #[track_caller]
    pub fn fails(&self, options: &[&str], message: &str, code: i32, said: &str) {
        let run = self.say(options, message);
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.stderr.contains(said), "expected {said:?} in {run:?}");
    }

    /// Says something with `--json`; returns the exit code and the events.
    pub fn events(&self, options: &[&str], message: &str) -> (i32, Vec<Value>) {
        let options: Vec<&str> = options.iter().copied().chain(["--json"]).collect();
        let run = self.say(&options, message);
        (run.code, events(&run.stdout))
    }

    pub fn beside(&self, options: &[&str], message: &str) -> Beside {
        let options: Vec<&str> = options.iter().copied().chain(["--json"]).collect();
        Beside::start(self.command(&options, message))
    }

    /// The session goes on, and the model was never shown what its API refuses.
    #[track_caller]
    pub fn goes_on(&self) {
        assert_eq!(self.ok(&[], "once more"), format!("{AGAIN}\n"));
        self.nothing_was_refused();
    }

    #[track_caller]
    pub fn nothing_was_refused(&self) {
        for request in self.stub.requests() {
            assert_ne!(request.status, 400, "{:#}", request.body);
        }
    }

    /// What the model was asked last.
    pub fn last_request(&self) -> Recorded {
        self.stub.requests().pop().expect("a request")
    }

    /// The transcript of `s1`, as its messages.
    pub fn transcript(&self) -> Vec<Value> {
        self.transcript_of("s1")
    }

    pub fn transcript_of(&self, session: &str) -> Vec<Value> {
        let text = self.world.ok(["export", session]);
        text.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The results of tools in `s1`: each text, and whether it is an error.
    pub fn results(&self) -> Vec<(String, bool)> {
        results(&self.transcript())
    }
}

#[track_caller]
pub fn events(stdout: &str) -> Vec<Value> {
    let events: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    for event in &events {
        assert_eq!(event["schema_version"], 1, "{event}");
        assert!(event["type"].is_string(), "{event}");
    }
    events
}

pub fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

pub fn results(transcript: &[Value]) -> Vec<(String, bool)> {
    let results = transcript.iter().filter(|message| message["role"] == "toolResult");
    results.map(|message| (text_of(message), message["isError"] == true)).collect()
}

pub fn text_of(message: &Value) -> String {
    let blocks = message["content"].as_array().cloned().unwrap_or_default();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}
