//! A user: asks for locks, keeps them for a while, gives them up.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::lab::{Held, Lab};
use super::plan::kinds;
use crate::{ErrorKind, Guard, Lock, ReleaseReply, Result, Status};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Wait,
    Try,
    Within(Duration),
}

pub(super) async fn user(lab: Rc<Lab>, me: usize) {
    let client = me % lab.plan.clients;
    for _ in 0..lab.plan.acts {
        if lab.ending.get() {
            return;
        }
        act(&lab, me, client).await;
    }
}

async fn act(lab: &Rc<Lab>, me: usize, client: usize) {
    let below = |bound| lab.rng.borrow_mut().below(bound);
    let all = kinds(lab.plan.names);
    let kind = all[below(all.len())];
    let max_hold = below(12) == 0;
    let how = match below(5) {
        0 => How::Within(Duration::from_millis([1, 200, 3000][below(3)])),
        1 | 2 => How::Try,
        _ => How::Wait,
    };
    let mut lock = lock(lab, client, kind);
    if max_hold {
        lock = lock.max_hold(Duration::from_millis([50, 3000][below(2)]));
    } else if below(6) == 0 {
        lock = lock.fair();
    }
    lab.note(|| {
        format!(
            "user{me} asks for {:?} ({} of {}), {how:?}",
            kind.0, kind.1, kind.2
        )
    });
    lab.net.state().tries.remove(&me);
    let Some(outcome) = cancellable(lab, me, claim(&lock, how)).await else {
        lab.note(|| format!("user{me}'s call was dropped"));
        return;
    };
    match outcome {
        Ok(Some(guard)) => {
            let token = guard.token();
            lab.note(|| format!("user{me} has {:?}, token {}", kind.0, lab.token_text(token)));
            if guard.is_valid() {
                lab.check_token(kind, token);
            } else {
                lab.violated(format!("user{me} is given a guard that is not valid"));
            }
            let held = Held {
                user: me,
                client,
                kind,
                guard: Rc::new(guard),
                max_hold,
            };
            keep(lab, me, held).await;
        }
        Ok(None) => {
            lab.note(|| format!("user{me} gets: not acquired"));
            deny(lab, me, how);
        }
        Err(error) => {
            lab.note(|| format!("user{me} gets: {error}"));
            // A grant that reaches a closed client is given back: it took effect for a moment.
            if !error.may_have_taken_effect() && error.kind() != ErrorKind::Closed {
                deny(lab, me, how);
            }
            if lab.plan.calm && !lab.sides[client].closing.get() {
                lab.violated(format!(
                    "user{me} got an error with nothing disturbed: {error}"
                ));
            }
        }
    }
}

fn lock(lab: &Lab, client: usize, (name, units, limit): (&str, u32, u32)) -> Lock {
    let clinch = &lab.sides[client].clinch;
    let lock = match (units, limit) {
        (1, 1) => clinch.lock(name),
        (1, u32::MAX) => clinch.rwlock(name).read(),
        (_, u32::MAX) => clinch.rwlock(name).write(),
        _ => clinch.semaphore(name, limit).permits(units),
    };
    lock.lease(lab.plan.lease).lock_delay(lab.plan.lock_delay)
}

async fn claim(lock: &Lock, how: How) -> Result<Option<Guard>> {
    match how {
        How::Wait => lock.acquire().await.map(Some),
        How::Try => lock.try_acquire().await,
        How::Within(span) => lock.acquire_within(span).await,
    }
}

/// The caller of a try was promised that it does not hold: none of its requests may be granted.
fn deny(lab: &Lab, me: usize, how: How) {
    if how == How::Try {
        let mut net = lab.net.state();
        let requests = net.tries.remove(&me).unwrap_or_default();
        net.denied.extend(requests);
    }
}

/// Keeps the guard for a while, then ends it in one way or another.
async fn keep(lab: &Rc<Lab>, me: usize, held: Held) {
    let below = |bound| lab.rng.borrow_mut().below(bound);
    let (client, kind, guard) = (held.client, held.kind, held.guard.clone());
    lab.held.borrow_mut().push(held);
    let clock = lab.sides[client].clock.clone();
    let long = u64::try_from(lab.plan.lease.as_millis()).unwrap_or(0);
    let turns = if lab.plan.storm { 0 } else { below(4) };
    for _ in 0..turns {
        match below(4) {
            0 => pause().await,
            1 => look(lab, me),
            2 => {
                let span = Duration::from_millis([1, 100, long / 2, long * 2][below(4)]);
                tokio::select! {
                    biased;
                    _ = guard.lost() => look(lab, me),
                    () = clock.sleep(span) => {}
                }
            }
            _ if below(1000) < lab.plan.evicts * 10 => {
                lab.note(|| format!("user{me} evicts {:?}", kind.0));
                let evicting = lab.sides[client].clinch.evict(kind.0, None);
                drop(cancellable(lab, me, evicting).await);
            }
            _ => pause().await,
        }
    }
    look(lab, me);
    let was_valid = guard.is_valid();
    let seq = guard.token().seq();
    lab.held.borrow_mut().retain(|held| held.user != me);
    let Ok(guard) = Rc::try_unwrap(guard) else {
        return lab.violated("the exploration kept a guard".to_owned());
    };
    if below(3) == 0 {
        lab.note(|| format!("user{me} drops its guard"));
        return drop(guard);
    }
    lab.note(|| format!("user{me} releases"));
    let reply = cancellable(lab, me, guard.release()).await;
    lab.note(|| format!("user{me}'s release: {reply:?}"));
    if let Some(Ok(ReleaseReply::WasLost(reason))) = reply
        && was_valid
        && lab.net.state().released.contains(&seq)
    {
        lab.violated(format!(
            "user{me}'s release took effect and is reported as lost: {reason}"
        ));
    }
    if let Some(Err(error)) = reply
        && lab.plan.calm
        && !lab.sides[client].closing.get()
    {
        lab.violated(format!(
            "user{me}'s release failed with nothing disturbed: {error}"
        ));
    }
}

/// Looks at the guard's status; a loss must have a cause.
fn look(lab: &Lab, me: usize) {
    let held = lab.held.borrow();
    for held in held.iter().filter(|held| held.user == me) {
        if let Status::Lost(reason) = held.guard.status() {
            lab.note(|| format!("user{me}'s guard is lost: {reason}"));
            lab.check_loss(held, reason);
        }
    }
}

/// Lets others run.
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

/// A call that the exploration may drop whenever it waits.
async fn cancellable<T>(lab: &Lab, me: usize, call: impl Future<Output = T>) -> Option<T> {
    let mut call = Box::pin(call);
    lab.calling[me].set(true);
    let outcome = std::future::poll_fn(|cx| {
        if lab.cancel[me].take() {
            return Poll::Ready(None);
        }
        call.as_mut().poll(cx).map(Some)
    })
    .await;
    lab.calling[me].set(false);
    drop(call);
    outcome
}
