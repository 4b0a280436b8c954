//! The ledger of this client's claims: `close` has to end them.

use std::collections::HashMap;

use clinch_core::{Name, RequestId};

/// The claims that this client may have at the store, in step with what is committed.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    committed: HashMap<RequestId, Name>,
    /// The changes of the open transaction: `None` where a claim ends.
    pending: HashMap<RequestId, Option<Name>>,
}

impl Ledger {
    /// The open transaction adds a claim.
    pub(crate) fn add(&mut self, request: RequestId, name: Name) {
        self.pending.insert(request, Some(name));
    }

    /// The open transaction ends a claim.
    pub(crate) fn remove(&mut self, request: RequestId) {
        self.pending.insert(request, None);
    }

    /// The open transaction ends all claims.
    pub(crate) fn remove_all(&mut self) {
        let committed = self.committed.keys().copied();
        self.pending = committed.map(|request| (request, None)).collect();
    }

    /// The names with claims, as the open transaction sees them, in order.
    pub(crate) fn names(&self) -> Vec<Name> {
        let unchanged = self.committed.iter();
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
                Some(name) => self.committed.insert(request, name),
                None => self.committed.remove(&request),
            };
        }
    }

    /// The commit failed: the claims that it added may be at the store, and so may those it ended.
    pub(crate) fn commit_unknown(&mut self) {
        let added = self.pending.drain();
        let added = added.filter_map(|(request, name)| Some((request, name?)));
        self.committed.extend(added);
    }

    /// The transaction is rolled back.
    pub(crate) fn rolled_back(&mut self) {
        self.pending.clear();
    }

    /// Whether no claim can be left at the store.
    pub(crate) fn is_empty(&self) -> bool {
        self.committed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clinch_core::Identity;

    #[test]
    fn only_a_commit_ends_a_claim() {
        let (identity, mut ledger) = (Identity::new(), Ledger::default());
        let (a, b) = (identity.request(), identity.request());
        let name = |text: &str| Name::new(text).unwrap();
        ledger.add(a, name("a"));
        assert_eq!(ledger.names(), [name("a")]);
        ledger.rolled_back();
        assert!(ledger.is_empty() && ledger.names().is_empty());

        ledger.add(a, name("a"));
        ledger.committed();
        ledger.remove(a);
        ledger.add(b, name("b"));
        assert_eq!(ledger.names(), [name("b")]);
        ledger.commit_unknown();
        assert_eq!(ledger.names(), [name("a"), name("b")]);

        ledger.remove_all();
        assert!(ledger.names().is_empty() && !ledger.is_empty());
        ledger.rolled_back();
        assert_eq!(ledger.names().len(), 2);
        ledger.remove_all();
        ledger.committed();
        assert!(ledger.is_empty());
    }
}
