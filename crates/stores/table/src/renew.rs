//! Renewals, many in one request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{RenewReply, Renewal};
use clinch_core::{BootTime, Clock, Error, ErrorKind, LostReason, Result, keeper};
use tokio::time::timeout;

use crate::Failure;
use crate::batch::StepBatcher;
use crate::client::Client;
use crate::record::span;
use crate::steps::{Answer, Step};

/// Holds in one statement, at most: it locks their rows until its commit.
const MOST: usize = 200;

/// The replies so far, and the last error.
struct Replies {
    all: Vec<Option<RenewReply>>,
    failed: Option<Error>,
}

impl Replies {
    fn set(&mut self, at: usize, reply: RenewReply) {
        if let Some(slot) = self.all.get_mut(at) {
            *slot = Some(reply);
        }
    }
}

/// Renews holds; one reply for each, in order. A hold without a reply in time is `Unknown`: the replies for
/// the others must arrive before their own leases end.
pub(crate) async fn renew(
    client: &Arc<Client>,
    steps: &StepBatcher,
    renewals: &[Renewal],
) -> Result<Vec<RenewReply>> {
    let mut replies = Replies {
        all: vec![None; renewals.len()],
        failed: None,
    };
    // The caller waits for a third of the lease. What takes longer goes on in the background.
    let shortest = renewals.iter().map(|renewal| renewal.lease).min();
    let quarter = shortest.unwrap_or_default() / 4;
    let soon = Clock::boot().now() + quarter;
    together(client, renewals, soon, &mut replies).await?;
    one_by_one(client, steps, renewals, soon + quarter / 4, &mut replies).await;
    let known = |reply: &Option<RenewReply>| *reply != Some(RenewReply::Unknown);
    match replies.failed {
        Some(error) if !replies.all.iter().any(known) => Err(error),
        _ => {
            let each = |reply: Option<RenewReply>| reply.unwrap_or(RenewReply::Unknown);
            Ok(replies.all.into_iter().map(each).collect())
        }
    }
}

/// Renews the holds of plain rows, many in each statement.
async fn together(
    client: &Arc<Client>,
    renewals: &[Renewal],
    until: BootTime,
    replies: &mut Replies,
) -> Result<()> {
    // A published value changes more than the lease.
    let mut by_lease: HashMap<Duration, Vec<usize>> = HashMap::new();
    for (at, renewal) in renewals.iter().enumerate() {
        if renewal.value.is_none() {
            by_lease.entry(renewal.lease).or_default().push(at);
        }
    }
    let patience = client.timeout(renewals.iter().map(|renewal| renewal.lease));
    let mut parts = Vec::new();
    for (lease, all) in by_lease {
        for some in all.chunks(MOST) {
            let renewal = |at: &usize| renewals.get(*at).map(|renewal| (*at, renewal.clone()));
            let chunk: Vec<_> = some.iter().filter_map(renewal).collect();
            let client = client.clone();
            let part = async move { part(&client, lease, &chunk, patience).await };
            parts.push((some.to_vec(), keeper::handle()?.spawn(part)));
        }
    }
    // A part that fails costs only its own holds.
    for (some, part) in parts {
        let done = match timeout(until.since(Clock::boot().now()), part).await {
            Ok(Ok(done)) => done,
            _ => Err(late(client)),
        };
        match done {
            Ok(held) => held
                .into_iter()
                .for_each(|at| replies.set(at, RenewReply::Held)),
            Err(error) => {
                some.iter()
                    .for_each(|at| replies.set(*at, RenewReply::Unknown));
                replies.failed = Some(error);
            }
        }
    }
    Ok(())
}

/// Renews holds without a reply so far: contended names, and holds that have ended.
async fn one_by_one(
    client: &Client,
    steps: &StepBatcher,
    renewals: &[Renewal],
    until: BootTime,
    replies: &mut Replies,
) {
    let mut sent = Vec::new();
    for (at, renewal) in renewals.iter().enumerate() {
        if replies.all.get(at).is_some_and(Option::is_none) {
            let step = Step::Renew(renewal.clone());
            sent.push((at, steps.submit(renewal.hold.name.clone(), step)));
        }
    }
    for (at, answer) in sent {
        let renewed = match timeout(until.since(Clock::boot().now()), answer).await {
            Ok(Ok(Answer::Renew(renewed))) => renewed,
            // A corrupt row can never be renewed; it takes no other hold with it.
            Ok(Err(error)) if error.kind() == ErrorKind::Corrupt => {
                tracing::error!(%error, "a hold is lost");
                RenewReply::Lost(LostReason::Forgotten)
            }
            Ok(Err(error)) => {
                replies.failed = Some(error);
                RenewReply::Unknown
            }
            _ => {
                replies.failed = Some(late(client));
                RenewReply::Unknown
            }
        };
        replies.set(at, renewed);
    }
}

/// Renews the holds of plain rows in one statement; returns which of them are renewed.
async fn part(
    client: &Client,
    lease: Duration,
    renewals: &[(usize, Renewal)],
    patience: Duration,
) -> Result<Vec<usize>> {
    let holds: Vec<_> = renewals.iter().map(|(_, renewal)| &renewal.hold).collect();
    let mut deadlocks = 0;
    let renewed = loop {
        match client.dialect.renew(&holds, span(lease), patience).await {
            Ok(renewed) => break renewed,
            Err(failure) if failure.is_deadlock() && deadlocks < 3 => {
                client.conflicts.count(&failure);
                deadlocks += 1;
            }
            // Another client keeps one of the rows locked. Each hold is renewed on its own, so that the
            // others do not suffer.
            Err(failure) if failure.is_conflict() => {
                client.conflicts.count(&failure);
                return Ok(Vec::new());
            }
            Err(failure) => return Err(failure.error),
        }
    };
    let at = |(request, seq): (_, u64)| {
        let same = |(_, renewal): &&(usize, Renewal)| {
            renewal.hold.request == request && renewal.hold.seq == seq
        };
        renewals.iter().find(same).map(|(at, _)| *at)
    };
    Ok(renewed.into_iter().filter_map(at).collect())
}

fn late(client: &Client) -> Error {
    Failure::no_reply(client.dialect.address(), "no answer in time").error
}
