//! A key in each slot of a cluster, for the highest number of its names.
//!
//! A script may use the keys of one slot only. The slot of a key is a checksum of the text in its braces. That
//! checksum is linear: a digit 1 instead of 0 flips the same bits of it, whatever the other digits are. So the
//! digits that lead to a slot are computed, not searched for.

use std::sync::LazyLock;

use super::slots::{SLOTS, crc16};

/// How many digits, each 0 or 1: as many as it takes to reach every slot.
const DIGITS: usize = 16;

/// For each bit of a slot, the digits that flip this bit and no other.
static DIGITS_OF: LazyLock<Vec<u16>> = LazyLock::new(digits_of);

/// The keys of the highest numbers, one for each slot.
#[derive(Debug)]
pub(crate) struct SlotKeys {
    /// Their common prefix, with the opening brace.
    prefix: String,
    /// The slot that digits of zero lead to.
    origin: u16,
}

impl SlotKeys {
    /// The prefix ends within the braces.
    pub(crate) fn new(prefix: &str) -> Self {
        let tag = prefix.split_once('{').map_or("", |(_, tag)| tag);
        Self {
            origin: crc16(crc16(0, tag.as_bytes()), &[b'0'; DIGITS]) % SLOTS,
            prefix: prefix.to_owned(),
        }
    }

    /// The key in this slot.
    pub(crate) fn key(&self, slot: u16) -> String {
        let differs = slot ^ self.origin;
        let bits = DIGITS_OF.iter().enumerate();
        let bits = bits.filter(|(bit, _)| differs >> bit & 1 == 1);
        let digits = bits.fold(0, |digits, (_, of_bit)| digits ^ of_bit);
        format!("{}{digits:0DIGITS$b}}}highest", self.prefix)
    }
}

/// Solves, for each bit of a slot, which digits flip it alone (Gauss–Jordan elimination).
fn digits_of() -> Vec<u16> {
    // The bits that each digit flips, with the digit.
    let mut rows: Vec<(u16, u16)> = (0..DIGITS)
        .map(|at| {
            let mut one = [0; DIGITS];
            if let Some(digit) = one.iter_mut().rev().nth(at) {
                *digit = 1;
            }
            (crc16(0, &one) % SLOTS, 1 << at)
        })
        .collect();
    let mut solved = Vec::new();
    for bit in 0..SLOTS.trailing_zeros() {
        let has = |(changes, _): &(u16, u16)| changes >> bit & 1 == 1;
        let Some(at) = rows.iter().position(has) else {
            // Unreachable: a test checks every slot.
            return Vec::new();
        };
        let row = rows.swap_remove(at);
        let add = |other: &mut (u16, u16)| {
            if has(other) {
                *other = (other.0 ^ row.0, other.1 ^ row.1);
            }
        };
        rows.iter_mut().for_each(add);
        solved.iter_mut().for_each(add);
        solved.push(row);
    }
    solved.into_iter().map(|(_, digits)| digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::slot_of;

    #[test]
    fn each_slot_has_a_key_of_its_own() {
        for namespace in ["clinch", "a", "billing-eu.v2"] {
            let keys = SlotKeys::new(&format!("clinch:{{{namespace}:"));
            for slot in 0..SLOTS {
                let key = keys.key(slot);
                assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
                assert!(key.starts_with("clinch:{") && key.ends_with("}highest"));
            }
        }
    }
}
