//! The queue of a lock: the children of its folder, by their names alone.

use clinch_core::store::fifo::{self, Place};
use clinch_core::store::{Claim, mismatch};
use clinch_core::{Error, ErrorKind, Result};

use crate::keys::Child;

/// All claims of a lock, in order.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) children: Vec<Child>,
    /// The number of claims at the front that hold.
    pub(crate) holders: usize,
}

/// What a waiter watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// This child.
    Child(Child),
    /// All children: only the first waiter of a semaphore.
    Folder,
}

impl Queue {
    /// Parses a listing. A folder with anything but claims is refused.
    pub(crate) fn parse(names: &[String]) -> Result<Self> {
        let mut children = Vec::with_capacity(names.len());
        for name in names {
            children.push(Child::parse(name).ok_or_else(|| foreign(name))?);
        }
        children.sort_by_key(|child| child.number);
        let holders = fifo::holders(0, children.iter().map(|child| child.place));
        Ok(Self { children, holders })
    }

    /// The position of a child.
    pub(crate) fn position(&self, child: &str) -> Option<usize> {
        self.children.iter().position(|other| other.name == child)
    }

    /// Refuses a claim if one of the first `count` children has another limit.
    pub(crate) fn check_limit(&self, count: usize, claim: &Claim) -> Result<()> {
        let ahead = self.children.iter().take(count);
        let mut limits = ahead.map(|child| child.place.limit);
        match limits.find(|limit| *limit != claim.limit) {
            Some(limit) => Err(mismatch(&claim.name, limit, claim.limit)),
            None => Ok(()),
        }
    }

    /// Whether a new claim would hold at once.
    pub(crate) fn has_room_for(&self, claim: &Claim) -> bool {
        let (units, limit) = (claim.units, claim.limit);
        let places = self.children.iter().map(|child| child.place);
        let with_claim = places.chain([Place { units, limit }]);
        fifo::holders(0, with_claim) > self.children.len()
    }

    /// What the waiter at this position watches. No child is watched by two waiters, except by readers,
    /// which are granted together.
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

    fn queue(names: &[&str]) -> Queue {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        Queue::parse(&names).unwrap()
    }

    #[test]
    fn foreign_children_are_refused() {
        for (child, message) in [
            ("0123__lock__0000000001", "kazoo"),
            ("0123__rlock__0000000001", "kazoo"),
            ("leases", "no lock"),
            ("_c_x-lock-1", "no lock"),
        ] {
            let names = ["_c_x-lock-0000000001".to_owned(), child.to_owned()];
            let error = Queue::parse(&names).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(message), "{error}");
        }
    }

    #[test]
    fn waiters_watch_one_child_each() {
        let child = |queue: &Queue, at| match queue.target(at) {
            Some(Target::Child(child)) => child.number,
            other => panic!("{other:?}"),
        };
        let mutex = queue(&[
            "a-lock-0000000003",
            "z-lock-0000000001",
            "b-lock-0000000002",
        ]);
        assert_eq!(mutex.holders, 1);
        assert_eq!((child(&mutex, 1), child(&mutex, 2)), (1, 2));
        let shared = queue(&[
            "a-__READ__0000000001",
            "a-__WRIT__0000000002",
            "a-__READ__0000000003",
            "a-__READ__0000000004",
            "a-__WRIT__0000000005",
        ]);
        assert_eq!(shared.holders, 1);
        let watched: Vec<_> = (1..5).map(|at| child(&shared, at)).collect();
        assert_eq!(watched, [1, 2, 2, 4]);
        let permits = queue(&[
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
