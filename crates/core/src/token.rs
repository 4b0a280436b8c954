//! Fencing tokens and sequencers.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Name, Result};

/// The low bits of a token: the local sequence number, which counts hand-overs inside one process.
pub const LOCAL_BITS: u32 = 12;
/// The largest local sequence number.
pub const MAX_LOCAL: u64 = (1 << LOCAL_BITS) - 1;
/// The largest store sequence number: together with the local bits it fits a signed 64-bit column.
pub const MAX_SEQ: u64 = (1 << (63 - LOCAL_BITS)) - 1;

/// A fencing token: it rises with every grant of a name. A resource that refuses tokens smaller than
/// the greatest seen is safe from a holder that was paused past its lease.
///
/// It is `store sequence << 12 | local sequence`, at most 63 bits, and fits a signed `BIGINT`.
///
/// ```
/// use clinch::Token;
/// let first = Token::new(7, 0).unwrap();
/// let handed_over = Token::new(7, 1).unwrap();
/// let next_grant = Token::new(8, 0).unwrap();
/// assert!(first < handed_over && handed_over < next_grant);
/// assert_eq!(next_grant.seq(), 8);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct Token(u64);

impl Token {
    /// A token of its two parts; `None` if one is out of range.
    pub fn new(seq: u64, local: u64) -> Option<Self> {
        (seq <= MAX_SEQ && local <= MAX_LOCAL).then_some(Self(seq << LOCAL_BITS | local))
    }

    /// The smallest token: no grant has it.
    pub fn zero() -> Self {
        Self(0)
    }

    /// The token as a number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Reads a token from a number; `None` above 63 bits.
    ///
    /// ```
    /// use clinch::Token;
    /// let column: i64 = 28_672; // a BIGINT of the table that the token guards
    /// let token = Token::from_u64(column.unsigned_abs()).unwrap();
    /// assert_eq!((token.seq(), token.local()), (7, 0));
    /// assert_eq!(Token::from_u64(u64::MAX), None);
    /// ```
    pub fn from_u64(raw: u64) -> Option<Self> {
        (raw <= i64::MAX.unsigned_abs()).then_some(Self(raw))
    }

    /// The store's sequence number.
    pub fn seq(self) -> u64 {
        self.0 >> LOCAL_BITS
    }

    /// The local sequence number, which counts hand-overs inside one process.
    pub fn local(self) -> u64 {
        self.0 & MAX_LOCAL
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse().ok().and_then(Self::from_u64).ok_or_else(|| {
            Error::invalid(format!("{text:?} is not a token"))
                .with_advice("a token is a number below 2^63, as `clinch list` prints it")
        })
    }
}

/// How a name is held.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// use clinch::Mode;
/// let guard = clinch.semaphore("workers", 5).permits(2).acquire().await?;
/// assert_eq!(guard.mode(), Mode::Permits { units: 2, limit: 5 });
/// assert_eq!(guard.mode().to_string(), "2/5");
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A mutex or the leader of an election: the only holder.
    Exclusive,
    /// The read side of a read-write lock.
    Read,
    /// The write side of a read-write lock.
    Write,
    /// Some permits of a semaphore.
    Permits {
        /// Permits held.
        units: u32,
        /// Permits in all.
        limit: u32,
    },
}

impl Mode {
    /// The mode of a claim for `units` of `limit`.
    pub fn of(units: u32, limit: u32) -> Self {
        match (units, limit) {
            (_, 1) => Self::Exclusive,
            (u32::MAX, u32::MAX) => Self::Write,
            (_, u32::MAX) => Self::Read,
            (units, limit) => Self::Permits { units, limit },
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("x"),
            Self::Read => f.write_str("r"),
            Self::Write => f.write_str("w"),
            Self::Permits { units, limit } => write!(f, "{units}/{limit}"),
        }
    }
}

impl FromStr for Mode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "x" => Ok(Self::Exclusive),
            "r" => Ok(Self::Read),
            "w" => Ok(Self::Write),
            _ => {
                let (units, limit) = text.split_once('/').ok_or(())?;
                let (units, limit) = (units.parse().map_err(drop)?, limit.parse().map_err(drop)?);
                if units == 0 || units > limit {
                    return Err(());
                }
                Ok(Self::Permits { units, limit })
            }
        }
    }
}

/// Name, mode and token as one printable string that a holder sends to a resource.
///
/// The resource either compares the token with the greatest it has seen, or checks it at the store
/// with [`Clinch::check`](crate::Clinch::check). Control characters and `%` of the name are escaped,
/// so a sequencer is always one line.
///
/// ```
/// use clinch::Sequencer;
/// let s: Sequencer = "x:28672:orders/42".parse().unwrap();
/// assert_eq!(s.token().seq(), 7);
/// assert_eq!(s.name().as_str(), "orders/42");
/// assert_eq!(s.to_string(), "x:28672:orders/42");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sequencer {
    name: Name,
    mode: Mode,
    token: Token,
}

impl Sequencer {
    /// A sequencer of its parts.
    pub fn new(name: Name, mode: Mode, token: Token) -> Self {
        Self { name, mode, token }
    }

    /// The lock's name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The fencing token.
    pub fn token(&self) -> Token {
        self.token
    }
}

impl fmt::Display for Sequencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.mode, self.token)?;
        for c in self.name.as_str().chars() {
            if c.is_control() || c == '%' {
                let mut utf8 = [0; 4];
                for b in c.encode_utf8(&mut utf8).bytes() {
                    write!(f, "%{b:02x}")?;
                }
            } else {
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Sequencer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!("{text:?} is not a sequencer"))
                .with_advice("it looks like `x:28672:orders/42`: mode, token, name")
        };
        let (mode, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (token, name) = rest.split_once(':').ok_or_else(wrong)?;
        let mode = mode.parse().map_err(|()| wrong())?;
        let token = token.parse().map_err(|_| wrong())?;
        let name = crate::url::percent_decode(name).ok_or_else(wrong)?;
        Ok(Self {
            name: Name::new(name)?,
            mode,
            token,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequencer_survives_printing() {
        for name in ["a", "a:b:c", "50%", "new\nline", "ünïcode/…", "%41"] {
            for mode in [
                Mode::Exclusive,
                Mode::Read,
                Mode::Permits { units: 2, limit: 5 },
            ] {
                let s = Sequencer::new(Name::new(name).unwrap(), mode, Token::new(99, 3).unwrap());
                let text = s.to_string();
                assert!(!text.contains('\n'));
                assert_eq!(text.parse::<Sequencer>().unwrap(), s);
            }
        }
    }

    #[test]
    fn bad_sequencers_are_refused() {
        for bad in [
            "", "x", "x:1", "q:1:a", "x:-1:a", "x:1:", "6/5:1:a", "x:1:%zz",
        ] {
            assert!(bad.parse::<Sequencer>().is_err(), "{bad}");
        }
    }

    #[test]
    fn token_parts_stay_in_range() {
        assert!(Token::new(MAX_SEQ, MAX_LOCAL).unwrap().get() <= i64::MAX as u64);
        assert!(Token::new(MAX_SEQ + 1, 0).is_none());
        assert!(Token::new(0, MAX_LOCAL + 1).is_none());
    }
}
