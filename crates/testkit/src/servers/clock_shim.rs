//! A separate wall clock for one server.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result};

use super::{Folder, Recipe, failed};

const SOURCE: &str = include_str!("clock_shim.c");

/// The library, while a server uses it.
static LIBRARY: Mutex<Weak<Folder>> = Mutex::new(Weak::new());

/// The direction of a step.
///
/// ```
/// use clinch_testkit::servers::{Redis, Step};
/// let redis = Redis::with().clock_shim().start()?;
/// redis.step_clock(std::time::Duration::from_secs(10), Step::Back)?;
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Into the future.
    Forward,
    /// Into the past.
    Back,
}

/// Moves the wall clock of a process, and no other clock.
///
/// It is a preloaded library, compiled with `cc` when the first server needs it. It has no effect on
/// programs that do not read the time through the C library, such as those written in Go.
///
/// ```
/// use clinch_testkit::servers::{ClockShim, Folder, Recipe, ServerProcess, Step};
/// let folder = Folder::new("demo")?;
/// let shim = ClockShim::new(&folder)?;
/// shim.step(std::time::Duration::from_secs(1 << 32), Step::Forward)?;
/// let recipe = shim.preload(Recipe::new("date", folder.path()).arg("+%Y"));
/// let date = ServerProcess::start(recipe)?;
/// while date.is_running() { std::thread::yield_now() }
/// assert!(date.log_tail() > "2160".to_owned());
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ClockShim {
    library: Arc<Folder>,
    file: File,
    path: PathBuf,
    /// Microseconds.
    offset: Mutex<i64>,
}

impl ClockShim {
    /// A clock without an offset, kept in a file of the folder.
    pub fn new(folder: &Folder) -> Result<Self> {
        let library = library()?;
        let path = folder.write("clock", 0_i64.to_ne_bytes())?;
        let file = OpenOptions::new().write(true).open(&path);
        Ok(Self {
            library,
            file: file.map_err(|e| failed("cannot open the clock", e))?,
            path,
            offset: Mutex::new(0),
        })
    }

    /// Gives a process this clock.
    pub fn preload(&self, recipe: Recipe) -> Recipe {
        let library = self.library.path().join("shim.so");
        recipe
            .env("LD_PRELOAD", library.to_string_lossy())
            .env("CLINCH_CLOCK_FILE", self.path.to_string_lossy())
    }

    /// Steps the clock at once. Steps add up.
    pub fn step(&self, by: Duration, step: Step) -> Result<()> {
        let span = i64::try_from(by.as_micros());
        let span = span.map_err(|_| Error::invalid("the step is too large for a clock"))?;
        let mut offset = self.offset.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = match step {
            Step::Forward => offset.saturating_add(span),
            Step::Back => offset.saturating_sub(span),
        };
        // Aligned, so a reader sees the old value or the new one.
        let written = self.file.write_all_at(&moved.to_ne_bytes(), 0);
        written.map_err(|e| failed("cannot step the clock", e))?;
        *offset = moved;
        Ok(())
    }
}

/// The folder of the compiled library; removed with the last server that uses it.
fn library() -> Result<Arc<Folder>> {
    let mut kept = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = kept.upgrade() {
        return Ok(folder);
    }
    let folder = Arc::new(Folder::new("shim")?);
    folder.write("shim.c", SOURCE)?;
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o", "shim.so", "shim.c"])
        .current_dir(folder.path())
        .output();
    let compiled = compiled.map_err(|e| failed("cannot run cc", e))?;
    if !compiled.status.success() {
        let errors = String::from_utf8_lossy(&compiled.stderr);
        let message = format!("the clock shim does not compile: {errors}");
        return Err(Error::new(ErrorKind::Internal, message));
    }
    *kept = Arc::downgrade(&folder);
    Ok(folder)
}
