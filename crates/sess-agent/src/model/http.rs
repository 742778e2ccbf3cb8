//! The call itself: one request, a stream of events, and trying again.
//!
//! What the events mean is the business of each API's [`Reader`]; when to give up
//! is decided here, for all of them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode};
use rustls_platform_verifier::BuilderVerifierExt;
use serde_json::Value;
use sess_core::{agent::ModelSpec, message::Role, redact::redact};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::draft::{CALLS_MAX, Draft, Excess, REPLY_BYTES_MAX, Told};
use super::{ModelError, Patience, Piece, Reply, Request, Secret, sse};

/// The most bytes of one stream, whatever is in it: a reply in small pieces is mostly wrapping.
pub const STREAM_BYTES_MAX: usize = 64 << 20;

/// The most bytes that are read of an error's explanation.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The most characters that are shown of it.
const ERROR_CHARS_MAX: usize = 500;

/// How long to wait for the end of a stream that has said all: its connection can then be used again.
const DRAIN: Duration = Duration::from_millis(100);

/// How often a call is made that was answered by silence or by nothing: each costs much.
const COSTLY_TRIES: u32 = 2;

/// A shorter key is a placeholder for a server that wants none, and may be part of any word.
const SECRET_BYTES_MIN: usize = 8;

const CONNECT: Duration = Duration::from_secs(20);

/// Understands the events of one API.
pub(super) trait Reader: Send {
    fn take(&mut self, event: &sse::Event, draft: &mut Draft, told: Told<'_>) -> Result<Progress, Fault>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    /// Nothing that matters comes after this event.
    Whole,
}

/// Why one try failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    Again {
        why: String,
        /// What the provider asked for.
        after: Option<Duration>,
        tries: u32,
    },
    /// The stream ended as it should, and there was nothing in it.
    Nothing,
    /// Trying again would bring the same, but something came.
    Broken(String),
    Refused(String),
    TooLong(String),
}

impl Fault {
    pub(super) fn again(why: impl Into<String>) -> Self {
        Self::Again { why: why.into(), after: None, tries: u32::MAX }
    }

    fn costly(why: impl Into<String>) -> Self {
        Self::Again { why: why.into(), after: None, tries: COSTLY_TRIES }
    }

    /// Makes a fault of an error that came inside the stream.
    pub(super) fn told(kind: &str, message: &str) -> Self {
        let message = shortened(message);
        if is_too_long(kind, &message) {
            return Self::TooLong(message);
        }
        let is_final = [
            "invalid_request_error",
            "authentication_error",
            "permission_error",
            "not_found_error",
            "billing_error",
            "insufficient_quota",
            "invalid_prompt",
            "image_content_policy_violation",
        ];
        if is_final.contains(&kind) {
            return Self::Refused(message);
        }
        let kind = if kind.is_empty() { "error" } else { kind };
        Self::again(format!("the provider broke off: {message} ({kind})"))
    }
}

/// A provider's address, and how to speak to it.
pub(super) struct Link {
    client: reqwest::Client,
    url: reqwest::Url,
    headers: HeaderMap,
    /// How errors call the provider.
    host: String,
    token: Option<Secret>,
    /// The variable that the key comes from.
    token_key: String,
    patience: Patience,
}

impl Link {
    pub(super) fn new(
        url: &str,
        token: Option<Secret>,
        token_key: &str,
        patience: Patience,
    ) -> Result<Self, ModelError> {
        let parsed = reqwest::Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| ModelError::Refused(format!("the base_url of a model is no address: {url}")))?;
        let host = match parsed.port() {
            Some(port) => format!("{}:{port}", parsed.host_str().unwrap_or_default()),
            None => parsed.host_str().unwrap_or_default().to_owned(),
        };
        let client = client_for(&parsed)?;
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let token_key = token_key.to_owned();
        Ok(Self { client, url: parsed, headers, host, token, token_key, patience })
    }

    pub(super) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    /// Sends the key, if there is one, as `name: {prefix}{key}`.
    pub(super) fn key_header(mut self, name: &'static str, prefix: &str) -> Result<Self, ModelError> {
        let Some(token) = &self.token else { return Ok(self) };
        let value = HeaderValue::from_str(&format!("{prefix}{}", token.expose()));
        let Ok(mut value) = value else {
            let key = &self.token_key;
            return Err(ModelError::Refused(format!("the key in {key} has characters that no key has")));
        };
        value.set_sensitive(true);
        self.headers.insert(HeaderName::from_static(name), value);
        Ok(self)
    }

    /// Asks until there is a reply, or no use in asking.
    pub(super) async fn ask(
        &self,
        body: &Value,
        request: &Request,
        spec: &ModelSpec,
        reader: impl Fn() -> Box<dyn Reader>,
        told: Told<'_>,
        cancel: &CancellationToken,
    ) -> Result<Reply, ModelError> {
        let body: Arc<[u8]> = body.to_string().into_bytes().into();
        let mut waited = Duration::ZERO;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut draft = Draft::default();
            let mut reader = reader();
            // Cancelling drops the try wherever it is; the draft stays behind.
            let outcome = tokio::select! {
                biased;
                () = cancel.cancelled() => None,
                outcome = self.attempt(&body, reader.as_mut(), &mut draft, told) => Some(outcome),
            };
            let Some(outcome) = outcome else {
                return Err(ModelError::Cancelled { partial: Box::new(draft.partial(request, spec)) });
            };
            let (why, after, tries) = match outcome {
                Ok(()) => return Ok(draft.finish(request, spec)),
                // Whose tools have done it all may have nothing to add.
                Err(Fault::Nothing) if follows_tools(request) => return Ok(draft.finish(request, spec)),
                Err(Fault::Nothing) => ("the model answered nothing".to_owned(), None, COSTLY_TRIES),
                Err(Fault::Refused(why)) => return Err(ModelError::Refused(self.hide(why))),
                Err(Fault::TooLong(why)) => return Err(ModelError::TooLong(self.hide(why))),
                Err(Fault::Broken(reason)) => {
                    let partial = Box::new(draft.partial(request, spec));
                    return Err(ModelError::Unavailable { reason: self.hide(reason), partial });
                }
                Err(Fault::Again { why, after, tries }) => (self.hide(why), after, tries),
            };
            let give_up = |reason: String| {
                let partial = Box::new(draft.partial(request, spec));
                Err(ModelError::Unavailable { reason, partial })
            };
            if attempt >= tries.min(self.patience.tries) {
                return give_up(if attempt == 1 { why } else { format!("{why}, {attempt} times") });
            }
            let wait = after.unwrap_or_else(|| self.patience.wait(attempt, random()));
            if waited + wait > self.patience.wait_max {
                let seconds = wait.as_secs();
                return give_up(format!("{why}; trying again would mean waiting for {seconds} s"));
            }
            waited += wait;
            let after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::debug!(host = self.host, why, after_ms, "asking the model again");
            told(Piece::Retry { why, after_ms });
            tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    // Its pieces were taken back.
                    let partial = Box::new(Draft::default().partial(request, spec));
                    return Err(ModelError::Cancelled { partial });
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn attempt(
        &self,
        body: &Arc<[u8]>,
        reader: &mut dyn Reader,
        draft: &mut Draft,
        told: Told<'_>,
    ) -> Result<(), Fault> {
        let host = &self.host;
        let until = Instant::now() + self.patience.whole;
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .body(reqwest::Body::from(body.to_vec()));
        let Ok(sent) = timeout(self.patience.first_byte, request.send()).await else {
            let seconds = self.patience.first_byte.as_secs();
            return Err(Fault::costly(format!("{host} did not answer within {seconds} s")));
        };
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        if response.status() != StatusCode::OK {
            return Err(self.refusal(response).await);
        }
        check_type(host, &response)?;

        let mut parser = sse::Parser::default();
        let mut bytes = 0;
        loop {
            let limit = if bytes == 0 { self.patience.first_byte } else { self.patience.idle };
            let Ok(chunk) = timeout(limit, response.chunk()).await else {
                let seconds = limit.as_secs();
                return Err(Fault::costly(format!("{host} went silent for {seconds} s")));
            };
            let Ok(Some(chunk)) = chunk else {
                // After the last word the end is no news, however it comes.
                return if draft.stop.is_some() {
                    whole(draft)
                } else {
                    Err(Fault::again(format!("the stream from {host} broke off")))
                };
            };
            bytes += chunk.len();
            if bytes > STREAM_BYTES_MAX {
                let mib = STREAM_BYTES_MAX >> 20;
                return Err(Fault::Broken(format!("the stream from {host} is over {mib} MiB")));
            }
            if Instant::now() > until {
                let minutes = self.patience.whole.as_secs() / 60;
                return Err(Fault::Broken(format!("the reply from {host} took over {minutes} minutes")));
            }
            let events = parser.push(&chunk).map_err(|sse::TooLarge| {
                let mib = sse::EVENT_BYTES_MAX >> 20;
                Fault::Broken(format!("{host} sent an event of over {mib} MiB"))
            })?;
            for event in events {
                let progress = reader.take(&event, draft, told)?;
                if let Some(excess) = draft.excess() {
                    return Err(Fault::Broken(match excess {
                        Excess::Bytes => format!("the reply is over {} MiB", REPLY_BYTES_MAX >> 20),
                        Excess::Calls => format!("the reply has more than {CALLS_MAX} tool calls"),
                    }));
                }
                if progress == Progress::Whole {
                    // Only for the connection's sake, so neither an error nor silence matters.
                    let drained = async { while let Ok(Some(_)) = response.chunk().await {} };
                    let _ = timeout(DRAIN, drained).await;
                    return whole(draft);
                }
            }
        }
    }

    /// Makes a fault of an answer that is no reply.
    async fn refusal(&self, mut response: Response) -> Fault {
        let status = response.status();
        let after = retry_after(response.headers());
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(chunk)) = response.chunk().await {
                body.extend_from_slice(&chunk);
                if body.len() > ERROR_BYTES_MAX {
                    break;
                }
            }
        };
        let _ = timeout(self.patience.idle, read).await;
        body.truncate(ERROR_BYTES_MAX);
        let (kind, message) = explained(&String::from_utf8_lossy(&body));

        let (host, code) = (&self.host, status.as_u16());
        let said = if message.is_empty() { String::new() } else { format!(": {message}") };
        match code {
            // The explanation is left out: it may hold parts of the key.
            401 if self.token.is_none() => {
                Fault::Refused(format!("{host} asks for a key (HTTP 401): set {}", self.token_key))
            }
            401 => Fault::Refused(format!(
                "{host} did not accept the key (HTTP 401): check that {} holds a valid one",
                self.token_key
            )),
            403 => Fault::Refused(format!(
                "{host} does not allow this (HTTP 403): check what the key in {} may use{said}",
                self.token_key
            )),
            _ if matches!(code, 400 | 413 | 422) && (code == 413 || is_too_long(&kind, &message)) => {
                Fault::TooLong(format!("the conversation is too long for the model{said}"))
            }
            // Not too fast, but out of money: waiting does not help.
            429 if kind == "insufficient_quota" => Fault::Refused(format!("{host} refused{said}")),
            408 | 409 | 425 | 429 | 500..=599 => {
                Fault::Again { why: format!("{host} answered HTTP {code}{said}"), after, tries: u32::MAX }
            }
            300..=399 => Fault::Refused(format!(
                "{host} redirects elsewhere (HTTP {code}): check the base_url of the model"
            )),
            404 => Fault::Refused(format!(
                "{host} knows no such model or address (HTTP 404): check `model` and `base_url`{said}"
            )),
            _ => Fault::Refused(format!("{host} refused the request (HTTP {code}){said}")),
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Fault {
        let host = &self.host;
        let cause = cause(error);
        if error.is_builder() {
            return Fault::Refused(format!("no request to {host} can be made: {cause}"));
        }
        if error.is_connect() {
            return Fault::again(format!("{host} cannot be reached: {cause}"));
        }
        Fault::again(format!("the connection to {host} broke: {cause}"))
    }

    /// Takes the key out of a text that is shown.
    fn hide(&self, text: String) -> String {
        match &self.token {
            Some(token) if token.expose().len() >= SECRET_BYTES_MIN => text.replace(token.expose(), "***"),
            _ => text,
        }
    }
}

impl Patience {
    /// Returns how long to wait after the given failed attempt: twice as long each
    /// time, and a quarter more or less, so that many callers do not come back at once.
    fn wait(&self, attempt: u32, random: u64) -> Duration {
        let doubled = self.first_wait.saturating_mul(1 << (attempt - 1).min(16));
        let percent = u32::try_from(75 + random % 51).expect("it is at most 125");
        doubled * percent / 100
    }
}

/// Nothing secret hangs on it, so the seed of a hash table will do.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn whole(draft: &Draft) -> Result<(), Fault> {
    // A refusal or a limit explains why nothing came, so it is a reply.
    let explained = matches!(draft.stop, Some(super::Stop::Refused | super::Stop::Length));
    if draft.is_empty() && !explained {
        return Err(Fault::Nothing);
    }
    Ok(())
}

fn follows_tools(request: &Request) -> bool {
    request.messages.last().is_some_and(|last| last.role == Role::ToolResult)
}

fn check_type(host: &str, response: &Response) -> Result<(), Fault> {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // Some servers do not name the type of a stream; these two are surely none.
    if kind.starts_with("text/html") || kind.starts_with("application/json") {
        let hint = "check the base_url of the model";
        return Err(Fault::Refused(format!("{host} answered {kind}, not a stream of events: {hint}")));
    }
    Ok(())
}

/// Reads `Retry-After`. A date is compared with the answer's own, since clocks differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse().ok()) {
        return Some(Duration::from_millis(ms));
    }
    let after = text("retry-after")?;
    if let Ok(seconds) = after.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let parser = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
    let at = |date: &str| parser.parse_timestamp(date).ok();
    let seconds = at(after)?.as_second() - at(text("date")?)?.as_second();
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Returns the kind and the text of an error, in whichever shape it came.
pub(super) fn explained(body: &str) -> (String, String) {
    let json: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    let error = json.get("error").unwrap_or(&json);
    let word = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = if word("code").is_empty() { word("type") } else { word("code") };
    let message = match (word("message"), error.as_str()) {
        ("", Some(text)) => text,
        ("", None) if body.trim_start().starts_with('<') => "",
        ("", None) => body,
        (message, _) => message,
    };
    (kind.to_owned(), shortened(message))
}

fn shortened(message: &str) -> String {
    // Before it is cut: half a secret is not known for one.
    let (message, _) = redact(message.trim());
    let mut short: String = message.chars().take(ERROR_CHARS_MAX).collect();
    if short.len() < message.len() {
        short.push('…');
    }
    short
}

fn is_too_long(kind: &str, message: &str) -> bool {
    let signs = [
        "prompt is too long",
        "maximum context length",
        "context window",
        "context limit",
        "context size",
        "context length",
        "input is too long",
        "too many input tokens",
    ];
    let message = message.to_lowercase();
    matches!(kind, "context_length_exceeded" | "request_too_large" | "exceed_context_size_error")
        || signs.iter().any(|sign| message.contains(sign))
}

/// Returns the innermost cause, which is what a person can act on. The outer ones name the URL.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Makes the one kind of HTTP client there is here, for what is behind `url`.
pub fn http_client(url: &str) -> Result<reqwest::Client, ModelError> {
    let parsed = reqwest::Url::parse(url);
    client_for(&parsed.map_err(|error| ModelError::Refused(format!("{url} is no address: {error}")))?)
}

fn client_for(url: &reqwest::Url) -> Result<reqwest::Client, ModelError> {
    let mut client = reqwest::Client::builder()
        .user_agent(concat!("intersession/", env!("CARGO_PKG_VERSION")))
        // A key must not follow a redirect to another host.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .tls_backend_preconfigured(tls(url.scheme())?);
    if is_loopback(url) {
        client = client.no_proxy();
    }
    client
        .build()
        .map_err(|error| ModelError::Refused(format!("no HTTP client can be made: {}", cause(&error))))
}

fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Trusts what the machine trusts. An address without TLS needs no certificates,
/// so it works on a machine that has none.
fn tls(scheme: &str) -> Result<rustls::ClientConfig, ModelError> {
    let refused = |error: rustls::Error| {
        ModelError::Refused(format!("the certificates of this machine cannot be used: {error}"))
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(refused)?;
    let builder = if scheme == "https" {
        builder.with_platform_verifier().map_err(refused)?
    } else {
        builder.with_root_certificates(rustls::RootCertStore::empty())
    };
    Ok(builder.with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_vary_by_a_quarter() {
        let patience = Patience::default();
        let check = |attempt, random, ms| {
            assert_eq!(patience.wait(attempt, random), Duration::from_millis(ms), "{attempt} {random}");
        };
        check(1, 25, 500);
        check(2, 25, 1000);
        check(3, 25, 2000);
        check(1, 0, 375);
        check(1, 50, 625);
        check(1, 51, 375);
    }

    #[test]
    fn retry_after_is_read_as_seconds_milliseconds_or_a_date() {
        let check = |pairs: &[(&'static str, &'static str)], ms: Option<u64>| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            assert_eq!(retry_after(&headers), ms.map(Duration::from_millis), "{pairs:?}");
        };
        check(&[], None);
        check(&[("retry-after", "7")], Some(7000));
        check(&[("retry-after", "0.25")], Some(250));
        check(&[("retry-after", "7"), ("retry-after-ms", "30")], Some(30));
        check(&[("retry-after", "-1")], None);
        check(&[("retry-after", "soon")], None);
        let date = ("date", "Wed, 21 Oct 2015 07:28:00 GMT");
        check(&[date, ("retry-after", "Wed, 21 Oct 2015 07:29:30 GMT")], Some(90_000));
        check(&[date, ("retry-after", "Wed, 21 Oct 2015 07:20:00 GMT")], Some(0));
        check(&[("retry-after", "Wed, 21 Oct 2015 07:20:00 GMT")], None);
    }

    #[test]
    fn a_secret_that_would_be_cut_in_two_is_masked_first() {
        let secret = concat!("sk-", "Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56");
        for place in 1..secret.len() {
            let before = "w".repeat(ERROR_CHARS_MAX - place - 1);
            let told = shortened(&format!("{before} {secret} and more of it"));
            let whole = format!("{before} sk-Ab1…Op56 and more of it");
            assert!(whole.starts_with(told.trim_end_matches('…')), "{told}");
        }
    }

    #[test]
    fn errors_are_understood_in_every_shape() {
        let check = |body: &str, kind: &str, message: &str| {
            assert_eq!(explained(body), (kind.to_owned(), message.to_owned()), "{body}");
        };
        check(r#"{"type":"error","error":{"type":"x","message":"m"}}"#, "x", "m");
        check(r#"{"error":{"type":"t","code":"c","message":"m"}}"#, "c", "m");
        check(r#"{"error":"m"}"#, "", "m");
        check(r#"{"message":"m","code":500}"#, "", "m");
        check("gateway down", "", "gateway down");
        check("<html>…", "", "");
        check("", "", "");
    }
}
