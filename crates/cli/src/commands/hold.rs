//! `clinch hold NAME`

use std::io::Read as _;

use clinch::{Clinch, Guard, LostReason, ReleaseReply};
use serde_json::json;
use tokio::sync::oneshot;

use super::close;
use super::run::unreleased;
use crate::acquire::{Claimed, Waiting, lost, not_acquired};
use crate::args::HoldCommand;
use crate::child::Signals;
use crate::context::Context;
use crate::failure::{Failure, Outcome, exit};
use crate::output::{self, millis, plain};
use crate::patience::Patience;

pub(crate) async fn main(context: &Context, args: &HoldCommand) -> Outcome {
    context.check_shared()?;
    let mut signals = Signals::listen()?;
    let patience = Patience::of_waiting(context, args.wait);
    let clinch = match patience.connect(context, &mut signals).await? {
        Ok(clinch) => clinch,
        Err(interrupted) => return Ok(interrupted),
    };
    let outcome = hold(context, &clinch, args, &mut signals, patience).await;
    close(&clinch).await;
    outcome
}

async fn hold(
    context: &Context,
    clinch: &Clinch,
    args: &HoldCommand,
    signals: &mut Signals,
    patience: Patience,
) -> Outcome {
    let waiting = Waiting {
        name: &args.name,
        kind: args.kind,
        wait: args.wait,
        hold: &args.hold,
    };
    let guard = match waiting.acquire(context, clinch, signals, patience).await? {
        Claimed::Held(guard) => guard,
        Claimed::TimedOut => return Err(not_acquired(clinch, &args.name, args.wait.wait).await),
        Claimed::Interrupted(code) => return Ok(code),
    };
    say_held(context, clinch, &guard)?;
    let reason = until_ended(clinch, &guard, args, signals).await;
    let end = match (reason, guard.release().await) {
        (Some(reason), _) | (None, Ok(ReleaseReply::WasLost(reason))) => End::Lost(reason),
        (None, Ok(ReleaseReply::Released)) => End::Released,
        (None, Err(error)) => End::Unconfirmed(unreleased(error)),
    };
    // The reader may have gone after the first line; the lock is given up all the same.
    let _ = say_ended(context, args, &end);
    match end {
        End::Released => Ok(exit::OK),
        End::Lost(reason) => Err(lost(&args.name, reason)),
        End::Unconfirmed(failure) => Err(failure),
    }
}

/// How a hold ended.
enum End {
    Released,
    Lost(LostReason),
    /// It was given up, and the store has not said that it knows.
    Unconfirmed(Failure),
}

/// Waits for whatever ends the hold; the reason if that is its loss.
async fn until_ended(
    clinch: &Clinch,
    guard: &Guard,
    args: &HoldCommand,
    signals: &mut Signals,
) -> Option<LostReason> {
    let time_up = async {
        match args.span {
            Some(span) => clinch.clock().sleep(span).await,
            None => std::future::pending().await,
        }
    };
    let input_ended = async {
        match args.stdin {
            true => end_of_input().await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        reason = guard.lost() => Some(reason),
        _ = signals.end(|| {}) => None,
        () = time_up => None,
        () = input_ended => None,
    }
}

/// Completes when standard input has ended.
async fn end_of_input() {
    let (ended, end) = oneshot::channel();
    let reader = std::thread::Builder::new()
        .name("clinch-stdin".into())
        .spawn(move || {
            let mut buffer = [0; 4096];
            while !matches!(std::io::stdin().read(&mut buffer), Ok(0) | Err(_)) {}
            let _ = ended.send(());
        });
    if reader.is_ok() {
        let _ = end.await;
    }
}

fn say_held(context: &Context, clinch: &Clinch, guard: &Guard) -> std::io::Result<()> {
    let name = guard.name();
    let fenced = clinch.info().capabilities.tokens;
    let token = fenced.then(|| guard.token());
    let sequencer = fenced.then(|| guard.sequencer().to_string());
    if !context.json {
        let name = plain(name.as_str());
        return output::line(&match (token, &sequencer) {
            (Some(token), Some(sequencer)) => {
                format!("held {name} token {token} sequencer {sequencer}")
            }
            _ => format!("held {name}"),
        });
    }
    let predecessor = guard
        .predecessor()
        .map(|last| json!({ "ending": last.ending.as_str(), "owner": last.owner.as_str() }));
    output::json_line(&json!({
        "event": "held",
        "name": name.as_str(),
        "mode": output::json::mode_word(guard.mode()),
        "token": token,
        "sequencer": sequencer,
        "lease_left_ms": millis(guard.remaining()),
        "predecessor": predecessor,
    }))
}

fn say_ended(context: &Context, args: &HoldCommand, end: &End) -> std::io::Result<()> {
    let (event, reason) = match end {
        End::Released => ("released", None),
        End::Lost(reason) => ("lost", Some(reason.as_str())),
        End::Unconfirmed(_) => ("unconfirmed", None),
    };
    let name = args.name.as_str();
    if context.json {
        return output::json_line(&json!({ "event": event, "name": name, "reason": reason }));
    }
    output::line(&match end {
        End::Unconfirmed(_) => format!("gave up {}, unconfirmed", plain(name)),
        _ => format!("{event} {}", plain(name)),
    })
}
