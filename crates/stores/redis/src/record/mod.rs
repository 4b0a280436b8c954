//! The packed formats of states, steps, replies and messages.

mod layout;
mod reply;
pub(crate) mod step;

use std::sync::Arc;
use std::time::Duration;

use clinch_core::machine::{Entry, Phase};
use clinch_core::store::{Ending, Grant, Predecessor};
use clinch_core::{BootTime, ClientInfo, OwnerId, RequestId};

pub(crate) use layout::fill;
pub(crate) use reply::{Reply, expect};

/// Whole milliseconds, rounded up, so that a lease never ends early.
pub(crate) fn millis(span: Duration) -> u32 {
    u32::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

/// The claim that a pushed message is for, and its grant; `None` for a hint.
pub(crate) fn message(bytes: &[u8]) -> Option<(RequestId, Option<Grant>)> {
    let mut reader = Reader(bytes);
    let request = reader.request()?;
    match reader.0.split_first() {
        None => Some((request, None)),
        Some((b'G', rest)) => Some((request, Some(Reader(rest).grant()?))),
        Some(_) => None,
    }
}

/// A record as an entry of the reference machine, with times of the server.
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

/// A time of the server for the reference machine.
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
            before => {
                let owner = OwnerId::new(std::str::from_utf8(self.0).ok()?);
                Some(Predecessor::new(ending(code)?, before, owner))
            }
        };
        Some(Grant::new(seq, predecessor))
    }
}
