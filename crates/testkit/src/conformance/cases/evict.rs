//! An operator breaks a hold.

use super::prelude::*;

const EVICT: Need = Need::Has(Capability::Evict);

cases! { "evict";
    the_next_one_enters [EVICT] "an evicted lock goes to the waiter";
    by_token [EVICT] "only the hold with the token that was named";
    again_by_token [EVICT] "an eviction by token that arrives twice breaks no later holder";
    every_holder [EVICT, Need::Has(Capability::Shared)] "without a token, every holder of the name";
    nothing_there [EVICT] "evicting what nobody holds breaks nothing";
    waiters_stay [EVICT] "waiters are not evicted";
    the_evicted_release_says_so [EVICT] "release tells that it had been lost";
}

async fn the_next_one_enters(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let lock = b.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    let evicted = b.evict("x", Some(guard.token())).await?;
    assert_eq!(evicted.seqs, [guard.token().seq()]);
    let next = soon("the waiter", waiter).await??;
    ctx.expect_newer(next.token(), guard.token());
    Ok(())
}

async fn by_token(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let old = a.lock("x").lease(ctx.long()).acquire().await?;
    let token = old.token();
    old.release().await?;
    let new = a.lock("x").lease(ctx.long()).acquire().await?;
    assert!(a.evict("x", Some(token)).await?.seqs.is_empty());
    ctx.until(&a, "x", 1, 0).await;
    assert!(new.is_valid());
    assert_eq!(
        a.evict("x", Some(new.token())).await?.seqs,
        [new.token().seq()]
    );
    ctx.until(&a, "x", 0, 0).await;
    Ok(())
}

async fn again_by_token(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let first = a.lock("x").lease(ctx.long()).acquire().await?;
    let evicted = b.evict("x", Some(first.token())).await?;
    assert_eq!(evicted.seqs, [first.token().seq()]);
    let second = b.lock("x").lease(ctx.long()).acquire().await?;
    let again = a.evict("x", Some(first.token())).await?;
    assert!(
        again.seqs.is_empty() && again.delays.is_empty(),
        "{again:?}"
    );
    ctx.until(&a, "x", 1, 0).await;
    assert!(second.release().await?.was_held());
    Ok(())
}

async fn every_holder(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let one = a.rwlock("x").read().lease(ctx.long()).acquire().await?;
    let two = b.rwlock("x").read().lease(ctx.long()).acquire().await?;
    let mut seqs = b.evict("x", None).await?.seqs;
    seqs.sort_unstable();
    let mut held = [one.token().seq(), two.token().seq()];
    held.sort_unstable();
    assert_eq!(seqs, held);
    let write = b.rwlock("x").write().lease(ctx.long());
    assert!(write.try_acquire().await?.is_some());
    Ok(())
}

async fn nothing_there(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    assert!(a.evict("x", None).await?.seqs.is_empty());
    Ok(())
}

async fn waiters_stay(ctx: &Ctx) -> Outcome {
    let (a, b, c) = (ctx.client().await, ctx.client().await, ctx.client().await);
    let _guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let mut waiters = Vec::new();
    for (n, client) in [&b, &c].into_iter().enumerate() {
        let lock = client.lock("x").lease(ctx.long());
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await?;
            guard.release().await
        }));
        ctx.until(&a, "x", 1, n + 1).await;
    }
    a.evict("x", None).await?;
    for waiter in waiters {
        let end = soon("a waiter", waiter).await??;
        assert_eq!(end, ReleaseReply::Released);
    }
    Ok(())
}

async fn the_evicted_release_says_so(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    b.evict("x", None).await?;
    let next = b.lock("x").lease(ctx.long()).acquire().await?;
    let end = guard.release().await?;
    assert_eq!(end, ReleaseReply::WasLost(LostReason::Evicted));
    assert!(next.is_valid());
    ctx.until(&b, "x", 1, 0).await;
    Ok(())
}
