//! Names of keys.
//!
//! | key | what |
//! |---|---|
//! | `NAMESPACE/NAME/SEAT` | a claim of a mutex; any other key below `NAMESPACE/NAME/` is one of another library |
//! | `NAMESPACE/NAME/sLIMIT-SEAT` | a claim of a semaphore or read-write lock |
//! | `NAMESPACE/NAME.!delay-LIMIT-SEAT` | what stays of a claim with a lock-delay |
//! | `NAMESPACE/NAME.!ended` | the last hold that ended with a word |
//! | `NAMESPACE/NAME.!gone-REQUEST` | a claim that must not come (again), or was evicted |
//! | `NAMESPACE/NAME.!held` | the last claim that was granted |
//!
//! A seat is a client and a small number that no other claim of the client uses at that time; the
//! request is in the value. Were each claim a new key, etcd would look through all keys that a name has
//! ever had since the last compaction, with each claim.
//!
//! A name's `/` and `%` are escaped, so that no name lies inside another one's directory. What is not a
//! claim has one `/` only, so no claim and no other library ever meets it. And `.` is the byte before
//! `/`: all keys of a name are one range, which one watch covers.

use clinch_core::{Name, RequestId};

const MARK: &str = ".!";

/// The keys of one namespace.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// With its `/`.
    prefix: String,
}

/// A range of keys: from the first to before the second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Vec<u8>, pub(crate) Vec<u8>);

/// Where a claim stands: a client, and a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seat(pub(crate) u64, pub(crate) u64);

impl std::fmt::Display for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.0, self.1)
    }
}

/// What a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Claim(Seat),
    /// Of another library.
    Foreign,
    Delay(Seat),
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

    pub(crate) fn claim(&self, name: &Name, limit: u32, seat: Seat) -> Vec<u8> {
        let key = self.of(name.as_str());
        match limit {
            1 => format!("{key}/{seat}"),
            limit => format!("{key}/s{limit:08x}-{seat}"),
        }
        .into_bytes()
    }

    pub(crate) fn delay(&self, name: &Name, limit: u32, seat: Seat) -> Vec<u8> {
        let key = self.of(name.as_str());
        format!("{key}{MARK}delay-{limit:08x}-{seat}").into_bytes()
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
    pub(crate) fn line(&self, name: &Name) -> Span {
        Span::below(format!("{}/", self.of(name.as_str())))
    }

    /// Claims with another limit: what a claim with this one must not meet.
    pub(crate) fn other_limits(&self, name: &Name, limit: u32) -> Vec<Span> {
        let (line, key) = (self.line(name), self.of(name.as_str()));
        let delays = Span::below(format!("{key}{MARK}delay-"));
        let own = match limit {
            1 => Span(line.0.clone(), format!("{key}/s").into_bytes()),
            limit => Span::below(format!("{key}/s{limit:08x}-")),
        };
        let late = Span::below(format!("{key}{MARK}delay-{limit:08x}-"));
        [
            Span(line.0, own.0),
            Span(own.1, line.1),
            Span(delays.0, late.0),
            Span(late.1, delays.1),
        ]
        .into_iter()
        .filter(|span| span.0 < span.1)
        .collect()
    }

    /// What stays of claims with a lock-delay.
    pub(crate) fn delays(&self, name: &Name) -> Span {
        Span::below(format!("{}{MARK}delay-", self.of(name.as_str())))
    }

    /// Everything of a name; names that go on with a `.` are in between.
    pub(crate) fn all(&self, name: &Name) -> Span {
        let key = self.of(name.as_str());
        Span(
            format!("{key}{MARK}").into_bytes(),
            format!("{key}0").into_bytes(),
        )
    }

    /// Everything of names that start so.
    pub(crate) fn starting(&self, prefix: &str) -> Span {
        Span::below(self.of(prefix))
    }

    /// What a key is, and whose.
    pub(crate) fn parse(&self, key: &[u8]) -> Option<(Name, Kind)> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (name, kind) = match rest.split_once('/') {
            Some((name, claim)) => {
                let own = match claim.strip_prefix('s') {
                    Some(rest) => rest.split_once('-').map(|(_, seat)| seat),
                    None => Some(claim),
                };
                let seat = own.and_then(seat);
                (name, seat.map_or(Kind::Foreign, Kind::Claim))
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
                            Kind::Delay(seat(delay.split_once('-')?.1)?)
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

fn seat(text: &str) -> Option<Seat> {
    request(text)?;
    let (client, number) = text.split_at_checked(16)?;
    let half = |text| u64::from_str_radix(text, 16).ok();
    Some(Seat(half(client)?, half(number)?))
}

impl Span {
    /// All keys that start so.
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

    fn holds(span: &Span, key: &[u8]) -> bool {
        span.0.as_slice() <= key && key < span.1.as_slice()
    }

    #[test]
    fn keys_come_back() {
        let keys = Keys::new("app");
        let (id, seat) = (RequestId::from_u128(77), Seat(7, 9));
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
                (keys.claim(&name, 1, seat), Kind::Claim(seat)),
                (keys.claim(&name, 5, seat), Kind::Claim(seat)),
                (keys.delay(&name, u32::MAX, seat), Kind::Delay(seat)),
                (keys.ended(&name), Kind::Ended),
                (keys.gone(&name, id), Kind::Gone(id)),
                (keys.held(&name), Kind::Held),
            ] {
                assert_eq!(keys.parse(&key), Some((name.clone(), kind)));
                assert!(holds(&keys.all(&name), &key));
                assert!(holds(&keys.starting(name.as_str()), &key));
                let claim = matches!(kind, Kind::Claim(_));
                assert_eq!(holds(&keys.line(&name), &key), claim);
            }
        }
        let theirs = keys.parse(b"app/a/694d71ddacfda227").unwrap();
        assert_eq!(theirs, (Name::new("a").unwrap(), Kind::Foreign));
        assert_eq!(keys.parse(b"other/a/1"), None);
    }

    #[test]
    fn no_name_lies_in_another() {
        let keys = Keys::new("app");
        let (a, id) = (Name::new("a").unwrap(), Seat(1, 1));
        for other in ["a/b", "a.", "a.!ended", "a0", "a.!gone-1"] {
            let key = keys.claim(&Name::new(other).unwrap(), 1, id);
            assert!(!holds(&keys.line(&a), &key), "{other}");
            assert!(!holds(&keys.delays(&a), &key), "{other}");
        }
    }

    #[test]
    fn other_limits_are_all_but_the_own() {
        let keys = Keys::new("app");
        let (a, id) = (Name::new("a").unwrap(), Seat(1, 1));
        let limits = [1, 2, 5, 0x100, u32::MAX];
        for own in limits {
            let others = keys.other_limits(&a, own);
            let met = |key: &[u8]| others.iter().any(|span| holds(span, key));
            for limit in limits {
                assert_eq!(met(&keys.claim(&a, limit, id)), limit != own);
                assert_eq!(met(&keys.delay(&a, limit, id)), limit != own);
            }
            assert_eq!(met(b"app/a/694d71ddacfda227"), own != 1);
            assert!(!met(&keys.held(&a)) && !met(&keys.ended(&a)));
        }
    }
}
