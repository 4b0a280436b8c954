//! The connection to one server: opened on demand, checked, dropped when it stalls, opened again.
//!
//! It carries commands and, by RESP3, pushed messages. Requests of all tasks share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::Operations;
use clinch_core::{Clock, Error, ErrorKind, Result};
use clinch_kit::backoff::Backoff;
use clinch_kit::reconnect::{self, Connector, Reconnecting};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use tokio::sync::watch;

use super::driver::client;
use super::server::{self, Server};
use super::server_clock::ServerClock;
use crate::config::{Address, Config};
use crate::error::{connecting, is_denied};

/// Commands in flight on one connection before callers wait.
const IN_FLIGHT: usize = 4096;
/// The pauses between two attempts to connect.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// Finds the server; called for each new connection.
#[async_trait]
pub(crate) trait Locate: std::fmt::Debug + Send + Sync {
    async fn locate(&self) -> Result<Address>;
}

#[async_trait]
impl Locate for Address {
    async fn locate(&self) -> Result<Address> {
        Ok(self.clone())
    }
}

/// Handles what a server pushes over a connection.
pub(crate) trait PushHandler: std::fmt::Debug + Send + Sync {
    /// The channels that a new connection subscribes to.
    fn channels(&self) -> Vec<String>;

    /// A message has arrived.
    fn handle(&self, push: PushInfo);

    /// Messages may have been lost: all waiters must check their claims.
    fn missed(&self);

    /// The connection has ended.
    fn disconnected(&self) {}

    /// Whether a lost connection is opened again at once.
    fn is_needed(&self) -> bool;

    /// Whether the store has been closed.
    fn is_closed(&self) -> bool;
}

/// An open connection.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(super) driver: MultiplexedConnection,
    /// The dialer's count of moves when this was opened.
    pub(super) moves: u64,
    /// The server at its other end.
    pub(crate) server: Arc<Server>,
}

pub(crate) type Live = reconnect::Live<Connection>;

/// The connection to one server.
#[derive(Debug)]
pub(crate) struct Session {
    link: Arc<Reconnecting<Dialer>>,
}

/// How the connection is opened, and what outlives it.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) config: Arc<Config>,
    locate: Box<dyn Locate>,
    pushes: Arc<dyn PushHandler>,
    /// Counts how often another server has taken over.
    pub(super) moves: watch::Sender<u64>,
    /// Counts connections: the end of one that was abandoned must not end the next.
    dialed: AtomicU64,
    pub(super) operations: Operations,
    pub(super) clock: ServerClock,
}

impl Session {
    pub(crate) fn new(
        config: Arc<Config>,
        locate: Box<dyn Locate>,
        pushes: Arc<dyn PushHandler>,
        operations: Operations,
    ) -> Arc<Self> {
        let dialer = Dialer {
            config,
            locate,
            pushes,
            moves: watch::Sender::default(),
            dialed: AtomicU64::default(),
            operations,
            clock: ServerClock::default(),
        };
        Arc::new(Self {
            link: Reconnecting::new(dialer, Clock::boot(), PAUSES),
        })
    }

    pub(super) fn dialer(&self) -> &Dialer {
        self.link.connector()
    }

    /// An estimate of the server's clock.
    pub(crate) fn clock(&self) -> &ServerClock {
        &self.dialer().clock
    }

    /// The connection, if one is open.
    pub(crate) fn current(&self) -> Option<Live> {
        self.link.current()
    }

    /// The connection; opened if there is none.
    pub(crate) async fn live(&self) -> Result<Live> {
        self.link.live().await
    }

    /// Drops a connection, if it is still the current one.
    pub(super) fn give_up(&self, live: &Live) {
        self.link.give_up(live.generation);
    }

    /// Drops the current connection: another server is to be used.
    pub(crate) fn reset(&self) {
        self.link.reset();
    }

    /// Another server has taken over. Requests to the old one, which may hang, fail at once, and
    /// the next ones go to the new one.
    pub(crate) fn move_to(&self, address: &str) {
        let there = |live: &Live| &*live.server.address == address;
        if self.current().as_ref().is_some_and(there) {
            return;
        }
        self.dialer().moves.send_modify(|moves| *moves += 1);
        self.reset();
        self.dialer().pushes.missed();
        self.link.reconnect();
    }
}

impl Connector for Dialer {
    type Connection = Connection;

    /// Opens a connection; starts over if another server takes over meanwhile.
    async fn connect(&self, link: &Arc<Reconnecting<Self>>, generation: u64) -> Result<Connection> {
        let mut moved = self.moves.subscribe();
        loop {
            let (limit, to) = (self.config.timeout, OnceLock::new());
            let before = *moved.borrow_and_update();
            let link = Arc::downgrade(link);
            let opened = tokio::select! {
                biased;
                opened = tokio::time::timeout(limit, self.dial(link, generation, before, &to)) => opened,
                Ok(()) = moved.changed() => continue,
            };
            return opened.unwrap_or_else(|_| {
                let to = to.get().map_or("the server", String::as_str);
                let text = format!("{to} does not answer within {limit:?}");
                Err(Error::new(ErrorKind::Unreachable, text)
                    .with_advice("is it Redis, and does it run?"))
            });
        }
    }

    fn connected(&self, generation: u64) {
        if generation > 0 {
            // Messages published while no connection was open are lost.
            self.pushes.missed();
        }
    }

    fn is_needed(&self) -> bool {
        self.pushes.is_needed()
    }

    fn is_closed(&self) -> bool {
        self.pushes.is_closed()
    }
}

impl Dialer {
    /// Opens a connection; `located` is set before, so that an error can name the server.
    async fn dial(
        &self,
        link: Weak<Reconnecting<Self>>,
        generation: u64,
        moves: u64,
        located: &OnceLock<String>,
    ) -> Result<Connection> {
        let address = self.locate.locate().await?;
        let to = located.get_or_init(|| address.to_string()).clone();
        let failed = |error| connecting(error, &to);
        let number = self.dialed.fetch_add(1, Ordering::Relaxed) + 1;
        let pushes = self.pushes.clone();
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(IN_FLIGHT)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    if let Some(link) = link.upgrade() {
                        disconnected(&link, generation, number);
                    }
                } else {
                    pushes.handle(push);
                }
                Ok::<(), ()>(())
            });
        let client = client(&self.config, &address, &self.config.login).map_err(failed)?;
        let mut driver = client
            .get_multiplexed_async_connection_with_config(&settings)
            .await
            .map_err(failed)?;
        self.operations.add(2);
        let mut subscriber = driver.clone();
        let channels = self.pushes.channels();
        let subscribing = async {
            match channels.is_empty() {
                true => Ok(()),
                false => subscriber.subscribe(channels).await,
            }
        };
        let checking = async { driver.req_packed_command(&redis::cmd("INFO")).await };
        let (info, subscribed) = tokio::join!(checking, subscribing);
        let server = match info {
            Ok(info) => Server::read(info, &to),
            Err(error) if self.config.trusts_blindly() && is_denied(&error) => {
                tracing::warn!(%error, "the server cannot be checked: its INFO is denied");
                Server::unknown(&to)
            }
            Err(error) => return Err(failed(error)),
        };
        server::check(&server, &self.config)?;
        self.clock.reset(server.field("server_time_usec"));
        if let Err(error) = subscribed {
            // Waiters still repeat their claims.
            tracing::warn!(%error, "cannot subscribe to wakes: waiting by polling");
        }
        Ok(Connection {
            driver,
            moves,
            server: Arc::new(server),
        })
    }
}

/// A connection has ended; opens another one if messages are awaited.
fn disconnected(link: &Arc<Reconnecting<Dialer>>, generation: u64, number: u64) {
    let dialer = link.connector();
    if dialer.dialed.load(Ordering::Relaxed) == number {
        link.give_up(generation);
    }
    dialer.pushes.disconnected();
    link.reconnect();
}
