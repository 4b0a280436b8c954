//! The conformance suite on MariaDB, in its own dialect and in that of MySQL 8. The cases share one
//! server and have a database each; those that restart it have one of their own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_testkit::conformance::{self, Case, Place, Subject};
use clinch_testkit::servers::MariaDb;

fn main() -> std::process::ExitCode {
    conformance::main(vec![
        Box::new(Dialect("mysql", "")),
        Box::new(Dialect("mysql_8", "?dialect=mysql")),
        Box::new(OwnServer),
    ])
}

fn restarts(case: &Case) -> bool {
    matches!(case.name, "rise_over_restarts" | "it_outlives_its_client")
}

/// How the server is spoken to: the name of the subject, and what its URLs end with.
struct Dialect(&'static str, &'static str);

#[async_trait]
impl Subject for Dialect {
    fn name(&self) -> String {
        self.0.into()
    }

    fn info(&self) -> StoreInfo {
        clinch_mysql::stores().remove(0)
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        static SERVER: OnceLock<Result<Arc<MariaDb>>> = OnceLock::new();
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let server = SERVER.get_or_init(|| {
            let server = MariaDb::with().option("max-connections", "1000").start();
            server.map(Arc::new)
        });
        let server = server.clone()?;
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let database = format!("case_{number}");
        server.sql(&format!("CREATE DATABASE {database}"))?;
        Ok(Box::new(Database {
            server,
            database,
            parameters: self.1,
        }))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_mysql::open(&url.parse()?, context).await
    }

    /// Each grant and renewal waits for a commit, and the cases share one disk.
    fn lease(&self) -> std::time::Duration {
        std::time::Duration::from_secs(2)
    }

    fn wants(&self, case: &Case) -> bool {
        !restarts(case)
    }
}

struct OwnServer;

#[async_trait]
impl Subject for OwnServer {
    fn name(&self) -> String {
        "mysql_own".into()
    }

    fn info(&self) -> StoreInfo {
        clinch_mysql::stores().remove(0)
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        Ok(Box::new(Database {
            server: Arc::new(MariaDb::start()?),
            database: "clinch".into(),
            parameters: "",
        }))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_mysql::open(&url.parse()?, context).await
    }

    fn wants(&self, case: &Case) -> bool {
        restarts(case)
    }
}

struct Database {
    server: Arc<MariaDb>,
    database: String,
    parameters: &'static str,
}

#[async_trait]
impl Place for Database {
    fn url(&self) -> String {
        let port = self.server.port();
        let Self {
            database,
            parameters,
            ..
        } = self;
        format!("mysql://clinch:secret@127.0.0.1:{port}/{database}{parameters}")
    }

    async fn restart(&self) -> Result<()> {
        self.server.start_again()
    }

    async fn lose_data(&self) -> Result<bool> {
        let database = &self.database;
        self.server.sql(&format!(
            "DELETE FROM {database}.clinch_names; DELETE FROM {database}.clinch_meta WHERE ns <> ''"
        ))?;
        Ok(true)
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.lose_data().await
    }

    /// Claims in rows whose end has not come. The others are not looked at before the name is used
    /// again, or cleaned up.
    async fn leftovers(&self) -> Result<Vec<String>> {
        let database = &self.database;
        let left = self.server.sql(&format!(
            "SELECT CONCAT('claims on ', name) FROM {database}.clinch_names \
             WHERE (request <> '' OR state IS NOT NULL) \
             AND until > TIMESTAMPDIFF(MICROSECOND,'2020-01-01',UTC_TIMESTAMP(6))"
        ))?;
        Ok(left.lines().map(str::to_owned).collect())
    }
}
