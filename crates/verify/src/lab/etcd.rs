//! Three etcd members, which can be cut off from each other.

use std::time::Duration;

use clinch::{Error, ErrorKind, Result};
use clinch_testkit::servers::{Etcd as Member, EtcdCluster, Network};

use super::outage::{OF_THREE, Outage, Whom, processes};
use super::partition::{self, From};
use super::{Aftermath, Engine, EngineFault, fault};
use crate::check::Property;
use crate::history::now;

/// A holder whose lease an operator revokes learns of it at its next renewal, and a waiter loses its
/// place.
const REVOKED: &[Property] = &[Property::Exclusion, Property::Fifo, Property::FalseLoss];

/// A leader that stood still may revoke leases that live, before the versions that have this mended;
/// see `docs/stores/etcd.md`.
const PAUSED: &[Property] = REVOKED;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Outage(Outage, Whom),
    /// From the other members; clients still reach it.
    CutOff(Whom),
    /// From the other members and from clients, which takes hosts of their own.
    Hidden(Whom),
    Compact,
    /// One lease in three.
    Revoke,
}

/// What is done besides the outages of every group of three. The last ones need hosts.
const OWN: [(Kind, EngineFault); 6] = [
    (
        Kind::CutOff(Whom::Leader),
        fault("leader cut off from the others", &[]),
    ),
    (
        Kind::CutOff(Whom::Follower),
        fault("follower cut off from the others", &[]),
    ),
    (
        Kind::Compact,
        fault("history compacted, servers defragmented", &[]),
    ),
    (
        Kind::Revoke,
        fault("leases revoked by an operator", REVOKED),
    ),
    (
        Kind::Hidden(Whom::Leader),
        fault("leader cut off from everybody", &[]),
    ),
    (
        Kind::Hidden(Whom::Majority),
        fault("two servers cut off from everybody", &[]),
    ),
];

impl Kind {
    fn needs_hosts(self) -> bool {
        matches!(self, Self::Hidden(_))
    }
}

pub(super) struct Etcd {
    cluster: EtcdCluster,
    /// Where members have hosts of their own.
    network: Option<Network>,
    /// What can be done here.
    faults: Vec<(Kind, EngineFault)>,
    /// The places of those that are away.
    away: Vec<usize>,
    /// When that which a fault excuses had happened.
    excused_until: Option<u64>,
    version: String,
}

impl Etcd {
    pub(super) fn start() -> Result<Self> {
        let network = partition::network(3)?;
        let cluster = match &network {
            Some(network) => EtcdCluster::start_across(network.hosts())?,
            None => EtcdCluster::start_divisible()?,
        };
        let status = cluster.ctl(&["endpoint", "status", "--write-out=fields"])?;
        let line = status
            .lines()
            .find_map(|line| line.split_once("\"Version\" : "));
        let version = line.map_or("", |(_, v)| v.trim_matches('"')).to_owned();
        let mut faults = kinds(&version);
        faults.retain(|(kind, _)| network.is_some() || !kind.needs_hosts());
        Ok(Self {
            cluster,
            network,
            faults,
            away: Vec::new(),
            excused_until: None,
            version,
        })
    }

    fn choose(&mut self, whom: Whom) -> Result<()> {
        self.away = whom.places(self.cluster.leader()?, self.cluster.members().len());
        Ok(())
    }

    /// Cuts off those that are away.
    fn cut_off(&self, from: From) -> Result<()> {
        match &self.network {
            Some(network) => partition::cut(network, &self.away, from),
            None => {
                let mut away = self.away.iter();
                away.try_for_each(|member| self.cluster.cut_off(*member))
            }
        }
    }

    /// What an operator does every night.
    fn compact(&self) -> Result<()> {
        let status = self.cluster.ctl(&["get", "x", "--write-out=json"])?;
        let revision = number_after(&status, "\"revision\":")
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("no revision in {status}")))?;
        // Longer than the five seconds of `etcdctl`: the machine is busy.
        let patience = "--command-timeout=60s";
        let revision = revision.to_string();
        self.cluster
            .ctl(&["compact", "--physical", patience, &revision])?;
        self.cluster.ctl(&["defrag", patience]).map(drop)
    }

    fn revoke(&self) -> Result<()> {
        let listed = self.cluster.ctl(&["lease", "list"])?;
        // The first line says how many there are.
        for lease in listed.lines().skip(1).step_by(3) {
            // One that has ended by itself is no error.
            let _ = self.cluster.ctl(&["lease", "revoke", lease.trim()]);
        }
        Ok(())
    }
}

/// All that can be done to servers of this version.
fn kinds(version: &str) -> Vec<(Kind, EngineFault)> {
    let outages = OF_THREE.iter().map(|(outage, whom, name)| {
        let stood_still = *outage == Outage::Paused && *whom != Whom::Follower;
        let excuses = match stood_still && revokes_living_leases(version) {
            true => PAUSED,
            false => &[],
        };
        (Kind::Outage(*outage, *whom), fault(name, excuses))
    });
    outages.chain(OWN).collect()
}

/// The same without how it is done.
#[cfg(test)]
pub(super) fn faults(version: &str) -> Vec<EngineFault> {
    let kinds = kinds(version).into_iter();
    kinds.map(|(_, fault)| fault).collect()
}

impl Engine for Etcd {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn faults(&self) -> Vec<EngineFault> {
        self.faults.iter().map(|(_, fault)| *fault).collect()
    }

    fn begin(&mut self, fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        let Some((kind, _)) = self.faults.get(fault).copied() else {
            return Ok(None);
        };
        match kind {
            Kind::Outage(outage, whom) => {
                self.choose(whom)?;
                let members = self.cluster.members();
                outage.begin(&processes(members, &self.away, Member::process)?)?;
            }
            Kind::CutOff(whom) => {
                self.choose(whom)?;
                self.cut_off(From::Servers)?;
            }
            Kind::Hidden(whom) => {
                self.choose(whom)?;
                self.cut_off(From::Everybody)?;
            }
            Kind::Compact => self.compact()?,
            Kind::Revoke => self.revoke()?,
        }
        self.excused_until = matches!(kind, Kind::Revoke).then(now);
        Ok(None)
    }

    fn end(&mut self, fault: usize) -> Result<()> {
        let Some((kind, _)) = self.faults.get(fault).copied() else {
            return Ok(());
        };
        if let Kind::Outage(outage, _) = kind {
            let members = self.cluster.members();
            outage.end(&processes(members, &self.away, Member::process)?)?;
            // A leader that stood still looks at its leases twice in a second.
            self.excused_until = Some(now() + 1_000_000_000);
        }
        self.network.as_ref().map_or(Ok(()), Network::heal)?;
        // Waits until all answer, whatever was done to them.
        self.cluster.heal()
    }

    fn aftermath(&mut self) -> Aftermath {
        Aftermath {
            excused_until: self.excused_until,
            ..Aftermath::default()
        }
    }

    fn version(&self) -> String {
        format!("etcd {}, three members", self.version)
    }

    fn missing(&self) -> Vec<String> {
        partition::missing()
    }
}

/// Whether a leader of this version may revoke leases that live after it stood still: before 3.4.42,
/// and in 3.5 before 3.5.13.
fn revokes_living_leases(version: &str) -> bool {
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let mut number = || numbers.next().unwrap_or(0);
    match (number(), number(), number()) {
        (3, 4, patch) => patch < 42,
        (3, 5, patch) => patch < 13,
        (major, minor, _) => (major, minor) < (3, 4),
    }
}

/// The digits after some words.
fn number_after(text: &str, words: &str) -> Option<u64> {
    let (_, rest) = text.split_once(words)?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest.get(..end.unwrap_or(rest.len()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_bug_are_known() {
        for (version, has) in [
            ("3.4.23", true),
            ("3.4.42", false),
            ("3.5.12", true),
            ("3.5.13", false),
            ("3.6.0", false),
        ] {
            assert_eq!(revokes_living_leases(version), has, "{version}");
        }
    }

    #[test]
    fn a_revision_is_found() {
        let text = r#"{"header":{"cluster_id":1,"revision":472,"raft_term":3}}"#;
        assert_eq!(number_after(text, "\"revision\":"), Some(472));
        assert_eq!(number_after("{}", "\"revision\":"), None);
    }
}
