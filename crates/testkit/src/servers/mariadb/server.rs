//! Statements to one MariaDB server.

use std::path::PathBuf;

use clinch_core::{Error, Result};

use super::flavour::Flavour;
use super::{MariaDb, Stranger};
use crate::servers::tool;

impl MariaDb {
    /// The URL of a user who may only select, insert, update and delete.
    pub fn limited_url(&self) -> String {
        self.url_as("limited", "secret")
    }

    /// The URL for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("mysql://{user}:{password}@{}/clinch", self.socket_address())
    }

    /// The socket file.
    pub fn socket(&self) -> PathBuf {
        self.folder().join("socket")
    }

    /// Runs statements as root, in the database `clinch`, on a new connection. Returns the rows: a
    /// line for each, with tabs between the values.
    pub fn sql(&self, statements: &str) -> Result<String> {
        self.client(statements, None)
    }

    fn client(&self, statements: &str, option: Option<&str>) -> Result<String> {
        let socket = format!("--socket={}", self.socket().display());
        let mut args = vec![
            "--no-defaults",
            "--batch",
            "--raw",
            "--skip-column-names",
            "--user=root",
            &socket,
            "--database=clinch",
            "--execute",
            statements,
        ];
        args.extend(option);
        let what = format!("{statements} to the MariaDB at {}", self.port());
        tool::run("mariadb", &args, &[], &what)
    }

    /// Runs statements as root on a session that keeps what they locked until it is dropped.
    pub fn stranger(&self, statements: &str) -> Result<Stranger> {
        Stranger::open(self, statements)
    }

    /// Whether these servers are MySQL: `CLINCH_TEST_MYSQLD` names its server program.
    ///
    /// ```
    /// use clinch_testkit::servers::MariaDb;
    /// let version = MariaDb::start()?.sql("SELECT VERSION()")?;
    /// assert_eq!(MariaDb::is_mysql(), !version.contains("MariaDB"));
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn is_mysql() -> bool {
        matches!(Flavour::chosen(), Flavour::MySql(_))
    }

    /// A counter of the whole server since its start, such as `Questions`, `Com_update`,
    /// or `Threads_connected`; and `Innodb_deadlocks`, which MySQL keeps elsewhere.
    ///
    /// Each call opens a connection, which some counters include: one thread and one question.
    ///
    /// ```
    /// use clinch_testkit::servers::MariaDb;
    /// let mariadb = MariaDb::start()?;
    /// let before = mariadb.status("Com_create_table")?;
    /// mariadb.sql("CREATE TABLE t (n INT)")?;
    /// assert_eq!(mariadb.status("Com_create_table")?, before + 1);
    /// assert_eq!(mariadb.status("Threads_connected")?, 1);
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn status(&self, name: &str) -> Result<u64> {
        let line = match (Self::is_mysql(), name) {
            (true, "Innodb_deadlocks") => self.sql(
                "SELECT name, count FROM information_schema.innodb_metrics \
                 WHERE name = 'lock_deadlocks'",
            ),
            _ => self.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'")),
        }?;
        let value = line.split_whitespace().nth(1).map(str::parse);
        match value {
            Some(Ok(value)) => Ok(value),
            _ => Err(Error::invalid(format!("{name} is not a counter: {line:?}"))),
        }
    }

    /// Kills every connection of the kit's two users; returns how many there were.
    ///
    /// ```
    /// use clinch_testkit::servers::MariaDb;
    /// assert_eq!(MariaDb::start()?.kill_connections()?, 0);
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn kill_connections(&self) -> Result<usize> {
        // All at once: with a client for each, the first would reconnect before the last was killed.
        let ours = "SELECT id FROM information_schema.processlist \
                    WHERE user IN ('clinch', 'limited')";
        let ids = self.sql(ours)?;
        match self.state {
            // By user, which includes those that reconnect meanwhile.
            Flavour::MariaDb => drop(self.sql("KILL USER clinch; KILL USER limited")?),
            Flavour::MySql(_) => {
                let kills: String = ids.lines().map(|id| format!("KILL {id};")).collect();
                // Some may have ended already: with --force the client goes on to the next.
                let _ = self.client(&kills, Some("--force"));
            }
        }
        Ok(ids.lines().count())
    }

    /// Kills the connection that comes from this port; `false` if there is none.
    ///
    /// ```
    /// use clinch_testkit::servers::MariaDb;
    /// assert!(!MariaDb::start()?.kill_connection_from(1)?);
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn kill_connection_from(&self, port: u16) -> Result<bool> {
        let from =
            format!("SELECT id FROM information_schema.processlist WHERE host LIKE '%:{port}'");
        let id = self.sql(&from)?;
        match id.trim() {
            "" => Ok(false),
            id => self.sql(&format!("KILL {id}")).map(|_| true),
        }
    }
}
