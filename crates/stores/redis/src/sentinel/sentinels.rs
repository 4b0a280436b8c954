//! The address of the master, from the sentinels.
//!
//! They are queried for each new connection. A sentinel that is partitioned from the others may still
//! name an old master, so replies are compared by their configuration epoch, which rises with every
//! failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::{Error, ErrorKind, Result};
use clinch_kit::url::Host;
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Pipeline, RedisError, RedisResult, Value};
use tokio::task::JoinSet;

use crate::config::{Address, Config};
use crate::connection::{Locate, client};
use crate::error::connecting;

/// The sentinels of one master.
#[derive(Debug)]
pub(crate) struct Sentinels {
    config: Config,
    hosts: Vec<Address>,
    master: String,
    /// The one to query first: where the last good reply came from.
    first: AtomicUsize,
    /// The newest configuration epoch seen.
    epoch: AtomicU64,
}

/// The reply of a sentinel.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The master's address, and the configuration epoch.
    Master(Address, u64),
    /// It has only masters with these names.
    Unknown(Vec<String>),
}

impl Sentinels {
    pub(crate) fn new(config: &Config, hosts: &[Address], master: &str) -> Arc<Self> {
        Arc::new(Self {
            hosts: hosts.to_vec(),
            master: master.to_owned(),
            first: AtomicUsize::new(0),
            epoch: AtomicU64::new(0),
            // Sentinels have no databases.
            config: Config {
                db: 0,
                ..config.clone()
            },
        })
    }

    /// The number of sentinels.
    pub(crate) fn count(&self) -> usize {
        self.hosts.len()
    }

    /// The name of the master.
    pub(crate) fn master(&self) -> &str {
        &self.master
    }

    /// The time limit of a query, of one sentinel and of all together: the master must be reached
    /// within the rest of the timeout.
    pub(crate) fn limit(&self) -> Duration {
        self.config.timeout / 2
    }

    /// Whether an epoch is newer than all before; records it.
    pub(crate) fn is_news(&self, epoch: u64) -> bool {
        self.epoch.fetch_max(epoch, Ordering::Relaxed) < epoch
    }

    /// Whether a newer epoch was seen.
    pub(crate) fn is_stale(&self, epoch: u64) -> bool {
        epoch < self.epoch.load(Ordering::Relaxed)
    }

    /// Queries this one first from now on.
    pub(crate) fn prefer(&self, at: usize) {
        self.first.store(at, Ordering::Relaxed);
    }

    /// The index of the one to query after `others`.
    pub(crate) fn nth(&self, others: usize) -> usize {
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

    /// A connection to one of them; its pushed messages go to `pushes`.
    pub(crate) async fn connect(
        &self,
        at: usize,
        pushes: impl AsyncPushSender,
    ) -> Result<MultiplexedConnection> {
        let connecting = async {
            let settings = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(self.limit()))
                .set_response_timeout(Some(self.limit()))
                .set_push_sender(pushes);
            let host = self
                .hosts
                .get(at)
                .ok_or_else(|| unexpected("there is no such sentinel"))?;
            let client = client(&self.config, host, &self.config.sentinel_login)?;
            client
                .get_multiplexed_async_connection_with_config(&settings)
                .await
        };
        connecting.await.map_err(|error| self.failed(at, error))
    }

    /// Queries one of them.
    pub(crate) async fn query(
        &self,
        at: usize,
        connection: &mut MultiplexedConnection,
    ) -> Result<Answer> {
        let answer = self.answer(connection).await;
        answer.map_err(|error| self.failed(at, error))
    }

    async fn answer(&self, connection: &mut MultiplexedConnection) -> RedisResult<Answer> {
        // In this order: during a failover a sentinel has the new epoch first, and from then on
        // replies with the new address.
        let mut queries = Pipeline::new();
        for query in ["MASTER", "GET-MASTER-ADDR-BY-NAME"] {
            queries.cmd("SENTINEL").arg(query).arg(&self.master);
        }
        let replies = connection.req_packed_commands(&queries, 0, 2).await?;
        let mut replies = replies.into_iter();
        let (about, address) = (replies.next(), replies.next());
        let address = address.unwrap_or(Value::Nil).extract_error()?;
        if address == Value::Nil {
            let all = redis::cmd("SENTINEL").arg("MASTERS").clone();
            let all = connection.req_packed_command(&all).await?.extract_error()?;
            let names = items(&all).filter_map(|master| field(master, "name"));
            return Ok(Answer::Unknown(names.collect()));
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
                let host = Host { name: host, port };
                Ok(Answer::Master(Address::Tcp(host), epoch))
            }
            _ => Err(unexpected("the reply is not an address")),
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
            true => "they have none".to_owned(),
            false => format!("they have {}", known.join(", ")),
        };
        let messages: Vec<_> = failures.iter().map(|error| error.message()).collect();
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
            false => format!("; others have no master of this name, {known}"),
        };
        Error::new(
            kind,
            format!("{of}: none has replied: {}{known}", messages.join("; ")),
        )
        .with_advice(advice)
    }
}

#[async_trait]
impl Locate for Arc<Sentinels> {
    /// Queries a majority of them in parallel, and one more for each that fails or is slow. The
    /// newest epoch wins.
    async fn locate(&self) -> Result<Address> {
        let now = tokio::time::Instant::now;
        let give_up = now() + self.limit();
        let majority = self.count() / 2 + 1;
        // Dropping this cancels queries in flight.
        let mut queries = JoinSet::new();
        let (mut started, mut wanted, mut answers) = (0, majority, 0);
        let (mut unknown, mut failures) = (Vec::new(), Vec::new());
        let mut best: Option<(u64, Address, usize)> = None;
        let fresh = |epoch| !self.is_stale(epoch);
        while answers < majority || !best.as_ref().is_some_and(|(epoch, ..)| fresh(*epoch)) {
            if answers >= majority {
                // All that have replied are outdated.
                wanted = self.count();
            }
            while started < wanted.min(self.count()) {
                queries.spawn(query(self.clone(), self.nth(started)));
                started += 1;
            }
            let until = match started < self.count() {
                true => give_up.min(now() + self.limit() / 4),
                false => give_up,
            };
            wanted += 1;
            match tokio::time::timeout_at(until, queries.join_next()).await {
                Ok(Some(Ok((at, Ok(Answer::Master(address, epoch)))))) => {
                    answers += 1;
                    wanted -= 1;
                    if best.as_ref().is_none_or(|(known, ..)| *known < epoch) {
                        best = Some((epoch, address, at));
                    }
                }
                Ok(Some(Ok((_, Ok(Answer::Unknown(names)))))) => unknown.extend(names),
                Ok(Some(Ok((_, Err(error))))) => failures.push(error),
                Ok(Some(Err(lost))) => failures
                    .push(Error::new(ErrorKind::Internal, "a query was lost").with_source(lost)),
                Ok(None) => break,
                Err(_) if now() < give_up => {}
                Err(_) => {
                    let text = format!("no reply within {:?}", self.limit());
                    failures.push(Error::new(ErrorKind::Unreachable, text));
                    break;
                }
            }
        }
        let Some((epoch, address, at)) = best else {
            return Err(self.nowhere(&unknown, &failures));
        };
        // It may be smaller than before: sentinels that were set up again start over.
        self.epoch.store(epoch, Ordering::Relaxed);
        self.prefer(at);
        Ok(address)
    }
}

async fn query(sentinels: Arc<Sentinels>, at: usize) -> (usize, Result<Answer>) {
    let answer = async {
        let ignore = |_| Ok::<(), ()>(());
        let mut connection = sentinels.connect(at, ignore).await?;
        sentinels.query(at, &mut connection).await
    };
    (at, answer.await)
}

fn unexpected(what: &'static str) -> RedisError {
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
