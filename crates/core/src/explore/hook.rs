//! Where an exploration takes over from the keeper's thread and from chance.
//!
//! Both hooks are set for one thread, and exist in tests of this crate only.

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
    /// The steps so far, where somebody wants to read them.
    trace: Option<Vec<String>>,
    /// How often the current step has looked at the clock.
    looks: u32,
    /// How many spawns are refused from now on, as on a machine without threads left.
    refuse: u32,
    /// Whether one was refused since somebody last looked.
    refused: bool,
}

/// More looks at the clock than any step needs.
const MOST_LOOKS: u32 = 100_000;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// Takes the keeper's place; gives the work back where nobody explores.
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
        // Dropped outside of the borrow: what it owns may spawn in turn.
        Some(true) => {
            drop(work);
            Ok(Err(Error::new(
                ErrorKind::Internal,
                "no keeper, on purpose",
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

/// The next random number of the exploration, if there is one.
pub(crate) fn random() -> Option<u64> {
    HOOK.with_borrow_mut(|hook| hook.as_mut().map(|hook| hook.rng.next()))
}

/// A look at the clock: a step that looks again and again goes round in circles.
pub(crate) fn look() {
    let endless = HOOK.with_borrow_mut(|hook| {
        hook.as_mut().is_some_and(|hook| {
            hook.looks += 1;
            let endless = hook.looks > MOST_LOOKS;
            if endless {
                // Once: what is dropped by the panic looks at the clock, too.
                hook.looks = 0;
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
            hook.looks = 0;
        }
    });
}

/// Takes over on this thread until [`leave`].
pub(super) fn enter(seed: u64, trace: bool) {
    HOOK.set(Some(Hook {
        rng: Rng::new(seed),
        trace: trace.then(Vec::new),
        ..Hook::default()
    }));
}

/// Ends the exploration of this thread; its steps.
pub(super) fn leave() -> Vec<String> {
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

/// What was spawned since the last call.
pub(super) fn take_spawned() -> Vec<Work> {
    HOOK.with_borrow_mut(|hook| {
        hook.as_mut()
            .map(|hook| std::mem::take(&mut hook.spawned))
            .unwrap_or_default()
    })
}
