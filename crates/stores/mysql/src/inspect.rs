//! What an operator sees.

use clinch_core::store::LockView;
use clinch_core::{Name, Result};

use crate::error::damaged;
use crate::pool::Pool;
use crate::row::{Key, Row, bytes};
use crate::sql::names;

/// Names in one request.
const PAGE: u64 = 1000;

/// One row, as it is now.
pub(crate) async fn read(pool: &Pool, key: &Key) -> Result<Row> {
    let reply = pool.query(&names::read(key)).await;
    let values = reply
        .map_err(|trouble| trouble.into_error(pool.to()))?
        .into_first_row();
    let row = values.and_then(|values| Row::read(&mut values.into_iter()));
    row.ok_or_else(|| damaged(&String::from_utf8_lossy(&key.name)))
}

/// The names in use that start with `prefix`, in byte order.
pub(crate) async fn list(pool: &Pool, ns: &[u8], prefix: &str) -> Result<Vec<LockView>> {
    let mut views = Vec::new();
    let mut from = prefix.as_bytes().to_vec();
    let mut past = false;
    loop {
        let reply = pool.query(&names::in_use(ns, &from, past, PAGE)).await;
        let rows = reply
            .map_err(|trouble| trouble.into_error(pool.to()))?
            .into_rows();
        let whole = rows.len() as u64 == PAGE;
        for values in rows {
            let mut values = values.into_iter();
            let Some(name) = values.next().and_then(bytes) else {
                continue;
            };
            // Sorted: the first one without the prefix ends the range.
            if !name.starts_with(prefix.as_bytes()) {
                return Ok(views);
            }
            match view(&name, &mut values) {
                Ok(view) => views.extend(view),
                Err(error) => tracing::warn!(%error, "a name is passed over"),
            }
            from = name;
        }
        past = true;
        if !whole {
            return Ok(views);
        }
    }
}

fn view(
    name: &[u8],
    values: &mut impl Iterator<Item = mysql_async::Value>,
) -> Result<Option<LockView>> {
    let text = String::from_utf8_lossy(name);
    let row = Row::read(values).ok_or_else(|| damaged(&text))?;
    let name = Name::new(&*text)?;
    Ok(row.state(&name)?.view(row.moment()))
}
