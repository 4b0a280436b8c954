//! Random steps give the same answers on etcd as on the reference store.
//!
//! Time does not pass in it. What ends by itself is in the conformance suite.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use clinch_core::Result;
use clinch_core::store::{OpenContext, Store};
use clinch_testkit::model::{Real, Said, Time, play};
use clinch_testkit::servers::Etcd;

struct Server(Etcd);

impl Real for Server {
    async fn open(&self, context: OpenContext) -> Result<Arc<dyn Store>> {
        clinch_etcd::open(&self.0.url().parse()?, context).await
    }

    fn time(&self) -> Time {
        Time::Still
    }

    fn hears_at_once(&self) -> bool {
        true
    }

    /// A predecessor is known for longer, or shorter, than to the reference; and why something is
    /// not held is asked for only with the right number.
    fn agree(&self, real: &Said, model: &Said) -> bool {
        match (real, model) {
            (Said::Granted(real, Some(before)), Said::Granted(model, Some(expected))) => {
                real == model && (before == expected || before.is_none() || expected.is_none())
            }
            (Said::NotReleased(real), Said::NotReleased(model)) => {
                real.was_held() == model.was_held()
            }
            _ => real == model,
        }
    }
}

#[test]
fn answers_are_those_of_the_reference() {
    play(&Server(Etcd::start().unwrap()), 100);
}
