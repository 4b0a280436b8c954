//! The connection to one server: made on demand, checked, given up when it stalls, made again.
//!
//! It carries commands and, by RESP3, messages. Requests of all tasks share it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::{Clock, Effect, Error, ErrorKind, Result, keeper};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind as Kind,
    IntoConnectionInfo, Pipeline, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, ServerErrorKind, Value,
};
use tokio::sync::watch;

use crate::config::{Address, Config, Login};
use crate::error::{connecting, is_broken, is_denied, sending};
use crate::replicas;
use crate::scripts::{Asking, Call, STEPS};
use crate::server::{self, Server};
use crate::server_clock::ServerClock;

/// Commands under way on one connection before callers wait.
const UNDER_WAY: usize = 4096;

/// Where the server is; asked whenever a connection is made.
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

/// Who hears what comes over a connection without having been asked for.
pub(crate) trait Listen: std::fmt::Debug + Send + Sync {
    /// What a new connection is to listen to.
    fn channels(&self) -> Vec<String>;

    /// A message has come.
    fn hear(&self, push: PushInfo);

    /// Messages may have been lost: whoever waits should look again.
    fn missed(&self);

    /// The connection has ended.
    fn disconnected(&self) {}

    /// Whether a lost connection should be made again at once.
    fn is_needed(&self) -> bool;

    /// Whether the store has been closed.
    fn is_closed(&self) -> bool;
}

/// A connection that works, as far as is known.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    connection: MultiplexedConnection,
    number: u64,
    /// How often the session had moved on when it was made.
    moves: u64,
    /// The server at its other end.
    pub(crate) server: Arc<Server>,
}

/// The connection to one server.
#[derive(Debug)]
pub(crate) struct Session {
    config: Arc<Config>,
    locate: Box<dyn Locate>,
    ears: Arc<dyn Listen>,
    live: Mutex<Option<Live>>,
    /// Held while a connection is made, so that only one is.
    making: tokio::sync::Mutex<()>,
    /// How often none could be made, and why the last time: whoever waited meanwhile fails as well.
    failures: Mutex<(u64, Option<Error>)>,
    made: AtomicU64,
    /// How often another server has taken over.
    moves: watch::Sender<u64>,
    commands: AtomicU64,
    /// What time it is at the server.
    pub(crate) clock: ServerClock,
}

impl Session {
    pub(crate) fn new(
        config: Arc<Config>,
        locate: Box<dyn Locate>,
        ears: Arc<dyn Listen>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            locate,
            ears,
            live: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            failures: Mutex::default(),
            made: AtomicU64::default(),
            moves: watch::Sender::default(),
            commands: AtomicU64::default(),
            clock: ServerClock::default(),
        })
    }

    /// Commands sent so far.
    pub(crate) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// The connection, if there is one.
    pub(crate) fn current(&self) -> Option<Live> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.clone()
    }

    /// Gives up a connection, if it is still the current one.
    fn give_up(&self, number: u64) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|live| live.number == number) {
            *live = None;
        }
    }

    /// Gives the connection up, whatever it is: another server is to be used.
    pub(crate) fn reset(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The connection; made if there is none. Runs on the keeper only.
    pub(crate) async fn live(self: &Arc<Self>) -> Result<Live> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let (before, _) = self.failure();
        let _making = self.making.lock().await;
        if let Some(live) = self.current() {
            return Ok(live);
        }
        if let (failures, Some(error)) = self.failure()
            && failures != before
        {
            return Err(error);
        }
        let live = match self.make().await {
            Ok(live) => live,
            Err(error) => {
                let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                *failures = (failures.0 + 1, Some(error.clone()));
                return Err(error);
            }
        };
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
        if self.ears.is_closed() {
            // A last withdrawal, say: the connection ends with what it was made for.
            self.reset();
            return Ok(live);
        }
        if live.number > 0 {
            // What was said while nobody listened is lost: whoever waits should look again.
            self.ears.missed();
        }
        Ok(live)
    }

    fn failure(&self) -> (u64, Option<Error>) {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.clone()
    }

    /// Another server has taken over: whoever waits for an answer of the old one, which may hang,
    /// shall ask the new one instead.
    pub(crate) fn move_to(self: &Arc<Self>, address: &str) {
        let there = |live: &Live| &*live.server.address == address;
        if self.current().as_ref().is_some_and(there) {
            return;
        }
        self.moves.send_modify(|moves| *moves += 1);
        self.reset();
        self.ears.missed();
        self.reconnect();
    }

    /// Makes a connection, to the server that is the right one at the end.
    async fn make(self: &Arc<Self>) -> Result<Live> {
        let mut moved = self.moves.subscribe();
        loop {
            let (limit, to) = (self.config.timeout, OnceLock::new());
            let before = *moved.borrow_and_update();
            let made = tokio::select! {
                biased;
                made = tokio::time::timeout(limit, self.connect(before, &to)) => made,
                Ok(()) = moved.changed() => continue,
            };
            return made.unwrap_or_else(|_| {
                let to = to.get().map_or("the server", String::as_str);
                let text = format!("{to} does not answer within {limit:?}");
                Err(Error::new(ErrorKind::Unreachable, text)
                    .with_advice("is it Redis, and does it run?"))
            });
        }
    }

    /// Makes a connection; where to is known before it is made.
    async fn connect(self: &Arc<Self>, moves: u64, told: &OnceLock<String>) -> Result<Live> {
        let address = self.locate.locate().await?;
        let to = told.get_or_init(|| address.to_string()).clone();
        let failed = |error| connecting(error, &to);
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let session = Arc::downgrade(self);
        let ears = self.ears.clone();
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(UNDER_WAY)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    if let Some(session) = session.upgrade() {
                        session.disconnected(number);
                    }
                } else {
                    ears.hear(push);
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
        let channels = self.ears.channels();
        let listening = async {
            match channels.is_empty() {
                true => Ok(()),
                false => subscriber.subscribe(channels).await,
            }
        };
        let asking = async { connection.req_packed_command(&redis::cmd("INFO")).await };
        let (info, listening) = tokio::join!(asking, listening);
        let server = match info {
            Ok(info) => Server::read(info, &to),
            Err(error) if self.config.trusts_blindly() && is_denied(&error) => {
                tracing::warn!(%error, "the server cannot be checked: its INFO is denied");
                Server::unknown(&to)
            }
            Err(error) => return Err(failed(error)),
        };
        server::check(&server, &self.config)?;
        self.clock.begin(server.field("server_time_usec"));
        if let Err(error) = listening {
            // Waiters still repeat their claims.
            tracing::warn!(%error, "cannot listen for wakes: waiting by polling");
        }
        Ok(Live {
            connection,
            number,
            moves,
            server: Arc::new(server),
        })
    }

    /// The connection has ended: whoever waits for messages needs another one.
    fn disconnected(self: Arc<Self>, number: u64) {
        self.give_up(number);
        self.ears.disconnected();
        self.reconnect();
    }

    /// Connects again if somebody waits for messages.
    fn reconnect(self: &Arc<Self>) {
        if !self.ears.is_needed() {
            return;
        }
        let session = self.clone();
        let reconnecting = async move {
            let mut pause = Duration::from_millis(20);
            while session.ears.is_needed() && session.live().await.is_err() {
                Clock::boot().sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        };
        if let Err(error) = keeper::spawn(reconnecting) {
            tracing::error!(%error, "cannot connect again");
        }
    }

    /// Runs a script; the keeper must poll this.
    pub(crate) async fn call(
        self: &Arc<Self>,
        call: &Call,
        asking: Asking,
    ) -> Result<Value, Trouble> {
        let live = self.live().await.map_err(Trouble::Ours)?;
        let by_hash = call.script.by_hash(call, live.server.run(), asking);
        match self.run(&live, by_hash, call, asking.is_some()).await {
            Err(Trouble::Theirs(error, _))
                if error.kind() == Kind::Server(ServerErrorKind::NoScript) =>
            {
                let by_text = call.script.by_text(call, live.server.run(), asking);
                let reply = self.run(&live, by_text, call, asking.is_some()).await?;
                self.note(&live, call, &reply);
                Ok(reply)
            }
            Ok(reply) => {
                self.note(&live, call, &reply);
                Ok(reply)
            }
            outcome => outcome,
        }
    }

    /// Takes from the reply to steps what it says of the server.
    pub(crate) fn note(&self, live: &Live, call: &Call, reply: &Value) {
        let Value::Array(replies) = reply else { return };
        if call.script.hash() != STEPS.hash() {
            return;
        }
        if let Some(Value::Int(now)) = replies.last() {
            self.clock.heard(u64::try_from(*now).unwrap_or(0));
        }
        if says_read_only(replies) {
            self.give_up(live.number);
        }
    }

    async fn run(
        &self,
        live: &Live,
        cmd: Cmd,
        call: &Call,
        asking: bool,
    ) -> Result<Value, Trouble> {
        let limit = self.limit(call.limit);
        if call.wait == 0 && !asking {
            return self.query_within(live, &cmd, limit).await;
        }
        let mut pipeline = Pipeline::new();
        if asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(cmd);
        if call.wait > 0 {
            pipeline.add_command(replicas::wait(call.wait, limit));
        }
        let replies = self.send(live, &pipeline, limit).await?;
        let mut replies = replies.into_iter().skip(usize::from(asking));
        let reply = replies.next().unwrap_or(Value::Nil);
        let reply = reply
            .extract_error()
            .map_err(|error| self.trouble(live, error))?;
        replicas::settled(call, reply, replies.next(), &live.server.address).map_err(Trouble::Ours)
    }

    /// How long a reply is waited for.
    pub(crate) fn limit(&self, wanted: Option<Duration>) -> Duration {
        let timeout = self.config.timeout;
        wanted.map_or(timeout, |limit| limit.min(timeout))
    }

    /// Sends several commands in one request; the keeper must poll this.
    pub(crate) async fn send(
        &self,
        live: &Live,
        pipeline: &Pipeline,
        limit: Duration,
    ) -> Result<Vec<Value>, Trouble> {
        let count = pipeline.len();
        let commands = u64::try_from(count).unwrap_or(u64::MAX);
        self.commands.fetch_add(commands, Ordering::Relaxed);
        let mut connection = live.connection.clone();
        let replies = connection.req_packed_commands(pipeline, 0, count);
        self.within(live, limit, replies).await
    }

    /// Sends one command; the keeper must poll this.
    pub(crate) async fn query(&self, live: &Live, cmd: &Cmd) -> Result<Value, Trouble> {
        self.query_within(live, cmd, self.limit(None)).await
    }

    async fn query_within(
        &self,
        live: &Live,
        cmd: &Cmd,
        limit: Duration,
    ) -> Result<Value, Trouble> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let mut connection = live.connection.clone();
        let reply = connection.req_packed_command(cmd);
        let reply = self.within(live, limit, reply).await?;
        reply
            .extract_error()
            .map_err(|error| self.trouble(live, error))
    }

    /// Waits for a reply, but not for ever: a connection that stalls is given up, so that the next
    /// request does not wait behind this one. That is after `limit`; the reply may still come before the
    /// timeout, and counts then.
    async fn within<T>(
        &self,
        live: &Live,
        limit: Duration,
        reply: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, Trouble> {
        let mut moved = self.moves.subscribe();
        let (to, timeout) = (&live.server.address, self.config.timeout);
        let reply = async {
            let mut reply = std::pin::pin!(reply);
            if let Ok(reply) = tokio::time::timeout(limit, &mut reply).await {
                return Ok(reply);
            }
            self.give_up(live.number);
            tokio::time::timeout(timeout.saturating_sub(limit), reply).await
        };
        let why = tokio::select! {
            biased;
            reply = reply => match reply {
                Ok(reply) => return reply.map_err(|error| self.trouble(live, error)),
                Err(_) => format!("{to} does not answer within {timeout:?}"),
            },
            Ok(_) = moved.wait_for(|moves| *moves > live.moves) => {
                format!("{to} is not the master any more")
            }
        };
        self.give_up(live.number);
        let error = Error::new(ErrorKind::Unreachable, why);
        Err(Trouble::Ours(error.with_effect(Effect::Possible)))
    }

    pub(crate) fn trouble(&self, live: &Live, error: RedisError) -> Trouble {
        if is_broken(&error) {
            self.give_up(live.number);
        }
        Trouble::Theirs(error, live.server.address.clone())
    }

    /// Subscribes to channels on the present connection; a later one takes them from the ears.
    pub(crate) async fn subscribe(self: &Arc<Self>, channel: &str) -> Result<()> {
        let live = self.live().await?;
        let mut connection = live.connection.clone();
        self.commands.fetch_add(1, Ordering::Relaxed);
        let subscribed = self
            .within(&live, self.limit(None), connection.subscribe(channel))
            .await;
        subscribed.map_err(Error::from)
    }

    /// Ends a subscription, as far as there is a connection.
    pub(crate) async fn unsubscribe(&self, channel: &str) {
        let Some(live) = self.current() else { return };
        let mut connection = live.connection.clone();
        self.commands.fetch_add(1, Ordering::Relaxed);
        // Without a connection there is no subscription either.
        let ended = connection.unsubscribe(channel);
        let _ = self.within(&live, self.limit(None), ended).await;
    }
}

/// Why a command has no reply.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// What the server or the driver says, and the server's address.
    Theirs(RedisError, Arc<str>),
    /// What we say.
    Ours(Error),
}

impl Trouble {
    /// Whether the user may not do this.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Theirs(error, _) if is_denied(error))
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Theirs(error, to) => sending(error, &to),
            Trouble::Ours(error) => error,
        }
    }
}

/// Whether a step has failed because the server, a master when we connected, is a replica by now.
fn says_read_only(replies: &[Value]) -> bool {
    let failed =
        |reply: &Value| matches!(reply, Value::BulkString(text) if text.starts_with(b"!READONLY"));
    replies.iter().any(failed)
}

/// A client of the driver for one server.
pub(crate) fn client(config: &Config, to: &Address, login: &Login) -> redis::RedisResult<Client> {
    let address = match to {
        Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        Address::Tcp(host, port) if config.tls.is_some() => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
        Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
    };
    let mut redis = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(config.db)
        .set_lib_name("clinch", env!("CARGO_PKG_VERSION"));
    if let Some(user) = &login.user {
        redis = redis.set_username(user);
    }
    if let Some(password) = &login.password {
        redis = redis.set_password(password);
    }
    let info: ConnectionInfo = address
        .into_connection_info()?
        .set_redis_settings(redis)
        .set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
    match &config.tls {
        #[cfg(feature = "tls")]
        Some(tls) => Client::build_with_tls(info, tls.certificates()?),
        _ => Client::open(info),
    }
}
