//! Which of the two engines of one language is started.

use std::path::Path;

use clinch_core::Result;

use super::mariadb_template::as_root;
use super::tool;

/// Names the server program of MySQL that is to be used in the place of MariaDB.
const MYSQLD: &str = "CLINCH_TEST_MYSQLD";

/// MariaDB, or MySQL if the environment names one: the same tests, on the other engine.
#[derive(Debug, Clone)]
pub(super) enum Flavour {
    MariaDb,
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

    /// What the installation and the server must agree on: small files, quickly copied.
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

    /// What only this one understands.
    pub(super) fn basics(&self) -> &'static [&'static str] {
        match self {
            Self::MariaDb => &[],
            Self::MySql(_) => &["--mysqlx=0"],
        }
    }

    /// Makes the folder `data` in a place, with what the statements of a file say.
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
