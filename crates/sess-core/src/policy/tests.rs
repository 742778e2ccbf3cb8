//! Every table of who may see what, and the policy held against one that was written apart from it.

use proptest::prelude::*;

use super::*;
use crate::rules::AgentToAgent;

#[track_caller]
fn check(who: &str, visibility: ContextVisibility, scope: &str) {
    let key: SessionKey = "agent:claude:chat:1".parse().expect("a key");
    let viewer = Viewer {
        only: None,
        standing: if who == "owner" { Standing::Owner } else { Standing::Agent },
        key: (who != "agent without session").then_some(&key),
        confinement: if who == "sandboxed" { Confinement::Sandboxed } else { Confinement::Free },
    };
    assert_eq!(format!("{:?}", context_scope(&viewer, visibility)), scope);
}

#[test]
fn the_whole_table_of_context_visibility() {
    use ContextVisibility::{Agent, All};
    check("owner", Agent, "All");
    check("owner", All, "All");
    check("agent", All, "All");
    check("agent", Agent, "Agent(AgentId(\"claude\"))");
    check("sandboxed", All, "Tree(SessionKey(\"agent:claude:chat:1\"))");
    check("sandboxed", Agent, "Tree(SessionKey(\"agent:claude:chat:1\"))");
    check("agent without session", All, "All");
    check("agent without session", Agent, "Nothing");
}

/// Asks as `who` (its key, `owner`, or ` sandboxed` behind a key) about a key; `<` in front of it says that
/// the caller spawned it. Rules are written `visibility [a2a [pattern…]]`.
#[track_caller]
fn check_reach(who: &str, target: &str, rules: &str, verb: Verb, answer: &str) {
    let (own, confinement) = match who.strip_suffix(" sandboxed") {
        Some(own) => (own, Confinement::Sandboxed),
        None => (who, Confinement::Free),
    };
    let own: Option<SessionKey> = (own != "owner").then(|| own.parse().expect(own));
    let standing = if own.is_none() { Standing::Owner } else { Standing::Agent };
    let (is_below, target) = target.strip_prefix('<').map_or((false, target), |target| (true, target));
    let mut words = rules.split(' ');
    let visibility = words.next().expect("a visibility");
    let visibility =
        Visibility::ALL.into_iter().find(|known| known.as_str() == visibility).expect(visibility);
    let is_enabled = words.next().is_some();
    let agent_to_agent = AgentToAgent { is_enabled, allow: words.map(str::to_owned).collect() };
    let rules = SessionRules { visibility, agent_to_agent, ..SessionRules::default() };
    let viewer = Viewer { standing, only: None, key: own.as_ref(), confinement };
    let told = match reach(&viewer, &target.parse().expect(target), is_below, verb, &rules) {
        Ok(()) => "yes".to_owned(),
        Err(refusal) => refusal.to_string(),
    };
    assert_eq!(told, answer);
}

#[test]
fn the_whole_table_of_session_visibility() {
    use Verb::{History, Send, Status};
    let me = "agent:a:chat:1";
    for rules in ["self", "tree", "agent", "all", "all a2a", "all a2a b"] {
        check_reach(me, me, rules, Send, "yes");
        check_reach("owner", "agent:b:main", rules, Send, "yes");
    }
    let own = "visibility is restricted to the current session (tools.sessions.visibility=self).";
    let tree = "visibility is restricted to the current session tree (tools.sessions.visibility=tree).";
    let agent = "visibility is restricted. Set tools.sessions.visibility=all to allow cross-agent access.";
    for (verb, name) in [(History, "Session history"), (Send, "Session send"), (Status, "Session status")] {
        check_reach(me, "agent:a:chat:2", "self", verb, &format!("{name} {own}"));
        check_reach(me, "<agent:a:subagent:2", "self", verb, &format!("{name} {own}"));
        check_reach(me, "agent:a:chat:2", "tree", verb, &format!("{name} {tree}"));
        check_reach(me, "<agent:a:subagent:2", "tree", verb, "yes");
        check_reach(me, "<agent:b:subagent:2", "tree", verb, "yes");
        check_reach(me, "agent:a:chat:2", "agent", verb, "yes");
        check_reach(me, "agent:b:chat:2", "agent", verb, &format!("{name} {agent}"));
        check_reach(me, "agent:b:chat:2", "tree", verb, &format!("{name} {agent}"));
        check_reach(me, "agent:b:chat:2", "agent a2a", verb, &format!("{name} {agent}"));
        check_reach(me, "agent:a:chat:2", "all", verb, "yes");
        check_reach(me, "agent:b:chat:2", "all a2a", verb, "yes");
        check_reach(me, "cron:1", "all a2a", verb, "yes");
        check_reach(me, "agent:b:chat:2", "all a2a a b", verb, "yes");
        check_reach(me, "agent:b:chat:2", "all a2a *", verb, "yes");
        let denied = "Agent-to-agent messaging denied by tools.agentToAgent.allow.";
        for allow in ["all a2a a", "all a2a b", "all a2a c"] {
            check_reach(me, "agent:b:chat:2", allow, verb, denied);
        }
        check_reach(me, "cron:1", "all a2a a cron", verb, denied);
    }
    let sends = "Agent-to-agent messaging is disabled. Set tools.agentToAgent.enabled=true to allow cross-agent sends.";
    check_reach(me, "agent:b:chat:2", "all", Send, sends);
    let reads = "Agent-to-agent history is disabled. Set tools.agentToAgent.enabled=true to allow cross-agent access.";
    check_reach(me, "agent:b:chat:2", "all", History, reads);
    check_reach(me, "agent:b:chat:2", "all", Status, reads);
    let clamped = "agent:a:chat:1 sandboxed";
    check_reach(clamped, "agent:a:chat:2", "all a2a", Send, &format!("Session send {tree}"));
    check_reach(clamped, "<agent:a:subagent:2", "all a2a", Send, "yes");
    check_reach(clamped, "<agent:a:subagent:2", "self", Send, &format!("Session send {own}"));
    check_reach(clamped, "agent:b:chat:2", "all a2a", Send, &format!("Session send {tree}"));
}

#[test]
fn an_agent_that_is_no_session_reaches_nothing() {
    let viewer = Viewer { standing: Standing::Agent, only: None, key: None, confinement: Confinement::Free };
    let rules = SessionRules {
        visibility: Visibility::All,
        agent_to_agent: AgentToAgent { is_enabled: true, allow: Vec::new() },
        ..SessionRules::default()
    };
    for is_below in [false, true] {
        let target = "agent:a:main".parse().expect("a key");
        assert_eq!(reach(&viewer, &target, is_below, Verb::Send, &rules), Err(OutOfReach::Own(Verb::Send)));
    }
}

proptest! {
    /// More room to see never takes away what was in sight, and a sandbox never gives more.
    #[test]
    fn reach_grows_with_visibility_and_never_with_a_sandbox(
        own in "(agent:[ab]:(main|chat:[12])|cron:1)",
        target in "(agent:[abc]:(main|chat:[12])|cron:[12]|node-1)",
        is_below: bool,
        is_enabled: bool,
        allow in prop::collection::vec("(a|b|\\*|[ab]\\*)", 0..3),
    ) {
        let (own, target): (SessionKey, SessionKey) = (own.parse().expect("a key"), target.parse().expect("a key"));
        let admits = |visibility, confinement| {
            let agent_to_agent = AgentToAgent { is_enabled, allow: allow.clone() };
            let rules = SessionRules { visibility, agent_to_agent, ..SessionRules::default() };
            let viewer = Viewer { standing: Standing::Agent, only: None, key: Some(&own), confinement };
            let answers = [Verb::Send, Verb::History, Verb::Status]
                .map(|verb| reach(&viewer, &target, is_below, verb, &rules).is_ok());
            assert!(answers.iter().all(|answer| *answer == answers[0]), "a verb sees more than another");
            answers[0]
        };
        let free = Visibility::ALL.map(|visibility| admits(visibility, Confinement::Free));
        let clamped = Visibility::ALL.map(|visibility| admits(visibility, Confinement::Sandboxed));
        prop_assert!(free.windows(2).all(|pair| pair[0] <= pair[1]), "{free:?}");
        prop_assert!(free.iter().zip(&clamped).all(|(free, clamped)| clamped <= free));
        prop_assert_eq!(clamped[3], free[1], "a sandbox comes down to the tree");
        if own != target && !is_below {
            prop_assert!(!free[0] && !free[1]);
        }
    }
}
