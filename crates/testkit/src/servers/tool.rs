//! Running command-line tools.

use std::process::{Command, Stdio};

use clinch_core::{Error, ErrorKind, Result};

use super::failed;

/// Seconds until a tool is killed.
const TIMEOUT: &str = "20";

/// Runs a tool to its end, for a bounded time, and returns its output.
///
/// If the exit code is not 0, the error has `what` and the tool's error output.
pub(super) fn run(
    program: &str,
    args: &[&str],
    envs: &[(&str, &str)],
    what: &str,
) -> Result<String> {
    // The client of a paused server would wait for ever.
    let output = Command::new("timeout")
        .args(["-s", "KILL", TIMEOUT, program])
        .args(args)
        .envs(envs.iter().copied())
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|e| failed(format!("cannot run {program}"), e))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.code() {
        Some(0) => Ok(text(&output.stdout)),
        Some(code) if code != 127 && code != 137 => {
            let message = format!("{what}: {}", text(&output.stderr));
            Err(Error::new(ErrorKind::Invalid, message))
        }
        code => {
            let why = match code {
                Some(127) => format!("{program} is not installed"),
                _ => format!("{program} got no answer"),
            };
            let message = format!("{what}: {why} {}", text(&output.stderr));
            Err(Error::new(ErrorKind::Unreachable, message))
        }
    }
}
