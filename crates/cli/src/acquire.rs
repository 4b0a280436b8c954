//! Claims a lock as the command line says, and waits for it in view of the user.

use std::pin::pin;
use std::time::Duration;

use clinch::{BootTime, Clinch, Clock, ErrorKind, Guard, Lock, Name, Result};

use crate::args::{HoldArgs, KindArgs, WaitArgs};
use crate::child::Signals;
use crate::context::Context;
use crate::failure::{Failure, exit};
use crate::output::{complain, plain};
use crate::patience::Patience;
use crate::wait_line::{WaitLine, why_taken};

/// How waiting ended.
#[derive(Debug)]
pub(crate) enum Claimed<T> {
    /// It is held.
    Held(T),
    /// Not in time.
    TimedOut,
    /// A signal ended it first: this exit status.
    Interrupted(i32),
}

/// Waits for `claim` while it shows what it waits for and heeds signals. An outage of the store is
/// waited for while `again` allows it. When it returns without a
/// hold, the claim is being withdrawn; closing the client waits for that.
pub(crate) async fn wait_for<T>(
    (context, clinch, name): (&Context, &Clinch, &Name),
    signals: &mut Signals,
    patience: Patience,
    again: impl Fn() -> bool,
    claim: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<Claimed<T>, Failure> {
    let line = WaitLine::new(context, clinch, name);
    let mut claim = pin!(patience.claim(clinch.clock(), again, || line.clear(), claim));
    let claimed = tokio::select! {
        biased;
        claimed = &mut claim => match claimed? {
            Some(held) => Claimed::Held(held),
            None => Claimed::TimedOut,
        },
        signal = signals.end(|| line.clear()) => Claimed::Interrupted(exit::SIGNAL + signal),
        never = line.follow() => match never {},
    };
    line.clear();
    Ok(claimed)
}

/// A lock as the options of `run` and `hold` say it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) name: &'a Name,
    pub(crate) kind: KindArgs,
    pub(crate) wait: WaitArgs,
    pub(crate) hold: &'a HoldArgs,
}

impl Waiting<'_> {
    /// Takes it.
    pub(crate) async fn acquire(
        self,
        context: &Context,
        clinch: &Clinch,
        signals: &mut Signals,
        patience: Patience,
    ) -> Result<Claimed<Guard>, Failure> {
        let Self {
            name,
            kind,
            wait,
            hold,
        } = self;
        let ways = Ways::new((context, clinch), name, kind, wait, hold);
        let until = wait.wait.map(|span| clinch.clock().now() + span);
        let claim = async || ways.acquire(clinch.clock(), wait, until).await;
        let client = (context, clinch, name);
        let again = || !wait.no_wait && in_time(clinch.clock(), until);
        wait_for(client, signals, patience, again, claim).await
    }
}

/// One or two ways to take the same name, the wanted one first.
#[derive(Debug)]
struct Ways {
    name: Name,
    wanted: Lock,
    /// A name in use as a mutex can be taken alone by somebody who would have shared it, and a
    /// read-write lock's write side by somebody who wanted a mutex. Both exclude no less.
    other: Option<Lock>,
    shared: bool,
    quiet: bool,
}

impl Ways {
    /// The ways that the options allow.
    fn new(
        (context, clinch): (&Context, &Clinch),
        name: &Name,
        kind: KindArgs,
        wait: WaitArgs,
        hold: &HoldArgs,
    ) -> Self {
        let with = |lock: Lock| {
            let lock = hold_options(lock, hold);
            if wait.fair { lock.fair() } else { lock }
        };
        let mutex = || with(clinch.lock(name));
        let (wanted, other) = match kind {
            KindArgs {
                permits: Some(p), ..
            } => (with(clinch.semaphore(name, p.limit).permits(p.units)), None),
            KindArgs { shared: true, .. } => (with(clinch.rwlock(name).read()), Some(mutex())),
            KindArgs {
                exclusive: true, ..
            } => (with(clinch.rwlock(name).write()), Some(mutex())),
            _ => (mutex(), Some(with(clinch.rwlock(name).write()))),
        };
        let quiet = context.quiet || context.json;
        Self {
            name: name.clone(),
            wanted,
            other,
            shared: kind.shared,
            quiet,
        }
    }

    /// Takes the name in the wanted way, or in the other one if that is how it is in use.
    async fn acquire(
        &self,
        clock: &Clock,
        wait: WaitArgs,
        until: Option<BootTime>,
    ) -> Result<Option<Guard>> {
        let mut mismatch = None;
        // The kind can change between two looks, and then back: but not for ever.
        for turn in 0..6 {
            let way = match &self.other {
                Some(other) if turn % 2 == 1 => other,
                None if turn == 1 => break,
                _ => &self.wanted,
            };
            let claimed = match until {
                _ if wait.no_wait => way.try_acquire().await,
                Some(until) => way.acquire_within(until.since(clock.now())).await,
                None => way.acquire().await.map(Some),
            };
            match claimed {
                Err(error) if error.kind() == ErrorKind::Mismatch => {
                    if turn == 0 && self.shared && !self.quiet {
                        let name = plain(self.name.as_str());
                        complain(&format!(
                            "clinch: {name} is in use as a mutex: taking it alone"
                        ));
                    }
                    mismatch = Some(error);
                }
                claimed => return claimed,
            }
        }
        mismatch.map_or(Ok(None), Err)
    }
}

/// Whether a moment, if there is one, is still to come.
pub(crate) fn in_time(clock: &Clock, until: Option<BootTime>) -> bool {
    until.is_none_or(|until| clock.now() < until)
}

fn hold_options(mut lock: Lock, hold: &HoldArgs) -> Lock {
    if let Some(lease) = hold.lease {
        lock = lock.lease(lease);
    }
    if let Some(delay) = hold.lock_delay {
        lock = lock.lock_delay(delay);
    }
    if let Some(span) = hold.max_hold {
        lock = lock.max_hold(span);
    }
    if let Some(label) = &hold.label {
        lock = lock.label(label.as_str());
    }
    lock
}

/// Says that the lock was not acquired in time, and who has it.
pub(crate) async fn not_acquired(
    clinch: &Clinch,
    name: &Name,
    waited: Option<Duration>,
) -> Failure {
    let mut message = match waited {
        Some(span) => format!(
            "not acquired within {}",
            clinch::store::format_duration(span)
        ),
        None => "not acquired: it is taken".to_owned(),
    };
    if let Ok(Some(view)) = clinch.inspect(name.as_str()).await
        && let Some(why) = why_taken(&view)
    {
        message += &format!("; {why}");
    }
    Failure::new(exit::NOT_ACQUIRED, "not-acquired", message).with_name(name.as_str())
}

/// Says that a hold was lost.
pub(crate) fn lost(name: &Name, reason: clinch::LostReason) -> Failure {
    Failure::new(exit::LOST, "lost", format!("the lock was lost: {reason}"))
        .with_name(name.as_str())
}
