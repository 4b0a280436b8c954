//! An update that carries its own condition.

use clinch_core::{Error, Result};
use mysql_async::Value;

use super::{Session, ident, statement};

/// `UPDATE … SET n = n - k WHERE … AND n >= k`: stock and counters without a lock.
///
/// **It promises** that the number never goes below zero by it, even if others do the same at the
/// same time, and reports why it was refused: too little, or no such row. It is one atomic statement.
///
/// **It does not promise** that it is done once: if the reply is lost, the error says that it may
/// have taken effect, and a second try may take twice. Where that matters, run it in a transaction
/// together with a record of its own, and look for the record. It cannot guard more than its row.
///
/// ```
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = clinch_testkit::servers::MariaDb::start()?;
/// # server.sql("CREATE TABLE stock (item VARCHAR(20) PRIMARY KEY, n INT UNSIGNED)")?;
/// # server.sql("INSERT INTO stock VALUES ('pear', 3)")?;
/// # let url = server.url();
/// use clinch_mysql::patterns::{Guarded, Taken};
/// let stock = Guarded::new("stock", "item", "n")?;
/// let mut conn = mysql_async::Conn::from_url(&url).await?;
/// assert_eq!(stock.take(&mut conn, "pear", 2).await?, Taken::Yes);
/// assert_eq!(stock.take(&mut conn, "pear", 2).await?, Taken::NotEnough);
/// assert_eq!(stock.take(&mut conn, "plum", 2).await?, Taken::NoSuchRow);
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Guarded {
    take: String,
    look: String,
}

/// What became of a [`Guarded::take`].
///
/// ```
/// use clinch_mysql::patterns::Taken;
/// assert_ne!(Taken::NotEnough, Taken::NoSuchRow);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// It was there, and is taken.
    Yes,
    /// There was less; nothing was changed.
    NotEnough,
    /// There is no such row.
    NoSuchRow,
}

impl Guarded {
    /// The number in `column` of the row of `table` that is known by `key`, which must be unique
    /// and indexed.
    pub fn new(table: &str, key: &str, column: &str) -> Result<Self> {
        let (table, key) = (ident::table(table)?, ident::column(key)?);
        let n = ident::column(column)?;
        Ok(Self {
            // Compared, not subtracted: below zero, an unsigned column is an error.
            take: format!("UPDATE {table} SET {n} = {n} - ? WHERE {key} = ? AND {n} >= ?"),
            // The newest row, not that of a transaction's snapshot, as the update saw it.
            look: format!("SELECT 1 FROM {table} WHERE {key} = ? LOCK IN SHARE MODE"),
        })
    }

    /// Takes `amount`, if there is that much. On a connection it is done at once, in a transaction
    /// with its commit.
    pub async fn take<C: Session>(
        &self,
        on: &mut C,
        key: impl Into<Value> + Send,
        amount: u64,
    ) -> Result<Taken> {
        if amount == 0 {
            // It would change nothing, and so look like too little.
            return Err(Error::invalid("nothing is to be taken").with_store("mysql"));
        }
        let key = key.into();
        let values = vec![amount.into(), key.clone(), amount.into()];
        if statement::change(on, &self.take, values, true).await?.rows > 0 {
            return Ok(Taken::Yes);
        }
        let row: Option<u8> = statement::read(on, &self.look, vec![key]).await?;
        Ok(match row {
            Some(_) => Taken::NotEnough,
            None => Taken::NoSuchRow,
        })
    }
}
