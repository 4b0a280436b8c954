//! The flag that ends a run early.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clinch::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Set by a signal: the cell under way ends, holds are released, figures are printed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// A flag that INT, TERM and HUP set. The second signal ends the process at once.
    pub(crate) fn on_signals() -> Result<Self> {
        let stop = Self::default();
        let failed = |error| crate::internal(format!("cannot listen to signals: {error}"));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let number = usize::try_from(signal).unwrap_or_default();
            let again = Arc::new(std::sync::atomic::AtomicBool::new(false));
            // In this order: the first signal finds `again` unset, and sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, again.clone())
                .map_err(failed)?;
            signal_hook::flag::register(signal, again).map_err(failed)?;
            signal_hook::flag::register_usize(signal, stop.0.clone(), number).map_err(failed)?;
        }
        Ok(stop)
    }

    /// Whether it is time to end.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Ends a run without a signal.
    pub(crate) fn set(&self) {
        let hang_up = usize::try_from(SIGHUP).unwrap_or(1);
        let _ = self
            .0
            .compare_exchange(0, hang_up, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The exit status: that of the signal, if there was one.
    pub(crate) fn status(&self) -> i32 {
        match self.0.load(Ordering::Relaxed) {
            0 => 0,
            signal => i32::try_from(signal).map_or(1, |signal| 128 + signal),
        }
    }
}
