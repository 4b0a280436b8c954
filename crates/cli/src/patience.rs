//! What a command does while the store cannot be reached: it tries again, for as long as it was
//! asked to, and says so once.

use std::time::Duration;

use clinch::{BootTime, Clinch, Clock, Error, Result};

use crate::child::Signals;
use crate::context::Context;
use crate::failure::{Failure, exit};
use crate::output::complain;

/// For how long the library itself goes on before it reports an error. The command then begins anew.
const LIBRARY: Duration = Duration::from_secs(10);
/// How long to wait between two tries: at first, and at most.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long an outage of the store may last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    limit: Duration,
    /// Somebody asked for it: then it holds for the first connection, too. Without that, a store
    /// that was never reached is more likely a mistake in the URL.
    asked: bool,
    quiet: bool,
}

impl Patience {
    /// What was asked for, or else this.
    pub(crate) fn new(context: &Context, asked: Option<Duration>, or: Duration) -> Self {
        Self {
            limit: asked.unwrap_or(or),
            asked: asked.is_some(),
            quiet: context.quiet || context.json,
        }
    }

    /// Of a command that may wait for a lock.
    pub(crate) fn of_waiting(context: &Context, wait: crate::args::WaitArgs) -> Self {
        let or = match wait.no_wait {
            true => LIBRARY,
            false => Duration::from_secs(60),
        };
        Self::new(context, wait.patience, or)
    }

    /// The part that is the library's.
    fn library(self) -> Duration {
        self.limit.clamp(Duration::from_secs(1), LIBRARY)
    }

    /// Opens the store. An exit status if a signal ends that.
    pub(crate) async fn connect(
        self,
        context: &Context,
        signals: &mut Signals,
    ) -> std::result::Result<std::result::Result<Clinch, i32>, Failure> {
        let clock = Clock::boot();
        let began = clock.now();
        let mut outage = Outage::default();
        loop {
            let failure = match context.connect_with(Some(self.library())).await {
                Ok(clinch) => return Ok(Ok(clinch)),
                Err(failure) => failure,
            };
            let over = !self.asked || clock.now().since(began) >= self.limit;
            if over || !failure.is_unreachable() {
                return Err(failure);
            }
            outage.say(self.quiet, &failure);
            tokio::select! {
                biased;
                signal = signals.end(|| {}) => return Ok(Err(exit::SIGNAL + signal)),
                () = clock.sleep(outage.pause()) => {}
            }
        }
    }

    /// Claims, and after an outage again if there is still time. `tidy` clears the line before a message.
    pub(crate) async fn claim<T>(
        self,
        clock: &Clock,
        again: impl Fn() -> bool,
        tidy: impl Fn(),
        mut claim: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut outage = Outage::default();
        loop {
            let began = clock.now();
            let error = match claim().await {
                Err(error) if again() && error.is_temporary() => error,
                outcome => return outcome,
            };
            if outage.lasts(clock.now(), began, self.library()) >= self.limit {
                return Err(error);
            }
            tidy();
            outage.say(self.quiet, &Failure::from(Error::clone(&error)));
            clock.sleep(outage.pause()).await;
        }
    }
}

/// A time without the store.
#[derive(Debug, Default)]
struct Outage {
    since: Option<BootTime>,
    tries: u32,
}

impl Outage {
    /// How long it has lasted, when a claim has failed that was made at `began`.
    fn lasts(&mut self, now: BootTime, began: BootTime, library: Duration) -> Duration {
        let failing = library.min(now.since(began));
        // A claim that took longer than the library tries was answered in between.
        if now.since(began) > library * 3 {
            *self = Self::default();
        }
        now.since(*self.since.get_or_insert(now - failing))
    }

    /// Says once that the store is out of reach.
    fn say(&self, quiet: bool, failure: &Failure) {
        if self.tries == 0 && !quiet {
            complain(&format!("{}; trying again", failure.to_line()));
        }
    }

    /// How long to wait before the next try: longer each time.
    fn pause(&mut self) -> Duration {
        self.tries += 1;
        (PAUSE * 2_u32.saturating_pow(self.tries.min(6) - 1)).min(LONGEST_PAUSE)
    }
}
