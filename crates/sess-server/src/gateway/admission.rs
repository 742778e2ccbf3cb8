//! Who is asking: a token is looked at once, here, before anything else is done for its holder.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, header};
use sess_app::Access;
use sess_protocol::tokens::Scope;
use sha2::{Digest as _, Sha256};

use super::{errors::Problem, state::State};

/// What the page's cookie is called.
pub(super) const COOKIE: &str = "sess";

/// In what time failures are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// How many networks are watched.
const NETWORKS_MAX: usize = 10_000;
/// How many tokens are remembered that were let in before.
const KNOWN_MAX: usize = 10_000;

/// Returns the token that a request carries: in its header, or the cookie of the page.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    if let Some(value) = given.next() {
        let wrong = || Problem::unauthorized("the Authorization header must be `Bearer <token>`, once");
        let text = value.to_str().ok().filter(|_| given.next().is_none()).ok_or_else(wrong)?;
        let (scheme, token) = text.split_once(' ').ok_or_else(wrong)?;
        return if scheme.eq_ignore_ascii_case("bearer") { Ok(Some(token.to_owned())) } else { Err(wrong()) };
    }
    Ok(cookie(headers))
}

/// Returns what the page's cookie holds.
pub(super) fn cookie(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value.to_owned())
}

impl State {
    /// Lets in whoever has a token that counts.
    pub(super) async fn admit(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Access, Problem> {
        let Some(token) = token(headers)? else {
            return Err(Problem::unauthorized(
                "a token is needed: send `Authorization: Bearer <token>`; `sess token` shows it",
            ));
        };
        self.admit_token(&token, peer).await
    }

    /// As [`Self::admit`], for a token that came another way. Wrong ones are counted.
    pub(super) async fn admit_token(&self, token: &str, peer: IpAddr) -> Result<Access, Problem> {
        self.guesses.check(peer, token)?;
        match self.app.admit(token).await? {
            Some(access) => {
                self.guesses.counted(token);
                Ok(access)
            }
            None => {
                self.guesses.failed(peer);
                self.metrics.refused_logins.add(1);
                Err(Problem::unauthorized(
                    "this token does not count: it is wrong, has expired or was revoked",
                ))
            }
        }
    }

    /// Refuses who was let in for something else.
    pub(super) fn check_scope(access: &Access, scope: Scope) -> Result<(), Problem> {
        if access.allows(scope) {
            return Ok(());
        }
        Err(Problem::forbidden(format!("this token does not have the scope `{}`", scope.as_str())))
    }
}

/// Counts wrong tokens by the network that they come from, which a client cannot choose.
///
/// A network that guesses too much gets nothing more looked at for a while, except tokens that were
/// let in before: these are no guesses, and their holders shall not suffer for a neighbour.
pub(super) struct Guesses {
    most: u32,
    failures: Mutex<HashMap<IpAddr, (Instant, u32)>>,
    known: Mutex<HashSet<[u8; 32]>>,
}

impl Guesses {
    pub(super) fn new(most: u32) -> Self {
        Self { most, failures: Mutex::default(), known: Mutex::default() }
    }

    /// Refuses a network that was wrong too often; `token` is what it comes with now.
    pub(super) fn check(&self, peer: IpAddr, token: &str) -> Result<(), Problem> {
        let since = {
            let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            match failures.get(&network(peer)) {
                Some((since, count)) if *count >= self.most && since.elapsed() < WINDOW => *since,
                _ => return Ok(()),
            }
        };
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&hash(token)) {
            return Ok(());
        }
        let left = WINDOW.saturating_sub(since.elapsed()).as_secs() + 1;
        Err(Problem::too_many("too many wrong tokens or codes came from this address; wait", left))
    }

    pub(super) fn failed(&self, peer: IpAddr) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= NETWORKS_MAX {
            failures.retain(|_, (since, _)| since.elapsed() < WINDOW);
        }
        if failures.len() >= NETWORKS_MAX {
            // Whoever has that many networks is not stopped by counting, and may not fill the memory.
            failures.clear();
        }
        let (since, count) = failures.entry(network(peer)).or_insert_with(|| (Instant::now(), 0));
        if since.elapsed() >= WINDOW {
            (*since, *count) = (Instant::now(), 0);
        }
        *count = count.saturating_add(1);
    }

    pub(super) fn counted(&self, token: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(hash(token));
    }
}

/// Returns what somebody is given as a whole: one IPv4 address, or a /64 of IPv6.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_counted_as_one_and_there_is_room_for_so_many() {
        let guesses = Guesses::new(3);
        let peer = |text: &str| text.parse::<IpAddr>().expect(text);
        for host in ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:3"] {
            assert!(guesses.check(peer(host), "x").is_ok(), "{host}");
            guesses.failed(peer(host));
        }
        assert!(guesses.check(peer("2001:db8::4"), "x").is_err(), "the same network");
        assert!(guesses.check(peer("2001:db8:0:1::1"), "x").is_ok(), "another one");
        for _ in 0..3 {
            guesses.failed(peer("192.0.2.1"));
        }
        assert!(guesses.check(peer("::ffff:192.0.2.1"), "x").is_err(), "the same address");
        assert!(guesses.check(peer("192.0.2.2"), "x").is_ok());
        for n in 0..2 * u32::try_from(NETWORKS_MAX).expect("few") {
            guesses.failed(IpAddr::from(n.to_be_bytes()));
        }
        assert!(guesses.failures.lock().expect("no panic").len() <= NETWORKS_MAX);
    }
}
