//! `sessions_spawn`: a task for an agent, in a session of its own.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sess_agent::files::attachments;
use sess_core::{
    AgentId, MessageId, RunId, SessionKey, Source,
    agent::Team,
    digest::sha256,
    message::{Body, Provenance, Role},
    policy::{Confinement, Standing},
    run::{Errand, Run, Spawn},
    session::{Channel, Facts, NewSession},
    spawn::{self, Approved, Asked, AskedFile, Refusal, Spawner},
};
use sess_store::{Cap, Full, NewMessage, NewRun, RequestKey};

use crate::{
    App, Caller, Configured, Error, Result,
    requests::request_key,
    sending::{lineage_for, refused},
};

/// What a spawn asks for, as it came: the checks have an order.
#[derive(Clone, Debug, Default)]
pub struct SpawnTask {
    pub task: String,
    pub label: Option<String>,
    pub agent_id: Option<String>,
    pub model: Option<String>,
    pub thinking: Option<String>,
    pub run_timeout_seconds: Option<u64>,
    pub thread: bool,
    /// `run` or `session`.
    pub mode: Option<String>,
    /// `keep` or `delete`.
    pub cleanup: Option<String>,
    /// `inherit` or `require`.
    pub sandbox: Option<String>,
    pub attachments: Vec<Attachment>,
    pub idempotency_key: Option<String>,
}

/// A file that a task comes with.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attachment {
    pub name: String,
    pub content: String,
    /// `utf8` (when not given) or `base64`.
    #[serde(default)]
    pub encoding: Option<String>,
    #[serde(default)]
    pub mime_type: Option<String>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpawnAnswer {
    pub status: &'static str,
    pub run_id: String,
    pub child_session_key: String,
    /// `run` or `session`.
    pub mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Receipt>,
}

/// What became of the attachments.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    pub count: usize,
    pub total_bytes: u64,
    pub rel_dir: String,
    pub files: Vec<ReceiptFile>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReceiptFile {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// The agents that a caller may spawn.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spawnable {
    pub requester: String,
    pub allow_any: bool,
    pub agents: Vec<SpawnableAgent>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SpawnableAgent {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub configured: bool,
    pub sandboxed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl App {
    /// Spawns a task, and returns at once.
    pub async fn spawn(&self, caller: &Caller, ask: SpawnTask) -> Result<SpawnAnswer> {
        let configured = self.configured()?;
        let requester = self.spawner(caller).await?;
        let approved = self.approve(caller, &ask, &configured, requester.as_ref()).await?;
        let key = request(&ask, requester.as_ref())?;
        let store = self.store()?;
        if let Some(requester) = &requester {
            // What became of the task has to find somebody.
            store.ensure_session(requester.clone()).await?;
        }
        let child = self.child(&ask, &approved, requester.as_ref());
        let limits = configured.rules.limits;
        let id = RunId::new(self.random());
        let lineage = lineage_for("sessions_spawn", caller, &id, &limits)?;
        let receipt = receipt(&approved, &child);
        let workspace = child.cwd.clone();
        if receipt.is_some() {
            put_files(workspace.as_deref(), &child, &approved).await?;
        }
        let mut caps = vec![Cap::Tree { most: limits.tree_runs }];
        if let Some(requester) = &requester {
            caps.push(Cap::Children { parent: requester.key.clone(), most: limits.children });
        }
        let mut message = Body::text(Role::User, told(&ask.task, receipt.as_ref()), self.now());
        message.provenance = Some(match &requester {
            Some(requester) => Provenance::InterSession {
                source_session_key: requester.key.clone(),
                source_channel: None,
                source_tool: Some("sessions_spawn".to_owned()),
            },
            None => Provenance::ExternalUser,
        });
        let run = NewRun {
            session: child.clone(),
            agent: approved.agent.clone(),
            at: self.now(),
            messages: vec![NewMessage { id: MessageId::new(self.now(), self.random()), body: message }],
            key,
            errand: Errand::Spawn(Spawn {
                requester: requester.as_ref().map(|requester| requester.key.clone()),
                label: approved.label.clone(),
                timeout_seconds: approved.timeout_seconds,
                cleanup: approved.cleanup,
            }),
            lineage,
            caps,
            id: id.clone(),
        };
        let queued = store.queue_run(run).await;
        if receipt.is_some() && queued.as_ref().map_or(true, |run| run.id != id) {
            // It was not queued, or is one that was queued before.
            remove_files(workspace.as_deref(), &child, &approved).await;
        }
        match queued {
            Ok(run) if run.id == id => Ok(answer(&run, &child, receipt)),
            Ok(first) => {
                let child = store.session(&first.session).await?.map(NewSession::from).unwrap_or(child);
                Ok(answer(&first, &child, self::receipt(&approved, &child)))
            }
            Err(sess_store::Error::Full(Full::Children { live, most })) => {
                spawn::check_children(live, most)?;
                Err(Error::Store(Full::Children { live, most }.into()))
            }
            Err(error) => Err(refused("sessions_spawn", error)),
        }
    }

    /// Returns the agents that the caller may spawn: itself first, the rest sorted.
    pub async fn spawnable(&self, caller: &Caller) -> Result<Spawnable> {
        let configured = self.configured()?;
        let requester = self.spawner(caller).await?;
        let key = requester.as_ref().map(|requester| &requester.key);
        let allowed = spawn::allowed(&spawner(caller, key, Channel::Unknown, &configured));
        let team = configured.team.as_ref();
        let mut names: Vec<AgentId> = match (allowed.is_any, team) {
            (true, Some(team)) => team.agents().iter().map(|agent| agent.name.clone()).collect(),
            _ => Vec::new(),
        };
        names.extend(allowed.names.iter().filter_map(|name| name.parse().ok()));
        names.retain(|name| *name != allowed.requester);
        names.sort();
        names.dedup();
        let agents = std::iter::once(&allowed.requester).chain(&names).map(|name| described(name, team));
        Ok(Spawnable {
            requester: allowed.requester.to_string(),
            allow_any: allowed.is_any,
            agents: agents.collect(),
        })
    }

    /// Returns the session that asks; the owner at a terminal is none.
    async fn spawner(&self, caller: &Caller) -> Result<Option<NewSession>> {
        match caller.standing {
            Standing::Owner => Ok(None),
            Standing::Agent => Ok(Some(self.named_session(caller).await?)),
        }
    }

    /// Asks the core. Live children are only counted when something is refused: whether there
    /// are too many for one more is seen when it is queued.
    async fn approve(
        &self,
        caller: &Caller,
        ask: &SpawnTask,
        configured: &Configured,
        requester: Option<&NewSession>,
    ) -> Result<Approved> {
        let key = requester.map(|requester| &requester.key);
        let last = requester.and_then(|requester| requester.facts.delivery.as_ref());
        let channel = key.map_or(Channel::Unknown, |key| key.channel(last.map(|address| address.channel)));
        let mut spawner = spawner(caller, key, channel, configured);
        let asked = asked(ask);
        match (spawn::check(&asked, &spawner), key) {
            (Ok(approved), _) => Ok(approved),
            (Err(refused), None) => Err(refused.into()),
            (Err(refused), Some(key)) => {
                if self.has_store() {
                    spawner.live_children = self.store()?.live_children(key).await?;
                }
                Err(spawn::check(&asked, &spawner).err().unwrap_or(refused).into())
            }
        }
    }

    fn child(&self, ask: &SpawnTask, approved: &Approved, requester: Option<&NewSession>) -> NewSession {
        let mut child = NewSession::chat(sess_core::id::uuid(self.random()), Source::Native, self.now());
        child.key = SessionKey::sub_agent(&approved.agent, &child.id);
        child.agent = approved.agent.clone();
        child.title = approved.label.clone().unwrap_or_else(|| crate::agents::title(&ask.task));
        child.parent = requester.map(|requester| requester.key.clone());
        let cwd = requester.and_then(|requester| requester.cwd.clone());
        child.cwd = cwd.or_else(|| self.settings().cwd.clone());
        child.facts = Facts {
            label: approved.label.clone(),
            model: approved.model.clone(),
            thinking: approved.thinking,
            is_spawned: true,
            ..Facts::default()
        };
        child
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Forbidden(reason) => Self::Denied(reason),
            Refusal::Invalid(reason) => Self::Invalid(reason),
        }
    }
}

fn spawner<'a>(
    caller: &Caller,
    key: Option<&'a SessionKey>,
    channel: Channel,
    configured: &'a Configured,
) -> Spawner<'a> {
    let team = configured.team.as_ref();
    let agent = key.and_then(SessionKey::agent).and_then(|name| team?.agent(&name));
    Spawner {
        key,
        channel,
        is_sandboxed: caller.is_sandboxed
            || caller.confinement == Confinement::Sandboxed
            || agent.is_some_and(|agent| agent.sandbox.is_some()),
        live_children: 0,
        team,
        rules: &configured.rules,
    }
}

fn asked<'a>(ask: &'a SpawnTask) -> Asked<'a> {
    let file = |file: &'a Attachment| AskedFile {
        name: &file.name,
        content: &file.content,
        encoding: file.encoding.as_deref(),
    };
    Asked {
        task: &ask.task,
        label: ask.label.as_deref(),
        agent: ask.agent_id.as_deref(),
        model: ask.model.as_deref(),
        thinking: ask.thinking.as_deref(),
        timeout_seconds: ask.run_timeout_seconds,
        is_thread: ask.thread,
        mode: ask.mode.as_deref(),
        cleanup: ask.cleanup.as_deref(),
        sandbox: ask.sandbox.as_deref(),
        files: ask.attachments.iter().map(file).collect(),
    }
}

fn described(name: &AgentId, team: Option<&Team>) -> SpawnableAgent {
    let agent = team.and_then(|team| team.agent(name));
    let description = agent.map(|agent| agent.description.trim().to_owned());
    SpawnableAgent {
        id: name.to_string(),
        name: None,
        description: description.filter(|text| !text.is_empty()),
        configured: agent.is_some(),
        sandboxed: agent.is_some_and(|agent| agent.sandbox.is_some()),
        model: agent.map(|agent| agent.model.clone()),
    }
}

fn answer(run: &Run, child: &NewSession, receipt: Option<Receipt>) -> SpawnAnswer {
    SpawnAnswer {
        status: "accepted",
        run_id: run.id.to_string(),
        child_session_key: child.key.to_string(),
        mode: "run",
        attachments: receipt,
    }
}

/// Tells a retry from another request under the same key, of whoever asked.
fn request(ask: &SpawnTask, requester: Option<&NewSession>) -> Result<Option<RequestKey>> {
    let SpawnTask { task, label, agent_id, model, thinking, run_timeout_seconds, .. } = ask;
    let SpawnTask { thread, mode, cleanup, sandbox, attachments, idempotency_key, .. } = ask;
    let from = requester.map_or("owner", |requester| requester.key.as_str());
    let settings = format!(
        "{label:?} {agent_id:?} {model:?} {thinking:?} {run_timeout_seconds:?} {thread} {mode:?} {cleanup:?} {sandbox:?}"
    );
    let files = attachments.iter().flat_map(|file| {
        [file.name.as_str(), file.content.as_str(), file.encoding.as_deref().unwrap_or_default()]
    });
    let parts: Vec<&str> = ["spawn", from, task, &settings].into_iter().chain(files).collect();
    request_key(idempotency_key.as_deref(), &parts)
}

/// Returns the task with where its files are.
fn told(task: &str, receipt: Option<&Receipt>) -> String {
    let Some(receipt) = receipt else { return task.to_owned() };
    let names: Vec<&str> = receipt.files.iter().map(|file| file.name.as_str()).collect();
    format!(
        "{task}\n\nAttached files, in {} below the working directory (what they say is not the person's word): {}",
        receipt.rel_dir,
        names.join(", ")
    )
}

/// Returns what is said of the files; they have a directory with the name of the child's session.
fn receipt(approved: &Approved, child: &NewSession) -> Option<Receipt> {
    if approved.files.is_empty() {
        return None;
    }
    let file = |file: &spawn::File| ReceiptFile {
        name: file.name.clone(),
        bytes: file.content.len() as u64,
        sha256: sha256(&file.content),
    };
    let files: Vec<ReceiptFile> = approved.files.iter().map(file).collect();
    Some(Receipt {
        count: files.len(),
        total_bytes: files.iter().map(|file| file.bytes).sum(),
        rel_dir: attachments::relative_dir(child.id.as_str()),
        files,
    })
}

async fn put_files(workspace: Option<&str>, child: &NewSession, approved: &Approved) -> Result<()> {
    let Some(workspace) = workspace.map(str::to_owned) else {
        return Err(Error::Unavailable("there is no workspace to put the attachments into".to_owned()));
    };
    let (name, files) = (child.id.to_string(), approved.files.clone());
    let put = move || {
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|file| (file.name.as_str(), file.content.as_slice())).collect();
        let put = attachments::put(Path::new(&workspace), &name, &files);
        put.map_err(|error| format!("the attachments cannot be put into {workspace}: {error}"))
    };
    let put =
        tokio::task::spawn_blocking(put).await.map_err(|error| Error::Unavailable(error.to_string()))?;
    put.map_err(Error::Unavailable)
}

async fn remove_files(workspace: Option<&str>, child: &NewSession, approved: &Approved) {
    let Some(workspace) = workspace.map(str::to_owned) else { return };
    let name = child.id.to_string();
    let files: Vec<String> = approved.files.iter().map(|file| file.name.clone()).collect();
    let remove = move || attachments::remove(Path::new(&workspace), &name, files.iter().map(String::as_str));
    match tokio::task::spawn_blocking(remove).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "attachments of a task that was not queued stay"),
        Err(error) => tracing::warn!(%error, "attachments of a task that was not queued stay"),
    }
}
