//! Replaces the keeper's thread and the random generator during an exploration.
//!
//! The hooks are set for one thread, and exist only in tests of this crate.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;

use super::rng::Rng;
use crate::{Error, ErrorKind, Result};

/// Work that the engine gave to the keeper.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Default)]
struct Hook {
    rng: Rng,
    spawned: Vec<Work>,
    /// The steps so far, if a trace is wanted.
    trace: Option<Vec<String>>,
    /// How often the current step has read the clock.
    clock_reads: u32,
    /// How many of the next spawns are refused, as on a machine that is out of threads.
    refuse: u32,
    /// Whether one was refused since the last `take_refused`.
    refused: bool,
}

/// More clock reads than any step needs.
const MAX_CLOCK_READS: u32 = 100_000;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Takes the task from the keeper; gives it back if no exploration is running on this thread.
pub(crate) fn spawn<F>(work: F) -> std::result::Result<Result<()>, F>
where
    F: Future<Output = ()> + Send + 'static,
{
    let refused = HOOK.with_borrow_mut(|hook| {
        let hook = hook.as_mut()?;
        let refused = hook.refuse > 0;
        hook.refused |= refused;
        hook.refuse = hook.refuse.saturating_sub(1);
        Some(refused)
    });
    match refused {
        None => Err(work),
        // Dropped outside the borrow: its values may spawn when they are dropped.
        Some(true) => {
            drop(work);
            Ok(Err(Error::new(
                ErrorKind::Internal,
                "spawn refused by the exploration",
            )))
        }
        Some(false) => {
            HOOK.with_borrow_mut(|hook| {
                if let Some(hook) = hook {
                    hook.spawned.push(Box::pin(work));
                }
            });
            Ok(Ok(()))
        }
    }
}

/// The next random number, if an exploration is running on this thread.
pub(crate) fn random() -> Option<u64> {
    HOOK.with_borrow_mut(|hook| hook.as_mut().map(|hook| hook.rng.next()))
}

/// Counts a clock read: a step with too many of them is an endless loop.
pub(crate) fn count_clock_read() {
    let endless = HOOK.with_borrow_mut(|hook| {
        hook.as_mut().is_some_and(|hook| {
            hook.clock_reads += 1;
            let endless = hook.clock_reads > MAX_CLOCK_READS;
            if endless {
                // Reset: destructors read the clock during the panic.
                hook.clock_reads = 0;
            }
            endless
        })
    });
    assert!(!endless, "a task runs for ever without waiting");
}

/// The next step begins.
pub(super) fn next_step() {
    HOOK.with_borrow_mut(|hook| {
        if let Some(hook) = hook {
            hook.clock_reads = 0;
        }
    });
}

/// Starts an exploration on this thread; it ends with [`uninstall`].
pub(super) fn install(seed: u64, trace: bool) {
    HOOK.set(Some(Hook {
        rng: Rng::new(seed),
        trace: trace.then(Vec::new),
        ..Hook::default()
    }));
}

/// Ends the exploration on this thread; returns its trace.
pub(super) fn uninstall() -> Vec<String> {
    let hook = HOOK.take();
    hook.and_then(|mut hook| hook.trace.take())
        .unwrap_or_default()
}

pub(super) fn is_traced() -> bool {
    HOOK.with_borrow(|hook| hook.as_ref().is_some_and(|hook| hook.trace.is_some()))
}

pub(super) fn note(step: String) {
    HOOK.with_borrow_mut(|hook| {
        if let Some(trace) = hook.as_mut().and_then(|hook| hook.trace.as_mut()) {
            trace.push(step);
        }
    });
}

/// Whether a spawn was refused since the last call.
pub(super) fn take_refused() -> bool {
    HOOK.with_borrow_mut(|hook| {
        hook.as_mut()
            .is_some_and(|hook| std::mem::take(&mut hook.refused))
    })
}

pub(super) fn refuse(spawns: u32) {
    HOOK.with_borrow_mut(|hook| {
        if let Some(hook) = hook {
            hook.refuse = spawns;
        }
    });
}

/// The tasks that were spawned since the last call.
pub(super) fn take_spawned() -> Vec<Work> {
    HOOK.with_borrow_mut(|hook| {
        hook.as_mut()
            .map(|hook| std::mem::take(&mut hook.spawned))
            .unwrap_or_default()
    })
}
