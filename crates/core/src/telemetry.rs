//! Traces through `tracing`, and metrics behind the feature `metrics`. The page of the crate `clinch`
//! lists them; a test of that crate compares the list with this file.

use std::time::Duration;

use crate::store::Queued;
use crate::{Error, LostReason, Name, Token};

#[cfg(feature = "metrics")]
macro_rules! metric {
    ($($call:tt)*) => { metrics::$($call)* };
}
#[cfg(not(feature = "metrics"))]
macro_rules! metric {
    ($($call:tt)*) => {};
}

pub(crate) fn acquire_span(name: &Name, store: &'static str) -> tracing::Span {
    tracing::debug_span!(target: "clinch", "acquire", lock = %name, store)
}

pub(crate) fn renew_span(store: &'static str, holds: usize) -> tracing::Span {
    tracing::debug_span!(target: "clinch", "renew", store, holds)
}

pub(crate) fn waiting(name: &Name, queued: &Queued) {
    tracing::debug!(target: "clinch", lock = %name, ahead = queued.ahead, "waiting");
}

pub(crate) fn acquired(name: &Name, token: Token, waited: Duration) {
    tracing::debug!(target: "clinch", lock = %name, %token, ?waited, "granted");
    metric!(counter!("clinch_acquisitions_total").increment(1));
    metric!(histogram!("clinch_wait_seconds").record(waited.as_secs_f64()));
}

pub(crate) fn not_acquired(name: &Name, waited: Duration) {
    tracing::debug!(target: "clinch", lock = %name, ?waited, "not acquired");
    metric!(counter!("clinch_not_acquired_total").increment(1));
}

pub(crate) fn failed(name: &Name, error: &Error) {
    tracing::debug!(target: "clinch", lock = %name, %error, "acquire failed");
    metric!(counter!("clinch_acquire_errors_total", "kind" => error.kind().as_str()).increment(1));
}

pub(crate) fn queued(length: usize) {
    tracing::trace!(target: "clinch", length, "waiting in this process");
    metric!(histogram!("clinch_queue_length").record(length as f64));
}

pub(crate) fn handed_over(name: &Name) {
    tracing::trace!(target: "clinch", lock = %name, "handed over");
    metric!(counter!("clinch_hand_overs_total").increment(1));
}

pub(crate) fn released(name: &Name, token: Token, held: Duration) {
    tracing::debug!(target: "clinch", lock = %name, %token, ?held, "released");
    metric!(histogram!("clinch_hold_seconds").record(held.as_secs_f64()));
}

pub(crate) fn renewed(name: &Name) {
    tracing::trace!(target: "clinch", lock = %name, "renewed");
    metric!(counter!("clinch_renewals_total").increment(1));
}

pub(crate) fn renewal_failed() {
    metric!(counter!("clinch_renewal_failures_total").increment(1));
}

pub(crate) fn lost(name: &Name, token: Token, reason: LostReason) {
    tracing::warn!(target: "clinch", lock = %name, %token, %reason, "lost");
    metric!(counter!("clinch_losses_total", "reason" => reason.as_str()).increment(1));
}
