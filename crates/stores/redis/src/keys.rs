//! Names of keys and channels.
//!
//! All keys of a lock begin with `clinch:{NAMESPACE:NAME}`, so they lie in one slot of a cluster, and
//! no other lock's keys begin so: a namespace has no `:`, the first key ends with `}` and the others
//! with a letter.

use std::sync::Arc;

use clinch_core::{ClientId, Name};

use crate::cluster::{SlotKeys, slot_of};

/// The keys and channels of one namespace.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// The prefix of the keys of names.
    prefix: String,
    /// The prefix of the channels with the grants of a client.
    pub(crate) wake: String,
    /// The channel of events.
    pub(crate) events: String,
    /// Strict mode: the key that shows whether the data are those of this run of the server.
    pub(crate) epoch: String,
    /// The key of the highest number of all names. The access rules for states cover it.
    pub(crate) highest: String,
    /// The same on a cluster, for the names of each slot.
    slots: Arc<SlotKeys>,
}

impl Keys {
    pub(crate) fn new(namespace: &str) -> Self {
        let prefix = format!("clinch:{{{namespace}:");
        Self {
            slots: Arc::new(SlotKeys::new(&prefix)),
            prefix,
            wake: format!("clinch:{namespace}:wake:"),
            events: format!("clinch:{namespace}:events"),
            epoch: format!("clinch:{namespace}:epoch"),
            highest: format!("clinch:{{{namespace}:}}highest"),
        }
    }

    /// The key of a name's state.
    pub(crate) fn state(&self, name: &Name) -> String {
        format!("{}{name}}}", self.prefix)
    }

    /// The key of the highest number of all names whose state is in the same slot of a cluster as this key.
    pub(crate) fn highest_beside(&self, key: &str) -> String {
        self.slots.key(slot_of(key.as_bytes()))
    }

    /// The name whose state has this key.
    pub(crate) fn name(&self, key: &[u8]) -> Option<Name> {
        let name = key.strip_prefix(self.prefix.as_bytes())?;
        let name = name.strip_suffix(b"}")?;
        Name::new(std::str::from_utf8(name).ok()?).ok()
    }

    /// The channel with the grants of a client.
    pub(crate) fn channel(&self, client: ClientId) -> String {
        format!("{}{client}", self.wake)
    }

    /// The glob pattern of the states of names with this prefix.
    pub(crate) fn pattern(&self, prefix: &str) -> String {
        let mut pattern = self.prefix.clone();
        for char in prefix.chars() {
            if matches!(char, '*' | '?' | '[' | ']' | '^' | '\\') {
                pattern.push('\\');
            }
            pattern.push(char);
        }
        pattern.push_str("*}");
        pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_way_to_their_key_and_back() {
        let keys = Keys::new("app");
        for text in ["a", "a}", "{a}:q", "a}:q", "ä/b c", "*"] {
            let name = Name::new(text).unwrap();
            assert_eq!(keys.name(keys.state(&name).as_bytes()), Some(name));
        }
        assert_eq!(keys.name(b"clinch:{app:a}:q"), None);
        assert_eq!(keys.name(b"clinch:{other:a}"), None);
        assert_eq!(keys.name(keys.highest.as_bytes()), None);
        assert_eq!(keys.name(keys.highest_beside("x").as_bytes()), None);
    }

    #[test]
    fn a_prefix_is_meant_literally() {
        assert_eq!(Keys::new("app").pattern("a*[b]"), r"clinch:{app:a\*\[b\]*}");
    }
}
