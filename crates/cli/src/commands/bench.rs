//! `clinch bench`

use clinch_bench::{Args, WorkerArgs};

use crate::context::Context;
use crate::failure::Outcome;

pub(crate) fn main(context: &Context, args: &Args) -> Outcome {
    let (store, namespace) = (context.store(), context.namespace());
    Ok(clinch_bench::run(args, store, namespace, context.json)?)
}

pub(crate) fn worker(context: &Context, args: &WorkerArgs) -> Outcome {
    let (store, namespace) = (context.store(), context.namespace());
    Ok(clinch_bench::work(args, store, namespace)?)
}
