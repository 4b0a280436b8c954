//! `clinch hold NAME`

use std::io::Read as _;

use clinch::{Clinch, Guard, LostReason, ReleaseReply};
use serde_json::json;
use tokio::sync::oneshot;

use super::{run::warn_unreleased, with_store};
use crate::acquire::{Claimed, Ways, lost, not_acquired, wait_for};
use crate::args::HoldCommand;
use crate::child::Signals;
use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output::{self, millis, plain};

pub(crate) async fn main(context: &Context, args: &HoldCommand) -> Outcome {
    with_store(context, |clinch| async move {
        hold(context, &clinch, args).await
    })
    .await
}

async fn hold(context: &Context, clinch: &Clinch, args: &HoldCommand) -> Outcome {
    let mut signals = Signals::listen()?;
    let ways = Ways::new(
        (context, clinch),
        &args.name,
        args.kind,
        args.wait,
        &args.hold,
    );
    let claim = ways.acquire(clinch.clock(), args.wait);
    let guard = match wait_for(context, clinch, &args.name, &mut signals, claim).await? {
        Claimed::Held(guard) => guard,
        Claimed::TimedOut => return Err(not_acquired(clinch, &args.name, args.wait.wait).await),
        Claimed::Interrupted(code) => return Ok(code),
    };
    say_held(context, clinch, &guard)?;
    let reason = until_told(clinch, &guard, args, &mut signals).await;
    let reason = match (reason, guard.release().await) {
        (Some(reason), _) | (None, Ok(ReleaseReply::WasLost(reason))) => Some(reason),
        (None, Ok(ReleaseReply::Released)) => None,
        (None, Err(error)) => {
            warn_unreleased(error);
            None
        }
    };
    // The reader may have gone after the first line; the lock is given up all the same.
    let _ = say_ended(context, args, reason);
    reason.map_or(Ok(exit::OK), |reason| Err(lost(&args.name, reason)))
}

/// Waits for whatever ends the hold; the reason if that is its loss.
async fn until_told(
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

fn say_ended(
    context: &Context,
    args: &HoldCommand,
    reason: Option<LostReason>,
) -> std::io::Result<()> {
    let word = if reason.is_some() { "lost" } else { "released" };
    if context.json {
        let reason = reason.map(LostReason::as_str);
        let name = args.name.as_str();
        return output::json_line(&json!({ "event": word, "name": name, "reason": reason }));
    }
    output::line(&format!("{word} {}", plain(args.name.as_str())))
}
