//! Sessions at the ensemble: one for each length that is needed, made on demand.
//!
//! The nodes of a claim live as long as the session that made them, so a claim stays with its
//! session. A session that has ended is never revived: the next claim gets a new one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::store::{OpenContext, Operations};
use clinch_core::{BootTime, Clock, Error, ErrorKind, Result, keeper};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as Zk, StateWatcher};

use crate::config::{Access, Config};
use crate::doubt::Observer;
use crate::error::{closed, connecting};
use crate::paths::Paths;
use crate::tls::{self, Tls};

/// A server that is silent for longer is left for another one, and sooner in a short session.
const SILENCE: Duration = Duration::from_secs(4);

/// For how long a session is kept in which nothing lives.
const IDLE: Duration = Duration::from_secs(60);

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Gone when the store is closed.
    client: Mutex<Option<Arc<Client>>>,
    pub(crate) id: i64,
    /// How long it lives without a word from us.
    pub(crate) timeout: Duration,
    state: StateWatcher,
    /// Claims that live in it.
    pub(crate) claims: AtomicUsize,
    /// When it was last asked for.
    used: Mutex<BootTime>,
    clock: Clock,
    patience: Duration,
    operations: Operations,
    acl: Access,
}

impl Session {
    /// The driver, for requests; each is counted.
    pub(crate) fn client(&self, requests: u64) -> Result<Arc<Client>, Zk> {
        self.operations.add(requests);
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.clone().ok_or(Zk::ClientClosed)
    }

    /// Waits for an answer, but not for ever.
    pub(crate) async fn within<T>(&self, answer: impl Future<Output = T>) -> Result<T, Zk> {
        tokio::select! {
            biased;
            answer = answer => Ok(answer),
            () = self.clock.sleep(self.patience) => Err(Zk::Timeout),
        }
    }

    /// Whether it has ended, as far as the driver knows.
    pub(crate) fn is_dead(&self) -> bool {
        self.state.peek_state().is_terminated()
    }

    /// How nodes of this kind are made.
    pub(crate) fn options(&self, mode: CreateMode) -> CreateOptions<'static> {
        mode.with_acls(self.acls())
    }

    /// Who may touch our nodes.
    pub(crate) fn acls(&self) -> Acls<'static> {
        match self.acl {
            Access::Open => Acls::anyone_all(),
            Access::CreatorAll => Acls::creator_all(),
        }
    }

    /// Makes a folder and what is missing above it. They go by themselves when they are empty.
    pub(crate) async fn make_folder(&self, path: &str) -> Result<(), Zk> {
        let options = self.options(CreateMode::Container);
        let client = self.client(1)?;
        match self.within(client.create(path, b"", &options)).await? {
            Err(Zk::NoNode) => {}
            Ok(_) | Err(Zk::NodeExists) => return Ok(()),
            Err(error) => return Err(error),
        }
        for path in Paths::above(path).chain([path]) {
            let client = self.client(1)?;
            match self.within(client.create(path, b"", &options)).await? {
                Ok(_) | Err(Zk::NodeExists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends it: the servers remove its nodes at once.
    pub(crate) fn end(&self) {
        let client = self
            .client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(client);
    }

    /// Completes when it has ended.
    pub(crate) async fn ended(&self) {
        let mut state = self.state.clone();
        while !state.state().is_terminated() {
            state.changed().await;
        }
    }
}

/// All sessions of one client.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) config: Arc<Config>,
    clock: Clock,
    slots: Mutex<HashMap<Duration, Arc<Slot>>>,
    operations: Operations,
    /// Told what becomes of sessions.
    observer: Observer,
    /// The longest session that the ensemble allows; known once the first is there.
    longest: Mutex<Option<Duration>>,
    closed: Mutex<bool>,
}

/// The session of one length.
#[derive(Debug, Default)]
struct Slot {
    current: Mutex<Option<Arc<Session>>>,
    /// Held while one is made, so that only one is.
    making: tokio::sync::Mutex<()>,
}

impl Slot {
    fn live(&self) -> Option<Arc<Session>> {
        let current = lock(&self.current);
        current
            .as_ref()
            .filter(|session| !session.is_dead())
            .cloned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    pub(crate) fn new(config: Arc<Config>, context: &OpenContext, observer: Observer) -> Arc<Self> {
        Arc::new(Self {
            config,
            clock: context.clock.clone(),
            slots: Mutex::default(),
            operations: context.operations.clone(),
            observer,
            longest: Mutex::new(None),
            closed: Mutex::new(false),
        })
    }

    /// The session for what belongs to no claim: it is as long as the ensemble allows, and tells
    /// how long that is.
    pub(crate) async fn base(self: &Arc<Self>) -> Result<Arc<Session>> {
        let session = self.slot(Duration::MAX).await?;
        *lock(&self.longest) = Some(session.timeout);
        Ok(session)
    }

    /// The session in which claims with this lease and lock-delay live.
    pub(crate) async fn for_claim(
        self: &Arc<Self>,
        lease: Duration,
        lock_delay: Duration,
    ) -> Result<Arc<Session>> {
        let needed = self.config.session_for(lease, lock_delay);
        self.check(needed, || {
            format!("a lease of {lease:?} with a lock-delay of {lock_delay:?}")
        })?;
        let session = self.slot(needed).await?;
        self.fits(&session, needed)?;
        *lock(&session.used) = self.clock.now();
        Ok(session)
    }

    /// A session of its own that nobody keeps alive: what is made in it goes after that long.
    pub(crate) async fn abandoned(self: &Arc<Self>, length: Duration) -> Result<Arc<Session>> {
        self.check(length, || "this lock-delay".to_owned())?;
        let session = self.open(length, true).await?;
        self.fits(&session, length)?;
        Ok(session)
    }

    /// Refuses what the ensemble cannot do, without asking it.
    fn check(&self, needed: Duration, what: impl FnOnce() -> String) -> Result<()> {
        match *lock(&self.longest) {
            Some(longest) if needed > longest => Err(too_short(needed, longest, &what())),
            _ => Ok(()),
        }
    }

    fn fits(&self, session: &Session, needed: Duration) -> Result<()> {
        match session.timeout < needed {
            true => Err(too_short(needed, session.timeout, "this")),
            false => Ok(()),
        }
    }

    async fn slot(self: &Arc<Self>, length: Duration) -> Result<Arc<Session>> {
        let slot = {
            if *lock(&self.closed) {
                return Err(closed());
            }
            let mut slots = lock(&self.slots);
            slots.entry(length).or_default().clone()
        };
        if let Some(session) = slot.live() {
            return Ok(session);
        }
        let _making = slot.making.lock().await;
        if let Some(session) = slot.live() {
            return Ok(session);
        }
        let session = self.open(length, false).await?;
        *lock(&slot.current) = Some(session.clone());
        if *lock(&self.closed) {
            session.end();
            return Err(closed());
        }
        Ok(session)
    }

    /// Opens a session, on the keeper: the driver's tasks live there.
    async fn open(self: &Arc<Self>, length: Duration, detached: bool) -> Result<Arc<Session>> {
        let sessions = self.clone();
        keeper::run(async move { sessions.connect(length, detached).await }).await
    }

    async fn connect(&self, length: Duration, detached: bool) -> Result<Arc<Session>> {
        // The protocol counts milliseconds in 31 bits.
        let asked = length.min(Duration::from_millis(i32::MAX as u64));
        let mut connector = Client::connector()
            .with_session_timeout(asked)
            .with_connection_timeout(SILENCE.min(asked / 4))
            .with_fail_eagerly();
        if let Some(login) = &self.config.login {
            connector = login.introduce(connector);
        }
        if detached {
            connector = connector.with_detached();
        }
        self.operations.add(1);
        let (servers, endpoints) = (&self.config.servers, self.config.endpoints());
        // Read anew for each session: certificates are renewed.
        let tls = self.config.tls.as_ref().map(Tls::options).transpose()?;
        let client = tokio::select! {
            biased;
            client = tls::connect(connector, &endpoints, tls) => client,
            () = self.clock.sleep(self.config.timeout) => Err(Zk::Timeout),
        };
        let client = client.map_err(|error| {
            let error = connecting(error, servers);
            match self.config.tls {
                // The driver does not say what was wrong.
                Some(_) => error.with_advice(tls::ADVICE),
                None => error,
            }
        })?;
        self.observer
            .watch(client.session_id().0, client.state_watcher())?;
        Ok(Arc::new(Session {
            id: client.session_id().0,
            timeout: client.session_timeout(),
            state: client.state_watcher(),
            client: Mutex::new(Some(Arc::new(client))),
            claims: AtomicUsize::new(0),
            used: Mutex::new(self.clock.now()),
            clock: self.clock.clone(),
            patience: self.config.timeout,
            operations: self.operations.clone(),
            acl: self.config.acl,
        }))
    }

    /// Ends sessions in which nothing has lived for a while.
    pub(crate) fn tidy(&self) {
        let now = self.clock.now();
        let is_idle = |session: &Arc<Session>| {
            let unused = now.since(*lock(&session.used)) > IDLE;
            let empty = session.claims.load(Ordering::Relaxed) == 0;
            // Whoever is just about to use it has it in hands.
            session.is_dead() || unused && empty && Arc::strong_count(session) == 1
        };
        lock(&self.slots).retain(|length, slot| {
            let idle = lock(&slot.current).as_ref().is_none_or(is_idle);
            *length == Duration::MAX || Arc::strong_count(slot) > 1 || !idle
        });
    }

    /// Ends all of them, and says which there were.
    pub(crate) fn close(&self) -> Vec<Arc<Session>> {
        *lock(&self.closed) = true;
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

    pub(crate) fn is_closed(&self) -> bool {
        *lock(&self.closed)
    }
}

fn too_short(needed: Duration, longest: Duration, what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{what} needs a session of {needed:?}, and the ensemble allows {longest:?}"),
    )
    .with_advice("take a shorter lease or lock-delay, or raise maxSessionTimeout on all servers")
}
