//! Random steps give the same answers on Redis as on the reference store, while time passes on both.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch_core::Result;
use clinch_core::store::{Admin, Events, OpenContext};
use clinch_testkit::model::{Real, Said, Time, play};
use clinch_testkit::servers::{Redis, Step};

struct Server {
    redis: Redis,
    /// Whether events are watched: then the script uses the slow path only.
    watched: bool,
    watchers: Mutex<Vec<Events>>,
}

impl Server {
    fn new(watched: bool) -> Self {
        Self {
            redis: Redis::with().clock_shim().start().unwrap(),
            watched,
            watchers: Mutex::default(),
        }
    }
}

impl Real for Server {
    async fn open(&self, context: OpenContext) -> Result<Arc<dyn Admin>> {
        let url = format!("{}/?remember=24h", self.redis.url()).parse()?;
        let store = clinch_redis::open(&url, context).await?;
        if self.watched {
            let events = store.events("").await?;
            self.watchers.lock().unwrap().push(events);
        }
        Ok(store)
    }

    fn time(&self) -> Time {
        Time::Stepped
    }

    fn pass(&self, span: Duration) {
        self.redis.step_clock(span, Step::Forward).unwrap();
    }

    /// Redis counts waiters that have run out behind a living one, and knows a predecessor for
    /// longer; only the reference knows that of a repeated claim which was not the last to be
    /// granted.
    fn agree(&self, real: &Said, model: &Said) -> bool {
        match (real, model) {
            (Said::Queued(real), Said::Queued(model)) => real >= model,
            (Said::Granted(real, Some(before)), Said::Granted(model, Some(expected))) => {
                real == model && (before == expected || before.is_none() || expected.is_none())
            }
            _ => real == model,
        }
    }
}

#[test]
fn answers_are_those_of_the_reference() {
    play(&Server::new(false), 300);
}

#[test]
fn answers_on_the_slow_path_are_those_of_the_reference() {
    play(&Server::new(true), 200);
}
