//! Names of keys.
//!
//! | key | what it is |
//! |---|---|
//! | `NAMESPACE/NAME/SLOT` | a claim of a mutex; any other key below `NAMESPACE/NAME/` belongs to another library |
//! | `NAMESPACE/NAME/sLIMIT-SLOT` | a claim of a semaphore or read-write lock |
//! | `NAMESPACE/NAME.!delay-LIMIT-SLOT` | delay key: keeps the name for the lock-delay after an unclean end |
//! | `NAMESPACE/NAME.!ended` | end record of the last hold that was released or evicted |
//! | `NAMESPACE/NAME.!gone-REQUEST` | tombstone of a claim that must not be created (again): withdrawn, evicted, or ended while a copy of it may be under way |
//! | `NAMESPACE/NAME.!held` | grant record: the last claim that was granted |
//!
//! A key slot is a client id and a small number that no other live claim of that client uses; the
//! request id is in the value. With a new key for each claim, every claim would make etcd scan all keys
//! that the name has had since the last compaction.
//!
//! `/` and `%` in a name are escaped, so no name lies inside another name's directory. Keys that are not
//! claims contain only one `/`, so no claim and no other library collides with them. `.` is the byte
//! before `/`: all keys of a name form one range, which one watch covers.

use clinch_core::{Name, RequestId};

const MARK: &str = ".!";

/// The keys of one namespace.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// The namespace and its `/`.
    prefix: String,
}

/// A half-open range of keys: start, end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange(pub(crate) Vec<u8>, pub(crate) Vec<u8>);

/// The key slot of a claim: client id, and a number that is unique within the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeySlot(pub(crate) u64, pub(crate) u64);

impl std::fmt::Display for KeySlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.0, self.1)
    }
}

/// What a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Claim(KeySlot),
    /// A claim of another library.
    Foreign,
    Delay(KeySlot),
    Ended,
    Gone(RequestId),
    Held,
}

impl Keys {
    pub(crate) fn new(namespace: &str) -> Self {
        Self {
            prefix: format!("{namespace}/"),
        }
    }

    fn of(&self, name: &str) -> String {
        let mut key = self.prefix.clone();
        for char in name.chars() {
            match char {
                '%' => key.push_str("%25"),
                '/' => key.push_str("%2F"),
                char => key.push(char),
            }
        }
        key
    }

    pub(crate) fn claim(&self, name: &Name, limit: u32, slot: KeySlot) -> Vec<u8> {
        let key = self.of(name.as_str());
        match limit {
            1 => format!("{key}/{slot}"),
            limit => format!("{key}/s{limit:08x}-{slot}"),
        }
        .into_bytes()
    }

    pub(crate) fn delay(&self, name: &Name, limit: u32, slot: KeySlot) -> Vec<u8> {
        let key = self.of(name.as_str());
        format!("{key}{MARK}delay-{limit:08x}-{slot}").into_bytes()
    }

    pub(crate) fn ended(&self, name: &Name) -> Vec<u8> {
        format!("{}{MARK}ended", self.of(name.as_str())).into_bytes()
    }

    pub(crate) fn gone(&self, name: &Name, request: RequestId) -> Vec<u8> {
        format!("{}{MARK}gone-{request}", self.of(name.as_str())).into_bytes()
    }

    pub(crate) fn held(&self, name: &Name) -> Vec<u8> {
        format!("{}{MARK}held", self.of(name.as_str())).into_bytes()
    }

    /// All claims of a name.
    pub(crate) fn claims(&self, name: &Name) -> KeyRange {
        KeyRange::below(format!("{}/", self.of(name.as_str())))
    }

    /// Ranges of claims and delay keys with another limit: a claim requires them to be empty.
    pub(crate) fn other_limits(&self, name: &Name, limit: u32) -> Vec<KeyRange> {
        let (claims, key) = (self.claims(name), self.of(name.as_str()));
        let delays = KeyRange::below(format!("{key}{MARK}delay-"));
        let own = match limit {
            1 => KeyRange(claims.0.clone(), format!("{key}/s").into_bytes()),
            limit => KeyRange::below(format!("{key}/s{limit:08x}-")),
        };
        let own_delays = KeyRange::below(format!("{key}{MARK}delay-{limit:08x}-"));
        [
            KeyRange(claims.0, own.0),
            KeyRange(own.1, claims.1),
            KeyRange(delays.0, own_delays.0),
            KeyRange(own_delays.1, delays.1),
        ]
        .into_iter()
        .filter(|range| range.0 < range.1)
        .collect()
    }

    /// The delay keys of a name.
    pub(crate) fn delays(&self, name: &Name) -> KeyRange {
        KeyRange::below(format!("{}{MARK}delay-", self.of(name.as_str())))
    }

    /// All keys of a name. Keys of names that continue with `.` lie in the same range.
    pub(crate) fn all(&self, name: &Name) -> KeyRange {
        let key = self.of(name.as_str());
        KeyRange(
            format!("{key}{MARK}").into_bytes(),
            format!("{key}0").into_bytes(),
        )
    }

    /// All keys of names with this prefix.
    pub(crate) fn starting(&self, prefix: &str) -> KeyRange {
        KeyRange::below(self.of(prefix))
    }

    /// The name that a key belongs to, and its kind; `None` for a key that is not ours.
    pub(crate) fn parse(&self, key: &[u8]) -> Option<(Name, Kind)> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (name, kind) = match rest.split_once('/') {
            Some((name, claim)) => {
                let own = match claim.strip_prefix('s') {
                    Some(rest) => rest.split_once('-').map(|(_, slot)| slot),
                    None => Some(claim),
                };
                let slot = own.and_then(slot);
                (name, slot.map_or(Kind::Foreign, Kind::Claim))
            }
            None => {
                let (name, kind) = rest.rsplit_once(MARK)?;
                let kind = match kind {
                    "ended" => Kind::Ended,
                    "held" => Kind::Held,
                    _ => match kind.strip_prefix("gone-") {
                        Some(gone) => Kind::Gone(request(gone)?),
                        None => {
                            let delay = kind.strip_prefix("delay-")?;
                            Kind::Delay(slot(delay.split_once('-')?.1)?)
                        }
                    },
                };
                (name, kind)
            }
        };
        let name = clinch_core::percent_decode(name)?;
        Some((Name::new(name).ok()?, kind))
    }
}

fn request(text: &str) -> Option<RequestId> {
    let plain = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| text.parse().ok()).flatten()
}

fn slot(text: &str) -> Option<KeySlot> {
    request(text)?;
    let (client, number) = text.split_at_checked(16)?;
    let half = |text| u64::from_str_radix(text, 16).ok();
    Some(KeySlot(half(client)?, half(number)?))
}

impl KeyRange {
    /// All keys with this prefix.
    fn below(start: String) -> Self {
        let start = start.into_bytes();
        let mut end = start.clone();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                break;
            }
        }
        Self(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(range: &KeyRange, key: &[u8]) -> bool {
        range.0.as_slice() <= key && key < range.1.as_slice()
    }

    #[test]
    fn keys_are_parsed_back() {
        let keys = Keys::new("app");
        let (id, slot) = (RequestId::from_u128(77), KeySlot(7, 9));
        for name in [
            "a",
            "a/b",
            "a%2Fb",
            ".!",
            "a.!ended",
            "ü",
            "a.!delay-x",
            "s",
        ] {
            let name = Name::new(name).unwrap();
            for (key, kind) in [
                (keys.claim(&name, 1, slot), Kind::Claim(slot)),
                (keys.claim(&name, 5, slot), Kind::Claim(slot)),
                (keys.delay(&name, u32::MAX, slot), Kind::Delay(slot)),
                (keys.ended(&name), Kind::Ended),
                (keys.gone(&name, id), Kind::Gone(id)),
                (keys.held(&name), Kind::Held),
            ] {
                assert_eq!(keys.parse(&key), Some((name.clone(), kind)));
                assert!(holds(&keys.all(&name), &key));
                assert!(holds(&keys.starting(name.as_str()), &key));
                let claim = matches!(kind, Kind::Claim(_));
                assert_eq!(holds(&keys.claims(&name), &key), claim);
            }
        }
        let foreign = keys.parse(b"app/a/694d71ddacfda227").unwrap();
        assert_eq!(foreign, (Name::new("a").unwrap(), Kind::Foreign));
        assert_eq!(keys.parse(b"other/a/1"), None);
    }

    #[test]
    fn no_name_lies_inside_another() {
        let keys = Keys::new("app");
        let (a, id) = (Name::new("a").unwrap(), KeySlot(1, 1));
        for other in ["a/b", "a.", "a.!ended", "a0", "a.!gone-1"] {
            let key = keys.claim(&Name::new(other).unwrap(), 1, id);
            assert!(!holds(&keys.claims(&a), &key), "{other}");
            assert!(!holds(&keys.delays(&a), &key), "{other}");
        }
    }

    #[test]
    fn other_limits_are_all_but_the_own() {
        let keys = Keys::new("app");
        let (a, id) = (Name::new("a").unwrap(), KeySlot(1, 1));
        let limits = [1, 2, 5, 0x100, u32::MAX];
        for own in limits {
            let others = keys.other_limits(&a, own);
            let met = |key: &[u8]| others.iter().any(|range| holds(range, key));
            for limit in limits {
                assert_eq!(met(&keys.claim(&a, limit, id)), limit != own);
                assert_eq!(met(&keys.delay(&a, limit, id)), limit != own);
            }
            assert_eq!(met(b"app/a/694d71ddacfda227"), own != 1);
            assert!(!met(&keys.held(&a)) && !met(&keys.ended(&a)));
        }
    }
}
