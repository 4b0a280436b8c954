//! A client that is closed at any moment of an acquire: no guard of it is valid afterwards, and
//! nothing of it stays at the store.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use clinch_core::{Guard, Lock, Result};

use super::prelude::*;

const QUEUE: Need = Need::Has(Capability::Queue);

cases! { "closing";
    a_free_lock [] "closed at every poll of acquire, acquire_within and try_acquire of a free lock";
    a_free_lock_whose_future_is_dropped [] "the same, and the future is dropped instead of polled again";
    a_slow_claim [] "closed while the claim, or its reply, is under way";
    a_held_lock [] "closed at every poll of a wait for another client";
    a_held_lock_in_turn [QUEUE] "the same for a fair claim, and for one with a longest hold";
    a_local_holder [] "closed while a task waits for another task of the same client";
    many_tasks [] "closed while 16 tasks acquire different names";
}

/// More polls than any of these futures has await points.
const POLLS: usize = 8;
/// A future that has not been polled for this long has come to where it really waits.
const IDLE: Duration = Duration::from_millis(150);

type Acquire<'a> = Pin<Box<dyn Future<Output = Result<Option<Guard>>> + Send + 'a>>;

/// Acquires in one of three ways.
fn acquire(lock: &Lock, how: usize) -> Acquire<'_> {
    Box::pin(async move {
        match how {
            0 => lock.acquire().await.map(Some),
            1 => lock.acquire_within(PATIENCE).await,
            _ => lock.try_acquire().await,
        }
    })
}

/// Polls a future `polls` times, each time it wants to be; its output if it has ended by then.
async fn advance<T>(
    future: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>,
    polls: usize,
) -> Option<T> {
    let mut left = polls;
    let counted = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    tokio::time::timeout(IDLE, counted).await.ok().flatten()
}

/// What becomes of the future after the client was closed.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Polled,
    Dropped,
}

/// Closes the client after so many polls; `true` if the acquire had ended by then.
async fn close_after(client: &Client, lock: &Lock, how: usize, polls: usize, then: Then) -> bool {
    let mut future = acquire(lock, how);
    let early = advance(&mut future, polls).await;
    soon("closing", client.close()).await.unwrap();
    let ended = early.is_some();
    let outcome = match (early, then) {
        (Some(outcome), _) => outcome,
        (None, Then::Dropped) => return false,
        (None, Then::Polled) => soon("the end of the acquire", future).await,
    };
    match outcome {
        Ok(Some(guard)) => {
            assert!(!guard.is_valid(), "valid after close, {polls} polls");
            assert_eq!(guard.status(), Status::Lost(LostReason::Closed));
        }
        Ok(None) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
    }
    ended
}

/// The leases are long: who enters now does so because what the closed client had is gone.
async fn others_enter(ctx: &Ctx, by: &Client) {
    let lock = by.lock("x").lease(ctx.long());
    let next = lock.acquire_within(PATIENCE).await.unwrap();
    let next = next.expect("a closed client keeps the lock");
    next.release().await.unwrap();
    ctx.until(by, "x", 0, 0).await;
}

async fn a_free_lock(ctx: &Ctx) -> Outcome {
    free_lock(ctx, Then::Polled).await
}

async fn a_free_lock_whose_future_is_dropped(ctx: &Ctx) -> Outcome {
    free_lock(ctx, Then::Dropped).await
}

async fn free_lock(ctx: &Ctx, then: Then) -> Outcome {
    let b = ctx.client().await;
    for how in 0..3 {
        for polls in 0..POLLS {
            let a = ctx.client().await;
            let lock = a.lock("x").lease(ctx.long());
            let ended = close_after(&a, &lock, how, polls, then).await;
            others_enter(ctx, &b).await;
            if ended {
                break;
            }
        }
    }
    Ok(())
}

async fn a_slow_claim(ctx: &Ctx) -> Outcome {
    let b = ctx.client().await;
    let slow = Duration::from_millis(30);
    let faults = [
        Fault::DelayBefore(slow),
        Fault::DelayAfter(slow),
        Fault::HangAfter,
    ];
    for fault in faults {
        for how in 0..3 {
            let a = ctx.client().await;
            a.faults.inject(Op::Claim, fault);
            let lock = a.lock("x").lease(ctx.long());
            // A claim that is never answered ends with the client's patience, not before.
            let then = match fault {
                Fault::HangAfter => Then::Dropped,
                _ => Then::Polled,
            };
            close_after(&a, &lock, how, 1, then).await;
            others_enter(ctx, &b).await;
        }
    }
    Ok(())
}

async fn a_held_lock(ctx: &Ctx) -> Outcome {
    held_lock(ctx, |lock| lock).await
}

async fn a_held_lock_in_turn(ctx: &Ctx) -> Outcome {
    held_lock(ctx, Lock::fair).await?;
    let long = ctx.long();
    held_lock(ctx, move |lock| lock.max_hold(long)).await
}

async fn held_lock(ctx: &Ctx, set: impl Fn(Lock) -> Lock) -> Outcome {
    let b = ctx.client().await;
    for then in [Then::Polled, Then::Dropped] {
        for how in 0..2 {
            for polls in 0..4 {
                let guard = b.lock("x").lease(ctx.long()).acquire().await?;
                let a = ctx.client().await;
                let lock = set(a.lock("x").lease(ctx.long()));
                let ended = close_after(&a, &lock, how, polls, then).await;
                assert!(!ended, "two hold it");
                ctx.until(&b, "x", 1, 0).await;
                guard.release().await?;
                others_enter(ctx, &b).await;
            }
        }
    }
    Ok(())
}

async fn a_local_holder(ctx: &Ctx) -> Outcome {
    let b = ctx.client().await;
    for release_first in [false, true] {
        let a = ctx.client().await;
        let lock = a.lock("x").lease(ctx.long());
        let holder = lock.acquire().await?;
        let mut waiter = acquire(&lock, 0);
        assert!(advance(&mut waiter, 1).await.is_none());
        // Handed over to the waiter, which has not been polled since; or never handed over.
        if release_first {
            holder.release().await?;
            soon("closing", a.close()).await?;
        } else {
            soon("closing", a.close()).await?;
            holder.release().await?;
        }
        match soon("the waiter", waiter).await {
            Ok(guard) => assert!(!guard.is_some_and(|guard| guard.is_valid())),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
        }
        others_enter(ctx, &b).await;
    }
    Ok(())
}

async fn many_tasks(ctx: &Ctx) -> Outcome {
    const ROUNDS: usize = 8;
    const TASKS: usize = 16;
    let b = ctx.client().await;
    for round in 0..ROUNDS {
        let a = ctx.client().await;
        let mut tasks = Vec::new();
        for n in 0..TASKS {
            let lock = a.lock(format!("x{n}")).lease(ctx.long());
            tasks.push(tokio::spawn(async move { lock.acquire().await }));
        }
        // Each round closes at another moment.
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        soon("closing", a.close()).await?;
        for task in tasks {
            match soon("a task", task).await? {
                Ok(guard) => assert!(!guard.is_valid(), "{} is valid", guard.name()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{error}"),
            }
        }
        for n in 0..TASKS {
            let lock = b.lock(format!("x{n}")).lease(ctx.long());
            let guard = soon("the name", lock.acquire()).await?;
            guard.release().await?;
        }
    }
    Ok(())
}
