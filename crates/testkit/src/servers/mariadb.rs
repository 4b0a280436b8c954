//! One MariaDB server.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clinch_core::{Error, Result};

use super::mariadb_builder::{MariaDbBuilder, Parts};
use super::mariadb_flavour::Flavour;
use super::mariadb_template::unpack;
use super::{Certificates, Disk, Recipe, ServerProcess, Step, Stranger, tool};

/// A running MariaDB, alone in its folder; it is killed, and the folder removed, on drop.
///
/// It has the database `clinch`, the user `clinch` who may do everything and the user `limited`
/// who may only select, insert, update and delete there. The password of both is `secret`. It
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
#[derive(Debug)]
pub struct MariaDb {
    // Fields are dropped in this order: first the process, then its folder.
    process: ServerProcess,
    parts: Parts,
}

super::process::signals!(MariaDb);

impl MariaDb {
    /// A server with the engine's defaults, as far as they matter to clients.
    pub fn start() -> Result<Self> {
        Self::with().start()
    }

    /// A server with options.
    pub fn with() -> MariaDbBuilder {
        MariaDbBuilder::default()
    }

    pub(super) fn launch(recipe: Recipe, parts: Parts) -> Result<Self> {
        let mariadb = Self {
            process: ServerProcess::start(recipe)?,
            parts,
        };
        mariadb.set_up()?;
        Ok(mariadb)
    }

    /// The port. It stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.parts.port.number()
    }

    /// `mysql://clinch:secret@127.0.0.1:PORT/clinch`, a user who may do everything.
    pub fn url(&self) -> String {
        self.url_as("clinch", "secret")
    }

    /// The URL of a user who may only select, insert, update and delete.
    pub fn limited_url(&self) -> String {
        self.url_as("limited", "secret")
    }

    /// The URL for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let port = self.port();
        format!("mysql://{user}:{password}@127.0.0.1:{port}/clinch")
    }

    /// The socket file.
    pub fn socket(&self) -> PathBuf {
        self.parts.folder.path().join("socket")
    }

    /// The authority of a server with TLS.
    pub fn ca_file(&self) -> Option<&Path> {
        self.certificates().map(Certificates::ca_file)
    }

    /// All certificates of a server with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.parts.certificates.as_ref()
    }

    /// The private folder: `log`, `socket` and `data`.
    pub fn folder(&self) -> &Path {
        self.parts.folder.path()
    }

    /// The disk of a server that was started with [`disk`](MariaDbBuilder::disk).
    pub fn disk(&self) -> Option<&Disk> {
        self.parts.disk.as_ref()
    }

    /// Starts it again on the same port with the data that it kept, after killing it if it runs.
    pub fn start_again(&self) -> Result<()> {
        self.process.restart()?;
        self.wait_ready()
    }

    /// Starts it again on the same port with a fresh database, after killing it if it runs.
    pub fn start_empty(&self) -> Result<()> {
        self.process.kill()?;
        self.parts.folder.empty("data")?;
        unpack(self.folder())?;
        self.process.restart()?;
        self.set_up()
    }

    /// Steps the wall clock of a server that was started with
    /// [`clock_shim`](MariaDbBuilder::clock_shim). Steps add up and outlive restarts.
    pub fn step_clock(&self, by: Duration, step: Step) -> Result<()> {
        match &self.parts.clock {
            Some(clock) => clock.step(by, step),
            None => Err(Error::invalid(
                "this MariaDB was started without clock_shim()",
            )),
        }
    }

    /// Runs statements as root, in the database `clinch`, on a connection of their own. Gives the
    /// rows: a line for each, tabs between the values. A refusal is an error.
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
        let told = format!("{statements} to the MariaDB at {}", self.port());
        tool::run("mariadb", &args, &[], &told)
    }

    /// Runs statements as root on a session that stays, with whatever they locked, until it is
    /// dropped.
    pub fn stranger(&self, statements: &str) -> Result<Stranger> {
        Stranger::open(self, statements)
    }

    /// Whether these servers are MySQL: `CLINCH_TEST_MYSQLD` names a server program to use in the
    /// place of MariaDB's.
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
    /// Each call is a connection of its own and counts itself in some of them: before it looks,
    /// that is one thread and one question.
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
            _ => Err(Error::invalid(format!("{name} is no counter: {line:?}"))),
        }
    }

    /// Ends every connection of the two users of the kit, as an administrator does; says how many.
    ///
    /// ```
    /// use clinch_testkit::servers::MariaDb;
    /// assert_eq!(MariaDb::start()?.kill_connections()?, 0);
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn kill_connections(&self) -> Result<usize> {
        // All in one go: as a client for each, the first of many would be back before the last went.
        let ours = "SELECT id FROM information_schema.processlist \
                    WHERE user IN ('clinch', 'limited')";
        let ids = self.sql(ours)?;
        match self.parts.flavour {
            // By user: one who is back at once is met as well.
            Flavour::MariaDb => drop(self.sql("KILL USER clinch; KILL USER limited")?),
            Flavour::MySql(_) => {
                let kills: String = ids.lines().map(|id| format!("KILL {id};")).collect();
                // Some may have gone by themselves: the client goes on, and says so at the end.
                let _ = self.client(&kills, Some("--force"));
            }
        }
        Ok(ids.lines().count())
    }

    /// Ends the connection that comes from this port with `KILL`; `false` if there is none.
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

    /// What is kept in the database, and so has to be said once.
    fn set_up(&self) -> Result<()> {
        self.wait_ready()?;
        if self.parts.setup.tls == Some(true) {
            self.sql("ALTER USER clinch@'%' REQUIRE X509; ALTER USER limited@'%' REQUIRE X509")?;
        }
        Ok(())
    }

    /// Waits until it answers.
    pub fn wait_ready(&self) -> Result<()> {
        // A look at the socket first: the client is a process, and many would slow the start.
        let ready = || UnixStream::connect(self.socket()).is_ok() && self.sql("SELECT 1").is_ok();
        self.process.wait_ready(ready)
    }
}
