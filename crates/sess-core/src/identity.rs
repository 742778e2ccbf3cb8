//! Who is calling? Every door collects signals; this decides what they mean.

use std::fmt;

use crate::{SessionId, SessionKey, Source, id::InvalidSessionId};

/// What a door knows about its caller.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// `--session`, from whoever started this process.
    pub explicit: Option<String>,
    /// The session that the token of this call stands for.
    pub token_session: Option<String>,
    /// The environment of this process, as far as it was asked for.
    pub env: Vec<(String, String)>,
    /// `_meta.threadId` of this call, which Codex sends.
    pub thread_id: Option<String>,
    /// `_meta.sessionId` of this call: the topmost thread above that one, which Codex sends too.
    pub root_id: Option<String>,
    /// `agent-session-id` of this call, which goose sends.
    pub agent_session_id: Option<String>,
    /// `Mcp-Session-Id` of this call: the client's connection, in older revisions over HTTP.
    pub mcp_session_id: Option<String>,
    /// The session that a host's own notes name as the one that makes this call.
    pub noted: Option<(SessionId, Source)>,
    /// The name the client gave itself.
    pub client_name: Option<String>,
}

/// Which session a call belongs to, and how we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub session: Claim,
    pub evidence: Evidence,
}

/// What the strongest signal names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// A session id; the session may not exist yet.
    Id(SessionId, Source),
    /// A session key; its session must exist.
    Key(SessionKey),
    /// No signal: a session of our own for this process.
    Own,
    /// A signal that names nothing allowed: every tool answers with this error.
    Invalid(InvalidSessionId),
}

/// The signal an identity rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    Explicit,
    Token,
    Env(&'static str),
    CallMeta(&'static str),
    /// What the host noted about this call.
    Note(Source),
    Nothing,
}

impl Evidence {
    /// Tells whether it names the session that calls. What was inherited, and a connection, do not.
    pub fn names_caller(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Env(SESS_SESSION) | Self::CallMeta(MCP_SESSION_ID))
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explicit => f.write_str("--session"),
            Self::Token => f.write_str("the token, which stands for this session"),
            Self::Env(name) => write!(f, "{name} in the environment"),
            Self::CallMeta(name) => write!(f, "{name} of the call"),
            Self::Note(source) => write!(f, "what {source} noted about the call"),
            Self::Nothing => f.write_str("no signal: a session of this process"),
        }
    }
}

/// The header by which older revisions of MCP know a connection over HTTP.
pub const MCP_SESSION_ID: &str = "Mcp-Session-Id";

/// The field of a call by which Codex names the thread that makes it.
pub const THREAD_ID: &str = "_meta.threadId";

/// The variable that names a session for whatever is started below.
pub const SESS_SESSION: &str = "SESS_SESSION";

/// Where hosts say which of their sessions started us, and the names they go by.
pub const HOST_VARIABLES: [(&str, Source, &str); 5] = [
    ("CLAUDE_CODE_SESSION_ID", Source::Claude, "claude"),
    ("QWEN_CODE_SESSION_ID", Source::Qwen, "qwen"),
    ("COPILOT_AGENT_SESSION_ID", Source::Copilot, "copilot"),
    ("GEMINI_SESSION_ID", Source::Gemini, "gemini"),
    ("AGENT_SESSION_ID", Source::Goose, "goose"),
];

/// Hosts that give no session id in the environment: under one of these, an id
/// found there was inherited from another host further up.
const SILENT_HOSTS: [&str; 3] = ["opencode", "codex", "cursor"];

/// Variables that hosts set for the commands their agents run, without saying which session it is.
const AGENT_MARKERS: [(&str, Source); 4] = [
    ("CLAUDECODE", Source::Claude),
    ("GEMINI_CLI", Source::Gemini),
    ("OPENCODE", Source::Opencode),
    ("CODEX_SANDBOX", Source::Codex),
];

/// Returns the host whose notes have to be asked who is calling, because it does not say.
pub fn noting_host(signals: &Signals) -> Option<Source> {
    let client = signals.client_name.as_deref().unwrap_or_default().to_ascii_lowercase();
    let is_told = !matches!(identify(signals).evidence, Evidence::Nothing | Evidence::Env(SESS_SESSION));
    (client.contains("opencode") && !is_told).then_some(Source::Opencode)
}

/// Returns the kind of agent that a host's variable tells of.
pub fn marked_host(signals: &Signals) -> Option<Source> {
    let marker = AGENT_MARKERS.iter().find(|(marker, _)| variable(signals, marker).is_some())?;
    Some(marker.1)
}

/// Tells whether an agent, and not a person, started this process.
///
/// What was named explicitly does not count: a person names sessions too.
pub fn is_agent(signals: &Signals) -> bool {
    let unnamed = Signals { explicit: None, ..signals.clone() };
    identify(&unnamed).evidence != Evidence::Nothing || marked_host(signals).is_some()
}

/// Decides whose call this is.
///
/// The order: an explicit session, the one that a token stands for, the host's own signal (the call's before the
/// environment's), `SESS_SESSION`, a session of our own. `SESS_SESSION` comes
/// after the host, because an inherited variable must not make a nested host
/// write its parent's plan; for the same reason a host variable counts only
/// when the client does not say it is another host.
pub fn identify(signals: &Signals) -> Identity {
    if let Some(text) = &signals.explicit {
        return Identity { session: claim(text), evidence: Evidence::Explicit };
    }
    if let Some(text) = &signals.token_session {
        return Identity { session: claim(text), evidence: Evidence::Token };
    }
    let per_call = [
        (&signals.thread_id, Source::Codex, THREAD_ID),
        (&signals.agent_session_id, Source::Goose, "agent-session-id"),
        (&signals.mcp_session_id, Source::Native, MCP_SESSION_ID),
    ];
    for (value, source, name) in per_call {
        if let Some(id) = value.as_deref().filter(|id| !id.is_empty()) {
            return Identity { session: native(id, source), evidence: Evidence::CallMeta(name) };
        }
    }
    if let Some((variable, id, source)) = host_variable(signals) {
        return Identity { session: native(id, source), evidence: Evidence::Env(variable) };
    }
    if let Some((id, source)) = &signals.noted {
        return Identity { session: Claim::Id(id.clone(), *source), evidence: Evidence::Note(*source) };
    }
    if let Some(text) = variable(signals, SESS_SESSION) {
        return Identity { session: claim(text), evidence: Evidence::Env(SESS_SESSION) };
    }
    Identity { session: Claim::Own, evidence: Evidence::Nothing }
}

fn host_variable(signals: &Signals) -> Option<(&'static str, &str, Source)> {
    let client = signals.client_name.as_deref().unwrap_or_default().to_ascii_lowercase();
    let is_silent = SILENT_HOSTS.iter().any(|host| client.contains(host));
    let known = HOST_VARIABLES.iter().find(|(_, _, host)| client.contains(host));
    match (is_silent, known) {
        (true, _) => None,
        (false, Some(&(name, source, _))) => variable(signals, name).map(|id| (name, id, source)),
        (false, None) => HOST_VARIABLES
            .iter()
            .find_map(|&(name, source, _)| variable(signals, name).map(|id| (name, id, source))),
    }
}

fn variable<'a>(signals: &'a Signals, name: &str) -> Option<&'a str> {
    let (_, value) = signals.env.iter().find(|(key, value)| key == name && !value.is_empty())?;
    Some(value)
}

fn native(id: &str, source: Source) -> Claim {
    match id.parse() {
        Ok(id) => Claim::Id(id, source),
        Err(error) => Claim::Invalid(error),
    }
}

/// Reads what a person or a parent process gave as a session: a key,
/// `<source>:<native id>`, or an id.
fn claim(text: &str) -> Claim {
    let text = text.trim();
    if let Ok(key) = text.parse() {
        return Claim::Key(key);
    }
    if let Some((prefix, id)) = text.split_once(':')
        && let Ok(source) = prefix.parse()
    {
        return native(id, source);
    }
    match native(text, Source::Native) {
        Claim::Id(id, _) if id.is_reserved() => Claim::Invalid(InvalidSessionId(id.into())),
        claim => claim,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals are written `name=value`; the answer is the session and how we know.
    #[track_caller]
    fn check(signals: &[&str], answer: &str) {
        let mut told = Signals::default();
        for signal in signals {
            let (name, value) = signal.split_once('=').expect("name=value");
            let value = value.to_owned();
            match name {
                "--session" => told.explicit = Some(value),
                "threadId" => told.thread_id = Some(value),
                "token" => told.token_session = Some(value),
                "Mcp-Session-Id" => told.mcp_session_id = Some(value),
                "agent-session-id" => told.agent_session_id = Some(value),
                "client" => told.client_name = Some(value),
                "note" => told.noted = Some((value.parse().expect("an id"), Source::Opencode)),
                variable => told.env.push((variable.to_owned(), value)),
            }
        }
        let identity = identify(&told);
        let session = match identity.session {
            Claim::Id(id, source) => format!("{source}:{id}"),
            Claim::Key(key) => key.to_string(),
            Claim::Own => "own".to_owned(),
            Claim::Invalid(error) => error.to_string(),
        };
        assert_eq!(format!("{session} by {}", identity.evidence), answer);
    }

    #[test]
    fn reserved_names_name_no_session() {
        for name in ["main", "current", "global", "unknown", " global "] {
            let signals = Signals { explicit: Some(name.to_owned()), ..Signals::default() };
            let invalid = Claim::Invalid(InvalidSessionId(name.trim().to_owned()));
            assert_eq!(identify(&signals).session, invalid);
        }
    }

    #[test]
    fn the_strongest_signal_decides() {
        check(&[], "own by no signal: a session of this process");
        check(&["SESS_SESSION=s1"], "native:s1 by SESS_SESSION in the environment");
        check(
            &["SESS_SESSION=s1", "CLAUDE_CODE_SESSION_ID=c1"],
            "claude:c1 by CLAUDE_CODE_SESSION_ID in the environment",
        );
        check(&["CLAUDE_CODE_SESSION_ID=c1", "threadId=t1"], "codex:t1 by _meta.threadId of the call");
        check(&["agent-session-id=g1"], "goose:g1 by agent-session-id of the call");
        check(&["--session=x", "threadId=t1", "SESS_SESSION=s1"], "native:x by --session");
        check(&["AGENT_SESSION_ID=20261115_1"], "goose:20261115_1 by AGENT_SESSION_ID in the environment");
        check(&["CLAUDE_CODE_SESSION_ID="], "own by no signal: a session of this process");
    }

    #[test]
    fn over_http_a_token_comes_before_what_the_call_says() {
        check(&["token=s1", "threadId=t1"], "native:s1 by the token, which stands for this session");
        check(&["threadId=t1", "Mcp-Session-Id=m1"], "codex:t1 by _meta.threadId of the call");
        check(&["Mcp-Session-Id=m1"], "native:m1 by Mcp-Session-Id of the call");
    }

    #[test]
    fn the_notes_of_a_host_that_says_nothing_are_its_signal() {
        check(
            &["note=ses_1", "SESS_SESSION=s1", "client=opencode"],
            "opencode:ses_1 by what opencode noted about the call",
        );
        check(&["note=ses_1", "--session=x", "client=opencode"], "native:x by --session");
        let asked = |signals: &Signals| noting_host(signals);
        let opencode = Signals { client_name: Some("opencode".to_owned()), ..Signals::default() };
        assert_eq!(asked(&opencode), Some(Source::Opencode));
        assert_eq!(asked(&Signals { explicit: Some("x".to_owned()), ..opencode }), None);
        assert_eq!(asked(&Signals::default()), None);
    }

    #[test]
    fn a_nested_host_does_not_speak_as_its_parent() {
        check(
            &["CLAUDE_CODE_SESSION_ID=c1", "client=opencode"],
            "own by no signal: a session of this process",
        );
        check(
            &["CLAUDE_CODE_SESSION_ID=c1", "AGENT_SESSION_ID=g1", "client=goose-desktop"],
            "goose:g1 by AGENT_SESSION_ID in the environment",
        );
        check(
            &["CLAUDE_CODE_SESSION_ID=c1", "client=gemini-cli-mcp-client"],
            "own by no signal: a session of this process",
        );
        check(
            &["CLAUDE_CODE_SESSION_ID=c1", "client=claude-code"],
            "claude:c1 by CLAUDE_CODE_SESSION_ID in the environment",
        );
    }

    #[test]
    fn a_process_that_a_host_started_for_its_agent_is_no_person() {
        let started_with = |name: &str| {
            let env = vec![(name.to_owned(), "1".to_owned())];
            is_agent(&Signals { env, explicit: Some("s".to_owned()), ..Signals::default() })
        };
        for name in ["CLAUDECODE", "GEMINI_CLI", "OPENCODE", "CLAUDE_CODE_SESSION_ID", "SESS_SESSION"] {
            assert!(started_with(name), "{name}");
        }
        assert!(!started_with("EDITOR"));
    }

    #[test]
    fn an_explicit_session_is_a_key_a_source_and_id_or_an_id() {
        check(&["--session=agent:main:main"], "agent:main:main by --session");
        check(&["--session=codex:019a"], "codex:019a by --session");
        check(&["--session= s-1 "], "native:s-1 by --session");
        check(&["--session=../x"], "invalid session ID: \"../x\" by --session");
        check(&["--session=a:b"], "invalid session ID: \"a:b\" by --session");
        check(&["--session="], "invalid session ID: \"\" by --session");
    }
}
