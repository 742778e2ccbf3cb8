//! The web page: four files that are part of the program.

use std::sync::LazyLock;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Nothing but our own files, and nobody puts us into a frame.
const CONTENT_SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data: blob:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

pub(super) struct File {
    pub(super) path: &'static str,
    mime_type: &'static str,
    content: &'static [u8],
}

pub(super) const INDEX: File = File {
    path: "/",
    mime_type: "text/html; charset=utf-8",
    content: include_bytes!("../../../../ui/dist/index.html"),
};
pub(super) const SCRIPT: File = File {
    path: "/app.js",
    mime_type: "text/javascript; charset=utf-8",
    content: include_bytes!("../../../../ui/dist/app.js"),
};
pub(super) const STYLE: File = File {
    path: "/app.css",
    mime_type: "text/css; charset=utf-8",
    content: include_bytes!("../../../../ui/dist/app.css"),
};
pub(super) const ICON: File = File {
    path: "/icon.svg",
    mime_type: "image/svg+xml",
    content: include_bytes!("../../../../ui/dist/icon.svg"),
};

/// Changes with any of the files, so that they are always used together.
static VERSION: LazyLock<HeaderValue> = LazyLock::new(|| {
    let files = [INDEX, SCRIPT, STYLE, ICON];
    let hash = files.iter().fold(Sha256::new(), |hash, file| hash.chain_update(file.content)).finalize();
    let hex: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(format!("\"{hex}\"")).expect("hexadecimal digits")
});

/// Returns a file, or says that the browser has it already.
pub(super) fn answer(file: &File, headers: &HeaderMap) -> Response {
    let version = VERSION.clone();
    let is_known = headers.get(header::IF_NONE_MATCH) == Some(&version);
    let content = if is_known { Bytes::new() } else { Bytes::from_static(file.content) };
    let mut response = Response::new(Body::from(content));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.mime_type));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ETAG, version);
    response
}
