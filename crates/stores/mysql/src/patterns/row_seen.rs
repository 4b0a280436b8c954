//! What the lock columns of a row say.

use clinch_core::{Error, ErrorKind, Token};

/// What a row says.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) owner: Option<String>,
    pub(super) token: u64,
    /// Microseconds until the lease ends.
    pub(super) left: i64,
}

impl Seen {
    /// Whether it is still held with this token.
    pub(super) fn is_held_with(&self, token: Token) -> bool {
        self.owner.is_some() && self.token == token.get()
    }
}

/// The error of a client that does not hold the row any more.
pub(super) fn lost(token: Token, row: Option<Seen>) -> Error {
    let now = match row {
        None => "the row is gone".to_owned(),
        Some(row) if row.token != token.get() => format!("it was granted again with {}", row.token),
        Some(row) if row.owner.is_none() => "it was released".to_owned(),
        Some(_) => "its lease has ended".to_owned(),
    };
    Error::new(
        ErrorKind::Lost,
        format!("the row is not held with token {token}: {now}"),
    )
    .with_store("mysql")
    .with_advice("stop what you do with it, and claim it again")
}
