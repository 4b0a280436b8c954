//! Rows in which this client has just been granted a hold that others wait for.
//!
//! Such a hold can be given up without reading its row again: the write demands that the row has not
//! changed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{BootTime, Clock, Name};

use crate::row::Row;

/// For how long a row that was read is good enough.
const FRESH: Duration = Duration::from_secs(1);
/// Names whose rows are kept.
const MOST: usize = 1024;

/// The rows.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<HashMap<Name, (BootTime, Row)>>);

impl Recent {
    fn all(&self) -> MutexGuard<'_, HashMap<Name, (BootTime, Row)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a row in which a claim of this client was granted.
    pub(crate) fn keep(&self, name: &Name, row: Row) {
        let mut all = self.all();
        if row.content.state.is_none() {
            all.remove(name);
            return;
        }
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(name.clone(), (Clock::boot().now(), row));
    }

    /// The row of a name, for one attempt.
    pub(crate) fn take(&self, name: &Name) -> Option<Row> {
        let (since, row) = self.all().remove(name)?;
        (Clock::boot().now().since(since) < FRESH).then_some(Row {
            recent: true,
            ..row
        })
    }
}
