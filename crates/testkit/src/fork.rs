//! A child that is a copy of this process, as programs make it that fork and do not exec.
#![expect(
    unsafe_code,
    reason = "fork, alarm and _exit have no safe form; each block says why it is sound"
)]

use std::io::{Read as _, Write as _, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The longest time that a child has: then a signal ends it.
const LONGEST: u32 = 30;

/// Runs `body` in a forked child, waits for the end of it, and returns what went wrong there.
///
/// What `body` changes stays in the child. Other threads do not exist there: a lock that one of them
/// held at the fork is locked for ever, and `body` must not need it.
///
/// ```
/// use clinch_testkit::fork::in_child;
/// let (parent, mut count) = (std::process::id(), 0);
/// let outcome = in_child(|| {
///     count += 1;
///     assert_ne!(std::process::id(), parent);
///     Ok(())
/// });
/// assert_eq!((outcome, count), (Ok(()), 0));
/// assert_eq!(in_child(|| Err("a reason".into())), Err("a reason".into()));
/// ```
pub fn in_child(body: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let (mut read_end, mut write_end) = pipe().map_err(|error| error.to_string())?;
    // SAFETY: the child runs `body` on the one thread that it has, and ends without running what
    // belongs to the parent: destructors of the callers, exit handlers.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().to_string()),
        0 => {
            // SAFETY: only sets a timer of the child; it has no handler for the signal.
            unsafe { libc::alarm(LONGEST) };
            let outcome = catch_unwind(AssertUnwindSafe(body));
            let report = match outcome {
                Ok(Ok(())) => "done".to_owned(),
                Ok(Err(reason)) => reason,
                Err(_) => "the child panicked".to_owned(),
            };
            // The parent may have gone; then nobody reads it.
            let _ = write_end.write_all(report.as_bytes());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(write_end);
            let mut report = String::new();
            let read = read_end.read_to_string(&mut report);
            // SAFETY: waits for a child of this process that nobody else waits for.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            match (read, report.as_str()) {
                (Ok(_), "done") => Ok(()),
                (Ok(_), "") => Err("the child has ended without a report: it hung".to_owned()),
                (Ok(_), reason) => Err(reason.to_owned()),
                (Err(error), _) => Err(error.to_string()),
            }
        }
    }
}
