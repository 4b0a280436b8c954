//! After an unclean end, nobody else enters for a while.

use clinch_core::Token;
use clinch_core::store::{Evicted, PartyView};

use super::prelude::*;

const DELAY: Need = Need::Has(Capability::LockDelay);
const EVICT: Need = Need::Has(Capability::Evict);
/// Longer than any case waits.
const MINUTE: Duration = Duration::from_secs(60);

cases! { "lock_delay";
    after_a_lease_ran_out [DELAY] "the next one enters not before the lease and the delay have passed";
    none_after_a_release [DELAY] "a clean release frees at once";
    none_after_a_drop [DELAY] "a dropped guard is a clean release too";
    after_an_eviction [DELAY, EVICT] "an eviction is an unclean end";
    after_a_kill [DELAY, Need::Processes] "so is the death of the process";
    a_try_says_no_meanwhile [DELAY, EVICT] "a try during the delay says no";
    it_outlives_its_client [DELAY, EVICT] "the delay stands when the clients have gone and come again";
    too_long_is_refused [DELAY] "a delay beyond a minute is an error";
    it_is_seen [DELAY, EVICT] "a name with nothing but a running delay is listed, with who held it and its token";
    it_is_seen_after_a_lease_ran_out [DELAY, EVICT] "so is one whose holder was not heard of any more, and an operator ends it";
    an_operator_ends_it [DELAY, EVICT] "evicting the token of the ended hold ends its delay, and the waiter enters";
    without_a_token_all_are_ended [DELAY, EVICT] "where nobody holds, an eviction without a token ends every delay";
    another_token_ends_nothing [DELAY, EVICT] "a token that is not that of the ended hold ends nothing";
    its_token_spares_the_next_holder [DELAY, EVICT] "the token of a hold whose delay is over breaks nobody";
}

async fn after_a_lease_ran_out(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let delay = ctx.lease();
    let lock = a.lock("x").lease(ctx.lease()).lock_delay(delay);
    let guard = lock.acquire().await?;
    a.faults.cut(true);
    // The guard is void before its lease ends at the store; a renewal under way makes that later.
    let void = a.clock().now() + guard.remaining();
    let lock = b.lock("x").lease(ctx.long());
    let next = soon("the end of the delay", lock.acquire()).await?;
    let entered = b.clock().now();
    assert!(
        entered >= void + delay,
        "too early by {:?}",
        (void + delay).since(entered)
    );
    assert!(next.is_valid());
    Ok(())
}

async fn none_after_a_release(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let minute = Duration::from_secs(60);
    let guard = a
        .lock("x")
        .lease(ctx.long())
        .lock_delay(minute)
        .acquire()
        .await?;
    guard.release().await?;
    let next = b.lock("x").lease(ctx.long()).try_acquire().await?;
    assert!(next.is_some());
    Ok(())
}

async fn none_after_a_drop(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let minute = Duration::from_secs(60);
    drop(
        a.lock("x")
            .lease(ctx.long())
            .lock_delay(minute)
            .acquire()
            .await?,
    );
    let next = b
        .lock("x")
        .lease(ctx.long())
        .acquire_within(PATIENCE)
        .await?;
    assert!(next.is_some());
    Ok(())
}

async fn after_an_eviction(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let delay = ctx.lease();
    let guard = a
        .lock("x")
        .lease(ctx.long())
        .lock_delay(delay)
        .acquire()
        .await?;
    let before = b.clock().now();
    b.evict("x", None).await?;
    let next = b.lock("x").lease(ctx.long());
    let next = soon("the end of the delay", next.acquire()).await?;
    let waited = b.clock().now().since(before);
    assert!(waited >= delay, "it entered after {waited:?}");
    assert!(next.token() > guard.token());
    Ok(())
}

async fn after_a_kill(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut dead = ctx.holder().await;
    let delay = ctx.lease() * 2;
    let claiming = Claiming::lock("x", ctx.lease()).lock_delay(delay);
    dead.acquire(&claiming).await.expect("free");
    let before = a.clock().now();
    dead.kill();
    let next = a.lock("x").lease(ctx.long());
    let next = soon("the end of the delay", next.acquire()).await?;
    let waited = a.clock().now().since(before);
    assert!(waited >= delay, "it entered after {waited:?}");
    assert!(next.is_valid());
    Ok(())
}

async fn a_try_says_no_meanwhile(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let minute = Duration::from_secs(60);
    let _guard = a
        .lock("x")
        .lease(ctx.long())
        .lock_delay(minute)
        .acquire()
        .await?;
    b.evict("x", None).await?;
    let lock = b.lock("x").lease(ctx.long());
    assert!(lock.try_acquire().await?.is_none());
    let short = Duration::from_millis(60);
    assert!(soon("the end", lock.acquire_within(short)).await?.is_none());
    b.evict("x", None).await?;
    Ok(())
}

async fn it_outlives_its_client(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let delay = Duration::from_secs(3);
    let guard = a
        .lock("x")
        .lease(ctx.long())
        .lock_delay(delay)
        .acquire()
        .await?;
    let before = a.clock().now();
    a.evict("x", None).await?;
    drop(guard);
    ctx.close_all().await;
    ctx.place().restart().await?;
    let b = ctx.client().await;
    let next = b.lock("x").lease(ctx.long());
    let _next = soon("the end of the delay", next.acquire()).await?;
    assert!(b.clock().now().since(before) >= delay, "the delay was lost");
    Ok(())
}

async fn too_long_is_refused(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let lock = a.lock("x").lease(ctx.long());
    let refused = lock.lock_delay(Duration::from_secs(61)).try_acquire().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    Ok(())
}

/// Takes `x` and has it evicted, so that only its delay is left. Gives its token, and how it was shown
/// while it was held.
async fn delayed(ctx: &Ctx, a: &Client, by: &Client) -> clinch_core::Result<(Token, PartyView)> {
    let lock = a.lock("x").lease(ctx.long()).lock_delay(MINUTE);
    let guard = lock.label("nightly").acquire().await?;
    let view = by.inspect("x").await?.expect("it is held");
    let shown = view.holders.first().cloned().expect("a holder");
    let evicted = by.evict("x", Some(guard.token())).await?;
    assert_eq!(evicted.seqs, [guard.token().seq()]);
    assert!(evicted.delays.is_empty(), "{evicted:?}");
    Ok((guard.token(), shown))
}

async fn it_is_seen(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let (token, held) = delayed(ctx, &a, &b).await?;
    let mut views = vec![b.inspect("x").await?.expect("a delay runs")];
    if ctx.has(Capability::List) {
        views.extend(b.list("").await?);
        assert_eq!(views.len(), 2, "it is listed");
    }
    for view in views {
        assert_eq!((view.name.as_str(), view.limit), ("x", 1));
        assert!(view.holders.is_empty() && view.waiters.is_empty());
        let [ended] = &view.delayed[..] else {
            panic!("one delay: {view:?}");
        };
        assert_eq!((&ended.owner, ended.client), (&held.owner, held.client));
        assert_eq!((&ended.host, ended.pid), (&held.host, held.pid));
        assert_eq!((&ended.label, ended.units), (&held.label, 1));
        assert_eq!(ended.token.map(Token::seq), Some(token.seq()));
        // Stores may let it run a moment longer.
        let left = view.delayed_for().expect("a time");
        assert!(!left.is_zero() && left < MINUTE * 2, "{left:?}");
    }
    assert_eq!(b.evict("x", Some(token)).await?.delays, [token.seq()]);
    assert!(b.inspect("x").await?.is_none());
    Ok(())
}

async fn it_is_seen_after_a_lease_ran_out(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let lock = a.lock("x").lease(ctx.lease()).lock_delay(MINUTE);
    let guard = lock.acquire().await?;
    a.faults.cut(true);
    soon("the loss", guard.lost()).await;
    let token = guard.token();
    // Some stores cannot tell a hold that has just run out from one that is held.
    let mut ended = Vec::new();
    eventually("its delay is ended", async || {
        let view = b.inspect("x").await.unwrap().expect("it is there");
        let parties = view.holders.iter().chain(&view.delayed);
        let mut seqs = parties.filter_map(|party| party.token.map(Token::seq));
        assert!(seqs.any(|seq| seq == token.seq()), "{view:?}");
        ended = b.evict("x", Some(token)).await.unwrap().delays;
        !ended.is_empty()
    })
    .await;
    assert_eq!(ended, [token.seq()]);
    let next = b.lock("x").lease(ctx.long()).try_acquire().await?;
    assert!(next.is_some());
    Ok(())
}

async fn an_operator_ends_it(ctx: &Ctx) -> Outcome {
    let (a, b, c) = (ctx.client().await, ctx.client().await, ctx.client().await);
    let (token, _) = delayed(ctx, &a, &b).await?;
    let lock = c.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    if ctx.has(Capability::Queue) {
        ctx.until(&b, "x", 0, 1).await;
    }
    assert_eq!(b.evict("x", Some(token)).await?.delays, [token.seq()]);
    let next = soon("the waiter", waiter).await??;
    assert!(next.is_valid());
    ctx.expect_newer(next.token(), token);
    Ok(())
}

async fn without_a_token_all_are_ended(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let (token, _) = delayed(ctx, &a, &b).await?;
    let evicted = b.evict("x", None).await?;
    assert_eq!((evicted.seqs, evicted.delays), (vec![], vec![token.seq()]));
    let next = b.lock("x").lease(ctx.long()).try_acquire().await?;
    assert!(next.is_some());
    Ok(())
}

async fn another_token_ends_nothing(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let old = a.lock("x").lease(ctx.long()).acquire().await?;
    let stale = old.token();
    old.release().await?;
    let (token, _) = delayed(ctx, &a, &b).await?;
    assert_eq!(b.evict("x", Some(stale)).await?, Evicted::default());
    let lock = b.lock("x").lease(ctx.long());
    assert!(lock.try_acquire().await?.is_none());
    let view = b.inspect("x").await?.expect("a delay runs");
    assert_eq!(view.delayed.len(), 1);
    assert_eq!(b.evict("x", Some(token)).await?.delays, [token.seq()]);
    Ok(())
}

async fn its_token_spares_the_next_holder(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let (token, _) = delayed(ctx, &a, &b).await?;
    b.evict("x", Some(token)).await?;
    let lock = b.lock("x").lease(ctx.long()).lock_delay(MINUTE);
    let next = lock.acquire().await?;
    // As a copy of the same request that comes late does.
    assert_eq!(a.evict("x", Some(token)).await?, Evicted::default());
    ctx.until(&a, "x", 1, 0).await;
    assert!(next.release().await?.was_held());
    Ok(())
}
