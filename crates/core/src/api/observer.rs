//! Follows an election.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::election::{Election, LeaderView, Leadership};
use crate::engine::backoff;
use crate::store::{Event, EventKind, Events};
use crate::{Error, ErrorKind, Name, Result, Token};

/// Longest wait for an event before the leader is read again, in case an event was lost.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Follows an election. Made by [`Election::observe`]. Also a [`Stream`](futures_core::Stream).
///
/// If the store is unreachable, it retries with backoff and then reports what has changed. It ends
/// when the client is closed, or when the store fails permanently; [`error`](Self::error) has the
/// reason.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// use clinch::Leadership;
/// let election = clinch.election("scheduler");
/// let leader = election.campaign("10.0.0.7").await?;
/// let mut observer = election.observe().await?;
/// assert!(matches!(observer.next().await, Some(Leadership::Led(_))));
/// leader.resign().await?;
/// assert_eq!(observer.next().await, Some(Leadership::Vacant));
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
pub struct Observer {
    /// The future of the next change. The mutex only makes it `Sync`; it is never locked.
    next: Mutex<Step>,
    name: Name,
    error: Option<Error>,
}

/// Returns the watch with a change, to continue it; an error ends it.
type Step = Pin<Box<dyn Future<Output = Result<(Watch, Leadership)>> + Send>>;

impl Observer {
    pub(super) fn new(election: Election, name: Name, events: Events) -> Self {
        let watch = Watch {
            election,
            name: name.clone(),
            events: Some(events),
            looked: false,
            reported: None,
            term: None,
        };
        Self {
            next: Mutex::new(Box::pin(watch.change())),
            name,
            error: None,
        }
    }

    /// The present state at the first call, then each change; `None` when the client was closed or
    /// the store has failed permanently. Terms never go down. Cancel safe.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::Leadership;
    /// let election = clinch.election("scheduler");
    /// let mut observer = election.observe().await?;
    /// assert_eq!(observer.next().await, Some(Leadership::Vacant)); // the present state
    /// let leader = election.campaign("10.0.0.7").await?;
    /// assert!(matches!(observer.next().await, Some(Leadership::Led(_)))); // a change
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn next(&mut self) -> Option<Leadership> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    /// Why it has ended, once [`next`](Self::next) has returned `None`.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::ErrorKind;
    /// let mut observer = clinch.election("scheduler").observe().await?;
    /// clinch.close().await?;
    /// while observer.next().await.is_some() {}
    /// assert_eq!(observer.error().unwrap().kind(), ErrorKind::Closed);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Leadership>> {
        if self.error.is_some() {
            return Poll::Ready(None);
        }
        let next = self.next.get_mut().unwrap_or_else(PoisonError::into_inner);
        match ready!(next.as_mut().poll(cx)) {
            Ok((watch, change)) => {
                *next = Box::pin(watch.change());
                Poll::Ready(Some(change))
            }
            Err(error) => {
                self.error = Some(error);
                Poll::Ready(None)
            }
        }
    }
}

impl futures_core::Stream for Observer {
    type Item = Leadership;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Leadership>> {
        self.poll(cx)
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer")
            .field("name", &self.name)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

/// The state of an observer.
struct Watch {
    election: Election,
    name: Name,
    /// The store's events; `None` after they have ended.
    events: Option<Events>,
    /// Whether the leader was read since the events began.
    looked: bool,
    /// The last state reported.
    reported: Option<Leadership>,
    term: Option<Token>,
}

impl Watch {
    /// Waits for the next change.
    async fn change(self) -> Result<(Self, Leadership)> {
        let engine = self.election.engine().clone();
        let closed = || engine.check_open().err().unwrap_or_else(ended);
        let change = engine.unless_closed(self.follow()).await;
        change.unwrap_or_else(|| Err(closed()))
    }

    async fn follow(mut self) -> Result<(Self, Leadership)> {
        let clock = self.election.engine().clock.clone();
        // Failures in a row: the store did not answer, or has ended the events.
        let mut failures = 0;
        loop {
            if failures > 0 {
                clock.sleep(backoff(failures)).await;
            }
            if !self.looked {
                match self.look().await {
                    Ok(Some(change)) => return Ok((self, change)),
                    Ok(None) => {}
                    Err(error) if error.is_temporary() => {
                        tracing::debug!(%error, lock = %self.name, "an observer retries");
                        failures += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some(events) = &mut self.events else {
                self.looked = false;
                continue;
            };
            let event = tokio::select! {
                event = events.next() => event,
                () = clock.sleep(LOOK_AGAIN) => {
                    self.looked = false;
                    continue;
                }
            };
            match event {
                Some(event) => {
                    failures = 0;
                    if let Some(change) = self.apply(event) {
                        return Ok((self, change));
                    }
                }
                // The stream has ended: the store may have been unreachable.
                None => {
                    failures += 1;
                    self.events = None;
                    self.looked = false;
                }
            }
        }
    }

    /// Reads the leader, after the events have begun. Returns the state if it is a change.
    async fn look(&mut self) -> Result<Option<Leadership>> {
        if self.events.is_none() {
            self.events = Some(self.election.events(&self.name).await?);
        }
        let leader = self.election.leader().await?;
        self.looked = true;
        Ok(self.report(leader))
    }

    /// Applies an event. Returns the state if it is a change.
    fn apply(&mut self, event: Event) -> Option<Leadership> {
        let token = event.token.filter(|_| event.name == self.name)?;
        let led = matches!(self.reported, Some(Leadership::Led(_)));
        match event.kind {
            EventKind::Granted | EventKind::Published => {
                let news = self.term.is_none_or(|term| token > term)
                    || event.kind == EventKind::Published && self.term == Some(token);
                let leader = LeaderView {
                    token,
                    owner: event.owner,
                    host: event.host,
                    pid: event.pid,
                    label: event.label,
                    value: event.value,
                };
                news.then(|| self.report(Some(leader))).flatten()
            }
            EventKind::Released | EventKind::Expired | EventKind::Evicted
                if led && self.term.is_none_or(|term| token >= term) =>
            {
                self.report(None)
            }
            _ => None,
        }
    }

    /// Returns the state, unless it equals the last one reported or is older.
    fn report(&mut self, leader: Option<LeaderView>) -> Option<Leadership> {
        let state = match leader {
            Some(leader) if Some(leader.token) < self.term => return None,
            Some(leader) => {
                self.term = Some(leader.token);
                Leadership::Led(leader)
            }
            None => Leadership::Vacant,
        };
        let same = match (&self.reported, &state) {
            (Some(Leadership::Led(old)), Leadership::Led(new)) => {
                (old.token, &old.value) == (new.token, &new.value)
            }
            (Some(Leadership::Vacant), Leadership::Vacant) => true,
            _ => false,
        };
        self.reported = Some(state.clone());
        (!same).then_some(state)
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}
