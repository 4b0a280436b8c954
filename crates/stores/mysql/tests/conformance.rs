//! The conformance suite on MariaDB, in its own dialect and in that of MySQL 8. The cases share one
//! server and have a database each; those that restart it have their own server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_testkit::conformance::{self, Place};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::subjects::restarts;

type OnServers = clinch_testkit::subjects::OnServers<common::Ours>;

fn main() -> std::process::ExitCode {
    let own = OnServers::own("mysql_own", clinch_mysql::stores().remove(0), |_| {
        Ok(Database {
            server: Arc::new(MariaDb::start()?),
            database: "clinch".into(),
            parameters: "",
        })
    });
    conformance::main(vec![
        Box::new(shared("mysql", "")),
        Box::new(shared("mysql_8", "?dialect=mysql")),
        Box::new(own.cases(restarts)),
    ])
}

/// A database on a server that both dialects share; URLs end with `parameters`.
fn shared(name: &'static str, parameters: &'static str) -> OnServers {
    static SERVER: LazyLock<Result<Arc<MariaDb>>> = LazyLock::new(|| {
        let server = MariaDb::with().option("max-connections", "1000").start();
        server.map(Arc::new)
    });
    let place = move |number| {
        let server = SERVER.clone()?;
        let database = format!("{name}_case_{number}");
        server.sql(&format!("CREATE DATABASE {database}"))?;
        Ok(Database {
            server,
            database,
            parameters,
        })
    };
    OnServers::own(name, clinch_mysql::stores().remove(0), place)
        // Each grant and renewal waits for a commit, and the cases share one disk.
        .lease(Duration::from_secs(2))
        .cases(|case| !restarts(case))
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

    /// Claims in rows that have not expired. The others stay until the name is used again, or cleaned
    /// up.
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
