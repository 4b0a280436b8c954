//! The sessions of a client: one for each length that is needed, opened on demand.
//!
//! A claim stays in its session. A session that has ended is never revived: the next claim gets a new
//! one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch_core::store::{OpenContext, Operations};
use clinch_core::{Clock, Error, ErrorKind, Result, keeper};
use clinch_kit::closed::Closed;
use clinch_kit::lock;
use zookeeper_client::{Client, Error as Zk};

use super::session::Session;
use super::tls::{self, Tls};
use crate::config::Config;
use crate::error::{closed_error, connect_error};
use crate::suspicions::ConnectionObserver;

/// The driver leaves a server that is silent for longer; a quarter of the session if that is less.
const SILENCE: Duration = Duration::from_secs(4);

/// A session without claims is ended after this time.
const IDLE: Duration = Duration::from_secs(60);

/// All sessions of one client.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) config: Arc<Config>,
    clock: Clock,
    slots: Mutex<HashMap<Duration, Arc<Slot>>>,
    operations: Operations,
    observer: ConnectionObserver,
    /// The longest session that the ensemble allows; set by the first session.
    longest: Mutex<Option<Duration>>,
    pub(crate) closed: Closed,
}

/// The session of one length.
#[derive(Debug, Default)]
struct Slot {
    current: Mutex<Option<Arc<Session>>>,
    /// Held while a session is opened, so that only one is.
    opening: tokio::sync::Mutex<()>,
}

impl Slot {
    fn live(&self) -> Option<Arc<Session>> {
        let current = lock(&self.current);
        let live = current.as_ref().filter(|session| !session.has_ended());
        live.cloned()
    }
}

impl Sessions {
    pub(crate) fn new(
        config: Arc<Config>,
        context: &OpenContext,
        observer: ConnectionObserver,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            clock: context.clock.clone(),
            slots: Mutex::default(),
            operations: context.operations.clone(),
            observer,
            longest: Mutex::new(None),
            closed: Closed::default(),
        })
    }

    /// The session for requests that belong to no claim. It is as long as the ensemble allows.
    pub(crate) async fn base(self: &Arc<Self>) -> Result<Arc<Session>> {
        let session = self.slot(Duration::MAX).await?;
        *lock(&self.longest) = Some(session.timeout);
        Ok(session)
    }

    /// The session for claims with this lease and lock-delay.
    pub(crate) async fn for_claim(
        self: &Arc<Self>,
        lease: Duration,
        lock_delay: Duration,
    ) -> Result<Arc<Session>> {
        let needed = self.config.session_for(lease, lock_delay);
        self.check_length(needed, || {
            format!("a lease of {lease:?} with a lock-delay of {lock_delay:?}")
        })?;
        let session = self.slot(needed).await?;
        check_granted(&session, needed)?;
        session.mark_used();
        Ok(session)
    }

    /// A separate session without pings: the servers remove its nodes after this time.
    pub(crate) async fn abandoned(self: &Arc<Self>, length: Duration) -> Result<Arc<Session>> {
        self.check_length(length, || "this lock-delay".to_owned())?;
        let session = self.open(length, true).await?;
        check_granted(&session, length)?;
        Ok(session)
    }

    /// Refuses a session that is longer than the ensemble allows, without a request.
    fn check_length(&self, needed: Duration, purpose: impl FnOnce() -> String) -> Result<()> {
        match *lock(&self.longest) {
            Some(longest) if needed > longest => Err(too_short(needed, longest, &purpose())),
            _ => Ok(()),
        }
    }

    async fn slot(self: &Arc<Self>, length: Duration) -> Result<Arc<Session>> {
        if self.closed.is_closed() {
            return Err(closed_error());
        }
        let slot = lock(&self.slots).entry(length).or_default().clone();
        if let Some(session) = slot.live() {
            return Ok(session);
        }
        let _opening = slot.opening.lock().await;
        if let Some(session) = slot.live() {
            return Ok(session);
        }
        let session = self.open(length, false).await?;
        *lock(&slot.current) = Some(session.clone());
        // `close` may have missed it. A claim under way must leave nothing behind.
        if self.closed.is_closed() {
            session.end();
            return Err(closed_error());
        }
        Ok(session)
    }

    /// Opens a session on the keeper: the driver's tasks run there.
    async fn open(self: &Arc<Self>, length: Duration, detached: bool) -> Result<Arc<Session>> {
        let sessions = self.clone();
        keeper::run(async move { sessions.connect(length, detached).await }).await
    }

    async fn connect(&self, length: Duration, detached: bool) -> Result<Arc<Session>> {
        // The protocol counts milliseconds in 31 bits.
        let length = length.min(Duration::from_millis(i32::MAX as u64));
        let mut connector = Client::connector()
            .with_session_timeout(length)
            .with_connection_timeout(SILENCE.min(length / 4))
            .with_fail_eagerly();
        connector = self.config.authenticate(connector);
        if detached {
            connector = connector.with_detached();
        }
        self.operations.add(1);
        // Read for each session, because certificates are renewed.
        let tls = self.config.tls.as_ref().map(Tls::options).transpose()?;
        let endpoints = self.config.endpoints();
        let driver = tokio::select! {
            biased;
            driver = tls::connect(connector, &endpoints, tls) => driver,
            () = self.clock.sleep(self.config.timeout) => Err(Zk::Timeout),
        };
        let driver = driver.map_err(|error| {
            let error = connect_error(error, &self.config.server_list());
            match self.config.tls {
                // The driver does not report what was wrong.
                Some(_) => error.with_advice(tls::ADVICE),
                None => error,
            }
        })?;
        self.observer
            .watch(driver.session_id().0, driver.state_watcher())?;
        let (clock, operations) = (self.clock.clone(), self.operations.clone());
        Ok(Arc::new(Session::new(
            driver,
            &self.config,
            clock,
            operations,
        )))
    }

    /// Ends idle sessions.
    pub(crate) fn end_idle(&self) {
        let is_idle = |session: &Arc<Session>| {
            // A task that is about to use it has a reference.
            session.has_ended() || session.is_idle(IDLE) && Arc::strong_count(session) == 1
        };
        lock(&self.slots).retain(|length, slot| {
            let idle = lock(&slot.current).as_ref().is_none_or(is_idle);
            *length == Duration::MAX || Arc::strong_count(slot) > 1 || !idle
        });
    }

    /// Ends all sessions and returns them.
    pub(crate) fn close(&self) -> Vec<Arc<Session>> {
        self.closed.close();
        let slots = std::mem::take(&mut *lock(&self.slots));
        let sessions: Vec<_> = slots
            .values()
            .filter_map(|slot| lock(&slot.current).take())
            .collect();
        for session in &sessions {
            session.end();
        }
        sessions
    }
}

/// Refuses a session that the ensemble has made shorter.
fn check_granted(session: &Session, needed: Duration) -> Result<()> {
    match session.timeout < needed {
        true => Err(too_short(needed, session.timeout, "this")),
        false => Ok(()),
    }
}

fn too_short(needed: Duration, longest: Duration, purpose: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{purpose} needs a session of {needed:?}, and the ensemble allows {longest:?}"),
    )
    .with_advice("use a shorter lease or lock-delay, or raise maxSessionTimeout on all servers")
}
