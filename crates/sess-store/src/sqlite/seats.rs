//! Seats in SQLite.

use async_trait::async_trait;
use sess_core::SessionId;

use super::Sqlite;
use crate::{Result, Seat, Seats};

#[async_trait]
impl Seats for Sqlite {
    async fn sit(&self, _session: &SessionId, _seat: Seat) -> Result<()> {
        todo!()
    }

    async fn stand_up(&self, _session: &SessionId, _node: &str) -> Result<()> {
        todo!()
    }

    async fn seat(&self, _session: &SessionId) -> Result<Option<Seat>> {
        todo!()
    }
}
