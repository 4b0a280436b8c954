//! Whether somebody watches, without a look at `clinch_meta` in every statement.
//!
//! A client asks, and may then leave watchers alone for a moment: its statements say until when, by
//! the server's clock, and do nothing if that has passed. Whoever begins to watch waits for as long
//! before he says that he does, so no event is missed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{BootTime, Clock, keeper};

use crate::pool::Pool;
use crate::row::{optional, span};
use crate::sql::names::{self, Watch};

/// For how long an answer counts.
pub(crate) const WINDOW: Duration = Duration::from_millis(500);
/// After so many statements in quick succession it is worth a question.
const OFTEN: u32 = 4;

/// The last answer.
#[derive(Debug)]
pub(crate) struct Quiet {
    pool: Arc<Pool>,
    ns: Vec<u8>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When a statement last wanted to know, and how many in a row have wanted it.
    wanted: Option<BootTime>,
    row: u32,
    asked: Option<BootTime>,
    /// Until when nobody watches, by the own clock and by the server's. The server's may be set
    /// back.
    until: Option<(BootTime, u64)>,
}

impl Quiet {
    pub(crate) fn new(pool: Arc<Pool>, ns: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            pool,
            ns: ns.to_vec(),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment of the server's clock until which nobody watches, where that is known. If it is
    /// wanted often, it is asked for in the background.
    pub(crate) fn until(self: &Arc<Self>) -> Option<u64> {
        let now = Clock::boot().now();
        let is_recent = |when: Option<BootTime>, span| when.is_some_and(|w| now.since(w) < span);
        let (until, ask) = {
            let mut state = self.state();
            state.row = match is_recent(state.wanted.replace(now), WINDOW) {
                true => state.row.saturating_add(1),
                false => 0,
            };
            let ask = state.row >= OFTEN && !is_recent(state.asked, WINDOW / 2);
            if ask {
                state.asked = Some(now);
            }
            let until = state.until.filter(|(own, _)| now < *own);
            (until.map(|(_, servers)| servers), ask)
        };
        if ask {
            // Without an answer the statements look for themselves.
            let _ = keeper::spawn(self.clone().ask(now));
        }
        until
    }

    /// What a statement has to do about those who watch.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        self.until().map_or(Watch::Unknown, Watch::QuietUntil)
    }

    async fn ask(self: Arc<Self>, sent: BootTime) {
        let answer = self.pool.query(&names::watched_now(&self.ns)).await;
        let row = answer.ok().and_then(|reply| reply.into_first_row());
        let mut values = row.unwrap_or_default().into_iter();
        let mut number = || values.next().and_then(optional).flatten();
        self.state().until = match (number(), number()) {
            (Some(0), Some(now)) => Some((sent + WINDOW, now.saturating_add(span(WINDOW)))),
            _ => None,
        };
    }
}
