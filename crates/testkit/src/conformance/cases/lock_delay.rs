//! After an unclean end, nobody else enters for a while.

use super::prelude::*;

const DELAY: Need = Need::Has(Capability::LockDelay);

cases! { "lock_delay";
    after_a_lease_ran_out [DELAY] "the next one enters not before the lease and the delay have passed";
    none_after_a_release [DELAY] "a clean release frees at once";
    none_after_a_drop [DELAY] "a dropped guard is a clean release too";
    after_an_eviction [DELAY, Need::Has(Capability::Evict)] "an eviction is an unclean end";
    after_a_kill [DELAY, Need::Processes] "so is the death of the process";
    a_try_says_no_meanwhile [DELAY, Need::Has(Capability::Evict)] "a try during the delay says no";
    it_outlives_its_client [DELAY, Need::Has(Capability::Evict)] "the delay stands when the clients have gone and come again";
    too_long_is_refused [DELAY] "a delay beyond a minute is an error";
}

async fn after_a_lease_ran_out(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let delay = ctx.lease();
    let lock = a.lock("x").lease(ctx.lease()).lock_delay(delay);
    let guard = lock.acquire().await?;
    a.faults.cut(true);
    // The guard is void before its lease ends at the store; a renewal under way makes that later.
    let void = a.clock().now() + guard.remaining();
    let lock = b.lock("x").lease(ctx.long());
    let next = soon("the end of the delay", lock.acquire()).await?;
    let entered = b.clock().now();
    assert!(
        entered >= void + delay,
        "too early by {:?}",
        (void + delay).since(entered)
    );
    assert!(next.is_valid());
    Ok(())
}

async fn none_after_a_release(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let minute = Duration::from_secs(60);
    let guard = a
        .lock("x")
        .lease(ctx.long())
        .lock_delay(minute)
        .acquire()
        .await?;
    guard.release().await?;
    let next = b.lock("x").lease(ctx.long()).try_acquire().await?;
    assert!(next.is_some());
    Ok(())
}

async fn none_after_a_drop(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let minute = Duration::from_secs(60);
    drop(
        a.lock("x")
            .lease(ctx.long())
            .lock_delay(minute)
            .acquire()
            .await?,
    );
    let next = b
        .lock("x")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(next.is_some());
    Ok(())
}

async fn after_an_eviction(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let delay = ctx.lease();
    let guard = a
        .lock("x")
        .lease(ctx.long())
        .lock_delay(delay)
        .acquire()
        .await?;
    let before = b.clock().now();
    b.evict("x", None).await?;
    let next = b.lock("x").lease(ctx.long());
    let next = soon("the end of the delay", next.acquire()).await?;
    let waited = b.clock().now().since(before);
    assert!(waited >= delay, "it entered after {waited:?}");
    assert!(next.token() > guard.token());
    Ok(())
}

async fn after_a_kill(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut dead = ctx.holder().await;
    let delay = ctx.lease() * 2;
    let claiming = Claiming::lock("x", ctx.lease()).lock_delay(delay);
    dead.acquire(&claiming).await.expect("free");
    let before = a.clock().now();
    dead.kill();
    let next = a.lock("x").lease(ctx.long());
    let next = soon("the end of the delay", next.acquire()).await?;
    let waited = a.clock().now().since(before);
    assert!(waited >= delay, "it entered after {waited:?}");
    assert!(next.is_valid());
    Ok(())
}

async fn a_try_says_no_meanwhile(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let minute = Duration::from_secs(60);
    let _guard = a
        .lock("x")
        .lease(ctx.long())
        .lock_delay(minute)
        .acquire()
        .await?;
    b.evict("x", None).await?;
    let lock = b.lock("x").lease(ctx.long());
    assert!(lock.try_acquire().await?.is_none());
    let short = Duration::from_millis(60);
    assert!(soon("the end", lock.acquire_within(short)).await?.is_none());
    Ok(())
}

async fn it_outlives_its_client(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let delay = Duration::from_secs(3);
    let guard = a
        .lock("x")
        .lease(ctx.long())
        .lock_delay(delay)
        .acquire()
        .await?;
    let before = a.clock().now();
    a.evict("x", None).await?;
    drop(guard);
    ctx.close_all().await;
    ctx.place().restart().await?;
    let b = ctx.client().await;
    let next = b.lock("x").lease(ctx.long());
    let _next = soon("the end of the delay", next.acquire()).await?;
    assert!(b.clock().now().since(before) >= delay, "the delay was lost");
    Ok(())
}

async fn too_long_is_refused(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let lock = a.lock("x").lease(ctx.long());
    let refused = lock.lock_delay(Duration::from_secs(61)).try_acquire().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    Ok(())
}
