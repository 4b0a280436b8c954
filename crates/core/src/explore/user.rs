//! A user: claims locks, holds them for a while, releases them.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::harness::{Harness, Held};
use super::plan::kinds;
use crate::{ErrorKind, Guard, Lock, ReleaseReply, Result, Status};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Acquire,
    Try,
    Within(Duration),
}

pub(super) async fn user(harness: Rc<Harness>, id: usize) {
    let client = id % harness.plan.clients;
    for _ in 0..harness.plan.calls {
        if harness.ending.get() {
            return;
        }
        run_call(&harness, id, client).await;
    }
}

async fn run_call(harness: &Rc<Harness>, id: usize, client: usize) {
    let below = |bound| harness.rng.borrow_mut().below(bound);
    let all = kinds(harness.plan.names);
    let kind = all[below(all.len())];
    let max_hold = below(12) == 0;
    let call = match below(5) {
        0 => Call::Within(Duration::from_millis([1, 200, 3000][below(3)])),
        1 | 2 => Call::Try,
        _ => Call::Acquire,
    };
    let mut lock = lock(harness, client, kind);
    if max_hold {
        lock = lock.max_hold(Duration::from_millis([50, 3000][below(2)]));
    } else if below(6) == 0 {
        lock = lock.fair();
    }
    harness.note(|| {
        format!(
            "user{id} claims {:?} ({} of {}), {call:?}",
            kind.0, kind.1, kind.2
        )
    });
    harness.net.state().tries.remove(&id);
    let Some(outcome) = cancellable(harness, id, claim(&lock, call)).await else {
        harness.note(|| format!("user{id}'s call was dropped"));
        return;
    };
    match outcome {
        Ok(Some(guard)) => {
            let token = guard.token();
            harness.note(|| {
                format!(
                    "user{id} has {:?}, token {}",
                    kind.0,
                    harness.token_text(token)
                )
            });
            if guard.is_valid() {
                harness.check_token(kind, token);
            } else {
                harness.violated(format!("user{id} is given a guard that is not valid"));
            }
            let held = Held {
                user: id,
                client,
                kind,
                guard: Rc::new(guard),
                max_hold,
            };
            keep(harness, id, held).await;
        }
        Ok(None) => {
            harness.note(|| format!("user{id} gets: not acquired"));
            record_denied(harness, id, call);
        }
        Err(error) => {
            harness.note(|| format!("user{id} gets: {error}"));
            // A grant that reaches a closed client is released: it took effect for a moment.
            if !error.may_have_taken_effect() && error.kind() != ErrorKind::Closed {
                record_denied(harness, id, call);
            }
            if harness.plan.calm && !harness.clients[client].closing.get() {
                harness.violated(format!(
                    "user{id} got an error with nothing disturbed: {error}"
                ));
            }
        }
    }
}

fn lock(harness: &Harness, client: usize, (name, units, limit): (&str, u32, u32)) -> Lock {
    let clinch = &harness.clients[client].clinch;
    let lock = match (units, limit) {
        (1, 1) => clinch.lock(name),
        (1, u32::MAX) => clinch.rwlock(name).read(),
        (_, u32::MAX) => clinch.rwlock(name).write(),
        _ => clinch.semaphore(name, limit).permits(units),
    };
    lock.lease(harness.plan.lease)
        .lock_delay(harness.plan.lock_delay)
}

async fn claim(lock: &Lock, call: Call) -> Result<Option<Guard>> {
    match call {
        Call::Acquire => lock.acquire().await.map(Some),
        Call::Try => lock.try_acquire().await,
        Call::Within(span) => lock.acquire_within(span).await,
    }
}

/// A try was reported as not acquired: none of its requests may be granted later.
fn record_denied(harness: &Harness, id: usize, call: Call) {
    if call == Call::Try {
        let mut net = harness.net.state();
        let requests = net.tries.remove(&id).unwrap_or_default();
        net.denied.extend(requests);
    }
}

/// Holds the guard for a while, then releases or drops it.
async fn keep(harness: &Rc<Harness>, id: usize, held: Held) {
    let below = |bound| harness.rng.borrow_mut().below(bound);
    let (client, kind, guard) = (held.client, held.kind, held.guard.clone());
    harness.held.borrow_mut().push(held);
    let clock = harness.clients[client].clock.clone();
    let lease_ms = u64::try_from(harness.plan.lease.as_millis()).unwrap_or(0);
    let rounds = if harness.plan.storm { 0 } else { below(4) };
    for _ in 0..rounds {
        match below(4) {
            0 => pause().await,
            1 => check_status(harness, id),
            2 => {
                let span = Duration::from_millis([1, 100, lease_ms / 2, lease_ms * 2][below(4)]);
                tokio::select! {
                    biased;
                    _ = guard.lost() => check_status(harness, id),
                    () = clock.sleep(span) => {}
                }
            }
            _ if below(1000) < harness.plan.evicts * 10 => {
                harness.note(|| format!("user{id} evicts {:?}", kind.0));
                let evicting = harness.clients[client].clinch.evict(kind.0, None);
                drop(cancellable(harness, id, evicting).await);
            }
            _ => pause().await,
        }
    }
    check_status(harness, id);
    let was_valid = guard.is_valid();
    let seq = guard.token().seq();
    harness.held.borrow_mut().retain(|held| held.user != id);
    let Ok(guard) = Rc::try_unwrap(guard) else {
        return harness.violated("the harness kept a guard".to_owned());
    };
    if below(3) == 0 {
        harness.note(|| format!("user{id} drops its guard"));
        return drop(guard);
    }
    harness.note(|| format!("user{id} releases"));
    let reply = cancellable(harness, id, guard.release()).await;
    harness.note(|| format!("user{id}'s release: {reply:?}"));
    if let Some(Ok(ReleaseReply::WasLost(reason))) = reply
        && was_valid
        && harness.net.state().released.contains(&seq)
    {
        harness.violated(format!(
            "user{id}'s release took effect and is reported as lost: {reason}"
        ));
    }
    if let Some(Err(error)) = reply
        && harness.plan.calm
        && !harness.clients[client].closing.get()
    {
        harness.violated(format!(
            "user{id}'s release failed with nothing disturbed: {error}"
        ));
    }
}

/// Checks the guard's status; a loss must have a cause.
fn check_status(harness: &Harness, id: usize) {
    let held = harness.held.borrow();
    for held in held.iter().filter(|held| held.user == id) {
        if let Status::Lost(reason) = held.guard.status() {
            harness.note(|| format!("user{id}'s guard is lost: {reason}"));
            harness.check_loss(held, reason);
        }
    }
}

/// Yields to other tasks.
async fn pause() {
    let waited = Cell::new(false);
    std::future::poll_fn(|cx| match waited.replace(true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// A call that the exploration may drop at any await.
async fn cancellable<T>(harness: &Harness, id: usize, call: impl Future<Output = T>) -> Option<T> {
    let mut call = Box::pin(call);
    harness.calling[id].set(true);
    let outcome = std::future::poll_fn(|cx| {
        if harness.cancel[id].take() {
            return Poll::Ready(None);
        }
        call.as_mut().poll(cx).map(Some)
    })
    .await;
    harness.calling[id].set(false);
    drop(call);
    outcome
}
