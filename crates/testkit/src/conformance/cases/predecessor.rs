//! The new holder is told how the last hold ended.

use super::prelude::*;

const NOTICE: Need = Need::Has(Capability::Predecessor);

cases! { "predecessor";
    first_has_none [NOTICE] "the first holder of a name has no predecessor";
    released [NOTICE] "after a release it says released, by whom and with which token";
    released_to_a_waiter [NOTICE, Need::Has(Capability::Queue)] "a waiter is told as well";
    expired [NOTICE] "after a lease ran out it says expired";
    evicted [NOTICE, Need::Has(Capability::Evict)] "after an eviction it says evicted";
    killed [NOTICE, Need::Processes] "after the death of a process it says expired";
    handed_over [NOTICE] "after a hand-over inside the process it says released";
    repeated_after_a_lost_reply [NOTICE] "a lost reply does not lose the notice";
}

async fn first_has_none(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    assert_eq!(guard.predecessor(), None);
    Ok(())
}

/// Takes `x` and checks what it is told.
async fn expect(ctx: &Ctx, by: &Client, ending: Ending, owner: &str, seq: u64) -> Outcome {
    let lock = by.lock("x").lease(ctx.long());
    let guard = soon("the next", lock.acquire()).await?;
    let before = guard.predecessor().expect("it is told").clone();
    assert_eq!(before.ending, ending);
    assert_eq!((before.owner.as_str(), before.seq), (owner, seq));
    Ok(())
}

async fn released(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let (owner, seq) = (guard.owner().clone(), guard.token().seq());
    guard.release().await?;
    expect(ctx, &b, Ending::Released, owner.as_str(), seq).await
}

async fn released_to_a_waiter(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let lock = b.lock("x").lease(ctx.long()).fair();
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    let seq = guard.token().seq();
    guard.release().await?;
    let next = soon("the waiter", waiter).await??;
    let before = next.predecessor().expect("it is told");
    assert_eq!((before.ending, before.seq), (Ending::Released, seq));
    Ok(())
}

async fn expired(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    a.faults.cut(true);
    expect(
        ctx,
        &b,
        Ending::Expired,
        guard.owner().as_str(),
        guard.token().seq(),
    )
    .await
}

async fn evicted(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    b.evict("x", None).await?;
    expect(
        ctx,
        &b,
        Ending::Evicted,
        guard.owner().as_str(),
        guard.token().seq(),
    )
    .await
}

async fn killed(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut dead = ctx.holder().await;
    let token = dead.acquire(&Claiming::lock("x", ctx.lease())).await;
    dead.kill();
    let lock = a.lock("x").lease(ctx.long());
    let guard = soon("the next", lock.acquire()).await?;
    let before = guard.predecessor().expect("it is told");
    let seq = clinch_core::Token::from_u64(token.expect("free")).map(|t| t.seq());
    assert_eq!((before.ending, Some(before.seq)), (Ending::Expired, seq));
    Ok(())
}

async fn handed_over(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let lock = a.lock("x").lease(ctx.long());
    let mut waiter = std::pin::pin!(lock.acquire());
    assert!(drop_after(waiter.as_mut(), 1, PATIENCE).await.is_none());
    let owner = guard.owner().clone();
    guard.release().await?;
    let next = soon("the waiter", waiter).await?;
    let before = next.predecessor().expect("it is told");
    assert_eq!((before.ending, &before.owner), (Ending::Released, &owner));
    Ok(())
}

async fn repeated_after_a_lost_reply(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let (owner, seq) = (guard.owner().clone(), guard.token().seq());
    guard.release().await?;
    b.faults.inject(Op::Claim, Fault::ReplyLost);
    expect(ctx, &b, Ending::Released, owner.as_str(), seq).await
}
