//! Random operations give the same answers here as on the reference store.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::sync::Arc;

use clinch_core::Result;
use clinch_core::store::{Admin, OpenContext};
use clinch_sqlite::SqliteStore;
use clinch_testkit::model::{Real, Time, play};
use common::Folder;

/// Each sequence has a file of its own, and both sides the same clock.
impl Real for Folder {
    async fn open(&self, context: OpenContext) -> Result<Arc<dyn Admin>> {
        let file = self.0.join(format!("{}.db", context.namespace));
        let url = format!("sqlite:{}", file.display()).parse()?;
        Ok(Arc::new(SqliteStore::open(&url, context)?))
    }

    fn time(&self) -> Time {
        Time::Shared
    }

    fn exact(&self) -> bool {
        true
    }
}

#[test]
fn answers_are_those_of_the_reference() {
    play(&Folder::new(), 150);
}
