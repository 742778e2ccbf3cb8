//! Tokens in SQLite.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use sess_core::{AgentId, SessionId, Timestamp};

use super::{
    Sqlite, messages,
    writer::{JobResult, Transaction},
};
use crate::{Error, Result, TokenKind, TokenRecord, Tokens};

const COLUMNS: &str =
    "id, hash, kind, scopes, agent, session, label, created_at, expires_at, revoked_at FROM tokens";

#[async_trait]
impl Tokens for Sqlite {
    async fn add_token(&self, token: TokenRecord) -> Result<()> {
        self.writer.write(move |tx| insert(tx, &token)).await
    }

    async fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRecord>> {
        self.readers.query(|reader| by(reader, "hash", hash))
    }

    async fn token(&self, id: &str) -> Result<Option<TokenRecord>> {
        self.readers.query(|reader| by(reader, "id", id))
    }

    async fn tokens(&self, limit: usize) -> Result<Vec<TokenRecord>> {
        let limit = messages::signed(limit as u64);
        self.readers.query(|reader| {
            let sql = format!("SELECT {COLUMNS} WHERE kind <> 'login' ORDER BY n DESC LIMIT ?1");
            reader.prepare_cached(&sql)?.query_map([limit], from_row)?.collect()
        })
    }

    async fn counting_tokens(&self, at: Timestamp) -> Result<Vec<String>> {
        self.readers.query(|reader| {
            let sql =
                "SELECT id FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR ?1 < expires_at)";
            reader.prepare_cached(sql)?.query_map([at.as_millis()], |row| row.get(0))?.collect()
        })
    }

    async fn revoke_token(&self, id: &str, at: Timestamp) -> Result<Option<TokenRecord>> {
        let id = id.to_owned();
        self.writer
            .write(move |tx| {
                revoke(tx, "id", &id, at)?;
                Ok(by(tx.connection(), "id", &id)?)
            })
            .await
    }

    async fn exchange_login(&self, code_hash: &str, token: TokenRecord, at: Timestamp) -> Result<bool> {
        let code_hash = code_hash.to_owned();
        self.writer
            .write(move |tx| {
                let code = by(tx.connection(), "hash", &code_hash)?;
                if !code.is_some_and(|code| code.kind == TokenKind::Login && code.counts(at)) {
                    return Ok(false);
                }
                revoke(tx, "hash", &code_hash, at)?;
                insert(tx, &token)?;
                Ok(true)
            })
            .await
    }
}

fn insert(tx: &Transaction<'_>, token: &TokenRecord) -> JobResult<()> {
    tx.connection()
        .prepare_cached("DELETE FROM tokens WHERE kind IN ('login', 'cookie') AND expires_at <= ?1")?
        .execute([token.created_at.as_millis()])?;
    tx.connection()
        .prepare_cached(
            "INSERT INTO tokens (id, hash, kind, scopes, agent, session, label, created_at, expires_at, \
             revoked_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            token.id,
            token.hash,
            kind_text(token.kind),
            token.scopes,
            token.agent.as_ref().map(AgentId::as_str),
            token.session.as_ref().map(SessionId::as_str),
            token.label,
            token.created_at.as_millis(),
            token.expires_at.map(Timestamp::as_millis),
            token.revoked_at.map(Timestamp::as_millis)
        ])?;
    Ok(())
}

/// Revokes once: when it was revoked stays as it is.
fn revoke(tx: &Transaction<'_>, column: &str, value: &str, at: Timestamp) -> JobResult<()> {
    let sql = format!("UPDATE tokens SET revoked_at = ?2 WHERE {column} = ?1 AND revoked_at IS NULL");
    tx.connection().prepare_cached(&sql)?.execute(params![value, at.as_millis()])?;
    Ok(())
}

fn by(connection: &Connection, column: &str, value: &str) -> rusqlite::Result<Option<TokenRecord>> {
    let sql = format!("SELECT {COLUMNS} WHERE {column} = ?1");
    connection.prepare_cached(&sql)?.query_row([value], from_row).optional()
}

/// Reads a row. One that says something unknown lets nobody in.
fn from_row(row: &Row<'_>) -> rusqlite::Result<TokenRecord> {
    let text = |column: usize| row.get::<_, Option<String>>(column);
    let time = |column: usize| {
        Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis_clamped))
    };
    let damaged = |column: usize, what: &str| {
        let error = Error::Damaged(format!("a stored token is damaged: its {what} is not valid"));
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    };
    let kind: String = row.get(2)?;
    Ok(TokenRecord {
        id: row.get(0)?,
        hash: row.get(1)?,
        kind: TokenKind::ALL
            .into_iter()
            .find(|known| kind_text(*known) == kind)
            .ok_or_else(|| damaged(2, "kind"))?,
        scopes: row.get(3)?,
        agent: text(4)?.map(|agent| agent.parse()).transpose().map_err(|_| damaged(4, "agent"))?,
        session: text(5)?.map(|session| session.parse()).transpose().map_err(|_| damaged(5, "session"))?,
        label: text(6)?,
        created_at: Timestamp::from_millis_clamped(row.get(7)?),
        expires_at: time(8)?,
        revoked_at: time(9)?,
    })
}

fn kind_text(kind: TokenKind) -> &'static str {
    match kind {
        TokenKind::Bearer => "bearer",
        TokenKind::Cookie => "cookie",
        TokenKind::Login => "login",
        TokenKind::Address => "address",
    }
}
