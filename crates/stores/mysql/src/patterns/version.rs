//! The optimistic version column.

use std::time::Duration;

use clinch_core::{Clock, Error, ErrorKind, Result};
use clinch_kit::backoff::between;
use mysql_async::{Conn, Row, Value};

use super::{Session, ident, refusal, statement};

/// The pause after the first collision, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(64)];

/// Optimistic concurrency: a version column that every change increases. A client that read an older version
/// starts over.
///
/// **It promises** that a change computed from a row is made only if that row is still as it was read.
/// No client is locked out, and none holds anything that could be lost.
///
/// **It does not promise** progress to each client: under contention all but one start over, and after
/// `tries` attempts it is an error. It protects only against clients that increase the version as well. If the reply to a change is lost, the error says that it may have taken effect.
///
/// ```
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = clinch_testkit::servers::MariaDb::start()?;
/// # server.sql("CREATE TABLE pages (id INT PRIMARY KEY, text VARCHAR(50), v BIGINT DEFAULT 0)")?;
/// # server.sql("INSERT INTO pages (id, text) VALUES (1, 'a')")?;
/// # let url = server.url();
/// use clinch_mysql::patterns::VersionColumn;
/// let pages = VersionColumn::new("pages", "id", "v")?;
/// let mut conn = mysql_async::Conn::from_url(&url).await?;
/// let version = pages.update(&mut conn, 1, &["text"], 10, |row| {
///     let text: String = row.get("text").unwrap_or_default();
///     vec![("text", (text + "b").into())]
/// });
/// assert_eq!(version.await?, Some(1));
/// assert_eq!(server.sql("SELECT text, v FROM pages")?, "ab\t1");
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct VersionColumn {
    table: String,
    key: String,
    version: String,
    clock: Clock,
}

/// What became of a [`VersionColumn::swap`].
///
/// ```
/// use clinch_mysql::patterns::Swapped;
/// assert_ne!(Swapped::Yes(2), Swapped::Newer(2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Swapped {
    /// It is changed, and has this version now.
    Yes(u64),
    /// Another client was quicker: it has this version. Nothing was changed.
    Newer(u64),
    /// There is no such row.
    NoSuchRow,
}

impl VersionColumn {
    /// Rows of `table` that are known by `key`, which must be unique and indexed, with their
    /// version in an integer column that is never NULL.
    pub fn new(table: &str, key: &str, version: &str) -> Result<Self> {
        Ok(Self {
            table: ident::table(table)?,
            key: ident::column(key)?,
            version: ident::column(version)?,
            clock: Clock::boot(),
        })
    }

    /// Changes these columns if the row still has the version that was read. On a connection it is
    /// done at once, in a transaction with its commit.
    ///
    /// ```
    /// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = clinch_testkit::servers::MariaDb::start()?;
    /// # server.sql("CREATE TABLE pages (id INT PRIMARY KEY, text VARCHAR(50), v BIGINT)")?;
    /// # server.sql("INSERT INTO pages VALUES (1, 'a', 7)")?;
    /// # let url = server.url();
    /// use clinch_mysql::patterns::{Swapped, VersionColumn};
    /// let pages = VersionColumn::new("pages", "id", "v")?;
    /// let mut conn = mysql_async::Conn::from_url(&url).await?;
    /// let set = [("text", "b".into())];
    /// assert_eq!(pages.swap(&mut conn, 1, 7, &set).await?, Swapped::Yes(8));
    /// assert_eq!(pages.swap(&mut conn, 1, 7, &set).await?, Swapped::Newer(8));
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
    /// ```
    pub async fn swap<C: Session>(
        &self,
        on: &mut C,
        key: impl Into<Value> + Send,
        seen: u64,
        set: &[(&str, Value)],
    ) -> Result<Swapped> {
        let (table, column, version) = (&self.table, &self.key, &self.version);
        let list = ident::assignments(set.iter().map(|(name, _)| *name))?;
        let sql = format!(
            "UPDATE {table} SET {list}{version} = {version} + 1 \
             WHERE {column} = ? AND {version} = ?"
        );
        let key = key.into();
        let mut values: Vec<Value> = set.iter().map(|(_, value)| value.clone()).collect();
        values.extend([key.clone(), seen.into()]);
        // The version changes whatever else does: the count of changed rows is exact.
        if statement::change(on, &sql, values, true).await?.rows > 0 {
            return Ok(Swapped::Yes(seen + 1));
        }
        let sql = format!("SELECT {version} FROM {table} WHERE {column} = ? LOCK IN SHARE MODE");
        let now: Option<u64> = statement::read(on, &sql, vec![key]).await?;
        Ok(now.map_or(Swapped::NoSuchRow, Swapped::Newer))
    }

    /// Reads columns of a row, lets `change` compute what to set, and sets it unless another client was
    /// quicker; then again, at most `tries` times, with pauses that grow and vary. Gives the new
    /// version; `None` if there is no such row.
    ///
    /// Nothing to set is nothing done: the version stays. `change` runs once for each try, and
    /// should have no other effects. Not inside a transaction, which would read the same old row
    /// again and again.
    pub async fn update<F>(
        &self,
        conn: &mut Conn,
        key: impl Into<Value> + Send,
        columns: &[&str],
        tries: u32,
        mut change: F,
    ) -> Result<Option<u64>>
    where
        F: FnMut(&Row) -> Vec<(&'static str, Value)> + Send,
    {
        let key = key.into();
        let mut list = self.version.clone();
        for name in columns {
            list += &format!(", {}", ident::column(name)?);
        }
        let sql = format!("SELECT {list} FROM {} WHERE {} = ?", self.table, self.key);
        let mut pause = PAUSES[0];
        for _ in 0..tries {
            let row: Option<Row> = statement::read(conn, &sql, vec![key.clone()]).await?;
            if statement::is_in_transaction(conn) {
                return Err(refusal::in_transaction("a change with tries"));
            }
            let Some(row) = row else { return Ok(None) };
            let seen = row.get_opt::<u64, _>(0).and_then(Result::ok);
            let Some(seen) = seen else {
                return Err(refusal::wrong_type());
            };
            let set = change(&row);
            if set.is_empty() {
                return Ok(Some(seen));
            }
            match self.swap(conn, key.clone(), seen, &set).await? {
                Swapped::Yes(version) => return Ok(Some(version)),
                Swapped::NoSuchRow => return Ok(None),
                Swapped::Newer(_) => self.clock.sleep(between(Duration::ZERO, pause)).await,
            }
            pause = (pause * 2).min(PAUSES[1]);
        }
        let text = format!("others were quicker {tries} times");
        Err(Error::new(ErrorKind::Unreachable, text)
            .with_store("mysql")
            .with_advice(
                "nothing was changed; try later, or take a lock for what collides so often",
            ))
    }
}
