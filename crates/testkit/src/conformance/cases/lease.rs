//! A hold lives as long as it is renewed.

use super::prelude::*;

cases! { "lease";
    runs_out_without_renewal [] "the lock of a client that is cut off is free after its lease, and not before its guard is void";
    lives_over_twenty_leases [] "a hold that is renewed lives on for 20 leases";
    lives_while_workers_are_blocked [] "it is renewed while every worker thread of the user's runtime is blocked";
    lives_through_failed_renewals [] "some renewals may fail as long as one succeeds in time";
    no_hammering_while_cut_off [] "renewals that fail are repeated after a pause";
    many_holds_renew_together [] "100 holds of one client are renewed in few requests";
    no_renewal_after_release [] "a released hold is not renewed any more";
    a_killed_holder_frees_at_once [Need::Processes, Need::SeesDeath] "the kernel tells of a death: no lease is waited for";
    max_hold_ends_it [] "a hold with a longest time ends by itself, and says why";
    bounds_are_checked [] "a lease outside the store's bounds is refused before any I/O";
    remaining_is_within_the_lease [] "what is left is never more than the lease";
}

async fn runs_out_without_renewal(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    a.faults.cut(true);
    let next = b.lock("x").lease(ctx.long());
    let next = soon("the end of the lease", next.acquire()).await?;
    assert!(!guard.is_valid(), "both say that they hold it");
    assert!(next.is_valid());
    ctx.expect_newer(next.token(), guard.token());
    Ok(())
}

async fn lives_over_twenty_leases(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    // It must not run out, so it is one that survives a pause of the whole machine.
    let lease = ctx.lease().max(Duration::from_millis(1_500));
    let guard = a.lock("x").lease(lease).acquire().await?;
    let end = a.clock().now() + lease * 20;
    while a.clock().now() < end {
        let left = end.since(a.clock().now());
        let lock = b.lock("x").lease(lease);
        let entered = lock.acquire_within(left).await?;
        assert!(entered.is_none(), "it was not renewed");
        assert!(guard.is_valid());
    }
    assert_eq!(guard.release().await?, ReleaseReply::Released);
    Ok(())
}

async fn lives_while_workers_are_blocked(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let (name, lease) = ("x", ctx.lease());
    let leaving = Arc::new(AtomicU64::new(0));
    let left = leaving.clone();
    // The user's runtime: two workers, both blocked for three leases with the lock held.
    let user = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let guard = a.lock(name).lease(lease).acquire().await.unwrap();
            let block = move || std::thread::sleep(lease * 3);
            let blocked = [
                tokio::spawn(async move { block() }),
                tokio::spawn(async move { block() }),
            ];
            block();
            let valid = guard.is_valid();
            for task in blocked {
                task.await.unwrap();
            }
            left.store(1, Ordering::SeqCst);
            let end = guard.release().await.unwrap();
            (valid, end)
        })
    });
    ctx.until(&b, name, 1, 0).await;
    while !user.is_finished() {
        let entered = b.lock(name).lease(lease).try_acquire().await?;
        let left = leaving.load(Ordering::SeqCst) == 1;
        assert!(entered.is_none() || left, "it was not renewed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (valid, end) = user.join().expect("the user's thread");
    assert!(valid, "it was lost while the workers were blocked");
    assert_eq!(end, ReleaseReply::Released);
    Ok(())
}

async fn lives_through_failed_renewals(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let lease = ctx.lease() * 5;
    let guard = a.lock("x").lease(lease).acquire().await?;
    a.faults.inject(Op::Renew, Fault::ErrorBefore);
    a.faults.inject(Op::Renew, Fault::ReplyLost);
    a.faults.inject(Op::Renew, Fault::ErrorBefore);
    let mut suspected = false;
    eventually("a renewal after the failed ones", async || {
        suspected |= guard.status() == Status::Suspect;
        assert!(guard.is_valid());
        suspected && guard.status() == Status::Held
    })
    .await;
    assert!(guard.remaining() > lease / 2, "it has been renewed");
    assert!(b.lock("x").lease(lease).try_acquire().await?.is_none());
    Ok(())
}

async fn no_hammering_while_cut_off(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.lease() * 5).acquire().await?;
    a.faults.cut(true);
    let before = a.attempts.load(Ordering::SeqCst);
    soon("the loss", guard.lost()).await;
    let tries = a.attempts.load(Ordering::SeqCst) - before;
    assert!((1..=60).contains(&tries), "{tries} tries in one lease");
    Ok(())
}

async fn many_holds_renew_together(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let lease = ctx.lease() * 4;
    let mut guards = Vec::new();
    for n in 0..100 {
        guards.push(a.lock(format!("n/{n}")).lease(lease).acquire().await?);
    }
    let (start, before) = (a.clock().now(), a.operations());
    let span = lease * 2;
    a.clock().sleep(span).await;
    assert!(guards.iter().all(clinch_core::Guard::is_valid));
    let took = a.clock().now().since(start).as_secs_f64() / lease.as_secs_f64();
    let sent = (a.operations() - before) as f64;
    // One by one it would be 300 in each lease. How they bunch depends on when they were taken.
    assert!(sent < took * 150.0, "{sent} requests in {took} leases");
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn no_renewal_after_release(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    guard.release().await?;
    // What the engine asks for: a store may be at work in the background.
    let asked = || a.attempts.load(Ordering::SeqCst);
    let before = asked();
    a.clock().sleep(ctx.lease() * 2).await;
    assert_eq!(asked(), before, "something is still asked for");
    Ok(())
}

async fn a_killed_holder_frees_at_once(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut dead = ctx.holder().await;
    let claiming = Claiming::lock("x", ctx.long());
    // Both for who waits already and for who comes later.
    dead.acquire(&claiming).await.expect("free");
    let lock = a.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&b, "x", 1, 1).await;
    dead.kill();
    soon("the waiter", waiter).await??.release().await?;
    let mut dead = ctx.holder().await;
    dead.acquire(&claiming).await.expect("free");
    dead.kill();
    let late = b.lock("x").lease(ctx.long());
    assert!(soon("who comes later", late.acquire()).await?.is_valid());
    Ok(())
}

async fn max_hold_ends_it(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let lock = a.lock("x").lease(ctx.lease()).max_hold(ctx.lease() * 2);
    let guard = lock.acquire().await?;
    assert_eq!(soon("the end", guard.lost()).await, LostReason::MaxHold);
    assert!(!guard.is_valid());
    let next = b.lock("x").lease(ctx.long());
    assert!(soon("the next", next.acquire()).await?.is_valid());
    Ok(())
}

async fn bounds_are_checked(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let limits = a.info().limits;
    let before = a.operations();
    let tiny = limits.min_lease - Duration::from_nanos(1);
    let huge = limits.max_lease + Duration::from_secs(1);
    for lease in [Duration::ZERO, tiny, huge] {
        let refused = a.lock("x").lease(lease).try_acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.advice().is_some(), "it says what would be right");
    }
    assert_eq!(a.operations(), before, "nothing was sent");
    Ok(())
}

async fn remaining_is_within_the_lease(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let step = a.info().limits.lease_step;
    let lease = ctx.lease().div_duration_f64(step).ceil();
    let lease = step.mul_f64(lease);
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    for _ in 0..50 {
        assert!(guard.remaining() < lease, "{:?}", guard.remaining());
        tokio::task::yield_now().await;
    }
    Ok(())
}
