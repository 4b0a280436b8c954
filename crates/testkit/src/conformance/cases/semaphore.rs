//! Never more permits than there are.

use super::prelude::*;

const SEMAPHORES: Need = Need::Has(Capability::Semaphores);

cases! { "semaphore";
    never_more_than_the_limit [SEMAPHORES] "24 tasks of 3 clients on 3 permits: at most 3 are inside";
    several_permits_at_once [SEMAPHORES] "a claim of k permits takes k";
    a_large_claim_is_not_starved [SEMAPHORES, Need::Has(Capability::Queue)] "small claims that come later wait behind a large one";
    another_limit_is_refused [SEMAPHORES] "a different limit for a name in use is an error, and changes nothing";
    another_limit_is_fine_when_idle [SEMAPHORES] "a name that nobody uses can get another limit";
    more_than_the_limit_is_refused [SEMAPHORES] "asking for more permits than there are is an error before any I/O";
    a_killed_holder_gives_back [SEMAPHORES, Need::Processes] "the permits of a killed process come back";
    a_cut_off_holder_gives_back [SEMAPHORES] "the permits of a client that is cut off come back after its lease";
    tokens_are_distinct [SEMAPHORES] "permits held at once have different tokens";
}

async fn never_more_than_the_limit(ctx: &Ctx) -> Outcome {
    let inside = Arc::new(AtomicU64::new(0));
    let clients = [ctx.client().await, ctx.client().await, ctx.client().await];
    let mut tasks = Vec::new();
    for task in 0..24 {
        let permit = clients[task % 3].semaphore("x", 3).permits(1);
        let (permit, inside) = (permit.lease(ctx.long()), inside.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = permit.acquire().await.unwrap();
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 3, "a fourth is in");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        soon("a task", task).await?;
    }
    Ok(())
}

async fn several_permits_at_once(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let (mine, theirs) = (a.semaphore("x", 5), b.semaphore("x", 5));
    let three = mine.permits(3).lease(ctx.long()).acquire().await?;
    let refused = theirs.permits(3).lease(ctx.long()).try_acquire().await?;
    assert!(refused.is_none());
    let two = theirs.permits(2).lease(ctx.long()).try_acquire().await?;
    let two = two.expect("two are left");
    let refused = mine.permits(1).lease(ctx.long()).try_acquire().await?;
    assert!(refused.is_none());
    three.release().await?;
    let three = theirs.permits(3).lease(ctx.long()).try_acquire().await?;
    assert!(three.is_some() && two.is_valid());
    Ok(())
}

async fn a_large_claim_is_not_starved(ctx: &Ctx) -> Outcome {
    let (a, b, c) = (ctx.client().await, ctx.client().await, ctx.client().await);
    let one = a.semaphore("x", 3).permits(1).lease(ctx.long());
    let one = one.acquire().await?;
    let all = b.semaphore("x", 3).permits(3).lease(ctx.long());
    let large = tokio::spawn(async move { all.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    let small = c.semaphore("x", 3).permits(1).lease(ctx.long());
    assert!(small.try_acquire().await?.is_none(), "it overtook");
    let small = tokio::spawn(async move { small.acquire().await });
    ctx.until(&a, "x", 1, 2).await;
    one.release().await?;
    let large = soon("the large claim", large).await??;
    ctx.until(&a, "x", 1, 1).await;
    large.release().await?;
    soon("the small claim", small).await??.release().await?;
    Ok(())
}

async fn another_limit_is_refused(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let held = a.semaphore("x", 2).permits(1).lease(ctx.long());
    let held = held.acquire().await?;
    for limit in [3, 1000] {
        let other = b.semaphore("x", limit).permits(1).lease(ctx.long());
        for outcome in [
            other.try_acquire().await,
            other.acquire_within(PATIENCE).await,
        ] {
            let refused = outcome.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Mismatch, "{refused}");
            assert!(!refused.may_have_taken_effect());
        }
    }
    let refused = b.lock("x").lease(ctx.long()).try_acquire().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Mismatch);
    ctx.until(&b, "x", 1, 0).await;
    let same = b.semaphore("x", 2).permits(1).lease(ctx.long());
    assert!(same.try_acquire().await?.is_some() && held.is_valid());
    Ok(())
}

async fn another_limit_is_fine_when_idle(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let two = a.semaphore("x", 2).permits(2).lease(ctx.long());
    two.acquire().await?.release().await?;
    let five = b.semaphore("x", 5).permits(5).lease(ctx.long());
    assert!(five.try_acquire().await?.is_some());
    Ok(())
}

async fn more_than_the_limit_is_refused(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let before = a.operations();
    for (permits, limit) in [(3, 2), (0, 2), (1, 0)] {
        let lock = a.semaphore("x", limit).permits(permits).lease(ctx.long());
        let refused = lock.try_acquire().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{permits} of {limit}");
    }
    assert_eq!(a.operations(), before, "nothing was sent");
    Ok(())
}

async fn a_killed_holder_gives_back(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut dead = ctx.holder().await;
    let claiming = Claiming::lock("x", ctx.lease()).units(2, 3);
    dead.acquire(&claiming).await.expect("free");
    let all = a.semaphore("x", 3).permits(3).lease(ctx.long());
    assert!(all.try_acquire().await?.is_none());
    dead.kill();
    let all = soon("its permits", all.acquire()).await?;
    assert!(all.is_valid());
    Ok(())
}

async fn a_cut_off_holder_gives_back(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let two = a.semaphore("x", 3).permits(2).lease(ctx.lease());
    let two = two.acquire().await?;
    a.faults.cut(true);
    let all = b.semaphore("x", 3).permits(3).lease(ctx.long());
    let all = soon("its permits", all.acquire()).await?;
    assert!(!two.is_valid() && all.is_valid());
    Ok(())
}

async fn tokens_are_distinct(ctx: &Ctx) -> Outcome {
    let clients = [ctx.client().await, ctx.client().await];
    let mut guards = Vec::new();
    for n in 0..6 {
        let permit = clients[n % 2].semaphore("x", 6).permits(1);
        guards.push(permit.lease(ctx.long()).acquire().await?);
    }
    let tokens: Vec<_> = guards.iter().map(clinch_core::Guard::token).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    Ok(())
}
