//! Replies of the scripts.

use std::time::Duration;

use clinch_core::store::LostReason;
use redis::Value;

/// One reply: its kind, then its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Granted,
    /// Another client has it, for this time; `None` if without a lease.
    Taken(Option<Duration>),
    /// The claim arrived too late to be applied as a new one; the server's time.
    Late(u64),
    /// The claim has ended before.
    Gone(LostReason),
    Held,
    /// It is free, but this user may not publish the release.
    Unpublished,
    Lost(LostReason),
    /// This one was evicted.
    Evicted(String),
    /// It is not held.
    None,
    /// Its lease, and the holders with their counts.
    Holder(Option<Duration>, Vec<(String, String)>),
    /// The key is something else: its type and, of a hash, its fields.
    Clash(String, Vec<String>),
}

impl Reply {
    /// Reads the replies to one call, in order; `None` if they are not those of our script.
    pub(super) fn read(value: Value) -> Option<Vec<Self>> {
        let Value::Array(replies) = value else {
            return None;
        };
        replies.into_iter().map(Self::one).collect()
    }

    fn one(value: Value) -> Option<Self> {
        let Value::Array(parts) = value else {
            return None;
        };
        let mut parts = parts.into_iter().map(part);
        let kind = parts.next()??;
        let mut next = || parts.next().flatten();
        Some(match kind.as_str() {
            "granted" => Self::Granted,
            "taken" => Self::Taken(left(&next()?)?),
            "late" => Self::Late(next()?.parse().ok()?),
            "gone" => Self::Gone(reason(&next()?)?),
            "held" => Self::Held,
            "unpublished" => Self::Unpublished,
            "lost" => Self::Lost(reason(&next()?)?),
            "evicted" => Self::Evicted(next()?),
            "none" => Self::None,
            "holder" => {
                let left = left(&next()?)?;
                let mut holders = Vec::new();
                while let (Some(owner), Some(count)) = (next(), next()) {
                    holders.push((owner, count));
                }
                Self::Holder(left, holders)
            }
            "clash" => Self::Clash(next()?, parts.flatten().collect()),
            _ => return None,
        })
    }
}

fn part(value: Value) -> Option<String> {
    match value {
        Value::Int(number) => Some(number.to_string()),
        Value::SimpleString(text) => Some(text),
        // A foreign owner may be any bytes.
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    }
}

/// The reply to `PTTL`; a key that has just ended has nothing left.
fn left(pttl: &str) -> Option<Option<Duration>> {
    Some(match pttl.parse::<i64>().ok()? {
        -1 => None,
        millis => Some(Duration::from_millis(u64::try_from(millis).unwrap_or(0))),
    })
}

fn reason(how: &str) -> Option<LostReason> {
    Some(match how {
        "r" | "w" => LostReason::Released,
        "e" => LostReason::Evicted,
        "f" => LostReason::Forgotten,
        _ => return None,
    })
}
