//! Who is calling, and what they may do as the owner or as an agent.

use sess_app::{Kind, Signals};
use sess_core::policy::Standing;

use crate::world::World;

/// Signals are written `name=value`.
fn signals(told: &[&str]) -> Signals {
    let mut signals = Signals::default();
    for signal in told {
        let (name, value) = signal.split_once('=').expect("name=value");
        let value = value.to_owned();
        match name {
            "--session" => signals.explicit = Some(value),
            "threadId" => signals.thread_id = Some(value),
            "agent-session-id" => signals.agent_session_id = Some(value),
            "client" => signals.client_name = Some(value),
            variable => signals.env.push((variable.to_owned(), value)),
        }
    }
    signals
}

impl World {
    async fn who(&self, told: &[&str]) -> String {
        let who = self.app.whoami(&self.app.caller(&signals(told))).await;
        if let Some(error) = who.error {
            return format!("error: {error} ({})", who.how);
        }
        let key = who.key.expect("a key");
        let stored = if who.stored { "stored" } else { "new" };
        format!("{key} {} {} {stored} by {}", who.agent, who.source.expect("a source"), who.how)
    }
}

#[tokio::test]
async fn whoami_says_who_and_how_we_know() {
    let world = World::new();
    assert_eq!(
        world.who(&["CLAUDE_CODE_SESSION_ID=c-1"]).await,
        "agent:claude:chat:c-1 claude claude new by CLAUDE_CODE_SESSION_ID in the environment"
    );
    assert_eq!(
        world.who(&["threadId=t-1"]).await,
        "agent:codex:chat:t-1 codex codex new by _meta.threadId of the call"
    );
    assert_eq!(
        world.who(&["agent-session-id=20261115_1"]).await,
        "agent:goose:chat:20261115_1 goose goose new by agent-session-id of the call"
    );
    assert_eq!(world.who(&["--session=s-1"]).await, "agent:main:chat:s-1 main native new by --session");
    assert_eq!(world.who(&["--session=codex:x"]).await, "agent:codex:chat:x codex codex new by --session");
    assert_eq!(
        world.who(&["SESS_SESSION=s-1"]).await,
        "agent:main:chat:s-1 main native new by SESS_SESSION in the environment"
    );
    assert_eq!(world.who(&["--session=../x"]).await, "error: invalid session ID: \"../x\" (--session)");
    assert_eq!(
        world.who(&["--session=agent:a:main"]).await,
        "error: session \"agent:a:main\" not found (--session)"
    );
    world.session("s-1 key=agent:a:main agent=a").await;
    world.session("s-2 agent=b key=agent:b:main").await;
    assert_eq!(world.who(&["--session=agent:b:main"]).await, "agent:b:main b native stored by --session");
}

#[tokio::test]
async fn without_a_signal_a_process_has_one_session_of_its_own() {
    let world = World::new();
    let who = async |app: &sess_app::App| app.whoami(&app.caller(&Signals::default())).await;
    let first = who(&world.app).await;
    assert_eq!(first.how, "no signal: a session of this process");
    assert_eq!(who(&world.app).await.session_id, first.session_id);
    assert_ne!(who(&world.other_process()).await.session_id, first.session_id);
    let id = first.session_id.expect("an id");
    assert_eq!((id.len(), &id[14..15]), (36, "4"), "a version 4 UUID: {id}");
    assert!("89ab".contains(&id[19..20]), "{id}");
}

#[tokio::test]
async fn a_clients_name_says_which_agent_speaks_when_no_session_does() {
    let world = World::new();
    let agent = |client: &str| world.app.caller(&signals(&[&format!("client={client}")])).agent.to_string();
    for (client, expected) in [
        ("opencode", "opencode"),
        ("codex-mcp-client", "codex"),
        ("Zed", "zed"),
        ("cursor-vscode", "cursor"),
        ("docker-agent", "docker-agent"),
        ("amp-mcp-client", "amp"),
        ("ExampleClient", "main"),
        ("example-client", "main"),
        ("realized", "main"),
        ("react-native", "main"),
        ("", "main"),
    ] {
        assert_eq!(agent(client), expected, "{client}");
    }
}

#[tokio::test]
async fn the_command_line_is_the_owners_unless_a_signal_says_otherwise() {
    let world = World::new();
    let standing = |told: &[&str]| world.app.cli_caller(&signals(told)).standing;
    assert_eq!(standing(&[]), Standing::Owner);
    assert_eq!(standing(&["--session=s"]), Standing::Owner, "naming a session is not being it");
    assert_eq!(standing(&["SESS_SESSION=s"]), Standing::Agent);
    assert_eq!(standing(&["CLAUDE_CODE_SESSION_ID=c"]), Standing::Agent);
    assert_eq!(standing(&["--session=s", "CLAUDE_CODE_SESSION_ID=c"]), Standing::Agent);
    assert_eq!(world.app.caller(&Signals::default()).standing, Standing::Agent, "every other door");
    let who = world.app.whoami(&world.owner()).await;
    assert_eq!(who.standing, "owner");
}

#[tokio::test]
async fn a_hosts_session_is_made_at_its_first_write_with_the_hosts_own_id() {
    let world = World::new();
    let caller = world.app.caller(&signals(&["CLAUDE_CODE_SESSION_ID=c-1"]));
    let write = sess_app::WritePlan { content: "# p".to_owned(), ..sess_app::WritePlan::default() };
    let plan = world.app.write_plan(&caller, write).await.expect("written");
    assert!(plan.path.ends_with("/c-1.md"), "{}", plan.path);
    let session = world.stored("c-1").await;
    assert_eq!((session.key.as_str(), session.source.as_str()), ("agent:claude:chat:c-1", "claude"));
    assert_eq!(world.plan_events().await, ["updated c-1 1 by claude"]);
    assert_eq!(
        world.who(&["CLAUDE_CODE_SESSION_ID=c-1"]).await,
        "agent:claude:chat:c-1 claude claude stored by CLAUDE_CODE_SESSION_ID in the environment"
    );
}

#[tokio::test]
async fn only_the_owner_stars_renames_and_archives() {
    let world = World::new();
    let session = world.session("s").await;
    let owner = world.owner();
    assert!(world.app.star(&owner, &session, true).await.expect("starred").starred);
    assert!(!world.app.star(&owner, &session, false).await.expect("unstarred").starred);
    assert_eq!(world.app.rename(&owner, &session, "  New name ").await.expect("renamed").title, "New name");
    let long = "é".repeat(501);
    let error = world.app.rename(&owner, &session, &long).await.expect_err("too long");
    assert_eq!(error.to_string(), "the title is too long: the most is 500 characters");
    let agent = world.agent("s");
    let refusals = [
        world.app.star(&agent, &session, true).await,
        world.app.rename(&agent, &session, "x").await,
        world.app.archive(&agent, &session, true).await,
    ];
    for refusal in refusals {
        let error = refusal.expect_err("an agent");
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (Kind::Denied, "only the owner may change a session")
        );
    }
    assert_eq!(world.stored("s").await.title, "New name");
}
