//! The connection to the cluster: made on demand to the first member that answers, given up when it
//! stalls, made again to the next one.
//!
//! Requests of all tasks share it. It is made on the keeper; a request itself needs no reactor and
//! runs in the caller's task.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clinch_core::{BootTime, Clock, Effect, Error, ErrorKind, Result, keeper};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::Stream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::config::Config;
use crate::error::Trouble;

/// The largest reply: a listing of very many claims.
const LARGEST: usize = 256 << 20;

/// A member that has not answered for this long, when the caller leaves, is given up.
const STALLED: Duration = Duration::from_millis(500);

/// One connection.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) channel: Channel,
    pub(crate) number: u64,
    pub(crate) to: Arc<str>,
    pub(crate) token: Option<MetadataValue<Ascii>>,
}

impl Live {
    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(LARGEST)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    fn theirs(&self, status: Status) -> Trouble {
        Trouble::Theirs(status, self.to.to_string())
    }
}

/// The connection of one client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    live: Mutex<Option<Live>>,
    making: tokio::sync::Mutex<()>,
    /// The member to begin with.
    pub(crate) first: AtomicUsize,
    pub(crate) made: AtomicU64,
    requests: AtomicU64,
}

impl Session {
    pub(crate) fn new(config: Arc<Config>, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            config,
            clock,
            live: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            first: AtomicUsize::default(),
            made: AtomicU64::default(),
            requests: AtomicU64::default(),
        })
    }

    /// Requests sent so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn current(&self) -> Option<Live> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.clone()
    }

    /// The next request goes to another member, by a new connection.
    pub(crate) fn give_up(&self, live: &Live) {
        let mut current = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if current
            .as_ref()
            .is_some_and(|now| now.number == live.number)
        {
            *current = None;
            self.first.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops the connection.
    pub(crate) fn close(&self) {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The connection, made if there is none.
    pub(crate) async fn live(self: &Arc<Self>) -> Result<Live> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let session = self.clone();
        // On the keeper, where it lives; it is finished also when the caller has gone.
        keeper::run(async move {
            let _making = session.making.lock().await;
            if let Some(live) = session.current() {
                return Ok(live);
            }
            let live = session.connect().await?;
            *session.live.lock().unwrap_or_else(PoisonError::into_inner) = Some(live.clone());
            Ok(live)
        })
        .await
    }

    /// One request and its reply, within the time limit.
    pub(crate) async fn call<Q, A>(
        self: &Arc<Self>,
        path: &'static str,
        message: Q,
    ) -> Result<A, Trouble>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let live = self.live().await?;
        let reply = self.call_on(&live, path, message.clone()).await;
        match reply {
            Err(trouble) if trouble.is_stale_login() && self.config.login.is_some() => {
                self.give_up(&live);
                let live = self.live().await?;
                self.call_on(&live, path, message).await
            }
            reply => reply,
        }
    }

    pub(crate) async fn call_on<Q, A>(
        &self,
        live: &Live,
        path: &'static str,
        message: Q,
    ) -> Result<A, Trouble>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let asking = async {
            let mut grpc = live.grpc();
            grpc.ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            let codec = ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(path);
            grpc.unary(live.request(message), path, codec).await
        };
        let reply = self.within(live, asking).await;
        reply.map(tonic::Response::into_inner)
    }

    /// Waits for a reply; a member that gives none is given up.
    async fn within<T>(
        &self,
        live: &Live,
        reply: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Trouble> {
        let limit = self.config.timeout;
        let mut waiting = Waiting(Some((self, live, self.clock.now())));
        let reply = tokio::select! {
            biased;
            reply = reply => reply.map_err(|status| live.theirs(status)),
            () = self.clock.sleep(limit) => {
                let text = format!("{} does not answer within {limit:?}", live.to);
                let error = Error::new(ErrorKind::Unreachable, text);
                Err(error.with_effect(Effect::Possible).into())
            }
        };
        waiting.0 = None;
        if let Err(trouble) = &reply
            && trouble.is_broken()
        {
            self.give_up(live);
        }
        reply
    }

    /// A stream in both directions, which ends when the server has no leader.
    pub(crate) async fn stream<Q, A>(
        self: &Arc<Self>,
        path: &'static str,
        messages: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<(Live, Streaming<A>), Trouble>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let live = self.live().await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let opening = async {
            let mut grpc = live.grpc();
            grpc.ready()
                .await
                .map_err(|error| Status::from_error(error.into()))?;
            let codec = ProstCodec::<Q, A>::default();
            let mut request = live.request(messages);
            let yes = MetadataValue::from_static("true");
            request.metadata_mut().insert("hasleader", yes);
            grpc.streaming(request, PathAndQuery::from_static(path), codec)
                .await
        };
        let stream = self.within(&live, opening).await?.into_inner();
        Ok((live, stream))
    }

    /// The next message of a stream that should come soon.
    pub(crate) async fn soon<A>(&self, live: &Live, stream: &mut Streaming<A>) -> Result<A, Trouble>
    where
        A: prost::Message + Default + 'static,
    {
        let next = async {
            let message = stream.message().await?;
            message.ok_or_else(|| Status::unavailable("the stream has ended"))
        };
        self.within(live, next).await
    }

    /// Counts a message on a stream as a request, which it is to the server.
    pub(crate) fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// Somebody waits for a reply. Who has left after a while, without one, has met a member that stalls:
/// callers with short leases have less patience than our own time limit.
struct Waiting<'a>(Option<(&'a Session, &'a Live, BootTime)>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some((session, live, since)) = self.0
            && session.clock.now().since(since) >= STALLED.min(session.config.timeout)
        {
            session.give_up(live);
        }
    }
}
