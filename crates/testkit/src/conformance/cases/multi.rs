//! All of several names, or none.

use super::prelude::*;

cases! { "multi";
    all_or_nothing [] "a try with one name taken holds none of the others";
    all_or_nothing_in_time [] "a wait that runs out on the last name holds none of the others";
    opposite_orders_do_not_deadlock [] "two clients that name the same locks in opposite orders both get on";
    a_name_twice [] "a name given twice is taken once";
    no_names [] "no names at all is an error";
    one_lost_is_all_lost [Need::Has(Capability::Evict)] "when one of them is lost the whole is, and it says which";
    lost_reply_part_way [] "a lost reply in the middle is repaired";
    an_error_part_way_gives_back [Need::Has(Capability::Semaphores)] "an error on the last name gives the others back";
}

async fn all_or_nothing(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let taken = b.lock("m").lease(ctx.long()).acquire().await?;
    let all = a.all(["z", "m", "a"]).lease(ctx.long());
    assert!(all.try_acquire().await?.is_none());
    for name in ["a", "z"] {
        let free = b.lock(name).lease(ctx.long()).try_acquire().await?;
        assert!(free.is_some(), "{name} is still held");
    }
    taken.release().await?;
    let all = all.acquire_within(PATIENCE).await?.expect("all are free");
    assert!(all.is_valid() && all.guards().len() == 3);
    let names: Vec<_> = all.guards().iter().map(|g| g.name().to_string()).collect();
    assert_eq!(names, ["a", "m", "z"], "in sorted order");
    let ends = all.release().await?;
    assert_eq!(ends, [ReleaseReply::Released; 3]);
    Ok(())
}

async fn all_or_nothing_in_time(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let taken = b.lock("z").lease(ctx.long()).acquire().await?;
    let all = a.all(["a", "z"]).lease(ctx.long());
    let mut span = Duration::from_millis(100);
    loop {
        match soon("the end", all.acquire_within(span)).await {
            Ok(all) => {
                assert!(all.is_none(), "one of them is held");
                break;
            }
            // So slow that not even the first was answered in time: that is another case.
            Err(error) if error.is_temporary() => span *= 2,
            Err(error) => return Err(error.into()),
        }
    }
    let free = b
        .lock("a")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(free.is_some());
    ctx.until(&b, "z", 1, 0).await;
    taken.release().await?;
    Ok(())
}

async fn opposite_orders_do_not_deadlock(ctx: &Ctx) -> Outcome {
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for names in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
        let client = ctx.client().await;
        let (inside, long) = (inside.clone(), ctx.long());
        tasks.push(tokio::spawn(async move {
            for _ in 0..15 {
                let all = client.all(names).lease(long).acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                all.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        soon("a client", task).await?;
    }
    Ok(())
}

async fn a_name_twice(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let all = a.all(["a", "b", "a"]).lease(ctx.long());
    let all = soon("it does not wait for itself", all.acquire()).await?;
    assert_eq!(all.guards().len(), 2);
    Ok(())
}

async fn no_names(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let none: [&str; 0] = [];
    let refused = a.all(none).lease(ctx.long()).try_acquire().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    Ok(())
}

async fn one_lost_is_all_lost(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let all = a.all(["a", "b"]).lease(ctx.lease() * 3);
    let all = all.acquire().await?;
    b.evict("b", None).await?;
    let (name, reason) = soon("the loss", all.lost()).await;
    assert_eq!((name.as_str(), reason), ("b", LostReason::Evicted));
    assert!(!all.is_valid() && all.remaining() == Duration::ZERO);
    let ends = all.release().await?;
    assert_eq!(ends.len(), 2);
    assert!(ends.contains(&ReleaseReply::WasLost(LostReason::Evicted)));
    Ok(())
}

async fn lost_reply_part_way(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    a.faults.inject(Op::Claim, Fault::ReplyLost);
    a.faults
        .inject(Op::Claim, Fault::DelayAfter(Duration::from_millis(20)));
    a.faults.inject(Op::Claim, Fault::ReplyLost);
    let all = a.all(["a", "b", "c"]).lease(ctx.long());
    let all = soon("all of them", all.acquire()).await?;
    assert!(all.is_valid());
    assert_eq!(ctx.scan(&a).await.len(), 3);
    all.release().await?;
    Ok(())
}

async fn an_error_part_way_gives_back(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let other = b.semaphore("z", 7).permits(1).lease(ctx.long());
    let _other = other.acquire().await?;
    let all = a.all(["a", "z"]).lease(ctx.long());
    let refused = soon("the error", all.acquire()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Mismatch);
    let free = b
        .lock("a")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(free.is_some());
    Ok(())
}
