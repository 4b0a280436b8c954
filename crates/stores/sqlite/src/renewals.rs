//! Renewals, also while another process keeps the writer's lock.

use std::time::Duration;

use clinch_core::machine::{NameState, Outcome, Sequence};
use clinch_core::store::{RenewReply, Renewal};
use clinch_core::{BootTime, RequestId, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::core::{Core, Job};
use crate::dead;
use crate::error::{Fail, Step, vanished};
use crate::rows::NameRow;
use crate::session::{Beat, Sessions};
use crate::steps::run_renewal;
use crate::tx::Tx;

/// How long renewals wait for the writer's lock before they are made without it.
const PATIENCE: Duration = Duration::from_millis(50);

/// A batch of renewals with its caller.
pub(crate) struct Renewals {
    renewals: Vec<Renewal>,
    replies: Option<Result<Vec<RenewReply>>>,
    sender: oneshot::Sender<Result<Vec<RenewReply>>>,
    /// Until they have been tried without the writer's lock.
    patience: Option<Duration>,
}

impl Renewals {
    pub(crate) fn new(renewals: &[Renewal]) -> (Self, oneshot::Receiver<Result<Vec<RenewReply>>>) {
        let (sender, answer) = oneshot::channel();
        let shortest = renewals.iter().map(|renewal| renewal.lease).min();
        let batch = Self {
            renewals: renewals.to_vec(),
            replies: None,
            sender,
            patience: Some(PATIENCE.min(shortest.unwrap_or_default() / 20)),
        };
        (batch, answer)
    }
}

impl Job for Renewals {
    fn run(&mut self, tx: &mut Tx<'_>) -> Step<()> {
        let renewals = self.renewals.iter();
        let replies: Step<_> = renewals.map(|one| run_renewal(tx, one)).collect();
        match replies {
            Ok(replies) => self.replies = Some(Ok(replies)),
            Err(Fail::Refused(error)) => self.replies = Some(Err(error)),
            Err(Fail::Sql(error)) => return Err(Fail::Sql(error)),
        }
        Ok(())
    }

    fn done(self: Box<Self>, outcome: Result<()>) {
        let replies = match outcome {
            Ok(()) => self.replies.unwrap_or_else(|| Err(vanished())),
            Err(error) => Err(error),
        };
        // The caller may have gone.
        let _ = self.sender.send(replies);
    }

    fn patience(&self) -> Option<Duration> {
        self.patience
    }

    fn run_beside(&mut self, core: &mut Core) -> bool {
        self.patience = None;
        let replies = core.renew_beside(&self.renewals);
        let done = replies.is_some();
        self.replies = replies.map(Ok);
        done
    }
}

/// Extends holds through the session file; see `beats.rs`. `None` if that cannot be done.
pub(crate) fn renew_beside(
    renewals: &[Renewal],
    sessions: &mut Sessions,
    mut load: impl FnMut(&Renewal) -> Option<NameState>,
    now: impl Fn() -> BootTime,
) -> Option<Vec<RenewReply>> {
    if !sessions.can_beat() {
        return None;
    }
    let started = now();
    let (mut replies, mut ends) = (Vec::new(), Vec::new());
    for renewal in renewals {
        // Reading never waits for the writer.
        let state = load(renewal);
        let (reply, end) = match state {
            Some(state) => judge(state, renewal, sessions, started),
            None => (RenewReply::Unknown, None),
        };
        replies.push(reply);
        ends.push(end);
    }
    let extended = renewals.iter().zip(&ends).filter(|(_, end)| end.is_some());
    let extended: Vec<(RequestId, BootTime)> = extended
        .map(|(renewal, _)| (renewal.hold.request, started + renewal.lease))
        .collect();
    if !extended.is_empty() && !sessions.beat(&extended, started) {
        return None;
    }
    // After the write: see `beats.rs`.
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

/// What a renewal finds, and when the lease ends that it may extend.
fn judge(
    mut state: NameState,
    renewal: &Renewal,
    sessions: &Sessions,
    now: BootTime,
) -> (RenewReply, Option<BootTime>) {
    let hold = &renewal.hold;
    let mut entries = state.entries.iter();
    let entry = entries.find(|e| e.request == hold.request && e.seq() == Some(hold.seq));
    let Some(entry) = entry else {
        // Ended by somebody: the state says why. It is a copy, so no number is spent.
        let reply = state.renew(renewal, now, &mut NoNumbers, &mut Outcome::default());
        return (reply, None);
    };
    let end = entry
        .until
        .max(sessions.own_beat(hold.request).unwrap_or(entry.until));
    // A longer lease would outlive a missing session file, and a value needs the database.
    let simple = renewal.lease <= entry.lease && renewal.value.is_none();
    (RenewReply::Unknown, (simple && now < end).then_some(end))
}

/// For a state that is thrown away.
struct NoNumbers;

impl Sequence for NoNumbers {
    fn next(&mut self, after: u64) -> u64 {
        after + 1
    }
}

/// Takes up the renewals in the session files of holders, before anything of the name is
/// ended. `now` must have been read before.
pub(crate) fn take_up(
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
        let end = match sessions.beat_of(client, entry.request) {
            Beat::Until(end) => end,
            Beat::Never => continue,
            Beat::Missing if dead::is_known(db, client)? => continue,
            Beat::Missing => dead::missing_since(db, client, now)? + entry.lease,
            Beat::Unreadable => {
                tracing::warn!(%client, "a session file cannot be read: its hold is not ended");
                now + entry.lease
            }
        };
        entry.until = entry.until.max(end);
    }
    Ok(())
}

/// A name as the last commit left it.
pub(crate) fn load(
    db: &Connection,
    path: &std::path::Path,
    ns: &str,
    renewal: &Renewal,
) -> Option<NameState> {
    match NameRow::load(db, path, ns, &renewal.hold.name) {
        Ok(row) => Some(row.state),
        Err(_) => None,
    }
}
