//! A guard may be dropped anywhere.

use super::prelude::*;

cases! { "drops";
    after_the_runtime_has_gone [] "a guard dropped when its runtime is gone is released";
    during_a_panic [] "a guard dropped by a panic is released";
    on_a_plain_thread [] "a guard dropped outside any runtime is released";
    with_the_runtime [] "a guard inside a task that the shutdown of a runtime drops is released";
    a_wait_with_the_runtime [] "a wait inside a task that the shutdown drops is withdrawn";
    without_tokio [] "acquire, wait and release work on a bare executor";
    renewed_after_the_runtime_has_gone [] "a guard that outlives its runtime is renewed";
}

/// A runtime as a user would have one.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// Runs on a thread that may block; gives back what `f` does.
async fn on_a_thread<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tx, rx) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || drop(tx.send(f())));
    let output = soon("a thread", rx).await;
    // It has sent, or it has panicked and the test fails by that.
    thread.join().expect("the thread ends well");
    output.unwrap()
}

async fn after_the_runtime_has_gone(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let lock = a.lock("x").lease(ctx.long());
    on_a_thread(move || {
        let runtime = runtime();
        let guard = runtime.block_on(lock.acquire()).unwrap();
        drop(runtime);
        assert!(guard.is_valid());
        drop(guard);
    })
    .await;
    let next = b
        .lock("x")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(next.is_some(), "it was not released");
    Ok(())
}

async fn renewed_after_the_runtime_has_gone(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    // It must not run out, so it is one that survives a busy machine.
    let lease = ctx.lease().max(Duration::from_secs(2));
    let lock = a.lock("x").lease(lease);
    let guard = on_a_thread(move || {
        let runtime = runtime();
        runtime.block_on(lock.acquire()).unwrap()
    })
    .await;
    a.clock().sleep(lease * 2).await;
    assert!(guard.is_valid(), "nobody renews it");
    guard.release().await?;
    Ok(())
}

async fn during_a_panic(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let lock = a.lock("x").lease(ctx.long());
    let task = tokio::spawn(async move {
        let _guard = lock.acquire().await.unwrap();
        // Without the noise of the hook.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(task.await.is_err_and(|error| error.is_panic()));
    let next = b
        .lock("x")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(next.is_some(), "it was not released");
    Ok(())
}

async fn on_a_plain_thread(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    on_a_thread(move || drop(guard)).await;
    let next = b
        .lock("x")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(next.is_some(), "it was not released");
    Ok(())
}

async fn with_the_runtime(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let lock = a.lock("x").lease(ctx.long());
    on_a_thread(move || {
        let runtime = runtime();
        let (tx, rx) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let _guard = lock.acquire().await.unwrap();
            tx.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        rx.recv().unwrap();
    })
    .await;
    let next = b
        .lock("x")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(next.is_some(), "it was not released");
    Ok(())
}

async fn a_wait_with_the_runtime(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    let lock = a.lock("x").lease(ctx.long());
    let runtime = runtime();
    runtime.spawn(async move { lock.acquire().await });
    ctx.until(&b, "x", 1, 1).await;
    on_a_thread(move || drop(runtime)).await;
    ctx.until(&b, "x", 1, 0).await;
    guard.release().await?;
    Ok(())
}

async fn without_tokio(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    let lock = a.lock("x").lease(ctx.long());
    let waiter = std::thread::spawn(move || {
        clinch_core::blocking::block_on(async {
            let guard = lock.acquire().await?;
            let short = Duration::from_millis(20);
            assert!(lock.try_acquire().await?.is_none());
            assert!(lock.acquire_within(short).await?.is_none());
            guard.release().await
        })
    });
    ctx.until(&b, "x", 1, 1).await;
    guard.release().await?;
    let end = on_a_thread(move || waiter.join().unwrap()).await?;
    assert_eq!(end, ReleaseReply::Released);
    Ok(())
}
