//! Live events: the slow path logs them while a client watches.
//!
//! A watcher announces itself in the namespace's row, for a few seconds at a time. Statements of the fast
//! path look there, or rely on a recent look (`row_cache.rs`), and leave watched names to the slow path,
//! which appends events in the transaction of the change. Watchers poll the log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clinch_core::machine::codec::{Decoder, Encoder};
use clinch_core::store::{Event, EventKind, EventSender};
use clinch_core::{Clock, Name, OwnerId, Result, Token, keeper};
use clinch_kit::backoff::jitter;
use clinch_kit::watchers::Watchers;

use crate::Dialect;
use crate::batch::StepBatcher;
use crate::dialect::Sent;
use crate::row_cache::UNWATCHED_WINDOW;
use crate::steps::Step;

/// How long an announcement counts, in microseconds.
const ANNOUNCED: u64 = 5_000_000;
/// The interval between two polls.
const POLL: Duration = Duration::from_millis(100);
/// Every so often, in polls, the watcher announces itself and looks for holds that have run out.
const ANNOUNCE_EVERY: u32 = 10;
/// Every so often, in polls, old events are deleted.
const TRIM_EVERY: u32 = 100;
/// How long a missing number may still appear, because its transaction has not ended yet.
const SETTLED: u64 = 3_000_000;
/// How long events are kept.
const KEEP: u64 = 60_000_000;
/// Events in one request, and names.
const PAGE: u64 = 500;
const NAMES: u64 = 100;

/// The watchers of this client.
#[derive(Debug)]
pub(crate) struct EventLog {
    dialect: Arc<dyn Dialect>,
    steps: StepBatcher,
    watchers: Watchers,
    /// Whether the task that polls runs.
    runs: AtomicBool,
}

impl EventLog {
    pub(crate) fn new(dialect: Arc<dyn Dialect>, steps: StepBatcher) -> Arc<Self> {
        Arc::new(Self {
            dialect,
            steps,
            watchers: Watchers::default(),
            runs: AtomicBool::default(),
        })
    }

    /// Watches names with this prefix, from now on.
    pub(crate) async fn watch(self: &Arc<Self>, prefix: String, sender: EventSender) -> Result<()> {
        let from = self.dialect.watch(ANNOUNCED).await;
        let from = from.map_err(|failure| failure.error)?;
        // Until then, some clients may rely on no client watching.
        Clock::boot().sleep(UNWATCHED_WINDOW).await;
        if self.watchers.insert(prefix, sender) && !self.runs.swap(true, Ordering::SeqCst) {
            keeper::spawn(self.clone().run(from))?;
        }
        Ok(())
    }

    /// Ends every stream.
    pub(crate) fn close(&self) {
        self.watchers.close();
    }

    /// Whether a watcher is left; if not, the task ends.
    fn goes_on(&self) -> bool {
        if self.watchers.is_watched() {
            return true;
        }
        self.runs.store(false, Ordering::SeqCst);
        // A watcher may have come meanwhile; either it has started another task, or this one goes on.
        self.watchers.is_watched() && !self.runs.swap(true, Ordering::SeqCst)
    }

    async fn run(self: Arc<Self>, from: u64) {
        let mut seen = Seen {
            all_up_to: from,
            beyond: BTreeSet::new(),
        };
        let clock = Clock::boot();
        let mut polls = 0;
        while self.goes_on() {
            polls += 1;
            let more = self.poll(&mut seen, polls).await.unwrap_or_else(|failure| {
                tracing::warn!(?failure, "events cannot be read");
                false
            });
            if !more {
                clock.sleep(jitter(POLL)).await;
            }
        }
    }

    /// One poll; `true` if there is more to read at once.
    async fn poll(&self, seen: &mut Seen, polls: u32) -> Sent<bool> {
        if polls.is_multiple_of(ANNOUNCE_EVERY) {
            self.dialect.watch(ANNOUNCED).await?;
            self.tick().await?;
        }
        if polls.is_multiple_of(TRIM_EVERY) {
            self.dialect.trim_events(seen.all_up_to, KEEP).await?;
        }
        let logged = self.dialect.events(seen.all_up_to, SETTLED, PAGE).await?;
        let more = logged.len() as u64 == PAGE;
        for entry in logged {
            if seen.is_new(entry.id, entry.settled) {
                self.deliver(&entry.events);
            }
        }
        Ok(more)
    }

    /// Ends claims that have run out, so that watchers see it even if no client uses the name.
    async fn tick(&self) -> Sent<()> {
        for name in self.dialect.expired(NAMES).await? {
            if let Ok(Ok(name)) = String::from_utf8(name).map(Name::new) {
                drop(self.steps.submit(name, Step::Tick));
            }
        }
        Ok(())
    }

    fn deliver(&self, events: &[u8]) {
        for event in decode(events).unwrap_or_default() {
            self.watchers.deliver(&event);
        }
    }
}

/// Which events have been read. Numbers are assigned before their transactions end, so a greater one may
/// be visible before a smaller one.
struct Seen {
    /// No number up to this one can still appear.
    all_up_to: u64,
    beyond: BTreeSet<u64>,
}

impl Seen {
    /// Events come in the order of their numbers.
    fn is_new(&mut self, id: u64, settled: bool) -> bool {
        if id == self.all_up_to + 1 || settled {
            self.all_up_to = id;
            let new = !self.beyond.contains(&id);
            self.beyond = self.beyond.split_off(&(id + 1));
            return new;
        }
        self.beyond.insert(id)
    }
}

/// Events as the log has them.
pub(crate) fn encode(events: &[Event]) -> Vec<u8> {
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

fn decode(events: &[u8]) -> Option<Vec<Event>> {
    let mut decoder = Decoder::new(events);
    let mut events = Vec::new();
    while !decoder.is_empty() {
        let kind = EventKind::parse(decoder.text()?)?;
        let name = Name::new(decoder.text()?).ok()?;
        let mut event = Event::new(kind, name, OwnerId::new(decoder.text()?));
        event.host = decoder.text()?.to_owned();
        event.pid = decoder.number()?.try_into().ok()?;
        event.label = decoder.maybe_text()?;
        event.token = match decoder.number()? {
            0 => None,
            token => Some(Token::from_u64(token - 1)?),
        };
        event.value = decoder.maybe_text()?;
        events.push(event);
    }
    Some(events)
}
