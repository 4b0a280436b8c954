//! `clinch show NAME`

use std::time::Duration;

use clinch::store::{LockView, PartyView};

use super::list::mode;
use super::with_store;
use crate::args::NameArgs;
use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output::{self, age, json, plain};

pub(crate) async fn main(context: &Context, args: &NameArgs) -> Outcome {
    with_store(context, |clinch| async move {
        let view = clinch.inspect(args.name.as_str()).await?;
        match (&view, context.json) {
            (Some(view), true) => output::json_line(&json::Lock::new(view))?,
            (None, true) => output::json_line(&json::Lock::free(&args.name))?,
            (Some(view), false) => output::line(&text(context, view))?,
            (None, false) => output::line(&format!("{}: free", plain(args.name.as_str())))?,
        }
        Ok(exit::OK)
    })
    .await
}

fn text(context: &Context, view: &LockView) -> String {
    let paint = context.paint;
    let name = paint.bold(&plain(view.name.as_str()));
    let kind = json::kind(view.limit);
    let mut lines = vec![match kind {
        "semaphore" => format!("{name}: {kind} of {}", view.limit),
        _ => format!("{name}: {kind}"),
    }];
    for holder in &view.holders {
        party(
            &mut lines,
            (&paint.green("held"), "lease left"),
            view,
            holder,
        );
    }
    for ended in &view.delayed {
        let title = format!("{} of a hold that has ended", paint.yellow("lock-delay"));
        party(&mut lines, (&title, "free in"), view, ended);
    }
    for (place, waiter) in view.waiters.iter().enumerate() {
        let title = format!(
            "{} (number {} in the queue)",
            paint.yellow("waiting"),
            place + 1
        );
        party(&mut lines, (&title, "lease left"), view, waiter);
    }
    lines.join("\n")
}

fn party(lines: &mut Vec<String>, (title, left): (&str, &str), view: &LockView, party: &PartyView) {
    let sequencer = party.token.map(|token| {
        let mode = clinch::Mode::of(party.units, view.limit);
        clinch::Sequencer::new(view.name.clone(), mode, token).to_string()
    });
    // Of another library's holder only what it calls itself is known.
    let known = !party.host.is_empty();
    lines.push(format!("  {title}"));
    for (key, value) in [
        ("mode", Some(mode(party.units, view.limit))),
        ("owner", Some(party.owner.to_string())),
        (
            "process",
            known.then(|| format!("{} on {}", party.pid, party.host)),
        ),
        ("client", known.then(|| party.client.to_string())),
        ("label", party.label.as_deref().map(str::to_owned)),
        ("value", party.value.as_deref().map(str::to_owned)),
        ("token", party.token.map(|token| token.to_string())),
        ("sequencer", sequencer),
        (
            "since",
            (party.age != Duration::MAX).then(|| age(party.age)),
        ),
        (left, Some(age(party.lease_left))),
    ] {
        if let Some(value) = value {
            lines.push(format!("    {key:<12}{}", plain(&value)));
        }
    }
}
