//! Differences between the layouts: keys, owners, channels, and errors for foreign keys.

use std::sync::LazyLock;

use clinch_core::store::PartyView;
use clinch_core::{ClientId, ClientInfo, Error, ErrorKind, Name, RequestId};
use clinch_kit::hash::fnv1a;

use super::{plain, redisson};
use crate::scripts::Script;

/// The library whose locks these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Strings, as redis-py, redsync and node-redlock keep them.
    Plain,
    /// Redisson's `RLock`.
    Redisson,
}

impl Layout {
    pub(super) fn script(self) -> &'static LazyLock<Script> {
        match self {
            Self::Plain => &plain::SCRIPT,
            Self::Redisson => &redisson::SCRIPT,
        }
    }

    /// The keys of a lock, its own first. That is the name and nothing else, as in the other library.
    pub(super) fn keys(self, name: &Name) -> Vec<String> {
        let mut keys = vec![name.to_string(), format!("clinch:ended:{name}")];
        if self == Self::Redisson {
            keys.push(redisson::queue(name));
        }
        keys
    }

    /// The channel on which releases of a lock are published, if any.
    pub(super) fn channel(self, name: &Name) -> Option<String> {
        match self {
            Self::Plain => None,
            Self::Redisson => Some(redisson::channel(name)),
        }
    }

    /// The owner of a claim as text: unique, and the same each time.
    pub(super) fn owner(self, request: RequestId, me: &ClientInfo) -> String {
        match self {
            Self::Plain => plain::owner(request, me),
            Self::Redisson => redisson::owner(request),
        }
    }

    /// Describes the holder with this text.
    pub(super) fn describe(self, owner: &str, count: &str, party: &mut PartyView) {
        match self {
            Self::Plain => plain::describe(owner, party),
            Self::Redisson => redisson::describe(count, party),
        }
    }

    /// The error for a key that is not a lock of this layout.
    pub(super) fn clash(self, name: &Name, kind: &str, fields: &[String]) -> Error {
        let (found, advice) = match kind {
            "string" => (
                "a string, as redis-py, redsync and node-redlock keep their locks",
                "use layout=plain for it, or another name",
            ),
            "fair" => (
                "a fair lock of Redisson, with clients in its queue",
                "use another name: a guest cannot join that queue",
            ),
            "hash" if fields.iter().any(|field| field == "mode") => (
                "a read-write lock of Redisson",
                "use another name: guests take part in its RLock only",
            ),
            "hash" if fields.iter().any(|field| redisson::is_owner(field)) => (
                "a hash, as Redisson keeps its locks",
                "use layout=redisson for it, or another name",
            ),
            _ => ("no lock at all", "use another name"),
        };
        let kind = match kind {
            "fair" => "hash",
            kind => kind,
        };
        Error::new(
            ErrorKind::Corrupt,
            format!("the key of this name holds {found} (type {kind})"),
        )
        .with_name(name.as_str())
        .with_advice(advice)
    }
}

/// The number of a hold, for the engine to match it by: a hash of the owner's text, so that every client
/// computes the same one. It does not rise, and is no fencing token.
pub(super) fn seq(owner: &str) -> u64 {
    // Tokens have 51 bits for it.
    (mix(fnv1a(owner.bytes())) >> 13).max(1)
}

/// Scatters the bits of a number; different numbers stay different.
pub(super) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The id of a client that is not known.
pub(super) fn unknown_client() -> ClientId {
    ClientId::from_u64(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_the_name() {
        let name = Name::new("orders/42").unwrap();
        for layout in [Layout::Plain, Layout::Redisson] {
            assert_eq!(layout.keys(&name)[0], "orders/42");
        }
    }

    #[test]
    fn a_clash_says_which_layout_is_there() {
        let name = Name::new("a").unwrap();
        let message = |layout: Layout, kind, field: &str| {
            let error = layout.clash(&name, kind, &[field.to_owned()]);
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            format!("{error}; {}", error.advice().unwrap())
        };
        assert!(message(Layout::Redisson, "string", "").contains("layout=plain"));
        let field = "285475da-9152-4c83-822a-67ee2f116a79:52";
        assert!(message(Layout::Plain, "hash", field).contains("layout=redisson"));
        assert!(message(Layout::Redisson, "hash", "mode").contains("read-write lock"));
        assert!(message(Layout::Plain, "hash", "a").contains("no lock at all"));
        assert!(message(Layout::Plain, "list", "").contains("no lock at all"));
    }

    #[test]
    fn numbers_fit_a_token_and_differ() {
        let (a, b) = (seq("a"), seq("b"));
        assert!(a != b && a < 1 << 51 && b < 1 << 51);
        assert_eq!(a, seq("a"));
    }
}
