//! Renewals: in a transaction, or through the session file while another process keeps the writer's
//! lock.

use std::time::Duration;

use clinch_core::machine::{NameState, Outcome, Sequence};
use clinch_core::store::{LostReason, RenewReply, Renewal};
use clinch_core::{BootTime, RequestId, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::batch::{Job, Reply};
use crate::connection::Database;
use crate::error::{Fail, Step};
use crate::record::NameRecord;
use crate::session::{FileRenewal, Sessions, dead_clients};
use crate::transaction::Tx;

/// Longest wait of renewals for the writer's lock before they are made without it.
const LOCK_WAIT: Duration = Duration::from_millis(50);

/// A batch of renewals with its caller.
pub(crate) struct Renewals {
    renewals: Vec<Renewal>,
    reply: Reply<Vec<RenewReply>>,
    /// `None` once they have been tried without the writer's lock.
    lock_wait: Option<Duration>,
}

impl Renewals {
    pub(crate) fn new(renewals: &[Renewal]) -> (Self, oneshot::Receiver<Result<Vec<RenewReply>>>) {
        let (reply, answer) = Reply::new();
        let shortest = renewals.iter().map(|renewal| renewal.lease).min();
        let batch = Self {
            renewals: renewals.to_vec(),
            reply,
            lock_wait: Some(LOCK_WAIT.min(shortest.unwrap_or_default() / 20)),
        };
        (batch, answer)
    }
}

impl Job for Renewals {
    fn run(&mut self, tx: &mut Tx<'_>) -> Step<()> {
        let renewals = self.renewals.iter();
        self.reply
            .keep(renewals.map(|one| renew(tx, one)).collect())
    }

    fn done(self: Box<Self>, outcome: Result<()>) {
        self.reply.send(outcome);
    }

    fn lock_wait(&self) -> Option<Duration> {
        self.lock_wait
    }

    fn run_without_lock(&mut self, database: &mut Database) -> bool {
        self.lock_wait = None;
        match database.renew_without_lock(&self.renewals) {
            Some(replies) => self.reply.keep(Ok(replies)).is_ok(),
            None => false,
        }
    }
}

/// Extends one hold in a transaction.
fn renew(tx: &mut Tx<'_>, renewal: &Renewal) -> Step<RenewReply> {
    let renewed = tx.on_name(&renewal.hold.name, |name| {
        name.step(|state, now, seq, out| state.renew(renewal, now, seq, out))
    });
    let reply = match renewed {
        // One damaged record must not cost the other holds their renewal; and a record that cannot
        // be read can never be renewed.
        Err(Fail::Refused(error)) => {
            tracing::warn!(%error, "a hold cannot be renewed");
            RenewReply::Lost(LostReason::Forgotten)
        }
        other => other?,
    };
    if let RenewReply::Lost(_) = reply {
        tx.ledger.remove(renewal.hold.request);
    }
    Ok(reply)
}

/// Extends holds through the session file; see `renewal_table.rs`. `None` if that cannot be done.
pub(crate) fn renew_without_lock(
    renewals: &[Renewal],
    sessions: &mut Sessions,
    mut load: impl FnMut(&Renewal) -> Option<NameState>,
    now: impl Fn() -> BootTime,
) -> Option<Vec<RenewReply>> {
    if !sessions.can_renew() {
        return None;
    }
    let started = now();
    let (mut replies, mut ends) = (Vec::new(), Vec::new());
    for renewal in renewals {
        let state = load(renewal);
        let (reply, end) = match state {
            Some(state) => extendable(state, renewal, sessions, started),
            None => (RenewReply::Unknown, None),
        };
        replies.push(reply);
        ends.push(end);
    }
    let extended = renewals.iter().zip(&ends).filter(|(_, end)| end.is_some());
    let extended: Vec<(RequestId, BootTime)> = extended
        .map(|(renewal, _)| (renewal.hold.request, started + renewal.lease))
        .collect();
    if !extended.is_empty() && !sessions.renew(&extended, started) {
        return None;
    }
    // After the write: see `renewal_table.rs`.
    let written = now();
    for (reply, end) in replies.iter_mut().zip(ends) {
        match end {
            Some(end) if written < end => *reply = RenewReply::Held,
            Some(_) => *reply = RenewReply::Unknown,
            None => {}
        }
    }
    Some(replies)
}

/// The reply to a renewal as far as it is final, and the end of the lease that it may extend.
fn extendable(
    mut state: NameState,
    renewal: &Renewal,
    sessions: &Sessions,
    now: BootTime,
) -> (RenewReply, Option<BootTime>) {
    let hold = &renewal.hold;
    let mut entries = state.entries.iter();
    let entry = entries.find(|e| e.request == hold.request && e.seq() == Some(hold.seq));
    let Some(entry) = entry else {
        // It has ended; the state says why. The state is a copy, so no number is spent.
        let reply = state.renew(renewal, now, &mut NoNumbers, &mut Outcome::default());
        return (reply, None);
    };
    let end = entry
        .until
        .max(sessions.own_renewal(hold.request).unwrap_or(entry.until));
    // A longer lease would outlast the wait for a missing session file; a value needs the database.
    let simple = renewal.lease <= entry.lease && renewal.value.is_none();
    (RenewReply::Unknown, (simple && now < end).then_some(end))
}

/// The sequence numbers of a state that is discarded.
struct NoNumbers;

impl Sequence for NoNumbers {
    fn next(&mut self, after: u64) -> u64 {
        after + 1
    }
}

/// Applies the renewals in the session files of holders, before any claim of the name is ended.
/// `now` must have been read before.
pub(crate) fn apply_file_renewals(
    state: &mut NameState,
    now: BootTime,
    db: &Connection,
    sessions: &Sessions,
) -> rusqlite::Result<()> {
    for entry in &mut state.entries {
        if entry.until > now || entry.seq().is_none() {
            continue;
        }
        let client = entry.client.id;
        let end = match sessions.renewal_of(client, entry.request) {
            FileRenewal::Until(end) => end,
            FileRenewal::Never => continue,
            FileRenewal::Missing if dead_clients::is_recorded(db, client)? => continue,
            FileRenewal::Missing => dead_clients::missing_since(db, client, now)? + entry.lease,
            FileRenewal::Unreadable => {
                tracing::warn!(%client, "a session file cannot be read: its hold is not ended");
                now + entry.lease
            }
        };
        entry.until = entry.until.max(end);
    }
    Ok(())
}

/// The committed state of a name. Reading never waits for the writer.
pub(crate) fn load(
    db: &Connection,
    path: &std::path::Path,
    ns: &str,
    renewal: &Renewal,
) -> Option<NameState> {
    let record = NameRecord::load(db, path, ns, &renewal.hold.name).ok()?;
    Some(record.state)
}
