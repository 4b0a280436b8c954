//! A row, and the state of the name that it encodes.
//!
//! Most names are free, or have one holder and no waiter. Such a row is *plain*: its columns hold
//! everything, so that one statement can take or release the lock. Any other state is encoded in the
//! column `state`, which only the slow path reads and writes.

use std::time::Duration;

use clinch_core::machine::codec::{Decoder, Encoder};
use clinch_core::machine::{Entry, NameState, Phase};
use clinch_core::store::Claim;
use clinch_core::{BootTime, Error, ErrorKind, Name, RequestId};

use crate::record::{
    RECORD, REMEMBERED, encoded, id, micros, moment, padded, read_id, read_record, record, span,
};

/// The first byte of `state`.
const FORMAT: u8 = 1;

/// The columns of a row without its name and version. Times are microseconds of the server's clock.
///
/// ```
/// let free = clinch_table::Content::default();
/// assert!(free.request.is_empty() && free.state.is_none());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// The last sequence number that was granted.
    pub seq: u64,
    /// The request of the one holder of a plain row; empty in any other row.
    pub request: Vec<u8>,
    /// When that holder was granted.
    pub since: u64,
    /// When the hold of a plain row ends. In other rows, the first end of any claim, or 0 if only
    /// lock-delays are left.
    pub until: u64,
    /// The holder's lease.
    pub lease: u64,
    /// The holder's owner, as the record of its end will contain it. Written, never read.
    pub owner: Vec<u8>,
    /// The holder as an encoded claim.
    pub details: Vec<u8>,
    /// The claims that ended last, oldest first.
    pub ended: Vec<u8>,
    /// The encoded state of a row that is not plain.
    pub state: Option<Vec<u8>>,
}

/// A row as it was read.
///
/// ```
/// use clinch_table::{Content, Row};
/// let row = Row::new(Some(7), Content::default(), 1_000_000);
/// assert_eq!((row.version, row.now, row.watched), (Some(7), 1_000_000, false));
/// ```
#[derive(Debug, Clone)]
pub struct Row {
    /// The version: each write increases it. `None` if there is no row.
    pub version: Option<u64>,
    /// Its other columns.
    pub content: Content,
    /// The server's clock when the statement began.
    pub now: u64,
    /// Whether a client watches the namespace, if the statement looked.
    pub watched: bool,
    /// A new row must start with a greater sequence number, if the statement looked.
    pub watermark: u64,
    /// Upper bound on how much later than `now` the row was read.
    pub slack: Duration,
    /// Whether it comes from the cache, and `now` with it.
    pub(crate) cached: bool,
}

impl Row {
    /// A row that was just read.
    pub fn new(version: Option<u64>, content: Content, now: u64) -> Self {
        Self {
            version,
            content,
            now,
            watched: false,
            watermark: 0,
            slack: Duration::ZERO,
            cached: false,
        }
    }

    /// The server's clock as a moment of the machine.
    pub(crate) fn moment(&self) -> BootTime {
        moment(self.now)
    }

    /// Whether this claim holds a plain row, with a lease from this statement or a later one.
    pub(crate) fn is_held_by(&self, request: RequestId, lease: u64) -> bool {
        let content = &self.content;
        content.state.is_none()
            && content.request == id(request)
            && content.until >= self.now.saturating_add(lease)
    }

    /// The state that the row encodes.
    pub(crate) fn state(&self, name: &Name) -> Result<NameState, Error> {
        self.decode(name).ok_or_else(|| corrupt_row(name.as_str()))
    }

    fn decode(&self, name: &Name) -> Option<NameState> {
        let content = &self.content;
        let mut state = NameState::new(name.clone());
        state.last_seq = content.seq;
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
        // A plain row does not store when each claim ended: no later than the row's last change.
        let at = moment(self.version.unwrap_or(0));
        for record in content.ended.chunks(RECORD) {
            state.ended.push(read_record(record, at)?);
        }
        if !content.request.is_empty() {
            let entry = Decoder::new(&content.details).entry()?;
            state.entries.push(Entry {
                request: read_id(&content.request)?,
                phase: Phase::Held { seq: content.seq },
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
    /// The plain row of a claim that is granted at once; `None` if it does not fit.
    pub(crate) fn of_claim(claim: &Claim) -> Option<Self> {
        if claim.units > claim.limit {
            return None;
        }
        // The columns hold the times, so `details` is the same for each claim of this kind.
        let entry = Entry {
            until: moment(0),
            ..Entry::arriving(claim, 1, moment(0))
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
        Self::plain(state).unwrap_or_else(|| Self::encoded(state))
    }

    fn plain(state: &NameState) -> Option<Self> {
        let mut content = Self {
            seq: state.last_seq,
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
            // The column holds the holder's number, and the next grant must be greater.
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

    fn encoded(state: &NameState) -> Self {
        let mut encoder = Encoder::new();
        encoder.byte(FORMAT);
        encoder.number(state.ended.len() as u64);
        state.ended.iter().for_each(|ended| encoder.ended(ended));
        state.entries.iter().for_each(|entry| encoder.entry(entry));
        let claims = state.entries.iter().filter(|e| !e.is_delayed());
        let first_end = claims.map(|entry| micros(entry.until)).min();
        Self {
            seq: state.last_seq,
            until: first_end.unwrap_or(0),
            state: Some(encoder.finish()),
            ..Self::default()
        }
    }
}

/// The error for a row that cannot be decoded.
///
/// ```
/// let error = clinch_table::corrupt_row("orders");
/// assert_eq!(error.kind(), clinch_core::ErrorKind::Corrupt);
/// ```
pub fn corrupt_row(name: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "its row cannot be read")
        .with_name(name)
        .with_advice("was it written by hand, or by another version of clinch?")
}

#[cfg(test)]
mod tests {
    use clinch_core::OwnerId;
    use clinch_core::machine::Ended;
    use clinch_core::store::Ending;

    use super::*;
    use crate::record::expire_tombstones;

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
        expire_tombstones(&mut state, moment(40));
        let requests = |state: &NameState| -> Vec<u128> {
            state.ended.iter().map(|e| e.request.as_u128()).collect()
        };
        assert_eq!(requests(&state), [100, 6, 7, 8, 9, 10, 11, 12]);
        let row = Row::new(Some(20), Content::of_state(&state), 40);
        assert!(row.content.state.is_some());
        assert_eq!(row.state(&state.name).unwrap(), state);
        expire_tombstones(&mut state, moment(50));
        let content = Content::of_state(&state);
        assert_eq!((content.state, content.ended.len()), (None, 8 * RECORD));
    }
}
