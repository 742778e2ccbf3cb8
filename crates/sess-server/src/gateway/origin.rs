//! Where a request comes from: no other site drives this gateway, and no other name leads to it.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, Method, Uri, header};

use super::errors::Problem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// The names under which this gateway is reached, besides the address that it listens on.
#[derive(Clone, Debug)]
pub(super) struct Names {
    configured: Vec<Authority>,
    is_tls: bool,
}

/// A host and perhaps a port, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Name(String),
    Address(IpAddr),
}

impl Names {
    /// Takes names as they were configured: `name` for any port, or `name:port`.
    pub(super) fn new(names: &[String], is_tls: bool) -> Result<Self, String> {
        let parse = |name: &String| {
            Authority::parse(name).ok_or_else(|| {
                format!("{name:?} is no host name: write it like example.org or example.org:8443")
            })
        };
        Ok(Self { configured: names.iter().map(parse).collect::<Result<_, _>>()?, is_tls })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Refuses a foreign `Host` or `Origin`; `local` is where the connection arrived.
    pub(super) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        local: SocketAddr,
    ) -> Result<(), Problem> {
        let host = one(headers, &header::HOST).and_then(Authority::parse);
        let Some(host) = host.filter(|host| self.is_here(host, local) || self.is_configured(host)) else {
            return Err(Problem::forbidden(
                "the Host is not one of this gateway's: use its address, localhost, or a name in gateway.names",
            ));
        };
        // A request line with a whole address names the host a second time.
        if let Some(named) = uri.authority()
            && Authority::parse(named.as_str()).as_ref() != Some(&host)
        {
            return Err(Problem::forbidden("the address in the request line is not that of its Host"));
        }
        if headers.contains_key(header::ORIGIN) {
            let origin = one(headers, &header::ORIGIN).and_then(|origin| self.origin(origin));
            // Who listens on another port of a name is somebody else: a name is the page's own
            // origin only. Forms of the local address are all ours.
            let is_ours = origin.is_some_and(|origin| {
                self.is_here(&origin, local) || self.is_configured(&origin) && origin == host
            });
            if !is_ours {
                return Err(Problem::forbidden("requests from pages of other sites are refused"));
            }
        }
        // What a page of another site embeds it cannot read, but it could learn how long that took. A link
        // may lead here.
        let is_link = matches!(*method, Method::GET | Method::HEAD)
            && one(headers, &SEC_FETCH_MODE) == Some("navigate");
        if !is_link && headers.contains_key(&SEC_FETCH_SITE) {
            let site = one(headers, &SEC_FETCH_SITE);
            if !matches!(site, Some("same-origin" | "none")) {
                return Err(Problem::forbidden("nothing is done for pages of other sites"));
            }
        }
        Ok(())
    }

    /// Returns the authority of an origin that could be ours.
    fn origin(&self, origin: &str) -> Option<Authority> {
        let (scheme, rest) = origin.split_once("://")?;
        let mut authority = Authority::parse(rest)?;
        let default = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        // A proxy may have taken TLS off for a configured name; nobody has for our own address.
        if !self.is_configured(&authority) && (scheme == "https") != self.is_tls {
            return None;
        }
        if authority.port == Some(default) {
            authority.port = None;
        }
        Some(authority)
    }

    /// Tells whether this is the address that the connection arrived at, or `localhost`.
    fn is_here(&self, authority: &Authority, local: SocketAddr) -> bool {
        let is_host = match &authority.host {
            Host::Name(name) => name == "localhost",
            Host::Address(address) => *address == local.ip().to_canonical(),
        };
        let default = if self.is_tls { 443 } else { 80 };
        is_host && authority.port.unwrap_or(default) == local.port()
    }

    fn is_configured(&self, authority: &Authority) -> bool {
        let is_same = |name: &Authority| {
            name.host == authority.host && (name.port.is_none() || name.port == authority.port)
        };
        self.configured.iter().any(is_same)
    }
}

impl Authority {
    /// Reads `host` or `host:port`, and nothing that merely looks like it.
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']')?;
                let address: std::net::Ipv6Addr = address.parse().ok()?;
                let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
                (Host::Address(IpAddr::from(address).to_canonical()), port)
            }
            None => {
                let (host, port) = match text.split_once(':') {
                    Some((host, port)) => (host, Some(port)),
                    None => (text, None),
                };
                (Self::host(host)?, port)
            }
        };
        let port = match port {
            None => None,
            Some(digits) => {
                let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                Some(digits.parse().ok().filter(|_| is_plain)?)
            }
        };
        Some(Self { host, port })
    }

    fn host(text: &str) -> Option<Host> {
        if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
            return Some(Host::Address(address.into()));
        }
        let is_name = !text.is_empty()
            && text.len() <= 253
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
        is_name.then(|| Host::Name(text.to_ascii_lowercase()))
    }
}

/// Returns a header that is there once, as text.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(configured: &[&str]) -> Names {
        let configured: Vec<String> = configured.iter().map(|&name| name.to_owned()).collect();
        Names::new(&configured, false).expect("names")
    }

    fn local() -> SocketAddr {
        "127.0.0.1:4747".parse().expect("an address")
    }

    fn asked(names: &Names, method: &Method, uri: &str, given: &[(&str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            let name = HeaderName::try_from(*name).expect("a name");
            headers.append(name, value.parse().expect("a value"));
        }
        names.check(method, &uri.parse().expect("an address"), &headers, local()).is_ok()
    }

    #[test]
    fn only_our_own_hosts_are_answered() {
        let plain = names(&["gate.example", "exact.example:8443", "gate_1"]);
        let host = |host: &str| asked(&plain, &Method::GET, "/", &[("host", host)]);
        for ours in [
            "127.0.0.1:4747",
            "localhost:4747",
            "LOCALHOST:4747",
            "LocalHost:4747",
            "gate.example",
            "GATE.example",
            "gate.example:443",
            "gate.example:8080",
            "exact.example:8443",
            "gate_1:4747",
            "[::ffff:127.0.0.1]:4747",
        ] {
            assert!(host(ours), "{ours}");
        }
        for foreign in [
            "",
            " ",
            "evil.example",
            "evil.example:4747",
            "127.0.0.1",
            "localhost",
            "localhost:80",
            "localhost:4748",
            "localhost:",
            "localhost:+4747",
            "localhost:04747x",
            "localhost:4747:4747",
            "localhost.:4747",
            "localhost.evil.example:4747",
            "evil.example.localhost:4747",
            "localhost@evil.example:4747",
            "user@localhost:4747",
            "user:pass@localhost:4747",
            "localhost:4747@evil.example",
            "localhost:4747/",
            "localhost:4747#",
            "localhost:4747, evil.example",
            "http://localhost:4747",
            "//localhost:4747",
            "127.0.0.2:4747",
            "127.1:4747",
            "0x7f.0.0.1:4747",
            "0177.0.0.1:4747",
            "2130706433:4747",
            "0.0.0.0:4747",
            "[::]:4747",
            "[::1]:4747",
            "::1:4747",
            "[127.0.0.1]:4747",
            "[::1",
            "127.0.0.1.nip.io:4747",
            "127.0.0.1:4747.evil.example",
            "xn--lcalhost-54a:4747",
            "local_host:4747",
            "exact.example",
            "exact.example:443",
            "gate.example.evil.example",
            "evil-gate.example",
            "*",
            "null",
        ] {
            assert!(!host(foreign), "{foreign}");
        }
        assert!(!asked(&plain, &Method::GET, "/", &[]), "no host at all");
        assert!(
            !asked(&plain, &Method::GET, "/", &[("host", "localhost:4747"), ("host", "evil.example")]),
            "two hosts"
        );
        assert!(!asked(&plain, &Method::GET, "/", &[("host", "localhost:4747"), ("host", "localhost:4747")]));
        let whole = "http://evil.example:4747/";
        assert!(!asked(&plain, &Method::GET, whole, &[("host", "localhost:4747")]));
        assert!(asked(&plain, &Method::GET, "http://localhost:4747/", &[("host", "localhost:4747")]));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let plain = names(&["gate.example"]);
        let from = |host: &str, origin: &str| {
            asked(&plain, &Method::GET, "/", &[("host", host), ("origin", origin)])
        };
        for (host, origin) in [
            ("127.0.0.1:4747", "http://127.0.0.1:4747"),
            ("127.0.0.1:4747", "http://localhost:4747"),
            ("gate.example", "https://gate.example"),
            ("gate.example", "http://gate.example"),
            ("gate.example:8443", "https://gate.example:8443"),
        ] {
            assert!(from(host, origin), "{host} {origin}");
        }
        for (host, origin) in [
            ("127.0.0.1:4747", "null"),
            ("127.0.0.1:4747", ""),
            ("127.0.0.1:4747", "*"),
            ("127.0.0.1:4747", "http://evil.example"),
            ("127.0.0.1:4747", "http://evil.example:4747"),
            ("127.0.0.1:4747", "http://localhost"),
            ("127.0.0.1:4747", "http://localhost:3000"),
            ("127.0.0.1:4747", "http://127.0.0.1"),
            ("127.0.0.1:4747", "http://127.0.0.1:80"),
            ("127.0.0.1:4747", "https://127.0.0.1:4747"),
            ("127.0.0.1:4747", "https://localhost:4747"),
            ("127.0.0.1:4747", "ws://localhost:4747"),
            ("127.0.0.1:4747", "file://"),
            ("127.0.0.1:4747", "file://localhost:4747"),
            ("127.0.0.1:4747", "chrome-extension://localhost:4747"),
            ("127.0.0.1:4747", "http://localhost:4747/"),
            ("127.0.0.1:4747", "http://localhost:4747.evil.example"),
            ("127.0.0.1:4747", "http://localhost:4747@evil.example"),
            ("127.0.0.1:4747", "http://localhost:4747 http://evil.example"),
            ("127.0.0.1:4747", "HTTP://localhost:4747"),
            ("127.0.0.1:4747", "localhost:4747"),
            ("127.0.0.1:4747", "//localhost:4747"),
            ("gate.example", "https://gate.example:8443"),
            ("gate.example", "https://evil.gate.example"),
            ("gate.example", "https://gate.example.evil.example"),
        ] {
            assert!(!from(host, origin), "{host} {origin}");
        }
        let ours = ("host", "localhost:4747");
        let origin = ("origin", "http://localhost:4747");
        assert!(!asked(&plain, &Method::GET, "/", &[ours, origin, origin]), "two origins");
        for method in [Method::GET, Method::POST] {
            let site = |site: &'static str| asked(&plain, &method, "/", &[ours, ("sec-fetch-site", site)]);
            assert!(site("same-origin") && site("none"));
            assert!(!site("cross-site") && !site("same-site") && !site("") && !site("SAME-ORIGIN"));
        }
        let link = [ours, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert!(asked(&plain, &Method::GET, "/", &link), "a link leads here");
        assert!(!asked(&plain, &Method::POST, "/", &link), "a form does not");
    }
}
