//! Binary encoding of claims in rows and of grants in messages.
//!
//! Stores that keep a name as a [`NameState`](super::NameState) read and write it with every step, so it
//! is one blob of variable-length numbers, without a column for each field.
//!
//! ```
//! # fn main() -> clinch_core::Result<()> {
//! use clinch_core::machine::codec::{Decoder, Encoder};
//! let mut encoder = Encoder::new();
//! encoder.number(300);
//! encoder.text("a");
//! let bytes = encoder.finish();
//! let mut decoder = Decoder::new(&bytes);
//! assert_eq!((decoder.number(), decoder.text()), (Some(300), Some("a")));
//! assert!(decoder.is_empty() && decoder.byte().is_none());
//! # Ok(()) }
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::{Ended, Entry, Phase};
use crate::store::{Ending, Grant, Predecessor};
use crate::{BootTime, ClientId, ClientInfo, OwnerId, RequestId};

/// Writes the encoding.
///
/// ```
/// use clinch_core::machine::codec::Encoder;
/// let mut encoder = Encoder::new();
/// encoder.number(300); // seven bits in a byte
/// assert_eq!(encoder.finish(), [0xac, 0x02]);
/// ```
#[derive(Debug)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// With capacity for a usual name.
    pub fn new() -> Self {
        Self(Vec::with_capacity(1024))
    }

    /// The bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// One byte.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// A number, as a LEB128 varint.
    pub fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        self.0.push((n & 0x7f) as u8);
    }

    /// A text, prefixed with its length.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    /// A text that may be absent.
    pub fn maybe_text(&mut self, text: Option<&Arc<str>>) {
        // 0 for none, else the length + 1.
        self.number(text.map_or(0, |t| t.len() as u64 + 1));
        self.0.extend_from_slice(text.map_or(b"", |t| t.as_bytes()));
    }

    /// The id of a claim.
    pub fn request(&mut self, request: RequestId) {
        self.0.extend_from_slice(&request.as_u128().to_le_bytes());
    }

    fn client(&mut self, client: ClientId) {
        self.0.extend_from_slice(&client.get().to_le_bytes());
    }

    fn span(&mut self, span: Duration) {
        self.number(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    }

    /// A claim that holds, waits or is delayed.
    pub fn entry(&mut self, entry: &Entry) {
        self.number(entry.ticket);
        self.request(entry.request);
        self.text(entry.owner.as_str());
        self.client(entry.client.id);
        self.text(&entry.client.host);
        self.number(entry.client.pid.into());
        self.number(entry.units.into());
        self.number(entry.limit.into());
        self.span(entry.lease);
        self.span(entry.lock_delay);
        self.maybe_text(entry.label.as_ref());
        self.maybe_text(entry.value.as_ref());
        match entry.phase {
            Phase::Waiting => self.byte(0),
            // 1 is the old encoding of a delay, without its sequence number.
            Phase::Delayed { seq } => {
                self.byte(3);
                self.number(seq);
            }
            Phase::Held { seq } => {
                self.byte(2);
                self.number(seq);
            }
        }
        self.number(entry.since.as_nanos());
        self.number(entry.until.as_nanos());
    }

    /// A tombstone.
    pub fn ended(&mut self, ended: &Ended) {
        self.request(ended.request);
        self.number(ended.seq.map_or(0, |seq| seq + 1));
        self.text(ended.owner.as_str());
        // The high bit: the end of its mandatory retention follows.
        let kept = ended.keep > ended.at;
        self.byte(ending_code(ended.ending) | if kept { KEPT } else { 0 });
        self.number(ended.at.as_nanos());
        if kept {
            self.number(ended.keep.as_nanos());
        }
    }

    fn ending(&mut self, ending: Ending) {
        self.byte(ending_code(ending));
    }

    /// A grant.
    pub fn grant(&mut self, grant: &Grant) {
        self.number(grant.seq);
        match &grant.predecessor {
            None => self.byte(0),
            Some(before) => {
                self.byte(1);
                self.ending(before.ending);
                self.number(before.seq);
                self.text(before.owner.as_str());
            }
        }
    }
}

/// Reads the encoding; `None` if the bytes are not valid.
///
/// ```
/// use clinch_core::machine::codec::Decoder;
/// assert_eq!(Decoder::new(&[0xac, 0x02]).number(), Some(300));
/// assert_eq!(Decoder::new(&[0xac]).number(), None); // cut off
/// ```
#[derive(Debug)]
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Reads from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next number.
    pub fn number(&mut self) -> Option<u64> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn bytes(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next text.
    pub fn text(&mut self) -> Option<&'a str> {
        let len = self.number()?;
        std::str::from_utf8(self.bytes(len)?).ok()
    }

    /// The next text that may be absent.
    pub fn maybe_text(&mut self) -> Option<Option<Arc<str>>> {
        match self.number()? {
            0 => Some(None),
            len => {
                let text = std::str::from_utf8(self.bytes(len - 1)?).ok()?;
                Some(Some(text.into()))
            }
        }
    }

    /// The next id of a claim.
    pub fn request(&mut self) -> Option<RequestId> {
        let bytes = self.bytes(16)?.try_into().ok()?;
        Some(RequestId::from_u128(u128::from_le_bytes(bytes)))
    }

    fn client(&mut self) -> Option<ClientId> {
        let bytes = self.bytes(8)?.try_into().ok()?;
        Some(ClientId::from_u64(u64::from_le_bytes(bytes)))
    }

    fn span(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_nanos)
    }

    fn moment(&mut self) -> Option<BootTime> {
        self.number().map(BootTime::from_nanos)
    }

    fn owner(&mut self) -> Option<OwnerId> {
        self.text().map(OwnerId::new)
    }

    /// The next claim.
    pub fn entry(&mut self) -> Option<Entry> {
        Some(Entry {
            ticket: self.number()?,
            request: self.request()?,
            owner: self.owner()?,
            client: Arc::new(ClientInfo::new(self.client()?, self.text()?, self.small()?)),
            units: self.small()?,
            limit: self.small()?,
            lease: self.span()?,
            lock_delay: self.span()?,
            label: self.maybe_text()?,
            value: self.maybe_text()?,
            phase: match self.byte()? {
                0 => Phase::Waiting,
                1 => Phase::Delayed { seq: 0 },
                2 => Phase::Held {
                    seq: self.number()?,
                },
                3 => Phase::Delayed {
                    seq: self.number()?,
                },
                _ => return None,
            },
            since: self.moment()?,
            until: self.moment()?,
        })
    }

    /// The next tombstone.
    pub fn ended(&mut self) -> Option<Ended> {
        let (request, seq, owner) = (self.request()?, self.number()?, self.owner()?);
        let code = self.byte()?;
        let at = self.moment()?;
        Some(Ended {
            request,
            seq: seq.checked_sub(1),
            owner,
            ending: ending_of(code & !KEPT)?,
            at,
            keep: match code & KEPT {
                0 => at,
                _ => self.moment()?,
            },
        })
    }

    fn ending(&mut self) -> Option<Ending> {
        ending_of(self.byte()?)
    }

    /// The next grant.
    pub fn grant(&mut self) -> Option<Grant> {
        let seq = self.number()?;
        let predecessor = match self.byte()? {
            0 => None,
            _ => Some(Predecessor {
                ending: self.ending()?,
                seq: self.number()?,
                owner: self.owner()?,
            }),
        };
        Some(Grant { seq, predecessor })
    }

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Flag of a tombstone with a mandatory retention.
const KEPT: u8 = 0x80;

fn ending_code(ending: Ending) -> u8 {
    match ending {
        Ending::Released => 0,
        Ending::Expired => 1,
        Ending::Evicted => 2,
    }
}

fn ending_of(code: u8) -> Option<Ending> {
    match code {
        0 => Some(Ending::Released),
        1 => Some(Ending::Expired),
        2 => Some(Ending::Evicted),
        _ => None,
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}
