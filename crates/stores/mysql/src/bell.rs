//! How a client that waits is woken: two parked connections for all its claims.
//!
//! One of them, the ear, holds a user-level lock with the client's id as its name: that is its
//! address. On it runs one request that reads the rows of the names, and then, unless any of them has
//! given a token meanwhile, waits for a second user-level lock, which the other connection, the peg,
//! holds. Whoever grants to that client ends the wait, with `KILL QUERY` on the connection that holds
//! the address. A ring before the request begins is not lost, because the request reads first; and a
//! ring that goes astray ends at most a look or a wait, because the ear never runs anything that
//! matters.
//!
//! Not `SLEEP()`: all sleepers of a server share one mutex, and a `KILL QUERY` that finds it taken
//! tries for up to two seconds. Each wait for a lock has a mutex of its own.
//!
//! It is a hint only. Without it, waiters still repeat their claims.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Wake, WakeBook};
use clinch_core::{ClientId, Clock, Name, RequestId, Result, keeper};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Value};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::Trouble;
use crate::pool::{How, Pool, talk};
use crate::recent::Recent;
use crate::row::{Row, bytes, optional};
use crate::sql::{Sql, names};

/// For how many seconds the statement waits when nobody rings.
const WAIT: u64 = 30;
/// What it gives if it has got the lock that the peg should have.
const GOT_IT: u64 = 1;
/// How long the connection is kept when nobody waits.
const LINGER: Duration = Duration::from_secs(20);
/// How long to wait after a failure, at least and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A claim of this client that waits.
#[derive(Debug)]
struct Awaited {
    name: Name,
    /// The last token that the name had given when the claim was queued.
    token: u64,
}

/// The bell of one client.
#[derive(Debug)]
pub(crate) struct Bell {
    pool: Arc<Pool>,
    recent: Arc<Recent>,
    me: ClientId,
    ns: Vec<u8>,
    /// Who listens.
    pub(crate) book: WakeBook,
    awaited: Mutex<HashMap<RequestId, Awaited>>,
    /// Changes with every claim that begins to wait.
    news: watch::Sender<u64>,
    runs: AtomicBool,
    /// Whether the last attempt to listen has failed.
    failing: AtomicBool,
    /// The greatest token seen: a server that lost its data and whose clock is behind must not give
    /// a smaller one.
    greatest: AtomicU64,
    closed: watch::Sender<bool>,
}

impl Bell {
    pub(crate) fn new(pool: Arc<Pool>, recent: Arc<Recent>, me: ClientId, ns: &str) -> Arc<Self> {
        Arc::new(Self {
            pool,
            recent,
            me,
            ns: ns.as_bytes().to_vec(),
            book: WakeBook::default(),
            awaited: Mutex::default(),
            news: watch::Sender::default(),
            runs: AtomicBool::default(),
            failing: AtomicBool::default(),
            greatest: AtomicU64::default(),
            closed: watch::Sender::default(),
        })
    }

    fn awaited(&self) -> MutexGuard<'_, HashMap<RequestId, Awaited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A grant with this token was heard of.
    pub(crate) fn saw(&self, token: u64) {
        self.greatest.fetch_max(token, Ordering::Relaxed);
    }

    /// The greatest token heard of so far.
    pub(crate) fn greatest(&self) -> u64 {
        self.greatest.load(Ordering::Relaxed)
    }

    /// This claim is about to be sent and may have to wait.
    pub(crate) fn expect(self: &Arc<Self>, claim: &Claim) {
        let awaited = Awaited {
            name: claim.name.clone(),
            token: 0,
        };
        self.awaited().entry(claim.request).or_insert(awaited);
    }

    /// This claim is in the queue, and the last token that its name has given is this.
    pub(crate) fn queued(self: &Arc<Self>, request: RequestId, token: u64) {
        let known = match self.awaited().get_mut(&request) {
            Some(awaited) => {
                awaited.token = awaited.token.max(token);
                true
            }
            None => false,
        };
        if known {
            self.news.send_modify(|news| *news += 1);
            self.start();
        }
    }

    /// This claim does not wait any more.
    pub(crate) fn forget(&self, request: RequestId) {
        self.awaited().remove(&request);
    }

    /// Whether this claim is known to wait.
    pub(crate) fn awaits(&self, request: RequestId) -> bool {
        self.awaited().contains_key(&request)
    }

    /// Whether what is said to a claim is kept for it from the moment that it was queued: the bell
    /// knows of it from before, and looks before it sleeps.
    pub(crate) fn keeps_wakes(&self) -> bool {
        !self.failing.load(Ordering::SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Completes when the store is closed or dropped.
    pub(crate) async fn closed(&self) {
        // It cannot fail: the sender is our own.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    pub(crate) fn close(&self) {
        if !self.closed.send_replace(true) && self.runs.load(Ordering::SeqCst) {
            // The driver ends a connection only after its statement has ended.
            self.ring_all(&[self.me]);
        }
        self.book.close();
        self.awaited().clear();
    }

    fn address(client: ClientId) -> String {
        format!("clinch.{client}")
    }

    fn peg(&self) -> String {
        format!("clinch.{}.peg", self.me)
    }

    /// Wakes a client.
    pub(crate) fn ring(client: ClientId) -> String {
        let address = Self::address(client);
        format!("KILL QUERY IFNULL(IS_USED_LOCK('{address}'),0)")
    }

    /// Wakes a client if the statement before has changed a row.
    pub(crate) fn ring_if_written(client: ClientId) -> String {
        let address = Self::address(client);
        format!("KILL QUERY IF(ROW_COUNT()>0,IFNULL(IS_USED_LOCK('{address}'),0),0)")
    }

    /// Wakes clients, in the background. One that has no bell looks by itself before long.
    pub(crate) fn ring_all(&self, clients: &[ClientId]) {
        for client in clients {
            let (pool, sql) = (self.pool.clone(), Sql::new(Self::ring(*client)));
            let ringing = async move {
                let _ = pool.send(&sql, How::TextOnce).await;
            };
            if keeper::spawn(ringing).is_err() {
                return;
            }
        }
    }

    fn start(self: &Arc<Self>) {
        if self.is_closed() || self.runs.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Err(error) = keeper::spawn(self.clone().run()) {
            self.runs.store(false, Ordering::SeqCst);
            tracing::error!(%error, "cannot listen for wakes: waiting by polling");
        }
    }

    async fn run(self: Arc<Self>) {
        let mut pause = PAUSE.0;
        loop {
            // Closing must not wait for the end of a wait at the server.
            let ended = tokio::select! {
                biased;
                () = self.closed() => Ok(()),
                ended = self.listen() => ended,
            };
            if !self.failing.swap(ended.is_err(), Ordering::SeqCst) {
                pause = PAUSE.0;
            }
            match ended {
                Ok(()) => {
                    self.runs.store(false, Ordering::SeqCst);
                    // Somebody may have come after the last look.
                    if self.awaited().is_empty() || self.is_closed() {
                        return;
                    }
                    if self.runs.swap(true, Ordering::SeqCst) {
                        return;
                    }
                }
                Err(trouble) => {
                    tracing::debug!(?trouble, "the bell is lost; waiters poll until it is back");
                    tokio::select! {
                        biased;
                        () = self.closed() => {}
                        () = Clock::boot().sleep(pause) => {}
                    }
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
        }
    }

    /// Listens until nobody waits, or a connection is lost.
    async fn listen(&self) -> Result<(), Trouble> {
        let mut peg = self.pool.connect().await.map_err(Trouble::Unsent)?;
        self.occupy(&mut peg, &self.peg()).await?;
        let mut conn = self.pool.connect().await.map_err(Trouble::Unsent)?;
        self.occupy(&mut conn, &Self::address(self.me)).await?;
        let mut news = self.news.subscribe();
        loop {
            // From here on every claim that is already known is looked at before the wait.
            news.borrow_and_update();
            let names = self.names();
            if names.is_empty() {
                match timeout(LINGER, news.changed()).await {
                    Ok(Ok(())) => continue,
                    _ => return Ok(()),
                }
            }
            self.failing.store(false, Ordering::SeqCst);
            match self.attend(&mut conn, &names).await {
                Ok(Some(GOT_IT)) => {
                    return Err(Trouble::Lost("the peg of the bell is lost".to_owned()));
                }
                Ok(_) => {}
                // Whatever it has ended, the next request reads the rows first.
                Err(trouble) if trouble.is_interrupted() => {}
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Takes a user-level lock that nobody else should have.
    async fn occupy(&self, conn: &mut Conn, lock: &str) -> Result<(), Trouble> {
        let sql = Sql::new(format!("SELECT GET_LOCK('{lock}',0)"));
        self.pool.count();
        let reply = timeout(self.pool.timeout(), talk(conn, &sql, false)).await;
        let reply = reply.map_err(|_| not_answered())?;
        if let Some(trouble) = reply.failed {
            return Err(trouble);
        }
        match reply.into_first_value().and_then(optional).flatten() {
            Some(1) => Ok(()),
            _ => Err(Trouble::Lost(format!("the lock {lock} is taken"))),
        }
    }

    /// The names that are waited for.
    fn names(&self) -> HashSet<Name> {
        let awaited = self.awaited();
        awaited.values().map(|a| a.name.clone()).collect()
    }

    /// Tells the claims of these names that were granted, remembers how the others stand, and waits
    /// for a ring: all in one request. Gives what the wait gave.
    async fn attend(&self, conn: &mut Conn, names: &HashSet<Name>) -> Result<Option<u64>, Trouble> {
        let names = names.iter().map(|name| name.as_str().as_bytes());
        let sql = names::attend(&self.ns, names, &self.peg(), WAIT).inlined();
        self.pool.count();
        let attending = async {
            let mut waited = None;
            let mut result = conn.query_iter(sql).await?;
            loop {
                match result.next().await?.map(mysql_async::Row::unwrap) {
                    // A row is told of as soon as it is here: what follows the last one is the end
                    // of the wait.
                    Some(values) if values.len() > 1 => self.tell_row(values),
                    Some(values) => {
                        waited = values.into_iter().next().and_then(optional).flatten();
                    }
                    // Between two statements, or after the last one, which may have failed.
                    None if result.is_empty() => {
                        result.next().await?;
                        return Ok(waited);
                    }
                    None => {}
                }
            }
        };
        let patience = self.pool.timeout() + Duration::from_secs(WAIT);
        let attended: mysql_async::Result<_> = timeout(patience, attending)
            .await
            .map_err(|_| not_answered())?;
        attended.map_err(Trouble::from)
    }

    fn tell_row(&self, values: Vec<Value>) {
        let mut values = values.into_iter();
        let name = values.next().and_then(bytes);
        if let (Some(name), Some(row)) = (name, Row::read(&mut values)) {
            self.tell(&name, &row);
        }
    }

    fn tell(&self, name: &[u8], row: &Row) {
        let waiting: Vec<_> = {
            let awaited = self.awaited();
            let here =
                |(_, awaited): &(&RequestId, &Awaited)| awaited.name.as_str().as_bytes() == name;
            let found = awaited.iter().filter(here);
            found
                .map(|(id, awaited)| (*id, awaited.name.clone()))
                .collect()
        };
        for (request, name) in waiting {
            let Ok(state) = row.state(&name) else {
                continue;
            };
            match state.standing(request, row.moment()) {
                ClaimReply::Granted(grant) => {
                    self.saw(grant.seq);
                    self.forget(request);
                    self.recent.keep(&name, row.clone());
                    self.book.deliver(request, Wake::Granted(grant));
                }
                ClaimReply::Queued(_) => {
                    if let Some(awaited) = self.awaited().get_mut(&request) {
                        awaited.token = row.content.token;
                    }
                }
                ClaimReply::Busy(_) | ClaimReply::Gone(_) => {
                    let mut awaited = self.awaited();
                    let Some(awaited) = awaited.get_mut(&request) else {
                        continue;
                    };
                    // It is not there any more, unless it has never been: then it is on its way.
                    if std::mem::replace(&mut awaited.token, row.content.token) > 0 {
                        self.book.deliver(request, Wake::Hint);
                    }
                }
            }
        }
    }
}

fn not_answered() -> Trouble {
    Trouble::Lost("the bell is not answered".to_owned())
}
