//! One statement on the caller's connection.

use clinch_core::Result;
use mysql_async::consts::StatusFlags;
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Params, Row, Value, from_row_opt};

use super::{Session, refusal};

/// The effect of a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// How many rows it changed, as the server counts.
    pub(super) rows: u64,
    /// What it passed to `LAST_INSERT_ID(…)`.
    pub(super) number: u64,
}

/// Runs a change.
///
/// Changed rows are those whose content is another one now; but rows that matched, on connections with
/// `client_found_rows`. Only statements that always change what they match can rely on it.
pub(super) async fn change<C: Session>(
    on: &mut C,
    sql: &str,
    values: Vec<Value>,
    alone: bool,
) -> Result<Change> {
    in_step(on.conn())?;
    let failed = |e| refusal::of_statement(e, alone);
    let result = on.exec_iter(sql, Params::from(values)).await;
    let result = result.map_err(failed)?;
    let change = Change {
        rows: result.affected_rows(),
        number: result.last_insert_id().unwrap_or_default(),
    };
    result.drop_result().await.map_err(failed)?;
    Ok(change)
}

/// Reads the first row; nothing is changed whatever becomes of it.
pub(super) async fn read<C: Session, R: FromRow + Send + 'static>(
    on: &mut C,
    sql: &str,
    values: Vec<Value>,
) -> Result<Option<R>> {
    in_step(on.conn())?;
    let row: Result<Option<Row>, _> = on.exec_first(sql, Params::from(values)).await;
    let row = row.map_err(|e| refusal::of_statement(e, false))?;
    // The driver itself would panic.
    let read = row.map(from_row_opt::<R>).transpose();
    read.map_err(|_| refusal::wrong_type())
}

/// Refuses a connection on which an answer is outstanding, because the future that waited for it
/// was dropped: the driver would take it for ours.
pub(super) fn in_step(conn: &Conn) -> Result<()> {
    match conn.is_disconnected() {
        true => Err(refusal::out_of_step()),
        false => Ok(()),
    }
}

/// Whether the connection is inside a transaction, by the last reply.
pub(super) fn is_in_transaction(conn: &Conn) -> bool {
    let last = conn.last_ok_packet();
    last.is_some_and(|ok| {
        ok.status_flags()
            .contains(StatusFlags::SERVER_STATUS_IN_TRANS)
    })
}

/// The same, by a request: an error does not report it.
pub(super) async fn ask_in_transaction(tx: &mut mysql_async::Transaction<'_>) -> Result<bool> {
    let asked = tx.query_drop("DO 0").await;
    asked.map_err(|e| refusal::of_statement(e, false))?;
    Ok(is_in_transaction(tx))
}
