//! A Redis with replicas, monitored by sentinels.

use clinch_core::{Error, Result};

use super::{Redis, RedisBuilder, Reply};
use crate::servers::server::group_error;
use crate::servers::{Host, until};

/// The master's name at the sentinels.
const NAME: &str = "clinch";

/// Short periods, and no "tilt" (30 s without failover) when a busy machine delays a sentinel. The
/// values are lost when a sentinel restarts.
///
/// The first ping to a new master is sent after one ping period, and the master counts as silent
/// until its reply: the period must be much shorter than `down-after-milliseconds`. A replica whose
/// INFO is older than five INFO periods is not promoted, and the replicas of a dead master are
/// polled once a second: that period must be much longer than 200 ms.
const SHORT_PERIODS: &[&str] = &[
    "ping-period",
    "400",
    "info-period",
    "300",
    "publish-period",
    "300",
    "ask-period",
    "300",
    "tilt-trigger",
    "20000",
    "tilt-period",
    "1000",
];

/// A master, two replicas and three sentinels.
///
/// ```
/// use clinch_testkit::servers::Sentinels;
/// let sentinels = Sentinels::start()?;
/// let old = sentinels.master()?.port();
/// sentinels.kill_master()?;
/// assert_ne!(sentinels.wait_for_new_master(old)?.port(), old);
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Sentinels {
    // Dropped first, so that the end of the servers triggers no failover.
    sentinels: Vec<Redis>,
    servers: Vec<Redis>,
}

impl Sentinels {
    /// Starts all six, and waits until every replica is online and every sentinel has found the
    /// replicas and the other sentinels.
    pub fn start() -> Result<Self> {
        Self::start_with(|server| server)
    }

    /// The same with options for each server; the sentinels have none.
    ///
    /// ```
    /// use clinch_testkit::servers::Sentinels;
    /// let sentinels = Sentinels::start_with(|server| server.append_only("always"))?;
    /// let master = sentinels.master()?;
    /// assert_eq!(master.cli(&["CONFIG", "GET", "appendonly"])?, "appendonly\nyes");
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn start_with(options: impl Fn(RedisBuilder) -> RedisBuilder) -> Result<Self> {
        Self::start_across(&[], options)
    }

    /// The same on hosts: the first three for the servers, the next three for the sentinels. Without
    /// hosts all are on 127.0.0.1.
    ///
    /// ```
    /// use clinch_testkit::servers::{Network, Sentinels};
    /// # if Network::check().is_err() { return Ok(()) }
    /// let network = Network::start(6)?;
    /// let sentinels = Sentinels::start_across(network.hosts(), |server| server)?;
    /// assert_eq!(sentinels.master()?.address(), network.host(0)?.address());
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn start_across(
        hosts: &[Host],
        options: impl Fn(RedisBuilder) -> RedisBuilder,
    ) -> Result<Self> {
        let on = |index: usize, builder: RedisBuilder| match hosts.get(index) {
            Some(host) => builder.on_host(host),
            None => builder,
        };
        let master = on(0, options(Redis::with())).start()?;
        let (address, port) = (master.address(), master.port());
        let mut servers = vec![master];
        for index in 1..3 {
            let replica = on(index, options(Redis::with()));
            let of = format!("{address} {port}");
            servers.push(replica.config("replicaof", &of).start()?);
        }
        let mut all = Self {
            sentinels: Vec::new(),
            servers,
        };
        all.wait("every replica is online", || all.in_sync(port))?;
        for index in 3..6 {
            let sentinel = on(index, Redis::with())
                .sentinel()
                .config("sentinel monitor", &format!("{NAME} {address} {port} 2"))
                .config("sentinel down-after-milliseconds", &format!("{NAME} 1000"))
                .config("sentinel failover-timeout", &format!("{NAME} 3000"))
                .config("sentinel parallel-syncs", &format!("{NAME} 1"));
            all.sentinels.push(sentinel.start()?);
        }
        for sentinel in &all.sentinels {
            shorten_periods(sentinel)?;
        }
        all.wait("every sentinel has found the others", || {
            let mut masters = all.sentinels.iter().map(describe);
            masters.all(|fields| {
                let is = |name: &str, value: &str| {
                    let mut pairs = fields.chunks_exact(2);
                    pairs.any(|pair| pair == [name, value])
                };
                is("num-slaves", "2") && is("num-other-sentinels", "2") && is("flags", "master")
            })
        })?;
        Ok(all)
    }

    /// `redis+sentinel://127.0.0.1:P1,127.0.0.1:P2,127.0.0.1:P3/NAME`.
    pub fn url(&self) -> String {
        let hosts = self.sentinels.iter();
        let hosts: Vec<_> = hosts
            .map(|s| format!("{}:{}", s.address(), s.port()))
            .collect();
        format!("redis+sentinel://{}/{NAME}", hosts.join(","))
    }

    /// The name of the master.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// The three servers; the first was master at the start.
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// The three sentinels.
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The current master, according to the first running sentinel.
    pub fn master(&self) -> Result<&Redis> {
        let running = self.sentinels.iter().find(|s| s.is_running());
        let port = running.and_then(master_port);
        let master = self.servers.iter().find(|s| Some(s.port()) == port);
        master.ok_or_else(|| self.failure("no sentinel names a master"))
    }

    /// Kills the current master; returns its index among the servers.
    pub fn kill_master(&self) -> Result<usize> {
        let port = self.master()?.port();
        let index = self.servers.iter().position(|s| s.port() == port);
        let index = index.ok_or_else(|| self.failure("the master is not one of the servers"))?;
        self.server(index)?.kill()?;
        Ok(index)
    }

    /// Starts a server again; the sentinels make it a replica if there is another master by then. See
    /// [`wait_synced`](Self::wait_synced).
    pub fn start_again(&self, index: usize) -> Result<()> {
        self.server(index)?.start_again()
    }

    /// Kills and starts a sentinel again.
    pub fn restart_sentinel(&self, index: usize) -> Result<()> {
        let sentinel = self.sentinels.get(index);
        let sentinel = sentinel.ok_or_else(|| Error::invalid("there are three sentinels"))?;
        sentinel.start_again()?;
        shorten_periods(sentinel)
    }

    /// Promotes a replica although the master is healthy, and waits for it.
    pub fn failover(&self) -> Result<&Redis> {
        let old = self.master()?.port();
        // Sentinels refuse it while an earlier failover is ending.
        self.wait("a failover begins", || {
            let mut running = self.sentinels.iter().filter(|s| s.is_running());
            running.any(|s| s.cli(&["SENTINEL", "FAILOVER", NAME]).is_ok())
                || self.master().is_ok_and(|master| master.port() != old)
        })?;
        self.wait_for_new_master(old)
    }

    /// Waits until all running sentinels agree on a master at another port than `old`, and it has the
    /// role of a master.
    pub fn wait_for_new_master(&self, old: u16) -> Result<&Redis> {
        self.wait_for_new_master_of(&[0, 1, 2], old)
    }

    /// The same where only these sentinels have to agree: those on one side of a divided network.
    pub fn wait_for_new_master_of(&self, sentinels: &[usize], old: u16) -> Result<&Redis> {
        let mut found = None;
        let all = self.sentinels.iter().enumerate();
        let chosen: Vec<_> = all.filter(|(n, _)| sentinels.contains(n)).collect();
        self.wait("a new master", || {
            let chosen = chosen.iter().map(|(_, sentinel)| *sentinel);
            let mut running = chosen.filter(|s| s.is_running());
            let Some(port) = running.clone().find_map(master_port) else {
                return false;
            };
            let agreed = port != old && running.all(|s| master_port(s) == Some(port));
            found = self.servers.iter().find(|s| agreed && s.port() == port);
            found.is_some_and(|server| role(server).as_deref() == Some("master"))
        })?;
        found.ok_or_else(|| self.failure("no new master"))
    }

    /// Waits until all other running servers are replicas of the current master and have all its
    /// data.
    pub fn wait_synced(&self) -> Result<()> {
        self.wait("every replica is in sync", || {
            let master = self.master().map(Redis::port);
            master.is_ok_and(|master| self.in_sync(master))
        })
    }

    /// Whether all other running servers have all data of the master at this port.
    fn in_sync(&self, master: u16) -> bool {
        let offset = |server: &Redis, name: &str| -> Option<(String, i64)> {
            let info = server.info("replication").ok()?;
            let link = info.get("master_link_status").cloned().unwrap_or_default();
            let port = info.get("master_port").cloned().unwrap_or_default();
            Some((format!("{link} {port}"), info.get(name)?.parse().ok()?))
        };
        let head = self.servers.iter().find(|s| s.port() == master);
        let Some(head) = head.and_then(|s| offset(s, "master_repl_offset")) else {
            return false;
        };
        let mut others = self
            .servers
            .iter()
            .filter(|s| s.is_running() && s.port() != master);
        others.all(|replica| {
            let at = offset(replica, "slave_repl_offset");
            at.is_some_and(|(link, at)| link == format!("up {master}") && at >= head.1)
        })
    }

    fn server(&self, index: usize) -> Result<&Redis> {
        let server = self.servers.get(index);
        server.ok_or_else(|| Error::invalid("there are three servers"))
    }

    fn wait(&self, what: &str, condition: impl FnMut() -> bool) -> Result<()> {
        match until(condition) {
            true => Ok(()),
            false => Err(self.failure(&format!("timeout: {what}"))),
        }
    }

    fn failure(&self, what: &str) -> Error {
        let all = self.sentinels.iter().chain(&self.servers);
        group_error(&format!("sentinels: {what}"), all)
    }
}

fn shorten_periods(sentinel: &Redis) -> Result<()> {
    sentinel.cli(&[&["SENTINEL", "DEBUG"], SHORT_PERIODS].concat())?;
    Ok(())
}

fn describe(sentinel: &Redis) -> Vec<String> {
    let reply = sentinel.command(&["SENTINEL", "MASTER", NAME]);
    reply.map(Reply::texts).unwrap_or_default()
}

fn master_port(sentinel: &Redis) -> Option<u16> {
    let reply = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
    reply.ok()?.texts().get(1)?.parse().ok()
}

fn role(server: &Redis) -> Option<String> {
    server.command(&["ROLE"]).ok()?.texts().first().cloned()
}
