//! Where the master is, as sentinels say.
//!
//! They are asked whenever a connection is made. One that is cut off from the others goes on naming
//! an old master, so answers are compared by the number of the configuration that they come from
//! (sentinels call it the epoch): it rises with every failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::{Error, ErrorKind, Result};
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Pipeline, RedisError, RedisResult, Value};
use tokio::task::JoinSet;

use crate::config::{Address, Config, Topology};
use crate::error::connecting;
use crate::session::{Locate, client};

/// The sentinels of one master.
#[derive(Debug)]
pub(crate) struct Sentinels {
    config: Config,
    hosts: Vec<Address>,
    master: String,
    /// The one to ask first: where the last good answer came from.
    first: AtomicUsize,
    /// The newest configuration that any of them has told of.
    epoch: AtomicU64,
}

/// What a sentinel says of the master.
#[derive(Debug)]
pub(crate) enum Said {
    /// It is here, by the configuration with this number.
    Here(Address, u64),
    /// It knows only masters with these names.
    Unknown(Vec<String>),
}

impl Sentinels {
    /// The sentinels that the URL names, if it names some.
    pub(crate) fn new(config: &Config) -> Option<Arc<Self>> {
        let Topology::Sentinel(hosts, master) = &config.topology else {
            return None;
        };
        Some(Arc::new(Self {
            hosts: hosts.clone(),
            master: master.clone(),
            first: AtomicUsize::new(0),
            epoch: AtomicU64::new(0),
            // Sentinels have no databases.
            config: Config {
                db: 0,
                ..config.clone()
            },
        }))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.hosts.len()
    }

    /// The name of the master.
    pub(crate) fn master(&self) -> &str {
        &self.master
    }

    /// For how long one is asked, and how long all of them together: the master has to be reached
    /// within the same time.
    pub(crate) fn limit(&self) -> Duration {
        self.config.timeout / 2
    }

    /// Whether a configuration is newer than all before; it is remembered.
    pub(crate) fn is_news(&self, epoch: u64) -> bool {
        self.epoch.fetch_max(epoch, Ordering::Relaxed) < epoch
    }

    /// Whether there is a newer configuration.
    pub(crate) fn is_stale(&self, epoch: u64) -> bool {
        epoch < self.epoch.load(Ordering::Relaxed)
    }

    /// Asks this one first from now on.
    pub(crate) fn prefer(&self, at: usize) {
        self.first.store(at, Ordering::Relaxed);
    }

    /// The number of the one to ask after so many others.
    pub(crate) fn turn(&self, others: usize) -> usize {
        (self.first.load(Ordering::Relaxed) + others) % self.count().max(1)
    }

    fn failed(&self, at: usize, error: RedisError) -> Error {
        let to = self.hosts.get(at).map(Address::to_string);
        let error = connecting(error, &format!("sentinel {}", to.unwrap_or_default()));
        match error.kind() {
            ErrorKind::Denied => error.with_advice("check sentinel_user and sentinel_password"),
            _ => error.with_advice("is a sentinel running there?"),
        }
    }

    /// A connection to one of them; its messages go to `heard`.
    pub(crate) async fn connect(
        &self,
        at: usize,
        heard: impl AsyncPushSender,
    ) -> Result<MultiplexedConnection> {
        let connecting = async {
            let settings = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(self.limit()))
                .set_response_timeout(Some(self.limit()))
                .set_push_sender(heard);
            let host = self
                .hosts
                .get(at)
                .ok_or_else(|| strange("there is no such sentinel"))?;
            let client = client(&self.config, host, &self.config.sentinel_login)?;
            client
                .get_multiplexed_async_connection_with_config(&settings)
                .await
        };
        connecting.await.map_err(|error| self.failed(at, error))
    }

    /// What one of them says.
    pub(crate) async fn ask(
        &self,
        at: usize,
        connection: &mut MultiplexedConnection,
    ) -> Result<Said> {
        let said = self.said(connection).await;
        said.map_err(|error| self.failed(at, error))
    }

    async fn said(&self, connection: &mut MultiplexedConnection) -> RedisResult<Said> {
        // In this order: a sentinel in the middle of a failover has the new number first, and from
        // then on gives the new address.
        let mut questions = Pipeline::new();
        for question in ["MASTER", "GET-MASTER-ADDR-BY-NAME"] {
            questions.cmd("SENTINEL").arg(question).arg(&self.master);
        }
        let replies = connection.req_packed_commands(&questions, 0, 2).await?;
        let mut replies = replies.into_iter();
        let (about, address) = (replies.next(), replies.next());
        let address = address.unwrap_or(Value::Nil).extract_error()?;
        if address == Value::Nil {
            let all = redis::cmd("SENTINEL").arg("MASTERS").clone();
            let all = connection.req_packed_command(&all).await?.extract_error()?;
            let names = items(&all).filter_map(|master| field(master, "name"));
            return Ok(Said::Unknown(names.collect()));
        }
        let mut parts = items(&address).map(text);
        let port = |port: String| port.parse().ok();
        match (
            parts.next().flatten(),
            parts.next().flatten().and_then(port),
        ) {
            (Some(host), Some(port)) => {
                let epoch = about.and_then(|about| field(&about, "config-epoch"));
                let epoch = epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
                Ok(Said::Here(Address::Tcp(host, port), epoch))
            }
            _ => Err(strange("the answer is not an address")),
        }
    }

    fn all(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(Address::to_string).collect();
        hosts.join(", ")
    }

    /// No sentinel has named a master.
    fn nowhere(&self, unknown: &[String], failures: &[Error]) -> Error {
        let mut known = unknown.to_vec();
        known.sort();
        known.dedup();
        let known = match known.is_empty() {
            true => "they know none".to_owned(),
            false => format!("they know {}", known.join(", ")),
        };
        let said: Vec<_> = failures.iter().map(|error| error.message()).collect();
        let of = format!("sentinels {} of master {:?}", self.all(), self.master);
        if failures.is_empty() {
            let text = format!("{of}: no master has this name; {known}");
            return Error::invalid(text).with_advice("write redis+sentinel://h1,h2,h3/MASTER");
        }
        let denied = failures
            .iter()
            .all(|error| error.kind() == ErrorKind::Denied);
        let (kind, advice) = match denied {
            true => (
                ErrorKind::Denied,
                "check sentinel_user and sentinel_password",
            ),
            false => (ErrorKind::Unreachable, "are the sentinels running there?"),
        };
        let known = match unknown.is_empty() {
            true => String::new(),
            false => format!("; others do not know this name, {known}"),
        };
        Error::new(
            kind,
            format!("{of}: none could be asked: {}{known}", said.join("; ")),
        )
        .with_advice(advice)
    }
}

#[async_trait]
impl Locate for Arc<Sentinels> {
    /// Asks a majority of them at once, and one more for each that fails or does not answer at
    /// once. The newest configuration counts.
    async fn locate(&self) -> Result<Address> {
        let now = tokio::time::Instant::now;
        let give_up = now() + self.limit();
        let majority = self.count() / 2 + 1;
        // What is still under way is dropped with this.
        let mut asking = JoinSet::new();
        let (mut started, mut wanted, mut answers) = (0, majority, 0);
        let (mut unknown, mut failures) = (Vec::new(), Vec::new());
        let mut best: Option<(u64, Address, usize)> = None;
        let fresh = |epoch| !self.is_stale(epoch);
        while answers < majority || !best.as_ref().is_some_and(|(epoch, ..)| fresh(*epoch)) {
            if answers >= majority {
                // All that have answered are behind.
                wanted = self.count();
            }
            while started < wanted.min(self.count()) {
                asking.spawn(question(self.clone(), self.turn(started)));
                started += 1;
            }
            let until = match started < self.count() {
                true => give_up.min(now() + self.limit() / 4),
                false => give_up,
            };
            wanted += 1;
            match tokio::time::timeout_at(until, asking.join_next()).await {
                Ok(Some(Ok((at, Ok(Said::Here(address, epoch)))))) => {
                    answers += 1;
                    wanted -= 1;
                    if best.as_ref().is_none_or(|(known, ..)| *known < epoch) {
                        best = Some((epoch, address, at));
                    }
                }
                Ok(Some(Ok((_, Ok(Said::Unknown(names)))))) => unknown.extend(names),
                Ok(Some(Ok((_, Err(error))))) => failures.push(error),
                Ok(Some(Err(lost))) => failures
                    .push(Error::new(ErrorKind::Internal, "a question was lost").with_source(lost)),
                Ok(None) => break,
                Err(_) if now() < give_up => {}
                Err(_) => {
                    let text = format!("no answer within {:?}", self.limit());
                    failures.push(Error::new(ErrorKind::Unreachable, text));
                    break;
                }
            }
        }
        let Some((epoch, address, at)) = best else {
            return Err(self.nowhere(&unknown, &failures));
        };
        // It may be smaller than before: sentinels that were set up anew count from the beginning.
        self.epoch.store(epoch, Ordering::Relaxed);
        self.prefer(at);
        Ok(address)
    }
}

async fn question(sentinels: Arc<Sentinels>, at: usize) -> (usize, Result<Said>) {
    let said = async {
        let deaf = |_| Ok::<(), ()>(());
        let mut connection = sentinels.connect(at, deaf).await?;
        sentinels.ask(at, &mut connection).await
    };
    (at, said.await)
}

fn strange(what: &'static str) -> RedisError {
    RedisError::from((redis::ErrorKind::UnexpectedReturnType, what))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    match value {
        Value::Array(items) => items.iter(),
        _ => [].iter(),
    }
}

/// A field of a map, which older servers send as a list.
fn field(value: &Value, name: &str) -> Option<String> {
    let is = |key: &Value| text(key).as_deref() == Some(name);
    match value {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is(key)).map(|(_, v)| v),
        Value::Array(items) => items
            .chunks_exact(2)
            .find(|pair| pair.first().is_some_and(is))
            .and_then(|pair| pair.get(1)),
        _ => None,
    }
    .and_then(text)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}
