//! Waits that are given up, and clients that are closed half-way: what becomes of the others, and of
//! the claim at the store.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may stop at once, and has a runtime of its own"
)]

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use clinch_core::memory::{Fault, MemoryStore, Op};
use clinch_core::store::{Admin, OpenContext};
use clinch_core::{Clinch, Clock, ManualClock};

struct Client {
    clinch: Clinch,
    store: Arc<MemoryStore>,
    context: OpenContext,
}

fn context(clock: Clock) -> OpenContext {
    Clinch::context("test").unwrap().with_clock(clock)
}

impl Client {
    fn on(store: MemoryStore, context: OpenContext) -> Self {
        let store = Arc::new(store);
        Self {
            clinch: Clinch::builder(store.clone(), context.clone()).build(),
            store,
            context,
        }
    }

    fn new() -> Self {
        let context = context(Clock::boot());
        Self::on(MemoryStore::new(context.clone()), context)
    }

    fn manual() -> (Self, Arc<ManualClock>) {
        let (clock, hand) = Clock::manual();
        let context = context(clock);
        (Self::on(MemoryStore::new(context.clone()), context), hand)
    }

    /// Another client of the same locks, on the same clock.
    fn other(&self) -> Self {
        let context = context(self.context.clock.clone());
        Self::on(self.store.sibling(context.clone()), context)
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Polls a future once; it must not be ready yet.
fn begin<F: Future + Unpin>(mut future: F) -> F {
    let polled = std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending), "it should have to wait");
    future
}

async fn until(what: &str, mut probe: impl AsyncFnMut() -> bool) {
    let clock = Clock::boot();
    for _ in 0..4000 {
        if probe().await {
            return;
        }
        clock.sleep(ms(5)).await;
    }
    panic!("within 20 s: {what}");
}

async fn nothing_left(client: &Client) {
    until("nothing is left", async || {
        client.clinch.list("").await.unwrap().is_empty()
    })
    .await;
}

/// Waiters leave more often than the store answers. A claim under way is not given up for that: its
/// answer may be the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_leave_keep_the_grant_from_nobody() {
    let here = Client::new();
    let there = here.other();
    let held = there.clinch.lock("a").acquire().await.unwrap();
    let lock = here.clinch.lock("a");
    // Queued; from now on every answer takes its time, and no wake comes.
    let patient = begin(Box::pin(lock.acquire()));
    here.store.faults().drop_wakes(true);
    there.store.faults().drop_wakes(true);
    here.store.faults().always(Some(Fault::DelayAfter(ms(400))));
    held.release().await.unwrap();
    let short = lock.clone();
    let leaving = tokio::spawn(async move {
        loop {
            let calls: Vec<_> = (0..4)
                .map(|n| {
                    let short = short.clone();
                    tokio::spawn(async move {
                        Clock::boot().sleep(ms(5 * n)).await;
                        drop(short.acquire_within(ms(20)).await);
                    })
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
        }
    });
    let entered = tokio::time::timeout(Duration::from_secs(10), patient).await;
    leaving.abort();
    assert!(
        entered
            .expect("the grant never arrived")
            .unwrap()
            .is_valid()
    );
}

/// A waiter whose time is up while a repeat of its claim is not answered: the store may have granted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_is_said_once_what_is_under_way_has_been_withdrawn() {
    let (here, hand) = Client::manual();
    let there = here.other();
    // The wait ends long before the lease and the patience with the store.
    let (lease, wait) = (Duration::from_secs(3000), Duration::from_secs(300));
    let builder = Clinch::builder(here.store.clone(), here.context.clone());
    let patient = builder.patience(wait * 2).build();
    let held = there.clinch.lock("a").acquire().await.unwrap();
    here.store.faults().drop_wakes(true);
    there.store.faults().drop_wakes(true);
    let lock = patient.lock("a").lease(lease);
    let waiting = tokio::spawn(async move { lock.acquire_within(wait).await });
    until("it is queued", async || {
        let seen = there.clinch.inspect("a").await.unwrap();
        seen.is_some_and(|seen| seen.waiters.len() == 1)
    })
    .await;
    // The repeat is not answered; nor is the withdrawal, for a while.
    here.store.faults().inject(Op::Claim, Fault::HangAfter);
    here.store
        .faults()
        .inject(Op::Withdraw, Fault::DelayBefore(ms(500)));
    let before = here.context.operations.count();
    until("it is repeated", async || {
        hand.advance(ms(20));
        here.context.operations.count() > before
    })
    .await;
    held.release().await.unwrap();
    let seen = there.clinch.inspect("a").await.unwrap().unwrap();
    assert_eq!(seen.holders.len(), 1, "it holds the lock");
    hand.advance(wait);
    // Time stands still: the store does not know yet that nobody wants it.
    for _ in 0..20 {
        Clock::boot().sleep(ms(5)).await;
        assert!(!waiting.is_finished(), "said no while it held the lock");
    }
    hand.advance(ms(500));
    let outcome = waiting.await.unwrap();
    assert!(outcome.unwrap().is_none());
    nothing_left(&there).await;
}

/// The store answers nothing at all any more: that is not "no".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ends_unanswered_is_an_error() {
    let here = Client::new();
    let there = here.other();
    let held = there.clinch.lock("a").acquire().await.unwrap();
    here.store.faults().drop_wakes(true);
    there.store.faults().drop_wakes(true);
    let lock = here.clinch.lock("a").lease(ms(1500));
    let waiting = tokio::spawn(async move { lock.acquire_within(ms(900)).await });
    until("it is queued", async || {
        let seen = there.clinch.inspect("a").await.unwrap();
        seen.is_some_and(|seen| seen.waiters.len() == 1)
    })
    .await;
    here.store.faults().always(Some(Fault::HangAfter));
    held.release().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.may_have_taken_effect(), "{error}");
    here.store.faults().always(None);
}

/// Whoever asks for the end gets it, also if the first who asked has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_that_is_dropped_goes_on_and_others_wait_for_it() {
    let here = Client::new();
    let there = here.other();
    let guard = here.clinch.lock("a").acquire().await.unwrap();
    here.store
        .faults()
        .inject(Op::Release, Fault::DelayBefore(ms(300)));
    drop(begin(Box::pin(here.clinch.close())));
    assert!(!guard.is_valid());
    here.clinch.close().await.unwrap();
    let left = there.clinch.list("").await.unwrap();
    assert!(left.is_empty(), "it returned before the end: {left:?}");
    // Nobody asks again: it goes on by itself.
    let (third, seen) = (here.other(), here.other());
    let _guard = third.clinch.lock("b").acquire().await.unwrap();
    third
        .store
        .faults()
        .inject(Op::Release, Fault::DelayBefore(ms(100)));
    drop(begin(Box::pin(third.clinch.close())));
    until("the session has ended", async || {
        seen.store.list("").await.unwrap().is_empty()
    })
    .await;
}
