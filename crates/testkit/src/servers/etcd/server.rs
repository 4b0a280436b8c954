//! Commands to one etcd server.

use std::net::SocketAddr;
use std::path::Path;

use clinch_core::Result;

use super::builder::{User, endpoint, peer_url};
use super::{Etcd, EtcdMetrics};
use crate::servers::{failed, tool};

impl Etcd {
    /// The URL for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("etcd://{user}:{password}@{}", self.socket_address())
    }

    /// `http://127.0.0.1:PORT`, or `https://` with TLS.
    pub fn endpoint(&self) -> String {
        endpoint(&self.site)
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
        self.kill()?;
        let data = self.site.folder.empty("data")?;
        // The tool refuses a folder that exists.
        std::fs::remove_dir(&data).map_err(|e| failed("cannot remove the data", e))?;
        let member = &self.state.member;
        let args = [
            "snapshot".to_owned(),
            "restore".to_owned(),
            snapshot.display().to_string(),
            format!("--data-dir={}", data.display()),
            format!("--name={}", member.name),
            format!("--initial-cluster={}", member.cluster),
            format!(
                "--initial-advertise-peer-urls={}",
                peer_url(self.address(), member.advertised)
            ),
        ];
        etcdctl(&args.each_ref().map(String::as_str))?;
        self.start_again()
    }

    /// Runs `etcdctl` against this member and returns its output. It logs in as root if there is a
    /// password, and has the client's certificate if there is TLS.
    pub fn ctl(&self, args: &[&str]) -> Result<String> {
        self.ctl_at(&self.endpoint(), args)
    }

    /// The same against these endpoints.
    pub(super) fn ctl_at(&self, endpoints: &str, args: &[&str]) -> Result<String> {
        let mut options = vec![format!("--endpoints={endpoints}")];
        // The caller may have named another user.
        let named = args.iter().any(|arg| arg.starts_with("--user"));
        if let Some(password) = self.setup.engine.root_password.as_ref().filter(|_| !named) {
            options.push(format!("--user=root:{password}"));
        }
        self.run(options, args)
    }

    /// The server's counters.
    ///
    /// ```
    /// use clinch_testkit::servers::Etcd;
    /// let etcd = Etcd::start()?;
    /// let before = etcd.metrics()?.requests();
    /// etcd.ctl(&["put", "a", "1"])?;
    /// assert_eq!(etcd.metrics()?.requests() - before, 1);
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn metrics(&self) -> Result<EtcdMetrics> {
        EtcdMetrics::read(self.metrics_address())
    }

    pub(super) fn metrics_address(&self) -> SocketAddr {
        (self.address(), self.state.metrics.number()).into()
    }

    /// Its name in the cluster.
    pub(super) fn name(&self) -> &str {
        &self.state.member.name
    }

    /// Whether it leads; a server alone does.
    pub fn is_leader(&self) -> bool {
        let leads = |metrics: EtcdMetrics| metrics.sum("etcd_server_is_leader", "") > 0;
        self.metrics().is_ok_and(leads)
    }

    /// Adds the users and enables authentication, if there is a password.
    pub(super) fn add_users(&self) -> Result<()> {
        let Some(password) = &self.setup.engine.root_password else {
            return Ok(());
        };
        let run = |args: &[&str]| {
            let endpoint = format!("--endpoints={}", self.endpoint());
            self.run(vec![endpoint], args).map(drop)
        };
        run(&["user", "add", &format!("root:{password}")])?;
        run(&["user", "grant-role", "root", "root"])?;
        for User {
            name,
            password,
            prefix,
        } in &self.setup.engine.users
        {
            run(&["user", "add", &format!("{name}:{password}")])?;
            run(&["role", "add", name])?;
            let grant = ["role", "grant-permission", name, "--prefix=true"];
            run(&[&grant[..], &["readwrite", prefix]].concat())?;
            run(&["user", "grant-role", name, name])?;
        }
        run(&["auth", "enable"])
    }

    fn run(&self, mut options: Vec<String>, args: &[&str]) -> Result<String> {
        if let Some(files) = self.certificates() {
            options.extend([
                format!("--cacert={}", files.ca_file().display()),
                format!("--cert={}", files.client_certificate().display()),
                format!("--key={}", files.client_key().display()),
            ]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        etcdctl(&[&options, args].concat())
    }
}

fn etcdctl(args: &[&str]) -> Result<String> {
    let what = format!("etcdctl {}", args.join(" "));
    tool::run("etcdctl", args, &[("ETCDCTL_API", "3")], &what)
}
