//! List and inspect show what is there.

use super::prelude::*;

const LIST: Need = Need::Has(Capability::List);

cases! { "inspect";
    shows_the_holder [LIST] "owner, client, host, process, label, units, token, age and lease of a holder";
    shows_the_queue [LIST, Need::Has(Capability::Queue)] "waiters in order, with their labels";
    shows_a_semaphore [LIST, Need::Has(Capability::Semaphores)] "limit and units of each holder";
    shows_a_read_write_lock [LIST, Need::Has(Capability::Shared)] "limit and units of a reader and a writer";
    shows_nothing_that_is_not [LIST] "a name that nobody holds or waits for is not there";
    shows_other_processes [LIST, Need::Processes] "the process of a holder elsewhere";
    shows_no_dead_lease [LIST] "a lease that ran out is not shown";
    doctor_answers [] "doctor has something to say, or nothing, but no error";
}

async fn shows_the_holder(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let label = "ünï \"quoted\" 100%";
    let lock = a.lock("x").lease(ctx.long()).label(label);
    let guard = lock.acquire().await?;
    for view in [
        b.inspect("x").await?.expect("held"),
        b.list("x").await?.remove(0),
    ] {
        assert_eq!((view.name.as_str(), view.limit), ("x", 1));
        assert!(view.waiters.is_empty());
        let [holder] = &view.holders[..] else {
            panic!("one holder");
        };
        assert_eq!(&holder.owner, guard.owner());
        assert_eq!(holder.client, a.client_id());
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.host.is_empty());
        assert_eq!(holder.label.as_deref(), Some(label));
        assert_eq!(holder.units, 1);
        assert_eq!(holder.token.map(|t| t.seq()), Some(guard.token().seq()));
        assert!(holder.age < ctx.long());
        assert!(holder.lease_left > Duration::ZERO && holder.lease_left <= ctx.long());
    }
    Ok(())
}

async fn shows_the_queue(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let _guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let mut waiters = Vec::new();
    for (n, client) in [&b, &a, &b].into_iter().enumerate() {
        let lock = client.lock("x").lease(ctx.long()).fair();
        let lock = lock.label(format!("waiter {n}"));
        waiters.push(tokio::spawn(async move { lock.acquire().await }));
        ctx.until(&a, "x", 1, n + 1).await;
    }
    let view = a.inspect("x").await?.expect("held");
    let labels: Vec<_> = view.waiters.iter().map(|w| w.label.as_deref()).collect();
    assert_eq!(
        labels,
        [Some("waiter 0"), Some("waiter 1"), Some("waiter 2")]
    );
    let clients: Vec<_> = view.waiters.iter().map(|w| w.client).collect();
    assert_eq!(clients, [b.client_id(), a.client_id(), b.client_id()]);
    assert!(view.waiters.iter().all(|w| w.token.is_none()));
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

async fn shows_a_semaphore(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let semaphore = a.semaphore("x", 5);
    let _two = semaphore.permits(2).lease(ctx.long()).acquire().await?;
    let _one = semaphore.permits(1).lease(ctx.long()).acquire().await?;
    let view = a.inspect("x").await?.expect("held");
    assert_eq!(view.limit, 5);
    let units: Vec<_> = view.holders.iter().map(|h| h.units).collect();
    assert_eq!(units, [2, 1], "oldest first");
    Ok(())
}

async fn shows_a_read_write_lock(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let reader = a.rwlock("x").read().lease(ctx.long()).acquire().await?;
    let view = a.inspect("x").await?.expect("held");
    assert_eq!((view.limit, view.holders[0].units), (u32::MAX, 1));
    reader.release().await?;
    let _writer = a.rwlock("x").write().lease(ctx.long()).acquire().await?;
    let view = a.inspect("x").await?.expect("held");
    assert_eq!((view.limit, view.holders[0].units), (u32::MAX, u32::MAX));
    Ok(())
}

async fn shows_nothing_that_is_not(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    assert!(a.list("").await?.is_empty());
    assert!(a.inspect("x").await?.is_none());
    a.lock("x")
        .lease(ctx.long())
        .acquire()
        .await?
        .release()
        .await?;
    assert!(a.list("").await?.is_empty());
    assert!(a.inspect("x").await?.is_none());
    Ok(())
}

async fn shows_other_processes(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut holder = ctx.holder().await;
    let token = holder.acquire(&Claiming::lock("x", ctx.long())).await;
    let view = a.inspect("x").await?.expect("held");
    assert_eq!(view.holders[0].pid, holder.pid());
    assert_eq!(view.holders[0].token.map(clinch_core::Token::get), token);
    assert_eq!(holder.release("x").await, "released");
    Ok(())
}

async fn shows_no_dead_lease(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    a.faults.cut(true);
    eventually("it is gone", async || {
        let seen = b.inspect("x").await.unwrap().is_some();
        assert!(seen || !guard.is_valid(), "gone while it is valid");
        !seen && b.list("").await.unwrap().is_empty()
    })
    .await;
    Ok(())
}

async fn doctor_answers(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    for finding in a.doctor().await? {
        assert!(!finding.subject.is_empty() && !finding.message.is_empty());
    }
    Ok(())
}
