//! How a MariaDB is to be set up.

use clinch_core::Result;

use super::mariadb::MariaDb;
use super::mariadb_flavour::Flavour;
use super::mariadb_template::{as_root, unpack};
use super::{Certificates, ClockShim, Disk, Folder, Port, Recipe, on_free_port};

/// What every server gets: loopback only, a flush at every commit, which is the engine's own
/// default, and little memory.
const BASICS: [&str; 10] = [
    "--no-defaults",
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--performance-schema=0",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=32M",
    "--innodb-buffer-pool-load-at-startup=0",
    "--innodb-buffer-pool-dump-at-shutdown=0",
    "--key-buffer-size=1M",
];

/// Options of a [`MariaDb`] that is still to be started; see [`MariaDb::with`].
///
/// ```
/// use clinch_testkit::servers::MariaDb;
/// let mariadb = MariaDb::with()
///     .option("wait-timeout", "5")
///     .option("default-time-zone", "+05:30")
///     .start()?;
/// assert_eq!(mariadb.sql("SELECT @@global.wait_timeout, @@time_zone")?, "5\t+05:30");
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before start()"]
pub struct MariaDbBuilder {
    options: Vec<String>,
    /// `Some(true)` where clients must have a certificate.
    pub(super) tls: Option<bool>,
    shim: bool,
    disk: Option<u32>,
}

impl MariaDbBuilder {
    /// An option of the server, without its dashes: `wait-timeout`, `max-connections`,
    /// `default-time-zone` … The last one of a name counts.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push(format!("--{name}={value}"));
        self
    }

    /// TLS for everybody who comes through the port, with a certificate of its own authority; see
    /// [`MariaDb::ca_file`].
    pub fn tls(mut self) -> Self {
        self.tls = Some(self.tls.unwrap_or_default());
        self
    }

    /// TLS for clients with a certificate only; see [`MariaDb::certificates`]. It is asked of the
    /// two users of the kit.
    pub fn tls_client_certificates(mut self) -> Self {
        self.tls = Some(true);
        self
    }

    /// A wall clock that can be moved; see [`MariaDb::step_clock`].
    pub fn clock_shim(mut self) -> Self {
        self.shim = true;
        self
    }

    /// A small disk of so many megabytes for what it keeps; see [`MariaDb::disk`].
    pub fn disk(mut self, megabytes: u32) -> Self {
        self.disk = Some(megabytes);
        self
    }

    /// Starts it, and waits until it answers.
    pub fn start(self) -> Result<MariaDb> {
        on_free_port(|port| self.start_on(port))
    }

    fn start_on(&self, port: Port) -> Result<MariaDb> {
        let folder = Folder::new("mariadb")?;
        let disk = self
            .disk
            .map(|size| Disk::mount(&folder, "data", size))
            .transpose()?;
        unpack(folder.path())?;
        let certificates = self.tls.map(|_| Certificates::make(&folder)).transpose()?;
        let clock = self.shim.then(|| ClockShim::new(&folder)).transpose()?;
        let flavour = Flavour::chosen();
        let mut recipe = Recipe::new(flavour.program(), folder.path());
        for option in self.arguments(&flavour, &folder, &port, certificates.as_ref()) {
            recipe = recipe.arg(option);
        }
        if let Some(clock) = &clock {
            recipe = clock.preload(recipe);
        }
        let parts = Parts {
            setup: self.clone(),
            flavour,
            port,
            clock,
            certificates,
            disk,
            folder,
        };
        MariaDb::launch(recipe, parts)
    }

    /// What all have, what this server has, what was asked for.
    fn arguments(
        &self,
        flavour: &Flavour,
        folder: &Folder,
        port: &Port,
        certificates: Option<&Certificates>,
    ) -> Vec<String> {
        let here = folder.path().display();
        let own = flavour.basics().iter().copied().chain(flavour.sizes());
        let fixed = BASICS.into_iter().chain(own).chain(as_root());
        let mut all: Vec<String> = fixed.map(str::to_owned).collect();
        all.extend([
            format!("--datadir={here}/data"),
            format!("--socket={here}/socket"),
            format!("--pid-file={here}/pid"),
            format!("--tmpdir={here}"),
            format!("--port={}", port.number()),
        ]);
        if let Some(certificates) = certificates {
            let (cert, key) = (
                certificates.server_certificate().display(),
                certificates.server_key().display(),
            );
            all.extend([
                format!("--ssl-ca={}", certificates.ca_file().display()),
                format!("--ssl-cert={cert}"),
                format!("--ssl-key={key}"),
                "--require-secure-transport=ON".to_owned(),
            ]);
        }
        all.extend(self.options.iter().cloned());
        all
    }
}

/// What a server is made of beside its process.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) setup: MariaDbBuilder,
    pub(super) flavour: Flavour,
    pub(super) port: Port,
    pub(super) clock: Option<ClockShim>,
    pub(super) certificates: Option<Certificates>,
    // Before the folder that it is in.
    pub(super) disk: Option<Disk>,
    pub(super) folder: Folder,
}
