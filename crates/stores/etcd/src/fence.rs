//! Checks a fencing token at data that live in etcd, in the same transaction as the guarded write.
//!
//! A paused holder may write after its lock has passed on. The lock cannot prevent that, the data can: they
//! store the highest token that has written to them, and refuse lower ones.
//!
//! etcd compares values as bytes, so a token is written as 19 digits. The caller's own transaction, with
//! any client library:
//!
//! ```text
//! If   value(FENCE) > TOKEN              (false also when FENCE does not exist)
//! Then (nothing: the token is refused)
//! Else put FENCE TOKEN, and the guarded writes
//! ```
//!
//! ```
//! use clinch_core::Token;
//! use clinch_etcd::fence;
//! let (old, new) = (Token::new(7, 0).unwrap(), Token::new(8, 0).unwrap());
//! assert_eq!(fence::text(old), "0000000000000028672");
//! assert!(fence::text(old) < fence::text(new)); // as bytes too
//! ```
//!
//! Data that only holders of a mutex write, in the same cluster, can also be guarded by the lock itself:
//! `create_revision(KEY) = SEQ`, where KEY is the claim's key within [`key_range`]. That check is as strong
//! as the cluster and needs no additional key.

use clinch_core::{Name, Result, Token};

use crate::keys::Keys;

/// A token as text whose byte order is the order of tokens.
///
/// ```
/// # use clinch_core::Token;
/// assert_eq!(clinch_etcd::fence::text(Token::new(1, 2).unwrap()).len(), 19);
/// ```
pub fn text(token: Token) -> String {
    format!("{:019}", token.get())
}

/// The half-open key range of a lock's claims. The holder of a mutex is the claim with the smallest create
/// revision, which is its token's [`seq`](Token::seq).
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let (first, end) = clinch_etcd::fence::key_range("clinch", "orders/42")?;
/// assert_eq!(first, b"clinch/orders%2F42/");
/// assert_eq!(end, b"clinch/orders%2F420");
/// # Ok(()) }
/// ```
pub fn key_range(namespace: &str, name: &str) -> Result<(Vec<u8>, Vec<u8>)> {
    clinch_core::check_namespace(namespace)?;
    let range = Keys::new(namespace).claims(&Name::new(name)?);
    Ok((range.0, range.1))
}
