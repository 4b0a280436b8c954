//! What this client may have at the store: `close` has to end it.

use std::collections::HashMap;

use clinch_core::{Name, RequestId};

/// The claims that this client may have at the store, in step with what is committed.
#[derive(Debug, Default)]
pub(crate) struct Mine {
    known: HashMap<RequestId, Name>,
    /// What the open transaction changes: `None` where a claim ends.
    pending: HashMap<RequestId, Option<Name>>,
}

impl Mine {
    /// A claim is at the store, once the transaction is committed.
    pub(crate) fn add(&mut self, request: RequestId, name: Name) {
        self.pending.insert(request, Some(name));
    }

    /// A claim is not at the store any more, once the transaction is committed.
    pub(crate) fn remove(&mut self, request: RequestId) {
        self.pending.insert(request, None);
    }

    /// None is left, once the transaction is committed.
    pub(crate) fn remove_all(&mut self) {
        let known = self.known.keys().copied();
        self.pending = known.map(|request| (request, None)).collect();
    }

    /// The names with claims, as the open transaction sees them, in order.
    pub(crate) fn names(&self) -> Vec<Name> {
        let unchanged = self.known.iter();
        let unchanged = unchanged.filter(|(request, _)| !self.pending.contains_key(request));
        let unchanged = unchanged.map(|(_, name)| name);
        let added = self.pending.values().flatten();
        let mut names: Vec<Name> = unchanged.chain(added).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    /// The transaction is committed.
    pub(crate) fn committed(&mut self) {
        for (request, name) in self.pending.drain() {
            match name {
                Some(name) => self.known.insert(request, name),
                None => self.known.remove(&request),
            };
        }
    }

    /// The commit failed: what it added may be at the store, and so may what it ended.
    pub(crate) fn unsure(&mut self) {
        let added = self.pending.drain();
        let added = added.filter_map(|(request, name)| Some((request, name?)));
        self.known.extend(added);
    }

    /// The transaction is undone.
    pub(crate) fn rolled_back(&mut self) {
        self.pending.clear();
    }

    /// Whether nothing can be left at the store.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clinch_core::Identity;

    #[test]
    fn only_a_commit_ends_a_claim() {
        let (identity, mut mine) = (Identity::new(), Mine::default());
        let (a, b) = (identity.request(), identity.request());
        let name = |text: &str| Name::new(text).unwrap();
        mine.add(a, name("a"));
        assert_eq!(mine.names(), [name("a")]);
        mine.rolled_back();
        assert!(mine.is_empty() && mine.names().is_empty());

        mine.add(a, name("a"));
        mine.committed();
        mine.remove(a);
        mine.add(b, name("b"));
        assert_eq!(mine.names(), [name("b")]);
        mine.unsure();
        assert_eq!(mine.names(), [name("a"), name("b")]);

        mine.remove_all();
        assert!(mine.names().is_empty() && !mine.is_empty());
        mine.rolled_back();
        assert_eq!(mine.names().len(), 2);
        mine.remove_all();
        mine.committed();
        assert!(mine.is_empty());
    }
}
