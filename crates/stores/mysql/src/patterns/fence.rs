//! The check of a token inside the caller's own transaction.

use clinch_core::{Error, ErrorKind, Result, Token};
use mysql_async::{Transaction, Value};

use super::{ident, statement};

/// Fencing: data reject late writes of a lock's former holder.
///
/// A lock of any store gives its holder a [`Token`], which rises with each grant. The data keep the
/// greatest one that wrote to them and reject smaller ones. The check is part of your transaction: it locks
/// the row with the token until you commit, so no other holder can come between the check and your writes,
/// and if you roll back, nothing is kept.
///
/// **It promises** that once a newer holder has committed, no older one can.
/// **It does not promise** anything about an older holder that commits *before* the newer one first
/// checks: that is early, not late. Writes without a check are not stopped. Use one fence for all
/// that one lock protects, and tokens of one lock for it.
///
/// ```
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = clinch_testkit::servers::MariaDb::start()?;
/// # let url = server.url();
/// use clinch_core::{ErrorKind, Token};
/// use clinch_mysql::patterns::Fence;
/// use mysql_async::{Conn, TxOpts, prelude::Queryable};
/// let mut conn = Conn::from_url(&url).await?;
/// conn.query_drop(Fence::schema("fences")?).await?;
/// let fence = Fence::table("fences")?;
/// let (old, new) = (Token::new(1, 0).unwrap(), Token::new(2, 0).unwrap());
///
/// let mut tx = conn.start_transaction(TxOpts::default()).await?;
/// fence.check(&mut tx, "orders/42", new).await?; // then your own writes
/// tx.commit().await?;
///
/// let mut tx = conn.start_transaction(TxOpts::default()).await?;
/// let late = fence.check(&mut tx, "orders/42", old).await.unwrap_err();
/// assert_eq!(late.kind(), ErrorKind::Lost);
/// assert!(late.to_string().contains(&old.to_string()) && late.to_string().contains(&new.to_string()));
/// tx.rollback().await?;
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Fence {
    /// Remembers the token if it is greater.
    raise: String,
    /// What is remembered now.
    look: String,
    /// Whether there may be no row yet.
    makes_rows: bool,
}

impl Fence {
    /// A table of fences, one row for each resource: for data that have no row of their own to
    /// put it in. [`schema`](Self::schema) makes one.
    pub fn table(table: &str) -> Result<Self> {
        let table = ident::table(table)?;
        Ok(Self {
            raise: format!(
                "INSERT INTO {table} (resource, token) VALUES (?, ?) \
                 ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)"
            ),
            look: format!("SELECT token FROM {table} WHERE resource = ? FOR UPDATE"),
            makes_rows: true,
        })
    }

    /// A column of the resource's own table, `BIGINT NOT NULL DEFAULT 0`, in the row that is known
    /// by `key`.
    ///
    /// ```
    /// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = clinch_testkit::servers::MariaDb::start()?;
    /// # let (url, token) = (server.url(), clinch_core::Token::new(1, 0).unwrap());
    /// # server.sql("CREATE TABLE accounts (id INT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0)")?;
    /// # server.sql("INSERT INTO accounts (id) VALUES (7)")?;
    /// let fence = clinch_mysql::patterns::Fence::column("accounts", "id", "fence")?;
    /// let mut conn = mysql_async::Conn::from_url(&url).await?;
    /// let mut tx = conn.start_transaction(mysql_async::TxOpts::default()).await?;
    /// fence.check(&mut tx, 7, token).await?;
    /// assert!(fence.check(&mut tx, 8, token).await.is_err()); // no such row
    /// # tx.rollback().await?;
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
    /// ```
    pub fn column(table: &str, key: &str, column: &str) -> Result<Self> {
        let (table, key) = (ident::table(table)?, ident::column(key)?);
        let fence = ident::column(column)?;
        Ok(Self {
            raise: format!("UPDATE {table} SET {fence} = ? WHERE {key} = ? AND {fence} < ?"),
            look: format!("SELECT {fence} FROM {table} WHERE {key} = ? FOR UPDATE"),
            makes_rows: false,
        })
    }

    /// The statement that makes a table of fences. Resources are compared by their bytes.
    ///
    /// ```
    /// let sql = clinch_mysql::patterns::Fence::schema("fences")?;
    /// assert!(sql.starts_with("CREATE TABLE IF NOT EXISTS `fences`"));
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn schema(table: &str) -> Result<String> {
        let table = ident::table(table)?;
        Ok(format!(
            "CREATE TABLE IF NOT EXISTS {table} (\
             resource VARBINARY(255) NOT NULL PRIMARY KEY, \
             token BIGINT NOT NULL) ENGINE=InnoDB"
        ))
    }

    /// Refuses the token if a greater one has passed, with an error of kind
    /// [`Lost`](ErrorKind::Lost) that says both; otherwise remembers it, when the transaction
    /// commits. The same token may pass again.
    pub async fn check(
        &self,
        tx: &mut Transaction<'_>,
        resource: impl Into<Value> + Send,
        token: Token,
    ) -> Result<()> {
        let (resource, raw) = (resource.into(), Value::from(token.get()));
        let values = match self.makes_rows {
            true => vec![resource.clone(), raw.clone(), raw],
            false => vec![raw.clone(), resource.clone(), raw],
        };
        let raised = statement::change(tx, &self.raise, values, false).await?;
        // One row by UPDATE, two by ON DUPLICATE KEY UPDATE, tell of a token that was raised. One
        // by the latter is a new row, or on some connections one that was left as it was.
        let certain = if self.makes_rows { 2 } else { 1 };
        if raised.rows >= certain {
            return Ok(());
        }
        let seen: Option<u64> = statement::read(tx, &self.look, vec![resource]).await?;
        match seen {
            Some(seen) if seen > token.get() => Err(refused(token, seen)),
            Some(_) => Ok(()),
            None => Err(Error::invalid("there is no row to keep the token in").with_store("mysql")),
        }
    }
}

fn refused(token: Token, seen: u64) -> Error {
    let text = format!("the token {token} is refused: the data were written with {seen}");
    Error::new(ErrorKind::Lost, text)
        .with_store("mysql")
        .with_advice("the lock has passed on: roll back, and stop")
}
