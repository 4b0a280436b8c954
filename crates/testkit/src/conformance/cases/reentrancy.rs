//! An owner enters again what it holds.

use super::prelude::*;

cases! { "reentrancy";
    same_token_and_balance [] "re-entry keeps the token, and the lock is free when all have left";
    any_order_of_release [] "the first guard may be released first";
    no_word_to_the_store [] "re-entry sends nothing";
    scope_is_the_default_owner [] "inside a scope every claim is the owner's";
    owners_exclude_each_other [] "two owners of one client exclude each other";
    many_tasks_of_one_owner [] "32 tasks of an owner enter and leave in any order";
    write_covers_read [Need::Has(Capability::Shared)] "a writer may read";
    no_upgrade [Need::Has(Capability::Shared)] "a reader that wants to write is told that it would deadlock";
    lost_reply_of_the_first_entry [] "a lost reply does not count twice";
}

async fn same_token_and_balance(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let owner = a.owner();
    let lock = a.lock("x").lease(ctx.long()).as_owner(&owner);
    let outer = lock.acquire().await?;
    let middle = soon("re-entry", lock.acquire()).await?;
    let inner = lock.try_acquire().await?.expect("re-entry");
    assert_eq!(outer.token(), middle.token());
    assert_eq!(outer.token(), inner.token());
    for guard in [inner, middle] {
        assert_eq!(guard.release().await?, ReleaseReply::Released);
        assert!(outer.is_valid());
        let tried = b.lock("x").lease(ctx.long()).try_acquire().await?;
        assert!(tried.is_none(), "an inner release freed it");
    }
    let token = outer.token();
    outer.release().await?;
    let taken = b.lock("x").lease(ctx.long()).try_acquire().await?;
    ctx.expect_newer(taken.expect("all have left").token(), token);
    Ok(())
}

async fn any_order_of_release(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let owner = a.owner();
    let lock = a.lock("x").lease(ctx.long()).as_owner(&owner);
    let (first, second) = (lock.acquire().await?, lock.acquire().await?);
    drop(first);
    assert!(second.is_valid());
    let third = lock.acquire().await?;
    assert_eq!(third.token(), second.token());
    drop(second);
    let tried = b.lock("x").lease(ctx.long()).try_acquire().await?;
    assert!(tried.is_none() && third.is_valid());
    third.release().await?;
    let taken = b
        .lock("x")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(taken.is_some());
    Ok(())
}

async fn no_word_to_the_store(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let owner = a.owner();
    let lock = a.lock("x").lease(ctx.long()).as_owner(&owner);
    let outer = lock.acquire().await?;
    // What the engine asks for: a store may be at work in the background.
    let asked = || a.attempts.load(Ordering::SeqCst);
    let before = asked();
    for _ in 0..50 {
        lock.acquire().await?.release().await?;
    }
    assert_eq!(asked(), before);
    assert!(outer.is_valid());
    Ok(())
}

async fn scope_is_the_default_owner(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let owner = a.owner();
    let lock = a.lock("x").lease(ctx.long());
    let inside = owner.scope(async {
        let outer = lock.acquire().await?;
        let inner = soon("re-entry", lock.acquire()).await?;
        assert_eq!(outer.token(), inner.token());
        assert_eq!(outer.owner(), owner.id());
        Ok::<_, clinch_core::Error>(outer)
    });
    let outer = inside.await?;
    assert!(lock.try_acquire().await?.is_none(), "outside it is another");
    assert!(outer.is_valid());
    Ok(())
}

async fn owners_exclude_each_other(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let (one, two) = (a.owner(), a.owner());
    assert_ne!(one.id(), two.id());
    let lock = a.lock("x").lease(ctx.long());
    let held = lock.clone().as_owner(&one).acquire().await?;
    assert!(lock.clone().as_owner(&two).try_acquire().await?.is_none());
    held.release().await?;
    assert!(lock.as_owner(&two).try_acquire().await?.is_some());
    Ok(())
}

async fn many_tasks_of_one_owner(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let owner = a.owner();
    let outer = a.lock("x").lease(ctx.long()).as_owner(&owner);
    let outer = outer.acquire().await?;
    let mut tasks = Vec::new();
    for _ in 0..32 {
        let lock = a.lock("x").lease(ctx.long()).as_owner(&owner);
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = lock.acquire().await?;
                tokio::task::yield_now().await;
                guard.release().await?;
            }
            Ok::<_, clinch_core::Error>(())
        }));
    }
    for task in tasks {
        soon("a task", task).await??;
    }
    let tried = b.lock("x").lease(ctx.long()).try_acquire().await?;
    assert!(tried.is_none() && outer.is_valid());
    outer.release().await?;
    assert!(b.lock("x").lease(ctx.long()).try_acquire().await?.is_some());
    Ok(())
}

async fn write_covers_read(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let owner = a.owner();
    let rw = a.rwlock("x");
    let write = rw.write().lease(ctx.long()).as_owner(&owner);
    let read = rw.read().lease(ctx.long()).as_owner(&owner);
    let outer = write.acquire().await?;
    let inner = soon("re-entry", read.acquire()).await?;
    assert_eq!(outer.token(), inner.token());
    Ok(())
}

async fn no_upgrade(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let owner = a.owner();
    let rw = a.rwlock("x");
    let read = rw.read().lease(ctx.long()).as_owner(&owner);
    let held = read.acquire().await?;
    let write = rw.write().lease(ctx.long()).as_owner(&owner);
    let refused = soon("the refusal", write.acquire()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldDeadlock);
    assert!(!refused.may_have_taken_effect() && held.is_valid());
    Ok(())
}

async fn lost_reply_of_the_first_entry(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let owner = a.owner();
    let lock = a.lock("x").lease(ctx.long()).as_owner(&owner);
    a.faults.inject(Op::Claim, Fault::ReplyLost);
    let outer = soon("the repaired claim", lock.acquire()).await?;
    let inner = lock.acquire().await?;
    assert_eq!(outer.token(), inner.token());
    inner.release().await?;
    a.faults.inject(Op::Release, Fault::ReplyLost);
    outer.release().await?;
    assert!(b.lock("x").lease(ctx.long()).try_acquire().await?.is_some());
    Ok(())
}
