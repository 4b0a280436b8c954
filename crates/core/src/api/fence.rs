//! The check at the resource, which stops a holder that writes too late.
//!
//! A lease cannot stop a process that was paused between its last check of the clock and its write.
//! The resource can: it keeps the greatest token seen and refuses smaller ones. [`Gate`] does that
//! inside one process; in a table of your own the check is one statement:
//!
//! ```sql
//! UPDATE accounts SET balance = :balance, fence = :token WHERE id = :id AND fence <= :token
//! ```
//!
//! If it finds no row, a newer holder has written. MySQL and MariaDB count *changed* rows, unless the
//! connection has `CLIENT_FOUND_ROWS`: a second write of the same values with the same token gives 0
//! there, too. Set that flag, or read `fence` if the count is 0: only a value greater than `:token`
//! belongs to a newer holder.
//!
//! ```
//! # clinch::blocking::block_on(async {
//! # let clinch = clinch::Clinch::memory();
//! let gate = clinch::fence::Gate::new();
//! let paused = clinch.lock("orders/42").acquire().await?;
//! clinch.evict("orders/42", None).await?;
//! let newer = clinch.lock("orders/42").acquire().await?;
//! assert!(gate.admit(newer.token(), || "written").is_ok());
//! assert!(gate.admit(paused.token(), || "too late").is_err());
//! # Ok::<_, clinch::Error>(()) }).unwrap();
//! ```

use std::sync::{Mutex, PoisonError};

use crate::{Error, ErrorKind, Result, Token};

/// Keeps the greatest token seen, and refuses smaller ones.
///
/// Check and write are one step: [`admit`](Self::admit) runs the write while no other can pass.
///
/// ```
/// use clinch::{Token, fence::Gate};
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

    /// Runs `write` if no greater token has passed; otherwise fails with both tokens in the message.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let (gate, mut balance) = (clinch::fence::Gate::new(), 100);
    /// let guard = clinch.lock("accounts/a").acquire().await?;
    /// gate.admit(guard.token(), || balance -= 30)?;
    /// gate.admit(guard.token(), || balance -= 30)?; // the same holder may write again
    /// assert_eq!(balance, 40);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
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
