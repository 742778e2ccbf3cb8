//! `sess serve`: the gateway, which is a node with doors for programs and people.

mod record;
mod service;

use std::{net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use sess_app::agents::Nobody;
use sess_core::permission::Trust;
use sess_server::gateway::{self, GatewayOptions, LISTEN, Limits};
use tokio_util::sync::CancellationToken;

pub use self::record::{Record, running};
use super::{
    Context,
    run::{agents, lease, second_signal},
};
use crate::{
    cli,
    config::{
        file::GatewayLimits,
        gateway::{Tls, parse_listen},
    },
    output::{Output, Usage},
};

pub async fn run(context: &Context, output: &Output, args: cli::Serve) -> anyhow::Result<ExitCode> {
    context.app.owner_access(&context.caller)?;
    if let Some(kind) = args.print_service {
        service::print(context, output, kind, &args)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = options(context, args)?;
    let node = match context.config.team.clone() {
        // Nobody is there to be asked: permissions decide what tools may do.
        Some(team) => Some(agents(context, team, Arc::new(Nobody), Trust::Ask, lease(context)?)?),
        None => None,
    };
    raise_open_files();
    let home = context.home()?.to_owned();
    let has_tls = options.tls.is_some();
    let names = options.names.clone();
    let stop = CancellationToken::new();
    let mut recorded = None;
    let ready = |address: SocketAddr| {
        let url = url(address, has_tls, &names);
        // Before anybody is told: who hears of it may look for it.
        recorded = record::write(&home, &url);
        if output.json {
            // Whoever started us and reads no more is no reason to end.
            let _gone = output.data_line(&json!({ "listening": url }));
        }
        output.say(&format!("Listening on {url} · `sess open` opens the page · Ctrl-C ends"));
        if let Some(warning) = exposed(address, has_tls) {
            output.say(&warning);
        }
    };
    let ended = tokio::select! {
        // In this order: whoever is told that it listens may end it at once.
        biased;
        heard = second_signal(&stop) => {
            heard.map(|()| ExitCode::from(130)).context("signals cannot be heard")
        }
        served = gateway::serve(context.app.clone(), node, options, stop.clone(), ready) => {
            served.map(|()| ExitCode::SUCCESS).map_err(refused)
        }
        () = say_drained(&stop, output) => unreachable!("it says one thing and waits"),
    };
    drop(recorded);
    ended
}

async fn say_drained(stop: &CancellationToken, output: &Output) {
    stop.cancelled().await;
    output.say("Ending: what is under way is finished first. Ctrl-C again ends at once.");
    std::future::pending::<()>().await;
}

fn options(context: &Context, args: cli::Serve) -> anyhow::Result<GatewayOptions> {
    let configured = &context.config.gateway;
    let listen = match &args.listen {
        Some(text) => parse_listen(text).map_err(|text| Usage(format!("--listen: {text}")))?,
        None => configured.listen.unwrap_or(LISTEN),
    };
    let named = args.tls_cert.zip(args.tls_key).map(|(cert, key)| Tls { cert, key });
    let tls = named.or_else(|| configured.tls.clone()).map(|tls| (tls.cert, tls.key));
    Ok(GatewayOptions {
        listen,
        names: configured.names.clone(),
        tls,
        insecure: args.insecure,
        limits: limits(&configured.limits),
    })
}

/// Returns the address that a person or a program here uses.
fn url(address: SocketAddr, has_tls: bool, names: &[String]) -> String {
    let scheme = if has_tls { "https" } else { "http" };
    let port = address.port();
    match (names.first(), address.ip()) {
        // A certificate is made out to a name.
        (Some(name), _) if has_tls => format!("{scheme}://{name}:{port}"),
        (_, ip) if ip.is_unspecified() => format!("{scheme}://localhost:{port}"),
        _ => format!("{scheme}://{address}"),
    }
}

/// Says what `--insecure` means, where it means something.
fn exposed(address: SocketAddr, has_tls: bool) -> Option<String> {
    let is_exposed = !has_tls && !address.ip().is_loopback();
    is_exposed.then(|| {
        format!(
            "Other machines can reach {address}, and nothing is encrypted: whoever is on the way reads tokens \
             and messages. --tls-cert and --tls-key encrypt; --listen 127.0.0.1 keeps it to this machine."
        )
    })
}

/// Says why the gateway did not start, or ended by itself.
fn refused(error: sess_server::Error) -> anyhow::Error {
    match error {
        sess_server::Error::App(error) => error.into(),
        sess_server::Error::Wide(_) | sess_server::Error::Tls { .. } | sess_server::Error::Name(_) => {
            let text = match std::error::Error::source(&error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            };
            Usage(text).into()
        }
        sess_server::Error::Bind { listen, source } => {
            let text = format!("cannot listen on {listen}: {source}; --listen names another address");
            sess_app::Error::Unavailable(text).into()
        }
        sess_server::Error::UnknownTool { .. } | sess_server::Error::Stopped => anyhow::Error::new(error),
    }
}

/// Every follower is an open file, and shells start programs with few of them.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the number of open files stays as it is");
    }
}

/// Returns the gateway's limits: those that are written, and its own for the others.
fn limits(written: &GatewayLimits) -> Limits {
    let usual = Limits::default();
    let size = |given: Option<u64>, usual: usize| {
        given.map_or(usual, |given| usize::try_from(given).unwrap_or(usize::MAX))
    };
    let seconds = |given: Option<u64>, usual: Duration| given.map_or(usual, Duration::from_secs);
    Limits {
        body_bytes: size(written.body_bytes, usual.body_bytes),
        upload_bytes: size(written.upload_bytes, usual.upload_bytes),
        frame_bytes: size(written.frame_bytes, usual.frame_bytes),
        connect_within: seconds(written.connect_seconds, usual.connect_within),
        before_connect_bytes: size(written.before_connect_bytes, usual.before_connect_bytes),
        connections: size(written.connections, usual.connections),
        subscriptions: size(written.subscriptions, usual.subscriptions),
        in_flight: size(written.in_flight, usual.in_flight),
        failed_logins: written
            .failed_logins
            .map_or(usual.failed_logins, |given| u32::try_from(given).unwrap_or(u32::MAX)),
        header_within: seconds(written.header_seconds, usual.header_within),
        body_within: seconds(written.body_seconds, usual.body_within),
        take_within: seconds(written.take_seconds, usual.take_within),
        drain_within: seconds(written.drain_seconds, usual.drain_within),
        attachments_bytes: size(written.attachments_bytes, usual.attachments_bytes),
        attachment_for: seconds(written.attachment_minutes.map(|minutes| minutes * 60), usual.attachment_for),
        keepalive: seconds(written.keepalive_seconds, usual.keepalive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_without_tls_is_named() {
        let said = |address: &str, has_tls| exposed(address.parse().expect(address), has_tls);
        for wide in ["0.0.0.0:4747", "192.0.2.1:4747", "[::]:4747"] {
            let warning = said(wide, false).expect(wide);
            assert!(warning.contains(wide) && warning.contains("nothing is encrypted"), "{warning}");
            assert_eq!(said(wide, true), None);
        }
        for narrow in ["127.0.0.1:4747", "[::1]:4747"] {
            assert_eq!(said(narrow, false), None);
        }
    }
}
