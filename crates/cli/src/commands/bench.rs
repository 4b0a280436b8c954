//! `clinch bench`

use crate::bench::{self, Args, WorkerArgs};
use crate::context::Context;
use crate::failure::Outcome;

pub(crate) fn main(context: &Context, args: &Args) -> Outcome {
    let namespace = Some(context.namespace());
    Ok(bench::run(args, context.store(), namespace, context.json)?)
}

pub(crate) fn worker(context: &Context, args: &WorkerArgs) -> Outcome {
    let namespace = Some(context.namespace());
    Ok(bench::work(args, context.store(), namespace)?)
}
