//! Live events: written only while a client watches.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Event, EventKind, EventSender, Events};
use clinch_core::{ClientId, Clock, Name, OwnerId, Result, Token, keeper};
use rusqlite::{Connection, Row, params};
use tokio::sync::watch;

use crate::batch::{Batcher, Route};
use crate::error::Step;
use crate::record::column;
use crate::transaction::Tx;

/// How many events the file keeps.
const KEPT: i64 = 10_000;
/// How often a watcher polls without a signal.
const POLL: Duration = Duration::from_millis(500);

/// Writes the events of a transaction, if any client watches.
pub(crate) fn write(tx: &mut Tx<'_>) -> rusqlite::Result<()> {
    if tx.after.events.is_empty() {
        return Ok(());
    }
    tx.after.watchers = tx.cache.watchers(|| watchers(tx.db))?;
    if tx.after.watchers.is_empty() {
        tx.after.events.clear();
        return Ok(());
    }
    const SQL: &str = "INSERT INTO events (ns, name, kind, owner, host, pid, label, token, value)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let mut last = 0;
    for event in tx.after.events.drain(..) {
        last = tx.db.prepare_cached(SQL)?.insert(params![
            tx.ns,
            event.name.as_str(),
            event.kind.as_str(),
            event.owner.as_str(),
            event.host,
            event.pid,
            event.label.as_deref(),
            event.token.map(|token| column(token.get())),
            event.value.as_deref(),
        ])?;
    }
    tx.db
        .prepare_cached("DELETE FROM events WHERE id <= ?1")?
        .execute([last - KEPT])?;
    Ok(())
}

pub(crate) fn watchers(db: &Connection) -> rusqlite::Result<Vec<ClientId>> {
    let mut statement = db.prepare_cached("SELECT client FROM watchers")?;
    let rows = statement.query_map([], |row| row.get(0).map(i64::cast_unsigned))?;
    rows.map(|id| id.map(ClientId::from_u64)).collect()
}

/// Opens a stream of the events of names that start with `prefix`.
pub(crate) async fn open(batcher: &Arc<Batcher>, me: ClientId, prefix: &str) -> Result<Events> {
    batcher.wakes().bind_once();
    // Before the watch begins, so that another stream that ends just now does not end it.
    let signals = batcher.wakes().event_signals();
    let last = batcher
        .call(Route::Inline, move |tx| subscribe(tx, me))
        .await?;
    let (sender, events) = Events::channel();
    let feed = Feed {
        batcher: batcher.clone(),
        prefix: prefix.into(),
        me,
        signals,
        to: sender,
    };
    keeper::spawn(feed.run(last))?;
    Ok(events)
}

/// Makes this client a watcher and returns the number of the last event so far.
fn subscribe(tx: &mut Tx<'_>, me: ClientId) -> Step<i64> {
    tx.cache.clear();
    tx.db
        .prepare_cached("INSERT OR IGNORE INTO watchers (client) VALUES (?1)")?
        .execute([me.get().cast_signed()])?;
    // The counter, not the largest row: rows may have been removed.
    let last = tx
        .db
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'")?
        .query_row([], |row| row.get(0))?;
    Ok(last)
}

/// Ends a client's watch, and removes the events with the last watch.
pub(crate) fn unsubscribe(tx: &mut Tx<'_>, client: ClientId) -> rusqlite::Result<()> {
    let db = tx.db;
    let removed = db
        .prepare_cached("DELETE FROM watchers WHERE client = ?1")?
        .execute([client.get().cast_signed()])?;
    if removed == 0 {
        return Ok(());
    }
    tx.cache.clear();
    if watchers(db)?.is_empty() {
        db.prepare_cached("DELETE FROM events")?.execute([])?;
    }
    Ok(())
}

/// The events after `last` whose name has the prefix, with the number of the newest seen.
fn read(tx: &Tx<'_>, prefix: &str, last: i64) -> Step<(i64, Vec<Event>)> {
    const SQL: &str = "SELECT id, ns, name, kind, owner, host, pid, label, token, value
        FROM events WHERE id > ?1 ORDER BY id";
    let mut statement = tx.db.prepare_cached(SQL)?;
    let mut rows = statement.query([last])?;
    let (mut newest, mut events) = (last, Vec::new());
    while let Some(row) = rows.next()? {
        newest = row.get(0)?;
        let (ns, name): (String, String) = (row.get(1)?, row.get(2)?);
        if ns == tx.ns && name.starts_with(prefix) {
            events.extend(event(row, &name)?);
        }
    }
    Ok((newest, events))
}

fn event(row: &Row<'_>, name: &str) -> rusqlite::Result<Option<Event>> {
    let kind: String = row.get(3)?;
    let (Some(kind), Ok(name)) = (EventKind::parse(&kind), Name::new(name)) else {
        return Ok(None);
    };
    let text = |at: usize| row.get(at).map(|text: Option<String>| text.map(Arc::from));
    let token: Option<i64> = row.get(8)?;
    let mut event = Event::new(kind, name, OwnerId::new(row.get::<_, String>(4)?));
    event.host = row.get(5)?;
    event.pid = row.get(6)?;
    event.label = text(7)?;
    event.token = token.and_then(|raw| Token::from_u64(raw.cast_unsigned()));
    event.value = text(9)?;
    Ok(Some(event))
}

/// One stream of events.
#[derive(Debug)]
struct Feed {
    batcher: Arc<Batcher>,
    prefix: Arc<str>,
    me: ClientId,
    signals: watch::Receiver<()>,
    to: EventSender,
}

impl Feed {
    /// Sends events until the stream is dropped or the store is closed. Runs on the keeper.
    async fn run(mut self, mut last: i64) {
        let mut closing = self.batcher.wakes().closing();
        loop {
            let prefix = self.prefix.clone();
            let step = move |tx: &mut Tx<'_>| read(tx, &prefix, last);
            match self.batcher.call(Route::Thread, step).await {
                Ok((newest, events)) => {
                    last = newest;
                    if events.into_iter().any(|event| !self.to.send(event)) {
                        break;
                    }
                }
                Err(error) if error.is_temporary() => tracing::debug!(%error, "reading events"),
                Err(_) => return,
            }
            tokio::select! {
                _ = self.signals.changed() => {}
                () = closing.wait() => return,
                () = self.to.closed() => break,
                // Only a poll: no deadline depends on it.
                () = Clock::boot().sleep(POLL) => {}
            }
        }
        self.end().await;
    }

    /// The last stream of a client ends its watch.
    async fn end(self) {
        drop(self.signals);
        let (me, wakes) = (self.me, self.batcher.wakes().clone());
        let step = move |tx: &mut Tx<'_>| match wakes.event_streams() {
            0 => Ok(unsubscribe(tx, me)?),
            _ => Ok(()),
        };
        // An error means that the store is being closed, which ends its watch.
        let _ = self.batcher.call(Route::Thread, step).await;
    }
}
