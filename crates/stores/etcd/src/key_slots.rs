//! Assigns key slots to claims, and reuses them.

use std::collections::{BTreeSet, HashMap};

use clinch_core::Name;

use crate::keys::KeySlot;

/// For how many names the last key slot is kept.
const MAX_NAMES: usize = 4096;

/// The key slots of one client. A claim takes one, and returns it when no trace of the claim can be left
/// or arrive any more.
#[derive(Debug, Default)]
pub(crate) struct KeySlots {
    client: u64,
    free: BTreeSet<u64>,
    created: u64,
    /// The last slot of each name: a name that is claimed repeatedly keeps the same key.
    preferred: HashMap<Name, u64>,
}

impl KeySlots {
    pub(crate) fn new(client: u64) -> Self {
        Self {
            client,
            ..Self::default()
        }
    }

    pub(crate) fn take(&mut self, name: &Name) -> KeySlot {
        let preferred = self.preferred.get(name).copied();
        let number = preferred.filter(|number| self.free.remove(number));
        let number = number.or_else(|| self.free.pop_first()).unwrap_or_else(|| {
            self.created += 1;
            self.created
        });
        if self.preferred.len() >= MAX_NAMES && !self.preferred.contains_key(name) {
            self.preferred.clear();
        }
        self.preferred.insert(name.clone(), number);
        KeySlot(self.client, number)
    }

    pub(crate) fn free(&mut self, slot: KeySlot) {
        self.free.insert(slot.1);
    }
}
