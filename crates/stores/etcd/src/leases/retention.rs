//! The retention lease: end records, grant records and tombstones are attached to it and expire with it.

use std::sync::{Arc, MutexGuard};

use clinch_core::{BootTime, Result};
use clinch_kit::lock;

use super::{Leases, seconds};
use crate::error::CallError;

impl Leases {
    pub(super) fn current_retention(&self) -> MutexGuard<'_, Option<(i64, BootTime)>> {
        lock(&self.retention)
    }

    /// The retention lease; it lives for at least `remember` from now.
    pub(crate) async fn retention(self: &Arc<Self>) -> Result<i64, CallError> {
        if let Some(id) = self.fresh_retention() {
            return Ok(id);
        }
        let leases = self.clone();
        self.one_at_a_time(async move {
            if let Some(id) = leases.fresh_retention() {
                return Ok(id);
            }
            // It is used for the first third of its life.
            let ttl = seconds(leases.session.config.remember) * 3;
            let new = leases.grant(ttl).await?;
            *leases.current_retention() = Some((new.id, new.sent));
            Ok(new.id)
        })
        .await
    }

    fn fresh_retention(&self) -> Option<i64> {
        let (now, remember) = (self.session.clock.now(), self.session.config.remember);
        let fresh = self
            .current_retention()
            .filter(|(_, sent)| now.since(*sent) < remember);
        fresh.map(|(id, _)| id)
    }

    /// This retention lease does not exist any more; the next use grants a new one.
    pub(crate) fn forget_retention(&self, id: i64) {
        let mut retention = self.current_retention();
        if retention.is_some_and(|(current, _)| current == id) {
            *retention = None;
        }
    }
}
