//! What happens to names.

use std::sync::Arc;

use clinch_core::Result;
use clinch_core::store::Events;

use crate::core::Core;

/// What happens to names that start with `prefix`.
pub(crate) async fn listen(_core: &Arc<Core>, _prefix: &str) -> Result<Events> {
    let (_sender, events) = Events::channel();
    Ok(events)
}
