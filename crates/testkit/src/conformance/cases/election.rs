//! One leader, seen by all.

use clinch_core::Leadership;

use super::prelude::*;

const VALUES: Need = Need::Has(Capability::Values);
const EVENTS: Need = Need::Has(Capability::Events);
const TOKENS: Need = Need::Has(Capability::Tokens);

cases! { "election";
    one_leader [VALUES, TOKENS] "a second candidate waits, and follows when the first resigns";
    try_says_no [VALUES] "who only tries is told that another leads";
    the_value_is_seen_and_changed [VALUES, TOKENS] "others see what the leader publishes, and what it publishes next";
    an_old_leader_cannot_publish [VALUES, TOKENS, Need::Has(Capability::Evict)] "who was evicted is told so and changes nothing";
    observers_follow [VALUES, EVENTS, TOKENS] "an observer sees the present leader, each next one and the vacancy, in order";
    observers_see_a_dead_leader_go [VALUES, EVENTS, TOKENS] "an observer sees a leader that was cut off replaced";
    observers_survive_an_outage [VALUES, EVENTS, TOKENS] "an observer that is cut off says what has changed once the store is back";
    observers_end_with_their_client [VALUES, EVENTS, TOKENS] "an observer of a closed client ends, and says why";
    a_value_has_a_limit [VALUES] "a value that is too long is refused, in a campaign and in a proclamation";
    terms_rise_under_churn [VALUES, EVENTS, TOKENS] "terms that observers see never go down";
}

async fn one_leader(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let first = a.election("e").lease(ctx.long()).campaign("a").await?;
    let second = b.election("e").lease(ctx.long());
    let second = tokio::spawn(async move { second.campaign("b").await });
    ctx.until(&a, "e", 1, 1).await;
    let seen = b.election("e").leader().await?.expect("somebody leads");
    assert_eq!(seen.value.as_deref(), Some("a"));
    assert_eq!(seen.token, first.token());
    let term = first.token();
    assert_eq!(first.resign().await?, ReleaseReply::Released);
    let second = soon("the second", second).await??;
    assert!(second.token() > term && second.is_valid());
    let seen = a.election("e").leader().await?.expect("somebody leads");
    assert_eq!(seen.value.as_deref(), Some("b"));
    second.resign().await?;
    assert!(a.election("e").leader().await?.is_none());
    Ok(())
}

async fn try_says_no(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let leader = a.election("e").lease(ctx.long()).campaign("a").await?;
    let election = b.election("e").lease(ctx.long());
    assert!(election.try_campaign("b").await?.is_none());
    let short = Duration::from_millis(50);
    assert!(election.campaign_within("b", short).await?.is_none());
    // Its place in the queue is given up in the background.
    ctx.until(&a, "e", 1, 0).await;
    leader.resign().await?;
    assert!(election.try_campaign("b").await?.is_some());
    Ok(())
}

async fn the_value_is_seen_and_changed(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let leader = a.election("e").lease(ctx.long()).campaign("one").await?;
    for value in ["two", "", "drei: ünï, \"quoted\" 100%\n"] {
        leader.proclaim(value).await?;
        let seen = b.election("e").leader().await?.expect("somebody leads");
        assert_eq!(seen.value.as_deref(), Some(value));
        assert_eq!(seen.token, leader.token(), "the term is the same");
    }
    assert!(leader.is_valid());
    Ok(())
}

async fn an_old_leader_cannot_publish(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let old = a.election("e").lease(ctx.long()).campaign("old").await?;
    b.evict("e", None).await?;
    let new = b.election("e").lease(ctx.long()).campaign("new").await?;
    let refused = old.proclaim("still me").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost);
    assert!(!old.is_valid() && new.is_valid());
    let seen = a.election("e").leader().await?.expect("somebody leads");
    assert_eq!(seen.value.as_deref(), Some("new"));
    Ok(())
}

async fn observers_follow(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut observer = b.election("e").observe().await?;
    let mut next = async || soon("a change", observer.next()).await.expect("it goes on");
    assert_eq!(next().await, Leadership::Vacant);
    let leader = a.election("e").lease(ctx.long()).campaign("one").await?;
    let Leadership::Led(seen) = next().await else {
        panic!("somebody leads");
    };
    assert_eq!(
        (seen.value.as_deref(), seen.token),
        (Some("one"), leader.token())
    );
    leader.proclaim("two").await?;
    let Leadership::Led(seen) = next().await else {
        panic!("somebody leads");
    };
    assert_eq!(
        (seen.value.as_deref(), seen.token),
        (Some("two"), leader.token())
    );
    leader.resign().await?;
    assert_eq!(next().await, Leadership::Vacant);
    Ok(())
}

async fn observers_see_a_dead_leader_go(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let dead = a.election("e").lease(ctx.lease()).campaign("dead").await?;
    let mut observer = b.election("e").observe().await?;
    let first = soon("the leader", observer.next()).await;
    assert!(matches!(first, Some(Leadership::Led(seen)) if seen.token == dead.token()));
    a.faults.cut(true);
    let election = b.election("e").lease(ctx.long());
    let next = soon("the next leader", election.campaign("next")).await?;
    assert!(!dead.is_valid(), "two lead");
    loop {
        let change = soon("a change", observer.next()).await;
        match change.expect("it goes on") {
            Leadership::Vacant => {}
            Leadership::Led(seen) if seen.token == dead.token() => {}
            Leadership::Led(seen) => {
                assert_eq!(seen.token, next.token());
                return Ok(());
            }
        }
    }
}

async fn observers_survive_an_outage(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let mut observer = b.election("e").observe().await?;
    // Out of reach at its first look, and during a change.
    b.faults.cut(true);
    let first = tokio::time::timeout(Duration::from_millis(100), observer.next()).await;
    assert!(first.is_err(), "it does not end");
    b.faults.cut(false);
    assert_eq!(
        soon("a look", observer.next()).await,
        Some(Leadership::Vacant)
    );
    b.faults.cut(true);
    let leader = a.election("e").lease(ctx.long()).campaign("one").await?;
    let waited = tokio::time::timeout(Duration::from_millis(100), observer.next()).await;
    b.faults.cut(false);
    let change = match waited {
        Ok(change) => change, // the events themselves are not cut
        Err(_) => soon("the leader", observer.next()).await,
    };
    assert!(matches!(change, Some(Leadership::Led(seen)) if seen.token == leader.token()));
    Ok(())
}

async fn observers_end_with_their_client(ctx: &Ctx) -> Outcome {
    let b = ctx.client().await;
    let mut observer = b.election("e").observe().await?;
    assert_eq!(
        soon("a look", observer.next()).await,
        Some(Leadership::Vacant)
    );
    let (end, closed) = tokio::join!(soon("the end", observer.next()), b.close());
    closed?;
    assert_eq!(end, None);
    let kind = observer.error().map(clinch_core::Error::kind);
    assert_eq!(kind, Some(ErrorKind::Closed));
    Ok(())
}

async fn a_value_has_a_limit(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let (most, more) = ("x".repeat(4096), "x".repeat(4097));
    let election = a.election("e").lease(ctx.long());
    let refused = election.campaign(more.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let leader = election.campaign("").await?;
    leader.proclaim(most).await?;
    let refused = leader.proclaim(more).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(leader.is_valid());
    Ok(())
}

async fn terms_rise_under_churn(ctx: &Ctx) -> Outcome {
    const TERMS: usize = 12;
    let watcher = ctx.client().await;
    let mut observer = watcher.election("e").observe().await?;
    let mut tasks = Vec::new();
    for n in 0..3 {
        let election = ctx.client().await.election("e").lease(ctx.long());
        tasks.push(tokio::spawn(async move {
            for _ in 0..TERMS / 3 {
                let leader = election.campaign(format!("candidate {n}")).await.unwrap();
                leader.resign().await.unwrap();
            }
        }));
    }
    let mut terms = Vec::new();
    while terms.len() < TERMS {
        // The first look may come late and miss terms that were over by then.
        match tokio::time::timeout(Duration::from_secs(5), observer.next()).await {
            Ok(Some(Leadership::Led(seen))) => terms.push(seen.token),
            Ok(Some(Leadership::Vacant)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    for task in tasks {
        soon("a candidate", task).await?;
    }
    assert!(terms.is_sorted(), "{terms:?}");
    assert!(!terms.is_empty());
    Ok(())
}
