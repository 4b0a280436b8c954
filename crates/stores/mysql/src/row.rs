//! A row, and the state of a name that it stands for.
//!
//! Most names are free, or have one holder and nobody who waits. Such a row is *plain*: its columns
//! say it all, so that one statement can take or give up the lock. Everything else is the encoded
//! state in the column `state`, which only the general way (`steps.rs`) reads and writes.

use std::time::Duration;

use clinch_core::machine::codec::{Decoder, Encoder};
use clinch_core::machine::{Ended, Entry, NameState, Phase};
use clinch_core::store::{Claim, Ending};
use clinch_core::{BootTime, Error, Name, OwnerId, RequestId};
use mysql_async::Value;

use crate::error::damaged;

/// The first byte of `state`.
const FORMAT: u8 = 1;
/// How many ended claims a plain row remembers.
const REMEMBERED: usize = 8;
/// The longest owner that a plain row has room for.
const OWNER: usize = 30;
/// One ended claim in a plain row: request, token, ending, and the owner with its length.
const RECORD: usize = 16 + 8 + 1 + 1 + OWNER;
/// All that a plain row remembers, in bytes.
pub(crate) const MEMORY: u64 = (REMEMBERED * RECORD) as u64;

/// The primary key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) ns: Vec<u8>,
    pub(crate) name: Vec<u8>,
}

impl Key {
    pub(crate) fn of(ns: &[u8], name: &Name) -> Self {
        Self {
            ns: ns.to_vec(),
            name: name.as_str().as_bytes().to_vec(),
        }
    }
}

/// Everything in a row but its key and its version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// The last token that was given.
    pub(crate) token: u64,
    /// The one holder of a plain row.
    pub(crate) request: Vec<u8>,
    pub(crate) since: u64,
    /// When the hold of a plain row ends; otherwise the first end of any claim, 0 where only
    /// delays are left.
    pub(crate) until: u64,
    /// The lease that it has of those.
    pub(crate) lease: u64,
    /// The holder's owner as its record will have it.
    pub(crate) owner: Vec<u8>,
    /// The holder as an encoded claim.
    pub(crate) details: Vec<u8>,
    pub(crate) ended: Vec<u8>,
    pub(crate) state: Option<Vec<u8>>,
}

/// A row as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The version: each write makes it greater. `None` where there is no row.
    pub(crate) seq: Option<u64>,
    pub(crate) content: Content,
    /// The server's clock when the statement began.
    pub(crate) now: u64,
    /// Whether somebody watches, where that is known.
    pub(crate) watched: bool,
    /// No new row may begin with a smaller token.
    pub(crate) floor: u64,
    /// Whether it is from a moment ago, and `now` with it.
    pub(crate) recent: bool,
    /// How much later than `now` it may have been read, at most.
    pub(crate) slack: Duration,
}

impl Row {
    /// From columns in the order of `sql::names`; `None` if they are not that.
    pub(crate) fn read(values: &mut impl Iterator<Item = Value>) -> Option<Self> {
        let seq = optional(values.next()?)?;
        let content = Content {
            token: optional(values.next()?)?.unwrap_or(0),
            request: bytes(values.next()?)?,
            since: optional(values.next()?)?.unwrap_or(0),
            until: optional(values.next()?)?.unwrap_or(0),
            lease: optional(values.next()?)?.unwrap_or(0),
            owner: Vec::new(),
            details: bytes(values.next()?)?,
            ended: bytes(values.next()?)?,
            state: match values.next()? {
                Value::NULL => None,
                state => Some(bytes(state)?),
            },
        };
        Some(Self {
            seq,
            content,
            now: optional(values.next()?)??,
            watched: match values.next() {
                None => false,
                Some(value) => optional(value)?.unwrap_or(0) > 0,
            },
            floor: match values.next() {
                None => 0,
                Some(value) => optional(value)?.unwrap_or(0),
            },
            recent: false,
            slack: Duration::ZERO,
        })
    }

    /// The server's clock as the machine wants it.
    pub(crate) fn moment(&self) -> BootTime {
        moment(self.now)
    }

    /// Whether this claim holds a plain row with a lease that this or a later statement gave it.
    pub(crate) fn is_held_by(&self, request: RequestId, lease: u64) -> bool {
        let content = &self.content;
        content.state.is_none()
            && content.request == id(request)
            && content.until >= self.now.saturating_add(lease)
    }

    /// The state that the row stands for.
    pub(crate) fn state(&self, name: &Name) -> Result<NameState, Error> {
        self.decode(name).ok_or_else(|| damaged(name.as_str()))
    }

    fn decode(&self, name: &Name) -> Option<NameState> {
        let content = &self.content;
        let mut state = NameState::new(name.clone());
        state.last_seq = content.token;
        if let Some(blob) = &content.state {
            let mut decoder = Decoder::new(blob);
            if decoder.byte()? != FORMAT {
                return None;
            }
            for _ in 0..decoder.number()? {
                state.ended.push(decoder.ended()?);
            }
            while !decoder.is_empty() {
                state.entries.push(decoder.entry()?);
            }
            return Some(state);
        }
        // A plain row does not say when each of them ended: no later than its last change.
        let at = moment(self.seq.unwrap_or(0));
        for record in content.ended.chunks(RECORD) {
            state.ended.push(read_record(record, at)?);
        }
        if !content.request.is_empty() {
            let entry = Decoder::new(&content.details).entry()?;
            state.entries.push(Entry {
                request: read_id(&content.request)?,
                phase: Phase::Held { seq: content.token },
                since: moment(content.since),
                until: moment(content.until),
                lease: Duration::from_micros(content.lease),
                ..entry
            });
        }
        Some(state)
    }
}

impl Content {
    /// The plain row of a claim that would be granted at once; `None` if it has no room for it.
    pub(crate) fn of_claim(claim: &Claim) -> Option<Self> {
        if claim.units > claim.limit {
            return None;
        }
        let entry = Entry {
            ticket: 1,
            request: claim.request,
            owner: claim.owner.clone(),
            client: claim.client.clone(),
            units: claim.units,
            limit: claim.limit,
            lease: claim.lease,
            lock_delay: claim.lock_delay,
            label: claim.label.clone(),
            value: claim.value.clone(),
            phase: Phase::Waiting,
            since: moment(0),
            until: moment(0),
        };
        Some(Self {
            request: id(claim.request),
            owner: padded(&claim.owner)?,
            details: encoded(&entry),
            ..Self::default()
        })
    }

    /// The row of a state.
    pub(crate) fn of_state(state: &NameState) -> Self {
        Self::plain(state).unwrap_or_else(|| Self::general(state))
    }

    fn plain(state: &NameState) -> Option<Self> {
        let mut content = Self {
            token: state.last_seq,
            ..Self::default()
        };
        if state.ended.len() > REMEMBERED {
            return None;
        }
        for ended in &state.ended {
            content.ended.extend(record(ended)?);
        }
        match state.entries.as_slice() {
            [] => Some(content),
            // The column says the token of the holder, and the next grant must be greater.
            [one] if one.seq() == Some(state.last_seq) => {
                content.request = id(one.request);
                content.since = micros(one.since);
                content.until = micros(one.until);
                content.lease = span(one.lease);
                content.owner = padded(&one.owner)?;
                content.details = encoded(one);
                Some(content)
            }
            _ => None,
        }
    }

    fn general(state: &NameState) -> Self {
        let mut encoder = Encoder::new();
        encoder.byte(FORMAT);
        encoder.number(state.ended.len() as u64);
        state.ended.iter().for_each(|ended| encoder.ended(ended));
        state.entries.iter().for_each(|entry| encoder.entry(entry));
        let claims = state.entries.iter().filter(|e| !e.is_delayed());
        let first_end = claims.map(|entry| micros(entry.until)).min();
        Self {
            token: state.last_seq,
            until: first_end.unwrap_or(0),
            state: Some(encoder.finish()),
            ..Self::default()
        }
    }
}

/// What a release by one statement appends, before the owner that the row has.
pub(crate) fn farewell(request: RequestId, token: u64) -> Vec<u8> {
    let mut record = id(request);
    record.extend(token.to_be_bytes());
    record.push(0);
    record
}

/// Forgets what had to be remembered until now and no longer.
pub(crate) fn remember_in_time(state: &mut NameState, now: BootTime) {
    let mut more = state.ended.len().saturating_sub(REMEMBERED);
    state.ended.retain_mut(|ended| {
        if ended.keep > now {
            return true;
        }
        ended.keep = ended.at;
        let forget = more > 0;
        more = more.saturating_sub(1);
        !forget
    });
}

/// An ended claim in a plain row, which has no room for one that must be kept.
fn record(ended: &Ended) -> Option<Vec<u8>> {
    if ended.keep > ended.at {
        return None;
    }
    let mut record = id(ended.request);
    record.extend(ended.seq.unwrap_or(0).to_be_bytes());
    record.push(match ended.ending {
        Ending::Released => 0,
        Ending::Expired => 1,
        Ending::Evicted => 2,
    });
    record.extend(padded(&ended.owner)?);
    Some(record)
}

fn read_record(record: &[u8], at: BootTime) -> Option<Ended> {
    let (request, rest) = record.split_at_checked(16)?;
    let (seq, rest) = rest.split_at_checked(8)?;
    let seq = u64::from_be_bytes(seq.try_into().ok()?);
    let (ending, rest) = rest.split_first()?;
    let (length, owner) = rest.split_first()?;
    let owner = owner.get(..usize::from(*length))?;
    Some(Ended {
        request: read_id(request)?,
        seq: Some(seq).filter(|seq| *seq > 0),
        owner: OwnerId::new(std::str::from_utf8(owner).ok()?),
        ending: match ending {
            0 => Ending::Released,
            1 => Ending::Expired,
            2 => Ending::Evicted,
            _ => return None,
        },
        at,
        keep: at,
    })
}

/// The owner in as many bytes as every other one.
fn padded(owner: &OwnerId) -> Option<Vec<u8>> {
    let text = owner.as_str().as_bytes();
    if text.len() > OWNER {
        return None;
    }
    let mut padded = vec![u8::try_from(text.len()).ok()?];
    padded.extend(text);
    padded.resize(1 + OWNER, 0);
    Some(padded)
}

fn encoded(entry: &Entry) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.entry(entry);
    encoder.finish()
}

/// A request as the column has it.
pub(crate) fn id(request: RequestId) -> Vec<u8> {
    request.as_u128().to_be_bytes().to_vec()
}

fn read_id(bytes: &[u8]) -> Option<RequestId> {
    let bytes = bytes.try_into().ok()?;
    Some(RequestId::from_u128(u128::from_be_bytes(bytes)))
}

/// Microseconds of the server's clock as a moment of the machine.
pub(crate) fn moment(micros: u64) -> BootTime {
    BootTime::from_nanos(micros.saturating_mul(1000))
}

fn micros(moment: BootTime) -> u64 {
    // Rounded up: a lease must not end before its time.
    moment.as_nanos().div_ceil(1000)
}

/// A lease in microseconds.
pub(crate) fn span(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// A number, or nothing for NULL.
pub(crate) fn optional(value: Value) -> Option<Option<u64>> {
    match value {
        Value::NULL => Some(None),
        Value::UInt(number) => Some(Some(number)),
        Value::Int(number) => Some(Some(u64::try_from(number).ok()?)),
        // The text protocol.
        Value::Bytes(digits) => {
            let text = std::str::from_utf8(&digits).ok()?;
            Some(Some(text.parse().ok()?))
        }
        _ => None,
    }
}

/// Bytes; none for NULL.
pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::NULL => Some(Vec::new()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(request: u128, keep: u64) -> Ended {
        Ended {
            request: RequestId::from_u128(request),
            seq: Some(7),
            owner: OwnerId::new("me"),
            ending: Ending::Released,
            at: moment(10),
            keep: moment(keep),
        }
    }

    #[test]
    fn an_end_that_must_be_kept_is_in_no_plain_row() {
        let mut state = NameState::new(Name::new("a").unwrap());
        state.ended = (1..=12).map(|request| ended(request, 10)).collect();
        state.ended.insert(2, ended(100, 50));
        state.last_seq = 7;
        remember_in_time(&mut state, moment(40));
        let requests = |state: &NameState| -> Vec<u128> {
            state.ended.iter().map(|e| e.request.as_u128()).collect()
        };
        assert_eq!(requests(&state), [100, 6, 7, 8, 9, 10, 11, 12]);
        let content = Content::of_state(&state);
        let row = Row {
            seq: Some(20),
            now: 40,
            watched: false,
            floor: 0,
            recent: false,
            slack: Duration::ZERO,
            content,
        };
        assert!(row.content.state.is_some());
        assert_eq!(row.state(&state.name).unwrap(), state);
        remember_in_time(&mut state, moment(50));
        let content = Content::of_state(&state);
        assert_eq!((content.state, content.ended.len()), (None, 8 * RECORD));
    }
}
