//! MariaDB, or MySQL in its place.

mod builder;
mod flavour;
mod server;
mod stranger;
mod template;

use builder::MariaDbEngine;
pub use stranger::Stranger;

use super::{Builder, Server};

/// One MariaDB server; MySQL if the environment variable `CLINCH_TEST_MYSQLD` names its program.
///
/// It has the database `clinch`, the user `clinch` with all rights, and the user `limited` who may
/// only select, insert, update and delete there. The password of both is `secret`. The server
/// flushes at each commit, as it does by default.
///
/// ```
/// use clinch_testkit::servers::MariaDb;
/// let mariadb = MariaDb::start()?;
/// mariadb.sql("CREATE TABLE t (n INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)")?;
/// mariadb.kill()?;
/// mariadb.start_again()?;
/// assert_eq!(mariadb.sql("SELECT n, n + 1 FROM t")?, "1\t2\n2\t3");
/// mariadb.start_empty()?;
/// assert_eq!(mariadb.sql("SHOW TABLES")?, "");
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub type MariaDb = Server<MariaDbEngine>;

/// Options of a [`MariaDb`] that is still to be started.
///
/// ```
/// use clinch_testkit::servers::MariaDb;
/// let mariadb = MariaDb::with()
///     .option("wait-timeout", "5")
///     .option("default-time-zone", "+05:30")
///     .start()?;
/// assert_eq!(mariadb.sql("SELECT @@global.wait_timeout, @@time_zone")?, "5\t+05:30");
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub type MariaDbBuilder = Builder<MariaDbEngine>;
