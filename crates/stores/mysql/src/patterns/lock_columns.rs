//! A lock in columns of the caller's own table.

use std::time::Duration;

use clinch_core::{Clock, Effect, Error, ErrorKind, Result, valid_for};
use mysql_async::{Conn, Value};

use super::row_hold::RowHold;
use super::row_seen::{Seen, lost};
use super::{Session, ident, refusal, statement};

/// The server's time in microseconds, whatever time zone the session has.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

/// The longest lease: a year.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3_600);

/// How often a row that became free while we looked is tried again.
const TRIES: u32 = 3;

/// A lock that lives in the row it protects: owner, token and lease beside the data.
///
/// **It promises** one holder at a time by the server's clock, tokens that rise with each grant,
/// and, since lock and data are one row, that a [`write`](Self::write) of a former holder changes
/// nothing, however late it comes and whatever clocks did. Each step is one guarded `UPDATE` by
/// the key, and needs no transaction and no table of its own.
///
/// **It does not promise** that waiting is short or fair: there is no queue and no wake-up, you
/// try again. It does not renew itself. It protects this row only, and only against clients that
/// write through it. A server whose wall clock is stepped forward ends leases early (the token
/// still guards the row); one that is stepped back ends them late. If you need waiting, renewal in
/// the background or locks without rows, use the store of this crate.
///
/// ```
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = clinch_testkit::servers::MariaDb::start()?;
/// # server.sql("CREATE TABLE reports (id INT PRIMARY KEY, text VARCHAR(50) NULL)")?;
/// # server.sql("INSERT INTO reports (id) VALUES (1)")?;
/// # let url = server.url();
/// use clinch_mysql::patterns::{Claimed, ColumnNames, LockColumns};
/// use std::time::Duration;
/// let lease = Duration::from_secs(30);
/// let reports = LockColumns::new("reports", "id", ColumnNames::default())?;
/// # server.sql(&reports.schema())?; // ALTER TABLE … ADD COLUMN …
/// let mut conn = mysql_async::Conn::from_url(&url).await?;
/// let Claimed::Held(mut hold) = reports.claim(&mut conn, 1, "worker-1:8f2a", lease).await? else {
///     panic!("another client has it");
/// };
/// reports.write(&mut conn, &hold, &[("text", "done".into())]).await?;
/// reports.renew(&mut conn, &mut hold, lease).await?;
/// assert!(reports.release(&mut conn, &hold).await?);
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct LockColumns {
    table: String,
    key: String,
    owner: String,
    token: String,
    until: String,
    clock: Clock,
}

/// What the columns are called; see [`LockColumns::schema`] for their types.
///
/// ```
/// use clinch_mysql::patterns::ColumnNames;
/// let names = ColumnNames { owner: "taken_by", ..ColumnNames::default() };
/// assert_eq!((names.token, names.until), ("lock_token", "lock_until"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ColumnNames<'a> {
    /// Who holds the row: text, NULL while it is free.
    pub owner: &'a str,
    /// How often it has been granted: a `BIGINT` that is never NULL.
    pub token: &'a str,
    /// When the lease ends: a `BIGINT`, microseconds since 1970 of UTC.
    pub until: &'a str,
}

impl Default for ColumnNames<'_> {
    fn default() -> Self {
        Self {
            owner: "lock_owner",
            token: "lock_token",
            until: "lock_until",
        }
    }
}

/// What became of a [`LockColumns::claim`].
///
/// ```
/// use clinch_mysql::patterns::Claimed;
/// let busy = Claimed::Busy { owner: "b".to_owned(), ends_in: std::time::Duration::ZERO };
/// assert!(!matches!(busy, Claimed::Held(_)));
/// ```
#[derive(Debug)]
#[must_use]
pub enum Claimed {
    /// It is ours.
    Held(RowHold),
    /// Another client has it.
    Busy {
        /// Who that is.
        owner: String,
        /// How long the lease still runs, if it is not renewed or released.
        ends_in: Duration,
    },
    /// There is no such row.
    NoSuchRow,
}

impl LockColumns {
    /// Rows of `table` that are known by `key`, which must be unique and indexed.
    pub fn new(table: &str, key: &str, columns: ColumnNames<'_>) -> Result<Self> {
        Ok(Self {
            table: ident::table(table)?,
            key: ident::column(key)?,
            owner: ident::column(columns.owner)?,
            token: ident::column(columns.token)?,
            until: ident::column(columns.until)?,
            clock: Clock::boot(),
        })
    }

    /// The statement that adds the columns to the table.
    ///
    /// ```
    /// use clinch_mysql::patterns::{ColumnNames, LockColumns};
    /// let sql = LockColumns::new("reports", "id", ColumnNames::default())?.schema();
    /// assert!(sql.starts_with("ALTER TABLE `reports` ADD COLUMN `lock_owner`"));
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn schema(&self) -> String {
        let (owner, token, until) = (&self.owner, &self.token, &self.until);
        format!(
            "ALTER TABLE {} ADD COLUMN {owner} VARCHAR(255) NULL, \
             ADD COLUMN {token} BIGINT NOT NULL DEFAULT 0, \
             ADD COLUMN {until} BIGINT NULL",
            self.table
        )
    }

    /// Takes the row if it is free or its lease has ended.
    ///
    /// `owner` names this one hold, so make it unique: after an error that may have taken effect,
    /// or a dropped future, the same claim with the same owner finds what it took. Not inside a
    /// transaction.
    pub async fn claim(
        &self,
        conn: &mut Conn,
        key: impl Into<Value> + Send,
        owner: &str,
        lease: Duration,
    ) -> Result<Claimed> {
        let (key, micros) = (key.into(), micros(lease)?);
        if owner.is_empty() || owner.len() > 255 {
            return Err(Error::invalid("an owner has 1 to 255 bytes").with_store("mysql"));
        }
        if statement::is_in_transaction(conn) {
            return Err(refusal::in_transaction("a claim"));
        }
        let (o, t, u) = (&self.owner, &self.token, &self.until);
        let sql = format!(
            "UPDATE {} SET {o} = ?, {t} = LAST_INSERT_ID({t} + 1), {u} = {NOW} + ? \
             WHERE {} = ? AND ({o} IS NULL OR COALESCE({u}, 0) <= {NOW})",
            self.table, self.key
        );
        let mut seen = Claimed::NoSuchRow;
        for _ in 0..TRIES {
            // Before the request leaves: the server's lease begins later than ours.
            let sent = self.clock.now();
            let values = vec![owner.into(), micros.into(), key.clone()];
            let change = statement::change(conn, &sql, values, true).await?;
            if change.rows > 0 {
                if statement::is_in_transaction(conn) {
                    return Err(refusal::in_transaction("a claim").with_effect(Effect::Possible));
                }
                let deadline = sent + valid_for(lease);
                return RowHold::new(key, change.number, deadline, &self.clock).map(Claimed::Held);
            }
            seen = match self.look(conn, key.clone()).await? {
                None => return Ok(Claimed::NoSuchRow),
                Some(row) if row.owner.as_deref() == Some(owner) && row.left > 0 => {
                    // Taken before, by a claim whose reply was lost.
                    let mut hold = RowHold::new(key.clone(), row.token, sent, &self.clock)?;
                    match self.renew(conn, &mut hold, lease).await {
                        Ok(()) => return Ok(Claimed::Held(hold)),
                        // It ended just now: claim it anew.
                        Err(e) if e.kind() == ErrorKind::Lost => continue,
                        Err(e) => return Err(e),
                    }
                }
                Some(row) => {
                    let left = u64::try_from(row.left).unwrap_or_default();
                    Claimed::Busy {
                        owner: row.owner.unwrap_or_default(),
                        ends_in: Duration::from_micros(left),
                    }
                }
            };
            if matches!(&seen, Claimed::Busy { ends_in, .. } if !ends_in.is_zero()) {
                break;
            }
            // It became free between the two statements.
        }
        Ok(seen)
    }

    /// Extends the lease, from now on; an error of kind [`Lost`](ErrorKind::Lost) if it has ended
    /// or the row has another holder. It never takes a row back. Not inside a transaction.
    pub async fn renew(&self, conn: &mut Conn, hold: &mut RowHold, lease: Duration) -> Result<()> {
        let micros = micros(lease)?;
        if statement::is_in_transaction(conn) {
            return Err(refusal::in_transaction("a renewal"));
        }
        let (o, t, u) = (&self.owner, &self.token, &self.until);
        let sql = format!(
            "UPDATE {} SET {u} = {NOW} + ? \
             WHERE {} = ? AND {t} = ? AND {o} IS NOT NULL AND {u} > {NOW}",
            self.table, self.key
        );
        let sent = self.clock.now();
        let values = vec![micros.into(), hold.key(), hold.token().get().into()];
        let change = statement::change(conn, &sql, values, true).await?;
        if change.rows == 0 {
            // Lost, or renewed twice in one microsecond.
            let row = self.look(conn, hold.key()).await?;
            let ours = |row: &Seen| row.is_held_with(hold.token()) && row.left > 0;
            if !row.as_ref().is_some_and(ours) {
                return Err(lost(hold.token(), row));
            }
        }
        hold.set_deadline(sent + valid_for(lease));
        Ok(())
    }

    /// Changes columns of the row, if it has had no other holder since: an error of kind
    /// [`Lost`](ErrorKind::Lost) otherwise, and nothing is changed. On a connection it is done at
    /// once, in a transaction with its commit.
    ///
    /// The lease may have ended meanwhile: as long as no other client has claimed the row, it does no
    /// harm.
    pub async fn write<C: Session>(
        &self,
        on: &mut C,
        hold: &RowHold,
        set: &[(&str, Value)],
    ) -> Result<()> {
        let list = ident::assignments(set.iter().map(|(name, _)| *name))?;
        if list.is_empty() {
            return Err(Error::invalid("nothing is to be written").with_store("mysql"));
        }
        let sql = format!(
            "UPDATE {} SET {} WHERE {} = ? AND {} = ? AND {} IS NOT NULL",
            self.table,
            list.trim_end_matches(", "),
            self.key,
            self.token,
            self.owner
        );
        let mut values: Vec<Value> = set.iter().map(|(_, value)| value.clone()).collect();
        values.extend([hold.key(), hold.token().get().into()]);
        if statement::change(on, &sql, values, true).await?.rows > 0 {
            return Ok(());
        }
        // Lost, or the columns had these values already.
        match self.look(on, hold.key()).await? {
            Some(row) if row.is_held_with(hold.token()) => Ok(()),
            row => Err(lost(hold.token(), row)),
        }
    }

    /// Gives the row back; `false` if it was not ours any more. Not inside a transaction.
    ///
    /// After an error that may have taken effect it can be repeated: `false` then says that it is
    /// over, be it by the first try or before.
    pub async fn release(&self, conn: &mut Conn, hold: &RowHold) -> Result<bool> {
        if statement::is_in_transaction(conn) {
            return Err(refusal::in_transaction("a release"));
        }
        let (o, t, u) = (&self.owner, &self.token, &self.until);
        let sql = format!(
            "UPDATE {} SET {o} = NULL, {u} = NULL WHERE {} = ? AND {t} = ? AND {o} IS NOT NULL",
            self.table, self.key
        );
        let values = vec![hold.key(), hold.token().get().into()];
        let change = statement::change(conn, &sql, values, true).await?;
        Ok(change.rows > 0)
    }

    /// What the row says now; the newest, not that of a transaction's snapshot.
    async fn look<C: Session>(&self, on: &mut C, key: Value) -> Result<Option<Seen>> {
        let (o, t, u) = (&self.owner, &self.token, &self.until);
        let sql = format!(
            "SELECT {o}, {t}, COALESCE({u}, 0) - {NOW} FROM {} WHERE {} = ? LOCK IN SHARE MODE",
            self.table, self.key
        );
        let row: Option<(Option<String>, u64, i64)> = statement::read(on, &sql, vec![key]).await?;
        Ok(row.map(|(owner, token, left)| Seen { owner, token, left }))
    }
}

fn micros(lease: Duration) -> Result<u64> {
    match u64::try_from(lease.as_micros()) {
        Ok(micros) if micros > 0 && lease <= LONGEST => Ok(micros),
        _ => Err(
            Error::invalid("a lease is longer than nothing and shorter than a year")
                .with_store("mysql"),
        ),
    }
}
