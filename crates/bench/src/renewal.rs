//! The cost of keeping many holds.

use std::time::Duration;

use clinch::{Clinch, Guard, Result};
use tokio::task::JoinSet;

use crate::cell::to_f64;
use crate::lab::{Halt, Lab};
use crate::report::{RenewalRow, Report};
use crate::usage;

/// The load that the figure is given for.
const HOLDS: u64 = 10_000;
const LEASE: Duration = Duration::from_secs(30);
/// How many tasks take and release the holds.
const HANDS: u64 = 64;

/// The load that is measured.
struct Plan {
    holds: u64,
    lease: Duration,
    window: Duration,
}

impl Plan {
    /// The full load for one and a half renewal cycles, or a small load with a short cycle.
    fn new(quick: bool) -> Self {
        match quick {
            false => Self {
                holds: HOLDS,
                lease: LEASE,
                window: Duration::from_secs(15),
            },
            true => Self {
                holds: 500,
                lease: Duration::from_secs(3),
                window: Duration::from_secs(1),
            },
        }
    }

    /// The factor from the measured load to 10,000 holds of 30 s.
    fn scale(&self) -> f64 {
        to_f64(HOLDS) / to_f64(self.holds) * self.lease.as_secs_f64() / LEASE.as_secs_f64()
    }
}

/// Takes the holds, and measures the CPU time of this process while they are renewed.
pub(crate) async fn measure(lab: &Lab, report: &mut Report) -> Result<(), Halt> {
    let plan = Plan::new(lab.quick);
    let holds = plan.holds;
    lab.progress.say(&format!("renewal: taking {holds} holds"));
    let from = lab.clock.now();
    let guards = take(lab, &plan).await?;
    let taken = lab.clock.now().since(from);
    let row = watch(lab, &plan, &guards, taken).await;
    lab.progress
        .say(&format!("renewal: giving {holds} holds back"));
    release(guards).await?;
    report.renewal = Some(row?);
    Ok(())
}

async fn watch(
    lab: &Lab,
    plan: &Plan,
    guards: &[Guard],
    taken: Duration,
) -> Result<RenewalRow, Halt> {
    let holds = plan.holds;
    lab.progress.say(&format!("the renewal of {holds} holds"));
    let client = &lab.clinch;
    // The first renewals begin a third of the lease after the grants.
    lab.pause((plan.lease / 3).saturating_sub(taken) / 2)
        .await?;
    let (from, cpu, operations) = (lab.clock.now(), usage::cpu(), client.operations());
    lab.pause(plan.window).await?;
    let time = lab.clock.now().since(from).as_secs_f64();
    let cpu = usage::cpu().saturating_sub(cpu).as_secs_f64();
    let operations = client.operations() - operations;
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    let percent = 100.0 * cpu / time.max(1e-9);
    Ok(RenewalRow {
        holds,
        lease_s: plan.lease.as_secs_f64(),
        window_s: time,
        cpu_percent: percent,
        cpu_percent_10000_holds_30s: percent * plan.scale(),
        operations,
        lost: u64::try_from(lost).unwrap_or(u64::MAX),
        acquired_per_s: to_f64(holds) / taken.as_secs_f64().max(1e-9),
    })
}

async fn take(lab: &Lab, plan: &Plan) -> Result<Vec<Guard>, Halt> {
    let mut hands = JoinSet::new();
    for hand in 0..HANDS {
        let (clinch, stop) = (lab.clinch.clone(), lab.stop.clone());
        let numbers = (hand..plan.holds).step_by(64);
        let names: Vec<String> = numbers.map(|n| lab.name(&format!("kept/{n}"))).collect();
        let lease = plan.lease;
        hands.spawn(async move {
            let mut guards = Vec::with_capacity(names.len());
            for name in names {
                if stop.is_set() {
                    break;
                }
                guards.push(one(&clinch, &name, lease).await?);
            }
            Ok::<_, clinch::Error>(guards)
        });
    }
    let mut guards = Vec::new();
    let mut failed = None;
    while let Some(joined) = hands.join_next().await {
        match joined {
            Ok(Ok(more)) => guards.extend(more),
            Ok(Err(error)) => failed = Some(error),
            Err(error) => failed = Some(crate::internal(format!("a worker failed: {error}"))),
        }
    }
    let halt = match (failed, lab.stop.is_set()) {
        (None, false) => return Ok(guards),
        (Some(error), _) => Halt::Failed(error),
        (None, true) => Halt::Stopped,
    };
    release(guards).await?;
    Err(halt)
}

async fn one(clinch: &Clinch, name: &str, lease: Duration) -> Result<Guard> {
    clinch.lock(name).lease(lease).acquire().await
}

/// Releases all holds, many at a time.
async fn release(guards: Vec<Guard>) -> Result<()> {
    let mut shares: Vec<Vec<Guard>> = (0..HANDS).map(|_| Vec::new()).collect();
    for (number, guard) in guards.into_iter().enumerate() {
        let share = number % shares.len().max(1);
        if let Some(share) = shares.get_mut(share) {
            share.push(guard);
        }
    }
    let mut hands = JoinSet::new();
    for share in shares {
        hands.spawn(async move {
            for guard in share {
                guard.release().await?;
            }
            Ok::<_, clinch::Error>(())
        });
    }
    while let Some(joined) = hands.join_next().await {
        joined.map_err(|error| crate::internal(format!("a worker failed: {error}")))??;
    }
    Ok(())
}
