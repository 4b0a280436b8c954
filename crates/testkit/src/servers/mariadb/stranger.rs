//! Another client's session at a MariaDB server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use clinch_core::{Error, ErrorKind, Result};

use super::MariaDb;
use crate::servers::failed;

/// Printed when all statements have run.
const DONE: &str = "all done";

/// Limits waiting for locks to five seconds; the engine's default is a day.
const LOCK_WAIT: &str = "SET lock_wait_timeout = 5, innodb_lock_wait_timeout = 5;";

/// A session that has run statements and keeps their locks, such as the row locks of an open
/// transaction, until it is dropped; see [`MariaDb::stranger`].
///
/// ```
/// use clinch_testkit::servers::MariaDb;
/// let mariadb = MariaDb::start()?;
/// mariadb.sql("CREATE TABLE t (n INT PRIMARY KEY); INSERT INTO t VALUES (1)")?;
/// let stranger = mariadb.stranger("BEGIN; SELECT * FROM t FOR UPDATE")?;
/// assert!(mariadb.sql("SELECT * FROM t FOR UPDATE NOWAIT").is_err());
/// drop(stranger);
/// assert_eq!(mariadb.sql("SELECT * FROM t FOR UPDATE WAIT 20")?, "1");
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Stranger {
    /// Reads its standard input, so it ends when this process does.
    client: Child,
}

impl Stranger {
    pub(super) fn open(server: &MariaDb, statements: &str) -> Result<Self> {
        let socket = format!("--socket={}", server.socket().display());
        let client = Command::new("mariadb")
            .args(["--no-defaults", "--batch", "--raw", "--unbuffered"])
            .args(["--skip-column-names", "--user=root", &socket])
            .arg("--database=clinch")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| failed("cannot run mariadb", e))?;
        let mut stranger = Self { client };
        match stranger.run(statements) {
            Ok(true) => Ok(stranger),
            Ok(false) => Err(Error::new(
                ErrorKind::Invalid,
                format!("the session failed: {statements}"),
            )),
            Err(e) => Err(failed("no connection to the session", e)),
        }
    }

    /// Runs the statements; `false` if one failed, which ends the client.
    fn run(&mut self, statements: &str) -> std::io::Result<bool> {
        let (Some(input), Some(output)) = (&mut self.client.stdin, &mut self.client.stdout) else {
            return Ok(false);
        };
        input.write_all(format!("{LOCK_WAIT}{statements};SELECT '{DONE}';\n").as_bytes())?;
        input.flush()?;
        for line in BufReader::new(output).lines() {
            if line? == DONE {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // The server then ends the session and its transaction.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}
