//! `clinch watch [PREFIX]`

use std::time::Duration;

use clinch::Clinch;
use clinch::store::{Event, EventKind};

use super::with_store;
use crate::args::WatchArgs;
use crate::child::Signals;
use crate::context::Context;
use crate::failure::{Failure, Outcome, exit};
use crate::output::{self, Paint, millis, plain};

pub(crate) async fn main(context: &Context, args: &WatchArgs) -> Outcome {
    with_store(context, |clinch| async move {
        watch(context, &clinch, args).await
    })
    .await
}

async fn watch(context: &Context, clinch: &Clinch, args: &WatchArgs) -> Outcome {
    let mut signals = Signals::listen()?;
    let mut events = clinch.events(&args.prefix.prefix).await?;
    let began = clinch.clock().now();
    let time_up = async {
        match args.span {
            Some(span) => clinch.clock().sleep_until(began + span).await,
            None => std::future::pending().await,
        }
    };
    let mut time_up = std::pin::pin!(time_up);
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event = tokio::select! {
            biased;
            _ = signals.end(|| {}) => return Ok(exit::OK),
            event = events.next() => event,
            () = &mut time_up => return Ok(exit::OK),
        };
        let Some(event) = event else {
            return Err(
                Failure::new(exit::UNAVAILABLE, "unreachable", "the store tells no more")
                    .with_advice("start watching again"),
            );
        };
        let at = clinch.clock().now().since(began);
        match context.json {
            true => output::json_line(&output::json::event(&event, millis(at)))?,
            false => output::line(&line(context.paint, &event, at))?,
        }
        left -= 1;
    }
    Ok(exit::OK)
}

/// `+12.345s granted  orders/42  host:1234 (label) token 28672`
fn line(paint: Paint, event: &Event, at: Duration) -> String {
    let kind = format!("{:<9}", event.kind.as_str());
    let kind = match event.kind {
        EventKind::Granted | EventKind::Published => paint.green(&kind),
        EventKind::Expired | EventKind::Evicted => paint.red(&kind),
        EventKind::Queued => paint.yellow(&kind),
        _ => kind,
    };
    let mut text = format!("{}  {}:{}", event.name, event.host, event.pid);
    if let Some(label) = &event.label {
        text += &format!(" ({label})");
    }
    if let Some(token) = event.token {
        text += &format!(" token {token}");
    }
    if let Some(value) = &event.value {
        text += &format!(" value {value}");
    }
    let at = paint.dim(&format!("+{:.3}s", at.as_secs_f64()));
    format!("{at} {kind} {}", plain(&text))
}
