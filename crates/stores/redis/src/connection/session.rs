//! The connection to one server: opened on demand, checked, dropped when it stalls, opened again.
//!
//! It carries commands and, by RESP3, pushed messages. Requests of all tasks share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::{Clock, Error, ErrorKind, Result, keeper};
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
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

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
pub(crate) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) number: u64,
    /// The session's count of moves when this was opened.
    pub(super) moves: u64,
    /// The server at its other end.
    pub(crate) server: Arc<Server>,
}

impl Live {
    /// The driver's connection.
    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }
}

/// The connection to one server.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) config: Arc<Config>,
    locate: Box<dyn Locate>,
    pushes: Arc<dyn PushHandler>,
    live: Mutex<Option<Live>>,
    /// Held while a connection is opened, so that only one is.
    opening: tokio::sync::Mutex<()>,
    /// The count of failures and the last one: callers that waited for the same attempt fail with it.
    failures: Mutex<(u64, Option<Error>)>,
    opened: AtomicU64,
    /// Counts how often another server has taken over.
    pub(super) moves: watch::Sender<u64>,
    pub(super) commands: AtomicU64,
    /// An estimate of the server's clock.
    pub(crate) clock: ServerClock,
}

impl Session {
    pub(crate) fn new(
        config: Arc<Config>,
        locate: Box<dyn Locate>,
        pushes: Arc<dyn PushHandler>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            locate,
            pushes,
            live: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            failures: Mutex::default(),
            opened: AtomicU64::default(),
            moves: watch::Sender::default(),
            commands: AtomicU64::default(),
            clock: ServerClock::default(),
        })
    }

    /// Commands sent so far.
    pub(crate) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// The connection, if one is open.
    pub(crate) fn current(&self) -> Option<Live> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.clone()
    }

    /// Drops a connection, if it is still the current one.
    pub(super) fn give_up(&self, number: u64) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| live.number == number) {
            *live = None;
        }
    }

    /// Drops the current connection: another server is to be used.
    pub(crate) fn reset(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The connection; opened if there is none. Runs on the keeper only.
    pub(crate) async fn live(self: &Arc<Self>) -> Result<Live> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let (before, _) = self.failure();
        let _opening = self.opening.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        if let (failures, Some(error)) = self.failure()
            && failures != before
        {
            return Err(error);
        }
        let live = match self.open().await {
            Ok(live) => live,
            Err(error) => {
                let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                *failures = (failures.0 + 1, Some(error.clone()));
                return Err(error);
            }
        };
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
        if self.pushes.is_closed() {
            // Opened for a last withdrawal, say: the connection ends with that request.
            self.reset();
            return Ok(live);
        }
        if live.number > 0 {
            // Messages published while no connection was open are lost.
            self.pushes.missed();
        }
        Ok(live)
    }

    fn failure(&self) -> (u64, Option<Error>) {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.clone()
    }

    /// Another server has taken over. Requests to the old one, which may hang, fail at once, and
    /// the next ones go to the new one.
    pub(crate) fn move_to(self: &Arc<Self>, address: &str) {
        let there = |live: &Live| &*live.server.address == address;
        if self.current().as_ref().is_some_and(there) {
            return;
        }
        self.moves.send_modify(|moves| *moves += 1);
        self.reset();
        self.pushes.missed();
        self.reconnect();
    }

    /// Opens a connection; starts over if another server takes over meanwhile.
    async fn open(self: &Arc<Self>) -> Result<Live> {
        let mut moved = self.moves.subscribe();
        loop {
            let (limit, to) = (self.config.timeout, OnceLock::new());
            let before = *moved.borrow_and_update();
            let opened = tokio::select! {
                biased;
                opened = tokio::time::timeout(limit, self.connect(before, &to)) => opened,
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

    /// Opens a connection; `located` is set before, so that an error can name the server.
    async fn connect(self: &Arc<Self>, moves: u64, located: &OnceLock<String>) -> Result<Live> {
        let address = self.locate.locate().await?;
        let to = located.get_or_init(|| address.to_string()).clone();
        let failed = |error| connecting(error, &to);
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let session = Arc::downgrade(self);
        let pushes = self.pushes.clone();
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(IN_FLIGHT)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    if let Some(session) = session.upgrade() {
                        session.disconnected(number);
                    }
                } else {
                    pushes.handle(push);
                }
                Ok::<(), ()>(())
            });
        let client = client(&self.config, &address, &self.config.login).map_err(failed)?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&settings)
            .await
            .map_err(failed)?;
        self.commands.fetch_add(2, Ordering::Relaxed);
        let mut subscriber = connection.clone();
        let channels = self.pushes.channels();
        let subscribing = async {
            match channels.is_empty() {
                true => Ok(()),
                false => subscriber.subscribe(channels).await,
            }
        };
        let checking = async { connection.req_packed_command(&redis::cmd("INFO")).await };
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
        Ok(Live {
            connection,
            number,
            moves,
            server: Arc::new(server),
        })
    }

    /// One more connection to the same server, without pushed messages. Runs on the keeper only.
    pub(crate) async fn another(&self) -> Result<MultiplexedConnection> {
        let address = self.locate.locate().await?;
        let to = address.to_string();
        let failed = |error| connecting(error, &to);
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.timeout))
            .set_response_timeout(None);
        let client = client(&self.config, &address, &self.config.login).map_err(failed)?;
        let connection = client.get_multiplexed_async_connection_with_config(&settings);
        connection.await.map_err(failed)
    }

    fn disconnected(self: Arc<Self>, number: u64) {
        self.give_up(number);
        self.pushes.disconnected();
        self.reconnect();
    }

    /// Connects again in the background, if messages are awaited.
    fn reconnect(self: &Arc<Self>) {
        if !self.pushes.is_needed() {
            return;
        }
        let session = self.clone();
        let reconnecting = async move {
            let mut pause = PAUSES.0;
            while session.pushes.is_needed() && session.live().await.is_err() {
                Clock::boot().sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        };
        if let Err(error) = keeper::spawn(reconnecting) {
            tracing::error!(%error, "cannot connect again");
        }
    }
}
