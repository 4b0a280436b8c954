//! The packed form of steps, replies and records; the scripts have the same formats.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::machine::{Entry, Phase};
use clinch_core::store::{
    Busy, Claim, ClaimReply, Ending, Evicted, Grant, Hold, LostReason, Predecessor, Queued, Renewal,
};
use clinch_core::{BootTime, ClientInfo, OwnerId, RequestId, Result};

/// A step of the script, ready to be sent.
pub(crate) mod step {
    use super::*;

    /// Where a claim says until when it may be applied.
    const LATEST: std::ops::Range<usize> = 25..33;

    pub(crate) fn claim(claim: &Claim, after: u64) -> Vec<u8> {
        claim_as(u8::from(claim.queue), claim, after)
    }

    /// A claim on one of several servers: half of one, until it is raised.
    pub(crate) fn half_claim(claim: &Claim, after: u64) -> Vec<u8> {
        claim_as(2, claim, after)
    }

    /// Sets until when the server may apply this claim as a new one, by its clock.
    pub(crate) fn set_latest(claim: &mut [u8], latest: u64) {
        if let Some(place) = claim.get_mut(LATEST) {
            place.copy_from_slice(&latest.to_le_bytes());
        }
    }

    fn claim_as(kind: u8, claim: &Claim, after: u64) -> Vec<u8> {
        let details = details(claim);
        let mut out = head(b'c', claim.request, 72 + details.len());
        out.extend(after.to_le_bytes());
        out.extend(0_u64.to_le_bytes());
        out.extend(claim.limit.to_le_bytes());
        out.push(kind);
        // From here on as in the record that the script makes of it.
        out.extend(millis(claim.lease).to_le_bytes());
        out.extend(millis(claim.lock_delay).to_le_bytes());
        out.extend(claim.units.to_le_bytes());
        out.extend(short(details.len()).to_le_bytes());
        out.extend(details);
        if let Some(value) = &claim.value {
            out.push(1);
            out.extend(value.as_bytes());
        }
        out
    }

    pub(crate) fn renew(renewal: &Renewal) -> Vec<u8> {
        let mut out = head(b'n', renewal.hold.request, 16);
        out.extend(renewal.hold.seq.to_le_bytes());
        out.extend(millis(renewal.lease).to_le_bytes());
        out.push(u8::from(renewal.value.is_some()));
        if let Some(value) = &renewal.value {
            out.extend(value.as_bytes());
        }
        out
    }

    /// The second half of a claim, by a vote of this server.
    pub(crate) fn vote(request: RequestId, to: u64, lease: Duration) -> Vec<u8> {
        raise(request, 0, to, lease, 1)
    }

    /// The number that has won, for half a claim with the number `from`.
    pub(crate) fn adopt(request: RequestId, from: u64, to: u64, lease: Duration) -> Vec<u8> {
        raise(request, from, to, lease, 0)
    }

    fn raise(request: RequestId, from: u64, to: u64, lease: Duration, vote: u8) -> Vec<u8> {
        let mut out = head(b't', request, 21);
        out.extend(from.to_le_bytes());
        out.extend(to.to_le_bytes());
        out.extend(millis(lease).to_le_bytes());
        out.push(vote);
        out
    }

    /// What has one of these numbers, or half of it, is given back.
    pub(crate) fn back(request: RequestId, numbers: [u64; 2]) -> Vec<u8> {
        let mut out = head(b'b', request, 16);
        for number in numbers {
            out.extend(number.to_le_bytes());
        }
        out
    }

    pub(crate) fn release(hold: &Hold) -> Vec<u8> {
        let mut out = head(b'r', hold.request, 16);
        out.extend(hold.seq.to_le_bytes());
        out.extend(0_u64.to_le_bytes());
        out
    }

    pub(crate) fn withdraw(request: RequestId) -> Vec<u8> {
        let mut out = head(b'w', request, 8);
        out.extend(0_u64.to_le_bytes());
        out
    }

    /// Sets until when a copy of the claim may be applied: for that long this release or withdrawal is
    /// remembered.
    pub(crate) fn set_keep(end: &mut [u8], keep: u64) {
        if let Some(place) = end.last_chunk_mut() {
            *place = keep.to_le_bytes();
        }
    }

    pub(crate) fn evict(seq: Option<u64>) -> Vec<u8> {
        number(b'e', seq.unwrap_or(0))
    }

    pub(crate) fn check(seq: u64) -> Vec<u8> {
        number(b'k', seq)
    }

    fn number(op: u8, seq: u64) -> Vec<u8> {
        let mut out = vec![op];
        out.extend(seq.to_le_bytes());
        out
    }

    fn head(op: u8, request: RequestId, more: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(17 + more);
        out.push(op);
        out.extend(request.as_u128().to_be_bytes());
        out
    }

    /// What people want to know of a claim; the script reads the owner only.
    fn details(claim: &Claim) -> Vec<u8> {
        let mut out = Vec::new();
        text(&mut out, claim.owner.as_str());
        text(&mut out, &claim.client.host);
        out.extend(claim.client.pid.to_le_bytes());
        if let Some(label) = &claim.label {
            out.push(1);
            text(&mut out, label);
        }
        out
    }

    fn text(out: &mut Vec<u8>, text: &str) {
        // Longer texts are refused by the API long before.
        let mut end = text.len().min(16 * 1024);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        out.extend(short(end).to_le_bytes());
        out.extend(text.as_bytes().get(..end).unwrap_or_default());
    }

    fn short(length: usize) -> u16 {
        u16::try_from(length).unwrap_or(u16::MAX)
    }
}

/// Whole milliseconds, rounded up, so that a lease never ends early.
pub(crate) fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// What a script answers to one step.
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
    /// The claim came too late to be applied as a new one; the server's time.
    Late {
        now: u64,
    },
    /// No vote: this number has been given.
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

    /// The answer to a claim; a mismatch is for the caller to explain.
    pub(crate) fn into_claim(self, kept: bool) -> Option<ClaimReply> {
        let some = |span: Duration| Some(span).filter(|span| !span.is_zero());
        Some(match self {
            Self::Granted(grant) => ClaimReply::Granted(grant),
            Self::Queued { ahead, retry } => ClaimReply::Queued(Queued {
                ahead: usize::try_from(ahead).unwrap_or(usize::MAX),
                retry_after: some(retry),
                wakes_kept: kept,
            }),
            Self::Busy { retry } => ClaimReply::Busy(Busy {
                retry_after: some(retry),
            }),
            Self::No(reason) => ClaimReply::Gone(reason),
            _ => return None,
        })
    }
}

/// The grant that a message tells one of our claims of; `None` in it is a bare hint.
pub(crate) fn message(bytes: &[u8]) -> Option<(RequestId, Option<Grant>)> {
    let mut reader = Reader(bytes);
    let request = reader.request()?;
    match reader.0.split_first() {
        None => Some((request, None)),
        Some((b'G', rest)) => Some((request, Some(Reader(rest).grant()?))),
        Some(_) => None,
    }
}

/// A record as an entry of the reference machine. Times are milliseconds of the server.
pub(crate) fn entry(record: &[u8], ticket: u64, limit: u32) -> Option<Entry> {
    let mut reader = Reader(record);
    let phase = reader.byte()?;
    let request = reader.request()?;
    let seq = reader.u64()?;
    let since = time(reader.u64()?);
    let until = time(reader.u64()?);
    let lease = Duration::from_millis(reader.u32()?.into());
    let lock_delay = Duration::from_millis(reader.u32()?.into());
    let units = reader.u32()?;
    let length = reader.u16()?;
    let mut details = Reader(reader.take(length.into())?);
    let owner = OwnerId::new(details.text()?);
    let host = details.text()?.to_owned();
    let pid = details.u32()?;
    let label = match details.byte() {
        Some(_) => Some(Arc::from(details.text()?)),
        None => None,
    };
    let value = match reader.byte() {
        Some(_) => Some(Arc::from(std::str::from_utf8(reader.0).ok()?)),
        None => None,
    };
    Some(Entry {
        ticket,
        request,
        owner,
        client: Arc::new(ClientInfo::new(request.client(), host, pid)),
        units,
        limit,
        lease,
        lock_delay,
        label,
        value,
        phase: match phase {
            b'W' => Phase::Waiting,
            b'H' => Phase::Held { seq },
            b'D' => Phase::Delayed { seq },
            _ => return None,
        },
        since,
        until,
    })
}

/// A moment of the server as the reference machine counts.
pub(crate) fn time(millis: u64) -> BootTime {
    BootTime::from_nanos(millis.saturating_mul(1_000_000))
}

fn ending(code: u8) -> Option<Ending> {
    match code {
        b'r' => Some(Ending::Released),
        b'x' => Some(Ending::Expired),
        b'e' => Some(Ending::Evicted),
        _ => None,
    }
}

/// Reads packed numbers and texts.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn request(&mut self) -> Option<RequestId> {
        let bytes = self.take(16)?.try_into().ok()?;
        Some(RequestId::from_u128(u128::from_be_bytes(bytes)))
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.u16()?;
        std::str::from_utf8(self.take(length.into())?).ok()
    }

    fn grant(&mut self) -> Option<Grant> {
        let (seq, before) = (self.u64()?, self.u64()?);
        let code = self.byte()?;
        let predecessor = match before {
            0 => None,
            before => Some(Predecessor {
                ending: ending(code)?,
                seq: before,
                owner: OwnerId::new(std::str::from_utf8(self.0).ok()?),
            }),
        };
        Some(Grant { seq, predecessor })
    }
}

/// The reply that this step should have got, or why it has none.
pub(crate) fn expect<T>(
    reply: Reply,
    to: &str,
    pick: impl FnOnce(Reply) -> Option<T>,
) -> Result<T> {
    match reply {
        Reply::Failed(text) => Err(crate::error::in_script(&text, to)),
        Reply::Unreplicated(text) => Err(crate::error::unreplicated(text)),
        reply => pick(reply).ok_or_else(|| crate::error::strange(to)),
    }
}
