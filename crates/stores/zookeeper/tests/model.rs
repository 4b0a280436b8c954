//! Random steps give the same answers on ZooKeeper as on the reference store.
//!
//! Time does not pass in it. What ends by itself is in the conformance suite.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use clinch_core::Result;
use clinch_core::store::{Admin, OpenContext};
use clinch_testkit::model::{Real, Said, Time, play};
use clinch_testkit::servers::ZooKeeper;

struct Server(ZooKeeper);

impl Real for Server {
    async fn open(&self, context: OpenContext) -> Result<Arc<dyn Admin>> {
        let url = format!("{}?tick=200ms", self.0.url());
        clinch_zookeeper::open(&url.parse()?, context).await
    }

    fn time(&self) -> Time {
        Time::Still
    }

    fn hears_at_once(&self) -> bool {
        true
    }

    /// A waiter watches one node and counts the claims ahead only when that node is gone. The eviction of a
    /// shared hold is known until another client writes the folder record.
    fn agree(&self, real: &Said, model: &Said) -> bool {
        match (real, model) {
            (Said::Queued(real), Said::Queued(model)) => real >= model,
            (Said::Text(real), Said::Text(model)) => {
                let vague = |text: &str| text.replace("Evicted", "Forgotten");
                real == model || *real == vague(model)
            }
            _ => real.agrees_roughly(model),
        }
    }
}

#[test]
fn answers_are_those_of_the_reference() {
    // Leases of many minutes, so that none ends meanwhile, need sessions to match.
    let server = ZooKeeper::with().config("maxSessionTimeout", "4000000");
    play(&Server(server.start().unwrap()), 40);
}
