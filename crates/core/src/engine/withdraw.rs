//! Withdrawal of claims at the store.

use std::sync::Arc;

use super::settings::{backoff, retry_for};
use super::{Engine, with_timeout};
use crate::store::Claim;

/// Withdraws a claim on the keeper, without waiting.
pub(super) fn withdraw_in_background(engine: &Arc<Engine>, claim: Arc<Claim>) {
    let with = engine.clone();
    let task = async move {
        withdraw(&with, &claim).await;
    };
    if let Err(error) = engine.tasks.spawn(task) {
        tracing::error!(%error, "a claim expires instead of being withdrawn");
    }
}

/// Retries a withdrawal until the store has acknowledged it (`true`), or until the claim must have
/// expired there.
pub(super) async fn withdraw(engine: &Engine, claim: &Claim) -> bool {
    let give_up = engine.clock.now() + retry_for(claim.lease);
    let mut tries = 0;
    loop {
        let timeout = engine.settings.patience;
        let error = match with_timeout(&engine.clock, timeout, engine.store.withdraw(claim)).await {
            Some(Ok(())) => return true,
            Some(Err(error)) => Some(error),
            None => None,
        };
        let definite = error.as_ref().is_some_and(|error| !error.is_temporary());
        if definite || engine.clock.now() >= give_up {
            tracing::warn!(lock = %claim.name, ?error, "a claim expires instead of being withdrawn");
            return false;
        }
        tries += 1;
        engine.clock.sleep(backoff(tries)).await;
    }
}
