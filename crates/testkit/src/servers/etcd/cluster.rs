//! An etcd cluster.

use std::sync::Arc;

use clinch_core::{Error, Result};

use super::builder::{Member, peer_url};
use super::peers::{Cuts, Gate};
use super::{Etcd, EtcdBuilder};
use crate::servers::server::group_error;
use crate::servers::{Folder, Host, Port, on_free_port, until, until_some};

/// Three members.
///
/// ```
/// use clinch_testkit::servers::EtcdCluster;
/// let cluster = EtcdCluster::start()?;
/// cluster.ctl(&["put", "a", "1"])?;
/// let leader = cluster.leader()?;
/// cluster.member(leader)?.kill()?;
/// assert_ne!(cluster.leader()?, leader); // waits for the next one
/// let survivor = cluster.member((leader + 1) % 3)?;
/// assert_eq!(survivor.ctl(&["get", "a"])?, "a\n1");
/// cluster.member(leader)?.start_again()?;
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Etcd>,
    /// One for each member if the cluster is divisible; otherwise none.
    gates: Vec<Gate>,
    cuts: Arc<Cuts>,
    /// The certificates that the members share.
    _certificates: Folder,
}

const MEMBERS: usize = 3;

impl EtcdCluster {
    /// Starts all three, and waits until they have a leader and answer.
    pub fn start() -> Result<Self> {
        Self::start_with(|member| member)
    }

    /// The same with options for each member.
    ///
    /// ```
    /// use clinch_testkit::servers::EtcdCluster;
    /// let cluster = EtcdCluster::start_with(|member| member.root_password("x"))?;
    /// assert!(cluster.url().starts_with("etcd://root:x@127.0.0.1:"));
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn start_with(options: impl Fn(EtcdBuilder) -> EtcdBuilder) -> Result<Self> {
        Self::launch(&options(Etcd::with()), &[], false)
    }

    /// The same with each member on its own host: the first three of these.
    ///
    /// ```
    /// use clinch_testkit::servers::{EtcdCluster, Network};
    /// # if Network::check().is_err() { return Ok(()) }
    /// let network = Network::start(3)?;
    /// let cluster = EtcdCluster::start_across(network.hosts())?;
    /// let old = cluster.leader()?;
    /// network.cut(network.host(old)?)?;
    /// assert_ne!(cluster.wait_for_new_leader(old)?, old);
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn start_across(hosts: &[Host]) -> Result<Self> {
        Self::launch(&Etcd::with(), hosts, false)
    }

    /// The same with a proxy before each member, so that [`cut_off`](Self::cut_off) works. Not for
    /// benchmarks: it adds a hop.
    ///
    /// ```
    /// use clinch_testkit::servers::EtcdCluster;
    /// let cluster = EtcdCluster::start_divisible()?;
    /// let old = cluster.leader()?;
    /// cluster.cut_off(old)?;
    /// cluster.wait_for_new_leader(old)?; // the others go on
    /// assert!(cluster.member(old)?.ctl(&["put", "a", "1"]).is_err()); // it cannot
    /// cluster.heal()?;
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn start_divisible() -> Result<Self> {
        Self::launch(&Etcd::with(), &[], true)
    }

    fn launch(setup: &EtcdBuilder, hosts: &[Host], divisible: bool) -> Result<Self> {
        if !hosts.is_empty() && hosts.len() < MEMBERS {
            return Err(Error::invalid("each member needs a host"));
        }
        let on_host = |i: usize| match hosts.get(i) {
            Some(host) => setup.clone().on_host(host),
            None => setup.clone(),
        };
        let setups: Vec<_> = (0..MEMBERS).map(on_host).collect();
        on_free_port(|first| {
            let mut ports = vec![first];
            while ports.len() < MEMBERS {
                ports.push(Port::reserve()?);
            }
            Self::start_on(&setups, ports, divisible)
        })
    }

    fn start_on(setups: &[EtcdBuilder], ports: Vec<Port>, divisible: bool) -> Result<Self> {
        let (mut peers, mut gates, cuts) = (Vec::new(), Vec::new(), Arc::default());
        for i in 0..ports.len() {
            let peer = Port::reserve()?;
            let mut advertised = peer.number();
            if divisible {
                let gate = Gate::open(&name(i), Port::reserve()?, advertised, &cuts)?;
                advertised = gate.port();
                gates.push(gate);
            }
            peers.push((peer, advertised));
        }
        let peers_of = setups.iter().zip(&peers).enumerate();
        let urls = peers_of.map(|(i, (setup, (_, advertised)))| {
            format!("{}={}", name(i), peer_url(setup.address(), *advertised))
        });
        let cluster = urls.collect::<Vec<_>>().join(",");
        let folder = Folder::new("etcd-tls")?;
        let certificates = setups.first().map(|setup| setup.certificates_in(&folder));
        let certificates = certificates.transpose()?.flatten();
        let mut members = Vec::new();
        let parts = setups.iter().zip(ports.into_iter().zip(peers)).enumerate();
        for (i, (setup, (port, (peer, advertised)))) in parts {
            let member = setup.clone().share(certificates.clone()).member(Member {
                name: name(i),
                peer,
                advertised,
                cluster: cluster.clone(),
            });
            members.push(member.launch(port)?);
        }
        let cluster = Self {
            members,
            gates,
            cuts,
            _certificates: folder,
        };
        cluster.members.iter().try_for_each(Etcd::wait_ready)?;
        if divisible {
            cluster.read_ids()?;
        }
        cluster.member(0)?.add_users()?;
        Ok(cluster)
    }

    /// Reads the ids of the members, by which requests between them name their sender.
    fn read_ids(&self) -> Result<()> {
        let list = self.ctl(&["member", "list"])?;
        let names = list.lines().filter_map(|line| {
            let mut columns = line.split(", ");
            Some((columns.next()?.to_owned(), columns.nth(1)?.to_owned()))
        });
        self.cuts.set_names(names.collect());
        Ok(())
    }

    /// Cuts a member off from the others, both ways; clients still reach it. The cluster must have
    /// been started as [divisible](Self::start_divisible).
    pub fn cut_off(&self, index: usize) -> Result<()> {
        let name = self.member(index)?.name().to_owned();
        if self.gates.is_empty() {
            return Err(Error::invalid("the cluster was not started as divisible"));
        }
        self.cuts.set(vec![name]);
        Ok(())
    }

    /// Connects all members again, and waits until they are ready.
    pub fn heal(&self) -> Result<()> {
        self.cuts.set(Vec::new());
        self.wait_ok()
    }

    /// Waits until a member other than `old` leads; `old` may still report that it leads.
    pub fn wait_for_new_leader(&self, old: usize) -> Result<usize> {
        let new = until_some(|| {
            let mut others = self.members.iter().enumerate().filter(|(i, _)| *i != old);
            others.find(|(_, m)| m.is_leader()).map(|(i, _)| i)
        });
        new.ok_or_else(|| self.failure("no other member leads"))
    }

    /// `etcd://127.0.0.1:P1,127.0.0.1:P2,127.0.0.1:P3`, with root's password if there is one.
    pub fn url(&self) -> String {
        let first = self.members.first().map(Etcd::url).unwrap_or_default();
        self.members.iter().skip(1).fold(first, |url, member| {
            format!("{url},{}", member.socket_address())
        })
    }

    /// The endpoint of each member, such as `http://127.0.0.1:2379`.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Etcd::endpoint).collect()
    }

    /// All members.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// One member.
    pub fn member(&self, index: usize) -> Result<&Etcd> {
        let member = self.members.get(index);
        member.ok_or_else(|| Error::invalid("there are three members"))
    }

    /// The index of the leader; waits until exactly one running member reports that it leads.
    pub fn leader(&self) -> Result<usize> {
        let mut leaders = Vec::new();
        let one = until(|| {
            let members = self.members.iter().enumerate();
            leaders = members
                .filter(|(_, m)| m.is_leader())
                .map(|(i, _)| i)
                .collect();
            leaders.len() == 1
        });
        match leaders.as_slice() {
            [leader] if one => Ok(*leader),
            _ => Err(self.failure(&format!("no single leader, but {leaders:?}"))),
        }
    }

    /// Waits until all running members are ready.
    pub fn wait_ok(&self) -> Result<()> {
        let mut running = self.members.iter().filter(|member| member.is_running());
        running.try_for_each(Etcd::wait_ready)
    }

    /// Runs `etcdctl` against all running members; see [`Etcd::ctl`].
    pub fn ctl(&self, args: &[&str]) -> Result<String> {
        let running = self.members.iter().filter(|member| member.is_running());
        let endpoints: Vec<_> = running.map(Etcd::endpoint).collect();
        self.member(0)?.ctl_at(&endpoints.join(","), args)
    }

    fn failure(&self, what: &str) -> Error {
        group_error(&format!("etcd cluster: {what}"), &self.members)
    }
}

fn name(index: usize) -> String {
    format!("m{index}")
}
