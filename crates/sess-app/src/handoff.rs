//! Handing a session over: what somebody else needs to go on with it, in a few pages.

use std::{collections::VecDeque, ops::ControlFlow};

use serde::Serialize;
use serde_json::{Map, Value};
use sess_core::{
    Source,
    message::{Block, Body, Provenance, Role},
    transcript::{self, Tools},
};
use sess_readers::Foreign;
use sess_store::Span;

use crate::{
    App, Caller, Error, Kind, Listed, Redaction, Result,
    context::{self, Found},
};

/// How large a bundle is: what an agent reads in one go.
const BUNDLE_SIZE_BYTES: usize = 24_000;
/// The most of it that goal, plan and decisions take, each.
const PART_SIZE_BYTES_MAX: usize = 5_000;
const DECISIONS_MAX: usize = 12;
const DECISION_SIZE_BYTES_MAX: usize = 600;
const FILES_MAX: usize = 40;
const PAGE_LEN: usize = 256;

/// Everything that goes on with a session elsewhere.
#[derive(Clone, Debug, Serialize)]
pub struct Handoff {
    pub session: Listed,
    /// The bundle, as Markdown.
    pub bundle: String,
    /// How many secrets were masked.
    pub redacted: u64,
    /// Files that the session changed, the last ones first.
    pub files: Vec<String>,
    /// The command that goes on in the session's own agent; none when that agent does not have it.
    #[serde(skip)]
    pub resume: Option<Vec<String>>,
    /// The directory to go on in; none when its name has a secret that is masked, since nobody can go there then.
    #[serde(skip)]
    pub dir: Option<String>,
}

impl App {
    /// Puts together what another agent needs to go on with a session.
    pub async fn handoff(&self, caller: &Caller, reference: &str, redaction: Redaction) -> Result<Handoff> {
        let found = self.find(caller, reference).await?;
        let redaction = context::allowed(caller, redaction);
        let mut gathered = Gathered::default();
        let mut session = self.listed(&found).await?;
        let cwd = found.cwd().map(str::to_owned);
        // Masked with all of the bundle, so that it is counted there.
        session.cwd.clone_from(&cwd);
        let plan = match &found {
            Found::Stored(stored) | Found::Foreign(_, Some(stored)) => match self.plan_of(stored).await {
                Ok(plan) => Some(plan.content),
                Err(error) if error.kind() == Kind::NotFound => None,
                Err(error) => return Err(error),
            },
            Found::Foreign(_, None) => None,
        };
        let plan = match (&found, plan) {
            (Found::Foreign(foreign, _), None) => self.kept_plan(foreign).await?,
            (_, plan) => plan,
        };
        // What the owner calls it counts before what its file says.
        let is_named = matches!(&found, Found::Foreign(_, Some(stored)) if !stored.title.is_empty());
        let resume = self.resume(&found).await?;
        // Some agents keep a sub-agent's task with the call that started it, and here only as its title.
        let is_sub_agent = matches!(&found, Found::Foreign(foreign, _) if foreign.is_sub_agent());
        gathered = match found {
            Found::Stored(stored) => {
                let store = self.store()?;
                let mut span = Span::After(0);
                loop {
                    let page = store.messages(&stored.id, span, PAGE_LEN).await?;
                    let Some(newest) = page.newest_seq() else { break gathered };
                    gathered.damaged += page.damaged.len() as u64;
                    for message in &page.messages {
                        match message.parse() {
                            Ok(body) => gathered.see(&body),
                            Err(_) => gathered.damaged += 1,
                        }
                    }
                    span = Span::After(newest);
                }
            }
            Found::Foreign(foreign, _) => {
                let (gathered, counted, title) = context::blocking(move || {
                    let mut counted = 0;
                    let read = sess_readers::read(&foreign, &mut |entry| {
                        if !entry.is_taken_back {
                            counted += u64::from(entry.body.role != Role::System);
                            gathered.see(&entry.body);
                        }
                        ControlFlow::Continue(())
                    });
                    let told = read.map_err(|error| Error::Unavailable(error.to_string()))?;
                    gathered.damaged = told.bad;
                    Ok::<_, Error>((gathered, counted, told.title))
                })
                .await??;
                // All of it was read, however long it is.
                (session.num_messages, session.num_messages_is_minimum) = (counted, false);
                if let Some(title) = title.filter(|_| !is_named) {
                    session.title = context::plain(&title);
                }
                gathered
            }
        };
        if is_sub_agent && gathered.task.is_none() && !session.title.is_empty() {
            gathered.task = Some(session.title.clone());
        }
        let files: Vec<String> = gathered.files.iter().rev().map(|file| context::plain(file)).collect();
        let (bundle, redacted) = context::masked(&gathered.bundle(&session, plan.as_deref()), redaction);
        session.cwd = cwd.as_deref().map(|cwd| context::masked(cwd, redaction).0);
        let dir = cwd.filter(|cwd| session.cwd.as_ref() == Some(cwd));
        Ok(Handoff { session, bundle, redacted, files, resume, dir })
    }

    /// Returns the command that goes on with what was found: a sub-agent's session goes on in the one above it.
    async fn resume(&self, found: &Found) -> Result<Option<Vec<String>>> {
        let mut foreign = match found {
            Found::Stored(stored) if stored.source == Source::Native => {
                return Ok(resume_command(Source::Native, stored.id.as_str()));
            }
            Found::Stored(_) => return Ok(None),
            Found::Foreign(foreign, _) => (**foreign).clone(),
        };
        let mut kept = self.look_at_agents(Some(foreign.source)).await?.sessions;
        while let Some(parent) = foreign.parent.clone() {
            // Each is taken once, so that a loop ends.
            let Some(place) = kept.iter().position(|above| above.id == parent) else { return Ok(None) };
            foreign = kept.swap_remove(place);
        }
        Ok(resume_of(&foreign))
    }

    /// Returns the plan that a session's agent keeps beside it.
    async fn kept_plan(&self, foreign: &Foreign) -> Result<Option<String>> {
        let Some(homes) = self.settings().homes.clone() else { return Ok(None) };
        let foreign = foreign.clone();
        context::blocking(move || sess_readers::kept_plan(&homes, &foreign)).await
    }
}

/// What was seen of a session on the way through it.
#[derive(Default)]
struct Gathered {
    goal: Option<String>,
    /// What another session asked for first.
    task: Option<String>,
    /// The last plan that was made on the way.
    plan: Option<String>,
    /// How many messages could not be read.
    damaged: u64,
    /// What the person said after that, the last few.
    said: VecDeque<String>,
    /// In the order in which they were last changed.
    files: Vec<String>,
    /// The last blocks of the transcript.
    last: VecDeque<String>,
    last_bytes: usize,
}

impl Gathered {
    fn see(&mut self, body: &Body) {
        let is_person =
            body.role == Role::User && matches!(body.provenance, None | Some(Provenance::ExternalUser));
        if is_person {
            let text = said(body);
            if !text.is_empty() {
                match &self.goal {
                    None => self.goal = Some(text),
                    Some(_) => self.said.push_back(text),
                }
            }
            if self.said.len() > DECISIONS_MAX {
                self.said.pop_front();
            }
        }
        let is_errand = matches!(body.provenance, Some(Provenance::InterSession { .. }));
        if body.role == Role::User && is_errand && self.task.is_none() {
            self.task = Some(said(body)).filter(|text| !text.is_empty());
        }
        for block in &body.content {
            if let Some(plan) = planned(block) {
                self.plan = Some(plan);
            }
            if let Block::ToolCall { name, arguments, .. } = block {
                changed(name, arguments, &mut |file| {
                    self.files.retain(|known| known != file);
                    self.files.push(file.to_owned());
                });
            }
        }
        if let Some(block) = transcript::block(body, Tools::Shown) {
            self.last_bytes += block.len();
            self.last.push_back(block);
        }
        while self.last.len() > 1 && self.last_bytes > 2 * BUNDLE_SIZE_BYTES {
            self.last_bytes -= self.last.pop_front().map_or(0, |block| block.len());
        }
    }

    fn bundle(&self, session: &Listed, plan: Option<&str>) -> String {
        let title = if session.title.is_empty() { "(untitled)" } else { &session.title };
        let mut text = format!("# Handoff: {title}\n\n");
        text += &format!("- session: {} ({} messages)\n", session.id, session.num_messages);
        if let Some(cwd) = &session.cwd {
            text += &format!("- directory: {cwd}\n");
        }
        text += &format!("- from {} to {}\n", session.created_at, session.updated_at);
        if self.damaged > 0 {
            let messages = if self.damaged == 1 { "message" } else { "messages" };
            text += &format!("- not readable, and left out: {} {messages}\n", self.damaged);
        }
        text += "\nThis is a record of another session. Check what it says before you rely on it.\n";
        let mut part = |heading: &str, body: &str| {
            if !body.is_empty() {
                text += &format!("\n## {heading}\n\n{}\n", transcript::cut(body, PART_SIZE_BYTES_MAX));
            }
        };
        part("Goal", self.goal.as_deref().or(self.task.as_deref()).unwrap_or_default());
        part("Plan", plan.or(self.plan.as_deref()).unwrap_or_default().trim());
        let said = self.said.iter().map(|said| {
            let said = transcript::cut(said, DECISION_SIZE_BYTES_MAX);
            format!("- {}", said.replace('\n', "\n  "))
        });
        part("Decisions: what the person said, the last at the end", &said.collect::<Vec<_>>().join("\n"));
        let files = self.files.iter().rev().take(FILES_MAX).map(|file| format!("- {file}"));
        part("Files that were changed, the last first", &files.collect::<Vec<_>>().join("\n"));
        text += "\n## Last state\n";
        let mut room = BUNDLE_SIZE_BYTES.saturating_sub(text.len());
        let mut last = Vec::new();
        for block in self.last.iter().rev() {
            let block = transcript::cut(block, BUNDLE_SIZE_BYTES / 4);
            if block.len() + 2 > room {
                break;
            }
            room -= block.len() + 2;
            // One level below the bundle's own headings.
            last.push(match block.strip_prefix("## ") {
                Some(block) => format!("### {block}"),
                None => block,
            });
        }
        for block in last.into_iter().rev() {
            text += &format!("\n{block}\n");
        }
        text
    }
}

/// Returns the words of a message, without what was attached.
fn said(body: &Body) -> String {
    let texts = body.content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.trim()),
        _ => None,
    });
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Returns the plan that an agent makes with a tool of its own, or puts in its reply as Codex does.
fn planned(block: &Block) -> Option<String> {
    let (name, arguments) = match block {
        Block::Text { text } => {
            let (_, plan) = text.split_once("<proposed_plan>")?;
            return Some(
                plan.split_once("</proposed_plan>").map_or(plan, |(plan, _)| plan).trim().to_owned(),
            );
        }
        Block::ToolCall { name, arguments, .. } => (name.to_ascii_lowercase().replace('_', ""), arguments),
        _ => return None,
    };
    match name.as_str() {
        "exitplanmode" => arguments.get("plan")?.as_str().map(str::to_owned),
        "updateplan" => {
            let steps = arguments.get("plan")?.as_array()?.iter().filter_map(|step| {
                let done = if step.get("status")?.as_str()? == "completed" { 'x' } else { ' ' };
                Some(format!("- [{done}] {}", step.get("step")?.as_str()?))
            });
            Some(steps.collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
}

/// Tells which files a tool call changes, as far as its name and arguments say.
fn changed(name: &str, arguments: &Map<String, Value>, tell: &mut dyn FnMut(&str)) {
    const CHANGES: [&str; 7] = ["write", "edit", "patch", "create", "replace", "delete", "insert"];
    const FILES: [&str; 7] =
        ["file_path", "filePath", "path", "file", "filename", "target_file", "notebook_path"];
    let name = name.to_ascii_lowercase();
    if !CHANGES.iter().any(|word| name.contains(word)) {
        return;
    }
    for field in FILES {
        if let Some(file) = arguments.get(field).and_then(Value::as_str) {
            tell(file);
        }
    }
    // A patch names its files itself.
    for patch in arguments.values().filter_map(Value::as_str) {
        for line in patch.lines() {
            let file = ["*** Update File: ", "*** Add File: ", "*** Delete File: ", "+++ b/"];
            if let Some(file) = file.iter().find_map(|start| line.strip_prefix(start)) {
                tell(file.trim());
            }
        }
    }
}

/// Returns the command that goes on with another agent's session, if that agent has it as a session of its own.
pub(crate) fn resume_of(foreign: &Foreign) -> Option<Vec<String>> {
    resume_command(foreign.source, foreign.id.as_str())
        .filter(|_| !foreign.is_sub_agent() && !foreign.is_snapshot)
}

/// Returns the command that goes on with a session in its own agent.
pub fn resume_command(source: Source, id: &str) -> Option<Vec<String>> {
    let words: &[&str] = match source {
        Source::Claude => &["claude", "--resume", id],
        Source::Codex => &["codex", "resume", id],
        Source::Gemini => &["gemini", "--resume", id],
        Source::Opencode => &["opencode", "--session", id],
        Source::Goose => &["goose", "session", "--resume", "--session-id", id],
        Source::Cursor => &["cursor-agent", "--resume", id],
        Source::Qwen => &["qwen", "--resume", id],
        Source::Copilot => &["copilot", "--resume", id],
        Source::Native => &["sess", "run", "--session", id],
        Source::DockerAgent | Source::Openclaw | Source::Zed | Source::Crush | Source::Amp => return None,
    };
    Some(words.iter().map(|word| (*word).to_owned()).collect())
}

/// Returns the command that begins a session of an agent with a prompt.
pub fn begin_command(source: Source, prompt: &str) -> Option<Vec<String>> {
    let words: &[&str] = match source {
        Source::Claude => &["claude", prompt],
        Source::Codex => &["codex", prompt],
        Source::Gemini => &["gemini", "--prompt-interactive", prompt],
        Source::Opencode => &["opencode", "--prompt", prompt],
        Source::Goose => &["goose", "run", "--interactive", "--text", prompt],
        Source::Cursor => &["cursor-agent", prompt],
        Source::Qwen => &["qwen", "--prompt-interactive", prompt],
        Source::Copilot => &["copilot", "--interactive", prompt],
        Source::Amp => &["amp", "--execute", prompt],
        Source::Crush => &["crush", "run", prompt],
        Source::Native => &["sess", "run", prompt],
        Source::DockerAgent | Source::Openclaw | Source::Zed => return None,
    };
    Some(words.iter().map(|word| (*word).to_owned()).collect())
}
