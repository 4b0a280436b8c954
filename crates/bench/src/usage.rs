//! CPU time and wake-ups of this process so far.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time and wake-ups.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// CPU time of all threads.
    pub(crate) cpu: Duration,
    /// Voluntary context switches of all threads: each ends with a wake-up.
    pub(crate) switches: u64,
}

/// CPU time of all threads of this process.
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// CPU time and wake-ups of this process; the latter are 0 without `/proc`.
pub(crate) fn now() -> Usage {
    let tasks = std::fs::read_dir("/proc/self/task");
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("status")).ok()
    };
    Usage {
        switches: tasks
            .into_iter()
            .flatten()
            .filter_map(status)
            .filter_map(|text| voluntary(&text))
            .sum(),
        cpu: cpu(),
    }
}

fn voluntary(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_grows() {
        let before = now();
        std::thread::sleep(Duration::from_millis(2));
        let after = now();
        assert!(after.switches > before.switches, "{before:?} {after:?}");
        assert!(after.cpu >= before.cpu);
    }
}
