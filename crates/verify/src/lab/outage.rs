//! Servers that go and come back, whatever engine they are of.

use clinch::{Error, ErrorKind, Result};
use clinch_testkit::servers::ServerProcess;

/// How servers go. They come back with their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outage {
    /// SIGKILL, as a machine that loses its power.
    Killed,
    /// SIGSTOP: connections stay open, nothing is answered.
    Paused,
}

impl Outage {
    /// Takes them away.
    pub(super) fn begin(self, servers: &[&ServerProcess]) -> Result<()> {
        servers.iter().try_for_each(|server| match self {
            Self::Killed => server.kill(),
            Self::Paused => server.pause(),
        })
    }

    /// Brings them back; they need not be ready yet. All are started before any is waited for:
    /// members of a group need each other's company.
    pub(super) fn end(self, servers: &[&ServerProcess]) -> Result<()> {
        servers.iter().try_for_each(|server| match self {
            Self::Killed => server.restart(),
            Self::Paused => server.resume(),
        })
    }
}

/// Which of three servers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    Leader,
    Follower,
    /// The leader and a follower: the one that is left can do nothing.
    Majority,
    All,
}

impl Whom {
    /// Their places, given that of the leader.
    pub(super) fn places(self, leader: usize, count: usize) -> Vec<usize> {
        let next = (leader + 1) % count.max(1);
        match self {
            Self::Leader => vec![leader],
            Self::Follower => vec![next],
            Self::Majority => vec![leader, next],
            Self::All => (0..count).collect(),
        }
    }
}

/// What is done to every group of three, with its name.
pub(super) const OF_THREE: [(Outage, Whom, &str); 7] = [
    (
        Outage::Killed,
        Whom::Leader,
        "leader killed, started with its data",
    ),
    (Outage::Paused, Whom::Leader, "leader paused"),
    (
        Outage::Killed,
        Whom::Follower,
        "follower killed, started with its data",
    ),
    (Outage::Paused, Whom::Follower, "follower paused"),
    (
        Outage::Killed,
        Whom::Majority,
        "two servers killed, started with their data",
    ),
    (
        Outage::Killed,
        Whom::All,
        "all servers killed, started with their data",
    ),
    (Outage::Paused, Whom::All, "all servers paused"),
];

/// The processes at these places.
pub(super) fn processes<'s, S>(
    servers: &'s [S],
    places: &[usize],
    process: impl Fn(&'s S) -> &'s ServerProcess,
) -> Result<Vec<&'s ServerProcess>> {
    let missing = || Error::new(ErrorKind::Internal, "the lab has no such server");
    let found = places
        .iter()
        .map(|place| servers.get(*place).map(&process).ok_or_else(missing));
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_the_leader_and_another() {
        assert_eq!(Whom::Majority.places(2, 3), [2, 0]);
        assert_eq!(Whom::Follower.places(2, 3), [0]);
        assert_eq!(Whom::All.places(1, 3), [0, 1, 2]);
    }
}
