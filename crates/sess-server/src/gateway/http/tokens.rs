//! Logging in and out, and tokens for others.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use sess_app::{Access, COOKIE_FOR, NewToken, Secret};
use sess_core::AgentId;
use sess_protocol::tokens::{CreateToken, CreatedToken, LoggedIn, Login, Tokens};

use super::{Call, Problem, created, json, json_body};
use crate::gateway::{
    admission::{COOKIE, cookie},
    state::State,
};

pub(in crate::gateway) async fn login(call: Call) -> Result<Response, Problem> {
    let (state, peer) = (call.state.clone(), call.peer);
    let body: Login = json_body(call).await?;
    let ((Some(given), None) | (None, Some(given))) = (&body.code, &body.token) else {
        return Err(Problem::invalid("give a code or a token, and not both"));
    };
    let logged_in = match &body.code {
        // Looked at first: a code that nobody can guess is not locked out by what others got wrong.
        Some(code) => state.app.login(code).await?,
        None => {
            state.guesses.check(peer, given)?;
            state.app.login_with_token(given).await?
        }
    };
    let Some((secret, access)) = logged_in else {
        state.guesses.check(peer, given)?;
        state.guesses.failed(peer);
        state.metrics.refused_logins.add(1);
        return Err(Problem::unauthorized(match &body.code {
            Some(_) => {
                "a code that was used or is older than a minute lets nobody in; `sess open` makes a new link"
            }
            None => "this token does not let anybody in; `sess token` prints yours",
        }));
    };
    state.guesses.counted(secret.reveal());
    let agent = access.agent.as_ref().map(ToString::to_string);
    let mut response = json(&LoggedIn { scopes: access.scopes, agent });
    set_cookie(&state, &mut response, secret.reveal(), COOKIE_FOR);
    Ok(response)
}

pub(in crate::gateway) async fn logout(call: Call) -> Result<Response, Problem> {
    let state = &call.state;
    if let Some(held) = cookie(call.request.headers())
        && let Ok(access) = state.admit_token(&held, call.peer).await
        && let Some(id) = &access.token
    {
        state.app.log_out(id).await?;
    }
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    set_cookie(state, &mut response, "", Duration::ZERO);
    Ok(response)
}

/// No script reads it, no other site sends it.
fn set_cookie(state: &State, response: &mut Response, value: &str, lasts: Duration) {
    let secure = if state.names.is_tls() { "; Secure" } else { "" };
    let seconds = lasts.as_secs();
    let text = format!("{COOKIE}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}");
    let mut value = HeaderValue::try_from(text).expect("a token is letters and digits");
    value.set_sensitive(true);
    response.headers_mut().insert(header::SET_COOKIE, value);
}

pub(in crate::gateway) async fn list(call: Call, access: Access) -> Result<Response, Problem> {
    Ok(json(&Tokens { tokens: call.state.app.tokens_for(&access).await? }))
}

pub(in crate::gateway) async fn create(call: Call, access: Access) -> Result<Response, Problem> {
    let app = call.state.app.clone();
    let body: CreateToken = json_body(call).await?;
    let agent: Option<AgentId> = match &body.agent {
        None => None,
        Some(name) => {
            Some(name.parse().map_err(|_| Problem::invalid(format!("{name:?} is no agent's name")))?)
        }
    };
    let new = NewToken {
        scopes: body.scopes,
        agent,
        session: body.session,
        label: body.label,
        expires_in: body.expires_in_seconds.map(Duration::from_secs),
    };
    let (secret, token): (Secret, _) = app.create_token(&access, new).await?;
    Ok(created(&CreatedToken { secret: secret.reveal().to_owned(), token }))
}

pub(in crate::gateway) async fn revoke(call: Call, access: Access) -> Result<Response, Problem> {
    Ok(json(&call.state.app.revoke_token_for(&access, call.param("tokenId")).await?))
}
