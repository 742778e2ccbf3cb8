//! The gateway with TLS, and on addresses that others reach.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::json;
use sess_server::gateway::{GatewayOptions, serve};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;

/// A certificate that only these tests trust, and its key.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/tls").join(name)
}

async fn asked(gateway: &Gateway, request: &str) -> String {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(file("cert.pem")).expect("a certificate");
    roots.add(certificate).expect("an anchor");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpStream::connect(gateway.address).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut socket = TlsConnector::from(Arc::new(config)).connect(name, socket).await.expect("a handshake");
    socket.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    let _closed = socket.read_to_end(&mut answer).await;
    String::from_utf8(answer).expect("text")
}

#[tokio::test]
async fn with_a_certificate_it_speaks_tls_and_nothing_else() {
    let gateway =
        Gateway::start_with(|options| options.tls = Some((file("cert.pem"), file("key.pem")))).await;
    let (port, token) = (gateway.address.port(), &gateway.token);
    let get = |origin: &str| {
        format!(
            "GET /sessions HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {token}\r\n{origin}\
             Connection: close\r\n\r\n"
        )
    };
    assert!(asked(&gateway, &get("")).await.starts_with("HTTP/1.1 200"));
    let origin = |scheme: &str| format!("Origin: {scheme}://localhost:{port}\r\n");
    assert!(asked(&gateway, &get(&origin("https"))).await.starts_with("HTTP/1.1 200"));
    assert!(asked(&gateway, &get(&origin("http"))).await.starts_with("HTTP/1.1 403"));
    let body = json!({ "token": token }).to_string();
    let login = format!(
        "POST /login HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = asked(&gateway, &login).await;
    let cookie =
        answer.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie")).expect("a cookie");
    assert!(cookie.contains("; Secure"), "{cookie}");
    let answer =
        asked(&gateway, &format!("{}this is none\r\n\r\n", get("").replace("close", "keep-alive"))).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, refused) = answer.split_once("HTTP/1.1 400").expect("a refusal");
    assert!(refused.contains("\"invalid_request\""), "{answer}");
    // Without it, nobody is answered.
    assert_ne!(gateway.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let gateway = Gateway::start().await;
    for (certificate, key, named) in [
        (file("nothing.pem"), file("key.pem"), "nothing.pem"),
        (file("cert.pem"), file("cert.pem"), "cert.pem"),
        (file("key.pem"), file("key.pem"), "key.pem"),
    ] {
        let options = GatewayOptions {
            listen: "127.0.0.1:0".parse().expect("an address"),
            tls: Some((certificate, key)),
            ..GatewayOptions::default()
        };
        let stop = CancellationToken::new();
        let refused = serve(gateway.app.clone(), None, options, stop, |_| panic!("it listens")).await;
        let message = refused.expect_err(named).to_string();
        assert!(message.contains(named), "{message}");
    }
}

#[tokio::test]
async fn on_every_address_it_is_the_one_that_was_asked() {
    let mut gateway = Gateway::start_with(|options| {
        options.listen = "0.0.0.0:0".parse().expect("an address");
        options.insecure = true;
    })
    .await;
    let port = gateway.address.port();
    gateway.address = format!("127.0.0.1:{port}").parse().expect("an address");
    let status = |host: String| {
        let gateway = &gateway;
        async move { gateway.request("GET", "/healthz", &[("Host", &host)], b"").await.status }
    };
    assert_eq!(status(format!("127.0.0.1:{port}")).await, 200);
    assert_eq!(status(format!("localhost:{port}")).await, 200);
    assert_eq!(status(format!("0.0.0.0:{port}")).await, 403);
    assert_eq!(status(format!("127.0.0.2:{port}")).await, 403, "another address than the one it came to");
    assert_eq!(status(format!("evil.example:{port}")).await, 403);
}
