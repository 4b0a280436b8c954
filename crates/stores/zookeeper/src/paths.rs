//! Where a lock is: `CHROOT/NAMESPACE/NAME`, each part one node.

use clinch_core::Name;

/// The folders of one namespace.
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

    /// The lock of a folder below the root, by the folder's own name.
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
/// escaped as well, so that no two names become one.
pub(crate) fn escape(name: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_and_stay_apart() {
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
}
