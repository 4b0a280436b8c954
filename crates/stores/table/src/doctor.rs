//! Findings that are the same for every dialect.

use std::time::Duration;

use clinch_core::store::{Finding, Severity};
use clinch_core::{Clock, Result, sequence_micros};

use crate::client::Client;

/// A longer round trip makes every lock slow.
const SLOW: Duration = Duration::from_millis(100);
/// A greater difference of clocks is reported, in microseconds.
const APART: u64 = 1_000_000;

/// All findings: what the server is, latency, clock, the rest of the dialect's, repeats.
pub(crate) async fn examine(client: &Client) -> Result<Vec<Finding>> {
    let mut findings = client.dialect.doctor().await?;
    let own = probe(client).await?;
    let at = findings.len().min(1);
    findings.splice(at..at, own);
    findings.push(repeats(client));
    Ok(findings)
}

/// Latency and clock, by a few small requests.
async fn probe(client: &Client) -> Result<[Finding; 2]> {
    let clock = Clock::boot();
    let (mut best, mut apart) = (Duration::MAX, u64::MAX);
    for _ in 0..3 {
        let (sent, before) = (clock.now(), sequence_micros());
        let reply = client.dialect.is_watched().await;
        let (_, theirs) = reply.map_err(|failure| failure.error)?;
        let after = sequence_micros();
        best = best.min(clock.now().since(sent));
        let behind = before.saturating_sub(theirs);
        apart = apart.min(behind.max(theirs.saturating_sub(after)));
    }
    Ok([latency(best), difference(apart)])
}

fn latency(best: Duration) -> Finding {
    let message = format!("the server answers in {best:?}");
    match best > SLOW {
        true => Finding::new(Severity::Warning, "latency", message)
            .with_advice("choose leases of many times that, or a nearer server"),
        false => Finding::new(Severity::Ok, "latency", message),
    }
}

fn difference(apart: u64) -> Finding {
    let message = format!(
        "the server's clock and this machine's are {:?} apart",
        Duration::from_micros(apart)
    );
    match apart > APART {
        true => Finding::new(Severity::Warning, "clock", message).with_advice(
            "leases are counted by the server's clock alone; if that one is wrong, let it be set \
             slowly: a step forward ends leases early",
        ),
        false => Finding::new(Severity::Ok, "clock", message),
    }
}

fn repeats(client: &Client) -> Finding {
    let (deadlocks, others) = client.conflicts.get();
    let message = format!(
        "this client has repeated {deadlocks} statements after deadlocks, {others} after other \
         conflicts"
    );
    Finding::new(Severity::Ok, "repeats", message)
}
