//! MariaDB or MySQL.

use std::path::Path;

use clinch_core::Result;

use super::template::as_root;
use crate::servers::tool;

/// Environment variable that names the MySQL server program to use instead of MariaDB's.
const MYSQLD: &str = "CLINCH_TEST_MYSQLD";

/// Which of the two runs: MySQL if the environment names it.
#[derive(Debug, Clone)]
pub enum Flavour {
    /// MariaDB, found on the path.
    MariaDb,
    /// MySQL, with its program.
    MySql(String),
}

impl Flavour {
    pub(super) fn chosen() -> Self {
        match std::env::var(MYSQLD) {
            Ok(program) if !program.is_empty() => Self::MySql(program),
            _ => Self::MariaDb,
        }
    }

    pub(super) fn program(&self) -> &str {
        match self {
            Self::MariaDb => "mariadbd",
            Self::MySql(program) => program,
        }
    }

    /// Sizes on which the installation and the server must agree: small files are copied fast.
    pub(super) fn sizes(&self) -> [&'static str; 3] {
        match self {
            Self::MariaDb => [
                "--innodb-data-file-path=ibdata1:2M:autoextend",
                "--innodb-autoextend-increment=1",
                "--innodb-log-file-size=16M",
            ],
            Self::MySql(_) => [
                "--innodb-data-file-path=ibdata1:8M:autoextend",
                "--innodb-autoextend-increment=1",
                "--innodb-redo-log-capacity=16M",
            ],
        }
    }

    /// Options that only this one has.
    pub(super) fn basics(&self) -> &'static [&'static str] {
        match self {
            Self::MariaDb => &[],
            Self::MySql(_) => &["--mysqlx=0"],
        }
    }

    /// Makes the folder `data` in `place`, and runs the statements in the file `setup` on it.
    pub(super) fn install(&self, place: &str, setup: &Path) -> Result<()> {
        let data = format!("--datadir={place}/data");
        let mut args = vec!["--no-defaults", &data];
        args.extend(self.sizes());
        args.extend(as_root());
        let setup = setup.display();
        let (program, setup) = match self {
            Self::MariaDb => {
                args.extend(["--skip-test-db", "--auth-root-authentication-method=normal"]);
                ("mariadb-install-db", format!("--extra-file={setup}"))
            }
            Self::MySql(program) => {
                args.push("--initialize-insecure");
                (program.as_str(), format!("--init-file={setup}"))
            }
        };
        args.push(&setup);
        tool::run(program, &args, &[], "making a data folder").map(drop)
    }
}
