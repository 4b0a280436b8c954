//! Random steps give the same answers on MariaDB as on the reference store, while time passes on both.
//!
//! The same sequences run twice: over the fast path where it applies, and all over the slow path, because
//! the namespace counts as watched.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::time::Duration;

use clinch_core::Result;
use clinch_core::store::{Admin, OpenContext};
use clinch_testkit::model::{Real, Time, play};
use clinch_testkit::servers::{MariaDb, Step};

struct Server {
    mariadb: MariaDb,
    parameters: &'static str,
    path: Path,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Path {
    /// Over the fast path where it applies.
    Fast,
    /// Only over the slow path.
    Slow,
}

impl Server {
    fn new(parameters: &'static str, path: Path) -> Self {
        let mariadb = MariaDb::with().clock_shim().start().unwrap();
        Self {
            mariadb,
            parameters,
            path,
        }
    }

    /// Marks a namespace as watched for ever, whatever the clock does: statements of the fast path then
    /// change nothing, and each step is a read and a compare-and-set with its events.
    fn watch(&self, namespace: &str) {
        let watch = format!(
            "INSERT INTO clinch_meta (ns, watched_until) VALUES ('{namespace}', ~0) \
             ON DUPLICATE KEY UPDATE watched_until = ~0"
        );
        self.mariadb.sql(&watch).unwrap();
    }

    /// How many rows of the event log there are: the slow path writes them.
    fn events(&self) -> u64 {
        let count = self.mariadb.sql("SELECT COUNT(*) FROM clinch_events");
        count.unwrap().trim().parse().unwrap()
    }
}

impl Real for Server {
    async fn open(&self, context: OpenContext) -> Result<Arc<dyn Admin>> {
        let url = format!("{}{}", self.mariadb.url(), self.parameters);
        let namespace = context.namespace.to_string();
        let store = clinch_mysql::open(&url.parse()?, context).await?;
        if self.path == Path::Slow {
            self.watch(&namespace);
        }
        Ok(store)
    }

    fn time(&self) -> Time {
        Time::Stepped
    }

    fn pass(&self, span: Duration) {
        self.mariadb.step_clock(span, Step::Forward).unwrap();
    }
}

#[test]
fn answers_are_those_of_the_reference() {
    let server = Server::new("", Path::Fast);
    play(&server, 200);
    assert_eq!(server.events(), 0);
}

#[test]
fn answers_are_those_of_the_reference_in_the_dialect_of_mysql() {
    play(&Server::new("?dialect=mysql", Path::Fast), 200);
}

#[test]
fn answers_are_those_of_the_reference_on_the_slow_path() {
    let server = Server::new("", Path::Slow);
    play(&server, 100);
    assert!(server.events() > 100);
}
