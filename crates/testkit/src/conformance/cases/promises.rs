//! One test for each promise of the design, named after it.

use std::sync::Mutex;

use clinch_core::fence::Gate;
use clinch_core::store::{ClaimReply, Hold, RenewReply, Renewal};

use super::prelude::*;

const TOKENS: Need = Need::Has(Capability::Tokens);

cases! { "promises";
    promise_01_fenced_exclusion [TOKENS] "a resource that refuses smaller tokens is never written by two holders in turn-about";
    promise_02_claimed_validity_exclusion [] "two guards of different owners are never valid at once";
    promise_03_the_holder_learns_of_a_loss [] "no later than its deadline, with no contact";
    promise_04_nothing_is_left_behind [] "dropped futures, timed-out waits, dropped guards, lost replies";
    promise_05_atomic_and_idempotent [] "every step repeated by its request id gives the same answer";
    promise_06_old_tokens_change_nothing [] "neither a release nor a renewal, and no renewal creates";
    promise_07_crash_recovery_is_bounded [] "a dead holder's lock is free after lease and lock-delay at most";
    promise_08_the_new_holder_is_told [Need::Has(Capability::Predecessor)] "released, then expired";
    promise_09_no_busy_polling_and_no_herd [Need::Has(Capability::Queue)] "24 waiters enter one by one with a handful of requests each";
    promise_10_honest_capabilities [] "what the store says of itself is complete and is what it does";
}

async fn promise_01_fenced_exclusion(ctx: &Ctx) -> Outcome {
    let gate = Gate::new();
    let log = Mutex::new(Vec::new());
    let write = |token| gate.admit(token, || log.lock().unwrap().push(token));
    for _ in 0..3 {
        let (a, b) = (ctx.client().await, ctx.client().await);
        let stalled = a.lock("x").lease(ctx.lease()).acquire().await?;
        write(stalled.token())?;
        a.faults.cut(true);
        let lock = b.lock("x").lease(ctx.long());
        let next = soon("the next holder", lock.acquire()).await?;
        write(next.token())?;
        // It was paused between its check and its write: only the resource can stop it.
        let refused = write(stalled.token()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Lost);
        write(next.token())?;
        next.release().await?;
    }
    let log = log.lock().unwrap();
    assert!(log.is_sorted() && log.len() == 9, "two wrote in turn-about");
    Ok(())
}

async fn promise_02_claimed_validity_exclusion(ctx: &Ctx) -> Outcome {
    for round in 0..4 {
        let (a, b) = (ctx.client().await, ctx.client().await);
        let one = a.lock("x").lease(ctx.lease()).acquire().await?;
        let lock = b.lock("x").lease(ctx.long());
        let mut entering = tokio::spawn(async move { lock.acquire().await });
        ctx.until(&b, "x", 1, 1).await;
        match round % 2 {
            0 => a.faults.cut(true),
            _ => a.faults.always(Some(Fault::ReplyLost)),
        }
        let two = loop {
            // Looked at all the time, from another thread than the one that grants.
            if entering.is_finished() {
                break (&mut entering).await??;
            }
            assert!(one.remaining() <= ctx.lease());
            tokio::task::yield_now().await;
            if round % 2 == 1 && !one.is_valid() {
                // Lost replies renewed it at the store: give it back, as its client will.
                a.faults.clear();
            }
        };
        assert!(two.is_valid() && !one.is_valid(), "both are valid");
        two.release().await?;
        a.faults.clear();
    }
    Ok(())
}

async fn promise_03_the_holder_learns_of_a_loss(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    a.faults.always(Some(Fault::HangBefore));
    let latest = a.clock().now() + ctx.lease();
    let reason = soon("the signal", guard.lost()).await;
    assert_eq!(reason, LostReason::Unrenewed);
    assert!(!guard.is_valid());
    // The word itself needs a free processor; validity does not, and the other cases measure it.
    let late = a.clock().now().since(latest);
    assert!(late < Duration::from_secs(5), "late by {late:?}");
    a.faults.clear();
    Ok(())
}

async fn promise_04_nothing_is_left_behind(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let long = ctx.long();
    a.faults.inject(Op::Claim, Fault::ReplyLost);
    a.faults.inject(Op::Release, Fault::ReplyLost);
    drop(a.lock("guard").lease(long).acquire().await?);
    let held = b.lock("wait").lease(long).acquire().await?;
    let short = Duration::from_millis(50);
    assert!(
        a.lock("wait")
            .lease(long)
            .acquire_within(short)
            .await?
            .is_none()
    );
    let lock = a.lock("wait").lease(long);
    assert!(drop_after(lock.acquire(), 2, short).await.is_none());
    held.release().await?;
    a.faults.inject(Op::Claim, Fault::HangAfter);
    let lock = a.lock("hang").lease(long);
    assert!(drop_after(lock.acquire(), 1, short).await.is_none());
    eventually("an empty store", async || ctx.scan(&b).await.is_empty()).await;
    Ok(())
}

async fn promise_05_atomic_and_idempotent(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    for op in [Op::Claim, Op::Release, Op::Withdraw] {
        for _ in 0..3 {
            a.faults.inject(op, Fault::ReplyLost);
        }
    }
    let lock = a.lock("x").lease(ctx.long());
    let guard = soon("the repaired claim", lock.acquire()).await?;
    let view = a.store().inspect(guard.name()).await?.expect("held");
    ctx.expect_holder(&view, guard.token().seq());
    let end = soon("the repaired release", guard.release()).await?;
    assert_eq!(end, ReleaseReply::Released);
    a.faults.clear();
    let claim = a.claim("y", ctx.long());
    let replies = [
        a.store().claim(&claim).await?,
        a.store().claim(&claim).await?,
    ];
    assert!(matches!(&replies[0], ClaimReply::Granted(_)));
    assert_eq!(replies[0], replies[1]);
    for _ in 0..2 {
        a.store().withdraw(&claim).await?;
    }
    Ok(())
}

async fn promise_06_old_tokens_change_nothing(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let old = Hold::new(
        guard.name().clone(),
        a.claim("x", ctx.long()).request,
        guard.token().seq(),
    );
    guard.release().await?;
    let renewal = Renewal::new(old.clone(), ctx.long());
    let renewed = a.store().renew(std::slice::from_ref(&renewal)).await?;
    assert!(matches!(renewed[..], [RenewReply::Lost(_)]));
    assert!(ctx.scan(&a).await.is_empty(), "a renewal created a lock");
    let next = b.lock("x").lease(ctx.long()).acquire().await?;
    assert!(matches!(
        a.store().release(&old).await?,
        ReleaseReply::WasLost(_)
    ));
    assert!(matches!(
        a.store().renew(&[renewal]).await?[..],
        [RenewReply::Lost(_)]
    ));
    assert!(next.is_valid());
    assert_eq!(next.release().await?, ReleaseReply::Released);
    Ok(())
}

async fn promise_07_crash_recovery_is_bounded(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    let start = b.clock().now();
    a.faults.cut(true);
    let lock = b.lock("x").lease(ctx.long());
    let next = soon("recovery", lock.acquire()).await?;
    let took = b.clock().now().since(start);
    // The engine's own time and a busy machine on top.
    let bound = ctx.lease() + Duration::from_secs(10);
    assert!(took < bound, "recovery took {took:?}");
    assert!(!guard.is_valid() && next.is_valid());
    Ok(())
}

async fn promise_08_the_new_holder_is_told(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    a.lock("x")
        .lease(ctx.long())
        .acquire()
        .await?
        .release()
        .await?;
    let lock = a.lock("x").lease(ctx.lease());
    let second = lock.acquire().await?;
    let ending = second.predecessor().map(|p| p.ending);
    assert_eq!(ending, Some(Ending::Released));
    a.faults.cut(true);
    let lock = b.lock("x").lease(ctx.long());
    let third = soon("the next", lock.acquire()).await?;
    let before = third.predecessor().expect("it is told");
    assert_eq!(
        (before.ending, before.seq),
        (Ending::Expired, second.token().seq())
    );
    Ok(())
}

async fn promise_09_no_busy_polling_and_no_herd(ctx: &Ctx) -> Outcome {
    const WAITERS: usize = 24;
    let holder = ctx.client().await;
    let guard = holder.lock("x").lease(ctx.long()).acquire().await?;
    let mut clients = Vec::new();
    let mut tasks = Vec::new();
    for n in 0..WAITERS {
        let client = ctx.client().await;
        let lock = client.lock("x").lease(ctx.long());
        clients.push(client);
        tasks.push(tokio::spawn(async move {
            lock.acquire().await?.release().await
        }));
        ctx.until(&holder, "x", 1, n + 1).await;
    }
    let sent = || clients.iter().map(|c| c.operations()).sum::<u64>();
    let (start, before) = (holder.clock().now(), sent());
    guard.release().await?;
    for task in tasks {
        soon("a waiter", task).await??;
    }
    // One that has begun counts, too: a poll may fall into it.
    let seconds = holder.clock().now().since(start).as_secs() + 1;
    // Each enters with a claim and a release, and a store that repeats lost races needs a few more; the slow
    // poll is a request in a second. A herd needs half of all waiters for each entry, besides these.
    let fair_share = 8 + seconds;
    let (spent, herd) = (sent() - before, (WAITERS * WAITERS / 2) as u64);
    let bound = (WAITERS as u64 * fair_share).max(1);
    assert!(
        spent <= bound,
        "{spent} requests, {bound} are fair, a herd is {herd}"
    );
    Ok(())
}

async fn promise_10_honest_capabilities(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let info = a.info();
    let guarantees = info.guarantees;
    for text in [
        info.scheme,
        info.summary,
        guarantees.scope,
        guarantees.exclusion,
        guarantees.token_order,
        guarantees.liveness,
        guarantees.clock,
    ] {
        assert!(!text.trim().is_empty(), "a guarantee says nothing");
    }
    // A scheme may go on with the parameter that makes the difference.
    let scheme = info.scheme.split('?').next().expect("a first part");
    assert!(ctx.place().url().starts_with(scheme));
    let limits = info.limits;
    assert!(limits.min_lease <= ctx.lease() && ctx.long() <= limits.max_lease);
    assert!(!limits.lease_step.is_zero() && limits.max_name == clinch_core::MAX_NAME);
    for capability in Capability::EVERY {
        assert_eq!(info.capabilities.has(capability), ctx.has(capability));
    }
    Ok(())
}
