//! Running a command-line client of a server.

use std::process::{Command, Stdio};

use clinch_core::{Error, ErrorKind, Result};

use super::failed;

/// Seconds until a client that got no answer is killed.
const TIMEOUT: &str = "20";

/// Runs a client to its end, which comes in a bounded time, and gives what it printed.
///
/// An exit code other than 0 is an error with the words that the client said; `told` is what it was
/// asked, for that error.
pub(super) fn run(
    program: &str,
    args: &[&str],
    envs: &[(&str, &str)],
    told: &str,
) -> Result<String> {
    // The client of a paused server waits for ever.
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
            let message = format!("{told}: {}", text(&output.stderr));
            Err(Error::new(ErrorKind::Invalid, message))
        }
        code => {
            let why = match code {
                Some(127) => format!("{program} is not installed"),
                _ => format!("{program} got no answer"),
            };
            let message = format!("{told}: {why} {}", text(&output.stderr));
            Err(Error::new(ErrorKind::Unreachable, message))
        }
    }
}
