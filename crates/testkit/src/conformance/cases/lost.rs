//! The holder learns of a loss in time.

use super::prelude::*;

cases! { "lost";
    cut_off_holder_learns_in_time [] "no later than the deadline, with no contact, and before anybody else enters";
    a_paused_holder_reads_false_first [] "SIGSTOP past the lease: the first is_valid() after SIGCONT is false";
    validity_needs_no_thread [] "with the keeper blocked, is_valid() is false after the deadline by the clock alone";
    a_paused_holder_cannot_release_the_next [Need::Processes] "it was replaced meanwhile, and its release changes nothing";
    an_evicted_holder_learns [Need::Has(Capability::Evict)] "an eviction is noticed with the next renewal";
    a_forgotten_holder_learns [] "a store that lost its data says so, and the holder is told";
    lost_is_final [] "once lost it stays lost, also when the store is back";
    run_stops_the_work [] "guard.run drops its future when the lock is lost";
    run_gives_the_output [] "guard.run gives the output of a future that ends in time";
    one_hold_of_many [] "a hold whose renewals fail is lost alone: the others of its client live on";
    hung_store [] "a store that never answers a renewal costs the lock, not the signal";
    late_renewal_counts_from_its_start [] "an answer that comes late does not make the lease longer";
}

async fn cut_off_holder_learns_in_time(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    let next = b.lock("x").lease(ctx.long());
    let next = tokio::spawn(async move { next.acquire().await });
    ctx.until(&b, "x", 1, 1).await;
    a.faults.cut(true);
    // A renewal may still be under way; none is begun any more.
    let latest = a.clock().now() + ctx.lease();
    eventually("the deadline", async || {
        let now = a.clock().now();
        let valid = guard.is_valid();
        assert!(!valid || now < latest, "valid after the deadline");
        !valid
    })
    .await;
    let reason = soon("the signal", guard.lost()).await;
    assert_eq!(reason, LostReason::Unrenewed);
    assert_eq!(guard.status(), Status::Lost(reason));
    assert_eq!(guard.remaining(), Duration::ZERO);
    let next = soon("the next", next).await??;
    assert!(next.is_valid());
    a.faults.cut(false);
    assert_eq!(guard.release().await?, ReleaseReply::WasLost(reason));
    assert!(next.is_valid(), "a late release freed the next holder");
    ctx.until(&b, "x", 1, 0).await;
    Ok(())
}

async fn a_paused_holder_reads_false_first(ctx: &Ctx) -> Outcome {
    let mut holder = ctx.holder().await;
    holder
        .acquire(&Claiming::lock("x", ctx.lease()))
        .await
        .expect("free");
    holder.watch_for_pause("x", ctx.lease()).await;
    holder.stop().await;
    let clock = clinch_core::Clock::boot();
    clock.sleep(ctx.lease() + ctx.lease() / 2).await;
    holder.cont();
    let first = holder.reply().await;
    assert_eq!(
        first["valid"], false,
        "it believes in a lease that has passed"
    );
    assert_ne!(holder.release("x").await, "released");
    Ok(())
}

async fn validity_needs_no_thread(ctx: &Ctx) -> Outcome {
    // In a process of its own: the keeper is shared by all clients of a process.
    let mut holder = ctx.holder().await;
    let claiming = Claiming::lock("x", ctx.lease());
    holder.acquire(&claiming).await.expect("free");
    let valid = holder.valid_with_blocked_keeper("x", ctx.lease()).await;
    assert!(!valid, "it takes an event to make it false");
    Ok(())
}

async fn a_paused_holder_cannot_release_the_next(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let mut holder = ctx.holder().await;
    let old = holder.acquire(&Claiming::lock("x", ctx.lease())).await;
    holder.watch_for_pause("x", ctx.lease()).await;
    holder.stop().await;
    let lock = a.lock("x").lease(ctx.long());
    let guard = soon("the end of its lease", lock.acquire()).await?;
    ctx.expect_newer(guard.token().get(), old.expect("free"));
    // It may have been renewed just before it was stopped: it must stand for a whole lease.
    a.clock().sleep(ctx.lease()).await;
    holder.cont();
    assert_eq!(holder.reply().await["valid"], false);
    assert_ne!(holder.release("x").await, "released");
    assert!(guard.is_valid());
    ctx.until(&a, "x", 1, 0).await;
    Ok(())
}

async fn an_evicted_holder_learns(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.lease() * 3).acquire().await?;
    let evicted = b.evict("x", Some(guard.token())).await?;
    assert_eq!(evicted.seqs, [guard.token().seq()]);
    let reason = soon("the signal", guard.lost()).await;
    assert_eq!(reason, LostReason::Evicted);
    assert!(!guard.is_valid());
    Ok(())
}

async fn a_forgotten_holder_learns(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.lease() * 3).acquire().await?;
    if ctx.place().lose_data_live().await? {
        assert_eq!(
            soon("the signal", guard.lost()).await,
            LostReason::Forgotten
        );
    } else {
        // The engine cannot lose its data under a client; what it answers then can be asked below
        // the API: a hold that it has never seen.
        let hold = clinch_core::store::Hold::new(
            guard.name().clone(),
            a.claim("x", ctx.lease()).request,
            guard.token().seq() + 1,
        );
        let renewal = clinch_core::store::Renewal::new(hold, ctx.lease());
        let replies = a.store().renew(&[renewal]).await?;
        let lost = clinch_core::store::RenewReply::Lost(LostReason::Forgotten);
        assert_eq!(replies, [lost]);
    }
    Ok(())
}

async fn lost_is_final(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    a.faults.cut(true);
    soon("the signal", guard.lost()).await;
    a.faults.cut(false);
    let end = a.clock().now() + ctx.lease();
    while a.clock().now() < end {
        assert!(!guard.is_valid(), "a lost hold came back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(matches!(guard.release().await?, ReleaseReply::WasLost(_)));
    Ok(())
}

async fn run_stops_the_work(ctx: &Ctx) -> Outcome {
    struct Tell(Arc<AtomicU64>);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.store(1, Ordering::SeqCst);
        }
    }
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    let dropped = Arc::new(AtomicU64::new(0));
    let tell = Tell(dropped.clone());
    let work = async move {
        let _tell = tell;
        std::future::pending::<()>().await;
    };
    a.faults.cut(true);
    let outcome = soon("the end of the work", guard.run_until_lost(work)).await;
    assert_eq!(outcome.unwrap_err(), LostReason::Unrenewed);
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "the work goes on");
    Ok(())
}

async fn run_gives_the_output(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    assert_eq!(guard.run_until_lost(async { 7 }).await, Ok(7));
    assert_eq!(
        guard.run(async { Ok::<_, clinch_core::Error>(7) }).await?,
        7
    );
    let fails = async { Err::<(), _>(clinch_core::Error::invalid("the work")) };
    assert_eq!(guard.run(fails).await.unwrap_err().message(), "the work");
    Ok(())
}

async fn hung_store(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let guard = a.lock("x").lease(ctx.lease()).acquire().await?;
    a.faults.always(Some(Fault::HangBefore));
    let next = b.lock("x").lease(ctx.long());
    let next = soon("the next", next.acquire()).await?;
    assert!(!guard.is_valid() && next.is_valid());
    assert_eq!(
        soon("the signal", guard.lost()).await,
        LostReason::Unrenewed
    );
    a.faults.always(None);
    Ok(())
}

async fn late_renewal_counts_from_its_start(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    // Longer than the margin of a hundredth, and long before the first renewal.
    let (lease, late) = (Duration::from_secs(30), Duration::from_secs(1));
    a.faults.inject(Op::Claim, Fault::DelayAfter(late));
    let before = a.clock().now();
    let guard = a.lock("x").lease(lease).acquire().await?;
    let deadline = a.clock().now() + guard.remaining();
    assert!(deadline.since(before) <= lease, "counted from the answer");
    Ok(())
}

async fn one_hold_of_many(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let lease = ctx.lease() * 6;
    let mut others = Vec::new();
    for n in 0..4 {
        others.push(a.lock(format!("y{n}")).lease(lease).acquire().await?);
    }
    let doomed = a.lock("x").lease(lease).acquire().await?;
    a.faults.fail_renewals_of(&["x"]);
    let reason = soon("the loss", doomed.lost()).await;
    assert_eq!(reason, LostReason::Unrenewed);
    for guard in others {
        assert!(guard.is_valid(), "{} is lost, too", guard.name());
        assert_eq!(guard.release().await?, ReleaseReply::Released);
    }
    Ok(())
}
