//! Rows that are read together with the id of their session, whatever they hold.

use rusqlite::{Connection, Row, ToSql};
use sess_core::SessionId;

/// What a row holds, or why it cannot be trusted.
pub(super) type Readable<T> = std::result::Result<T, String>;

/// Reads a row whose columns start at a place, and whose session is known.
pub(super) type ReadAt<T> = fn(&Row<'_>, usize, SessionId) -> rusqlite::Result<Readable<T>>;

/// Reads a row whose last column is the id of its session; `what` it is is told where it is damaged.
pub(super) fn with_session<T>(row: &Row<'_>, what: &str, read: ReadAt<T>) -> rusqlite::Result<Readable<T>> {
    let last = row.as_ref().column_count() - 1;
    let session = row.get_ref(last)?.as_str().ok().and_then(|id| id.parse().ok());
    match session {
        Some(session) => read(row, 0, session),
        None => Ok(Err(format!("{what} row {} is damaged: its session is", row.get::<_, i64>(0)?))),
    }
}

/// Returns the rows that can be read. A damaged one costs itself.
pub(super) fn readable<T>(
    connection: &Connection,
    sql: &str,
    values: &[&dyn ToSql],
    read: fn(&Row<'_>) -> rusqlite::Result<Readable<T>>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(values, read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().filter_map(unless_damaged).collect())
}

pub(super) fn unless_damaged<T>(row: Readable<T>) -> Option<T> {
    row.inspect_err(|reason| tracing::warn!("{reason}; it is left out")).ok()
}
