//! Readers together, a writer alone.

use super::prelude::*;

const SHARED: Need = Need::Has(Capability::Shared);

cases! { "shared";
    readers_share [SHARED] "readers of several clients hold at once";
    a_writer_is_alone [SHARED] "a writer excludes readers and writers, and they exclude it";
    writers_do_not_starve [SHARED, Need::Has(Capability::Queue)] "a waiting writer goes before readers that come later";
    readers_behind_a_writer_enter_together [SHARED, Need::Has(Capability::Queue)] "when the writer leaves, all readers behind it enter";
    a_dead_reader_frees_the_writer [SHARED] "a reader that is cut off keeps the writer out for its lease at most";
    not_a_mutex [SHARED] "a name in use as a read-write lock is no mutex";
    mixed_load [SHARED] "under load there is one writer or no writer at all";
}

async fn readers_share(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut guards = Vec::new();
    for client in [&a, &b, &a, &b] {
        let read = client.rwlock("x").read().lease(ctx.long());
        guards.push(read.try_acquire().await?.expect("readers share"));
    }
    let mut tokens: Vec<_> = guards.iter().map(clinch_core::Guard::token).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 4, "each reader has a token of its own");
    assert!(tokens.is_sorted());
    Ok(())
}

async fn a_writer_is_alone(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let (mine, theirs) = (a.rwlock("x"), b.rwlock("x"));
    let reader = mine.read().lease(ctx.long()).acquire().await?;
    let refused = theirs.write().lease(ctx.long()).try_acquire().await?;
    assert!(refused.is_none(), "a reader keeps writers out");
    reader.release().await?;
    let writer = mine.write().lease(ctx.long()).acquire().await?;
    for lock in [theirs.read(), theirs.write(), mine.read(), mine.write()] {
        let refused = lock.lease(ctx.long()).try_acquire().await?;
        assert!(refused.is_none(), "a writer is alone");
    }
    assert!(writer.is_valid());
    Ok(())
}

async fn writers_do_not_starve(ctx: &Ctx) -> Outcome {
    let (a, b, c) = (ctx.client().await, ctx.client().await, ctx.client().await);
    let reader = a.rwlock("x").read().lease(ctx.long()).acquire().await?;
    let write = b.rwlock("x").write().lease(ctx.long());
    let writer = tokio::spawn(async move { write.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    let read = c.rwlock("x").read().lease(ctx.long());
    assert!(read.try_acquire().await?.is_none(), "it overtook a writer");
    let late = tokio::spawn(async move { read.acquire().await });
    ctx.until(&a, "x", 1, 2).await;
    reader.release().await?;
    let writer = soon("the writer", writer).await??;
    ctx.until(&a, "x", 1, 1).await;
    let token = writer.token();
    writer.release().await?;
    assert!(soon("the late reader", late).await??.token() > token);
    Ok(())
}

async fn readers_behind_a_writer_enter_together(ctx: &Ctx) -> Outcome {
    let (a, b, c) = (ctx.client().await, ctx.client().await, ctx.client().await);
    let writer = a.rwlock("x").write().lease(ctx.long()).acquire().await?;
    let mut readers = Vec::new();
    for client in [&b, &c, &b] {
        let read = client.rwlock("x").read().lease(ctx.long());
        readers.push(tokio::spawn(async move { read.acquire().await }));
    }
    ctx.until(&a, "x", 1, 3).await;
    writer.release().await?;
    let mut held = Vec::new();
    for reader in readers {
        held.push(soon("a reader", reader).await??);
    }
    assert!(held.iter().all(clinch_core::Guard::is_valid));
    Ok(())
}

async fn a_dead_reader_frees_the_writer(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let reader = a.rwlock("x").read().lease(ctx.lease()).acquire().await?;
    a.faults.cut(true);
    let write = b.rwlock("x").write().lease(ctx.long());
    let writer = soon("the writer", write.acquire()).await?;
    assert!(!reader.is_valid() && writer.is_valid());
    Ok(())
}

async fn not_a_mutex(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let reader = a.rwlock("x").read().lease(ctx.long()).acquire().await?;
    let refused = b.lock("x").lease(ctx.long()).try_acquire().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Mismatch);
    reader.release().await?;
    assert!(b.lock("x").lease(ctx.long()).try_acquire().await?.is_some());
    Ok(())
}

async fn mixed_load(ctx: &Ctx) -> Outcome {
    const WRITER: u64 = 1 << 32;
    let clients = [ctx.client().await, ctx.client().await];
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for task in 0..12 {
        let rw = clients[task % 2].rwlock("x");
        let writes = task % 4 == 0;
        let lock = if writes { rw.write() } else { rw.read() };
        let (lock, inside) = (lock.lease(ctx.long()), inside.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..8 {
                let guard = lock.acquire().await.unwrap();
                let weight = if writes { WRITER } else { 1 };
                let seen = inside.fetch_add(weight, Ordering::SeqCst);
                assert!(seen < WRITER, "a writer was inside");
                assert!(!writes || seen == 0, "readers were inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(weight, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        soon("a task", task).await?;
    }
    Ok(())
}
