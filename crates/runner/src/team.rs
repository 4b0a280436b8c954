//! Programs that run side by side.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::programs::Program;
use crate::report::Report;
use crate::run::Run;

/// How often the programs are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// When nothing was printed for this long, what runs is printed.
const QUIET: Duration = Duration::from_secs(60);

/// All programs, and what came of them.
pub(crate) struct Team {
    limit: Duration,
    /// Where the programs print to.
    logs: PathBuf,
    /// The signal by which this process was asked to end.
    asked: Arc<AtomicUsize>,
    began: Instant,
    printed: Instant,
    /// The time that the programs took, added up.
    took: Duration,
    /// Their processor time.
    cpu: Duration,
    reports: Vec<Report>,
    started: usize,
}

impl Team {
    pub(crate) fn new(limit: Duration) -> io::Result<Self> {
        let logs = std::env::temp_dir().join(format!("clinch-test-runner-{}", std::process::id()));
        fs::create_dir(&logs)?;
        let asked = Arc::new(AtomicUsize::new(0));
        // A signal that has a handler is not ignored in the programs either, even if this process
        // runs in the background or under nohup: they find the same signals everywhere.
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, asked.clone(), number)?;
        }
        let now = Instant::now();
        Ok(Self {
            limit,
            logs,
            asked,
            began: now,
            printed: now,
            took: Duration::ZERO,
            cpu: Duration::ZERO,
            reports: Vec::new(),
            started: 0,
        })
    }

    /// Runs programs, so many at once; the signal that ended it before its time.
    pub(crate) fn run(&mut self, programs: Vec<Program>, jobs: usize) -> io::Result<Option<u8>> {
        let mut waiting: VecDeque<Program> = programs.into();
        let mut running: Vec<(Run, Instant)> = Vec::new();
        while !(waiting.is_empty() && running.is_empty()) {
            let asked = self.asked.load(Ordering::Relaxed);
            if asked > 0 {
                println!("\nstopped by signal {asked}");
                running.iter_mut().for_each(|(run, _)| run.kill());
                return Ok(u8::try_from(asked).ok());
            }
            while running.len() < jobs
                && let Some(program) = waiting.pop_front()
            {
                self.started += 1;
                let run = Run::start(program, self.started, self.limit, &self.logs)?;
                running.push((run, Instant::now()));
            }
            let mut still = Vec::new();
            for (mut run, began) in running {
                let before = cpu();
                match run.poll()? {
                    None => still.push((run, began)),
                    Some(report) => {
                        self.ended(report, began.elapsed(), cpu().saturating_sub(before))
                    }
                }
            }
            running = still;
            if self.printed.elapsed() > QUIET {
                let lines = running.iter().map(|(run, _)| run.describe());
                self.print(&format!(
                    "...    {}",
                    lines.collect::<Vec<_>>().join("\n       ")
                ));
            }
            sleep(LOOK);
        }
        Ok(None)
    }

    fn ended(&mut self, report: Report, took: Duration, cpu: Duration) {
        self.print(&report.text(took, cpu));
        self.took += took;
        self.cpu += cpu;
        self.reports.push(report);
    }

    fn print(&mut self, text: &str) {
        println!("{text}");
        self.printed = Instant::now();
    }

    /// Sums up; the exit status.
    pub(crate) fn close(self, asked: Option<u8>) -> io::Result<u8> {
        fs::remove_dir_all(&self.logs)?;
        // A sum of what came to its end would look like one of everything.
        if let Some(signal) = asked {
            return Ok(128 + signal);
        }
        let sum = |count: fn(&Report) -> usize| self.reports.iter().map(count).sum::<usize>();
        let passed = sum(|report| report.passed);
        let failed = sum(Report::failed);
        let skipped = sum(|report| report.skipped);
        println!(
            "\n== {} test programs in {:.0} s; one after the other {:.0} s; processor time {:.0} s",
            self.reports.len(),
            self.began.elapsed().as_secs_f64(),
            self.took.as_secs_f64(),
            self.cpu.as_secs_f64(),
        );
        let failures: String = self.reports.iter().map(Report::failures).collect();
        if !failures.is_empty() {
            println!("{}", failures.trim_start());
        }
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        Ok(u8::from(passed == 0 || failed > 0))
    }
}

/// The processor time of all programs that have ended.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
    let ticks = fields.into_iter().flat_map(|fields| fields.split(' '));
    // The 16th and 17th field; a tick is a hundredth of a second on every Linux.
    let ticks = ticks.skip(13).take(2).filter_map(|n| n.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}
