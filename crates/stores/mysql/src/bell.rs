//! How a client that waits is woken: two parked connections for all its claims.
//!
//! One of them, the ear, holds a user-level lock with the client's id as its name: that is its
//! address. On it runs a statement that waits for a second user-level lock, which the other connection,
//! the peg, holds; unless any of the names has given a token since it was last heard of. Whoever grants
//! to that client ends the wait, with `KILL QUERY` on the connection that holds the address, and the ear
//! reads the rows. A ring before the wait begins is not lost, because the token has changed by then; and
//! a ring that goes astray ends at most a look or a wait, because the ear never runs anything that
//! matters.
//!
//! A request of the ear is one statement. Of several, MariaDB leaves out the rest if `KILL QUERY` comes
//! between two of them, and does not say so: the client would wait for them for ever.
//!
//! Not `SLEEP()`: all sleepers of a server share one mutex, and a `KILL QUERY` that finds it taken
//! tries for up to two seconds. Each wait for a lock has a mutex of its own.
//!
//! It is a hint only. Without it, waiters still repeat their claims.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Wake, WakeBook};
use clinch_core::{ClientId, Clock, Name, RequestId, Result, keeper};
use mysql_async::Conn;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::Trouble;
use crate::pool::{How, Pool, Reply, talk};
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
    /// The last token that its name is known to have given, to somebody else. `None` until the claim
    /// is queued or its row was read.
    token: Option<u64>,
}

/// What the ear has done.
enum Round {
    /// With the sum of the tokens that were read.
    Looked(u64),
    /// With what the wait gave.
    Waited(Option<u64>),
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
            token: None,
        };
        self.awaited().entry(claim.request).or_insert(awaited);
    }

    /// This claim is in the queue, and the last token that its name has given is this.
    pub(crate) fn queued(self: &Arc<Self>, request: RequestId, token: u64) {
        let known = match self.awaited().get_mut(&request) {
            Some(awaited) => {
                awaited.token = awaited.token.max(Some(token));
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
        let mut look = false;
        // What was read last, while nothing else has happened.
        let mut read = None;
        loop {
            // From here on every claim that is already known is looked at before the wait.
            news.borrow_and_update();
            let names = self.names();
            if !names.is_empty() {
                self.failing.store(false, Ordering::SeqCst);
            }
            // A claim that was just queued came with the token of its name.
            let known = names.values().copied().sum::<Option<u64>>();
            let round = match (known.filter(|_| !look), read.take()) {
                // Whoever has been granted comes back before long, and is heard without a new wait.
                (_, Some((names, sum))) if self.awaited().is_empty() => {
                    self.wait(&mut conn, &names, sum).await
                }
                _ if names.is_empty() => match timeout(LINGER, news.changed()).await {
                    Ok(Ok(())) => continue,
                    _ => return Ok(()),
                },
                (Some(sum), _) => self.wait(&mut conn, &names, sum).await,
                (None, _) => self.look(&mut conn, &names).await,
            };
            look = match round {
                Ok(Round::Looked(sum)) => {
                    read = Some((names, sum));
                    false
                }
                Ok(Round::Waited(Some(GOT_IT))) => {
                    return Err(Trouble::Lost("the peg of the bell is lost".to_owned()));
                }
                Ok(Round::Waited(_)) => true,
                // Whatever it has ended, the rows are read next.
                Err(trouble) if trouble.is_interrupted() => true,
                Err(trouble) => return Err(trouble),
            };
        }
    }

    /// Takes a user-level lock that nobody else should have.
    async fn occupy(&self, conn: &mut Conn, lock: &str) -> Result<(), Trouble> {
        let sql = Sql::new(format!("SELECT GET_LOCK('{lock}',0)"));
        let reply = self.ask(conn, &sql, false, Duration::ZERO).await?;
        match reply.into_first_value().and_then(optional).flatten() {
            Some(1) => Ok(()),
            _ => Err(Trouble::Lost(format!("the lock {lock} is taken"))),
        }
    }

    /// The names that are waited for, with the last token that each is known to have given.
    fn names(&self) -> HashMap<Name, Option<u64>> {
        let mut names = HashMap::new();
        for claim in self.awaited().values() {
            let token = names.entry(claim.name.clone()).or_insert(claim.token);
            // What one of its claims has not heard of, the name has not.
            *token = token.zip(claim.token).map(|(one, other)| one.min(other));
        }
        names
    }

    /// Tells the claims of these names that were granted, and remembers how the others stand.
    async fn look(
        &self,
        conn: &mut Conn,
        names: &HashMap<Name, Option<u64>>,
    ) -> Result<Round, Trouble> {
        let sql = names::rows(&self.ns, names.keys().map(|name| name.as_str().as_bytes()));
        // As text where there are many: each number of names would be another statement to prepare.
        let reply = self.ask(conn, &sql, names.len() == 1, Duration::ZERO);
        let rows = reply.await?.into_rows();
        let mut tokens = HashMap::new();
        for values in rows {
            let mut values = values.into_iter();
            let name = values.next().and_then(bytes);
            if let (Some(name), Some(row)) = (name, Row::read(&mut values)) {
                self.tell(&name, &row);
                tokens.insert(name, row.content.token);
            }
        }
        // Also of those that came meanwhile: they were not granted in rows that were read before.
        for claim in self.awaited().values_mut() {
            if names.contains_key(&claim.name) {
                let token = tokens.get(claim.name.as_str().as_bytes());
                claim.token = Some(token.copied().unwrap_or(0));
            }
        }
        Ok(Round::Looked(tokens.values().sum()))
    }

    /// Waits for a ring, if the names have given no token beyond those in `sum`.
    async fn wait(
        &self,
        conn: &mut Conn,
        names: &HashMap<Name, Option<u64>>,
        sum: u64,
    ) -> Result<Round, Trouble> {
        let names = names.keys().map(|name| name.as_str().as_bytes());
        let sql = names::wait(&self.ns, names, sum, &self.peg(), WAIT);
        // As text, because it stays for long: on MySQL nobody could read the process list, which
        // cannot show the bytes of a prepared one.
        let reply = self.ask(conn, &sql, false, Duration::from_secs(WAIT));
        let waited = reply.await?.into_first_value().and_then(optional).flatten();
        Ok(Round::Waited(waited))
    }

    /// One statement on a connection of the bell, which may take so much longer than others.
    async fn ask(
        &self,
        conn: &mut Conn,
        sql: &Sql,
        prepared: bool,
        longer: Duration,
    ) -> Result<Reply, Trouble> {
        self.pool.count();
        let patience = self.pool.timeout() + longer;
        match timeout(patience, talk(conn, sql, prepared)).await {
            Ok(reply) => reply.whole(),
            Err(_) => Err(Trouble::Lost("the bell is not answered".to_owned())),
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
                ClaimReply::Queued(_) => {}
                // It is not there any more, unless it has never been: then it is on its way.
                ClaimReply::Busy(_) | ClaimReply::Gone(_) => {
                    let was_there = self.awaited().get(&request).map(|a| a.token.is_some());
                    if was_there == Some(true) {
                        self.book.deliver(request, Wake::Hint);
                    }
                }
            }
        }
    }
}
