//! What axum does when nothing is asked of it but to hand on bytes.

#![expect(clippy::print_stdout, reason = "it says where it listens, as the gateway does")]

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::ListenerExt as _,
};
use futures_util::{SinkExt as _, stream};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::broadcast};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

const QUEUE: usize = 256;

#[derive(Clone)]
struct Bare {
    events: broadcast::Sender<Bytes>,
    frames: broadcast::Sender<Utf8Bytes>,
    page: Arc<Mutex<Bytes>>,
}

pub async fn serve() {
    let bare = Bare {
        events: broadcast::Sender::new(QUEUE),
        frames: broadcast::Sender::new(QUEUE),
        page: Arc::default(),
    };
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/page", get(page).post(set_page))
        .route("/tell", post(tell))
        .route("/sse", get(sse))
        .route("/bare-ws", get(websocket))
        .with_state(bare);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!(r#"{{"listening":"http://{}"}}"#, listener.local_addr().expect("an address"));
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("set"));
    axum::serve(listener, router).await.expect("it serves until it is killed");
}

async fn page(State(bare): State<Bare>) -> Response {
    let page = bare.page.lock().expect("nobody panics").clone();
    ([(header::CONTENT_TYPE, "application/json")], page).into_response()
}

async fn set_page(State(bare): State<Bare>, page: Bytes) {
    *bare.page.lock().expect("nobody panics") = page;
}

/// Encodes once, for all.
async fn tell(State(bare): State<Bare>, text: String) {
    // Nobody follows at one of the two doors.
    let _nobody = bare.events.send(format!("event: message\ndata: {text}\n\n").into());
    let _nobody = bare.frames.send(text.into());
}

async fn sse(State(bare): State<Bare>) -> Response {
    let told = stream::unfold(bare.events.subscribe(), async |mut events| {
        let event = events.recv().await.ok()?;
        Some((Ok::<_, std::convert::Infallible>(event), events))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(told)).into_response()
}

async fn websocket(State(bare): State<Bare>, mut request: Request) -> Response {
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).expect("a key");
    let accept = derive_accept_key(key.as_bytes());
    let upgrade = hyper::upgrade::on(&mut request);
    let mut frames = bare.frames.subscribe();
    tokio::spawn(async move {
        let upgraded = TokioIo::new(upgrade.await.expect("it is upgraded"));
        let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
        let mut socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, Some(config)).await;
        while let Ok(text) = frames.recv().await {
            if socket.send(Message::Text(text)).await.is_err() {
                return;
            }
        }
    });
    let headers = [
        (header::CONNECTION, "upgrade".to_owned()),
        (header::UPGRADE, "websocket".to_owned()),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}
