//! Tokens: who gets in over the network, and what for.
//!
//! The owner's own token is a file; of all others only hashes are kept, so that nothing in the
//! store lets anybody in.

use std::{fmt, time::Duration};

use sess_core::{
    AgentId, SessionId, Timestamp,
    digest::sha256,
    policy::{Standing, Verb},
};
use sess_protocol::tokens::{Scope, TokenRow};
use sess_store::{TokenKind, TokenRecord};

use crate::{App, Caller, Error, Result, Signals, sessions::may_manage};

/// How long a one-time link counts.
pub const LOGIN_CODE_FOR: Duration = Duration::from_secs(60);
/// How long a page stays logged in.
pub const COOKIE_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many tokens are listed.
const TOKENS_LEN_MAX: usize = 1_000;
/// What tokens begin with, so that people and scanners know one when they see it.
const PREFIX: &str = "sess_";

/// Something that lets in whoever has it. It is never printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns the text itself, for the one who is to have it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What a token lets its holder do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub scopes: Vec<Scope>,
    /// Only sessions of this agent.
    pub agent: Option<AgentId>,
    /// It stands for this session: whoever has it acts as that.
    pub session: Option<SessionId>,
    /// The token's id; none for the owner's own.
    pub token: Option<String>,
    pub expires_at: Option<Timestamp>,
}

impl Access {
    /// Returns what the owner may do: everything.
    pub fn owner() -> Self {
        Self { scopes: vec![Scope::Admin], agent: None, session: None, token: None, expires_at: None }
    }

    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin) && !self.is_beyond(scope)
    }

    /// An agent's token never speaks for the person.
    fn is_beyond(&self, scope: Scope) -> bool {
        scope == Scope::Review && (self.agent.is_some() || self.session.is_some())
    }

    /// Tells whether nothing is allowed to `other` that is not allowed here.
    pub fn covers(&self, other: &Self) -> bool {
        let narrower = |own: bool, same: bool| !own || same;
        Scope::ALL.into_iter().all(|scope| self.allows(scope) || !other.allows(scope))
            && narrower(self.agent.is_some(), self.agent == other.agent)
            && narrower(self.session.is_some(), self.session == other.session)
            && narrower(
                self.expires_at.is_some(),
                other.expires_at.is_some_and(|end| self.expires_at.is_some_and(|own| end <= own)),
            )
    }
}

/// A token to make.
#[derive(Clone, Debug, Default)]
pub struct NewToken {
    pub scopes: Vec<Scope>,
    pub agent: Option<AgentId>,
    /// A key or an id: the token stands for that session.
    pub session: Option<String>,
    pub label: Option<String>,
    pub expires_in: Option<Duration>,
}

impl App {
    /// Returns the owner's token, which is made at its first use.
    pub fn owner_token(&self) -> Result<Secret> {
        self.store()?;
        Ok(Secret(sess_store::owner_token(self.home()?, || self.new_secret().0)?))
    }

    /// Returns what a caller at the command line may give away: the owner everything, an agent nothing.
    pub fn owner_access(&self, caller: &Caller) -> Result<Access> {
        may_manage(caller, "use tokens and open the gateway's page")?;
        Ok(Access::owner())
    }

    /// Works out what a token lets its holder do; `None` for one that does not count.
    pub async fn admit(&self, token: &str) -> Result<Option<Access>> {
        if is_same(token, self.owner_token()?.reveal()) {
            return Ok(Some(Access::owner()));
        }
        let found = self.token_of(token).await?;
        let lets_in = |record: &TokenRecord| record.kind != TokenKind::Login && record.counts(self.now());
        Ok(found.filter(lets_in).map(|record| access(&record)))
    }

    /// Makes a token that is never wider than its maker's; it is told this once.
    pub async fn create_token(&self, maker: &Access, new: NewToken) -> Result<(Secret, TokenRow)> {
        if new.scopes.is_empty() {
            return Err(Error::Invalid(
                "a token needs at least one scope: read, write, review or admin".to_owned(),
            ));
        }
        let session = match &new.session {
            None => None,
            Some(given) => {
                let reached = self.reach(&self.door_caller(maker, None), given, Verb::Send).await?;
                Some(self.opened(reached).await?.id)
            }
        };
        let kind = if session.is_some() { TokenKind::Address } else { TokenKind::Bearer };
        let secret = self.new_secret();
        let record = TokenRecord {
            agent: new.agent,
            session,
            label: new.label,
            ..self.record(&secret, kind, &new.scopes, new.expires_in)
        };
        let made = access(&record);
        if (made.agent.is_some() || made.session.is_some()) && new.scopes.contains(&Scope::Review) {
            return Err(Error::Denied(
                "a token for an agent or a session cannot review plans: that is the person's".to_owned(),
            ));
        }
        if !maker.covers(&made) {
            return Err(Error::Denied("a token cannot be given more rights than its maker has".to_owned()));
        }
        let row = row(&record);
        self.store()?.add_token(record).await?;
        Ok((secret, row))
    }

    /// Returns tokens without their secrets, newest first; codes of links are not among them.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>> {
        if !self.has_store() {
            return Ok(Vec::new());
        }
        let known = self.store()?.tokens(TOKENS_LEN_MAX).await?;
        Ok(known.iter().map(row).collect())
    }

    /// Revokes a token by its id: whoever uses it is cut off.
    pub async fn revoke_token(&self, id: &str) -> Result<TokenRow> {
        let revoked = self.store()?.revoke_token(id, self.now()).await?;
        revoked.as_ref().map(row).ok_or_else(|| no_token(id))
    }

    /// Returns the ids of all tokens that count now.
    pub async fn counting_tokens(&self) -> Result<Vec<String>> {
        Ok(self.store()?.counting_tokens(self.now()).await?)
    }

    /// As [`Self::tokens`], for somebody who sees no token that is wider than their own.
    pub async fn tokens_for(&self, holder: &Access) -> Result<Vec<TokenRow>> {
        let known = self.store()?.tokens(TOKENS_LEN_MAX).await?;
        Ok(known.iter().filter(|record| holder.covers(&access(record))).map(row).collect())
    }

    /// As [`Self::revoke_token`], for somebody who sees no token that is wider than their own.
    pub async fn revoke_token_for(&self, holder: &Access, id: &str) -> Result<TokenRow> {
        let found = self.store()?.token(id).await?;
        if !found.is_some_and(|record| holder.covers(&access(&record))) {
            return Err(no_token(id));
        }
        self.revoke_token(id).await
    }

    /// Ends what a page was logged in with.
    pub async fn log_out(&self, id: &str) -> Result<()> {
        let store = self.store()?;
        // A page that carries an ordinary token as its cookie does not take it from everybody else.
        if store.token(id).await?.is_some_and(|record| record.kind == TokenKind::Cookie) {
            store.revoke_token(id, self.now()).await?;
        }
        Ok(())
    }

    /// Returns a code that logs a page in: once, and within [`LOGIN_CODE_FOR`].
    pub async fn login_code(&self) -> Result<Secret> {
        let secret = self.new_secret();
        let record = self.record(&secret, TokenKind::Login, &[Scope::Admin], Some(LOGIN_CODE_FOR));
        self.store()?.add_token(record).await?;
        Ok(secret)
    }

    /// Exchanges a code for what a page that is logged in has; `None` when the code does not count.
    pub async fn login(&self, code: &str) -> Result<Option<(Secret, Access)>> {
        let secret = self.new_secret();
        let record = self.record(&secret, TokenKind::Cookie, &[Scope::Admin], Some(COOKIE_FOR));
        let given = access(&record);
        let counted = self.store()?.exchange_login(&sha256(code.as_bytes()), record, self.now()).await?;
        Ok(counted.then_some((secret, given)))
    }

    /// Gives a page that was handed a token what it has when it is logged in: the same rights.
    pub async fn login_with_token(&self, token: &str) -> Result<Option<(Secret, Access)>> {
        let Some(held) = self.admit(token).await? else { return Ok(None) };
        if held.session.is_some() {
            return Ok(None);
        }
        if held.token.is_some() {
            // The token itself, so that the page is logged out when it is revoked.
            return Ok(Some((Secret(token.to_owned()), held)));
        }
        // The owner's own never ends and stays out of browsers.
        let secret = self.new_secret();
        let record = self.record(&secret, TokenKind::Cookie, &held.scopes, Some(COOKIE_FOR));
        let given = access(&record);
        self.store()?.add_token(record).await?;
        Ok(Some((secret, given)))
    }

    /// Returns the caller that somebody with this access is.
    pub fn door_caller(&self, access: &Access, client: Option<&str>) -> Caller {
        let token_session = access.session.as_ref().map(ToString::to_string);
        let signals = Signals { token_session, client_name: client.map(str::to_owned), ..Signals::default() };
        let mut caller = self.caller(&signals);
        if access.session.is_none() {
            caller.standing = Standing::Owner;
            caller.only.clone_from(&access.agent);
        }
        caller
    }

    /// Returns the agent that calls tools over HTTP with this access: the session that its token stands
    /// for, else what the call says.
    pub fn agent_caller(&self, access: &Access, said: Signals) -> Caller {
        let token_session = access.session.as_ref().map(ToString::to_string);
        self.caller(&Signals { explicit: None, token_session, env: Vec::new(), ..said })
    }

    async fn token_of(&self, secret: &str) -> Result<Option<TokenRecord>> {
        let hash = sha256(secret.as_bytes());
        let found = self.store()?.token_by_hash(&hash).await?;
        Ok(found.filter(|record| is_same(&record.hash, &hash)))
    }

    fn record(
        &self,
        secret: &Secret,
        kind: TokenKind,
        scopes: &[Scope],
        lasts: Option<Duration>,
    ) -> TokenRecord {
        let now = self.now();
        let names: Vec<&str> =
            Scope::ALL.into_iter().filter(|s| scopes.contains(s)).map(Scope::as_str).collect();
        let end = |lasts: Duration| {
            let millis = i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millis_clamped(now.as_millis().saturating_add(millis))
        };
        TokenRecord {
            id: format!("{:016x}", self.random() as u64),
            hash: sha256(secret.reveal().as_bytes()),
            kind,
            scopes: names.join(","),
            agent: None,
            session: None,
            label: None,
            created_at: now,
            expires_at: lasts.map(end),
            revoked_at: None,
        }
    }

    /// Returns 256 random bits as text.
    fn new_secret(&self) -> Secret {
        Secret(format!("{PREFIX}{:032x}{:032x}", self.random(), self.random()))
    }
}

/// Compares in a time that does not depend on where two texts differ.
fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let differ = one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differ) == 0
}

fn no_token(id: &str) -> Error {
    Error::NotFound(format!("there is no token {id}; `sess token list` shows them"))
}

fn access(record: &TokenRecord) -> Access {
    Access {
        scopes: scopes(&record.scopes),
        agent: record.agent.clone(),
        session: record.session.clone(),
        token: Some(record.id.clone()),
        expires_at: record.expires_at,
    }
}

/// Reads the names of rights; unknown ones give none.
fn scopes(names: &str) -> Vec<Scope> {
    Scope::ALL.into_iter().filter(|scope| names.split(',').any(|name| name == scope.as_str())).collect()
}

fn row(record: &TokenRecord) -> TokenRow {
    TokenRow {
        id: record.id.clone(),
        label: record.label.clone(),
        scopes: scopes(&record.scopes),
        agent: record.agent.as_ref().map(ToString::to_string),
        session: record.session.as_ref().map(ToString::to_string),
        created_at: record.created_at.as_millis(),
        expires_at: record.expires_at.map(Timestamp::as_millis),
        revoked_at: record.revoked_at.map(Timestamp::as_millis),
    }
}
