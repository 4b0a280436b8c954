use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use clinch_core::ErrorKind;
use tokio::sync::Semaphore;

use super::*;

/// Connects when it is allowed to, and fails as often as it is set to.
#[derive(Default)]
struct Dial {
    allowed: Permits,
    failures: AtomicU64,
    attempts: AtomicU64,
    needed: AtomicBool,
    closed: AtomicBool,
    connected: Mutex<Vec<u64>>,
    /// Gives the connection up while it is made.
    breaks: AtomicBool,
}

struct Permits(Semaphore);

impl Default for Permits {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

impl Connector for Dial {
    type Connection = &'static str;

    async fn connect(
        &self,
        session: &Arc<Reconnecting<Self>>,
        number: u64,
    ) -> Result<&'static str> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        self.allowed.0.acquire().await.unwrap().forget();
        if self.breaks.load(Ordering::SeqCst) {
            assert!(!session.give_up(number));
        }
        let left = self.failures.load(Ordering::SeqCst);
        if left > 0 {
            self.failures.store(left - 1, Ordering::SeqCst);
            return Err(Error::new(
                ErrorKind::Unreachable,
                format!("failure {left}"),
            ));
        }
        Ok("connection")
    }

    fn connected(&self, generation: u64) {
        lock(&self.connected).push(generation);
    }

    fn is_needed(&self) -> bool {
        self.needed.load(Ordering::SeqCst)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

fn session(allowed: usize) -> Arc<Reconnecting<Dial>> {
    let ms = Duration::from_millis(1);
    let session = Reconnecting::new(Dial::default(), Clock::boot(), Backoff::new(ms, 2 * ms));
    session.connector.allowed.0.add_permits(allowed);
    session
}

fn attempts(session: &Reconnecting<Dial>) -> u64 {
    session.connector.attempts.load(Ordering::SeqCst)
}

#[tokio::test]
async fn all_callers_share_one_connection() {
    let session = session(0);
    let allow = async { session.connector.allowed.0.add_permits(1) };
    let (a, b, c, ()) = tokio::join!(session.live(), session.live(), session.live(), allow);
    let generations = [a, b, c].map(|live| live.unwrap().generation);
    assert_eq!((generations, attempts(&session)), ([0; 3], 1));
    assert_eq!(session.live().await.unwrap().generation, 0);
    assert_eq!(attempts(&session), 1);
    assert_eq!(*lock(&session.connector.connected), [0]);
}

#[tokio::test]
async fn callers_that_waited_share_the_failure_and_the_next_one_tries() {
    let session = session(0);
    session.connector.failures.store(1, Ordering::SeqCst);
    let allow = async { session.connector.allowed.0.add_permits(1) };
    let (a, b, ()) = tokio::join!(session.live(), session.live(), allow);
    for outcome in [a, b] {
        assert_eq!(outcome.unwrap_err().message(), "failure 1");
    }
    assert_eq!(attempts(&session), 1);
    session.connector.allowed.0.add_permits(1);
    assert_eq!(session.live().await.unwrap().generation, 1);
}

#[tokio::test]
async fn a_dropped_caller_does_not_end_the_attempt() {
    let session = session(0);
    {
        let mut dropped = Box::pin(session.live());
        poll_fn(|cx| {
            assert!(dropped.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
    session.connector.allowed.0.add_permits(1);
    assert_eq!(session.live().await.unwrap().generation, 0);
    assert_eq!(attempts(&session), 1);
}

#[tokio::test]
async fn only_the_connection_that_is_meant_is_given_up() {
    let session = session(3);
    let old = session.live().await.unwrap();
    assert!(session.give_up(old.generation));
    assert!(session.current().is_none());
    let new = session.live().await.unwrap();
    assert!(!session.give_up(old.generation));
    assert_eq!(session.current().unwrap().generation, new.generation);
    session.reset();
    assert_eq!(session.live().await.unwrap().generation, 2);
}

#[tokio::test]
async fn a_connection_that_breaks_while_it_is_made_is_not_kept() {
    let session = session(2);
    session.connector.breaks.store(true, Ordering::SeqCst);
    session.live().await.unwrap();
    assert!(session.current().is_none());
    session.connector.breaks.store(false, Ordering::SeqCst);
    session.live().await.unwrap();
    assert!(session.current().is_some());
}

#[tokio::test]
async fn a_closed_store_keeps_no_connection() {
    let session = session(1);
    session.connector.closed.store(true, Ordering::SeqCst);
    assert_eq!(*session.live().await.unwrap(), "connection");
    assert!(session.current().is_none());
    assert!(lock(&session.connector.connected).is_empty());
}

#[tokio::test]
async fn it_reconnects_in_the_background_while_it_is_needed() {
    let session = session(usize::MAX >> 4);
    session.connector.failures.store(3, Ordering::SeqCst);
    session.reconnect();
    assert!(!session.retrying.load(Ordering::SeqCst), "it is not needed");
    session.connector.needed.store(true, Ordering::SeqCst);
    session.reconnect();
    session.reconnect();
    while session.current().is_none() || session.retrying.load(Ordering::SeqCst) {
        Clock::boot().sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(*lock(&session.connector.connected), [3]);
    assert_eq!(attempts(&session), 4);
}
