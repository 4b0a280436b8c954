//! A leader's value: a renewal that carries it.

use std::sync::Arc;

use super::settings::{backoff, renew_after};
use super::{Engine, Hold, extend, patient};
use crate::store::{RenewReply, Renewal};
use crate::{BootTime, Effect, Error, ErrorKind, LostReason, Result};

impl Engine {
    /// Publishes a value with the hold, and extends it as a renewal does. Repeats it for as long as
    /// patience lasts; the hold is suspect meanwhile.
    pub(crate) async fn publish(self: &Arc<Self>, hold: &Arc<Hold>, value: Arc<str>) -> Result<()> {
        self.check_open()?;
        let give_up = self.clock.now() + self.settings.patience;
        let mut tries = 0;
        let mut effect = Effect::None;
        loop {
            if let Some(reason) = hold.lost_reason() {
                return Err(self.explain(lost(reason), &hold.spi.name));
            }
            let sent = self.clock.now();
            let error = match self.publish_once(hold, value.clone()).await {
                Ok(RenewReply::Held) => return self.published(hold, sent),
                Ok(RenewReply::Lost(reason)) => {
                    hold.lose(reason);
                    continue;
                }
                Ok(RenewReply::Unknown) => unanswered(),
                Err(error) => error,
            };
            if error.may_have_taken_effect() {
                effect = Effect::Possible;
            }
            extend::unrenewed(
                self,
                hold,
                self.clock.now() + extend::retry_after(hold.lease),
            );
            if !error.is_temporary() || self.clock.now() >= give_up {
                return Err(self.explain(error.with_effect(effect), &hold.spi.name));
            }
            tries += 1;
            self.clock.sleep(backoff(tries)).await;
        }
    }

    async fn publish_once(self: &Arc<Self>, hold: &Hold, value: Arc<str>) -> Result<RenewReply> {
        let renewal = Renewal {
            hold: hold.spi.clone(),
            lease: hold.lease,
            value: Some(value),
        };
        let patience = renew_after(hold.lease).min(self.settings.patience);
        let engine = self.clone();
        // Only the keeper renews: there the store has its own connection for it.
        crate::keeper::run(async move {
            let renewing = engine.store.renew(std::slice::from_ref(&renewal));
            match patient(&engine.clock, patience, renewing).await {
                Some(replies) => Ok(replies?.first().copied().unwrap_or(RenewReply::Unknown)),
                None => Ok(RenewReply::Unknown),
            }
        })
        .await
    }

    fn published(&self, hold: &Arc<Hold>, sent: BootTime) -> Result<()> {
        if hold.extend(sent) {
            self.renewer.put(hold, sent + renew_after(hold.lease));
            return Ok(());
        }
        let reason = hold.lost_reason().unwrap_or(LostReason::Released);
        Err(self.explain(lost(reason), &hold.spi.name))
    }
}

fn lost(reason: LostReason) -> Error {
    Error::new(
        ErrorKind::Lost,
        format!("the leadership was lost: {reason}"),
    )
}

fn unanswered() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        "the store did not acknowledge the value in time",
    )
    .with_effect(Effect::Possible)
    .with_advice("check that the store is up (`clinch doctor`)")
}
