//! The one shape of every error.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of every answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDetail {
    pub r#type: ErrorType,
    /// A sentence that says what is wrong and what to do.
    pub message: String,
}

/// What whoever asked can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorType {
    /// There is no such thing, or not for this token.
    NotFound,
    /// No token, or one that does not count.
    Unauthorized,
    /// Not with these rights, or not from there.
    Forbidden,
    /// The request is wrong; the message names the part.
    InvalidRequest,
    /// The method is not one of this address; `Allow` has those that are.
    MethodNotAllowed,
    /// Somebody else was there first: look again.
    Conflict,
    PayloadTooLarge,
    /// Too many at once; `Retry-After` says when to come again.
    RateLimited,
    /// Try again when the cause is gone.
    Unavailable,
    Internal,
}

impl ErrorType {
    pub const ALL: [Self; 10] = [
        Self::NotFound,
        Self::Unauthorized,
        Self::Forbidden,
        Self::InvalidRequest,
        Self::MethodNotAllowed,
        Self::Conflict,
        Self::PayloadTooLarge,
        Self::RateLimited,
        Self::Unavailable,
        Self::Internal,
    ];

    /// Returns the HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Conflict => 409,
            Self::PayloadTooLarge => 413,
            Self::RateLimited => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }
}
