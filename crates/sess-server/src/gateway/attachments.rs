//! Files that were uploaded and wait to be named in a message: in memory, for a while.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sess_app::{Access, ChatFile};
use sess_protocol::errors::ErrorType;

use super::errors::Problem;

struct Attachment {
    file: Arc<ChatFile>,
    /// The token that it came with; none for the owner's own.
    token: Option<String>,
    at: Instant,
}

pub(super) struct Attachments {
    bytes_max: usize,
    kept_for: Duration,
    files: Mutex<HashMap<String, Attachment>>,
}

impl Attachments {
    pub(super) fn new(bytes_max: usize, kept_for: Duration) -> Self {
        Self { bytes_max, kept_for, files: Mutex::default() }
    }

    pub(super) fn add(&self, access: &Access, id: String, file: ChatFile) -> Result<(), Problem> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, kept| kept.at.elapsed() < self.kept_for);
        let held: usize = files.values().map(|kept| kept.file.bytes.len()).sum();
        if held + file.bytes.len() > self.bytes_max {
            let message = "too many uploaded files wait to be sent; send them, or try again later";
            return Err(Problem::new(ErrorType::Unavailable, message));
        }
        let token = access.token.clone();
        files.insert(id, Attachment { file: Arc::new(file), token, at: Instant::now() });
        Ok(())
    }

    /// Returns a file that came with the same token.
    pub(super) fn get(&self, access: &Access, id: &str) -> Result<Arc<ChatFile>, Problem> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let found =
            files.get(id).filter(|kept| kept.token == access.token && kept.at.elapsed() < self.kept_for);
        found.map(|kept| Arc::clone(&kept.file)).ok_or_else(|| {
            Problem::not_found(format!(
                "there is no uploaded file {id:?}: upload it again with POST /attachments"
            ))
        })
    }
}
