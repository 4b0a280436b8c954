//! Tokens rise with every grant.

use std::sync::Mutex;

use clinch_core::Token;
use clinch_core::store::Freshness;

use super::prelude::*;

const TOKENS: Need = Need::Has(Capability::Tokens);

cases! { "tokens";
    rise_over_ten_thousand_grants [TOKENS] "10,000 grants to 8 tasks of 2 clients, each greater than the one before";
    rise_from_client_to_client [TOKENS] "500 grants to two clients in turn, one at a time";
    rise_over_restarts [TOKENS] "they rise when every client has gone and the store is opened again";
    rise_after_data_loss [TOKENS] "they rise when the store has lost everything it knew";
    rise_after_every_kind_of_end [TOKENS, Need::Has(Capability::Evict)] "they rise after a release, an expiry and an eviction";
    fit_a_signed_column [TOKENS] "they fit a signed 64-bit number";
    check_knows_the_present_holder [TOKENS] "a sequencer is current while it is held and stale after";
    check_knows_a_lost_holder [TOKENS] "a sequencer is stale once its lease ran out, also with nobody after it";
    a_sequencer_ends_the_hand_over [TOKENS] "a guard whose sequencer was taken out is released at the store";
}

async fn rise_over_ten_thousand_grants(ctx: &Ctx) -> Outcome {
    const EACH: usize = 10_000 / 8;
    let clients = [ctx.client().await, ctx.client().await];
    let tokens = Arc::new(Mutex::new(Vec::<Token>::with_capacity(10_000)));
    let mut tasks = Vec::new();
    for task in 0..8 {
        let (lock, tokens) = (clients[task % 2].lock("x"), tokens.clone());
        let lock = lock.lease(ctx.long());
        tasks.push(tokio::spawn(async move {
            for _ in 0..EACH {
                let guard = lock.acquire().await.unwrap();
                // Under the lock, so this is the order of the grants.
                tokens.lock().unwrap().push(guard.token());
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await?;
    }
    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 10_000);
    assert!(tokens.is_sorted_by(|a, b| a < b), "a token did not rise");
    Ok(())
}

async fn rise_from_client_to_client(ctx: &Ctx) -> Outcome {
    let clients = [ctx.client().await, ctx.client().await];
    let mut last = None;
    for n in 0..500 {
        let guard = clients[n % 2].lock("x").lease(ctx.long()).acquire().await?;
        assert!(Some(guard.token()) > last);
        last = Some(guard.token());
        guard.release().await?;
    }
    Ok(())
}

/// Takes and releases `x` with a new client; its token.
async fn one_grant(ctx: &Ctx) -> clinch_core::Result<Token> {
    let client = ctx.client().await;
    let guard = client.lock("x").lease(ctx.long()).acquire().await?;
    let token = guard.token();
    guard.release().await?;
    Ok(token)
}

async fn rise_over_restarts(ctx: &Ctx) -> Outcome {
    let mut last = None;
    for _ in 0..5 {
        let token = one_grant(ctx).await?;
        assert!(Some(token) > last, "a restart lowered the token");
        last = Some(token);
        ctx.close_all().await;
        ctx.place().restart().await?;
    }
    Ok(())
}

async fn rise_after_data_loss(ctx: &Ctx) -> Outcome {
    let mut last = None;
    for _ in 0..3 {
        // Many grants of other names, so that a counter alone would be far ahead.
        let client = ctx.client().await;
        for n in 0..20 {
            let lock = client.lock(format!("y/{n}")).lease(ctx.long());
            lock.acquire().await?.release().await?;
        }
        let token = one_grant(ctx).await?;
        assert!(Some(token) > last, "the loss of data lowered the token");
        last = Some(token);
        ctx.close_all().await;
        assert!(
            ctx.place().lose_data().await?,
            "the place cannot lose its data"
        );
    }
    Ok(())
}

async fn rise_after_every_kind_of_end(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut last = one_grant(ctx).await?;
    let evicted = a.lock("x").lease(ctx.long()).acquire().await?;
    assert!(evicted.token() > last);
    last = evicted.token();
    b.evict("x", None).await?;
    let expired = a.lock("x").lease(ctx.lease());
    let expired = soon("after the eviction", expired.acquire()).await?;
    assert!(expired.token() > last);
    last = expired.token();
    a.faults.cut(true);
    let next = b.lock("x").lease(ctx.long());
    assert!(soon("after the expiry", next.acquire()).await?.token() > last);
    Ok(())
}

async fn fit_a_signed_column(ctx: &Ctx) -> Outcome {
    let token = one_grant(ctx).await?;
    assert!(i64::try_from(token.get()).is_ok_and(|n| n > 0));
    assert!(token.seq() <= clinch_core::MAX_SEQ);
    assert_eq!(Token::new(token.seq(), token.local()), Some(token));
    Ok(())
}

async fn check_knows_the_present_holder(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let first = guard.sequencer();
    for client in [&a, &b] {
        assert_eq!(client.check(&first).await?, Freshness::Current);
    }
    guard.release().await?;
    assert_eq!(b.check(&first).await?, Freshness::Stale);
    let guard = b.lock("x").lease(ctx.long()).acquire().await?;
    let second = guard.sequencer();
    assert_eq!(a.check(&first).await?, Freshness::Stale);
    assert_eq!(a.check(&second).await?, Freshness::Current);
    let printed = second.to_string().parse()?;
    assert_eq!(a.check(&printed).await?, Freshness::Current);
    Ok(())
}

async fn check_knows_a_lost_holder(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    let sequencer = guard.sequencer();
    a.faults.cut(true);
    eventually("it is stale", async || {
        let fresh = b.check(&sequencer).await.unwrap().is_current();
        assert!(fresh || !guard.is_valid(), "stale while it is valid");
        !fresh
    })
    .await;
    Ok(())
}

async fn a_sequencer_ends_the_hand_over(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    let sequencer = guard.sequencer();
    let lock = a.lock("x").lease(ctx.long());
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::task::yield_now().await;
    guard.release().await?;
    let next = soon("the waiter", waiter).await??;
    assert_eq!(a.check(&sequencer).await?, Freshness::Stale);
    assert!(next.token().seq() > sequencer.token().seq());
    assert!(a.check(&next.sequencer()).await?.is_current());
    Ok(())
}
