//! A forked child has copies of its parent's guards, and no right to them.

use clinch_core::blocking::block_on;

use super::prelude::*;
use crate::fork::in_child;

cases! { "forked";
    a_child_holds_nothing [] "every look at a guard in a forked child says that it is not held";
    a_child_releases_nothing [] "a release, a drop and a close in a child leave the parent's holds alone";
    a_child_acquires_nothing [] "the parent's client is refused in a child";
}

/// Fails in the child, where a panic message could hang on a lock.
fn check(holds: bool, what: &str) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(format!("in the child: {what}")),
    }
}

async fn a_child_holds_nothing(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let guard = a.lock("x").lease(ctx.long()).acquire().await?;
    in_child(|| {
        check(!guard.is_valid(), "it is valid")?;
        let lost = Status::Lost(LostReason::Forked);
        check(guard.status() == lost, "its status is held")?;
        check(guard.remaining().is_zero(), "it has time left")?;
        let reason = block_on(guard.lost());
        check(reason == LostReason::Forked, "lost() gives another reason")?;
        let work = block_on(guard.run_until_lost(std::future::pending::<()>()));
        check(
            work == Err(LostReason::Forked),
            "run_until_lost() runs the work",
        )
    })?;
    assert_eq!(guard.status(), Status::Held);
    assert_eq!(guard.release().await?, ReleaseReply::Released);
    Ok(())
}

async fn a_child_releases_nothing(ctx: &Ctx) -> Outcome {
    let (a, b) = (ctx.client().await, ctx.client().await);
    let lease = ctx.lease() * 5;
    let mut released = Some(a.lock("x").lease(lease).acquire().await?);
    let mut dropped = Some(a.lock("y").lease(lease).acquire().await?);
    in_child(|| {
        let reply = block_on(released.take().ok_or("no guard")?.release());
        let forked = Ok(ReleaseReply::WasLost(LostReason::Forked));
        check(reply.map_err(|_| ()) == forked, "release() releases")?;
        drop(dropped.take());
        check(block_on(a.close()).is_ok(), "close() fails")
    })?;
    for (guard, name) in [(released, "x"), (dropped, "y")] {
        let guard = guard.expect("the child took a copy");
        ctx.until(&b, name, 1, 0).await;
        // It goes on being renewed.
        let deadline = || a.clock().now() + guard.remaining();
        let before = deadline();
        eventually("a renewal", async || deadline() > before + lease / 6).await;
        assert_eq!(guard.release().await?, ReleaseReply::Released);
    }
    Ok(())
}

async fn a_child_acquires_nothing(ctx: &Ctx) -> Outcome {
    let a = ctx.client().await;
    let lock = a.lock("x").lease(ctx.long());
    lock.acquire().await?.release().await?;
    in_child(|| {
        let refused = |error: clinch_core::Error| error.kind() == ErrorKind::Closed;
        let tried = block_on(lock.try_acquire()).err();
        check(tried.is_some_and(refused), "try_acquire() works")?;
        let acquired = block_on(lock.acquire()).err();
        check(acquired.is_some_and(refused), "acquire() works")
    })?;
    assert!(lock.try_acquire().await?.is_some());
    Ok(())
}
