//! The web chat: a person's message into a session, and the words that a session has for it.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sess_core::{
    AgentId, MessageId, RunId, SessionId, SessionKey, Source,
    digest::sha256,
    message::{Block, Body, Provenance, Role},
    policy::{self, Verb},
    rules::DirectScope,
    run::{Errand, Run},
    session::{Address, Channel, NewSession, Sending},
};
use sess_store::{NewMessage, Post, RequestKey, SessionPatch, Store};

use crate::{
    App, Caller, Error, Result, SendMessage,
    agents::title,
    reach::Outlook,
    requests::request_key,
    runs::no_run,
    sending::{check_message, refused},
};

/// How many files one message may have.
const FILES_MAX: usize = 10;
/// How large they may be together.
const FILES_BYTES_MAX: usize = 12 * 1024 * 1024;
/// The largest text file, and the largest image.
const TEXT_FILE_BYTES_MAX: usize = 256 * 1024;
const IMAGE_BYTES_MAX: usize = 5 * 1024 * 1024;
/// Images that models can look at.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// How many runs of a session are looked through for those that have not ended.
const RUNS_LOOKED_AT: usize = 1_000;

/// Something that is said to an agent, in a session or in a new one.
#[derive(Clone, Debug)]
pub struct Chat {
    pub to: ChatTo,
    pub message: String,
    /// Shared: whoever names one of them a thousand times costs no more than whoever names it once.
    pub files: Vec<Arc<ChatFile>>,
    /// The same name is the same run.
    pub idempotency_key: Option<String>,
    pub through: Through,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatTo {
    /// A key or an id.
    Session(String),
    /// An agent, in a session of its own.
    Agent(AgentId),
}

/// Where it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// In the web chat: what the session announces appears there from now on.
    Webchat,
    /// By a program, which is no place to announce anything.
    Program,
}

/// A file that comes with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatFile {
    pub name: String,
    pub mime_type: String,
    pub bytes: Vec<u8>,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Chatted {
    pub run: RunId,
    /// Whether the run was made now; otherwise the same request made it before.
    pub is_new: bool,
    pub has_ended: bool,
    pub session: SessionId,
    /// The session's key as it is shown.
    pub key: String,
}

impl App {
    /// Puts a message into a session, durably, and waits for nothing.
    pub async fn chat(&self, caller: &Caller, chat: Chat) -> Result<Chatted> {
        let blocks = file_blocks(&chat.files)?;
        if blocks.is_empty() || !chat.message.trim().is_empty() {
            check_message(&chat.message)?;
        }
        let outlook = self.outlook(caller).await?;
        let (mut target, named) = match &chat.to {
            ChatTo::Session(given) => {
                let target = self.target(&outlook, given).await?;
                let named = target.key.to_string();
                (target, named)
            }
            ChatTo::Agent(agent) => (self.new_chat(&outlook, agent).await?, format!("agent {agent}")),
        };
        if target.title.is_empty() {
            target.title = title(&chat.message);
        }
        let key = chat_key(&outlook, &chat, &named)?;
        let webchat = Address { channel: Channel::Webchat, to: None, account_id: None };
        // A room has its own channel, whoever speaks to it from elsewhere.
        let is_moving = chat.through == Through::Webchat
            && target.key.channel(Some(Channel::Webchat)) == Channel::Webchat
            && target.facts.delivery.as_ref() != Some(&webchat);
        if is_moving {
            // A session that is new is made with it.
            target.facts.delivery = Some(webchat.clone());
        }
        let ask = SendMessage { message: chat.message, ..SendMessage::default() };
        let mut new = self.new_send(caller, &outlook, target, &ask, None).await?;
        new.key = key;
        if let Some(said) = new.messages.last_mut() {
            said.body.content.extend(blocks);
            said.body.content.retain(|block| !matches!(block, Block::Text { text } if text.is_empty()));
        }
        let (id, store) = (new.id.clone(), self.store()?);
        let run = store.queue_run(new).await.map_err(|error| refused("chat.send", error))?;
        if is_moving && run.id == id {
            store.patch_session(&run.session, SessionPatch::Delivery(webchat), self.now()).await?;
        }
        let key = self.key_of(&run.session).await?;
        let none = || Error::NotFound(format!("session {} was deleted", run.session));
        let key = outlook.configured.shown(&key.ok_or_else(none)?);
        let (is_new, has_ended) = (run.id == id, run.state.has_ended());
        Ok(Chatted { run: run.id, is_new, has_ended, session: run.session, key })
    }

    /// Refuses a file that no message may come with, before anybody keeps it.
    pub fn check_file(&self, file: &ChatFile) -> Result<()> {
        file_block(file).map(drop)
    }

    /// Asks the runs of a session to stop that have not ended: the one that is named, or all.
    pub async fn abort(&self, caller: &Caller, given: &str, run: Option<&str>) -> Result<Vec<RunId>> {
        let reached = self.reach(caller, given, Verb::Send).await?;
        // Before its first use nothing goes on there.
        let runs = match &reached.session {
            Some(session) => self.store()?.runs(Some(&session.id), RUNS_LOOKED_AT).await?,
            None => Vec::new(),
        };
        let is_named = |known: &Run| run.is_none_or(|run| known.id.as_str() == run.trim());
        if let Some(run) = run.filter(|_| !runs.iter().any(is_named)) {
            return Err(no_run(run));
        }
        let mut stopped = Vec::new();
        // The oldest last: what waits behind it must not begin because it ends.
        for run in runs.into_iter().filter(|run| is_named(run) && !run.state.has_ended()) {
            stopped.push(self.store()?.cancel_run(&run.id, self.now()).await?.id);
        }
        Ok(stopped)
    }

    /// Returns the session in which an agent is spoken to that has none for this yet.
    async fn new_chat(&self, outlook: &Outlook, agent: &AgentId) -> Result<NewSession> {
        let configured = &outlook.configured;
        let is_configured = configured.team.as_ref().is_some_and(|team| team.agent(agent).is_some());
        let is_fenced = outlook.only.as_ref().is_some_and(|only| only != agent);
        if !is_configured || is_fenced {
            return Err(Error::NotFound(format!(
                "there is no agent \"{agent}\"; agents.list shows those that there are"
            )));
        }
        // Every direct chat is one. And an agent speaks to others where it may: in their main sessions.
        if configured.rules.scope == DirectScope::Global || outlook.own.is_some() {
            return self.target(outlook, SessionKey::main(agent).as_str()).await;
        }
        let mut new = NewSession::chat(sess_core::id::uuid(self.random()), Source::Native, self.now());
        new.key = SessionKey::chat(agent, &new.id);
        new.agent = agent.clone();
        new.cwd.clone_from(&self.settings().cwd);
        match configured.rules.send_policy.decide(None, &new.key, Channel::Unknown) {
            Sending::Allow => Ok(new),
            Sending::Deny => Err(Error::Denied("send blocked by session policy".to_owned())),
        }
    }

    /// Delivers what a session has to say in the web chat, which shows its transcript.
    ///
    /// An announce and a report are words of that transcript already, or of a run that waits to join it:
    /// said again they would stand there twice. Only what would be lost is added.
    pub(crate) async fn post_to_webchat(&self, store: &dyn Store, post: &Post) -> Result<()> {
        // Told by the run and not by the words: the same may be said twice and be meant twice.
        let brings = |run: &Run| match &run.errand {
            Errand::Report { of, .. } => {
                let was_said = run.started_at.is_some() || run.handed_over_at.is_some();
                *of == post.run && (was_said || !run.state.has_ended())
            }
            Errand::Announce(_) => run.id == post.run,
            Errand::Message
            | Errand::Send(_)
            | Errand::Round(_)
            | Errand::LateReply { .. }
            | Errand::Spawn(_) => false,
        };
        if store.runs(Some(&post.session), RUNS_LOOKED_AT).await?.iter().any(brings) {
            return Ok(());
        }
        let mut body = Body::text(Role::Assistant, post.text.as_str(), self.now());
        body.provenance = Some(Provenance::InternalSystem);
        body.run_id = Some(post.run.to_string());
        let message = NewMessage { id: MessageId::new(body.timestamp, self.random()), body };
        // A node that dies before it says that it delivered this does not say it twice.
        let key = RequestKey { key: format!("post {}", post.id), fingerprint: sha256(post.text.as_bytes()) };
        store.append(&post.session, vec![message], Some(key)).await?;
        Ok(())
    }

    /// Tells whether what happens to a session is for this caller to hear.
    pub async fn hears_of(&self, caller: &Caller, key: &SessionKey) -> Result<bool> {
        if caller.standing == policy::Standing::Owner {
            return Ok(caller.only.as_ref().is_none_or(|only| key.agent().as_ref() == Some(only)));
        }
        match self.reach(caller, key.as_str(), Verb::Status).await {
            Ok(_) => Ok(true),
            Err(Error::Denied(_) | Error::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Tells a request from others by whose it is, where it goes, and everything that is in it.
fn chat_key(outlook: &Outlook, chat: &Chat, named: &str) -> Result<Option<RequestKey>> {
    let from = match (&outlook.own, &outlook.only) {
        (Some(own), _) => own.key.to_string(),
        (None, Some(agent)) => agent.to_string(),
        (None, None) => "owner".to_owned(),
    };
    let files: Vec<String> =
        chat.files.iter().map(|file| format!("{} {}", sha256(&file.bytes), file.name)).collect();
    let mut parts = vec!["chat", &from, named, &chat.message];
    parts.extend(files.iter().map(String::as_str));
    request_key(chat.idempotency_key.as_deref(), &parts)
}

/// Makes files what a model can read, all of them or none.
fn file_blocks(files: &[Arc<ChatFile>]) -> Result<Vec<Block>> {
    if files.len() > FILES_MAX {
        return Err(Error::Invalid(format!("too many files: {}, of at most {FILES_MAX}", files.len())));
    }
    let bytes: usize = files.iter().map(|file| file.bytes.len()).sum();
    if bytes > FILES_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the files are too large together: {bytes} bytes, of at most {FILES_BYTES_MAX}"
        )));
    }
    files.iter().map(|file| file_block(file)).collect()
}

fn file_block(file: &ChatFile) -> Result<Block> {
    // A name is shown to the model in front of the text, and must not look like more than a name.
    let name: String = file.name.chars().filter(|c| !c.is_control()).take(200).collect();
    let too_large = |most: usize| {
        Error::Invalid(format!(
            "the file \"{name}\" is too large: {} bytes, of at most {most}",
            file.bytes.len()
        ))
    };
    if file.bytes.is_empty() {
        return Err(Error::Invalid(format!("the file \"{name}\" is empty")));
    }
    if IMAGE_TYPES.contains(&file.mime_type.as_str()) {
        if file.bytes.len() > IMAGE_BYTES_MAX {
            return Err(too_large(IMAGE_BYTES_MAX));
        }
        if !is_image(&file.mime_type, &file.bytes) {
            return Err(Error::Invalid(format!("the file \"{name}\" is not {}", file.mime_type)));
        }
        return Ok(Block::Image { mime_type: file.mime_type.clone(), data: STANDARD.encode(&file.bytes) });
    }
    let text = std::str::from_utf8(&file.bytes).ok().filter(|text| !text.contains('\0'));
    let Some(text) = text else {
        return Err(Error::Invalid(format!(
            "the file \"{name}\" is neither an image (PNG, JPEG, GIF, WebP) nor text in UTF-8"
        )));
    };
    if text.len() > TEXT_FILE_BYTES_MAX {
        return Err(too_large(TEXT_FILE_BYTES_MAX));
    }
    Ok(Block::Text { text: format!("File \"{name}\":\n\n{text}") })
}

/// Tells whether bytes begin as an image of this type does.
fn is_image(mime_type: &str, bytes: &[u8]) -> bool {
    match mime_type {
        "image/png" => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
        "image/jpeg" => bytes.starts_with(b"\xff\xd8\xff"),
        "image/gif" => bytes.starts_with(b"GIF8"),
        _ => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"),
    }
}
