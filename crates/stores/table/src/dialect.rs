//! What an SQL engine must provide.
//!
//! All times and spans are microseconds. Times are by the *server's* clock, read once when a statement begins,
//! since the beginning of 2020 in UTC. A dialect serves one namespace.
//! Column names are those of [`Content`]; the schema may have others.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{Finding, Hold};
use clinch_core::{ClientId, Name, RequestId, Result};

use crate::{Content, Failure, Row, Waiters};

/// The result of one request to the engine.
pub type Sent<T> = Result<T, Failure>;

/// A reply to a statement that the dialect may have sent twice.
#[derive(Debug)]
pub struct Reply<T> {
    /// What the last copy returned.
    pub value: T,
    /// Whether an earlier copy had no reply: it may have been applied, or may still arrive.
    pub repeated: bool,
}

/// What a statement must do about event watchers. Statements of the fast path write no events, so
/// they apply only while no client watches the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// A client watches; the statement brings its events.
    Watched,
    /// No client watches before this time: the statement must not apply at or after it.
    NoneBefore(u64),
    /// Unknown: the statement must not apply if `watched_until` of the namespace is in the future.
    Unknown,
}

/// Takes a free name.
#[derive(Debug)]
pub struct Take<'a> {
    /// The name.
    pub name: &'a Name,
    /// `request`, `owner` and `details` of the plain row.
    pub content: &'a Content,
    /// The lease.
    pub lease: u64,
    /// The sequence number must be at least this.
    pub least_seq: u64,
    /// If the statement begins later, it must grant nothing.
    pub latest: u64,
}

/// Takes a free name whose row this client wrote last.
#[derive(Debug)]
pub struct Retake<'a> {
    /// The name.
    pub name: &'a Name,
    /// `request`, `owner` and `details` of the plain row.
    pub content: &'a Content,
    /// The lease.
    pub lease: u64,
    /// The version that the row must have.
    pub version: u64,
    /// The sequence number must be at least this.
    pub least_seq: u64,
    /// The statement must not apply at or after this time.
    pub before: u64,
}

/// Releases a plain row.
#[derive(Debug)]
pub struct Release<'a> {
    /// The name.
    pub name: &'a Name,
    /// The column `request` must be this.
    pub request: &'a [u8],
    /// The column of the sequence number must be this.
    pub seq: u64,
    /// Appended to `ended`, followed by the column `owner`. Of the result the last
    /// [`ENDED_BYTES`](crate::ENDED_BYTES) are kept.
    pub record: &'a [u8],
    /// Must not be [`Watch::Watched`].
    pub watch: Watch,
}

/// A compare-and-set of a row.
#[derive(Debug)]
pub struct Write<'a> {
    /// The name.
    pub name: &'a Name,
    /// All columns but the version.
    pub content: &'a Content,
    /// The new version.
    pub version: u64,
    /// The version that the row must have.
    pub expected: u64,
    /// What to do about watchers.
    pub watch: Watch,
    /// The statement must not apply at or after this time.
    pub before: Option<u64>,
    /// The statement must not apply if the row's `until` has passed.
    pub unexpired: bool,
    /// Appended to the event log in the same transaction, if the row was written.
    pub events: Option<&'a [u8]>,
    /// Clients to wake if the row was written: a hint, sent without waiting for it.
    pub notify: &'a [ClientId],
}

/// One event of the log.
#[derive(Debug)]
pub struct Logged {
    /// Its number. Numbers are assigned before commit, so a greater one may be visible first.
    pub id: u64,
    /// Whether it is so old that no smaller number can still appear.
    pub settled: bool,
    /// What [`Write::events`] had; empty for events of other namespaces.
    pub events: Vec<u8>,
}

/// One row as cleanup sees it.
#[derive(Debug)]
pub struct Scanned {
    /// The name.
    pub name: Vec<u8>,
    /// Its version.
    pub version: u64,
    /// Whether the version is below both limits of the scan.
    pub idle: bool,
    /// Whether the row is plain and has no holder.
    pub free: bool,
    /// Whether `until` has passed.
    pub expired: bool,
}

/// Reads and writes of single rows, for the slow path.
#[async_trait]
pub trait Rows: Send {
    /// Reads a row. The reply has [`Row::watched`] and [`Row::watermark`] if there is no row or
    /// `watch` is [`Watch::Unknown`]; otherwise they may be left out.
    async fn read(&mut self, name: &Name, watch: Watch) -> Sent<Row>;

    /// Inserts a free plain row unless there is one. Its version is the greatest of `version`, the
    /// server's clock and the namespace's watermark plus one.
    async fn create(&mut self, name: &Name, version: u64) -> Sent<()>;

    /// Writes a row if all conditions hold; `false` if not. Must not be sent twice.
    async fn write(&mut self, write: &Write<'_>) -> Sent<bool>;

    /// Ends the priority that [`Dialect::prioritized`] has taken, if any.
    async fn finish(self: Box<Self>);
}

/// The statements of watchers and of the event log.
#[async_trait]
pub trait EventTable: Send + Sync {
    /// Whether a client watches the namespace, and the server's clock.
    async fn is_watched(&self) -> Sent<(bool, u64)>;

    /// Extends `watched_until` of the namespace to at least `span` from now; returns the number of
    /// the last event.
    async fn watch(&self, span: u64) -> Sent<u64>;

    /// Events after number `id`, in order of their numbers. They are settled after `settle`.
    async fn events(&self, id: u64, settle: u64, limit: u64) -> Sent<Vec<Logged>>;

    /// Deletes some events below number `id` that are older than `age`.
    async fn trim_events(&self, id: u64, age: u64) -> Sent<()>;

    /// Some names in use whose `until` is past and not 0.
    async fn expired(&self, limit: u64) -> Sent<Vec<Vec<u8>>>;
}

/// The statements that delete idle rows.
#[async_trait]
pub trait IdleRows: Send + Sync {
    /// The namespace's watermark, if no client has begun a cleanup within `interval`; this client
    /// then begins one.
    async fn begin_cleanup(&self, interval: u64) -> Sent<Option<u64>>;

    /// Rows after name `from`, in byte order; idle are versions older than `age` and not above
    /// `watermark`.
    async fn scan(&self, from: &[u8], age: u64, watermark: u64, limit: u64) -> Sent<Vec<Scanned>>;

    /// Deletes rows that still have their versions. Each deletion commits by itself.
    async fn delete(&self, rows: &[Scanned]) -> Sent<()>;

    /// Raises the watermark to at least `age` before now.
    async fn raise_watermark(&self, age: u64) -> Sent<()>;
}

/// An SQL engine, as the table needs it. See the [crate](crate) for the schema.
#[async_trait]
pub trait Dialect: EventTable + IdleRows + Debug + Send + Sync + 'static {
    /// The server, for messages.
    fn address(&self) -> &str;

    /// How long a reply is waited for. A statement must not wait for a row lock for longer than a
    /// second.
    fn timeout(&self) -> Duration;

    /// Takes a name in one request, and returns its row as it is afterwards.
    ///
    /// If the row is plain and free, and `ended` does not contain the request: grants, with a
    /// sequence number of at least `version + 1`, `least_seq`, the server's clock and the watermark
    /// plus one, which becomes the version as well. If the request holds the row already: extends its
    /// lease, never shortens it. Otherwise, if a client watches, or after `latest`: changes nothing
    /// but may insert a free row.
    async fn take(&self, take: &Take<'_>) -> Sent<Reply<Option<Row>>>;

    /// Takes a name in one statement if its row has the version and `ended` does not contain the
    /// request; returns the sequence number, which is also the new version: at least `least_seq` and
    /// the server's clock.
    async fn retake(&self, retake: &Retake<'_>) -> Sent<Reply<Option<u64>>>;

    /// Releases a plain row in one statement, if request and sequence number match and its lease has
    /// not ended; returns the new version: at least the old one plus one, and the server's clock.
    async fn release(&self, release: &Release<'_>) -> Sent<Reply<Option<u64>>>;

    /// Extends the leases of holds in one request, for plain rows whose request and sequence number
    /// match and whose lease has not ended; returns those that now have this lease. Rows are locked in
    /// the order of their names.
    async fn renew(
        &self,
        holds: &[&Hold],
        lease: u64,
        timeout: Duration,
    ) -> Sent<Vec<(RequestId, u64)>>;

    /// Rows, each request on any connection, answered within `timeout`. Writes must yield to a client
    /// that has priority on the row.
    fn rows(&self, timeout: Duration) -> Box<dyn Rows + '_>;

    /// Rows, with priority on this one: until [`Rows::finish`] the writes of other clients do
    /// nothing. A hint against starvation, so it must be bounded: if priority cannot be had within a
    /// second, nor a quarter of `timeout`, the caller goes on without it.
    async fn prioritized(&self, name: &Name, timeout: Duration) -> Sent<Box<dyn Rows + '_>>;

    /// Listens for wakes until no claim waits any more, or the connection is lost.
    ///
    /// After it begins to listen, and after each wake, it must read the rows of
    /// [`Waiters::names`] and pass them to [`Waiters::read`]; a wake between the two must not be
    /// lost. It calls [`Waiters::listening`] once it would receive wakes.
    async fn listen(&self, waiters: &Waiters) -> Sent<()>;

    /// Wakes clients, in the background.
    fn notify(&self, clients: &[ClientId]);

    /// Rows of names in use, in byte order from `from` on, or from the name after it if `past`.
    async fn in_use(
        &self,
        from: &[u8],
        past: bool,
        limit: u64,
    ) -> Sent<Vec<(Vec<u8>, Option<Row>)>>;

    /// Looks for settings of the server that break a guarantee. The first finding says what the server is.
    /// The table adds latency and clock.
    async fn doctor(&self) -> Result<Vec<Finding>>;

    /// Closes idle connections, and others when they become idle.
    fn close(&self);
}
