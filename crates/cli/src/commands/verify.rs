//! `clinch verify`

use std::io::Write as _;

use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::verify::{Args, report};

pub(crate) fn main(context: &Context, args: &Args) -> Outcome {
    let report = report(args, context.store(), context.namespace(), context.quiet)?;
    let text = match context.json {
        true => report.json()?,
        false => report.text(),
    };
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(match (report.passed(), report.interrupted()) {
        (false, _) => exit::NO,
        (true, true) => exit::SIGNAL + signal_hook::consts::SIGINT,
        (true, false) => exit::OK,
    })
}
