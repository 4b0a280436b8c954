//! The connections that the patterns work on.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Transaction};

/// A connection or a transaction of the driver, on which a pattern runs its one statement: at once on
/// a connection, with its commit in a transaction.
///
/// ```
/// use clinch_mysql::patterns::{Guarded, Session, Taken};
/// async fn sell(on: &mut impl Session, item: &str) -> clinch_core::Result<bool> {
///     let stock = Guarded::new("stock", "item", "n")?;
///     Ok(stock.take(on, item, 1).await? == Taken::Yes)
/// }
/// ```
pub trait Session: Queryable + Inner {}

impl Session for Conn {}

impl Session for Transaction<'_> {}

/// What others cannot implement.
pub trait Inner {
    /// The connection itself.
    fn conn(&self) -> &Conn;
}

impl Inner for Conn {
    fn conn(&self) -> &Conn {
        self
    }
}

impl Inner for Transaction<'_> {
    fn conn(&self) -> &Conn {
        self
    }
}
