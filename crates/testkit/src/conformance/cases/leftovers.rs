//! Nothing is left behind. (Every other case is scanned for it too.)

use super::prelude::*;

cases! { "leftovers";
    a_dropped_guard [] "is released in the background";
    a_guard_dropped_while_cut_off [] "is released once the store is back";
    a_release_while_cut_off [] "is finished in the background once the store is back";
    a_closed_client [] "holds and waits for nothing";
    a_closed_client_refuses [] "closing ends waits with an error, and guards are lost";
    a_dropped_client [] "guards outlive the client they came from, and are released";
    a_killed_process [Need::Processes] "what a killed process held and waited for goes";
    a_grant_that_nobody_waits_for [] "a grant that arrives after its waiter has left is given back";
    late_claim_of_a_dropped_future [] "a claim still under way when its future is dropped is withdrawn";
}

async fn a_dropped_guard(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    drop(a.lock("x").lease(ctx.long()).acquire().await?);
    ctx.until(&a, "x", 0, 0).await;
    Ok(())
}

async fn a_guard_dropped_while_cut_off(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    a.faults.cut(true);
    drop(guard);
    ctx.until(&b, "x", 1, 0).await;
    a.faults.cut(false);
    ctx.until(&b, "x", 0, 0).await;
    Ok(())
}

async fn a_release_while_cut_off(ctx: &Ctx) -> Outcome {
    let b = ctx.client().await;
    let short = Duration::from_millis(80);
    let a = ctx.client_with(|builder| builder.patience(short)).await;
    // On a busy machine a claim may take longer than that.
    let mut guard = None;
    eventually("the lock", async || {
        guard = a.lock("x").lease(ctx.long()).acquire().await.ok();
        guard.is_some()
    })
    .await;
    let guard = guard.unwrap();
    a.faults.cut(true);
    let failed = soon("the error", guard.release()).await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unreachable);
    a.faults.cut(false);
    ctx.until(&b, "x", 0, 0).await;
    Ok(())
}

async fn a_closed_client(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let held = a.lock("held").lease(ctx.long()).acquire().await?;
    let other = b.lock("waited").lease(ctx.long()).acquire().await?;
    let lock = a.lock("waited").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&b, "waited", 1, 1).await;
    soon("closing", a.close()).await?;
    ctx.until(&b, "held", 0, 0).await;
    ctx.until(&b, "waited", 1, 0).await;
    assert!(!held.is_valid());
    let ended = soon("the waiter", waiter).await?;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Closed);
    other.release().await?;
    Ok(())
}

async fn a_closed_client_refuses(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    a.close().await?;
    a.close().await?;
    let reason = soon("the signal", guard.lost()).await;
    assert_eq!(reason, LostReason::Closed);
    let refused = a.lock("y").lease(ctx.long()).try_acquire().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    Ok(())
}

async fn a_dropped_client(ctx: &Ctx) -> Outcome {
    let b = ctx.client().await;
    let context = clinch_core::Clinch::context(&ctx.place().namespace())?;
    let store = ctx.open(context.clone()).await?;
    let a = clinch_core::Clinch::builder(store, context).build();
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    drop(a);
    let end = b.clock().now() + ctx.lease() * 3;
    while b.clock().now() < end {
        assert!(guard.is_valid(), "it is renewed no more");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(guard);
    ctx.until(&b, "x", 0, 0).await;
    Ok(())
}

async fn a_killed_process(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("waited").lease(ctx.long()).acquire().await?;
    let mut dead = ctx.holder().await;
    let lease = ctx.lease() * 2;
    dead.acquire(&Claiming::lock("held", lease)).await;
    // Without a queue nobody but its own process knows of a waiter.
    if ctx.has(Capability::Queue) {
        dead.start_acquire(&Claiming::lock("waited", lease));
        ctx.until(&a, "waited", 1, 1).await;
    }
    dead.kill();
    ctx.until(&a, "held", 0, 0).await;
    ctx.until(&a, "waited", 1, 0).await;
    guard.release().await?;
    Ok(())
}

async fn a_grant_that_nobody_waits_for(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    for _ in 0..10 {
        let guard = b.lock("x").lease(ctx.long()).acquire().await?;
        let lock = a.lock("x").lease(ctx.long());
        let waiter = tokio::spawn(async move { lock.acquire().await });
        ctx.until(&b, "x", 1, 1).await;
        let leave = async {
            waiter.abort();
            // With the handle goes a guard that the task may have got in the last moment.
            drop(waiter);
        };
        let (released, ()) = tokio::join!(guard.release(), leave);
        released?;
        ctx.until(&b, "x", 0, 0).await;
    }
    Ok(())
}

async fn late_claim_of_a_dropped_future(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let slow = Duration::from_millis(50);
    for fault in [
        Fault::DelayBefore(slow),
        Fault::DelayAfter(slow),
        Fault::HangAfter,
    ] {
        a.faults.inject(Op::Claim, fault);
        let lock = a.lock("x").lease(ctx.long());
        assert!(drop_after(lock.acquire(), 1, PATIENCE).await.is_none());
        let next = b
            .lock("x")
            .lease(ctx.long())
            .acquire_within(PATIENCE)
            .await?;
        next.expect("it is withdrawn").release().await?;
        ctx.until(&b, "x", 0, 0).await;
    }
    Ok(())
}
