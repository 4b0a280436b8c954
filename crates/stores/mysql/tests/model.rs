//! Random steps give the same answers on MariaDB as on the reference store, while time passes on both.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::time::Duration;

use clinch_core::Result;
use clinch_core::store::{OpenContext, Store};
use clinch_testkit::model::{Real, Time, play};
use clinch_testkit::servers::{MariaDb, Step};

struct Server {
    mariadb: MariaDb,
    parameters: &'static str,
}

impl Server {
    fn new(parameters: &'static str) -> Self {
        let mariadb = MariaDb::with().clock_shim().start().unwrap();
        Self {
            mariadb,
            parameters,
        }
    }
}

impl Real for Server {
    async fn open(&self, context: OpenContext) -> Result<Arc<dyn Store>> {
        let url = format!("{}{}", self.mariadb.url(), self.parameters);
        clinch_mysql::open(&url.parse()?, context).await
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
    play(&Server::new(""), 200);
}

#[test]
fn answers_are_those_of_the_reference_in_the_dialect_of_mysql() {
    play(&Server::new("?dialect=mysql"), 200);
}
