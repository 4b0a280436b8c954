//! A lost reply is repaired by asking again with the same request id.

use clinch_core::store::{Admin, ClaimReply, Hold};

use super::prelude::*;

cases! { "requests";
    lost_reply_of_a_claim [] "acquire gets one hold, and its token is the one at the store";
    lost_reply_of_a_try [] "try_acquire too: never a no for a lock that it got";
    lost_replies_in_a_row [] "several lost replies in a row";
    lost_reply_of_a_queued_claim [] "a claim whose queueing was not heard has one place in the queue";
    lost_reply_of_a_release [] "release says released, and the next one may enter";
    lost_reply_of_a_renewal [] "the hold lives on";
    lost_reply_of_a_withdrawal [] "a cancelled wait leaves nothing";
    slow_replies [] "answers that come late change nothing";
    an_unknown_outcome_is_not_a_no [] "a try that was never answered is an error that may have taken effect";
    a_no_waits_for_what_is_under_way [] "a try is told no only when its earlier request, still under way, cannot take the lock any more";
    a_no_that_cannot_be_sure_is_an_error [] "a try whose earlier request cannot be withdrawn in time is an error that may have taken effect";
    a_try_that_is_dropped_is_withdrawn [] "the withdrawal goes on when the caller of the try has left";
    a_forgotten_release_was_a_release [] "a release that took effect is never reported as lost, also if the store has forgotten it";
    unreachable_is_an_error [] "a store out of reach is an error after the client's patience, without effect";
    repeated_claim_gives_the_same [] "below the API: the same claim twice is one grant with one number";
    repeated_release_gives_the_same [] "below the API: the same release twice says released twice";
    late_claim_after_withdrawal [] "below the API: a claim that arrives after its withdrawal is refused";
    withdrawal_of_a_hold [] "below the API: withdrawing a granted claim frees the name";
    repeated_claim_extends_the_lease [] "below the API: a repeated claim counts as a renewal";
}

async fn lost_reply_of_a_claim(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    a.faults.inject(Op::Claim, Fault::ReplyLost);
    let lock = a.lock("x").lease(ctx.long());
    let guard = soon("the repaired claim", lock.acquire()).await?;
    one_holder(ctx, &a, guard.token().seq()).await;
    Ok(())
}

/// There is exactly one hold of `x`, with this number.
async fn one_holder(ctx: &Ctx, by: &Client, seq: u64) {
    let all = ctx.scan(by).await;
    assert_eq!(all.len(), 1);
    ctx.expect_holder(&all[0], seq);
    assert!(all[0].waiters.is_empty());
}

async fn lost_reply_of_a_try(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    a.faults.inject(Op::Claim, Fault::ReplyLost);
    let guard = a.lock("x").lease(ctx.long()).try_acquire().await?;
    one_holder(ctx, &a, guard.expect("it is ours").token().seq()).await;
    Ok(())
}

async fn lost_replies_in_a_row(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    for _ in 0..5 {
        a.faults.inject(Op::Claim, Fault::ReplyLost);
    }
    let lock = a.lock("x").lease(ctx.long());
    let guard = soon("the repaired claim", lock.acquire()).await?;
    one_holder(ctx, &a, guard.token().seq()).await;
    Ok(())
}

async fn lost_reply_of_a_queued_claim(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    a.faults.inject(Op::Claim, Fault::ReplyLost);
    a.faults.inject(Op::Claim, Fault::ReplyLost);
    let lock = a.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&b, "x", 1, 1).await;
    guard.release().await?;
    let guard = soon("the waiter", waiter).await??;
    one_holder(ctx, &a, guard.token().seq()).await;
    Ok(())
}

async fn lost_reply_of_a_release(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    a.faults.inject(Op::Release, Fault::ReplyLost);
    let end = soon("the repaired release", guard.release()).await?;
    assert_eq!(end, ReleaseReply::Released);
    let next = b.lock("x").lease(ctx.long()).try_acquire().await?;
    assert!(next.is_some());
    Ok(())
}

async fn lost_reply_of_a_renewal(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let lease = ctx.lease() * 5;
    let guard = a.lock("x").lease(lease).acquire().await?;
    a.faults.inject(Op::Renew, Fault::ReplyLost);
    let before = a.attempts.load(Ordering::Relaxed);
    eventually("the next renewal", async || {
        // Read first: a renewal that begins afterwards may still fail.
        let renewals = a.attempts.load(Ordering::Relaxed) - before;
        assert!(guard.is_valid());
        renewals > 1 && guard.status() == Status::Held
    })
    .await;
    one_holder(ctx, &a, guard.token().seq()).await;
    Ok(())
}

async fn lost_reply_of_a_withdrawal(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    a.faults.inject(Op::Withdraw, Fault::ReplyLost);
    a.faults.inject(Op::Withdraw, Fault::ErrorBefore);
    let lock = a.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&b, "x", 1, 1).await;
    waiter.abort();
    ctx.until(&b, "x", 1, 0).await;
    guard.release().await?;
    Ok(())
}

async fn slow_replies(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let slow = Duration::from_millis(60);
    for fault in [Fault::DelayBefore(slow), Fault::DelayAfter(slow)] {
        for op in [Op::Claim, Op::Release] {
            a.faults.inject(op, fault);
        }
        let guard = a.lock("x").lease(ctx.long()).acquire().await?;
        one_holder(ctx, &b, guard.token().seq()).await;
        assert_eq!(guard.release().await?, ReleaseReply::Released);
        assert!(b.lock("x").lease(ctx.long()).try_acquire().await?.is_some());
        ctx.until(&b, "x", 0, 0).await;
    }
    Ok(())
}

async fn an_unknown_outcome_is_not_a_no(ctx: &Ctx) -> Outcome {
    let b = ctx.client().await;
    let short = Duration::from_millis(100);
    let a = ctx.client_with(|builder| builder.patience(short)).await;
    a.faults.always(Some(Fault::ReplyLost));
    let lock = a.lock("x").lease(ctx.long());
    let tried = soon("the error", lock.try_acquire()).await;
    let unknown = tried.expect_err("nobody knows");
    assert!(unknown.may_have_taken_effect(), "{unknown}");
    assert_eq!(unknown.kind(), ErrorKind::Unreachable);
    a.faults.always(None);
    // What it may have left is withdrawn, so that the next one enters.
    let next = b
        .lock("x")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(next.is_some());
    Ok(())
}

async fn unreachable_is_an_error(ctx: &Ctx) -> Outcome {
    let short = Duration::from_millis(100);
    let a = ctx.client_with(|builder| builder.patience(short)).await;
    a.faults.cut(true);
    let lock = a.lock("x").lease(ctx.long());
    for outcome in [
        soon("the error", lock.try_acquire()).await,
        soon("the error", lock.acquire_within(PATIENCE)).await,
        soon("the error", lock.acquire()).await.map(Some),
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(!error.may_have_taken_effect(), "{error}");
        assert_eq!(error.store(), Some(a.info().scheme));
        assert_eq!(error.name(), Some("x"));
    }
    Ok(())
}

/// Claims below the API; the number of the grant.
async fn granted(store: &Arc<dyn Admin>, claim: &clinch_core::store::Claim) -> u64 {
    match store.claim(claim).await.unwrap() {
        ClaimReply::Granted(grant) => grant.seq,
        other => panic!("not granted: {other:?}"),
    }
}

/// A try whose first request is held back, while another client holds the lock.
async fn a_no_waits_for_what_is_under_way(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    a.faulty().hold_back_claims(1);
    let no = a.lock("x").lease(ctx.long()).try_acquire().await?;
    assert!(no.is_none());
    guard.release().await?;
    late_claim_is_refused(ctx, &a, &b).await
}

/// What was held back reaches the store, which has no lock for it.
async fn late_claim_is_refused(ctx: &Ctx, a: &Client, b: &Client) -> Outcome {
    let replies = a.faulty().deliver_held_back().await?;
    assert!(matches!(replies[..], [ClaimReply::Gone(_)]), "{replies:?}");
    ctx.until(b, "x", 0, 0).await;
    Ok(())
}

async fn a_no_that_cannot_be_sure_is_an_error(ctx: &Ctx) -> Outcome {
    let b = ctx.client().await;
    let short = Duration::from_millis(80);
    let a = ctx.client_with(|builder| builder.patience(short)).await;
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    a.faulty().hold_back_claims(1);
    for _ in 0..1000 {
        a.faults.inject(Op::Withdraw, Fault::ErrorBefore);
    }
    let lock = a.lock("x").lease(ctx.long());
    let error = soon("the error", lock.try_acquire()).await.unwrap_err();
    assert!(error.may_have_taken_effect(), "{error}");
    // The withdrawal goes on in the background.
    a.faults.clear();
    eventually("the withdrawal", async || a.faulty().withdrawn() > 0).await;
    guard.release().await?;
    late_claim_is_refused(ctx, &a, &b).await
}

async fn a_try_that_is_dropped_is_withdrawn(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    a.faulty().hold_back_claims(1);
    for _ in 0..1000 {
        a.faults.inject(Op::Withdraw, Fault::ErrorBefore);
    }
    let lock = a.lock("x").lease(ctx.long());
    let trying = tokio::spawn(async move { lock.try_acquire().await });
    // The second claim, and a first try of the withdrawal.
    eventually("the withdrawal", async || {
        a.attempts.load(Ordering::Relaxed) > 1
    })
    .await;
    trying.abort();
    assert!(trying.await.is_err_and(|e| e.is_cancelled()));
    a.faults.clear();
    eventually("the withdrawal", async || a.faulty().withdrawn() > 0).await;
    guard.release().await?;
    late_claim_is_refused(ctx, &a, &b).await
}

/// The reply to the release is lost, and the repeats do not arrive until others have used the lock
/// more often than a store counts.
async fn a_forgotten_release_was_a_release(ctx: &Ctx) -> Outcome {
    const USES: usize = 40;
    let b = ctx.client().await;
    let a = ctx.client_with(|builder| builder.patience(PATIENCE)).await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    a.faults.inject(Op::Release, Fault::ReplyLost);
    for _ in 0..1000 {
        a.faults.inject(Op::Release, Fault::ErrorBefore);
    }
    let release = tokio::spawn(guard.release());
    for _ in 0..USES {
        let next = b.lock("x").lease(ctx.long());
        let next = soon("the lock", next.acquire()).await?;
        next.release().await?;
    }
    a.faults.clear();
    let reply = soon("the release", release).await??;
    assert_eq!(reply, ReleaseReply::Released);
    Ok(())
}

async fn repeated_claim_gives_the_same(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let (mine, theirs) = (a.claim("x", ctx.long()), b.claim("x", ctx.long()));
    let seq = granted(a.store(), &mine).await;
    for _ in 0..3 {
        assert_eq!(granted(a.store(), &mine).await, seq);
        let reply = b.store().claim(&theirs).await?;
        assert!(matches!(reply, ClaimReply::Queued(q) if q.ahead == 0));
    }
    ctx.until(&a, "x", 1, 1).await;
    b.store().withdraw(&theirs).await?;
    a.store().withdraw(&mine).await?;
    Ok(())
}

async fn repeated_release_gives_the_same(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let (mine, theirs) = (a.claim("x", ctx.long()), b.claim("x", ctx.long()));
    let hold = Hold::new(
        mine.name.clone(),
        mine.request,
        granted(a.store(), &mine).await,
    );
    assert_eq!(a.store().release(&hold).await?, ReleaseReply::Released);
    let seq = granted(b.store(), &theirs).await;
    assert_eq!(a.store().release(&hold).await?, ReleaseReply::Released);
    assert_eq!(
        granted(b.store(), &theirs).await,
        seq,
        "the next is untouched"
    );
    b.store().withdraw(&theirs).await?;
    Ok(())
}

async fn late_claim_after_withdrawal(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let late = a.claim("x", ctx.long());
    a.store().withdraw(&late).await?;
    let reply = a.store().claim(&late).await?;
    assert!(matches!(reply, ClaimReply::Gone(_)), "{reply:?}");
    // The same on a name that is in use.
    let held = b.claim("x", ctx.long());
    granted(b.store(), &held).await;
    let late = a.claim("x", ctx.long());
    a.store().withdraw(&late).await?;
    let reply = a.store().claim(&late).await?;
    assert!(matches!(reply, ClaimReply::Gone(_)), "{reply:?}");
    ctx.until(&b, "x", 1, 0).await;
    b.store().withdraw(&held).await?;
    Ok(())
}

async fn withdrawal_of_a_hold(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let (mine, theirs) = (a.claim("x", ctx.long()), b.claim("x", ctx.long()));
    let first = granted(a.store(), &mine).await;
    for _ in 0..2 {
        a.store().withdraw(&mine).await?;
    }
    let second = granted(b.store(), &theirs).await;
    ctx.expect_newer(second, first);
    a.store().withdraw(&mine).await?;
    ctx.until(&b, "x", 1, 0).await;
    b.store().withdraw(&theirs).await?;
    Ok(())
}

async fn repeated_claim_extends_the_lease(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut mine = a.claim("x", ctx.lease() * 3);
    granted(a.store(), &mine).await;
    mine.lease = ctx.long();
    granted(a.store(), &mine).await;
    let view = a.store().inspect(&mine.name).await?.expect("it is held");
    assert!(view.holders[0].lease_left > ctx.lease() * 4);
    a.store().withdraw(&mine).await?;
    Ok(())
}
