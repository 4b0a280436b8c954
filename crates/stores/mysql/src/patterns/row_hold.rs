//! A row that is held.

use clinch_core::{BootTime, Clock, Error, ErrorKind, Result, Token};
use mysql_async::Value;

/// A row that was claimed; see [`LockColumns`](super::LockColumns).
///
/// Dropped without a release, it ends with its lease.
///
/// ```
/// # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = clinch_testkit::servers::MariaDb::start()?;
/// # let (url, lease) = (server.url(), std::time::Duration::from_secs(30));
/// # server.sql("CREATE TABLE reports (id INT PRIMARY KEY)")?;
/// # server.sql("INSERT INTO reports (id) VALUES (1)")?;
/// use clinch_mysql::patterns::{Claimed, ColumnNames, LockColumns};
/// let reports = LockColumns::new("reports", "id", ColumnNames::default())?;
/// # server.sql(&reports.schema())?;
/// let mut conn = mysql_async::Conn::from_url(&url).await?;
/// if let Claimed::Held(hold) = reports.claim(&mut conn, 1, "a", lease).await? {
///     assert!(hold.is_valid());
///     assert_eq!(hold.token().get(), 1);
/// }
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(demo()).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "it is held until its lease ends"]
pub struct RowHold {
    key: Value,
    token: Token,
    deadline: BootTime,
    clock: Clock,
}

impl RowHold {
    pub(super) fn new(key: Value, token: u64, deadline: BootTime, clock: &Clock) -> Result<Self> {
        let token = Token::from_u64(token).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("{token} is no token")).with_store("mysql")
        })?;
        Ok(Self {
            key,
            token,
            deadline,
            clock: clock.clone(),
        })
    }

    /// Rises with each grant of the row.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the lease still runs, by a look at our own clock, with a margin for clocks that run
    /// at different rates. It does not ask the server.
    pub fn is_valid(&self) -> bool {
        self.clock.now() < self.deadline
    }

    pub(super) fn key(&self) -> Value {
        self.key.clone()
    }

    pub(super) fn set_deadline(&mut self, deadline: BootTime) {
        self.deadline = deadline;
    }
}
