//! Takes away what nobody repeats or renews.
//!
//! The servers end the claims of a client that is silent. A client that lives, but whose hold is not
//! renewed any more, is not silent: the driver's pings go on. So the client itself ends what has run
//! out.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::BootTime;

use crate::core::Core;
use crate::leave;

/// The longest sleep: idle sessions are looked after as well.
const LONGEST: Duration = Duration::from_secs(60);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);

fn armed(core: &Core) -> MutexGuard<'_, BootTime> {
    core.armed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new claim may end at this moment.
pub(crate) fn expect(core: &Core, until: BootTime) {
    let mut armed = armed(core);
    if until < *armed {
        *armed = until;
        core.sooner.notify_one();
    }
}

/// Runs until the store is closed or dropped.
pub(crate) async fn run(core: Arc<Core>) {
    while !core.sessions.is_closed() {
        let next = sweep(&core).await;
        tokio::select! {
            () = core.sooner.notified() => {}
            () = core.clock.sleep_until(next) => {}
        }
    }
}

/// Ends what has run out; when to look again.
async fn sweep(core: &Arc<Core>) -> BootTime {
    let now = core.clock.now();
    let mut next = now + LONGEST;
    *armed(core) = next;
    for entry in core.book.all() {
        let until = entry.state().kept_until(&entry.claim);
        if until > now {
            next = next.min(until);
        } else if !leave::expire(core, &entry).await {
            next = next.min(core.clock.now() + PAUSE);
        }
    }
    core.sessions.tidy();
    // A claim that came meanwhile has set it already.
    let mut armed = armed(core);
    *armed = next.min(*armed);
    *armed
}
