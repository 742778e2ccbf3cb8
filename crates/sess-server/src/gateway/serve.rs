//! The listener: connections in, and a quiet end.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::extract::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use sess_app::{
    App,
    agents::{Agents, Work},
};
use sess_protocol::errors::ErrorType;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::Instant,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

use super::{
    cursor::Cursors, errors::Problem, limits::Limits, one_shape::OneShape, origin::Names, routes,
    state::State, taking::Taking, ws::Deltas,
};
use crate::Error;

/// What is buffered of one connection, in and out, at most.
const BUFFER_BYTES: usize = 64 * 1024;
/// How long connections have to close at least.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// How long is waited for the answers to those who wait for runs that have ended.
const TELL_WITHIN: Duration = Duration::from_millis(500);
/// How long is waited when no connection can be accepted, mostly for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Where the gateway listens when nobody says.
pub const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4747);

/// Where and how the gateway listens.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    pub listen: SocketAddr,
    /// Further host names under which it is reached.
    pub names: Vec<String>,
    /// The files of the certificate and of its key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Listen without TLS on an address that others reach.
    pub insecure: bool,
    pub limits: Limits,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self { listen: LISTEN, names: Vec::new(), tls: None, insecure: false, limits: Limits::default() }
    }
}

/// Serves until `ending`, and then until what is under way has ended or its time is over. Agents that are
/// given work here. `ready` hears where it listens.
pub async fn serve(
    app: App,
    agents: Option<Agents>,
    options: GatewayOptions,
    ending: CancellationToken,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), Error> {
    let tls = options.tls.as_ref().map(|(certificate, key)| acceptor(certificate, key)).transpose()?;
    if !options.listen.ip().is_loopback() && tls.is_none() && !options.insecure {
        return Err(Error::Wide(options.listen));
    }
    let names = Names::new(&options.names, tls.is_some()).map_err(Error::Name)?;
    let cursors = Cursors::new(app.owner_token()?.reveal());
    // Before anybody can follow, so that nothing falls in between.
    let head = app.events_head().await?;
    let bind = |source| Error::Bind { listen: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;

    let state = Arc::new(State::new(app, cursors, options.limits, names, ending));
    // The hub outlives the requests, which may still be told something.
    let end = CancellationToken::new();
    let mut services = JoinSet::new();
    services.spawn({
        let (state, end) = (Arc::clone(&state), end.clone());
        async move { state.hub.run(head, &end).await }
    });
    services.spawn({
        let state = Arc::clone(&state);
        async move { state.watch_tokens().await }
    });
    let work = Working::begin(&state, agents);
    ready(address);
    // Until the end somebody answers at the door, if only that nothing is taken any longer.
    let (mut connections, until) = tokio::join!(accept(&state, &listener, tls.as_ref()), drain(&state, work));
    // Streams end, and connections close after their answer.
    let until = until.max(Instant::now() + CLOSE_WITHIN);
    let closed = tokio::time::timeout_at(until, async {
        while connections.join_next().await.is_some() {}
        state.sockets.close();
        state.sockets.wait().await;
    });
    if closed.await.is_err() {
        tracing::warn!("{} connections did not end in time and are cut", connections.len());
        connections.shutdown().await;
    }
    drop(listener);
    end.cancel();
    while services.join_next().await.is_some() {}
    Ok(())
}

/// The agents that work here.
struct Working {
    task: JoinHandle<()>,
    /// Ends what they still execute.
    give_up: CancellationToken,
}

impl Working {
    fn begin(state: &State, agents: Option<Agents>) -> Option<Self> {
        let agents = agents?;
        agents.look_on(Arc::new(Deltas::new(Arc::clone(&state.hub))));
        let (ending, give_up) = (state.ending.clone(), CancellationToken::new());
        let until = give_up.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = agents.work_until(Work::All, &ending, &until).await {
                tracing::error!(%error, "no agents work here: the store cannot be used");
            }
        });
        Some(Self { task, give_up })
    }

    async fn ended(&mut self) {
        if (&mut self.task).await.is_err() {
            tracing::error!("the agents here stopped unexpectedly");
        }
    }
}

/// Waits until the gateway is about to end, and lets its runs end; then nobody waits here any longer.
///
/// Returns until when requests may still be answered.
async fn drain(state: &State, work: Option<Working>) -> Instant {
    state.ending.cancelled().await;
    let until = Instant::now() + state.limits.drain_within;
    if let Some(mut work) = work
        && tokio::time::timeout_at(until, work.ended()).await.is_err()
    {
        tracing::warn!("runs did not end in time and are given up");
        work.give_up.cancel();
        work.ended().await;
    }
    // Whoever waits for one of them hears how it ended.
    state.busy.close();
    let _told = tokio::time::timeout(TELL_WITHIN, state.busy.wait()).await;
    state.stop.cancel();
    until
}

/// Accepts connections until the gateway is stopped; returns those that are open then.
async fn accept(state: &Arc<State>, listener: &TcpListener, tls: Option<&TlsAcceptor>) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    // What a connection over the limit is told, before anything of it is read.
    let full = "too many connections are open; come again in a moment";
    let full = Problem::new(ErrorType::Unavailable, full)
        .written("HTTP/1.1 503 Service Unavailable\r\nconnection: close");
    loop {
        let accepted = tokio::select! {
            () = state.stop.cancelled() => return connections,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        if state.metrics.connections.get() >= state.limits.connections as u64 {
            state.metrics.refused_connections.add(1);
            // It fits into the empty buffer of a new connection, or is not worth waiting for.
            let _told = stream.try_write(&full);
            continue;
        }
        let Ok(local) = stream.local_addr() else { continue };
        let (state, tls) = (Arc::clone(state), tls.cloned());
        let present = state.metrics.connections.enter();
        let stream = Taking::new(stream, state.limits.take_within);
        connections.spawn(async move {
            let _present = present;
            match tls {
                None => converse(&state, stream, local, peer).await,
                Some(tls) => {
                    let Some(stream) = handshake(&state, &tls, stream).await else { return };
                    converse(&state, stream, local, peer).await;
                }
            }
        });
    }
}

async fn handshake(
    state: &State,
    tls: &TlsAcceptor,
    stream: Taking<TcpStream>,
) -> Option<TlsStream<Taking<TcpStream>>> {
    let accepted = tokio::time::timeout(state.limits.header_within, tls.accept(stream)).await;
    accepted.ok()?.ok()
}

/// Answers the requests of one connection.
async fn converse(
    state: &Arc<State>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    local: SocketAddr,
    peer: SocketAddr,
) {
    let service = service_fn(|request: hyper::Request<Incoming>| async move {
        let request: Request = request.map(axum::body::Body::new);
        Ok::<_, Infallible>(routes::answer(state, local, peer, request).await)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(state.limits.header_within)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(OneShape::new(stream, Arc::clone(state))), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = state.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Mostly a client that went away.
        tracing::debug!(%error, "a connection ended early");
    }
}

fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, Error> {
    let wrong = |path: &Path, reason: &dyn std::fmt::Display| Error::Tls {
        path: path.to_owned(),
        source: io::Error::other(reason.to_string()),
    };
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| wrong(certificate, &error))?;
    if chain.is_empty() {
        return Err(wrong(certificate, &"it has no certificate"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| wrong(certificate, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
