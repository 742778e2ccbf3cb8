//! Where a model is, and with which key: from its configuration to a [`Model`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sess_core::agent::{ModelSpec, OpenAiApi, Provider};

use super::anthropic::Anthropic;
use super::http::Link;
use super::openai_chat::OpenAiChat;
use super::openai_responses::OpenAiResponses;
use super::scripted::Scripted;
use super::{Model, ModelError};

/// What the environment says about a provider. Empty for a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// `None` is the vendor's own address.
    pub base_url: Option<String>,
    pub token: Option<Secret>,
}

/// A key. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Line breaks and blanks around a key come from the file it was kept in.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// How long to wait for a provider, and how often to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How often a call is made at most.
    pub tries: u32,
    /// Before the second try; it doubles with each further one.
    pub first_wait: Duration,
    /// Between all tries together, also if the provider asks for more.
    pub wait_max: Duration,
    /// Until an answer begins: a large prompt on a small machine takes minutes.
    pub first_byte: Duration,
    /// Between two parts of an answer.
    pub idle: Duration,
    /// For one try from its beginning to its end.
    pub whole: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            tries: 4,
            first_wait: Duration::from_millis(500),
            wait_max: Duration::from_secs(120),
            first_byte: Duration::from_secs(300),
            idle: Duration::from_secs(120),
            whole: Duration::from_secs(60 * 60),
        }
    }
}

/// The names and addresses that everyone uses for a vendor.
struct Vendor {
    base_url_key: &'static str,
    token_key: &'static str,
    base_url: &'static str,
}

fn vendor(provider: Provider) -> Option<Vendor> {
    match provider {
        Provider::OpenAi(_) => Some(Vendor {
            base_url_key: "OPENAI_BASE_URL",
            token_key: "OPENAI_API_KEY",
            base_url: "https://api.openai.com/v1",
        }),
        Provider::Anthropic => Some(Vendor {
            base_url_key: "ANTHROPIC_BASE_URL",
            token_key: "ANTHROPIC_API_KEY",
            base_url: "https://api.anthropic.com",
        }),
        Provider::Scripted => None,
    }
}

/// Finds a model's address and key with `variable`, which looks into the environment.
///
/// The address is the configuration's, else the variable's, else the vendor's. The
/// key is in the variable that `token_key` names; only if it names none, in the
/// usual one: a key of someone else is worse than none.
pub fn endpoint_for(spec: &ModelSpec, variable: &dyn Fn(&str) -> Option<String>) -> Endpoint {
    let Some(vendor) = vendor(spec.provider) else { return Endpoint::default() };
    let filled = |key: &str| variable(key).filter(|value| !value.trim().is_empty());
    let base_url = spec.base_url.clone().or_else(|| filled(vendor.base_url_key));
    let token = match &spec.token_key {
        Some(key) => filled(key),
        None => filled(vendor.token_key),
    };
    Endpoint { base_url, token: token.as_deref().map(Secret::new) }
}

/// Opens a model. Nothing is sent yet; a script is read.
pub fn open(spec: &ModelSpec, endpoint: Endpoint) -> Result<Arc<dyn Model>, ModelError> {
    open_with(spec, endpoint, Patience::default())
}

/// Opens a model that is waited for differently.
pub fn open_with(
    spec: &ModelSpec,
    endpoint: Endpoint,
    patience: Patience,
) -> Result<Arc<dyn Model>, ModelError> {
    let Some(vendor) = vendor(spec.provider) else {
        return Ok(Arc::new(Scripted::open(spec)?));
    };
    let token_key = spec.token_key.as_deref().unwrap_or(vendor.token_key);
    if endpoint.base_url.is_none() && endpoint.token.is_none() {
        let name = &spec.name;
        return Err(ModelError::Refused(format!("model \"{name}\" needs a key: set {token_key}")));
    }
    let is_vendor = endpoint.base_url.is_none();
    let base_url = endpoint.base_url.as_deref().unwrap_or(vendor.base_url).trim().trim_end_matches('/');
    let link = |path: &str| Link::new(&format!("{base_url}{path}"), endpoint.token, token_key, patience);
    let spec = spec.clone();
    Ok(match spec.provider {
        Provider::Anthropic => {
            // Both forms are in use, with and without the version.
            let path = if base_url.ends_with("/v1") { "/messages" } else { "/v1/messages" };
            let link = link(path)?.header("anthropic-version", "2023-06-01").key_header("x-api-key", "")?;
            Arc::new(Anthropic { link, spec })
        }
        Provider::OpenAi(OpenAiApi::Chat) => {
            let link = link("/chat/completions")?.key_header("authorization", "Bearer ")?;
            Arc::new(OpenAiChat { link, spec, is_vendor })
        }
        Provider::OpenAi(OpenAiApi::Responses) => {
            let link = link("/responses")?.key_header("authorization", "Bearer ")?;
            Arc::new(OpenAiResponses { link, spec })
        }
        Provider::Scripted => unreachable!("a script has no vendor"),
    })
}
