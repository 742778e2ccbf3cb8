//! The toolset `shell`: one command line at a time, with an end and a limit to what it prints.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sess_core::permission::Reach;
use tokio_util::sync::CancellationToken;

use crate::{
    confine::Confinement,
    process::{self, End, Kept, Launch},
    tool::{ANSWER_BYTES_MAX, ToolDef, ToolOutput, Toolbox, capped},
};

/// How long a command may run when nobody says.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that a model may ask for.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Room that is left in an answer for what is said about it.
const NOTES_BYTES: usize = 500;

/// Runs commands in one directory.
pub struct Shell {
    root: PathBuf,
    env: Vec<(String, String)>,
    timeout: Duration,
    confinement: Option<Arc<Confinement>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    cmd: String,
    cwd: Option<String>,
    timeout: Option<u64>,
}

impl Shell {
    /// `env` is all that a command sees; secrets in it are left out. `timeout` is [`TIMEOUT`] if not given.
    pub fn new(
        root: PathBuf,
        env: Vec<(String, String)>,
        timeout: Option<Duration>,
        confinement: Option<Arc<Confinement>>,
    ) -> Self {
        let env = without_secrets(env);
        Self { root, env, timeout: timeout.unwrap_or(TIMEOUT), confinement }
    }

    async fn run(&self, args: Args, cancel: &CancellationToken) -> Result<ToolOutput, String> {
        let cwd = self.directory(args.cwd.as_deref().unwrap_or("."))?;
        let longest = TIMEOUT_MAX.max(self.timeout);
        let timeout = args.timeout.map_or(self.timeout, |seconds| Duration::from_secs(seconds).min(longest));
        if args.cmd.contains('\0') {
            return Err("a command cannot hold a NUL character".to_owned());
        }
        let launch = Launch {
            program: PathBuf::from("/bin/sh"),
            args: vec![OsString::from("-c"), OsString::from(&args.cmd)],
            env: self.env.clone(),
            cwd,
        };
        let launch = match &self.confinement {
            Some(confinement) => confinement.launch(launch),
            None => launch,
        };
        let mut command = launch.command();
        let not_started = |error: std::io::Error| format!("the shell could not be started: {error}");
        let output = process::joined_output(&mut command).map_err(not_started)?;
        let child = command.spawn().map_err(not_started)?;
        // It holds the child's end of the pipe, which would never end.
        drop(command);
        let mut kept = Kept::new(ANSWER_BYTES_MAX - NOTES_BYTES);
        let end = process::run(child, output, &mut kept, timeout, cancel).await;
        let mut text = kept.text();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(match end {
            Err(error) => ToolOutput::error(capped(format!("{text}[lost: {error}]"))),
            Ok(End::Cancelled) => ToolOutput::error(capped(format!("{text}[cancelled]"))),
            Ok(End::TimedOut) => {
                let seconds = timeout.as_secs();
                ToolOutput::error(capped(format!("{text}[killed: it took longer than {seconds} seconds]")))
            }
            Ok(End::Exited(status)) => {
                use std::os::unix::process::ExitStatusExt as _;

                let told = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("[exit status {code}]"),
                    (None, Some(signal)) => format!("[ended by signal {signal}]"),
                    (None, None) => "[ended]".to_owned(),
                };
                ToolOutput {
                    text: capped(format!("{text}{told}")),
                    is_error: !status.success(),
                    ..ToolOutput::default()
                }
            }
        })
    }

    fn directory(&self, cwd: &str) -> Result<PathBuf, String> {
        let root = fs::canonicalize(&self.root)
            .map_err(|error| format!("the workspace {} cannot be opened: {error}", self.root.display()))?;
        let asked = fs::canonicalize(root.join(Path::new(cwd))).map_err(|error| format!("{cwd}: {error}"))?;
        if !asked.starts_with(&root) {
            return Err(format!("{cwd} leads outside the workspace {}", self.root.display()));
        }
        Ok(asked)
    }
}

#[async_trait]
impl Toolbox for Shell {
    async fn tools(&self) -> Vec<ToolDef> {
        let schema = json!({
            "type": "object",
            "properties": {
                "cmd": { "type": "string", "description": "The command line, for sh." },
                "cwd": { "type": "string", "description": "Where to run it, inside the workspace." },
                "timeout": {
                    "type": "integer", "minimum": 1,
                    "description": format!("Seconds until it is killed; {} if not given.", self.timeout.as_secs()),
                },
            },
            "required": ["cmd"],
            "additionalProperties": false,
        });
        let Value::Object(input_schema) = schema else { unreachable!("written as an object above") };
        vec![ToolDef {
            name: "shell".to_owned(),
            description: "Run a command line with sh in the workspace. It gets no input and no terminal; the \
                          answer is what it printed and its exit status. Whatever it started ends with it, also \
                          in the background."
                .to_owned(),
            input_schema,
            reach: Reach::World,
        }]
    }

    async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        cancel: &CancellationToken,
    ) -> ToolOutput {
        if name != "shell" {
            return ToolOutput::error(format!("there is no tool {name} here"));
        }
        match serde_json::from_value(Value::Object(arguments)) {
            Ok(args) => self.run(args, cancel).await.unwrap_or_else(ToolOutput::error),
            Err(error) => ToolOutput::error(format!("the arguments of shell are not valid: {error}")),
        }
    }
}

/// Leaves out what a command has no business to know: our own settings, keys, tokens, passwords.
pub fn without_secrets(mut env: Vec<(String, String)>) -> Vec<(String, String)> {
    // The whole name, or its last word.
    const WORDS: [&str; 12] = [
        "KEY",
        "APIKEY",
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "PAT",
        "DSN",
        "AUTH",
    ];
    const NAMES: [&str; 2] = ["PGPASSWORD", "DATABASE_URL"];
    // Which store, and that an agent calls.
    const KEPT: [&str; 2] = ["SESS_HOME", "SESS_SESSION"];
    env.retain(|(name, _)| {
        let name = name.to_ascii_uppercase();
        let is_ours = name.starts_with("SESS_") && !KEPT.contains(&name.as_str());
        let last = name.rsplit('_').next().unwrap_or_default();
        !is_ours
            && !NAMES.contains(&name.as_str())
            && !WORDS.contains(&last)
            && !name.contains("API_KEY")
            && !name.contains("SECRET")
    });
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_see_no_keys() {
        let env = [
            "PATH",
            "LANG",
            "SESS_SESSION",
            "SESS_TOKEN",
            "ANTHROPIC_API_KEY",
            "GITHUB_TOKEN",
            "aws_secret_x",
            "TOKEN",
            "password",
            "KEY",
        ];
        let env = env.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect();
        let left: Vec<String> = without_secrets(env).into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, ["PATH", "LANG", "SESS_SESSION"]);
    }
}
