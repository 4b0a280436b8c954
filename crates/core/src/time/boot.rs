//! The machine's boot clock, and the thread that fires its timers.
//!
//! The timers use a `timerfd` on `CLOCK_BOOTTIME`. The timers of the runtime use `CLOCK_MONOTONIC`, which
//! stops during suspend, so they would fire late by as long as the machine slept.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::BootTime;
use super::timers::{Alarm, Timers};

/// `CLOCK_BOOTTIME` in nanoseconds.
#[inline]
pub(crate) fn boot_nanos() -> u64 {
    let t = clock_gettime(ClockId::Boottime);
    // Both parts are non-negative by definition of this clock.
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

/// The process-wide timers, started with the first sleep.
pub(super) fn timers() -> Arc<Timers> {
    static TIMERS: OnceLock<Arc<Timers>> = OnceLock::new();
    TIMERS
        .get_or_init(|| {
            let alarm: Box<dyn Alarm> =
                match timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC) {
                    Ok(fd) => Box::new(TimerfdAlarm(fd)),
                    // A kernel or sandbox without timerfd: polls the clock instead.
                    Err(_) => Box::new(PollingAlarm),
                };
            let timers = Arc::new(Timers::new(alarm));
            let for_thread = timers.clone();
            let thread = std::thread::Builder::new().name("clinch-clock".into());
            if let Err(error) = thread.spawn(move || run_timers(&for_thread)) {
                tracing::error!(%error, "cannot start the clock thread: timed waits will not end");
            }
            timers
        })
        .clone()
}

fn run_timers(timers: &Timers) {
    loop {
        timers.alarm().wait();
        timers.fire(BootTime(boot_nanos()));
    }
}

#[derive(Debug)]
struct TimerfdAlarm(OwnedFd);

impl Alarm for TimerfdAlarm {
    fn arm(&self, at: BootTime) {
        let nanos = at.as_nanos().max(1);
        let at = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or_default(),
        };
        let once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = Itimerspec {
            it_interval: once,
            it_value: at,
        };
        // Cannot fail for a valid descriptor and a normalised time.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec);
    }

    fn wait(&self) {
        let mut count = [0; 8];
        if rustix::io::read(&self.0, &mut count).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[derive(Debug)]
struct PollingAlarm;

impl Alarm for PollingAlarm {
    fn arm(&self, _at: BootTime) {}

    fn wait(&self) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
