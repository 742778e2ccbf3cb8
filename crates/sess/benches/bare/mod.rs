//! What axum and SQLite do when nothing else is asked of them: bytes are handed on, rows are copied out,
//! and an append is one commit for all that came together.

#![expect(clippy::print_stdout, reason = "it says where it listens, as the gateway does")]

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        mpsc::{SyncSender, sync_channel},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::ListenerExt as _,
};
use futures_util::{SinkExt as _, stream};
use hyper_util::rt::TokioIo;
use rusqlite::{Connection, OpenFlags, params};
use tokio::{
    net::TcpListener,
    sync::{broadcast, oneshot},
};
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
    /// The store's own file, opened to read.
    store: Arc<Mutex<Option<Connection>>>,
    appends: SyncSender<Append>,
}

type Append = (String, oneshot::Sender<()>);

pub async fn serve() {
    let bare = Bare {
        events: broadcast::Sender::new(QUEUE),
        frames: broadcast::Sender::new(QUEUE),
        store: Arc::default(),
        appends: start_writer(),
    };
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/page", get(page))
        .route("/open", post(open))
        .route("/append", post(append))
        .route("/tell", post(tell))
        .route("/sse", get(sse))
        .route("/bare-ws", get(websocket))
        .with_state(bare);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!(r#"{{"listening":"http://{}"}}"#, listener.local_addr().expect("an address"));
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("set"));
    axum::serve(listener, router).await.expect("it serves until it is killed");
}

async fn open(State(bare): State<Bare>, path: String) {
    let reader = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a store");
    *bare.store.lock().expect("nobody panics") = Some(reader);
}

/// Copies the bodies of the newest messages before one, which are JSON already.
async fn page(State(bare): State<Bare>, uri: Uri) -> Response {
    let asked: HashMap<&str, &str> =
        uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')).collect();
    let number = |name: &str| asked[name].parse::<i64>().expect("a number");
    let mut bodies = Vec::new();
    {
        let store = bare.store.lock().expect("nobody panics");
        let mut select = store
            .as_ref()
            .expect("it is open")
            .prepare_cached(
                "SELECT body FROM messages WHERE session = (SELECT n FROM sessions WHERE id = ?1) AND seq < ?2
                 ORDER BY seq DESC LIMIT ?3",
            )
            .expect("a statement");
        let rows =
            select.query_map(params![asked["session"], number("before"), number("limit")], |row| row.get(0));
        for body in rows.expect("rows") {
            let body: String = body.expect("a body");
            bodies.push(body);
        }
    }
    bodies.reverse();
    let page = format!("{{\"items\":[{}]}}", bodies.join(","));
    ([(header::CONTENT_TYPE, "application/json")], page).into_response()
}

async fn append(State(bare): State<Bare>, body: String) {
    let (sender, committed) = oneshot::channel();
    bare.appends.send((body, sender)).expect("the writer");
    committed.await.expect("it is committed");
}

/// One thread that commits at once what queued up.
fn start_writer() -> SyncSender<Append> {
    let (appends, queue) = sync_channel::<Append>(4_096);
    std::thread::spawn(move || {
        // Nothing is written before somebody appends: most figures need no file.
        let Ok(mut first) = queue.recv() else { return };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let connection = Connection::open(dir.path().join("bare.db")).expect("a database");
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
                 CREATE TABLE sessions (n INTEGER PRIMARY KEY, last_seq INTEGER NOT NULL);
                 INSERT INTO sessions VALUES (1, 0);
                 CREATE TABLE messages (n INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL,
                     body TEXT NOT NULL, UNIQUE (session, seq));",
            )
            .expect("the table");
        let run = |statement: &str| {
            connection.prepare_cached(statement).and_then(|mut run| run.execute([])).expect(statement);
        };
        loop {
            run("BEGIN IMMEDIATE");
            let group: Vec<Append> = std::iter::once(first).chain(queue.try_iter().take(511)).collect();
            for (body, _) in &group {
                let seq: i64 = connection
                    .prepare_cached(
                        "UPDATE sessions SET last_seq = last_seq + 1 WHERE n = 1 RETURNING last_seq",
                    )
                    .and_then(|mut update| update.query_row([], |row| row.get(0)))
                    .expect("a counter");
                connection
                    .prepare_cached("INSERT INTO messages (session, seq, body) VALUES (1, ?1, ?2)")
                    .and_then(|mut insert| insert.execute(params![seq, body]))
                    .expect("a row");
            }
            run("COMMIT");
            for (_, caller) in group {
                caller.send(()).expect("a caller");
            }
            let Ok(next) = queue.recv() else { return };
            first = next;
        }
    });
    appends
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
