//! The engine on the memory store: hand-over, loss, cancellation, unknown outcomes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may stop at once, and has a runtime of its own"
)]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use clinch_core::memory::{Fault, MemoryStore, Op};
use clinch_core::store::{Ending, OpenContext, Suspicion};
use clinch_core::{
    Clinch, Clock, ErrorKind, HandOver, LostReason, ManualClock, ReleaseReply, Status,
};

struct Bench {
    clinch: Clinch,
    store: Arc<MemoryStore>,
    hand: Arc<ManualClock>,
    context: OpenContext,
}

fn context(clock: Clock) -> OpenContext {
    Clinch::context("test").unwrap().with_clock(clock)
}

/// A client on a manual clock.
fn manual() -> Bench {
    let (clock, hand) = Clock::manual();
    let context = context(clock);
    let store = Arc::new(MemoryStore::new(context.clone()));
    let clinch = Clinch::builder(store.clone(), context.clone()).build();
    Bench {
        clinch,
        store,
        hand,
        context,
    }
}

impl Bench {
    /// Another client of the same store, on the same clock.
    fn other(&self) -> Bench {
        let context = context(self.context.clock.clone());
        let store = Arc::new(self.store.sibling(context.clone()));
        let clinch = Clinch::builder(store.clone(), context.clone()).build();
        Bench {
            clinch,
            store,
            hand: self.hand.clone(),
            context,
        }
    }
}

/// A client on the real clock.
fn real() -> (Clinch, Arc<MemoryStore>) {
    let context = context(Clock::boot());
    let store = Arc::new(MemoryStore::new(context.clone()));
    (Clinch::builder(store.clone(), context).build(), store)
}

async fn until<T, F: Future<Output = Option<T>>>(mut probe: impl FnMut() -> F) -> T {
    let clock = Clock::boot();
    for _ in 0..4000 {
        if let Some(found) = probe().await {
            return found;
        }
        clock.sleep(Duration::from_millis(5)).await;
    }
    panic!("the condition did not come true within 20 s");
}

/// Polls a future once, so that it has begun; it must not be ready yet.
fn begin<F: Future + Unpin>(mut future: F) -> F {
    let polled = std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "it should have to wait");
    future
}

async fn nothing_left(clinch: &Clinch) {
    until(|| async { clinch.list("").await.unwrap().is_empty().then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_passes_on_inside_the_process_with_a_rising_token() {
    let (clinch, _) = real();
    let lock = clinch.lock("a");
    let first = lock.acquire().await.unwrap();
    let token = first.token();
    let waiter = begin(Box::pin(lock.acquire()));
    let before = clinch.operations();
    first.release().await.unwrap();
    let second = waiter.await.unwrap();
    assert_eq!(
        clinch.operations(),
        before,
        "a hand-over needs no word to the store"
    );
    assert_eq!(second.token().seq(), token.seq());
    assert!(second.token() > token);
    assert_eq!(second.predecessor().unwrap().ending, Ending::Released);
    second.release().await.unwrap();
    nothing_left(&clinch).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_where_several_hold_at_once() {
    let (clinch, store) = real();
    let context = context(Clock::boot());
    let sibling = Arc::new(store.sibling(context.clone()));
    let other = Clinch::builder(sibling, context).build();
    let permits = clinch.semaphore("a", 2);
    let first = permits.acquire().await.unwrap();
    let beside = other.semaphore("a", 2).acquire().await.unwrap();
    let waiter = begin(Box::pin(permits.acquire()));
    first.release().await.unwrap();
    // Not the first permit with a local number: that would be the smaller token.
    let second = waiter.await.unwrap();
    assert!(second.token() > beside.token());
    second.release().await.unwrap();
    beside.release().await.unwrap();
    nothing_left(&clinch).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_with_a_sequencer_ends_at_the_store() {
    let (clinch, _) = real();
    let lock = clinch.lock("a");
    let first = lock.acquire().await.unwrap();
    let sequencer = first.sequencer();
    assert!(clinch.check(&sequencer).await.unwrap().is_current());
    let waiter = begin(Box::pin(lock.acquire()));
    first.release().await.unwrap();
    let second = waiter.await.unwrap();
    assert!(second.token().seq() > sequencer.token().seq());
    assert!(!clinch.check(&sequencer).await.unwrap().is_current());
}

#[tokio::test]
async fn a_hold_stays_for_one_round_of_those_who_wait() {
    let (clock, hand) = Clock::manual();
    let context = context(clock);
    let store = Arc::new(MemoryStore::new(context.clone()));
    let clinch = Clinch::builder(store, context).build();
    let lock = clinch.lock("a");
    let first = lock.acquire().await.unwrap();
    let seq = first.token().seq();
    let waiters: Vec<_> = (0..3).map(|_| begin(Box::pin(lock.acquire()))).collect();
    let (mut guard, mut late) = (first, Vec::new());
    for waiter in waiters {
        // Longer than it takes to pay for a round trip; and somebody comes who was not there.
        hand.advance(Duration::from_millis(5));
        guard.release().await.unwrap();
        guard = waiter.await.unwrap();
        late.push(begin(Box::pin(lock.acquire())));
        assert_eq!(guard.token().seq(), seq, "it stays in the process");
    }
    guard.release().await.unwrap();
    for waiter in late {
        let guard = waiter.await.unwrap();
        assert!(guard.token().seq() > seq, "the store had its turn");
        guard.release().await.unwrap();
    }
    nothing_left(&clinch).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_tasks_exclude_each_other_and_tokens_rise() {
    let mut few = HandOver::default();
    few.count = 3;
    for bounds in [HandOver::default(), HandOver::OFF, few] {
        let context = context(Clock::boot());
        let store = Arc::new(MemoryStore::new(context.clone()));
        let clinch = Clinch::builder(store, context).hand_over(bounds).build();
        let (inside, last) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..64_u32 {
            let (clinch, inside, last) = (clinch.clone(), inside.clone(), last.clone());
            tasks.spawn(async move {
                for round in 0..20 {
                    let lock = clinch.lock("hot");
                    let lock = if (task + round) % 7 == 0 {
                        lock.fair()
                    } else {
                        lock
                    };
                    let guard = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    let before = last.swap(guard.token().get(), Ordering::SeqCst);
                    assert!(guard.token().get() > before);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    match round % 3 {
                        0 => drop(guard),
                        _ => assert!(guard.release().await.unwrap().was_held()),
                    }
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        nothing_left(&clinch).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_dropped_after_any_number_of_polls_leaves_nothing() {
    for fault in [
        None,
        Some(Fault::DelayBefore(ms(5))),
        Some(Fault::DelayAfter(ms(5))),
        Some(Fault::HangAfter),
        Some(Fault::HangBefore),
        Some(Fault::ReplyLost),
    ] {
        for held in [false, true] {
            for polls in 0..4 {
                let context = context(Clock::boot());
                let store = Arc::new(MemoryStore::new(context.clone()));
                let clinch = Clinch::builder(store.clone(), context)
                    .patience(ms(200))
                    .build();
                let guard = match held {
                    true => Some(clinch.lock("a").acquire().await.unwrap()),
                    false => None,
                };
                if let Some(fault) = fault {
                    store.faults().inject(Op::Claim, fault);
                }
                let lock = clinch.lock("a").fair();
                let mut future = Box::pin(lock.acquire());
                for _ in 0..polls {
                    let polled = future
                        .as_mut()
                        .poll(&mut Context::from_waker(Waker::noop()));
                    if let Poll::Ready(guard) = polled {
                        drop(guard);
                        break;
                    }
                    Clock::boot().sleep(ms(3)).await;
                }
                drop(future);
                drop(guard);
                store.faults().clear();
                nothing_left(&clinch).await;
                let next = clinch.lock("a").acquire().await.unwrap();
                next.release().await.unwrap();
            }
        }
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[tokio::test]
async fn a_lost_reply_is_repaired_by_asking_again() {
    let (clinch, store) = real();
    store.faults().inject(Op::Claim, Fault::ReplyLost);
    let guard = clinch.lock("a").acquire().await.unwrap();
    assert_eq!(
        clinch.list("").await.unwrap()[0].holders[0].token.unwrap(),
        guard.token()
    );
    store.faults().inject(Op::Release, Fault::ReplyLost);
    assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);

    store.faults().inject(Op::Claim, Fault::ReplyLost);
    let guard = clinch.lock("a").try_acquire().await.unwrap().unwrap();
    drop(guard);
    nothing_left(&clinch).await;
}

#[tokio::test]
async fn a_release_that_may_have_taken_effect_says_so_whatever_came_after() {
    let (clinch, store) = real();
    let guard = clinch.lock("a").lease(ms(300)).acquire().await.unwrap();
    store.faults().inject(Op::Release, Fault::ReplyLost); // before what is always so
    store.faults().always(Some(Fault::ErrorBefore));
    let error = guard.release().await.unwrap_err();
    assert!(error.may_have_taken_effect(), "{error}");
    store.faults().always(None);
    nothing_left(&clinch).await;
}

/// A session may keep all holds of a client alive: the end of the lease does not end the work.
#[tokio::test]
async fn a_release_goes_on_after_the_lease() {
    let (clinch, store) = real();
    let lease = ms(200);
    let guard = clinch.lock("a").lease(lease).acquire().await.unwrap();
    store.faults().always(Some(Fault::ErrorBefore));
    drop(guard);
    Clock::boot().sleep(lease * 3).await;
    store.faults().always(None);
    let before = clinch.operations();
    let until = Clock::boot().now() + Duration::from_secs(10);
    while clinch.operations() == before {
        assert!(Clock::boot().now() < until, "it was given up");
        Clock::boot().sleep(ms(5)).await;
    }
}

/// Begins a release whose first try ends in `fault`, and stops it before its second try.
async fn half_released(bench: &Bench, fault: Fault) -> impl Future<Output = ReleaseReply> + Unpin {
    let lock = bench.clinch.lock("a").lease(Duration::from_secs(10));
    let guard = lock.acquire().await.unwrap();
    bench.store.faults().inject(Op::Release, fault);
    begin(Box::pin(async move { guard.release().await.unwrap() }))
}

#[tokio::test]
async fn a_release_that_the_store_has_forgotten_was_a_release() {
    let bench = manual();
    let release = half_released(&bench, Fault::ReplyLost).await;
    bench.store.lose_data();
    bench.hand.advance(ms(100));
    assert_eq!(release.await, ReleaseReply::Released);
}

#[tokio::test]
async fn a_release_that_arrives_after_the_lease_was_a_release() {
    let bench = manual();
    let release = half_released(&bench, Fault::RequestLost).await;
    bench.hand.advance(Duration::from_secs(11));
    assert_eq!(release.await, ReleaseReply::Released);
}

#[tokio::test]
async fn an_eviction_before_a_repeated_release_is_a_loss() {
    let bench = manual();
    let release = half_released(&bench, Fault::RequestLost).await;
    bench.other().clinch.evict("a", None).await.unwrap();
    bench.hand.advance(ms(100));
    let evicted = ReleaseReply::WasLost(LostReason::Evicted);
    assert_eq!(release.await, evicted);
}

#[tokio::test]
async fn a_definite_first_answer_to_a_release_stays() {
    let bench = manual();
    let release = half_released(&bench, Fault::ErrorBefore).await;
    bench.store.lose_data();
    bench.hand.advance(ms(100));
    let forgotten = ReleaseReply::WasLost(LostReason::Forgotten);
    assert_eq!(release.await, forgotten);
}

#[tokio::test]
async fn an_unknown_outcome_is_never_not_acquired() {
    let (clinch, store) = real();
    store.faults().always(Some(Fault::ReplyLost));
    let error = clinch.lock("a").try_acquire().await.unwrap_err();
    assert!(error.may_have_taken_effect(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert_eq!((error.store(), error.name()), (Some("memory"), Some("a")));
    let error = clinch.lock("a").acquire_within(ms(60)).await.unwrap_err();
    assert!(error.may_have_taken_effect(), "{error}");
    store.faults().always(None);
    nothing_left(&clinch).await;
}

#[tokio::test]
async fn patience_ends_a_wait_for_a_store_that_is_gone() {
    let context = context(Clock::boot());
    let store = Arc::new(MemoryStore::new(context.clone()));
    let clinch = Clinch::builder(store.clone(), context)
        .patience(ms(100))
        .build();
    store.faults().cut(true);
    let error = clinch.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    store.faults().cut(false);
    clinch
        .lock("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_hold_that_cannot_be_renewed_is_lost_at_its_deadline() {
    let bench = manual();
    let guard = bench
        .clinch
        .lock("a")
        .lease(Duration::from_secs(10))
        .acquire()
        .await
        .unwrap();
    bench.store.faults().cut(true);
    let left = guard.remaining();
    assert!(left < Duration::from_secs(10) && left > Duration::from_secs(9));
    // The clock alone decides: no task needs to run.
    bench.hand.advance(left - ms(1));
    assert!(guard.is_valid());
    bench.hand.advance(ms(1));
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().await, LostReason::Unrenewed);
    assert_eq!(guard.status(), Status::Lost(LostReason::Unrenewed));
    assert_eq!(guard.remaining(), Duration::ZERO);
    bench.store.faults().cut(false);
    assert_eq!(
        guard.release().await.unwrap(),
        ReleaseReply::WasLost(LostReason::Unrenewed)
    );
    nothing_left(&bench.clinch).await;
}

/// The clock stands still, so no renewal is due: the doubt alone makes the guard suspect. A renewal
/// that is acknowledged clears it, also for a hold that has all the time that it will get.
#[tokio::test]
async fn a_store_in_doubt_makes_its_guards_suspect_until_a_renewal_is_acknowledged() {
    let bench = manual();
    let lease = Duration::from_secs(1000);
    let guards = [
        bench.clinch.lock("a").lease(lease),
        bench.clinch.lock("b").lease(lease).max_hold(lease / 2),
    ];
    for lock in guards {
        let guard = lock.acquire().await.unwrap();
        bench.store.suspect(&Suspicion::Of(vec![])); // about others
        bench.store.faults().cut(true);
        bench.store.suspect(&Suspicion::All);
        until(|| async { (guard.status() == Status::Suspect).then_some(()) }).await;
        assert!(guard.is_valid());
        bench.store.faults().cut(false);
        until(|| async {
            bench.hand.advance(ms(50)); // a renewal that failed before is repeated soon
            (guard.status() == Status::Held).then_some(())
        })
        .await;
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_doubt_that_is_right_ends_the_hold_at_once() {
    let bench = manual();
    let guard = bench.clinch.lock("a").acquire().await.unwrap();
    bench.other().clinch.evict("a", None).await.unwrap();
    assert_eq!(guard.status(), Status::Held, "nobody has told it");
    bench.store.suspect(&Suspicion::All);
    assert_eq!(guard.lost().await, LostReason::Evicted);
}

/// Moves the clock on by a third of the lease and waits until the renewal has been acknowledged.
async fn one_renewal(bench: &Bench, guard: &clinch_core::Guard, lease: Duration) {
    bench.hand.advance(lease / 3);
    until(|| async { (guard.remaining() > lease * 9 / 10).then_some(()) }).await;
    assert!(guard.is_valid());
}

#[tokio::test]
async fn renewals_carry_a_hold_over_many_leases() {
    let bench = manual();
    let lease = Duration::from_secs(10);
    let guard = bench.clinch.lock("a").lease(lease).acquire().await.unwrap();
    for _ in 0..60 {
        one_renewal(&bench, &guard, lease).await;
    }
    assert!(guard.release().await.unwrap().was_held());
}

const LONG: Duration = Duration::from_secs(1000);

async fn guards(bench: &Bench) -> Vec<clinch_core::Guard> {
    let mut guards = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let lock = bench.clinch.lock(name).lease(LONG);
        guards.push(lock.acquire().await.unwrap());
    }
    guards
}

/// Waits until these are renewed, in far less time than their leases have left.
async fn renewed(bench: &Bench, guards: &[clinch_core::Guard]) {
    bench.hand.advance(LONG / 3);
    until(|| async {
        bench.hand.advance(ms(50)); // what failed is repeated soon
        let well = |guard: &clinch_core::Guard| {
            guard.status() == Status::Held && guard.remaining() > LONG * 9 / 10
        };
        guards.iter().all(well).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hold_that_cannot_be_renewed_fails_alone() {
    let bench = manual();
    let guards = guards(&bench).await;
    bench.store.faults().fail_renewals_of(&["a"]);
    renewed(&bench, &guards[1..]).await;
    assert_eq!(guards[0].status(), Status::Suspect);
    bench.store.faults().fail_renewals_of(&[]);
    renewed(&bench, &guards).await;
}

/// A store that cannot say which renewal of a batch failed: the others are found by halving it.
#[tokio::test]
async fn a_batch_that_fails_is_halved() {
    let bench = manual();
    let guards = guards(&bench).await;
    bench.store.faults().fail_batches_with(&["c"]);
    let others: Vec<_> = guards
        .iter()
        .filter(|guard| guard.name().as_str() != "c")
        .collect();
    bench.hand.advance(LONG / 3);
    until(|| async {
        bench.hand.advance(ms(50));
        let well = |guard: &&clinch_core::Guard| {
            guard.status() == Status::Held && guard.remaining() > LONG * 9 / 10
        };
        others.iter().all(well).then_some(())
    })
    .await;
    assert_eq!(guards[2].status(), Status::Suspect);
}

#[tokio::test]
async fn a_proclamation_is_a_renewal() {
    let bench = manual();
    let election = bench.clinch.election("e").lease(LONG);
    let leader = election.campaign("one").await.unwrap();
    bench.hand.advance(LONG / 4);
    leader.proclaim("two").await.unwrap();
    assert!(leader.remaining() > LONG * 9 / 10);

    // Not answered at once: the leader is suspect, and it is repeated.
    bench.store.faults().inject(Op::Renew, Fault::ReplyLost);
    let proclaiming = tokio::spawn({
        let election = bench.clinch.election("f").lease(LONG);
        let leader = election.campaign("one").await.unwrap();
        async move { leader.proclaim("two").await.map(|()| leader) }
    });
    until(|| async {
        bench.hand.advance(ms(50));
        proclaiming.is_finished().then_some(())
    })
    .await;
    let other = proclaiming.await.unwrap().unwrap();
    assert!(other.is_valid());

    // A store that is gone: an error after the client's patience.
    bench.store.faults().cut(true);
    let gone = tokio::spawn(async move {
        let error = leader.proclaim("three").await.unwrap_err();
        (leader, error)
    });
    until(|| async {
        bench.hand.advance(ms(50));
        gone.is_finished().then_some(())
    })
    .await;
    let (leader, error) = gone.await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert_eq!((error.store(), error.name()), (Some("memory"), Some("e")));
    assert_eq!(leader.status(), Status::Suspect);
    bench.store.faults().cut(false);

    let long = "x".repeat(4097);
    let refused = leader.proclaim(long).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    bench.clinch.close().await.unwrap();
    let refused = leader.proclaim("four").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_longest_hold_ends_although_it_is_renewed() {
    let bench = manual();
    let lease = Duration::from_secs(9);
    let lock = bench
        .clinch
        .lock("a")
        .lease(lease)
        .max_hold(Duration::from_secs(30));
    let guard = lock.acquire().await.unwrap();
    for _ in 0..6 {
        one_renewal(&bench, &guard, lease).await;
    }
    // 18 s have passed; three more seconds bring the deadline to its cap of 30.
    bench.hand.advance(lease / 3);
    until(|| async { (guard.remaining() > Duration::from_millis(8_500)).then_some(()) }).await;
    bench.hand.advance(lease / 3);
    until(|| async { (guard.remaining() == Duration::from_secs(6)).then_some(()) }).await;
    bench.hand.advance(Duration::from_secs(6));
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    drop(guard);
    nothing_left(&bench.clinch).await;
}

#[tokio::test]
async fn a_grant_that_arrives_after_its_lease_is_not_used() {
    let bench = manual();
    let lock = bench.clinch.lock("a").lease(Duration::from_secs(1));
    bench
        .store
        .faults()
        .inject(Op::Claim, Fault::DelayAfter(Duration::from_secs(5)));
    let claiming = begin(Box::pin(lock.acquire()));
    bench.hand.advance(Duration::from_secs(5));
    // The late grant is given back, and another one asked for.
    let guard = claiming.await.unwrap();
    assert!(guard.is_valid());
    let seen = bench.clinch.inspect("a").await.unwrap().unwrap();
    assert_eq!(seen.holders.len(), 1);
    assert_eq!(seen.holders[0].token, Some(guard.token()));

    // A store that is always too late is an error in the end, not a wait without one.
    guard.release().await.unwrap();
    bench
        .store
        .faults()
        .always(Some(Fault::DelayAfter(Duration::from_secs(5))));
    let claiming = tokio::task::spawn(async move { lock.acquire().await });
    until(|| async {
        bench.hand.advance(ms(500));
        claiming.is_finished().then_some(())
    })
    .await;
    let error = claiming.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    bench.store.faults().always(None);
}

#[tokio::test]
async fn a_waiter_that_slept_past_its_lease_does_not_enter() {
    let bench = manual();
    let other = bench.other();
    let guard = other
        .clinch
        .lock("a")
        .lease(Duration::from_secs(60))
        .acquire()
        .await
        .unwrap();
    let lock = bench.clinch.lock("a").lease(Duration::from_secs(1));
    let waiting = tokio::task::spawn(async move { lock.acquire().await.unwrap() });
    until(|| async {
        let view = other.clinch.inspect("a").await.unwrap()?;
        (view.waiters.len() == 1).then_some(())
    })
    .await;
    // The waiter cannot repeat its claim, its ticket runs out, then the lock becomes free.
    bench.store.faults().always(Some(Fault::ErrorBefore));
    bench.hand.advance(Duration::from_secs(2));
    guard.release().await.unwrap();
    bench.store.faults().always(None);
    bench.hand.advance(Duration::from_secs(2));
    let late = until(|| async {
        bench.hand.advance(ms(50));
        waiting.is_finished().then_some(())
    });
    late.await;
    assert!(waiting.await.unwrap().is_valid());
}

#[tokio::test]
async fn closing_ends_waiters_and_holds() {
    let (clinch, _) = real();
    let guard = clinch.lock("a").acquire().await.unwrap();
    let lock = clinch.lock("a");
    let waiter = begin(Box::pin(lock.acquire()));
    clinch.close().await.unwrap();
    assert_eq!(waiter.await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(guard.lost().await, LostReason::Closed);
    assert_eq!(
        clinch.lock("b").acquire().await.unwrap_err().kind(),
        ErrorKind::Closed
    );
}

#[test]
fn a_guard_outlives_its_runtime_and_a_panic() {
    let (clinch, _) = real();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let guard = runtime.block_on(clinch.lock("a").acquire()).unwrap();
    drop(runtime);
    drop(guard);
    let panicking = clinch.clone();
    let panicked = std::thread::spawn(move || {
        let _guard = clinch_core::blocking::block_on(panicking.lock("b").acquire()).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    clinch_core::blocking::block_on(nothing_left(&clinch));
}

#[tokio::test]
async fn run_stops_the_work_when_the_lock_is_evicted() {
    let (clinch, _) = real();
    let guard = clinch.lock("a").lease(ms(1500)).acquire().await.unwrap();
    let broken = clinch.evict("a", Some(guard.token())).await.unwrap();
    assert_eq!(broken.seqs, [guard.token().seq()]);
    let outcome = guard.run_until_lost(std::future::pending::<()>()).await;
    assert_eq!(outcome, Err(LostReason::Evicted));
    let work = std::future::pending::<clinch_core::Result<()>>();
    let error = guard.run(work).await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Evicted));
    assert_eq!((error.kind(), error.name()), (ErrorKind::Lost, Some("a")));
    let next = clinch.lock("a").acquire().await.unwrap();
    assert_eq!(next.predecessor().unwrap().ending, Ending::Evicted);
}
