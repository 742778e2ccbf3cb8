//! `sess token`: what lets programs in at the gateway.

use std::time::Duration;

use serde_json::json;
use sess_app::NewToken;
use sess_core::{AgentId, Timestamp};
use sess_protocol::tokens::{CreatedToken, Scope, TokenRow, Tokens};

use super::Context;
use crate::{
    cli::{self, TokenScope},
    config::now,
    output::{Output, Usage, ago},
};

/// The longest that a token with an end may last: ten years.
const LASTS_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

pub async fn run(context: &Context, output: &Output, command: Option<cli::Token>) -> anyhow::Result<()> {
    let access = context.app.owner_access(&context.caller)?;
    match command {
        None => {
            let token = context.app.owner_token()?;
            if output.json {
                return output.data(&json!({ "token": token.reveal() }));
            }
            output.line(token.reveal())
        }
        Some(cli::Token::Create { scopes, agent, expires, label }) => {
            let agent: Option<AgentId> = match agent {
                None => None,
                Some(name) => Some(name.parse().map_err(|error| Usage(format!("--agent: {error}")))?),
            };
            if let Some(name) = &agent
                && !context.config.team.as_ref().is_some_and(|team| team.agent(name).is_some())
            {
                output.say(&format!(
                    "no agent \"{name}\" is configured here: the token reaches the sessions of one that is \
                     called so, if there ever are any"
                ));
            }
            let session = match &context.session {
                None => None,
                Some(reference) => Some(context.absolute(reference.clone()).await?),
            };
            let new = NewToken {
                scopes: scopes.into_iter().map(scope).collect(),
                agent,
                session,
                label,
                expires_in: expires.as_deref().map(lasts).transpose()?,
            };
            let (secret, row) = context.app.create_token(&access, new).await?;
            if output.json {
                return output.data(&CreatedToken { secret: secret.reveal().to_owned(), token: row });
            }
            output.line(secret.reveal())?;
            output.say(&format!("This is shown once. `sess token revoke {}` makes it worthless.", row.id));
            Ok(())
        }
        Some(cli::Token::List) => list(context, output).await,
        Some(cli::Token::Revoke { id }) => {
            let row = context.app.revoke_token(&id).await?;
            if output.json {
                return output.data(&row);
            }
            output.line(&format!("revoked {}", row.id))
        }
    }
}

async fn list(context: &Context, output: &Output) -> anyhow::Result<()> {
    let tokens = context.app.tokens().await?;
    if output.json {
        return output.data(&Tokens { tokens });
    }
    if tokens.is_empty() {
        output.say("no tokens but your own, which `sess token` prints; `sess token create` makes others");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = tokens.iter().map(cells).collect();
    output.table(&["ID", "SCOPES", "FOR", "MADE", "COUNTS", "LABEL"], 5, &rows)
}

fn cells(row: &TokenRow) -> Vec<String> {
    let scopes: Vec<&str> = row.scopes.iter().map(|scope| scope.as_str()).collect();
    let whom = match (&row.session, &row.agent) {
        (Some(session), _) => format!("session {session}"),
        (None, Some(agent)) => format!("agent {agent}"),
        (None, None) => "all".to_owned(),
    };
    let counts = match (row.revoked_at, row.expires_at) {
        (Some(_), _) => "revoked".to_owned(),
        (None, Some(end)) if Timestamp::from_millis_clamped(end) <= now() => "expired".to_owned(),
        (None, Some(end)) => format!("until {}", Timestamp::from_millis_clamped(end)),
        (None, None) => "yes".to_owned(),
    };
    let made = ago(Timestamp::from_millis_clamped(row.created_at), now());
    vec![row.id.clone(), scopes.join(","), whom, made, counts, row.label.clone().unwrap_or_default()]
}

fn scope(scope: TokenScope) -> Scope {
    match scope {
        TokenScope::Read => Scope::Read,
        TokenScope::Write => Scope::Write,
        TokenScope::Review => Scope::Review,
        TokenScope::Admin => Scope::Admin,
    }
}

/// Reads how long a token lasts: a number and its unit.
fn lasts(text: &str) -> Result<Duration, Usage> {
    let wrong = || {
        Usage(format!(
            "--expires is {text:?}: expected a number and s, m, h, d or w, such as 30d; at most ten years"
        ))
    };
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| !c.is_ascii_digit()).len());
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "w" => 7 * 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let lasts = number.checked_mul(seconds).map(Duration::from_secs);
    lasts.filter(|lasts| !lasts.is_zero() && *lasts <= LASTS_MAX).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::lasts;

    #[test]
    fn how_long_a_token_lasts_is_a_number_and_a_unit() {
        let seconds = |text: &str| lasts(text).map(|lasts| lasts.as_secs()).ok();
        assert_eq!(seconds("90s"), Some(90));
        assert_eq!(seconds("30d"), Some(30 * 86_400));
        assert_eq!(seconds("2w"), Some(14 * 86_400));
        for wrong in ["", "30", "d", "0d", "-1d", "1.5h", "30 d", "9999999w", "99999999999999999999s", "1é"]
        {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
