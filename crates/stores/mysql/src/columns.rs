//! Columns of `clinch_names`, and values of the driver.
//!
//! The column `seq` is the row's version, and `token` the last sequence number that was granted.

use std::time::Duration;

use clinch_table::{Content, Row};
use mysql_async::Value;

/// The columns of a row in the order in which [`row`] reads them; the server's clock follows.
pub(crate) const COLUMNS: &str = "seq,token,request,since,until,lease,details,ended,state";

/// A row from [`COLUMNS`], the server's clock, and, if selected, whether the namespace is watched and its
/// watermark. `None` if the values have other types. `slack` is how long the request took.
pub(crate) fn row(values: impl IntoIterator<Item = Value>, slack: Duration) -> Option<Row> {
    let mut values = values.into_iter();
    let version = number(values.next()?)?;
    let content = Content {
        seq: number(values.next()?)?.unwrap_or(0),
        request: bytes(values.next()?)?,
        since: number(values.next()?)?.unwrap_or(0),
        until: number(values.next()?)?.unwrap_or(0),
        lease: number(values.next()?)?.unwrap_or(0),
        owner: Vec::new(),
        details: bytes(values.next()?)?,
        ended: bytes(values.next()?)?,
        state: match values.next()? {
            Value::NULL => None,
            state => Some(bytes(state)?),
        },
    };
    let mut row = Row::new(version, content, number(values.next()?)??);
    row.slack = slack;
    if let Some(watched) = values.next() {
        row.watched = number(watched)?.unwrap_or(0) > 0;
    }
    if let Some(watermark) = values.next() {
        row.watermark = number(watermark)?.unwrap_or(0);
    }
    Some(row)
}

/// A name, and its row from the values after it.
pub(crate) fn named_row(values: Vec<Value>, slack: Duration) -> Option<(Vec<u8>, Option<Row>)> {
    let mut values = values.into_iter();
    let name = bytes(values.next()?)?;
    Some((name, row(values, slack)))
}

/// A number; `Some(None)` for NULL.
pub(crate) fn number(value: Value) -> Option<Option<u64>> {
    match value {
        Value::NULL => Some(None),
        Value::UInt(number) => Some(Some(number)),
        Value::Int(number) => Some(Some(u64::try_from(number).ok()?)),
        // The text protocol.
        Value::Bytes(digits) => {
            let text = std::str::from_utf8(&digits).ok()?;
            Some(Some(text.parse().ok()?))
        }
        _ => None,
    }
}

/// The next number; `None` for NULL and for anything else.
pub(crate) fn next_number(values: &mut impl Iterator<Item = Value>) -> Option<u64> {
    values.next().and_then(number).flatten()
}

/// Bytes; empty for NULL.
pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::NULL => Some(Vec::new()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}
