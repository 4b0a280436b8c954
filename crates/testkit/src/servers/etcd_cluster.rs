//! An etcd cluster.

use clinch_core::{Error, ErrorKind, Result};

use super::etcd_builder::{EtcdBuilder, peer_url};
use super::{Etcd, Port, on_free_port, until};

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
        let setup = options(Etcd::with());
        on_free_port(|first| {
            let mut ports = vec![first];
            while ports.len() < MEMBERS {
                ports.push(Port::reserve()?);
            }
            Self::start_on(&setup, ports)
        })
    }

    fn start_on(setup: &EtcdBuilder, ports: Vec<Port>) -> Result<Self> {
        let peers: Result<Vec<_>> = ports.iter().map(|_| Port::reserve()).collect();
        let peers = peers?;
        let names = (0..).map(|i| format!("m{i}"));
        let named = names.zip(&peers);
        let all = named.map(|(name, peer)| format!("{name}={}", peer_url(peer.number())));
        let all = all.collect::<Vec<_>>().join(",");
        let secrets = setup.secrets()?;
        let mut members = Vec::new();
        for (i, (port, peer)) in ports.into_iter().zip(peers).enumerate() {
            let name = format!("m{i}");
            members.push(setup.launch(&name, [port, peer], &all, secrets.clone())?);
        }
        let cluster = Self { members };
        cluster.members.iter().try_for_each(Etcd::wait_ready)?;
        cluster.member(0)?.set_up_users()?;
        Ok(cluster)
    }

    /// `etcd://127.0.0.1:P1,127.0.0.1:P2,127.0.0.1:P3`, with root's password if there is one.
    pub fn url(&self) -> String {
        let mut urls = self.members.iter().map(Etcd::url);
        let first = urls.next().unwrap_or_default();
        self.members.iter().skip(1).fold(first, |url, member| {
            format!("{url},127.0.0.1:{}", member.port())
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
