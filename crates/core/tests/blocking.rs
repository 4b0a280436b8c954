//! Every method of the blocking API, each with what its async twin would give.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::thread;
use std::time::Duration;

use clinch_core::blocking::Clinch;
use clinch_core::store::EventKind;
use clinch_core::{ErrorKind, Leadership, LostReason, Mode, ReleaseReply, Result, Status};

const SHORT: Duration = Duration::from_millis(10);
/// For what must succeed: the claim of a wait that timed out is withdrawn in the background.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_lock() -> Result<()> {
    let clinch = Clinch::memory();
    let lock = clinch
        .lock("a")
        .lease(Duration::from_secs(20))
        .lock_delay(Duration::from_secs(5))
        .max_hold(Duration::from_secs(60))
        .label("test")
        .fair();
    let guard = lock.acquire()?;
    assert!(guard.is_valid() && guard.status() == Status::Held);
    assert!(guard.remaining() > Duration::from_secs(15));
    assert_eq!(
        (guard.name().as_str(), guard.mode()),
        ("a", Mode::Exclusive)
    );
    assert!(guard.predecessor().is_none());
    assert!(clinch.check(&guard.sequencer())?.is_current());
    assert!(lock.try_acquire()?.is_none());
    assert!(lock.acquire_within(SHORT)?.is_none());
    assert_eq!(guard.release()?, ReleaseReply::Released);
    let guard = lock.acquire_within(LONG)?.unwrap();
    assert_eq!(clinch.evict("a", Some(guard.token()))?.seqs.len(), 1);
    assert_eq!(guard.lost(), LostReason::Evicted);
    Ok(())
}

#[test]
fn a_dropped_guard_has_been_released() -> Result<()> {
    let clinch = Clinch::memory();
    drop(clinch.lock("a").acquire()?);
    drop(clinch.all(["b", "c"]).acquire()?);
    drop(clinch.election("d").campaign("me")?);
    assert!(clinch.list("")?.is_empty());
    Ok(())
}

#[test]
fn owners() -> Result<()> {
    let clinch = Clinch::memory();
    let (me, lock) = (clinch.owner(), clinch.lock("a"));
    let outer = lock.clone().as_owner(&me).acquire()?;
    assert_eq!(outer.owner(), me.id());
    assert!(lock.try_acquire()?.is_none());
    let inner = me.sync_scope(|| lock.try_acquire())?.unwrap();
    assert_eq!(outer.token(), inner.token());
    let mine = clinch.lock("b").as_thread();
    let held = mine.acquire()?;
    assert_eq!(mine.acquire()?.token(), held.token());
    let names = ["b", "c"];
    assert!(clinch.all(names).as_thread().try_acquire()?.is_some());
    assert!(clinch.all(names).as_owner(&me).try_acquire()?.is_none());
    Ok(())
}

#[test]
fn readers_and_a_writer() -> Result<()> {
    let clinch = Clinch::memory();
    let config = clinch.rwlock("config");
    let readers = (config.read().acquire()?, config.read().acquire()?);
    assert!(config.write().acquire_within(SHORT)?.is_none());
    drop(readers);
    let writer = config.write().acquire_within(LONG)?.unwrap();
    assert!(writer.mode() == Mode::Write && config.read().try_acquire()?.is_none());
    Ok(())
}

#[test]
fn permits() -> Result<()> {
    let clinch = Clinch::memory();
    let workers = clinch.semaphore("workers", 3);
    let two = workers.permits(2).acquire()?;
    let one = workers.acquire()?;
    assert!(workers.try_acquire()?.is_none());
    assert!(workers.acquire_within(SHORT)?.is_none());
    drop(one);
    let one = workers.acquire_within(LONG)?.unwrap();
    drop(two);
    assert!(workers.try_acquire()?.is_some() && one.is_valid());
    Ok(())
}

#[test]
fn several_names() -> Result<()> {
    let clinch = Clinch::memory();
    let both = clinch.all(["b", "a"]).label("test").acquire()?;
    assert!(both.is_valid() && both.remaining() > Duration::from_secs(15));
    assert_eq!(both.guards()[0].name().as_str(), "a");
    assert!(clinch.all(["b", "c"]).try_acquire()?.is_none());
    assert!(clinch.all(["b", "c"]).acquire_within(SHORT)?.is_none());
    clinch.evict("b", None)?;
    let (name, reason) = both.lost();
    assert_eq!((name.as_str(), reason), ("b", LostReason::Evicted));
    let evicted = ReleaseReply::WasLost(LostReason::Evicted);
    assert_eq!(both.release()?, [ReleaseReply::Released, evicted]);
    Ok(())
}

#[test]
fn an_election() -> Result<()> {
    let clinch = Clinch::memory();
    let election = clinch
        .election("scheduler")
        .lease(Duration::from_secs(20))
        .lock_delay(Duration::ZERO)
        .max_hold(Duration::from_secs(60))
        .label("node 7")
        .fair();
    let mut observer = election.observe()?;
    assert_eq!(observer.next(), Some(Leadership::Vacant));
    let leader = election.try_campaign("starting")?.unwrap();
    assert!(election.try_campaign("other")?.is_none());
    assert!(election.campaign_within("other", SHORT)?.is_none());
    leader.proclaim("ready")?;
    let seen = election.leader()?.unwrap();
    assert_eq!(seen.label.as_deref(), Some("node 7"));
    assert_eq!(seen.value.as_deref(), Some("ready"));
    let ready = |state: &Leadership| matches!(state, Leadership::Led(seen) if seen.value.as_deref() == Some("ready"));
    assert!(observer.find(ready).is_some());
    let second = thread::scope(|threads| {
        let waits = threads.spawn(|| election.campaign("second"));
        assert_eq!(leader.resign()?, ReleaseReply::Released);
        waits.join().unwrap()
    })?;
    clinch.evict("scheduler", None)?;
    assert_eq!(second.lost(), LostReason::Evicted);
    clinch.close()?;
    assert!(observer.by_ref().count() < 10 && observer.next().is_none());
    assert_eq!(observer.error().unwrap().kind(), ErrorKind::Closed);
    Ok(())
}

#[test]
fn what_operators_see() -> Result<()> {
    let clinch = Clinch::memory();
    let mut events = clinch.events("orders/")?;
    let guard = clinch.lock("orders/42").acquire()?;
    let event = events.next().unwrap();
    assert_eq!(
        (event.kind, event.token),
        (EventKind::Granted, Some(guard.token()))
    );
    assert_eq!(clinch.list("orders/")?.len(), 1);
    let seen = clinch.inspect("orders/42")?.unwrap();
    assert_eq!(seen.holders[0].client, clinch.client_id());
    assert!(clinch.doctor()?.len() < 10 && clinch.info().scheme == "memory");
    assert!(clinch.clock().now() <= clinch.as_async().clock().now());
    clinch.close()?;
    assert_eq!(guard.status(), Status::Lost(LostReason::Closed));
    assert_eq!(
        clinch.lock("a").acquire().unwrap_err().kind(),
        ErrorKind::Closed
    );
    Ok(())
}
