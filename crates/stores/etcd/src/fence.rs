//! The check of a token at data that live in etcd, atomic with the write that it guards.
//!
//! A holder that was paused may write after its lock has passed on. The lock cannot stop it, the data can:
//! they remember the greatest token that has written to them, and refuse smaller ones.
//!
//! etcd compares values as bytes, so a token is written as 19 digits. In the caller's own transaction,
//! with any client:
//!
//! ```text
//! If   value(FENCE) > TOKEN              (false also when FENCE is not there)
//! Then (nothing: the token is refused)
//! Else put FENCE TOKEN, and the writes that are guarded
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
//! Data that are written only while a mutex is held, by clients of the same cluster, can also be guarded
//! by the lock itself: `create_revision(KEY) = SEQ`, where [`key_range`] tells where the claim's key is.
//! That check is as strong as the cluster, and needs no key more.

use clinch_core::{Name, Result, Token};

use crate::keys::Keys;

/// A token as etcd compares it.
///
/// ```
/// # use clinch_core::Token;
/// assert_eq!(clinch_etcd::fence::text(Token::new(1, 2).unwrap()).len(), 19);
/// ```
pub fn text(token: Token) -> String {
    format!("{:019}", token.get())
}

/// The keys of all claims of a lock, from the first to before the second: the holder of a mutex is the
/// one with the smallest create revision, which is its token's [`seq`](Token::seq).
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
    let span = Keys::new(namespace).line(&Name::new(name)?);
    Ok((span.0, span.1))
}
