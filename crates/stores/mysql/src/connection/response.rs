//! What a request returned.

use std::time::Duration;

use mysql_async::prelude::{Protocol, Queryable};
use mysql_async::{Conn, Params, QueryResult, Row, Value};

use crate::error::RequestError;
use crate::sql::Sql;

/// What one statement returned.
#[derive(Debug, Default)]
pub(crate) struct Set {
    pub(crate) rows: Vec<Vec<Value>>,
    /// Rows that it changed.
    pub(crate) affected: u64,
    /// `LAST_INSERT_ID()`; that of an earlier statement if it changed no row.
    pub(crate) number: Option<u64>,
}

/// What a request returned, statement by statement, up to the first that failed.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) sets: Vec<Set>,
    pub(crate) failed: Option<RequestError>,
    /// How long it took.
    pub(crate) took: Duration,
    /// Whether an earlier copy of the request had no reply: it may have been applied, or may still arrive.
    pub(crate) repeated: bool,
}

impl Response {
    /// The complete response, or why there is none.
    pub(crate) fn complete(self) -> Result<Self, RequestError> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// The only value of the first row of the last statement.
    pub(crate) fn into_first_value(self) -> Option<Value> {
        self.into_first_row()?.into_iter().next()
    }

    /// The first row of the last statement.
    pub(crate) fn into_first_row(self) -> Option<Vec<Value>> {
        self.into_rows().into_iter().next()
    }

    /// The rows of the last statement.
    pub(crate) fn into_rows(mut self) -> Vec<Vec<Value>> {
        self.sets.pop().map(|set| set.rows).unwrap_or_default()
    }

    /// What the only statement passed to `LAST_INSERT_ID()`, if it changed its one row.
    pub(crate) fn number_if_changed(&self) -> Option<u64> {
        match self.sets.as_slice() {
            [set] if set.affected == 1 => set.number,
            _ => None,
        }
    }

    /// How many rows the statement with this number changed.
    pub(crate) fn affected(&self, statement: usize) -> Option<u64> {
        self.sets.get(statement).map(|set| set.affected)
    }
}

/// Sends a request and reads the whole response.
pub(crate) async fn exchange(conn: &mut Conn, sql: &Sql, prepared: bool) -> Response {
    let mut response = Response::default();
    let read = match prepared {
        true => {
            let values = Params::Positional(sql.values.clone());
            match conn.exec_iter(sql.text.as_str(), values).await {
                Ok(mut result) => read_sets(&mut result, &mut response.sets).await,
                Err(error) => Err(error),
            }
        }
        false => match conn.query_iter(sql.inlined()).await {
            Ok(mut result) => read_sets(&mut result, &mut response.sets).await,
            Err(error) => Err(error),
        },
    };
    response.failed = read.err().map(RequestError::from);
    response
}

/// Reads what each statement returned. The last one is left out if it returns no rows and there are others
/// before it; its failure is reported all the same.
async fn read_sets<P: Protocol>(
    result: &mut QueryResult<'_, '_, P>,
    sets: &mut Vec<Set>,
) -> mysql_async::Result<()> {
    loop {
        // Before its rows are read: that goes on to the next statement, which may have failed.
        sets.push(Set {
            rows: Vec::new(),
            affected: result.affected_rows(),
            number: result.last_insert_id(),
        });
        let rows: Vec<Row> = result.collect().await?;
        if let Some(set) = sets.last_mut() {
            set.rows = rows.into_iter().map(Row::unwrap).collect();
        }
        if result.is_empty() {
            // The error of the next statement, if that has failed. Otherwise it would be taken for one of
            // the next request.
            return result.next().await.map(drop);
        }
    }
}
