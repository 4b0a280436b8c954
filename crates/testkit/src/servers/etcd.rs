//! One etcd server.

use std::net::Ipv4Addr;
use std::path::Path;

use clinch_core::Result;

use super::etcd_builder::{EtcdBuilder, Parts, User};
use super::etcd_metrics::{Metrics, is_healthy};
use super::{Certificates, Disk, ServerProcess, tool};

/// A running etcd, alone in its folder; it is killed, and the folder removed, on drop.
///
/// Its least lease is one second. [`EtcdCluster`](super::EtcdCluster) is made of three.
///
/// ```
/// use clinch_testkit::servers::Etcd;
/// let etcd = Etcd::start()?;
/// etcd.ctl(&["put", "a", "1"])?;
/// etcd.kill()?;
/// etcd.start_again()?;
/// assert_eq!(etcd.ctl(&["get", "a"])?, "a\n1");
/// etcd.start_empty()?;
/// assert_eq!(etcd.ctl(&["get", "a"])?, "");
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Etcd {
    // Fields are dropped in this order: first the process, then its folder.
    process: ServerProcess,
    parts: Parts,
}

super::process::signals!(Etcd);

impl Etcd {
    /// A server of one member, without passwords.
    pub fn start() -> Result<Self> {
        Self::with().start()
    }

    /// A server with options.
    pub fn with() -> EtcdBuilder {
        EtcdBuilder::default()
    }

    pub(super) fn new(process: ServerProcess, parts: Parts) -> Self {
        Self { process, parts }
    }

    /// The port for clients. It stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.parts.port.number()
    }

    /// The address: 127.0.0.1, or its [host's](EtcdBuilder::on_host).
    pub fn address(&self) -> Ipv4Addr {
        self.parts.setup.address()
    }

    /// `etcd://127.0.0.1:PORT`, with root's password if there is one. The same with TLS: how that
    /// is asked for is the client's affair.
    pub fn url(&self) -> String {
        match &self.parts.setup.root_password {
            Some(password) => self.url_as("root", password),
            None => format!("etcd://{}:{}", self.address(), self.port()),
        }
    }

    /// The URL for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!(
            "etcd://{user}:{password}@{}:{}",
            self.address(),
            self.port()
        )
    }

    /// `http://127.0.0.1:PORT`, or `https://` with TLS.
    pub fn endpoint(&self) -> String {
        self.parts.endpoint()
    }

    /// The authority of a server with TLS.
    pub fn ca_file(&self) -> Option<&Path> {
        self.certificates().map(Certificates::ca_file)
    }

    /// All certificates of a server with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.parts.secrets.as_ref().map(|secrets| &secrets.files)
    }

    /// The private folder: `log` and `data`.
    pub fn folder(&self) -> &Path {
        self.parts.folder.path()
    }

    /// The disk of a server that was started with [`disk`](EtcdBuilder::disk).
    pub fn disk(&self) -> Option<&Disk> {
        self.parts.disk.as_ref()
    }

    /// Starts it again on the same ports with the data that it kept, after killing it if it runs.
    /// A member of a cluster needs the company of another to get ready.
    pub fn start_again(&self) -> Result<()> {
        self.process.restart()?;
        self.wait_ready()
    }

    /// Starts it again on the same ports and without data, after killing it if it runs: for a
    /// server of one member.
    pub fn start_empty(&self) -> Result<()> {
        self.process.kill()?;
        self.parts.folder.empty("data")?;
        self.start_again()?;
        self.set_up_users()
    }

    /// Starts it again with the data of a snapshot (`ctl(&["snapshot", "save", FILE])`), after
    /// killing it if it runs: revisions go back. For a server of one member.
    ///
    /// ```
    /// use clinch_testkit::servers::{Etcd, Folder};
    /// let (etcd, folder) = (Etcd::start()?, Folder::new("demo")?);
    /// let file = folder.path().join("snapshot");
    /// etcd.ctl(&["put", "a", "1"])?;
    /// etcd.ctl(&["snapshot", "save", file.to_str().unwrap()])?;
    /// etcd.ctl(&["put", "a", "2"])?;
    /// etcd.start_from(&file)?;
    /// assert_eq!(etcd.ctl(&["get", "a"])?, "a\n1");
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn start_from(&self, snapshot: &Path) -> Result<()> {
        self.process.kill()?;
        let data = self.parts.folder.empty("data")?;
        // The tool makes it itself, and will not have one that is there.
        std::fs::remove_dir(&data).map_err(|e| super::failed("cannot remove the data", e))?;
        let args = [
            "snapshot".to_owned(),
            "restore".to_owned(),
            snapshot.display().to_string(),
            format!("--data-dir={}", data.display()),
            format!("--name={}", self.parts.name),
            format!("--initial-cluster={}", self.parts.cluster),
            format!(
                "--initial-advertise-peer-urls={}",
                self.parts.setup.peer_url(self.parts.advertised)
            ),
        ];
        etcdctl(&args.each_ref().map(String::as_str))?;
        self.start_again()
    }

    /// Runs `etcdctl` against this member, as root where there are passwords and with the client's
    /// certificate where there is TLS, and gives what it prints. A refusal is an error.
    pub fn ctl(&self, words: &[&str]) -> Result<String> {
        self.ctl_at(&self.endpoint(), words)
    }

    /// The same against these endpoints.
    pub(super) fn ctl_at(&self, endpoints: &str, words: &[&str]) -> Result<String> {
        let mut args = vec![format!("--endpoints={endpoints}")];
        if let Some(password) = &self.parts.setup.root_password {
            // The caller may have named somebody else.
            if !words.iter().any(|word| word.starts_with("--user")) {
                args.push(format!("--user=root:{password}"));
            }
        }
        self.run(args, words)
    }

    /// What the server has counted.
    ///
    /// ```
    /// use clinch_testkit::servers::Etcd;
    /// let etcd = Etcd::start()?;
    /// let before = etcd.metrics()?.requests();
    /// etcd.ctl(&["put", "a", "1"])?;
    /// assert_eq!(etcd.metrics()?.requests() - before, 1);
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::read(self.parts.counters())
    }

    /// The name by which the cluster knows it.
    pub(super) fn name(&self) -> &str {
        &self.parts.name
    }

    /// Whether it leads; a single member does.
    pub fn is_leader(&self) -> bool {
        let says = |metrics: Metrics| metrics.sum("etcd_server_is_leader", "") > 0;
        self.metrics().is_ok_and(says)
    }

    /// Waits until it has a leader and answers.
    pub(super) fn wait_ready(&self) -> Result<()> {
        let follows = |metrics: Metrics| metrics.sum("etcd_server_has_leader", "") > 0;
        // The look at its health fills the log while there is no leader.
        let ready = || self.metrics().is_ok_and(follows) && is_healthy(self.parts.counters());
        self.process.wait_ready(ready)
    }

    /// Makes the users, and then has passwords asked for.
    pub(super) fn set_up_users(&self) -> Result<()> {
        let Some(password) = &self.parts.setup.root_password else {
            return Ok(());
        };
        let run = |words: &[&str]| {
            let endpoint = format!("--endpoints={}", self.endpoint());
            self.run(vec![endpoint], words).map(drop)
        };
        run(&["user", "add", &format!("root:{password}")])?;
        run(&["user", "grant-role", "root", "root"])?;
        for User {
            name,
            password,
            prefix,
        } in &self.parts.setup.users
        {
            run(&["user", "add", &format!("{name}:{password}")])?;
            run(&["role", "add", name])?;
            let grant = ["role", "grant-permission", name, "--prefix=true"];
            run(&[&grant[..], &["readwrite", prefix]].concat())?;
            run(&["user", "grant-role", name, name])?;
        }
        run(&["auth", "enable"])
    }

    fn run(&self, mut args: Vec<String>, words: &[&str]) -> Result<String> {
        if let Some(files) = self.certificates() {
            args.extend([
                format!("--cacert={}", files.ca_file().display()),
                format!("--cert={}", files.client_certificate().display()),
                format!("--key={}", files.client_key().display()),
            ]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        etcdctl(&[&args, words].concat())
    }
}

fn etcdctl(args: &[&str]) -> Result<String> {
    let told = format!("etcdctl {}", args.join(" "));
    tool::run("etcdctl", args, &[("ETCDCTL_API", "3")], &told)
}
