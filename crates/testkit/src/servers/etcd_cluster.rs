//! An etcd cluster.

use std::sync::Arc;

use clinch_core::{Error, ErrorKind, Result};

use super::etcd_builder::EtcdBuilder;
use super::etcd_peers::{Cuts, Gate};
use super::{Etcd, Host, Port, on_free_port, until};

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
    /// Where members can be cut off: one for each.
    gates: Vec<Gate>,
    cuts: Arc<Cuts>,
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

    /// The same with each member on a host of its own: the first three of these.
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

    /// The same with something between the members, so that [`cut_off`](Self::cut_off) works.
    /// It costs them a hop: not for benchmarks.
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
        let on_host = |index: usize| match hosts.get(index) {
            Some(host) => Ok(setup.clone().on_host(host)),
            None if hosts.is_empty() => Ok(setup.clone()),
            None => Err(Error::invalid("each member needs a host")),
        };
        let setups: Vec<_> = (0..MEMBERS).map(on_host).collect::<Result<_>>()?;
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
            let mut told = peer.number();
            if divisible {
                let gate = Gate::open(&format!("m{i}"), Port::reserve()?, told, &cuts)?;
                told = gate.port();
                gates.push(gate);
            }
            peers.push((peer, told));
        }
        let named = setups.iter().zip(&peers).enumerate();
        let all = named.map(|(i, (setup, (_, told)))| format!("m{i}={}", setup.peer_url(*told)));
        let all = all.collect::<Vec<_>>().join(",");
        let secrets = setups.first().map_or(Ok(None), EtcdBuilder::secrets)?;
        let mut members = Vec::new();
        let parts = setups.iter().zip(ports.into_iter().zip(peers)).enumerate();
        for (i, (setup, (port, (peer, told)))) in parts {
            let name = format!("m{i}");
            members.push(setup.launch(&name, [port, peer], told, &all, secrets.clone())?);
        }
        let cluster = Self {
            members,
            gates,
            cuts,
        };
        cluster.members.iter().try_for_each(Etcd::wait_ready)?;
        if divisible {
            cluster.learn_names()?;
        }
        cluster.member(0)?.set_up_users()?;
        Ok(cluster)
    }

    /// Asks the cluster what its members call themselves.
    fn learn_names(&self) -> Result<()> {
        let list = self.ctl(&["member", "list"])?;
        let names = list.lines().filter_map(|line| {
            let mut words = line.split(", ");
            Some((words.next()?.to_owned(), words.nth(1)?.to_owned()))
        });
        self.cuts.learn(names.collect());
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

    /// Lets all members talk again, and waits until they answer.
    pub fn heal(&self) -> Result<()> {
        self.cuts.set(Vec::new());
        self.wait_ok()
    }

    /// Waits until another member than this one leads, whatever that one still believes.
    pub fn wait_for_new_leader(&self, old: usize) -> Result<usize> {
        let mut new = None;
        until(|| {
            let mut others = self.members.iter().enumerate().filter(|(i, _)| *i != old);
            new = others.find(|(_, m)| m.is_leader()).map(|(i, _)| i);
            new.is_some()
        });
        new.ok_or_else(|| self.failure("no other member leads"))
    }

    /// `etcd://127.0.0.1:P1,127.0.0.1:P2,127.0.0.1:P3`, with root's password if there is one.
    pub fn url(&self) -> String {
        let mut urls = self.members.iter().map(Etcd::url);
        let first = urls.next().unwrap_or_default();
        self.members.iter().skip(1).fold(first, |url, member| {
            format!("{url},{}:{}", member.address(), member.port())
        })
    }

    /// What each member is reached at, such as `http://127.0.0.1:2379`.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Etcd::endpoint).collect()
    }

    /// All members.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// One member, to be killed, started again, paused and resumed.
    pub fn member(&self, index: usize) -> Result<&Etcd> {
        let member = self.members.get(index);
        member.ok_or_else(|| Error::invalid("there are three members"))
    }

    /// Who leads; waits until exactly one of those that answer does.
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

    /// Waits until all running members answer.
    pub fn wait_ok(&self) -> Result<()> {
        let mut running = self.members.iter().filter(|member| member.is_running());
        running.try_for_each(Etcd::wait_ready)
    }

    /// Runs `etcdctl` against all running members; see [`Etcd::ctl`].
    pub fn ctl(&self, words: &[&str]) -> Result<String> {
        let running = self.members.iter().filter(|member| member.is_running());
        let endpoints: Vec<_> = running.map(Etcd::endpoint).collect();
        self.member(0)?.ctl_at(&endpoints.join(","), words)
    }

    fn failure(&self, what: &str) -> Error {
        let logs = self
            .members
            .iter()
            .map(|member| member.process().log_tail());
        let logs = logs.fold(String::new(), |all, log| all + "\n--\n" + &log);
        Error::new(
            ErrorKind::Unreachable,
            format!("etcd cluster: {what}{logs}"),
        )
    }
}
