//! What differs between the engines.

use std::fmt::Debug;
use std::net::Ipv4Addr;
use std::sync::Arc;

use clinch_core::Result;

use super::{Builder, Certificates, ClockShim, Disk, Folder, Port, Recipe, Server};
use crate::proxy::Splitter;

/// An engine that [`Server`] can run; a value holds the options that only this engine has.
///
/// The engines of this crate implement it. Their types have no names outside: use the aliases
/// ([`Redis`](super::Redis), [`MariaDb`](super::MariaDb), …), or be generic over the engine.
///
/// ```
/// use clinch_testkit::servers::{Engine, Redis, Server};
/// fn bounce<E: Engine>(server: &Server<E>) -> clinch_core::Result<()> {
///     server.kill()?;
///     server.start_again()
/// }
/// bounce(&Redis::start()?)?;
/// # Ok::<(), clinch_core::Error>(())
/// ```
pub trait Engine: Clone + Debug + Default + Send + Sync + 'static {
    /// Names the engine in messages and in the names of folders.
    const NAME: &'static str;

    /// What a server of this engine has beside what all have.
    type State: Debug + Send + Sync;

    /// The command that runs the server, after writing the files that it needs.
    fn prepare(setup: &Builder<Self>, site: &Site) -> Result<(Recipe, Self::State)>;

    /// Writes what must be in the empty folder `data` before the first start.
    fn fill(_setup: &Builder<Self>, _folder: &Folder) -> Result<()> {
        Ok(())
    }

    /// Whether the server answers; polled after each start.
    fn is_ready(server: &Server<Self>) -> bool;

    /// Called when the server has become ready; `fresh` if it started with empty data.
    fn after_start(_server: &Server<Self>, _fresh: bool) -> Result<()> {
        Ok(())
    }

    /// The URL for clients.
    fn url(server: &Server<Self>) -> String;

    /// Cuts the engine's protocol into frames.
    fn splitter() -> Splitter;
}

/// An engine that reads the time through the C library, so that a [`ClockShim`] reaches it.
pub trait LibcClock: Engine {}

/// What every server has beside its process.
#[derive(Debug)]
pub struct Site {
    /// 127.0.0.1, or the address of its host.
    pub(super) address: Ipv4Addr,
    pub(super) port: Port,
    pub(super) clock: Option<ClockShim>,
    pub(super) certificates: Option<Arc<Certificates>>,
    // Dropped before the folder that it is mounted in.
    pub(super) disk: Option<Disk>,
    pub(super) folder: Folder,
}
