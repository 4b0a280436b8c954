//! What a store cannot do is refused before any I/O.

use clinch_core::{Error, Result};

use super::prelude::*;

cases! { "refusal";
    read_write_locks [Need::Lacks(Capability::Shared)] "a read or write lock";
    semaphores [Need::Lacks(Capability::Semaphores)] "a semaphore";
    fair_queues [Need::Lacks(Capability::Queue)] "a fair claim or campaign";
    lock_delay [Need::Lacks(Capability::LockDelay)] "a lock-delay";
    fencing_tokens [Need::Lacks(Capability::Tokens)] "the check of a sequencer, and who leads";
    published_values [Need::Lacks(Capability::Values)] "a campaign with a value, and who leads";
    listing [Need::Lacks(Capability::List)] "list; one name can be looked at, and its leader";
    events [Need::Lacks(Capability::Events)] "events and observers";
    eviction [Need::Lacks(Capability::Evict)] "an eviction";
    predecessor_notice [Need::Lacks(Capability::Predecessor)] "nobody asks for it: a grant without it is fine";
}

/// Asserts a clean refusal: it names the store and the need, and nothing was sent.
fn refused<T>(client: &Client, before: u64, need: Capability, outcome: Result<T>) {
    let error: Error = match outcome {
        Ok(_) => panic!("{need} was not refused"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(!error.may_have_taken_effect());
    assert_eq!(error.store(), Some(client.info().scheme));
    let text = error.to_string();
    assert!(text.contains(&need.to_string()), "{text:?} names no need");
    assert!(error.advice().is_some(), "{text:?} says not what to do");
    assert_eq!(client.operations(), before, "something was sent");
}

async fn read_write_locks(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let (before, need) = (a.operations(), Capability::Shared);
    let rw = a.rwlock("x");
    for lock in [rw.read(), rw.write()] {
        let lock = lock.lease(ctx.long());
        refused(&a, before, need, lock.try_acquire().await);
        refused(&a, before, need, lock.acquire().await);
        refused(&a, before, need, lock.acquire_within(PATIENCE).await);
    }
    Ok(())
}

async fn semaphores(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let (before, need) = (a.operations(), Capability::Semaphores);
    let semaphore = a.semaphore("x", 3);
    refused(&a, before, need, semaphore.try_acquire().await);
    refused(&a, before, need, semaphore.acquire().await);
    refused(&a, before, need, semaphore.permits(2).try_acquire().await);
    Ok(())
}

async fn fair_queues(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let (before, need) = (a.operations(), Capability::Queue);
    let lock = a.lock("x").lease(ctx.long()).fair();
    refused(&a, before, need, lock.acquire().await);
    refused(&a, before, need, lock.try_acquire().await);
    let all = a.all(["a", "b"]).lease(ctx.long()).fair();
    refused(&a, before, need, all.try_acquire().await);
    if ctx.has(Capability::Values) {
        let election = a.election("e").lease(ctx.long()).fair();
        refused(&a, before, need, election.campaign("me").await);
        refused(&a, before, need, election.try_campaign("me").await);
    }
    Ok(())
}

async fn lock_delay(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let (before, need) = (a.operations(), Capability::LockDelay);
    let lock = a.lock("x").lease(ctx.long());
    let delayed = lock.clone().lock_delay(Duration::from_secs(1));
    refused(&a, before, need, delayed.try_acquire().await);
    let plain = lock.lock_delay(Duration::ZERO).try_acquire().await?;
    assert!(plain.is_some(), "no delay needs nothing");
    Ok(())
}

async fn fencing_tokens(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let sequencer = guard.sequencer();
    let before = a.operations();
    refused(&a, before, Capability::Tokens, a.check(&sequencer).await);
    if ctx.has(Capability::Values) {
        let leader = a.election("e").leader().await;
        refused(&a, before, Capability::Tokens, leader);
    }
    Ok(())
}

async fn published_values(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let (before, need) = (a.operations(), Capability::Values);
    let election = a.election("e").lease(ctx.long());
    refused(&a, before, need, election.campaign("me").await);
    refused(&a, before, need, election.try_campaign("me").await);
    refused(&a, before, need, election.leader().await);
    Ok(())
}

async fn listing(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let (before, need) = (a.operations(), Capability::List);
    refused(&a, before, need, a.list("").await);
    if ctx.has(Capability::Values) && ctx.has(Capability::Tokens) {
        assert!(a.election("e").leader().await?.is_none(), "no list needed");
    }
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let view = a.inspect("x").await?.expect("it is held");
    assert_eq!((view.limit, view.holders.len()), (1, 1));
    guard.release().await?;
    Ok(())
}

async fn events(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let (before, need) = (a.operations(), Capability::Events);
    refused(&a, before, need, a.events("").await);
    refused(&a, before, need, a.election("e").observe().await);
    Ok(())
}

async fn eviction(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let before = a.operations();
    refused(&a, before, Capability::Evict, a.evict("x", None).await);
    assert!(guard.is_valid());
    Ok(())
}

async fn predecessor_notice(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    guard.release().await?;
    assert!(a.lock("x").lease(ctx.long()).try_acquire().await?.is_some());
    Ok(())
}
