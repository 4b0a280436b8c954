//! Checks a fencing token at data in Redis, atomically with the write that it guards.
//!
//! A holder that was paused may write after its lock was granted to another client. The lock cannot prevent
//! that, the data can: they store the greatest token that has written to them, and refuse smaller ones.
//!
//! ```
//! use clinch_core::Token;
//! use clinch_redis::fence;
//! // KEYS[1] is the stock; the fence comes last among the keys, the token last among the arguments.
//! let sell = fence::guarded("return redis.call('DECRBY', KEYS[1], ARGV[1])");
//! let token = fence::text(Token::new(7, 0).unwrap());
//! assert_eq!(token, "0000000000000028672"); // compares as text, as Lua's numbers cannot
//! # let _ = sell;
//! // EVAL sell 2 stock:42 stock:42:fence 1 TOKEN
//! ```

use clinch_core::{Error, ErrorKind, Token};

/// Precedes the caller's own script.
const CHECK: &str = "\
local fence, token = KEYS[#KEYS], ARGV[#ARGV]
local seen = redis.call('GET', fence)
if seen and seen > token then
  return redis.error_reply('FENCED ' .. token .. ' ' .. seen)
end
redis.call('SET', fence, token)
";

/// A script that runs only with a token that is at least the greatest seen so far.
///
/// The last of its `KEYS` is the fence, a key of its own beside the data (in a cluster: in the same
/// slot), and the last of its `ARGV` the token as [`text`]. Its own keys and arguments come before them.
/// A refusal is an error reply that [`refused`] explains.
///
/// ```
/// let script = clinch_redis::fence::guarded("return redis.call('SET', KEYS[1], ARGV[1])");
/// assert!(script.ends_with("return redis.call('SET', KEYS[1], ARGV[1])"));
/// ```
pub fn guarded(script: &str) -> String {
    format!("{CHECK}{script}")
}

/// A token as text of fixed length, which sorts as the numbers do.
///
/// ```
/// use clinch_core::Token;
/// use clinch_redis::fence::text;
/// let token = |seq| text(Token::new(seq, 0).unwrap());
/// assert!(token(9) < token(10));
/// ```
pub fn text(token: Token) -> String {
    format!("{:019}", token.get())
}

/// The error of a refused write, with both tokens, if this error reply of a [`guarded`] script is one.
///
/// ```
/// use clinch_core::ErrorKind;
/// let error = clinch_redis::fence::refused("FENCED 0000000000000028672 0000000000000032768").unwrap();
/// assert_eq!(error.kind(), ErrorKind::Lost);
/// assert!(error.to_string().contains("28672") && error.to_string().contains("32768"));
/// assert!(clinch_redis::fence::refused("WRONGTYPE").is_none());
/// ```
pub fn refused(reply: &str) -> Option<Error> {
    let mut words = reply
        .split_whitespace()
        .skip_while(|word| *word != "FENCED");
    words.next()?;
    let mut token = || words.next()?.parse::<u64>().ok();
    let (token, seen) = (token()?, token()?);
    let text = format!("the token {token} is refused: the data were written with {seen}");
    Some(Error::new(ErrorKind::Lost, text).with_advice("the lock has passed on: stop"))
}
