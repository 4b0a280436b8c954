//! Paths and names of nodes: `CHROOT/NAMESPACE/NAME/CHILD`.
//!
//! The names of children are Curator's: `_c_ID-lock-NUMBER` for a mutex, `_c_ID-__READ__NUMBER` and
//! `_c_ID-__WRIT__NUMBER` for a read-write lock. A semaphore has names of its own,
//! `_c_ID-sem-UNITS-LIMIT-NUMBER`. A lock-delay keeps the number of the hold that it follows: `_d_ID-…`.

use clinch_core::store::Claim;
use clinch_core::store::fifo::Place;
use clinch_core::{Name, RequestId};

/// The paths of one namespace.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// `CHROOT/NAMESPACE`.
    root: String,
}

impl Paths {
    pub(crate) fn new(chroot: &str, namespace: &str) -> Self {
        Self {
            root: format!("{chroot}/{}", escape(namespace)),
        }
    }

    /// The folder of all locks.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The folder of one lock.
    pub(crate) fn folder(&self, name: &Name) -> String {
        format!("{}/{}", self.root, escape(name.as_str()))
    }

    /// The lock of a folder, given its name below the root.
    pub(crate) fn name(&self, folder: &str) -> Option<Name> {
        Name::new(clinch_core::percent_decode(folder)?).ok()
    }

    /// All folders above a path, the topmost first.
    pub(crate) fn above(path: &str) -> impl Iterator<Item = &str> {
        path.match_indices('/')
            .filter(|(at, _)| *at > 0)
            .filter_map(move |(at, _)| path.get(..at))
    }
}

/// A name as one part of a path. ZooKeeper forbids slashes and some ranges of characters; `%` is
/// escaped as well, so that different names have different paths.
fn escape(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        let dots = (name == "." || name == "..") && at == 0;
        if dots || is_forbidden(c) {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                text += &format!("%{byte:02X}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

fn is_forbidden(c: char) -> bool {
    matches!(c, '%' | '/' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}'
        | '\u{fff0}'..='\u{ffff}' | '\u{10000}'..)
}

/// A child of a lock's folder, parsed from its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) name: String,
    /// Its position in the order of arrival.
    pub(crate) number: i64,
    pub(crate) place: Place,
    /// Whether it is the lock-delay of an evicted hold.
    pub(crate) is_delay: bool,
}

/// The start of the name of a claim's node; the server appends the number.
pub(crate) fn prefix(claim: &Claim) -> String {
    let id = claim.request;
    match (claim.units, claim.limit) {
        (_, 1) => format!("_c_{id}-lock-"),
        (u32::MAX, u32::MAX) => format!("_c_{id}-__WRIT__"),
        (1, u32::MAX) => format!("_c_{id}-__READ__"),
        (units, limit) => format!("_c_{id}-sem-{units}-{limit}-"),
    }
}

/// The name of the lock-delay that follows a hold, with the same number.
pub(crate) fn delay_name(child: &str) -> Option<String> {
    child.strip_prefix("_c_").map(|rest| format!("_d_{rest}"))
}

impl Child {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        // Servers write numbers with ten digits at least.
        let start = name.rfind(|c: char| !c.is_ascii_digit())? + 1;
        let (kind, digits) = name.split_at(start);
        let (units, limit) = if kind.ends_with("lock-") {
            (1, 1)
        } else if kind.ends_with("__WRIT__") {
            (u32::MAX, u32::MAX)
        } else if kind.ends_with("__READ__") {
            (1, u32::MAX)
        } else {
            let (_, counts) = kind.strip_suffix('-')?.split_once("-sem-")?;
            let (units, limit) = counts.split_once('-')?;
            (units.parse().ok()?, limit.parse().ok()?)
        };
        (digits.len() >= 10).then_some(())?;
        Some(Self {
            number: digits.parse().ok()?,
            place: Place { units, limit },
            is_delay: name.starts_with("_d_"),
            name: name.to_owned(),
        })
    }

    /// The request that it belongs to; `None` for a node of another library.
    pub(crate) fn request(&self) -> Option<RequestId> {
        let (id, _) = self.name.get(3..)?.split_once('-')?;
        (id.len() == 32).then(|| id.parse().ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_and_never_collide() {
        let paths = Paths::new("/app", "clinch");
        let names = [
            "a",
            "a/b",
            "a%2Fb",
            ".",
            "..",
            "...",
            "ünï",
            "🔒",
            "a b",
            "zookeeper",
            "\u{feff}",
        ];
        let mut seen = std::collections::BTreeSet::new();
        for name in names {
            let name = Name::new(name).unwrap();
            let folder = paths.folder(&name);
            let last = folder.rsplit('/').next().unwrap();
            assert_eq!(folder, format!("/app/clinch/{last}"));
            assert!(last != "." && last != "..");
            assert_eq!(paths.name(last), Some(name));
            assert!(seen.insert(folder));
        }
        assert_eq!(paths.folder(&Name::new("a").unwrap()), "/app/clinch/a");
    }

    #[test]
    fn folders_above() {
        let above: Vec<_> = Paths::above("/app/clinch/a").collect();
        assert_eq!(above, ["/app", "/app/clinch"]);
    }

    #[test]
    fn children_of_all_kinds_are_parsed() {
        let id = "00112233445566778899aabbccddeeff";
        let parse = |name: &str| Child::parse(name).unwrap();
        let child = parse(&format!("_c_{id}-lock-0000000012"));
        assert_eq!((child.number, child.place), (12, Place::EXCLUSIVE));
        assert_eq!(child.request(), id.parse().ok());
        let curator = parse("_c_7d1e3b9c-1f0e-4d0c-8b1a-3a2f6d1e9b7c-lock-0000000003");
        assert_eq!((curator.number, curator.request()), (3, None));
        assert_eq!(parse("_c_x-__READ__0000000001").place.units, 1);
        assert_eq!(parse("_c_x-__WRIT__0000000001").place.units, u32::MAX);
        let permit = parse(&format!("_c_{id}-sem-2-5-0000000007"));
        assert_eq!((permit.place.units, permit.place.limit), (2, 5));
        let delay = parse(&delay_name(&permit.name).unwrap());
        assert!(delay.is_delay);
        assert_eq!(delay.number, 7);
    }
}
