//! A future that is dropped at any of its await points leaves nothing behind.

use super::prelude::*;

cases! { "cancel";
    acquire_of_a_free_lock [] "dropped after k polls, for every k, under each fault of the claim";
    try_acquire_of_a_free_lock [] "dropped after k polls, for every k, under each fault of the claim";
    acquire_within_of_a_free_lock [] "dropped after k polls, for every k, under each fault of the claim";
    acquire_of_a_held_lock [] "dropped after k polls while it waits for a holder in another client";
    acquire_within_of_a_held_lock [] "dropped after k polls while it waits, with an end to the wait";
    acquire_behind_a_local_holder [] "dropped after k polls while it waits for its own client";
    release [] "dropped after k polls: it is released all the same";
    multi_lock [] "dropped part way: what it had is given back";
    many_at_once [] "100 waits that are all cancelled leave the queue empty";
    cancelled_while_cut_off [] "dropped while the store is out of reach, withdrawn once it is back";
}

/// More polls than any of these futures has await points.
const POLLS: usize = 12;
/// A future that has not been polled for so long has come to where it really waits.
const IDLE: Duration = Duration::from_millis(150);
const SLOW: Duration = Duration::from_millis(30);

/// What can happen to the claim while its future is dropped.
const FAULTS: [Option<Fault>; 5] = [
    None,
    Some(Fault::DelayBefore(SLOW)),
    Some(Fault::DelayAfter(SLOW)),
    Some(Fault::ReplyLost),
    Some(Fault::ErrorBefore),
];

#[derive(Clone, Copy)]
enum Call {
    Acquire,
    Try,
    Within,
}

async fn acquire_of_a_free_lock(ctx: &Ctx) -> Outcome {
    free_lock(ctx, Call::Acquire).await
}

async fn try_acquire_of_a_free_lock(ctx: &Ctx) -> Outcome {
    free_lock(ctx, Call::Try).await
}

async fn acquire_within_of_a_free_lock(ctx: &Ctx) -> Outcome {
    free_lock(ctx, Call::Within).await
}

async fn free_lock(ctx: &Ctx, call: Call) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    for fault in FAULTS {
        for polls in 0..POLLS {
            a.faults.clear();
            if let Some(fault) = fault {
                a.faults.inject(Op::Claim, fault);
            }
            let done = claim_dropped(ctx, &a, call, polls).await;
            contender_enters(ctx, &b).await;
            if done {
                break;
            }
        }
    }
    Ok(())
}

/// Claims `x` and drops the future, or the guard that it came to; `true` when it was a guard.
async fn claim_dropped(ctx: &Ctx, client: &Client, call: Call, polls: usize) -> bool {
    let lock = client.lock("x").lease(ctx.long());
    let claim = async {
        match call {
            Call::Acquire => lock.acquire().await.map(Some),
            Call::Try => lock.try_acquire().await,
            Call::Within => lock.acquire_within(PATIENCE).await,
        }
    };
    matches!(drop_after(claim, polls, IDLE).await, Some(Ok(Some(_))))
}

/// The lease of what was dropped is long: whoever enters now does so because it was cleaned up.
async fn contender_enters(ctx: &Ctx, client: &Client) {
    let lock = client.lock("x").lease(ctx.long());
    let guard = lock.acquire_within(PATIENCE).await.unwrap();
    let guard = guard.expect("a dropped claim keeps the lock");
    guard.release().await.unwrap();
    ctx.until(client, "x", 0, 0).await;
}

async fn acquire_of_a_held_lock(ctx: &Ctx) -> Outcome {
    held_lock(ctx, Call::Acquire).await
}

async fn acquire_within_of_a_held_lock(ctx: &Ctx) -> Outcome {
    held_lock(ctx, Call::Within).await
}

async fn held_lock(ctx: &Ctx, call: Call) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    for fault in FAULTS {
        for polls in 0..4 {
            a.faults.clear();
            if let Some(fault) = fault {
                a.faults.inject(Op::Claim, fault);
            }
            let guard = b.lock("x").lease(ctx.long()).acquire().await?;
            assert!(!claim_dropped(ctx, &a, call, polls).await, "two hold it");
            ctx.until(&b, "x", 1, 0).await;
            guard.release().await?;
            contender_enters(ctx, &b).await;
        }
    }
    Ok(())
}

async fn acquire_behind_a_local_holder(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    for polls in 0..4 {
        let guard = a.lock("x").lease(ctx.long()).acquire().await?;
        assert!(!claim_dropped(ctx, &a, Call::Acquire, polls).await);
        guard.release().await?;
        contender_enters(ctx, &b).await;
    }
    Ok(())
}

async fn release(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    for fault in FAULTS {
        for polls in 0..POLLS {
            let guard = a.lock("x").lease(ctx.long()).acquire().await?;
            a.faults.clear();
            if let Some(fault) = fault {
                a.faults.inject(Op::Release, fault);
            }
            let done = drop_after(guard.release(), polls, PATIENCE).await;
            contender_enters(ctx, &b).await;
            if let Some(reply) = done {
                assert_eq!(reply?, ReleaseReply::Released);
                break;
            }
        }
    }
    Ok(())
}

async fn multi_lock(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    for polls in 0..POLLS {
        let y = b.lock("y").lease(ctx.long()).acquire().await?;
        let all = a.all(["x", "y", "z"]).lease(ctx.long());
        assert!(drop_after(all.acquire(), polls, IDLE).await.is_none());
        y.release().await?;
        let all = b.all(["z", "y", "x"]).lease(ctx.long());
        let all = all.acquire_within(PATIENCE).await?;
        all.expect("a dropped multi-lock keeps nothing")
            .release()
            .await?;
    }
    Ok(())
}

async fn many_at_once(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    let mut waiters = Vec::new();
    for n in 0..100 {
        let lock = a.lock("x").lease(ctx.long());
        let lock = match n % 2 == 0 && ctx.has(Capability::Queue) {
            true => lock.fair(),
            false => lock,
        };
        waiters.push(tokio::spawn(async move { lock.acquire().await }));
    }
    eventually("a waiter", async || {
        ctx.parties(&b, guard.name()).await.1 > 0
    })
    .await;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    ctx.until(&b, "x", 1, 0).await;
    guard.release().await?;
    contender_enters(ctx, &b).await;
    Ok(())
}

async fn cancelled_while_cut_off(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    let lock = a.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&b, "x", 1, 1).await;
    a.faults.cut(true);
    waiter.abort();
    assert!(waiter.await.is_err_and(|e| e.is_cancelled()));
    a.faults.cut(false);
    ctx.until(&b, "x", 1, 0).await;
    guard.release().await?;
    contender_enters(ctx, &b).await;
    Ok(())
}
