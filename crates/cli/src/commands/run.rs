//! `clinch run NAME -- CMD…`

use clinch::blocking::block_on;
use clinch::{Clinch, Guard, ReleaseReply};

use super::close;
use crate::acquire::{Claimed, Waiting, lost, not_acquired};
use crate::args::{HoldArgs, JobArgs, RunArgs};
use crate::child::{Ended, Environment, Supervisor, Task};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::output::complain;
use crate::patience::Patience;

pub(crate) fn main(context: &Context, args: &RunArgs) -> Outcome {
    context.check_shared()?;
    // Forks: it comes before everything that starts a thread.
    let mut supervisor = Supervisor::start(&args.command)?;
    let patience = Patience::of_waiting(context, args.wait);
    let outcome = block_on(async {
        let clinch = match patience.connect(context, &mut supervisor.signals).await? {
            Ok(clinch) => clinch,
            Err(interrupted) => return Ok(interrupted),
        };
        let outcome = run(context, &clinch, args, &mut supervisor, patience).await;
        close(&clinch).await;
        outcome
    });
    supervisor.dismiss();
    outcome
}

async fn run(
    context: &Context,
    clinch: &Clinch,
    args: &RunArgs,
    supervisor: &mut Supervisor,
    patience: Patience,
) -> Outcome {
    let waiting = Waiting {
        name: &args.name,
        kind: args.kind,
        wait: args.wait,
        hold: &args.hold,
    };
    let signals = &mut supervisor.signals;
    let guard = match waiting.acquire(context, clinch, signals, patience).await? {
        Claimed::Held(guard) => guard,
        Claimed::TimedOut => return Err(not_acquired(clinch, &args.name, args.wait.wait).await),
        Claimed::Interrupted(code) => return Ok(code),
    };
    let told = told(context, clinch, &guard);
    let task = task(context, told, &args.command, args.job, &args.hold);
    let ended = supervisor.run(&guard, clinch.clock(), &task).await;
    supervisor.last_job_done();
    let released = release(context, guard).await;
    match (ended?, released) {
        (Ended::Lost(reason), _) | (_, Some(ReleaseReply::WasLost(reason))) => {
            Err(lost(&args.name, reason))
        }
        (Ended::Done(code), _) => Ok(code),
    }
}

/// What a command is told of its lock. Of a store without tokens it is told none, also not that of a
/// lock around this one.
pub(super) fn told(context: &Context, clinch: &Clinch, guard: &Guard) -> Environment {
    let fenced = clinch.info().capabilities.tokens;
    vec![
        ("CLINCH_NAME", Some(guard.name().to_string())),
        ("CLINCH_TOKEN", fenced.then(|| guard.token().to_string())),
        (
            "CLINCH_SEQUENCER",
            fenced.then(|| guard.sequencer().to_string()),
        ),
        ("CLINCH_STORE", Some(context.shown_store())),
        ("CLINCH_NAMESPACE", Some(context.namespace().to_owned())),
    ]
}

/// The command with what it is told.
pub(super) fn task<'a>(
    context: &Context,
    env: Environment,
    argv: &'a [std::ffi::OsString],
    job: JobArgs,
    hold: &HoldArgs,
) -> Task<'a> {
    Task {
        argv,
        env,
        grace: job.grace,
        lease: hold.lease.unwrap_or(clinch::DEFAULT_LEASE),
        max_hold: hold.max_hold,
        leave: job.leave_background,
        quiet: context.quiet || context.json,
    }
}

/// Gives a hold up. That the store did not hear of it is worth a line, and no other exit status:
/// the command's work was done under the lock.
async fn release(context: &Context, guard: Guard) -> Option<ReleaseReply> {
    match guard.release().await {
        Ok(reply) => Some(reply),
        Err(error) => {
            warn_unreleased(context, error);
            None
        }
    }
}

pub(super) fn warn_unreleased(context: &Context, error: clinch::Error) {
    complain(&unreleased(error).to_text(context.json));
}

/// The store did not hear that a hold was given up, or did not say so.
pub(super) fn unreleased(error: clinch::Error) -> Failure {
    Failure::from(error).with_advice("the lock frees itself when its lease ends")
}
