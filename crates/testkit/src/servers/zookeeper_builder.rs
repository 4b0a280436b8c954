//! How a ZooKeeper is to be set up.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clinch_core::Result;

use super::network::address;
use super::zookeeper::ZooKeeper;
use super::{Certificates, Disk, Folder, Host, Port, Recipe, failed, on_free_port};

/// Where Debian's package puts the server, and a logger for it.
const JARS: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";
/// What it needs for TLS and does not name itself.
const TLS_JARS: &str = ":/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// What every server gets: short ticks so that sessions may be short, and generous
/// limits between servers, because a busy machine is not a broken one.
const BASICS: &str = "\
tickTime=200
initLimit=100
syncLimit=25
minSessionTimeout=400
maxSessionTimeout=600000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
autopurge.purgeInterval=0
";

/// Options of a [`ZooKeeper`] that is still to be started; see [`ZooKeeper::with`].
///
/// ```
/// use clinch_testkit::servers::ZooKeeper;
/// let zookeeper = ZooKeeper::with().config("maxSessionTimeout", "8000").start()?;
/// assert!(zookeeper.word("conf")?.contains("maxSessionTimeout=8000"));
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before start()"]
pub struct ZooKeeperBuilder {
    lines: Vec<String>,
    properties: Vec<String>,
    jaas: Option<String>,
    tls: bool,
    /// Its number in an ensemble.
    id: Option<usize>,
    host: Option<Host>,
    disk: Option<u32>,
}

impl ZooKeeperBuilder {
    /// A line of the configuration file. The last one of a name counts.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.lines.push(format!("{name}={value}"));
        self
    }

    /// A system property of the server's virtual machine.
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push(format!("-D{name}={value}"));
        self
    }

    /// A user who logs in by SASL with DIGEST-MD5.
    pub fn sasl_user(mut self, user: &str, password: &str) -> Self {
        self.jaas = Some(format!(
            "Server {{\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  \
             user_{user}=\"{password}\";\n}};\n"
        ));
        self.property(
            "zookeeper.authProvider.1",
            "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        )
    }

    /// A small disk of so many megabytes for what it keeps; see [`ZooKeeper::disk`].
    pub fn disk(mut self, megabytes: u32) -> Self {
        self.disk = Some(megabytes);
        self
    }

    /// On a host of a private network.
    pub fn on_host(mut self, host: &Host) -> Self {
        self.host = Some(host.clone());
        self
    }

    /// A second port, with TLS and a certificate of its own authority, for clients that have one as
    /// well; see [`ZooKeeper::tls_url`] and [`ZooKeeper::certificates`].
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// A member of an ensemble, by its number.
    pub(super) fn member(mut self, id: usize) -> Self {
        self.id = Some(id);
        self
    }

    /// Starts it, and waits until it serves.
    pub fn start(self) -> Result<ZooKeeper> {
        on_free_port(|port| {
            let zookeeper = self.start_on(port)?;
            zookeeper.wait_ready()?;
            Ok(zookeeper)
        })
    }

    pub(super) fn start_on(&self, port: Port) -> Result<ZooKeeper> {
        let folder = Folder::new("zookeeper")?;
        let data = folder.empty("data")?;
        let disk = self
            .disk
            .map(|size| Disk::mount(&folder, "data", size))
            .transpose()?;
        if let Some(id) = self.id {
            folder.write("data/myid", id.to_string())?;
        }
        let mut text = format!(
            "{BASICS}clientPortAddress={}\nclientPort={}\ndataDir={}\n",
            address(self.host.as_ref()),
            port.number(),
            data.display()
        );
        let secure = self.tls.then(|| Secure::new(&folder)).transpose()?;
        let encrypted = secure.iter().flat_map(Secure::lines);
        for line in encrypted.chain(self.lines.iter().cloned()) {
            text += &line;
            text += "\n";
        }
        let config = folder.write("config", text)?;
        // A small machine, quick to start; nothing is kept for the loss of power.
        let mut recipe = Recipe::new("java", folder.path()).on(self.host.as_ref());
        for option in [
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            "-Dzookeeper.forceSync=no",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ] {
            recipe = recipe.arg(option);
        }
        for property in &self.properties {
            recipe = recipe.arg(property);
        }
        if let Some(jaas) = &self.jaas {
            let file = folder.write("jaas.conf", jaas)?;
            recipe = recipe.arg(format!(
                "-Djava.security.auth.login.config={}",
                file.display()
            ));
        }
        let recipe = recipe
            .arg("-cp")
            .arg(format!("{JARS}{}", if self.tls { TLS_JARS } else { "" }))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(config.to_string_lossy());
        let parts = Parts {
            address: address(self.host.as_ref()),
            port,
            secure,
            disk,
            folder,
        };
        ZooKeeper::launch(recipe, parts)
    }
}

/// What a server is made of beside its process.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) address: Ipv4Addr,
    pub(super) port: Port,
    pub(super) secure: Option<Secure>,
    // Before the folder that it is in.
    pub(super) disk: Option<Disk>,
    pub(super) folder: Folder,
}

/// The port with TLS.
#[derive(Debug)]
pub(super) struct Secure {
    pub(super) port: Port,
    pub(super) files: Certificates,
    /// The server's certificate and its key, in one file as it wants them.
    own: PathBuf,
}

impl Secure {
    fn new(folder: &Folder) -> Result<Self> {
        let files = Certificates::make(folder)?;
        let mut both = Vec::new();
        for file in [files.server_key(), files.server_certificate()] {
            let read = std::fs::read(file);
            both.extend(read.map_err(|e| failed(format!("read {}", file.display()), e))?);
        }
        Ok(Self {
            port: Port::reserve()?,
            own: folder.write("server.pem", both)?,
            files,
        })
    }

    /// What the configuration says of it.
    fn lines(&self) -> Vec<String> {
        vec![
            format!("secureClientPort={}", self.port.number()),
            "secureClientPortAddress=127.0.0.1".to_owned(),
            // The only part of the server that has TLS.
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
            "ssl.keyStore.type=PEM".to_owned(),
            format!("ssl.keyStore.location={}", self.own.display()),
            "ssl.trustStore.type=PEM".to_owned(),
            format!("ssl.trustStore.location={}", self.files.ca_file().display()),
            "ssl.clientAuth=need".to_owned(),
        ]
    }
}
