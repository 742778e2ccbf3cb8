//! From what is written to where the gateway listens, and how far its clients may go.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use super::{
    de::short,
    file,
    problem::{Problem, Trail},
    yaml::Document,
};

/// `gateway:` of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Gateway {
    pub listen: Option<SocketAddr>,
    /// Further host names under which it may be reached.
    pub names: Vec<String>,
    pub tls: Option<Tls>,
    pub limits: file::GatewayLimits,
}

/// The files for TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Reads an address to listen on; the error says what was expected.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        None => text.to_owned(),
    };
    address.parse().map_err(|_| {
        format!("\"{}\" is no address to listen on: expected one with a port, such as 127.0.0.1:4747 or [::1]:4747", short(text))
    })
}

/// Makes the gateway's settings; every number in its range, every name one that a client can ask for.
pub fn build(
    document: &Document,
    file: &file::File,
    user_home: Option<&Path>,
) -> Result<Gateway, Vec<Problem>> {
    let written = &file.gateway;
    let trail = Trail::default().key("gateway");
    let mut found = Vec::new();
    let mut wrong = |trail: &Trail, text: String| {
        found.push(Problem { at: document.spot(trail), text: format!("{trail}: {text}") });
    };
    let listen = written
        .listen
        .as_deref()
        .and_then(|text| parse_listen(text).map_err(|text| wrong(&trail.key("listen"), text)).ok());
    let mut names = Vec::new();
    for (n, name) in written.names.iter().flatten().enumerate() {
        let name = name.trim().to_ascii_lowercase();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || name.len() > 253 || !name.chars().all(is_name) {
            let text = format!(
                "\"{}\" is no host name: expected one without scheme, port or *, such as sess.example.org",
                short(&name)
            );
            wrong(&trail.key("names").index(n), text);
        }
        names.push(name);
    }
    let path = |key: &str, text: &str| {
        let dir = document.origin(&trail.key("tls").key(key)).map(|origin| origin.dir.clone());
        match (text.strip_prefix("~/"), user_home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => dir.unwrap_or_default().join(text),
        }
    };
    let tls = match (written.tls.cert.as_deref(), written.tls.key.as_deref()) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some(Tls { cert: path("cert", cert), key: path("key", key) }),
        (Some(_), None) => {
            wrong(&trail.key("tls"), "a certificate needs its key: add `key`".to_owned());
            None
        }
        (None, Some(_)) => {
            wrong(&trail.key("tls"), "a key needs its certificate: add `cert`".to_owned());
            None
        }
    };
    let limits = trail.key("limits");
    for (key, given, (least, most)) in written.limits.ranges() {
        if let Some(given) = given.filter(|given| !(least..=most).contains(given)) {
            wrong(&limits.key(key), format!("expected a number from {least} to {most}, found {given}"));
        }
    }
    if found.is_empty() { Ok(Gateway { listen, names, tls, limits: written.limits }) } else { Err(found) }
}
