//! Options of a ZooKeeper server, and its configuration file.

use clinch_core::Result;

use super::{ZooKeeper, ZooKeeperBuilder};
use crate::proxy::{Splitter, jute};
use crate::servers::engine::Site;
use crate::servers::{Certificates, Engine, Folder, Port, Recipe, failed};

/// The server and a logger, where Debian's packages have them.
const JARS: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";
/// What TLS needs, and the server's manifest does not name.
const TLS_JARS: &str = ":/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";

/// What every server gets: short ticks, which allow short sessions, and long limits between the
/// servers, because a busy machine must not change the leader.
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

/// A small virtual machine that starts fast, and no flush of writes: no test cuts the power.
const VIRTUAL_MACHINE: [&str; 6] = [
    "-Xmx128m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Dzookeeper.forceSync=no",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// ZooKeeper, with its own options.
#[derive(Debug, Clone, Default)]
pub struct ZooKeeperEngine {
    properties: Vec<String>,
    jaas: Option<String>,
    /// Its number in an ensemble.
    id: Option<usize>,
}

impl ZooKeeperBuilder {
    /// A line of the configuration file. The last line of a name counts.
    pub fn config(self, name: &str, value: &str) -> Self {
        self.setting(format!("{name}={value}"))
    }

    /// A system property of the server's virtual machine.
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.engine.properties.push(format!("-D{name}={value}"));
        self
    }

    /// A user who logs in by SASL with DIGEST-MD5.
    pub fn sasl_user(mut self, user: &str, password: &str) -> Self {
        self.engine.jaas = Some(format!(
            "Server {{\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  \
             user_{user}=\"{password}\";\n}};\n"
        ));
        self.property(
            "zookeeper.authProvider.1",
            "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        )
    }

    /// A member of an ensemble, by its number.
    pub(super) fn member(mut self, id: usize) -> Self {
        self.engine.id = Some(id);
        self
    }
}

impl Engine for ZooKeeperEngine {
    const NAME: &'static str = "zookeeper";
    /// The port with TLS.
    type State = Option<Port>;

    fn prepare(setup: &ZooKeeperBuilder, site: &Site) -> Result<(Recipe, Option<Port>)> {
        let folder = &site.folder;
        let mut text = format!(
            "{BASICS}clientPortAddress={}\nclientPort={}\ndataDir={}\n",
            site.address,
            site.port.number(),
            folder.path().join("data").display()
        );
        let certificates = site.certificates.as_deref();
        let secure = certificates.map(|_| Port::reserve()).transpose()?;
        if let (Some(certificates), Some(port)) = (certificates, &secure) {
            text += &tls_lines(folder, certificates, port)?;
        }
        for line in &setup.settings {
            text += &format!("{line}\n");
        }
        let config = folder.write("config", text)?;
        let mut recipe = Recipe::new("java", folder.path())
            .args(VIRTUAL_MACHINE)
            .args(&setup.engine.properties);
        if let Some(jaas) = &setup.engine.jaas {
            let file = folder.write("jaas.conf", jaas)?;
            let property = "java.security.auth.login.config";
            recipe = recipe.arg(format!("-D{property}={}", file.display()));
        }
        let more = if secure.is_some() { TLS_JARS } else { "" };
        let recipe = recipe
            .arg("-cp")
            .arg(format!("{JARS}{more}"))
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(config.to_string_lossy());
        Ok((recipe, secure))
    }

    fn fill(setup: &ZooKeeperBuilder, folder: &Folder) -> Result<()> {
        if let Some(id) = setup.engine.id {
            folder.write("data/myid", id.to_string())?;
        }
        Ok(())
    }

    fn is_ready(zookeeper: &ZooKeeper) -> bool {
        zookeeper.mode().is_some()
    }

    /// `zookeeper://127.0.0.1:PORT`.
    fn url(zookeeper: &ZooKeeper) -> String {
        format!("zookeeper://{}", zookeeper.socket_address())
    }

    fn splitter() -> Splitter {
        jute()
    }
}

/// The lines of the configuration file for the port with TLS.
fn tls_lines(folder: &Folder, certificates: &Certificates, port: &Port) -> Result<String> {
    // The server reads its certificate and its key from one file.
    let mut both = Vec::new();
    for file in [certificates.server_key(), certificates.server_certificate()] {
        let read = std::fs::read(file);
        both.extend(read.map_err(|e| failed(format!("read {}", file.display()), e))?);
    }
    let own = folder.write("server.pem", both)?;
    // Only this factory supports TLS.
    Ok(format!(
        "secureClientPort={}\n\
         secureClientPortAddress=127.0.0.1\n\
         serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         ssl.keyStore.type=PEM\n\
         ssl.keyStore.location={}\n\
         ssl.trustStore.type=PEM\n\
         ssl.trustStore.location={}\n\
         ssl.clientAuth=need\n",
        port.number(),
        own.display(),
        certificates.ca_file().display()
    ))
}
