//! A request with an old number changes nothing (below the API).

use clinch_core::store::{ClaimReply, Hold, RenewReply, Renewal};

use super::prelude::*;

cases! { "stale";
    old_release [] "a release with an old number leaves the next holder alone";
    release_with_a_wrong_request [] "the right number with another request changes nothing";
    old_renewal [] "a renewal with an old number neither revives nor extends";
    renewal_never_creates [] "a renewal of a name that nobody holds creates nothing";
    renewal_with_a_wrong_request [] "the right number with another request changes nothing";
    old_eviction [Need::Has(Capability::Evict)] "an eviction of an old number leaves the next holder alone";
    renewals_in_one_batch [] "each renewal of a batch has its own answer, in order";
}

/// A hold of `x` for a client, below the API.
async fn hold(client: &Client, lease: Duration) -> Hold {
    let claim = client.claim("x", lease);
    let reply = client.store().claim(&claim).await.unwrap();
    let ClaimReply::Granted(grant) = reply else {
        panic!("not granted: {reply:?}");
    };
    Hold::new(claim.name, claim.request, grant.seq)
}

fn renewal(hold: &Hold, lease: Duration) -> Renewal {
    Renewal {
        hold: hold.clone(),
        lease,
        value: None,
    }
}

/// Asserts that `x` is held by this hold alone, with about this much lease left.
async fn untouched(ctx: &Ctx, client: &Client, hold: &Hold, lease: Duration) {
    let view = client.store().inspect(&hold.name).await.unwrap();
    let view = view.expect("it is held");
    ctx.expect_holder(&view, hold.seq);
    assert!(view.holders[0].lease_left <= lease);
}

async fn old_release(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let old = hold(&a, ctx.long()).await;
    a.store().release(&old).await?;
    let new = hold(&b, ctx.long()).await;
    a.store().release(&old).await?;
    let mixed = Hold {
        seq: new.seq,
        ..old.clone()
    };
    let reply = a.store().release(&mixed).await?;
    assert!(matches!(reply, ReleaseReply::WasLost(_)));
    untouched(ctx, &b, &new, ctx.long()).await;
    assert_eq!(b.store().release(&new).await?, ReleaseReply::Released);
    Ok(())
}

async fn release_with_a_wrong_request(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let new = hold(&b, ctx.long()).await;
    let guess = Hold {
        request: a.claim("x", ctx.long()).request,
        ..new.clone()
    };
    let reply = a.store().release(&guess).await?;
    assert!(matches!(reply, ReleaseReply::WasLost(_)));
    let guess = Hold {
        seq: new.seq + 1,
        ..new.clone()
    };
    let reply = b.store().release(&guess).await?;
    assert!(matches!(reply, ReleaseReply::WasLost(_)));
    untouched(ctx, &b, &new, ctx.long()).await;
    b.store().release(&new).await?;
    Ok(())
}

async fn old_renewal(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let old = hold(&a, ctx.long()).await;
    a.store().release(&old).await?;
    let reply = a.store().renew(&[renewal(&old, ctx.long())]).await?;
    assert!(matches!(reply[..], [RenewReply::Lost(_)]));
    ctx.until(&b, "x", 0, 0).await;
    let new = hold(&b, ctx.long()).await;
    let reply = a.store().renew(&[renewal(&old, ctx.long() * 10)]).await?;
    assert!(matches!(reply[..], [RenewReply::Lost(_)]));
    untouched(ctx, &b, &new, ctx.long()).await;
    b.store().release(&new).await?;
    Ok(())
}

async fn renewal_never_creates(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let never = Hold::new(
        clinch_core::Name::new("x")?,
        a.claim("x", ctx.long()).request,
        7,
    );
    let reply = a.store().renew(&[renewal(&never, ctx.long())]).await?;
    assert_eq!(reply, [RenewReply::Lost(LostReason::Forgotten)]);
    assert!(ctx.scan(&a).await.is_empty());
    Ok(())
}

async fn renewal_with_a_wrong_request(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let new = hold(&b, ctx.long()).await;
    for guess in [
        Hold {
            request: a.claim("x", ctx.long()).request,
            ..new.clone()
        },
        Hold {
            seq: new.seq + 1,
            ..new.clone()
        },
    ] {
        let reply = a.store().renew(&[renewal(&guess, ctx.long() * 10)]).await?;
        assert!(matches!(reply[..], [RenewReply::Lost(_)]));
        untouched(ctx, &b, &new, ctx.long()).await;
    }
    b.store().release(&new).await?;
    Ok(())
}

async fn old_eviction(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let old = hold(&a, ctx.long()).await;
    a.store().release(&old).await?;
    let new = hold(&b, ctx.long()).await;
    let evicted = a.store().evict(&old.name, Some(old.seq)).await?;
    assert!(evicted.seqs.is_empty());
    untouched(ctx, &b, &new, ctx.long()).await;
    b.store().release(&new).await?;
    Ok(())
}

async fn renewals_in_one_batch(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let held = hold(&a, ctx.lease() * 3).await;
    let wrong = Hold {
        seq: held.seq + 1,
        ..held.clone()
    };
    let batch = [&wrong, &held, &wrong].map(|hold| renewal(hold, ctx.long()));
    let replies = a.store().renew(&batch).await?;
    assert!(matches!(
        replies[..],
        [RenewReply::Lost(_), RenewReply::Held, RenewReply::Lost(_)]
    ));
    let view = a.store().inspect(&held.name).await?.expect("it is held");
    assert!(
        view.holders[0].lease_left > ctx.lease() * 4,
        "it was extended"
    );
    assert!(a.store().renew(&[]).await?.is_empty());
    a.store().release(&held).await?;
    Ok(())
}
