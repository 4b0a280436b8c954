//! Deletes the rows of names that have been idle for long, off the hot path.
//!
//! A new row must not start with a smaller sequence number than the old one had, whatever the clock does
//! meanwhile. So the namespace has a watermark, and a round deletes only rows below the watermark that an
//! earlier round has set: no statement that began before is still under way.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::{Clock, Name, Result, keeper};
use clinch_kit::backoff::between;
use clinch_kit::closed::Closing;

use crate::Dialect;
use crate::batch::StepBatcher;
use crate::dialect::Sent;
use crate::record::span;
use crate::steps::Step;

/// The interval between rounds, at least and at most.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(900));
/// Rows in one scan, and rows deleted in one request.
const PAGE: u64 = 1000;
const DELETED: usize = 50;
/// Between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// Cleans up one namespace until the store is closed.
pub(crate) struct Cleanup {
    pub(crate) dialect: Arc<dyn Dialect>,
    pub(crate) steps: StepBatcher,
    /// For how long an idle name keeps its row.
    pub(crate) remember: Duration,
}

impl Cleanup {
    pub(crate) fn start(self, closing: Closing) -> Result<()> {
        keeper::spawn(async move {
            let _ = closing.or(self.run()).await;
        })
    }

    async fn run(self) {
        let clock = Clock::boot();
        let interval = (self.remember / 4).clamp(INTERVAL.0, INTERVAL.1);
        loop {
            clock.sleep(between(interval / 2, interval * 3 / 2)).await;
            if let Err(failure) = self.round(interval).await {
                tracing::debug!(?failure, "idle names were not cleaned up");
            }
        }
    }

    async fn round(&self, interval: Duration) -> Sent<()> {
        // One client of all is enough.
        let Some(watermark) = self.dialect.begin_cleanup(span(interval / 2)).await? else {
            return Ok(());
        };
        let clock = Clock::boot();
        let age = span(self.remember);
        let mut from = Vec::new();
        loop {
            let mut rows = self.dialect.scan(&from, age, watermark, PAGE).await?;
            let is_last = (rows.len() as u64) < PAGE;
            if let Some(row) = rows.last() {
                from.clone_from(&row.name);
            }
            for row in rows
                .iter()
                .filter(|row| row.idle && !row.free && row.expired)
            {
                self.tick(&row.name);
            }
            rows.retain(|row| row.idle && row.free);
            for some in rows.chunks(DELETED) {
                self.dialect.delete(some).await?;
                clock.sleep(PAUSE).await;
            }
            if is_last {
                break;
            }
            clock.sleep(PAUSE).await;
        }
        self.dialect.raise_watermark(age).await
    }

    /// Ends the claims of holders that never came back: the row becomes idle, and a later round deletes it.
    fn tick(&self, name: &[u8]) {
        if let Ok(Ok(name)) = String::from_utf8(name.to_vec()).map(Name::new) {
            drop(self.steps.submit(name, Step::Tick));
        }
    }
}
