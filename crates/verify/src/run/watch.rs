//! How far a run is, and what the checkers say so far.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clinch::{BootTime, Error, ErrorKind, Result};

use super::enough::Enough;
use super::{Run, TICK, lock};
use crate::check::{Property, check};
use crate::history::History;
use crate::work::Counts;

/// How far a run is.
///
/// ```
/// let now = clinch_verify::Progress::default();
/// assert_eq!((now.grants, now.violations), (0, 0));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Since the faults began.
    pub elapsed: Duration,
    /// Until they end.
    pub left: Duration,
    /// Operations of clients so far.
    pub operations: u64,
    /// Locks granted so far.
    pub grants: u64,
    /// Faults so far.
    pub faults: u64,
    /// Violations found so far. The last word is the report's.
    pub violations: u64,
    /// What is going on.
    pub phase: &'static str,
}

impl Run<'_> {
    /// Shows progress until the time is over, and says when a wrong lock has shown enough.
    pub(super) async fn show(
        &self,
        watcher: &Watcher,
        until: BootTime,
        progress: &mut dyn FnMut(&Progress),
    ) {
        let silence = self.lease * 2 + self.grace();
        let mut enough = Enough::new(self.wrong(), silence, self.clock.now());
        loop {
            let mut now = self.now(watcher, "running");
            now.left = until.since(self.clock.now());
            now.elapsed = self.options.span.saturating_sub(now.left);
            progress(&now);
            let caught = watcher.caught.load(Ordering::Relaxed);
            if enough.is_reached(self.clock.now(), now.grants, caught) {
                self.enough.store(true, Ordering::Relaxed);
            }
            self.clock.sleep(TICK * 2).await;
        }
    }

    pub(super) fn now(&self, watcher: &Watcher, phase: &'static str) -> Progress {
        let mut counts = *lock(&self.retired);
        for (member, _) in lock(&self.members).iter() {
            counts.add(member.heard().counts);
        }
        Progress {
            elapsed: self.options.span,
            left: Duration::ZERO,
            operations: counts.operations,
            grants: counts.grants,
            faults: self.faults.load(Ordering::Relaxed),
            violations: watcher.violations.load(Ordering::Relaxed),
            phase,
        }
    }
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.grants += other.grants;
        self.errors += other.errors;
        self.losses += other.losses;
        self.unrecorded += other.unrecorded;
    }
}

/// A thread that checks what there is so far, whenever there is half as much again: so all its work
/// together is linear. Where one violation is waited for it looks more often.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) violations: Arc<AtomicU64>,
    /// The expected one is among them.
    pub(super) caught: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

impl Watcher {
    pub(super) fn start(folder: &Path, expected: Option<Property>) -> Self {
        let watcher = Self {
            violations: Arc::default(),
            caught: Arc::default(),
            over: Arc::default(),
        };
        let (violations, over) = (watcher.violations.clone(), watcher.over.clone());
        let caught = watcher.caught.clone();
        let folder = folder.to_owned();
        let look = move || {
            let mut checked = 0;
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(500));
                let size = size(&folder);
                let more = match expected {
                    Some(_) => checked / 16 + 1,
                    None => checked / 2 + 100_000,
                };
                if size < checked + more {
                    continue;
                }
                checked = size;
                // A line may be half written while it is read: the next look sees all of it.
                if let Ok(history) = files(&folder).and_then(|files| History::read(&files)) {
                    let found = check(&history).violations;
                    let count = u64::try_from(found.len()).unwrap_or(0);
                    violations.store(count, Ordering::Relaxed);
                    if found.iter().any(|found| Some(found.property) == expected) {
                        caught.store(true, Ordering::Relaxed);
                    }
                }
            }
        };
        // Without it the line shows no violations; the report does.
        let _ = std::thread::Builder::new()
            .name("clinch-watch".into())
            .spawn(look);
        watcher
    }

    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop();
    }
}

fn size(folder: &Path) -> u64 {
    let files = files(folder).unwrap_or_default();
    files
        .iter()
        .filter_map(|file| file.metadata().ok())
        .map(|meta| meta.len())
        .sum()
}

/// The history files of a folder.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |why| Error::new(ErrorKind::Internal, format!("cannot list histories: {why}"));
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<_> = paths
        .filter(|p| p.extension().is_some_and(|e| e == "jsonl"))
        .collect();
    files.sort();
    Ok(files)
}
