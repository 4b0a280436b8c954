//! The lines of a history. The field names are an interface: see `docs/verification.md`.

use serde::{Deserialize, Serialize};

use crate::check::Property;

/// The version of the format.
pub(crate) const VERSION: u32 = 2;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "snake_case")]
pub(crate) enum Event {
    /// How the run was set up; the first line.
    Start(Start),
    /// An acquire that has ended, in whatever way.
    Acquire(Acquire),
    /// An acquire that is still waiting.
    Waiting(Waiting),
    /// A look at `is_valid` while holding.
    Look(Look),
    /// The holder was told of a loss.
    Lost(Lost),
    /// A release that has ended.
    Release(Release),
    /// One call of the engine to the store.
    Call(Call),
    /// What an observer of an election was told.
    Observe(Observe),
    /// A read or a write of a protected resource, in the order in which they reached it.
    Access(Access),
    /// How many requests of the workers the store answered within a while.
    Requests(Requests),
    /// A fault that was injected.
    Fault(Fault),
    /// The end of a worker process.
    Exit(Exit),
    /// What was found at the store after the end.
    Scan(Scan),
    /// The start of a worker process.
    Hired(Hired),
    /// A client of a worker process that has been closed.
    Closed(Closed),
    /// What a forked child saw of its parent's guard and client.
    Forked(Forked),
    /// A look at everything that the store lists, while the run goes on.
    Poll(Poll),
    /// A holder or a waiter that the store listed.
    Seen(Seen),
    /// The machine let us wait.
    Lag(Lag),
    /// From here on there are no faults.
    Healed { at: u64 },
    /// Every worker has ended, or will not.
    End { at: u64 },
}

/// How a run was set up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) version: u32,
    pub(crate) at: u64,
    /// Without secrets.
    pub(crate) store: String,
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    pub(crate) workloads: Vec<String>,
    /// The lease that locks have.
    pub(crate) lease: u64,
    /// Whether the store keeps a queue, first come, first served.
    pub(crate) queue: bool,
    /// Whether the store gives tokens.
    pub(crate) tokens: bool,
    /// The most requests that an acquisition may cost, renewals and release included, where that is
    /// promised and can be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    /// How much later than promised the machine may make things happen.
    pub(crate) grace: u64,
    /// Where a dead process is noticed at once, the longest time that this may take: no lease has to
    /// run out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_once: Option<u64>,
    /// For how long after its end a fault may keep renewals from being answered, if that is less than
    /// `grace`: a client has given up all that it waited for by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settle: Option<u64>,
    /// The namespace of the locks.
    #[serde(default)]
    pub(crate) namespace: String,
    /// What ran: clinch, the engine.
    pub(crate) versions: Vec<String>,
    /// Faults that could not be injected on this machine, and why.
    #[serde(default)]
    pub(crate) missing: Vec<String>,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Ok,
    /// It definitely did not happen.
    Fail,
    /// Nobody knows.
    Info,
}

/// How a lock was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// For as long as it takes.
    Wait,
    /// For a bounded time.
    Within,
    /// Without waiting.
    Try,
    /// By an owner that holds it already.
    Again,
    /// And the future was dropped before it ended.
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Acquire {
    pub(crate) op: u64,
    pub(crate) process: u32,
    /// Which client of its process asked.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) client: u32,
    pub(crate) lock: String,
    pub(crate) owner: String,
    pub(crate) kind: Kind,
    pub(crate) units: u32,
    pub(crate) limit: u32,
    /// The operation of a multi-lock that it is a part of, and the number of its names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<(u64, usize)>,
    pub(crate) lease: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) delay: u64,
    pub(crate) invoke: u64,
    pub(crate) complete: u64,
    pub(crate) outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    /// Until when the guard said, at `complete`, that it would be valid; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) op: u64,
    pub(crate) process: u32,
    pub(crate) lock: String,
    pub(crate) invoke: u64,
    pub(crate) at: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) op: u64,
    /// Read before the look: what was valid then was valid here.
    pub(crate) at: u64,
    pub(crate) valid: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lost {
    pub(crate) op: u64,
    pub(crate) at: u64,
    pub(crate) reason: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Release {
    pub(crate) op: u64,
    pub(crate) invoke: u64,
    pub(crate) complete: u64,
    pub(crate) outcome: Outcome,
    /// Whether the guard was valid just after `invoke` was read.
    pub(crate) valid: bool,
    /// Why it had been lost, if that is the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// What the engine asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallKind {
    Claim,
    Renew,
    Release,
    Withdraw,
}

/// What the store answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Granted,
    Queued,
    Busy,
    Gone,
    Held,
    Lost,
    Released,
    WasLost,
    Done,
    /// An error, and nothing happened.
    Refused,
    /// An error, and nobody knows.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) process: u32,
    pub(crate) call: CallKind,
    pub(crate) lock: String,
    pub(crate) request: String,
    pub(crate) send: u64,
    pub(crate) reply: u64,
    pub(crate) answer: Answer,
    /// Why the hold had been lost, if that is the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) lease: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Observe {
    pub(crate) process: u32,
    /// Which observer.
    pub(crate) op: u64,
    pub(crate) lock: String,
    pub(crate) at: u64,
    pub(crate) token: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) resource: String,
    /// Whether the resource checks tokens.
    pub(crate) fenced: bool,
    pub(crate) write: bool,
    pub(crate) op: u64,
    pub(crate) at: u64,
    pub(crate) token: u64,
    /// The value read, or the value on which a write was based.
    pub(crate) value: u64,
    pub(crate) accepted: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Requests {
    pub(crate) from: u64,
    pub(crate) at: u64,
    /// Of all processes together.
    pub(crate) count: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) kind: String,
    pub(crate) at: u64,
    pub(crate) until: u64,
    /// The process that it was done to, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
    /// The lock that it was done to, if it was one; only that is excused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lock: Option<String>,
    /// The slots of a cluster that it was done to, first and last; others are not delayed by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slots: Option<Vec<(u16, u16)>>,
    /// It delays nobody: whatever is late, it is not because of this.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) harmless: bool,
    /// What it means for renewals.
    #[serde(default, skip_serializing_if = "Renewals::are_delayed")]
    pub(crate) renewals: Renewals,
    /// What the store does not promise under it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) excuses: Vec<Property>,
    /// When that ends, if it is before `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) excused_until: Option<u64>,
}

/// What a fault means for renewals, where that is not what it means for everything else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Renewals {
    /// They are late like all else.
    #[default]
    Delayed,
    /// They go on: no hold is lost because of it.
    GoOn,
    /// They go on for holds that every server has: a minority is away.
    OfWholeHolds,
}

impl Renewals {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn are_delayed(&self) -> bool {
        *self == Self::Delayed
    }
}

/// The clock of a worker's clients runs fast, from its start.
pub(crate) const FAST: &str = "clock of a client runs 0.5 % fast";
/// The clock of a worker's clients runs slow, from its start.
pub(crate) const SLOW: &str = "clock of a client runs 0.5 % slow";
/// A worker forked, and the child uses its parent's client.
pub(crate) const FORKED: &str = "forked child uses its parent's client";
/// A worker has another boot id, from its start.
pub(crate) const OTHER_BOOT: &str = "process with another boot id";

impl Fault {
    /// Whether it is a condition that a worker has from its start, and nothing that happens to it.
    pub(crate) fn is_condition(&self) -> bool {
        [FAST, SLOW, OTHER_BOOT].contains(&self.kind.as_str())
    }
}

/// A worker process begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hired {
    pub(crate) process: u32,
    pub(crate) pid: u32,
    pub(crate) at: u64,
    /// By how many millionths its clients' clock is too fast.
    #[serde(default, skip_serializing_if = "is_even")]
    pub(crate) drift: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Closed {
    pub(crate) process: u32,
    pub(crate) client: u32,
    /// When `close` had returned.
    pub(crate) at: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Forked {
    pub(crate) process: u32,
    pub(crate) op: u64,
    pub(crate) lock: String,
    pub(crate) at: u64,
    /// Whether the child's copy of a guard said that it was valid.
    pub(crate) valid: bool,
    /// Whether the child was granted a lock with its parent's client.
    pub(crate) granted: bool,
    /// Whether the child was told that it had released its parent's guard.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) released: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Poll {
    pub(crate) send: u64,
    pub(crate) reply: u64,
}

/// A holder or a waiter, from the first poll that showed it to the last one without a gap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) lock: String,
    /// The number of a holder; absent for a waiter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
    pub(crate) owner: String,
    /// Its worker, if it is one of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u32>,
    /// When the first poll that showed it was answered.
    pub(crate) from: u64,
    /// When the last poll that showed it was sent.
    pub(crate) until: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lag {
    pub(crate) at: u64,
    /// How much later than asked we went on at `at`.
    pub(crate) by: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exit {
    pub(crate) process: u32,
    pub(crate) at: u64,
    pub(crate) killed: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scan {
    pub(crate) at: u64,
    pub(crate) lock: String,
    /// Who is there, in words.
    pub(crate) found: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_even(number: &i64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Event {
    /// Where it lies in the order of a history: the moment at which it was known.
    pub(crate) fn at(&self) -> u64 {
        match self {
            Self::Start(start) => start.at,
            Self::Acquire(acquire) => acquire.complete,
            Self::Waiting(waiting) => waiting.at,
            Self::Look(look) => look.at,
            Self::Lost(lost) => lost.at,
            Self::Release(release) => release.complete,
            Self::Call(call) => call.reply,
            Self::Observe(observe) => observe.at,
            Self::Access(access) => access.at,
            Self::Requests(requests) => requests.at,
            Self::Fault(fault) => fault.at,
            Self::Exit(exit) => exit.at,
            Self::Scan(scan) => scan.at,
            Self::Hired(hired) => hired.at,
            Self::Closed(closed) => closed.at,
            Self::Forked(forked) => forked.at,
            Self::Poll(poll) => poll.reply,
            Self::Seen(seen) => seen.until,
            Self::Lag(lag) => lag.at,
            Self::Healed { at } | Self::End { at } => *at,
        }
    }
}

impl Answer {
    /// Whether it says that the request holds the lock, or held it until now.
    pub(crate) fn is_grant(self) -> bool {
        matches!(self, Self::Granted | Self::Held | Self::Released)
    }
}
