//! Whether the highest number can be stored; it keeps tokens rising after a clock that was ahead is corrected.

use std::sync::Arc;

use clinch_core::Name;
use clinch_core::store::{Finding, Severity};

use super::finding;
use crate::config::Config;
use crate::connection::{Live, Session};
use crate::keys::Keys;

/// Tries it: locks work without, so nothing else would reveal it. A finding only if it is denied.
pub(super) async fn examine(
    session: &Arc<Session>,
    live: &Live,
    config: &Config,
    keys: &Keys,
) -> Option<Finding> {
    let key = match config.deployment.is_cluster() {
        // One for each slot; a server that does not have this slot checks the rights first.
        true => keys.highest_beside(&keys.state(&Name::new("doctor").ok()?)),
        false => keys.highest.clone(),
    };
    let (mut get, mut set) = (redis::cmd("GET"), redis::cmd("SET"));
    get.arg(&key);
    // It changes nothing if there is a number, and no number is below 0.
    set.arg(&key).arg(0).arg("NX");
    for (verb, command) in [("GET", get), ("SET", set)] {
        let tried = session.query(live, &command).await;
        if tried.is_err_and(|trouble| trouble.is_denied()) {
            let to = &live.server.address;
            return Some(finding(
                Severity::Warning,
                "tokens",
                format!(
                    "{to}: the user may not {verb} {key}, so tokens can decrease when a clock \
                     that was ahead is set right"
                ),
                "allow all keys that begin as docs/stores/redis.md says, not only those of some names",
            ));
        }
    }
    None
}
