//! Live events: steps write down what happens, while somebody watches.
//!
//! Whoever watches says so in the namespace's row of `clinch_meta`, for a few seconds at a time. The
//! statements of the short way look there, or rely on a look of a moment ago (`quiet.rs`), and
//! leave such names to the general way, which appends what has happened in the transaction of the
//! change itself. Watchers read on from where they were.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::machine::codec::{Decoder, Encoder};
use clinch_core::store::{Event, EventKind, EventSender};
use clinch_core::{Clock, Name, OwnerId, Result, Token, keeper};

use crate::error::Trouble;
use crate::group::Group;
use crate::pool::Pool;
use crate::quiet::WINDOW;
use crate::row::{bytes, optional};
use crate::sql::{NOW, Sql};
use crate::steps::Step;

/// For how long one word of a watcher counts, in microseconds.
const WATCH: u64 = 5_000_000;
/// How often it looks; every so many looks it says that it still watches, and looks for holds that
/// have run out.
const LOOK: Duration = Duration::from_millis(100);
const SAY_EVERY: u32 = 10;
/// Every so many looks, old events are deleted.
const TRIM_EVERY: u32 = 100;
/// For how long a missing number may still turn up: its transaction has not ended yet. And for how
/// long events are kept.
const LATE: u64 = 3_000_000;
const KEEP: u64 = 60_000_000;
/// Events in one request.
const PAGE: u64 = 500;

/// Appends the events of a step to its statements, if they have changed the row.
pub(crate) fn append(sql: Sql, ns: &[u8], events: &[Event]) -> Sql {
    sql.then(&format!(
        ";INSERT INTO clinch_events (ns,at,told) SELECT ?,{NOW},? FROM DUAL WHERE ROW_COUNT()>0"
    ))
    .bytes(ns)
    .bytes(&encode(events))
}

/// Who watches in this client.
#[derive(Debug)]
pub(crate) struct Watching {
    pool: Arc<Pool>,
    group: Arc<Group>,
    ns: Vec<u8>,
    watchers: Mutex<Watchers>,
}

#[derive(Debug, Default)]
struct Watchers {
    all: Vec<(String, EventSender)>,
    runs: bool,
    closed: bool,
}

impl Watching {
    pub(crate) fn new(pool: Arc<Pool>, group: Arc<Group>, ns: &str) -> Arc<Self> {
        Arc::new(Self {
            pool,
            group,
            ns: ns.as_bytes().to_vec(),
            watchers: Mutex::default(),
        })
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches names with this prefix, from now on.
    pub(crate) async fn add(self: &Arc<Self>, prefix: String, sender: EventSender) -> Result<()> {
        let from = self.say().await;
        let from = from.map_err(|trouble| trouble.into_error(self.pool.to()))?;
        // Until then, some may rely on nobody watching.
        Clock::boot().sleep(WINDOW).await;
        let start = {
            let mut watchers = self.watchers();
            if watchers.closed {
                return Ok(());
            }
            watchers.all.push((prefix, sender));
            !std::mem::replace(&mut watchers.runs, true)
        };
        match start {
            true => keeper::spawn(self.clone().run(from)),
            false => Ok(()),
        }
    }

    /// Ends every stream.
    pub(crate) fn close(&self) {
        let mut watchers = self.watchers();
        watchers.all.clear();
        watchers.closed = true;
    }

    /// Whether somebody still watches; if not, the task ends.
    fn goes_on(&self) -> bool {
        let mut watchers = self.watchers();
        watchers.all.retain(|(_, sender)| !sender.is_closed());
        watchers.runs = !watchers.all.is_empty();
        watchers.runs
    }

    async fn run(self: Arc<Self>, from: u64) {
        let mut seen = Seen {
            all_up_to: from,
            beyond: BTreeSet::new(),
        };
        let clock = Clock::boot();
        let mut looks = 0;
        while self.goes_on() {
            looks += 1;
            let looked = self.look(&mut seen, looks).await;
            let more = match looked {
                Ok(more) => more,
                Err(trouble) => {
                    tracing::warn!(?trouble, "events cannot be read");
                    false
                }
            };
            if !more {
                let nanos = u32::try_from(clock.now().as_nanos() % 512).unwrap_or_default();
                clock.sleep(LOOK / 2 + LOOK / 2 * nanos / 512).await;
            }
        }
    }

    /// One look; `true` if there is more to see at once.
    async fn look(&self, seen: &mut Seen, looks: u32) -> Result<bool, Trouble> {
        if looks.is_multiple_of(SAY_EVERY) {
            self.say().await?;
            self.tick().await?;
        }
        if looks.is_multiple_of(TRIM_EVERY) {
            let trim = format!("DELETE FROM clinch_events WHERE id<? AND at<{NOW}-? LIMIT 1000");
            let trim = Sql::new(trim).with(seen.all_up_to).with(KEEP);
            self.pool.query(&trim).await?;
        }
        let sql = Sql::new(format!(
            "SELECT id,at<{NOW}-?,IF(ns=?,told,'') FROM clinch_events WHERE id>? ORDER BY id LIMIT ?"
        ))
        .with(LATE)
        .bytes(&self.ns)
        .with(seen.all_up_to)
        .with(PAGE);
        let rows = self.pool.query(&sql).await?.into_rows();
        let more = rows.len() as u64 == PAGE;
        for row in rows {
            let mut values = row.into_iter();
            let (Some(id), Some(old), Some(told)) = (
                values.next().and_then(optional).flatten(),
                values.next().and_then(optional).flatten(),
                values.next().and_then(bytes),
            ) else {
                continue;
            };
            if seen.is_new(id, old > 0) {
                self.tell(&told);
            }
        }
        Ok(more)
    }

    /// Says that somebody watches; gives the number of the last event so far.
    async fn say(&self) -> Result<u64, Trouble> {
        let sql = Sql::new(format!(
            "INSERT INTO clinch_meta (ns,watched_until) VALUES (?,{NOW}+?) ON DUPLICATE KEY UPDATE \
             watched_until=GREATEST(watched_until,VALUES(watched_until));\
             SELECT COALESCE(MAX(id),0) FROM clinch_events"
        ))
        .bytes(&self.ns)
        .with(WATCH);
        let last = self.pool.query(&sql).await?.into_first_value();
        Ok(last.and_then(optional).flatten().unwrap_or(0))
    }

    /// Lets time pass for names with claims that have run out: watchers want to hear of it even if
    /// nobody else wants the name.
    async fn tick(&self) -> Result<(), Trouble> {
        let sql = Sql::new(format!(
            "SELECT name FROM clinch_names WHERE ns=? AND until BETWEEN 1 AND {NOW} \
             AND (request<>'' OR state IS NOT NULL) LIMIT 100"
        ))
        .bytes(&self.ns);
        for row in self.pool.query(&sql).await?.into_rows() {
            let name = row.into_iter().next().and_then(bytes);
            let name = name.and_then(|name| String::from_utf8(name).ok());
            if let Some(Ok(name)) = name.map(Name::new) {
                drop(self.group.send(&name, Step::Tick));
            }
        }
        Ok(())
    }

    fn tell(&self, told: &[u8]) {
        let events = decode(told).unwrap_or_default();
        let mut watchers = self.watchers();
        for event in events {
            watchers.all.retain(|(prefix, sender)| {
                !event.name.as_str().starts_with(prefix.as_str()) || sender.send(event.clone())
            });
        }
    }
}

/// Which events have been read. Numbers are given before their transactions end, so a greater one
/// can be there before a smaller one.
struct Seen {
    /// None below or at this is still to come.
    all_up_to: u64,
    beyond: BTreeSet<u64>,
}

impl Seen {
    /// Events come in the order of their numbers.
    fn is_new(&mut self, id: u64, old: bool) -> bool {
        if id == self.all_up_to + 1 || old {
            self.all_up_to = id;
            let new = !self.beyond.contains(&id);
            self.beyond = self.beyond.split_off(&(id + 1));
            return new;
        }
        self.beyond.insert(id)
    }
}

fn encode(events: &[Event]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    for event in events {
        encoder.text(event.kind.as_str());
        encoder.text(event.name.as_str());
        encoder.text(event.owner.as_str());
        encoder.text(&event.host);
        encoder.number(event.pid.into());
        encoder.maybe_text(event.label.as_ref());
        encoder.number(event.token.map_or(0, |token| token.get() + 1));
        encoder.maybe_text(event.value.as_ref());
    }
    encoder.finish()
}

fn decode(told: &[u8]) -> Option<Vec<Event>> {
    let mut decoder = Decoder::new(told);
    let mut events = Vec::new();
    while !decoder.is_empty() {
        events.push(Event {
            kind: EventKind::parse(decoder.text()?)?,
            name: Name::new(decoder.text()?).ok()?,
            owner: OwnerId::new(decoder.text()?),
            host: decoder.text()?.to_owned(),
            pid: decoder.number()?.try_into().ok()?,
            label: decoder.maybe_text()?,
            token: match decoder.number()? {
                0 => None,
                token => Some(Token::from_u64(token - 1)?),
            },
            value: decoder.maybe_text()?,
        });
    }
    Some(events)
}
