//! A key in each slot of a cluster, for what its names share.
//!
//! A script has the keys of one slot only. Which slot a key is in is decided by the text in its braces: a number
//! there is looked for that leads to the slot.

use std::sync::OnceLock;

use crate::slots::{SLOTS, crc16};

/// More numbers than it takes to find one for each slot.
const MOST: u32 = 10_000_000;

/// The keys of the highest numbers, one for each slot.
#[derive(Debug)]
pub(crate) struct SlotKeys {
    /// What they begin with: the brace opens in it.
    prefix: String,
    /// By the slot, the number in the braces. Looked for when first needed, which takes some milliseconds.
    numbers: OnceLock<Vec<Option<u32>>>,
}

impl SlotKeys {
    /// The prefix ends within the braces.
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            numbers: OnceLock::new(),
        }
    }

    /// The key in this slot; empty if there is none.
    pub(crate) fn key(&self, slot: u16) -> String {
        let numbers = self.numbers.get_or_init(|| numbers(&self.prefix));
        match numbers.get(usize::from(slot)) {
            Some(Some(number)) => format!("{}{number}}}highest", self.prefix),
            _ => String::new(),
        }
    }
}

fn numbers(prefix: &str) -> Vec<Option<u32>> {
    let mut found = vec![None; usize::from(SLOTS)];
    let tag = prefix.split_once('{').map_or("", |(_, tag)| tag);
    let before = crc16(0, tag.as_bytes());
    let mut left = found.len();
    for number in 0..MOST {
        let slot = crc16(before, number.to_string().as_bytes()) % SLOTS;
        if let Some(place) = found.get_mut(usize::from(slot))
            && place.is_none()
        {
            *place = Some(number);
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::slot_of;

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
