//! Refusals, in the one shape that every error has.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use sess_app::Kind;
use sess_protocol::errors::{ErrorBody, ErrorDetail, ErrorType};

use super::routes;

/// When to come again after something was not available.
const RETRY_AFTER_SECONDS: u64 = 1;

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: ErrorType,
    /// A sentence that says what is wrong and what to do.
    pub(super) message: String,
    pub(super) retry_after_seconds: Option<u64>,
    /// The methods that the address has, when it was another one.
    allow: Option<String>,
}

impl Problem {
    pub(super) fn new(kind: ErrorType, message: impl Into<String>) -> Self {
        let retry_after_seconds = matches!(kind, ErrorType::Unavailable | ErrorType::RateLimited);
        Self {
            kind,
            message: message.into(),
            retry_after_seconds: retry_after_seconds.then_some(RETRY_AFTER_SECONDS),
            allow: None,
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorType::InvalidRequest, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorType::NotFound, message)
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(ErrorType::Unauthorized, message)
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ErrorType::Forbidden, message)
    }

    pub(super) fn too_large(size_bytes_max: usize) -> Self {
        let message = format!("the body is too large: the most is {size_bytes_max} bytes");
        Self::new(ErrorType::PayloadTooLarge, message)
    }

    pub(super) fn too_many(message: impl Into<String>, retry_after_seconds: u64) -> Self {
        let problem = Self::new(ErrorType::RateLimited, message);
        Self { retry_after_seconds: Some(retry_after_seconds), ..problem }
    }

    /// Something broke here. Who asked is told no more; what it was stands in the log.
    pub(super) fn internal() -> Self {
        Self::new(ErrorType::Internal, "something went wrong here; the log says what")
    }

    pub(super) fn method(allow: String) -> Self {
        let message = format!("this address takes {allow} and nothing else");
        Self { allow: Some(allow), ..Self::new(ErrorType::MethodNotAllowed, message) }
    }

    pub(super) fn body(&self) -> ErrorBody {
        ErrorBody { error: ErrorDetail { r#type: self.kind, message: self.message.clone() } }
    }

    fn json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.body()).expect("texts are JSON")
    }

    /// Returns the answer as it is sent, for where there are no routes. `head` has its first lines.
    pub(super) fn written(self, head: &str) -> Vec<u8> {
        let body = self.json();
        let mut response = self.into_response();
        routes::protect(response.headers_mut());
        let mut answer = format!("{head}\r\ncontent-length: {}\r\n", body.len()).into_bytes();
        for (name, value) in response.headers() {
            answer.extend_from_slice(name.as_str().as_bytes());
            answer.extend_from_slice(b": ");
            answer.extend_from_slice(value.as_bytes());
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"\r\n");
        answer.extend_from_slice(&body);
        answer
    }
}

impl From<sess_app::Error> for Problem {
    fn from(error: sess_app::Error) -> Self {
        let kind = match error.kind() {
            Kind::Invalid => ErrorType::InvalidRequest,
            Kind::NotFound => ErrorType::NotFound,
            Kind::Denied => ErrorType::Forbidden,
            Kind::Conflict => ErrorType::Conflict,
            Kind::Unavailable => ErrorType::Unavailable,
            Kind::Damaged => {
                tracing::error!(%error, "something stored cannot be read");
                let message = "something stored cannot be read; `sess doctor` says what";
                return Self::new(ErrorType::Internal, message);
            }
        };
        Self::new(kind, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.json()));
        *response.status_mut() =
            StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
            headers.insert(header::ALLOW, allow);
        }
        if self.kind == ErrorType::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
