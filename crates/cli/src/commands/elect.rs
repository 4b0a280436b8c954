//! `clinch elect NAME -- CMD…`

use std::time::Duration;

use clinch::blocking::block_on;
use clinch::{Clinch, Election, Leader, LeaderView, Leadership, LostReason, ReleaseReply};
use serde_json::{Value, json};

use super::run::{task, told, warn_unreleased};
use super::{close, with_store};
use crate::acquire::{Claimed, in_time, lost, not_acquired, wait_for};
use crate::args::ElectArgs;
use crate::child::{Ended, Signals, Supervisor};
use crate::context::Context;
use crate::failure::{Failure, Outcome, exit};
use crate::output::{self, complain, plain};
use crate::patience::Patience;

pub(crate) fn main(context: &Context, args: &ElectArgs) -> Outcome {
    if args.observe {
        return block_on(with_store(context, |clinch| async move {
            observe(context, &clinch, args).await
        }));
    }
    context.check_shared()?;
    // Forks: it comes before everything that starts a thread.
    let mut supervisor = Supervisor::start(&args.command)?;
    // A candidate is there to take over: an outage of the store is no reason to go.
    let patience = Patience::new(context, args.patience, Duration::MAX);
    let outcome = block_on(async {
        let clinch = match patience.connect(context, &mut supervisor.signals).await? {
            Ok(clinch) => clinch,
            Err(interrupted) => return Ok(interrupted),
        };
        let outcome = campaign(context, &clinch, args, &mut supervisor, patience).await;
        close(&clinch).await;
        outcome
    });
    supervisor.dismiss();
    outcome
}

/// Campaigns and runs the command as leader, until it ends by itself.
async fn campaign(
    context: &Context,
    clinch: &Clinch,
    args: &ElectArgs,
    supervisor: &mut Supervisor,
    patience: Patience,
) -> Outcome {
    let election = election(clinch, args);
    let value = args.value.clone().unwrap_or_else(default_value);
    loop {
        let until = args.wait.map(|span| clinch.clock().now() + span);
        let claim = async || match until {
            Some(until) => {
                let left = until.since(clinch.clock().now());
                election.campaign_within(value.as_str(), left).await
            }
            None => election.campaign(value.as_str()).await.map(Some),
        };
        let client = (context, clinch, &args.name);
        let again = || in_time(clinch.clock(), until);
        let claimed = wait_for(client, &mut supervisor.signals, patience, again, claim).await?;
        let leader = match claimed {
            Claimed::Held(leader) => leader,
            Claimed::TimedOut => return Err(not_acquired(clinch, &args.name, args.wait).await),
            Claimed::Interrupted(code) => return Ok(code),
        };
        let told = told(context, clinch, &leader);
        let task = task(context, told, &args.command, args.job, &args.hold);
        let ended = supervisor.run(&leader, clinch.clock(), &task).await;
        let resigned = resign(context, leader).await;
        let reason = match (ended?, resigned) {
            (Ended::Lost(reason), _) | (_, Some(reason)) => reason,
            (Ended::Done(code), None) => return Ok(code),
        };
        let failure = lost(&args.name, reason);
        if args.once {
            return Err(failure);
        }
        if !context.quiet {
            complain(&format!("{}; campaigning again", failure.to_line()));
        }
    }
}

/// Steps down; the reason if leadership had been lost before.
async fn resign(context: &Context, leader: Leader) -> Option<LostReason> {
    match leader.resign().await {
        Ok(ReleaseReply::Released) => None,
        Ok(ReleaseReply::WasLost(reason)) => Some(reason),
        Err(error) => {
            warn_unreleased(context, error);
            None
        }
    }
}

fn election(clinch: &Clinch, args: &ElectArgs) -> Election {
    let mut election = clinch.election(&args.name);
    if let Some(lease) = args.hold.lease {
        election = election.lease(lease);
    }
    if let Some(delay) = args.hold.lock_delay {
        election = election.lock_delay(delay);
    }
    if let Some(span) = args.hold.max_hold {
        election = election.max_hold(span);
    }
    if let Some(label) = &args.hold.label {
        election = election.label(label.as_str());
    }
    election
}

fn default_value() -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    format!("{host}:{}", std::process::id())
}

/// Prints who leads, and each change.
async fn observe(context: &Context, clinch: &Clinch, args: &ElectArgs) -> Outcome {
    let mut signals = Signals::listen()?;
    let mut observer = clinch.election(&args.name).observe().await?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let leadership = tokio::select! {
            biased;
            _ = signals.end(|| {}) => return Ok(exit::OK),
            leadership = observer.next() => leadership,
        };
        let Some(leadership) = leadership else {
            return Err(
                Failure::new(exit::UNAVAILABLE, "unreachable", "the store tells no more")
                    .with_name(args.name.as_str())
                    .with_advice("start observing again"),
            );
        };
        match context.json {
            true => output::json_line(&as_json(args, &leadership))?,
            false => output::line(&as_line(args, &leadership))?,
        }
        left -= 1;
    }
    Ok(exit::OK)
}

fn as_line(args: &ElectArgs, leadership: &Leadership) -> String {
    let line = match leadership {
        Leadership::Led(LeaderView {
            token,
            host,
            pid,
            label,
            value,
            ..
        }) => {
            let value = value
                .as_deref()
                .map(|v| format!(" value {v}"))
                .unwrap_or_default();
            let label = label
                .as_deref()
                .map(|l| format!(" ({l})"))
                .unwrap_or_default();
            format!(
                "{} led by {host}:{pid}{label} token {token}{value}",
                args.name
            )
        }
        Leadership::Vacant => format!("{} vacant", args.name),
    };
    plain(&line).into_owned()
}

fn as_json(args: &ElectArgs, leadership: &Leadership) -> Value {
    match leadership {
        Leadership::Led(leader) => json!({
            "event": "led",
            "name": args.name.as_str(),
            "token": leader.token,
            "owner": leader.owner.as_str(),
            "host": leader.host,
            "pid": leader.pid,
            "label": leader.label.as_deref(),
            "value": leader.value.as_deref(),
        }),
        Leadership::Vacant => json!({ "event": "vacant", "name": args.name.as_str() }),
    }
}
