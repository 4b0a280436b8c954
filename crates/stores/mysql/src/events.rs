//! Live events.

use clinch_core::store::Event;

use crate::sql::Sql;

pub(crate) fn append(sql: Sql, _ns: &[u8], _events: &[Event]) -> Sql {
    sql
}
