//! What operators can follow: every step of a lock's life leaves a trace and a count.

#![cfg(feature = "metrics")]
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use clinch_core::blocking::block_on;
use clinch_core::{Clinch, Clock};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tracing::field::{Field, Visit};
use tracing::span;

type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

static METRICS: LazyLock<Counts> = LazyLock::new(Counts::default);
static TRACES: LazyLock<Counts> = LazyLock::new(Counts::default);

fn count(counts: &Counts, what: impl Into<String>, by: u64) {
    *counts.lock().unwrap().entry(what.into()).or_default() += by;
}

fn seen(counts: &Counts, what: &str) -> u64 {
    counts
        .lock()
        .unwrap()
        .get(what)
        .copied()
        .unwrap_or_default()
}

struct Counting;
struct One(String);

impl CounterFn for One {
    fn increment(&self, by: u64) {
        count(&METRICS, &*self.0, by);
    }
    fn absolute(&self, _: u64) {}
}

impl HistogramFn for One {
    fn record(&self, _: f64) {
        count(&METRICS, &*self.0, 1);
    }
}

impl Recorder for Counting {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(One(key.name().to_owned())))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(One(key.name().to_owned())))
    }
}

struct Tracing;
struct Message(Option<String>);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

impl tracing::Subscriber for Tracing {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "clinch"
    }
    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        count(&TRACES, format!("span {}", span.metadata().name()), 1);
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message(None);
        event.record(&mut message);
        count(&TRACES, message.0.unwrap_or_default(), 1);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn every_step_is_traced_and_counted() {
    assert!(metrics::set_global_recorder(Counting).is_ok());
    tracing::subscriber::set_global_default(Tracing).unwrap();
    let clinch = Clinch::memory();
    block_on(async {
        let lock = clinch
            .lock("a")
            .lease(std::time::Duration::from_millis(1500));
        let guard = lock.acquire().await.unwrap();
        assert!(clinch.lock("a").try_acquire().await.unwrap().is_none());
        // A local waiter takes it over; then it is renewed; then it is evicted.
        let second = lock.clone();
        let waiter = std::thread::spawn(move || block_on(second.acquire()).unwrap());
        wait_for(&METRICS, "clinch_queue_length").await;
        guard.release().await.unwrap();
        let guard = waiter.join().unwrap();
        wait_for(&METRICS, "clinch_renewals_total").await;
        clinch.evict("a", None).await.unwrap();
        guard.lost().await;
        let guard = clinch.lock("a").fair().acquire().await.unwrap();
        assert!(
            clinch
                .lock("a")
                .acquire_within(std::time::Duration::from_millis(30))
                .await
                .unwrap()
                .is_none()
        );
        guard.release().await.unwrap();
    });
    for metric in [
        "clinch_acquisitions_total",
        "clinch_not_acquired_total",
        "clinch_wait_seconds",
        "clinch_hold_seconds",
        "clinch_losses_total",
        "clinch_renewals_total",
        "clinch_queue_length",
        "clinch_hand_overs_total",
    ] {
        assert!(seen(&METRICS, metric) > 0, "{metric} was never counted");
    }
    for trace in [
        "span acquire",
        "span renew",
        "granted",
        "not acquired",
        "waiting",
        "handed over",
        "renewed",
        "released",
        "lost",
    ] {
        assert!(
            seen(&TRACES, trace) > 0,
            "{trace} was never traced: {:?}",
            TRACES.lock().unwrap()
        );
    }
}

async fn wait_for(counts: &Counts, what: &str) {
    while seen(counts, what) == 0 {
        Clock::boot()
            .sleep(std::time::Duration::from_millis(5))
            .await;
    }
}
