//! Options of a MariaDB server, and its command.

use std::os::unix::net::UnixStream;

use clinch_core::Result;

use super::flavour::Flavour;
use super::template::{as_root, unpack};
use super::{MariaDb, MariaDbBuilder};
use crate::proxy::{Splitter, mysql};
use crate::servers::builder::Tls;
use crate::servers::engine::{LibcClock, Site};
use crate::servers::{Engine, Folder, Recipe};

/// What every server gets: a flush at every commit, which is the engine's own default, and little
/// memory.
const BASICS: [&str; 9] = [
    "--no-defaults",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--performance-schema=0",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=32M",
    "--innodb-buffer-pool-load-at-startup=0",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--key-buffer-size=1M",
];

/// MariaDB; all its options are options of its command.
#[derive(Debug, Clone, Copy, Default)]
pub struct MariaDbEngine;

impl MariaDbBuilder {
    /// An option of the server, without its dashes: `wait-timeout`, `max-connections`,
    /// `default-time-zone` … The last option of a name counts.
    pub fn option(self, name: &str, value: &str) -> Self {
        self.setting(format!("--{name}={value}"))
    }

    /// What all servers have, what this one has, the caller's options.
    fn arguments(&self, flavour: &Flavour, site: &Site) -> Vec<String> {
        let here = site.folder.path().display();
        let own = flavour.basics().iter().copied().chain(flavour.sizes());
        let fixed = BASICS.into_iter().chain(own).chain(as_root());
        let mut all: Vec<String> = fixed.map(str::to_owned).collect();
        all.extend([
            format!("--bind-address={}", site.address),
            format!("--datadir={here}/data"),
            format!("--socket={here}/socket"),
            format!("--pid-file={here}/pid"),
            format!("--tmpdir={here}"),
            format!("--port={}", site.port.number()),
        ]);
        if let Some(certificates) = &site.certificates {
            let certificate = certificates.server_certificate().display();
            all.extend([
                format!("--ssl-ca={}", certificates.ca_file().display()),
                format!("--ssl-cert={certificate}"),
                format!("--ssl-key={}", certificates.server_key().display()),
                "--require-secure-transport=ON".to_owned(),
            ]);
        }
        all.extend(self.settings.iter().cloned());
        all
    }
}

impl Engine for MariaDbEngine {
    const NAME: &'static str = "mariadb";
    type State = Flavour;

    fn prepare(setup: &MariaDbBuilder, site: &Site) -> Result<(Recipe, Flavour)> {
        let flavour = Flavour::chosen();
        let recipe = Recipe::new(flavour.program(), site.folder.path());
        Ok((recipe.args(setup.arguments(&flavour, site)), flavour))
    }

    fn fill(_setup: &MariaDbBuilder, folder: &Folder) -> Result<()> {
        unpack(folder.path())
    }

    fn is_ready(mariadb: &MariaDb) -> bool {
        // The socket first: the client is a process, and polling with it would slow the start.
        UnixStream::connect(mariadb.socket()).is_ok() && mariadb.sql("SELECT 1").is_ok()
    }

    /// The kit's two users need a certificate if clients do; the database keeps that.
    fn after_start(mariadb: &MariaDb, fresh: bool) -> Result<()> {
        if fresh && mariadb.setup.tls == Tls::Mutual {
            mariadb
                .sql("ALTER USER clinch@'%' REQUIRE X509; ALTER USER limited@'%' REQUIRE X509")?;
        }
        Ok(())
    }

    /// `mysql://clinch:secret@127.0.0.1:PORT/clinch`, a user with all rights.
    fn url(mariadb: &MariaDb) -> String {
        mariadb.url_as("clinch", "secret")
    }

    fn splitter() -> Splitter {
        mysql()
    }
}

impl LibcClock for MariaDbEngine {}
