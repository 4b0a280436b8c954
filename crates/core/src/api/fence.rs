//! Checks at the resource: what makes a lock safe against a holder that comes too late.
//!
//! A lease cannot stop a process that was paused between its last look at the clock and its write.
//! The resource can: it remembers the greatest token that it has seen and refuses smaller ones.
//! [`Gate`] does that inside one process; for a table of your own the same check is one statement:
//!
//! ```sql
//! UPDATE accounts SET balance = :balance, fence = :token WHERE id = :id AND fence <= :token
//! ```
//!
//! No row found means that a newer holder has been there. MySQL and MariaDB count the rows that were
//! *changed*, unless the connection has `CLIENT_FOUND_ROWS`: there a second write of the same values
//! with the same token gives 0, too. Set that flag, or read `fence` when the count is 0: only a greater
//! one than `:token` is a newer holder's.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! # let clinch = clinch_core::Clinch::memory();
//! let gate = clinch_core::fence::Gate::new();
//! let paused = clinch.lock("orders/42").acquire().await?;
//! clinch.evict("orders/42", None).await?;
//! let newer = clinch.lock("orders/42").acquire().await?;
//! assert!(gate.admit(newer.token(), || "written").is_ok());
//! assert!(gate.admit(paused.token(), || "too late").is_err());
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

use std::sync::{Mutex, PoisonError};

use crate::{Error, ErrorKind, Result, Token};

/// Remembers the greatest token seen, and lets smaller ones in no more.
///
/// The check and what it guards are one step: [`admit`](Self::admit) runs the write while no other
/// can pass.
///
/// ```
/// use clinch_core::{Token, fence::Gate};
/// let gate = Gate::new();
/// let (old, new) = (Token::new(1, 0).unwrap(), Token::new(2, 0).unwrap());
/// assert!(gate.admit(new, || "written").is_ok());
/// let refused = gate.admit(old, || "too late").unwrap_err();
/// assert!(refused.to_string().contains(&old.to_string()));
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    greatest: Mutex<Option<Token>>,
}

impl Gate {
    /// A gate that has seen no token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `write` if no greater token has passed; otherwise an error that says both tokens.
    ///
    /// ```
    /// # async fn demo() -> clinch_core::Result<()> {
    /// # let clinch = clinch_core::Clinch::memory();
    /// let (gate, mut balance) = (clinch_core::fence::Gate::new(), 100);
    /// let guard = clinch.lock("accounts/a").acquire().await?;
    /// gate.admit(guard.token(), || balance -= 30)?;
    /// gate.admit(guard.token(), || balance -= 30)?; // the same holder may write again
    /// assert_eq!(balance, 40);
    /// # Ok(()) }
    /// # clinch_core::blocking::block_on(demo()).unwrap();
    /// ```
    pub fn admit<T>(&self, token: Token, write: impl FnOnce() -> T) -> Result<T> {
        let mut greatest = self.greatest.lock().unwrap_or_else(PoisonError::into_inner);
        match *greatest {
            Some(seen) if seen > token => Err(refused(token, seen)),
            _ => {
                *greatest = Some(token);
                Ok(write())
            }
        }
    }

    /// The greatest token that has passed.
    ///
    /// ```
    /// use clinch_core::{Token, fence::Gate};
    /// let gate = Gate::new();
    /// assert_eq!(gate.greatest(), None);
    /// gate.admit(Token::new(7, 0).unwrap(), || ()).unwrap();
    /// assert_eq!(gate.greatest().map(Token::seq), Some(7));
    /// ```
    pub fn greatest(&self) -> Option<Token> {
        *self.greatest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(token: Token, seen: Token) -> Error {
    Error::new(
        ErrorKind::Lost,
        format!("the resource refuses token {token}: it has seen the newer {seen}"),
    )
    .with_advice("the lock was lost; acquire it again and start over")
}
