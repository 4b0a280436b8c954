//! Trying, waiting, and giving up.

use super::prelude::*;

cases! { "waiting";
    try_says_no_at_once [] "a try on a held lock says no and leaves no place in the queue";
    timeout_says_no [] "a wait that ran out says no, not before its time, and leaves nothing";
    zero_wait_says_no [] "a wait of zero on a held lock says no";
    waiter_enters_after_release [] "a waiter in another client enters when the holder releases";
    waiter_enters_after_drop [] "a waiter enters when the guard is dropped";
    local_waiters_enter [] "waiters of the holder's own client enter one by one";
    lost_wakes_do_not_matter [] "a waiter that never hears a wake gets in by its slow poll";
    an_old_grant_told_late_is_not_believed [] "granted, run out and forgotten while the waiter was away: the word of it changes nothing";
    a_waiter_keeps_its_place [] "a place in the queue outlives many leases of waiting";
    a_panic_while_it_waits [] "a store that panics while a task waits costs that wait an error, and no other";
}

async fn try_says_no_at_once(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    for client in [&a, &b] {
        let tried = client.lock("x").lease(ctx.long()).try_acquire().await?;
        assert!(tried.is_none(), "two hold it");
    }
    ctx.until(&b, "x", 1, 0).await;
    guard.release().await?;
    let taken = b.lock("x").lease(ctx.long()).try_acquire().await?;
    assert!(taken.is_some(), "a released lock is free at once");
    Ok(())
}

async fn timeout_says_no(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let span = Duration::from_millis(120);
    for client in [&a, &b] {
        let asked = client.clock().now();
        let lock = client.lock("x").lease(ctx.long());
        let tried = soon("the end of a wait", lock.acquire_within(span)).await?;
        assert!(tried.is_none(), "two hold it");
        let waited = client.clock().now().since(asked);
        assert!(waited >= span, "it gave up after {waited:?}");
    }
    ctx.until(&b, "x", 1, 0).await;
    assert!(guard.is_valid());
    Ok(())
}

async fn zero_wait_says_no(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let _guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let lock = b.lock("x").lease(ctx.long());
    let tried = soon("the end", lock.acquire_within(Duration::ZERO)).await;
    // With no time at all the outcome may also be unknown, but never a lock.
    assert!(!matches!(tried, Ok(Some(_))));
    ctx.until(&a, "x", 1, 0).await;
    Ok(())
}

async fn waiter_enters_after_release(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let lock = b.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    let first = guard.token();
    assert_eq!(guard.release().await?, ReleaseReply::Released);
    let second = soon("the waiter", waiter).await??;
    assert!(second.is_valid());
    ctx.expect_newer(second.token(), first);
    Ok(())
}

async fn waiter_enters_after_drop(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let lock = b.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    drop(guard);
    assert!(soon("the waiter", waiter).await??.is_valid());
    Ok(())
}

async fn local_waiters_enter(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let mut waiters = Vec::new();
    for _ in 0..10 {
        let lock = a.lock("x").lease(ctx.long());
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await?;
            let token = guard.token();
            guard.release().await.map(|_| token)
        }));
    }
    let first = guard.token();
    guard.release().await?;
    let mut tokens = vec![first];
    for waiter in waiters {
        tokens.push(soon("a waiter", waiter).await??);
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 11, "each has a token of its own");
    assert!(!ctx.has(Capability::Tokens) || tokens[0] == first);
    Ok(())
}

async fn lost_wakes_do_not_matter(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    b.faults.drop_wakes(true);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let lock = b.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    // Once queued it asks again, and rests after that: released earlier, it would need no wake.
    eventually("the second answer", async || b.answers() >= 2).await;
    guard.release().await?;
    assert!(soon("the waiter", waiter).await??.is_valid());
    Ok(())
}

async fn a_waiter_keeps_its_place(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    // Long, so that a busy machine can repeat the claim in time; it has to be repeated all the same.
    let lock = b.lock("x").lease(ctx.lease() * 5);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    let start = a.clock().now();
    // For two leases the place is never seen to be gone.
    eventually("two leases", async || {
        assert_eq!(ctx.parties(&a, guard.name()).await, (1, 1));
        a.clock().now().since(start) > ctx.lease() * 10
    })
    .await;
    guard.release().await?;
    assert!(soon("the waiter", waiter).await??.is_valid());
    Ok(())
}

async fn an_old_grant_told_late_is_not_believed(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    // It goes on while it is cut off, however long the others take on a busy machine.
    let patience = Duration::from_secs(300);
    let b = ctx.client_with(|builder| builder.patience(patience)).await;
    let first = a.lock("x").lease(ctx.long()).acquire().await?;
    let away = b.lock("x").lease(ctx.lease());
    let mut away = tokio::spawn(async move { away.acquire().await });
    // The second answer says that it listens, and comes before the third question.
    eventually("it listens", async || {
        b.attempts.load(Ordering::Relaxed) > 2
    })
    .await;
    b.hold_wakes(true);
    b.faults.cut(true);
    first.release().await?;
    // The waiter's turn passes by, and then so many others come that no store remembers it.
    for _ in 0..20 {
        let guard = soon("a turn", a.lock("x").lease(ctx.long()).acquire()).await?;
        guard.release().await?;
    }
    let held = a.lock("x").lease(ctx.long()).acquire().await?;
    b.faults.cut(false);
    ctx.until(&a, "x", 1, 1).await;
    b.hold_wakes(false);
    tokio::select! {
        _ = &mut away => panic!("it entered beside the holder"),
        () = a.clock().sleep(Duration::from_millis(150)) => {}
    }
    assert!(held.release().await?.was_held());
    let guard = soon("its turn", away).await??;
    assert!(guard.is_valid());
    Ok(())
}

async fn a_panic_while_it_waits(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    // The first claim is sent by this task, and its repeat by the keeper.
    a.faulty().panic_on_the_keeper();
    let lock = a.lock("x").lease(ctx.long());
    let failed = soon("the error", lock.acquire()).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Internal, "{failed}");
    ctx.until(&b, "x", 1, 0).await;
    // The next one has a task that works for it.
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&b, "x", 1, 1).await;
    guard.release().await?;
    soon("the waiter", waiter).await??.release().await?;
    Ok(())
}
