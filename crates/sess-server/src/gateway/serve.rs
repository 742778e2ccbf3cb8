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
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{cursor::Cursors, limits::Limits, origin::Names, routes, state::State, ws::Deltas};
use crate::Error;

/// What is buffered of one connection, in and out, at most.
const BUFFER_BYTES: usize = 64 * 1024;
/// How long is waited when no connection can be accepted, mostly for want of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// What a connection over the limit is told, before anything of it is read.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Content-Length: 98\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
    {\"error\":{\"type\":\"unavailable\",\"message\":\"too many connections are open; come again in a moment\"}}";

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

/// Serves until `stop`. Agents that are given work here. `ready` hears where it listens.
pub async fn serve(
    app: App,
    agents: Option<Agents>,
    options: GatewayOptions,
    stop: CancellationToken,
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

    let limits = options.limits;
    let drain_within = limits.drain_within;
    let state = Arc::new(State::new(app, cursors, limits, names, stop.clone()));
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
    if let Some(agents) = agents {
        agents.look_on(Arc::new(Deltas::new(Arc::clone(&state.hub))));
        let stop = stop.clone();
        services.spawn(async move {
            if let Err(error) = agents.work(Work::All, &stop).await {
                tracing::error!(%error, "no agents work here: the store cannot be used");
            }
        });
    }
    ready(address);
    let mut connections = accept(&state, &listener, tls.as_ref()).await;
    // From here on `readyz` says no, streams end, and connections close after their answer.
    let drained = tokio::time::timeout(drain_within, async {
        while connections.join_next().await.is_some() {}
        state.sockets.close();
        state.sockets.wait().await;
    });
    if drained.await.is_err() {
        tracing::warn!("{} connections did not end in time and are cut", connections.len());
        connections.shutdown().await;
    }
    drop(listener);
    end.cancel();
    while services.join_next().await.is_some() {}
    Ok(())
}

/// Accepts connections until the gateway is stopped; returns those that are open then.
async fn accept(state: &Arc<State>, listener: &TcpListener, tls: Option<&TlsAcceptor>) -> JoinSet<()> {
    let mut connections = JoinSet::new();
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
            let _told = stream.try_write(FULL);
            continue;
        }
        let Ok(local) = stream.local_addr() else { continue };
        let (state, tls) = (Arc::clone(state), tls.cloned());
        let present = state.metrics.connections.enter();
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
    stream: TcpStream,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
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
        .serve_connection(TokioIo::new(stream), service)
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
