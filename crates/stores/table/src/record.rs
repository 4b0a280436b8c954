//! How the columns of a row encode claims and times. The same bytes on every engine.

use std::time::Duration;

use clinch_core::machine::codec::Encoder;
use clinch_core::machine::{Ended, Entry, NameState};
use clinch_core::store::Ending;
use clinch_core::{BootTime, OwnerId, RequestId};

/// How many ended claims a plain row remembers.
pub(crate) const REMEMBERED: usize = 8;
/// The longest owner that fits into a plain row.
const OWNER: usize = 30;
/// One ended claim in a plain row: request, sequence number, ending, and the owner with its length.
pub(crate) const RECORD: usize = 16 + 8 + 1 + 1 + OWNER;
/// The length of the column `ended`, in bytes.
pub const ENDED_BYTES: u64 = (REMEMBERED * RECORD) as u64;

/// The start of the record that a fast release appends to `ended`; the owner column follows.
pub(crate) fn release_record(request: RequestId, seq: u64) -> Vec<u8> {
    let mut record = id(request);
    record.extend(seq.to_be_bytes());
    record.push(0);
    record
}

/// Forgets tombstones whose time is over, as far as there are more than a plain row has room for.
pub(crate) fn expire_tombstones(state: &mut NameState, now: BootTime) {
    let mut surplus = state.ended.len().saturating_sub(REMEMBERED);
    state.ended.retain_mut(|ended| {
        if ended.keep > now {
            return true;
        }
        ended.keep = ended.at;
        let forget = surplus > 0;
        surplus = surplus.saturating_sub(1);
        !forget
    });
}

/// An ended claim in a plain row; `None` for a tombstone that must be kept by time.
pub(crate) fn record(ended: &Ended) -> Option<Vec<u8>> {
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

/// The ended claim that `record` has encoded.
pub(crate) fn read_record(record: &[u8], at: BootTime) -> Option<Ended> {
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

/// The owner padded to a fixed length; `None` if it is too long.
pub(crate) fn padded(owner: &OwnerId) -> Option<Vec<u8>> {
    let text = owner.as_str().as_bytes();
    if text.len() > OWNER {
        return None;
    }
    let mut padded = vec![u8::try_from(text.len()).ok()?];
    padded.extend(text);
    padded.resize(1 + OWNER, 0);
    Some(padded)
}

/// A claim in the column `details`.
pub(crate) fn encoded(entry: &Entry) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.entry(entry);
    encoder.finish()
}

/// A request in the column `request`.
///
/// ```
/// # use clinch_core::RequestId;
/// assert_eq!(clinch_table::id(RequestId::from_u128(7))[15], 7);
/// ```
pub fn id(request: RequestId) -> Vec<u8> {
    request.as_u128().to_be_bytes().to_vec()
}

/// The request that `id` has encoded.
pub(crate) fn read_id(bytes: &[u8]) -> Option<RequestId> {
    let bytes = bytes.try_into().ok()?;
    Some(RequestId::from_u128(u128::from_be_bytes(bytes)))
}

/// Microseconds of the server's clock as a moment of the machine.
pub(crate) fn moment(micros: u64) -> BootTime {
    BootTime::from_nanos(micros.saturating_mul(1000))
}

/// The reverse; rounded up, so that no lease ends early.
pub(crate) fn micros(moment: BootTime) -> u64 {
    moment.as_nanos().div_ceil(1000)
}

/// A duration in microseconds, rounded up.
pub(crate) fn span(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
