//! Settings of the ensemble that would break a promise.

use std::sync::Arc;

use clinch_core::Result;
use clinch_core::store::Finding;

use crate::core::Core;

/// Looks at the ensemble.
pub(crate) async fn examine(_core: &Arc<Core>) -> Result<Vec<Finding>> {
    Ok(Vec::new())
}
