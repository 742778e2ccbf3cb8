//! Teams as tests need them: a test says what matters to it, and the rest is left out here.

use sess_core::{
    agent::{Agent, Limits, ModelSpec, Provider, Team, Thinking},
    permission::Permissions,
};

/// Returns an agent that is told nothing and has no tools.
pub(crate) fn agent(name: &str, model: &str) -> Agent {
    Agent {
        name: name.parse().expect(name),
        description: String::new(),
        instruction: String::new(),
        model: model.to_owned(),
        toolsets: Vec::new(),
        commands: Vec::new(),
        handoffs: Vec::new(),
        sub_agents: Vec::new(),
        sandbox: None,
        allow_agents: Vec::new(),
        limits: Limits::default(),
    }
}

/// Returns a team of these agents, with models of these names.
pub(crate) fn team_of(agents: Vec<Agent>, models: &[&str]) -> Team {
    let model = |name: &&str| ModelSpec {
        name: (*name).to_owned(),
        provider: Provider::Scripted,
        model: String::new(),
        base_url: None,
        token_key: None,
        max_tokens: None,
        temperature: None,
        thinking: Thinking::Unset,
        context_window: None,
        price: None,
    };
    Team::new(agents, models.iter().map(model).collect(), Permissions::default(), None).expect("a team")
}
