//! Renewals, many in one request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{RenewReply, Renewal};
use clinch_core::{Clock, Result, keeper};
use tokio::time::timeout;

use crate::error::Trouble;
use crate::group::Group;
use crate::pool::{How, Pool, Reply};
use crate::row::{bytes, id, optional, span};
use crate::sql::{NOW, Sql};
use crate::steps::{Answer, Step};

/// The most holds in one statement: it locks their rows until its commit.
const MOST: usize = 200;

/// Renews holds; one reply for each, in order. What is not known in time is not waited for: the others
/// have to be told before their own leases end.
pub(crate) async fn renew(
    pool: &Arc<Pool>,
    group: &Arc<Group>,
    ns: &[u8],
    renewals: &[Renewal],
) -> Result<Vec<RenewReply>> {
    let mut replies: Vec<Option<RenewReply>> = vec![None; renewals.len()];
    // A published value changes more than the lease.
    let mut by_lease: HashMap<Duration, Vec<usize>> = HashMap::new();
    for (at, renewal) in renewals.iter().enumerate() {
        if renewal.value.is_none() {
            by_lease.entry(renewal.lease).or_default().push(at);
        }
    }
    let leases = || renewals.iter().map(|renewal| renewal.lease);
    let patience = pool.patience(leases());
    // Whoever asks waits for a third of the lease. What takes longer goes on in the background.
    let quarter = leases().min().unwrap_or_default() / 4;
    let (clock, soon) = (Clock::boot(), Clock::boot().now() + quarter);
    let end = soon + quarter / 4;
    let mut parts = Vec::new();
    for (lease, all) in by_lease {
        for some in all.chunks(MOST) {
            let renewal = |at: &usize| renewals.get(*at).map(|renewal| (*at, renewal.clone()));
            let meant: Vec<_> = some.iter().filter_map(renewal).collect();
            let (pool, ns) = (pool.clone(), ns.to_vec());
            let part = async move { together(&pool, &ns, lease, &meant, patience).await };
            parts.push((some.to_vec(), keeper::handle()?.spawn(part)));
        }
    }
    // One part that fails costs only its own holds.
    let mut failed = None;
    let mut set = |at: usize, reply| {
        if let Some(slot) = replies.get_mut(at) {
            *slot = Some(reply);
        }
    };
    for (some, part) in parts {
        let lost = || Trouble::Lost("no answer in time".to_owned()).into_error(pool.to());
        let done = timeout(soon.since(clock.now()), part).await;
        match done
            .unwrap_or_else(|_| Ok(Err(lost())))
            .unwrap_or_else(|_| Err(lost()))
        {
            Ok(held) => held.into_iter().for_each(|at| set(at, RenewReply::Held)),
            Err(error) => {
                some.iter().for_each(|at| set(*at, RenewReply::Unknown));
                failed = Some(error);
            }
        }
    }
    // Whatever is not a plain row with this hold: contended names, and holds that have ended.
    let mut sent = Vec::new();
    for (at, renewal) in renewals.iter().enumerate() {
        if replies.get(at).is_some_and(Option::is_none) {
            let step = Step::Renew(renewal.clone());
            sent.push((at, group.send(&renewal.hold.name, step)));
        }
    }
    for (at, answer) in sent {
        let renewed = match timeout(end.since(clock.now()), answer).await {
            Ok(Ok(Ok(Answer::Renew(renewed)))) => renewed,
            // What cannot be read can never be renewed; it takes no other hold with it.
            Ok(Ok(Err(error))) if error.kind() == clinch_core::ErrorKind::Corrupt => {
                tracing::error!(%error, "a hold is lost");
                RenewReply::Lost(clinch_core::LostReason::Forgotten)
            }
            Ok(Ok(Err(error))) => {
                failed = Some(error);
                RenewReply::Unknown
            }
            _ => {
                failed = Some(Trouble::Lost("no answer in time".to_owned()).into_error(pool.to()));
                RenewReply::Unknown
            }
        };
        if let Some(reply) = replies.get_mut(at) {
            *reply = Some(renewed);
        }
    }
    let known = |reply: &Option<RenewReply>| *reply != Some(RenewReply::Unknown);
    match failed {
        Some(error) if !replies.iter().any(known) => Err(error),
        _ => {
            let each = |reply: Option<RenewReply>| reply.unwrap_or(RenewReply::Unknown);
            Ok(replies.into_iter().map(each).collect())
        }
    }
}

/// Renews the holds of plain rows in one statement, and says which of them are renewed.
///
/// Rows are locked in the order of the primary key, as by every statement that locks several.
async fn together(
    pool: &Arc<Pool>,
    ns: &[u8],
    lease: Duration,
    renewals: &[(usize, Renewal)],
    patience: Duration,
) -> Result<Vec<usize>> {
    let lease = span(lease);
    let names = || {
        renewals
            .iter()
            .map(|(_, r)| r.hold.name.as_str().as_bytes())
    };
    let mut sql = Sql::new(format!(
        "SET @clinch={NOW};UPDATE clinch_names SET until=@clinch+?,lease=?,seq=GREATEST(seq+1,{NOW}) \
         WHERE ns=? AND name IN ("
    ))
    .with(lease)
    .with(lease)
    .bytes(ns)
    .list(names())
    .then(") AND state IS NULL AND until>@clinch AND (request,token) IN (");
    let mut comma = "";
    for (_, renewal) in renewals {
        sql = sql
            .then(comma)
            .then("(?,?)")
            .bytes(&id(renewal.hold.request))
            .with(renewal.hold.seq);
        comma = ",";
    }
    // A name that was contended a moment ago may look the same and not be renewed: the time tells.
    let sql = sql
        .then(
            ");SELECT request,token FROM clinch_names WHERE state IS NULL AND until>=@clinch+? \
             AND ns=? AND name IN (",
        )
        .with(lease)
        .bytes(ns)
        .list(names())
        .then(")");
    let mut tries = 0;
    let rows = loop {
        let sent = pool.send_within(&sql, How::Text, patience).await;
        match sent.and_then(Reply::whole) {
            Ok(reply) => break reply.into_rows(),
            Err(trouble) if trouble.is_deadlock() && tries < 3 => {
                pool.raced(&trouble);
                tries += 1;
            }
            // Somebody keeps one of the rows locked: the others must not suffer, so each is renewed on
            // its own.
            Err(trouble) if trouble.is_race() => {
                pool.raced(&trouble);
                return Ok(Vec::new());
            }
            Err(trouble) => return Err(trouble.into_error(pool.to())),
        }
    };
    let mut held = Vec::new();
    for row in rows {
        let mut values = row.into_iter();
        let request = values.next().and_then(bytes);
        let token = values.next().and_then(optional).flatten();
        let same = |(_, renewal): &&(usize, Renewal)| {
            Some(id(renewal.hold.request)) == request && Some(renewal.hold.seq) == token
        };
        held.extend(renewals.iter().find(same).map(|(at, _)| *at));
    }
    Ok(held)
}
