//! What an operator sees.

use clinch_core::store::LockView;
use clinch_core::{Name, Result};

use crate::{Dialect, Row, Watch, corrupt_row};

/// Names in one request.
const PAGE: u64 = 1000;

/// One row, as it is now.
pub(crate) async fn read(dialect: &dyn Dialect, name: &Name) -> Result<Row> {
    let mut rows = dialect.rows(dialect.timeout());
    let row = rows.read(name, Watch::Unknown).await;
    row.map_err(|failure| failure.error)
}

/// The names in use that start with `prefix`, in byte order.
pub(crate) async fn list(dialect: &dyn Dialect, prefix: &str) -> Result<Vec<LockView>> {
    let mut views = Vec::new();
    let mut from = prefix.as_bytes().to_vec();
    let mut past = false;
    loop {
        let rows = dialect.in_use(&from, past, PAGE).await;
        let rows = rows.map_err(|failure| failure.error)?;
        let is_whole = rows.len() as u64 == PAGE;
        for (name, row) in rows {
            // Sorted: the first one without the prefix ends the range.
            if !name.starts_with(prefix.as_bytes()) {
                return Ok(views);
            }
            match view(&name, row) {
                Ok(view) => views.extend(view),
                Err(error) => tracing::warn!(%error, "a name is left out"),
            }
            from = name;
        }
        past = true;
        if !is_whole {
            return Ok(views);
        }
    }
}

fn view(name: &[u8], row: Option<Row>) -> Result<Option<LockView>> {
    let text = String::from_utf8_lossy(name);
    let row = row.ok_or_else(|| corrupt_row(&text))?;
    let name = Name::new(&*text)?;
    Ok(row.state(&name)?.view(row.moment()))
}
