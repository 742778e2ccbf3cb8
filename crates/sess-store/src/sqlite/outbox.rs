//! The outbox in SQLite.

use async_trait::async_trait;
use sess_core::{SessionId, Timestamp, session::Channel};

use super::Sqlite;
use crate::{Lease, Outbox, Post, PostTried, Result};

#[async_trait]
impl Outbox for Sqlite {
    async fn take_post(&self, _channels: &[Channel], _lease: Lease, _at: Timestamp) -> Result<Option<Post>> {
        todo!()
    }

    async fn end_post(&self, _post: u64, _lease: &Lease, _tried: PostTried, _at: Timestamp) -> Result<()> {
        todo!()
    }

    async fn posts(&self, _session: Option<&SessionId>, _limit: usize) -> Result<Vec<Post>> {
        todo!()
    }
}
