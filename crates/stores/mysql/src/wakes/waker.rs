//! Wakes other clients: ends the wait of their parked connection.

use clinch_core::{ClientId, keeper};

use crate::connection::Mode;
use crate::dialect::MySql;
use crate::sql::Sql;

/// The user-level lock that a client's parked connection holds: its address.
pub(super) fn address(client: ClientId) -> String {
    format!("clinch.{client}")
}

/// Wakes a client. Without a parked connection, `KILL QUERY 0` fails, which does no harm.
pub(crate) fn wake(client: ClientId) -> String {
    let address = address(client);
    format!("KILL QUERY IFNULL(IS_USED_LOCK('{address}'),0)")
}

/// Wakes a client if the statement before has changed a row.
pub(crate) fn wake_if_written(client: ClientId) -> String {
    let address = address(client);
    format!("KILL QUERY IF(ROW_COUNT()>0,IFNULL(IS_USED_LOCK('{address}'),0),0)")
}

/// Wakes clients in the background. One without a parked connection polls.
pub(crate) fn notify(mysql: &MySql, clients: &[ClientId]) {
    for client in clients {
        let (pool, sql) = (mysql.pool.clone(), Sql::new(wake(*client)));
        let waking = async move {
            let _ = pool.send(&sql, Mode::TextOnce).await;
        };
        if keeper::spawn(waking).is_err() {
            return;
        }
    }
}
