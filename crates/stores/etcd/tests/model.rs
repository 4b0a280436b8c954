//! Random sequences of operations give the same replies on etcd as on the reference store.
//!
//! Time does not pass in this test; the conformance suite covers expiry.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use clinch_core::Result;
use clinch_core::store::{Admin, OpenContext};
use clinch_testkit::model::{Real, Said, Time, play};
use clinch_testkit::servers::Etcd;

struct Server(Etcd);

impl Real for Server {
    async fn open(&self, context: OpenContext) -> Result<Arc<dyn Admin>> {
        clinch_etcd::open(&self.0.url().parse()?, context).await
    }

    fn time(&self) -> Time {
        Time::Still
    }

    fn hears_at_once(&self) -> bool {
        true
    }

    fn agree(&self, real: &Said, model: &Said) -> bool {
        real.agrees_roughly(model)
    }
}

#[test]
fn answers_are_those_of_the_reference() {
    play(&Server(Etcd::start().unwrap()), 100);
}
