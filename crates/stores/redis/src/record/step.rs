//! The steps of the script, packed.

use std::ops::Range;
use std::time::Duration;

use clinch_core::RequestId;
use clinch_core::store::{Claim, Hold, Renewal};

use super::millis;

/// Where a packed claim has `latest`.
const LATEST: Range<usize> = 25..33;

pub(crate) fn claim(claim: &Claim, after: u64) -> Vec<u8> {
    claim_as(u8::from(claim.queue), claim, after)
}

/// The first phase of a claim on several servers: it is not held until it is committed.
pub(crate) fn prepare(claim: &Claim, after: u64) -> Vec<u8> {
    claim_as(2, claim, after)
}

/// Sets until when the server may apply this claim as a new one, by the server's clock.
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
    // From here on the same as in the record.
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

/// Commits a prepared claim by a vote of this server.
pub(crate) fn vote(request: RequestId, to: u64, lease: Duration) -> Vec<u8> {
    commit(request, 0, to, lease, 1)
}

/// Commits a claim that was prepared as `from` with the token that was granted.
pub(crate) fn catch_up(request: RequestId, from: u64, to: u64, lease: Duration) -> Vec<u8> {
    commit(request, from, to, lease, 0)
}

fn commit(request: RequestId, from: u64, to: u64, lease: Duration, vote: u8) -> Vec<u8> {
    let mut out = head(b't', request, 21);
    out.extend(from.to_le_bytes());
    out.extend(to.to_le_bytes());
    out.extend(millis(lease).to_le_bytes());
    out.push(vote);
    out
}

/// Aborts a claim that was prepared or committed with one of these numbers.
pub(crate) fn abort(request: RequestId, numbers: [u64; 2]) -> Vec<u8> {
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

/// Sets until when a copy of the claim may be applied: until then this release or withdrawal is
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

/// The parts of a claim for people; the script reads the owner only.
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
    // The API refuses longer texts.
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
