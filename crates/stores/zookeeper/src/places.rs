//! The children of a lock's folder: who stands in line, told by names alone.
//!
//! The names are Curator's: `_c_ID-lock-NUMBER` for a mutex, `_c_ID-__READ__NUMBER` and
//! `_c_ID-__WRIT__NUMBER` for a read-write lock. A semaphore has names of ours,
//! `_c_ID-sem-UNITS-LIMIT-NUMBER`. A lock-delay keeps the number of the hold that it follows:
//! `_d_ID-…`.

use clinch_core::store::fifo::{self, Place};
use clinch_core::store::{Claim, mismatch};
use clinch_core::{Error, ErrorKind, RequestId, Result};

/// One child, as its name tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) name: String,
    /// Its place in the order.
    pub(crate) number: i64,
    pub(crate) place: Place,
    /// Whether it is what is left of an evicted hold.
    pub(crate) delayed: bool,
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

/// The name of the lock-delay that follows a hold: the same place in line.
pub(crate) fn delay(child: &str) -> Option<String> {
    child.strip_prefix("_c_").map(|rest| format!("_d_{rest}"))
}

impl Child {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        // Servers write numbers with ten digits at least.
        let start = name.rfind(|c: char| !c.is_ascii_digit())? + 1;
        let (kind, digits) = name.split_at(start);
        let place = if kind.ends_with("lock-") {
            Place::EXCLUSIVE
        } else if kind.ends_with("__WRIT__") {
            let units = u32::MAX;
            Place {
                units,
                limit: units,
            }
        } else if kind.ends_with("__READ__") {
            let (units, limit) = (1, u32::MAX);
            Place { units, limit }
        } else {
            let (_, counts) = kind.strip_suffix('-')?.split_once("-sem-")?;
            let (units, limit) = counts.split_once('-')?;
            let (units, limit) = (units.parse().ok()?, limit.parse().ok()?);
            Place { units, limit }
        };
        (digits.len() >= 10).then_some(())?;
        Some(Self {
            number: digits.parse().ok()?,
            place,
            delayed: name.starts_with("_d_"),
            name: name.to_owned(),
        })
    }

    /// The request that it belongs to, if it may be one of ours.
    pub(crate) fn request(&self) -> Option<RequestId> {
        let (id, _) = self.name.get(3..)?.split_once('-')?;
        (id.len() == 32).then(|| id.parse().ok())?
    }
}

/// Everybody in line, in order.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) children: Vec<Child>,
    /// How many from the front hold.
    pub(crate) holders: usize,
}

/// What to watch in order to learn of a change of one's own standing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// This child.
    Child(Child),
    /// All children: only the first waiter of a semaphore does.
    Folder,
}

impl Line {
    /// Reads a listing. A folder in which others keep something else is refused.
    pub(crate) fn read(names: &[String]) -> Result<Self> {
        let mut children = Vec::with_capacity(names.len());
        for child in names {
            children.push(Child::parse(child).ok_or_else(|| foreign(child))?);
        }
        children.sort_by_key(|child| child.number);
        let holders = fifo::holders(0, children.iter().map(|child| child.place));
        Ok(Self { children, holders })
    }

    /// Where a child stands.
    pub(crate) fn position(&self, child: &str) -> Option<usize> {
        self.children.iter().position(|other| other.name == child)
    }

    /// Whether everybody ahead uses the name as this claim does.
    pub(crate) fn check_limit(&self, at: usize, claim: &Claim) -> Result<()> {
        let ahead = self.children.iter().take(at);
        let other = ahead
            .map(|child| child.place.limit)
            .find(|limit| *limit != claim.limit);
        match other {
            Some(limit) => Err(mismatch(&claim.name, limit, claim.limit)),
            None => Ok(()),
        }
    }

    /// What the waiter at this place watches: never more than one of all waiters watches one child
    /// (readers excepted, who all enter at once).
    pub(crate) fn target(&self, at: usize) -> Option<Target> {
        let me = self.children.get(at)?;
        let ahead = self.children.get(..at)?;
        let is_writer = |child: &&Child| child.place.units == u32::MAX;
        if me.place.limit == u32::MAX && !is_writer(&me) {
            return ahead.iter().rfind(is_writer).cloned().map(Target::Child);
        }
        if at == self.holders && me.place.limit != 1 && me.place.limit != u32::MAX {
            return Some(Target::Folder);
        }
        ahead.last().cloned().map(Target::Child)
    }
}

fn foreign(child: &str) -> Error {
    let whose = match child.contains("__lock__") || child.contains("__rlock__") {
        true => "a lock of kazoo",
        false => "something that is no lock",
    };
    Error::new(
        ErrorKind::Corrupt,
        format!("its folder holds {child:?}, {whose}"),
    )
    .with_advice("clinch shares locks with Curator and with Go's zk: use another name or namespace")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff";

    fn line(names: &[&str]) -> Line {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        Line::read(&names).unwrap()
    }

    #[test]
    fn names_of_all_kinds_are_read() {
        let read = |name: &str| Child::parse(name).unwrap();
        let child = read(&format!("_c_{ID}-lock-0000000012"));
        assert_eq!((child.number, child.place), (12, Place::EXCLUSIVE));
        assert_eq!(child.request(), ID.parse().ok());
        let curator = read("_c_7d1e3b9c-1f0e-4d0c-8b1a-3a2f6d1e9b7c-lock-0000000003");
        assert_eq!((curator.number, curator.request()), (3, None));
        assert_eq!(read("_c_x-__READ__0000000001").place.units, 1);
        assert_eq!(read("_c_x-__WRIT__0000000001").place.units, u32::MAX);
        let permit = read(&format!("_c_{ID}-sem-2-5-0000000007"));
        assert_eq!((permit.place.units, permit.place.limit), (2, 5));
        assert!(read(&delay(&permit.name).unwrap()).delayed);
        assert_eq!(read(&delay(&permit.name).unwrap()).number, 7);
    }

    #[test]
    fn others_are_refused() {
        for (child, word) in [
            ("0123__lock__0000000001", "kazoo"),
            ("0123__rlock__0000000001", "kazoo"),
            ("leases", "no lock"),
            ("_c_x-lock-1", "no lock"),
        ] {
            let names = ["_c_x-lock-0000000001".to_owned(), child.to_owned()];
            let error = Line::read(&names).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn waiters_watch_one_each() {
        let child = |line: &Line, at| match line.target(at) {
            Some(Target::Child(child)) => child.number,
            other => panic!("{other:?}"),
        };
        let mutex = line(&[
            "a-lock-0000000003",
            "z-lock-0000000001",
            "b-lock-0000000002",
        ]);
        assert_eq!(mutex.holders, 1);
        assert_eq!((child(&mutex, 1), child(&mutex, 2)), (1, 2));
        let shared = line(&[
            "a-__READ__0000000001",
            "a-__WRIT__0000000002",
            "a-__READ__0000000003",
            "a-__READ__0000000004",
            "a-__WRIT__0000000005",
        ]);
        assert_eq!(shared.holders, 1);
        let watched: Vec<_> = (1..5).map(|at| child(&shared, at)).collect();
        assert_eq!(watched, [1, 2, 2, 4]);
        let permits = line(&[
            "a-sem-1-2-0000000001",
            "a-sem-1-2-0000000002",
            "a-sem-1-2-0000000003",
            "a-sem-1-2-0000000004",
        ]);
        assert_eq!(permits.holders, 2);
        assert_eq!(permits.target(2), Some(Target::Folder));
        assert_eq!(child(&permits, 3), 3);
    }
}
