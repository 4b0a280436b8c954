//! `clinch elect NAME -- CMD…`

use clinch::blocking::block_on;
use clinch::{Clinch, Election, Leader, LeaderView, Leadership, LostReason, ReleaseReply};
use serde_json::{Value, json};

use super::run::{task, told, warn_unreleased};
use super::with_store;
use crate::acquire::{Claimed, lost, not_acquired, wait_for};
use crate::args::ElectArgs;
use crate::child::{Ended, Signals, Supervisor};
use crate::context::Context;
use crate::failure::{Failure, Outcome, exit};
use crate::output::{self, complain, plain};

pub(crate) fn main(context: &Context, args: &ElectArgs) -> Outcome {
    if args.observe {
        return block_on(with_store(context, |clinch| async move {
            observe(context, &clinch, args).await
        }));
    }
    // Forks: it comes before everything that starts a thread.
    let mut supervisor = Supervisor::start(&args.command)?;
    let outcome = block_on(with_store(context, |clinch| {
        let supervisor = &mut supervisor;
        async move { campaign(context, &clinch, args, supervisor).await }
    }));
    supervisor.dismiss();
    outcome
}

/// Campaigns and runs the command as leader, until it ends by itself.
async fn campaign(
    context: &Context,
    clinch: &Clinch,
    args: &ElectArgs,
    supervisor: &mut Supervisor,
) -> Outcome {
    let election = election(clinch, args);
    let value = args.value.clone().unwrap_or_else(default_value);
    loop {
        let claim = async {
            match args.wait {
                Some(span) => election.campaign_within(value.as_str(), span).await,
                None => election.campaign(value.as_str()).await.map(Some),
            }
        };
        let claimed = wait_for(context, clinch, &args.name, &mut supervisor.signals, claim).await?;
        let leader = match claimed {
            Claimed::Held(leader) => leader,
            Claimed::TimedOut => return Err(not_acquired(clinch, &args.name, args.wait).await),
            Claimed::Interrupted(code) => return Ok(code),
        };
        let told = told(context, clinch, &leader);
        let task = task(context, told, &args.command, args.job, &args.hold);
        let ended = supervisor.run(&leader, clinch.clock(), &task).await;
        let resigned = resign(leader).await;
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
async fn resign(leader: Leader) -> Option<LostReason> {
    match leader.resign().await {
        Ok(ReleaseReply::Released) => None,
        Ok(ReleaseReply::WasLost(reason)) => Some(reason),
        Err(error) => {
            warn_unreleased(error);
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
