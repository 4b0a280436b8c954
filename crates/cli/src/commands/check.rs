//! `clinch check SEQUENCER`

use serde_json::json;

use super::with_store;
use crate::args::CheckArgs;
use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output;

pub(crate) async fn main(context: &Context, args: &CheckArgs) -> Outcome {
    with_store(context, |clinch| async move {
        let sequencer = &args.sequencer;
        let current = clinch.check(sequencer).await?.is_current();
        if context.json {
            output::json_line(&json!({
                "sequencer": sequencer.to_string(),
                "name": sequencer.name().as_str(),
                "token": sequencer.token(),
                "current": current,
            }))?;
        } else {
            output::line(if current { "current" } else { "stale" })?;
        }
        Ok(if current { exit::OK } else { exit::NO })
    })
    .await
}
