//! The file of one process.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clinch::{Clock, Result};

use super::event::Event;

/// Now, in nanoseconds of the boot clock.
pub(crate) fn now() -> u64 {
    Clock::boot().now().as_nanos()
}

/// Appends events to a file. Each goes out as one write, so that a kill loses at most the line under
/// way. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    file: Arc<Mutex<File>>,
    failures: Arc<AtomicU64>,
}

impl Recorder {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|why| super::failed("write", path, &why))?;
        Ok(Self {
            file: Arc::new(Mutex::new(file)),
            failures: Arc::default(),
        })
    }

    /// Writes one event. What cannot be written is counted: the run must not pass for a whole one.
    pub(crate) fn write(&self, event: &Event) {
        let written = serde_json::to_vec(event).map(|mut line| {
            line.push(b'\n');
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(&line).is_ok()
        });
        if !matches!(written, Ok(true)) {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events could not be written.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}
