//! Percentiles.

use std::time::Duration;

use clinch::Result;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Upper bound: longer spans are recorded as this one.
const LONGEST: u64 = 60_000_000_000;

/// Spans in nanoseconds, to three digits.
#[derive(Debug, Clone)]
pub(crate) struct Spans(Histogram<u64>);

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

impl Spans {
    pub(crate) fn new() -> Result<Self> {
        Histogram::new_with_bounds(1, LONGEST, 3)
            .map(Self)
            .map_err(|error| crate::internal(format!("cannot make a histogram: {error}")))
    }

    pub(crate) fn record(&mut self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(LONGEST);
        self.0.saturating_record(nanos.max(1));
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        self.0
            .add(&other.0)
            .map_err(|error| crate::internal(format!("cannot add histograms: {error}")))
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn percentiles(&self) -> Percentiles {
        if self.0.is_empty() {
            return Percentiles::default();
        }
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        Percentiles {
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(self.0.max()),
        }
    }
}

/// Nanoseconds as microseconds with one decimal.
#[expect(
    clippy::cast_precision_loss,
    reason = "three digits are all that counts"
)]
fn micros(nanos: u64) -> f64 {
    (nanos as f64 / 100.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_in_microseconds() {
        let mut spans = Spans::new().unwrap();
        assert_eq!(spans.percentiles(), Percentiles::default());
        for micros in 1..=1000 {
            spans.record(Duration::from_micros(micros));
        }
        let p = spans.percentiles();
        assert!((499.0..=502.0).contains(&p.p50_us), "{p:?}");
        assert!((989.0..=992.0).contains(&p.p99_us), "{p:?}");
        assert!((999.0..=1001.0).contains(&p.max_us), "{p:?}");
    }
}
