//! Renewals, many in one request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::Result;
use clinch_core::store::{RenewReply, Renewal};

use crate::error::Trouble;
use crate::group::Group;
use crate::pool::Pool;
use crate::row::{bytes, id, optional, span};
use crate::sql::{NOW, Sql};
use crate::steps::{Answer, Step};

/// The most holds in one statement: it locks their rows until its commit.
const MOST: usize = 200;

/// Renews holds; one reply for each, in order.
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
    for (lease, all) in by_lease {
        for some in all.chunks(MOST) {
            let meant: Vec<_> = some
                .iter()
                .filter_map(|at| renewals.get(*at).map(|renewal| (*at, renewal)))
                .collect();
            for at in together(pool, ns, lease, &meant).await? {
                if let Some(reply) = replies.get_mut(at) {
                    *reply = Some(RenewReply::Held);
                }
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
        let renewed = match answer.await {
            Ok(Ok(Answer::Renew(renewed))) => renewed,
            // What cannot be read can never be renewed; it takes no other hold with it.
            Ok(Err(error)) if error.kind() == clinch_core::ErrorKind::Corrupt => {
                tracing::error!(%error, "a hold is lost");
                RenewReply::Lost(clinch_core::LostReason::Forgotten)
            }
            Ok(Err(error)) => return Err(error),
            _ => return Err(Trouble::Lost("the step was lost".to_owned()).into_error(pool.to())),
        };
        if let Some(reply) = replies.get_mut(at) {
            *reply = Some(renewed);
        }
    }
    Ok(replies.into_iter().flatten().collect())
}

/// Renews the holds of plain rows in one statement, and says which of them are renewed.
///
/// Rows are locked in the order of the primary key, as by every statement that locks several.
async fn together(
    pool: &Arc<Pool>,
    ns: &[u8],
    lease: Duration,
    renewals: &[(usize, &Renewal)],
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
        match pool.query(&sql).await {
            Ok(reply) => break reply.into_rows(),
            Err(trouble) if trouble.is_race() && tries < 3 => {
                pool.raced(&trouble);
                tries += 1;
            }
            // Somebody keeps one of the rows locked: the others must not suffer.
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
        let same = |(_, renewal): &&(usize, &Renewal)| {
            Some(id(renewal.hold.request)) == request && Some(renewal.hold.seq) == token
        };
        held.extend(renewals.iter().find(same).map(|(at, _)| *at));
    }
    Ok(held)
}
