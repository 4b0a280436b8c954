//! The `clinch` command.

mod acquire;
mod args;
mod child;
mod commands;
mod context;
mod failure;
mod output;
mod patience;
mod usage;
#[cfg(feature = "verify")]
mod verify;
mod wait_line;

use std::process::ExitCode;

fn main() -> ExitCode {
    child::prepare();
    let code = match usage::parse(std::env::args_os()) {
        Ok(cli) => commands::main(cli),
        Err(code) => code,
    };
    // A status is 8 bits; what does not fit can only be a fault of ours.
    ExitCode::from(u8::try_from(code).unwrap_or(failure::INTERNAL_STATUS))
}
