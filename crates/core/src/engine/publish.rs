//! Publishes a leader's value with a renewal.

use std::sync::Arc;

use super::settings::{backoff, renew_after};
use super::{Engine, Hold, renewal_batch, with_timeout};
use crate::store::{RenewReply, Renewal};
use crate::{BootTime, Effect, Error, ErrorKind, LostReason, Result};

impl Engine {
    /// Publishes a value with a renewal, which also extends the hold. Retries until
    /// `Settings::patience` is used up; the hold is suspect meanwhile.
    pub(crate) async fn publish(self: &Arc<Self>, hold: &Arc<Hold>, value: Arc<str>) -> Result<()> {
        self.check_open()?;
        let give_up = self.clock.now() + self.settings.patience;
        let mut tries = 0;
        let mut effect = Effect::None;
        loop {
            if let Some(reason) = hold.lost_reason() {
                return Err(self.explain(lost_error(reason), &hold.store_hold.name));
            }
            let sent = self.clock.now();
            let error = match self.publish_once(hold, value.clone()).await {
                Ok(RenewReply::Held) => return self.published(hold, sent),
                Ok(RenewReply::Lost(reason)) => {
                    hold.lose(reason);
                    continue;
                }
                Ok(RenewReply::Unknown) => no_answer(),
                Err(error) => error,
            };
            if error.may_have_taken_effect() {
                effect = Effect::Possible;
            }
            renewal_batch::renewal_failed(
                self,
                hold,
                self.clock.now() + renewal_batch::retry_after(hold.lease),
            );
            if !error.is_temporary() || self.clock.now() >= give_up {
                return Err(self.explain(error.with_effect(effect), &hold.store_hold.name));
            }
            tries += 1;
            self.clock.sleep(backoff(tries)).await;
        }
    }

    async fn publish_once(self: &Arc<Self>, hold: &Hold, value: Arc<str>) -> Result<RenewReply> {
        let renewal = Renewal {
            hold: hold.store_hold.clone(),
            lease: hold.lease,
            value: Some(value),
        };
        let timeout = renew_after(hold.lease).min(self.settings.patience);
        let engine = self.clone();
        // On the keeper, like every renewal: stores keep their connection for renewals there.
        crate::keeper::run(async move {
            let renewing = engine.store.renew(std::slice::from_ref(&renewal));
            match with_timeout(&engine.clock, timeout, renewing).await {
                Some(replies) => Ok(replies?.first().copied().unwrap_or(RenewReply::Unknown)),
                None => Ok(RenewReply::Unknown),
            }
        })
        .await
    }

    fn published(&self, hold: &Arc<Hold>, sent: BootTime) -> Result<()> {
        if hold.extend(sent) {
            self.renewer
                .schedule_at(hold, sent + renew_after(hold.lease));
            return Ok(());
        }
        let reason = hold.lost_reason().unwrap_or(LostReason::Released);
        Err(self.explain(lost_error(reason), &hold.store_hold.name))
    }
}

fn lost_error(reason: LostReason) -> Error {
    Error::new(
        ErrorKind::Lost,
        format!("the leadership was lost: {reason}"),
    )
}

fn no_answer() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        "the store did not acknowledge the value in time",
    )
    .with_effect(Effect::Possible)
    .with_advice("check that the store is up (`clinch doctor`)")
}
