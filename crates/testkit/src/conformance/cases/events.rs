//! Events tell what happened, in order.

use clinch_core::store::{Event, EventKind, Events};

use super::prelude::*;

const EVENTS: Need = Need::Has(Capability::Events);

cases! { "events";
    in_order [EVENTS] "granted, queued, released, granted, released: in this order, with the right owners";
    of_an_eviction [EVENTS, Need::Has(Capability::Evict)] "evicted, then granted";
    of_an_expiry [EVENTS] "expired, then granted";
    of_a_withdrawal [EVENTS] "queued, then withdrawn";
    only_the_prefix [EVENTS] "other names are not told";
    from_another_process [EVENTS, Need::Processes] "what another process does is told too";
    several_listeners [EVENTS] "each listener hears everything";
}

async fn next(events: &mut Events) -> Event {
    soon("an event", events.next()).await.expect("it goes on")
}

/// Expects these kinds, in this order.
async fn expect(events: &mut Events, kinds: &[EventKind]) -> Vec<Event> {
    let mut seen = Vec::new();
    for _ in kinds {
        seen.push(next(events).await);
    }
    let told: Vec<_> = seen.iter().map(|event| event.kind).collect();
    assert_eq!(told, kinds);
    seen
}

async fn in_order(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut events = b.events("x").await?;
    let first = a.lock("x").lease(ctx.long()).label("one").acquire().await?;
    let lock = b.lock("x").lease(ctx.long()).label("two");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    let (token, owner) = (first.token(), first.owner().clone());
    first.release().await?;
    let second = soon("the waiter", waiter).await??;
    let (then, other) = (second.token(), second.owner().clone());
    second.release().await?;
    use EventKind::{Granted, Queued, Released};
    let seen = expect(&mut events, &[Granted, Queued, Released, Granted, Released]).await;
    let owners: Vec<_> = seen.iter().map(|event| event.owner.clone()).collect();
    let expected = [&owner, &other, &owner, &other, &other].map(Clone::clone);
    assert_eq!(owners, expected);
    let tokens: Vec<_> = seen.iter().map(|event| event.token).collect();
    assert_eq!(
        tokens,
        [Some(token), None, Some(token), Some(then), Some(then)]
    );
    assert_eq!(seen[1].label.as_deref(), Some("two"));
    assert!(seen.iter().all(|event| event.pid == std::process::id()));
    assert!(seen.iter().all(|event| event.name.as_str() == "x"));
    Ok(())
}

async fn of_an_eviction(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut events = b.events("").await?;
    let _old = a.lock("x").lease(ctx.long()).acquire().await?;
    b.evict("x", None).await?;
    let _new = b.lock("x").lease(ctx.long()).acquire().await?;
    use EventKind::{Evicted, Granted};
    expect(&mut events, &[Granted, Evicted, Granted]).await;
    Ok(())
}

async fn of_an_expiry(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let old = a.lock("x").lease(ctx.lease()).acquire().await?;
    let mut events = b.events("x").await?;
    a.faults.cut(true);
    let lock = b.lock("x").lease(ctx.long());
    let _new = soon("the expiry", lock.acquire()).await?;
    use EventKind::{Expired, Granted, Queued};
    let mut seen = expect(&mut events, &[Queued, Expired, Granted]).await;
    assert_eq!(seen.remove(1).token, Some(old.token()));
    Ok(())
}

async fn of_a_withdrawal(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let mut events = a.events("x").await?;
    let lock = b.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    ctx.until(&a, "x", 1, 1).await;
    waiter.abort();
    expect(&mut events, &[EventKind::Queued, EventKind::Withdrawn]).await;
    guard.release().await?;
    expect(&mut events, &[EventKind::Released]).await;
    Ok(())
}

async fn only_the_prefix(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut events = a.events("a/").await?;
    for name in ["b", "a", "A/1", "a/1", "ab", "a/2"] {
        a.lock(name)
            .lease(ctx.long())
            .acquire()
            .await?
            .release()
            .await?;
    }
    for name in ["a/1", "a/1", "a/2", "a/2"] {
        assert_eq!(next(&mut events).await.name.as_str(), name);
    }
    Ok(())
}

async fn from_another_process(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut events = a.events("x").await?;
    let mut holder = ctx.holder().await;
    holder
        .acquire(&Claiming::lock("x", ctx.long()))
        .await
        .expect("free");
    holder.release("x").await;
    let seen = expect(&mut events, &[EventKind::Granted, EventKind::Released]).await;
    assert!(seen.iter().all(|event| event.pid == holder.pid()));
    Ok(())
}

async fn several_listeners(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut listeners = [
        a.events("").await?,
        b.events("").await?,
        b.events("x").await?,
    ];
    for _ in 0..20 {
        a.lock("x")
            .lease(ctx.long())
            .acquire()
            .await?
            .release()
            .await?;
    }
    for events in &mut listeners {
        for _ in 0..20 {
            expect(events, &[EventKind::Granted, EventKind::Released]).await;
        }
    }
    Ok(())
}
