//! The replies of the script to a step.

use std::time::Duration;

use clinch_core::Result;
use clinch_core::store::{Busy, ClaimReply, Evicted, Grant, LostReason, Queued};

use super::{Reader, ending};
use crate::error;

/// The reply to one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Granted(Grant),
    Queued {
        ahead: u32,
        retry: Duration,
    },
    Busy {
        retry: Duration,
    },
    Mismatch {
        limit: u32,
    },
    /// Held, or done.
    Yes,
    /// Not held any more, or never.
    No(LostReason),
    Evicted(Evicted),
    /// The claim arrived too late to be applied as a new one; the server's time.
    Late {
        now: u64,
    },
    /// No vote: this number was granted before.
    Behind {
        last: u64,
    },
    Failed(String),
    /// Done, but too few replicas have it.
    Unreplicated(String),
}

impl Reply {
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        Some(match reader.byte()? {
            b'G' => Self::Granted(reader.grant()?),
            b'Q' => Self::Queued {
                ahead: reader.u32()?,
                retry: Duration::from_millis(reader.u64()?),
            },
            b'B' => Self::Busy {
                retry: Duration::from_millis(reader.u64()?),
            },
            b'M' => Self::Mismatch {
                limit: reader.u32()?,
            },
            b'H' => Self::Yes,
            b'X' => Self::No(match reader.byte()? {
                b'f' => LostReason::Forgotten,
                code => ending(code)?.into(),
            }),
            b'E' => {
                let mut evicted = Evicted::default();
                while !reader.0.is_empty() {
                    match reader.byte()? {
                        b'H' => evicted.seqs.push(reader.u64()?),
                        b'D' => evicted.delays.push(reader.u64()?),
                        _ => return None,
                    }
                }
                Self::Evicted(evicted)
            }
            b'T' => Self::Late { now: reader.u64()? },
            b'L' => Self::Behind {
                last: reader.u64()?,
            },
            b'!' => Self::Failed(String::from_utf8_lossy(reader.0).into_owned()),
            b'~' => Self::Unreplicated(String::from_utf8_lossy(reader.0).into_owned()),
            _ => return None,
        })
    }

    /// As the reply to a claim; a mismatch is left to the caller.
    pub(crate) fn into_claim(self, kept: bool) -> Option<ClaimReply> {
        let some = |span: Duration| Some(span).filter(|span| !span.is_zero());
        Some(match self {
            Self::Granted(grant) => ClaimReply::Granted(grant),
            Self::Queued { ahead, retry } => {
                let ahead = usize::try_from(ahead).unwrap_or(usize::MAX);
                ClaimReply::Queued(Queued::new(ahead, some(retry)).with_wakes_kept(kept))
            }
            Self::Busy { retry } => ClaimReply::Busy(Busy::new(some(retry))),
            Self::No(reason) => ClaimReply::Gone(reason),
            _ => return None,
        })
    }
}

/// The expected reply to a step, or an error.
pub(crate) fn expect<T>(
    reply: Reply,
    to: &str,
    pick: impl FnOnce(Reply) -> Option<T>,
) -> Result<T> {
    match reply {
        Reply::Failed(text) => Err(error::in_script(&text, to)),
        Reply::Unreplicated(text) => Err(error::unreplicated(text)),
        reply => pick(reply).ok_or_else(|| error::unexpected(to)),
    }
}
