//! Where a model is looked for, and with which key.

use sess_agent::model::{Endpoint, Secret, endpoint_for, open};
use sess_core::agent::Provider;

use crate::support::{APIS, spec};

/// Shows an endpoint as `address with key`.
fn found(
    provider: Provider,
    base_url: Option<&str>,
    token_key: Option<&str>,
    vars: &[(&str, &str)],
) -> String {
    let mut spec = spec(provider);
    spec.base_url = base_url.map(str::to_owned);
    spec.token_key = token_key.map(str::to_owned);
    let variable =
        |key: &str| vars.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned());
    let endpoint = endpoint_for(&spec, &variable);
    let token = ["usual", "own"].into_iter().find(|text| endpoint.token == Some(Secret::new(text)));
    format!("{} with {}", endpoint.base_url.as_deref().unwrap_or("vendor"), token.unwrap_or("none"))
}

#[test]
fn the_configuration_goes_before_the_environment_and_that_before_the_vendor() {
    let vars = [
        ("OPENAI_BASE_URL", "http://o"),
        ("OPENAI_API_KEY", " usual\n"),
        ("ANTHROPIC_BASE_URL", "http://a"),
        ("ANTHROPIC_API_KEY", "usual"),
        ("MINE", "own"),
        ("BLANK", " "),
    ];
    for (api, address) in [(APIS[0], "http://a"), (APIS[1], "http://o"), (APIS[2], "http://o")] {
        assert_eq!(found(api, None, None, &[]), "vendor with none");
        assert_eq!(found(api, None, None, &vars), format!("{address} with usual"));
        assert_eq!(found(api, Some("http://c"), Some("MINE"), &vars), "http://c with own");
        assert_eq!(found(api, None, Some("MISSING"), &vars), format!("{address} with none"));
        assert_eq!(found(api, None, Some("BLANK"), &vars), format!("{address} with none"));
    }
    assert_eq!(found(Provider::Scripted, None, None, &vars), "vendor with none");
}

#[test]
fn a_vendor_is_not_asked_without_a_key() {
    let check = |provider, token_key: Option<&str>, told: &str| {
        let mut spec = spec(provider);
        spec.token_key = token_key.map(str::to_owned);
        let refused = open(&spec, Endpoint::default()).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some(told));
    };
    check(APIS[0], None, "model \"test\" needs a key: set ANTHROPIC_API_KEY");
    check(APIS[1], None, "model \"test\" needs a key: set OPENAI_API_KEY");
    check(APIS[2], Some("MINE"), "model \"test\" needs a key: set MINE");
}

#[test]
fn an_address_of_ones_own_needs_no_key_but_must_be_one() {
    let open = |url: &str, token: Option<&str>| {
        let endpoint = Endpoint { base_url: Some(url.to_owned()), token: token.map(Secret::new) };
        open(&spec(APIS[1]), endpoint).map_or_else(|error| error.to_string(), |_| "opened".to_owned())
    };
    assert_eq!(open("http://localhost:1234/v1/", None), "opened");
    assert_eq!(
        open("localhost:1234", None),
        "the base_url of a model is no address: localhost:1234/chat/completions"
    );
    assert_eq!(open("", None), "the base_url of a model is no address: /chat/completions");
    assert_eq!(
        open("http://localhost", Some("two\nlines")),
        "the key in OPENAI_API_KEY has characters that no key has"
    );
}

#[test]
fn a_key_is_never_printed() {
    let endpoint = Endpoint { base_url: None, token: Some(Secret::new("sk-very-secret")) };
    assert_eq!(format!("{endpoint:?}"), "Endpoint { base_url: None, token: Some(***) }");
    assert_eq!(Secret::new("sk-very-secret").to_string(), "***");
}
