//! Worker processes, seen from the parent.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use clinch::{BootTime, Error, Result};
use tokio::sync::mpsc;

use crate::lab::{Halt, Lab};
use crate::worker::{Seen, Turn};

/// How long a process may take to start, or to end after its time.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the processes do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task<'a> {
    pub(crate) name: &'a str,
    pub(crate) processes: usize,
    pub(crate) hold: Duration,
    /// How long they work in all.
    pub(crate) span: Duration,
    /// Look at the use of CPU during waits.
    pub(crate) sample: bool,
    /// Tasks in each process.
    pub(crate) tasks: u32,
    /// Queue at the store, strictly first come, first served.
    pub(crate) fair: bool,
    /// The engine's bare token instead of a lock.
    pub(crate) token: bool,
}

impl<'a> Task<'a> {
    /// One task in each process, by the lock.
    pub(crate) fn new(name: &'a str, processes: usize, hold: Duration, span: Duration) -> Self {
        Self {
            name,
            processes,
            hold,
            span,
            sample: false,
            tasks: 1,
            fair: false,
            token: false,
        }
    }
}

/// When the processes worked, and what each of them recorded.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) from: BootTime,
    pub(crate) until: BootTime,
    pub(crate) seen: Vec<Seen>,
}

impl Outcome {
    /// All turns in the order of entry, each with the number of its process.
    pub(crate) fn in_order(&self) -> Vec<(usize, Turn)> {
        let turns = |(number, seen): (usize, &Seen)| {
            let turns = seen.turns.iter().map(move |turn| (number, *turn));
            turns.collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.seen.iter().enumerate().flat_map(turns).collect();
        all.sort_by_key(|(_, turn)| turn.entered);
        all
    }
}

/// Starts the processes, lets them work at the same time, and collects what they recorded.
pub(crate) async fn run(lab: &Lab, task: Task<'_>) -> Result<Outcome, Halt> {
    let mut crew = Vec::with_capacity(task.processes);
    for _ in 0..task.processes {
        crew.push(Member::start(lab, task)?);
    }
    for member in &mut crew {
        member.line(lab, PATIENCE).await?;
    }
    let from = lab.clock.now() + Duration::from_millis(20);
    let until = from + task.span;
    for member in &mut crew {
        member.go(from, until)?;
    }
    let mut seen = Vec::with_capacity(crew.len());
    for member in &mut crew {
        let left = until.since(lab.clock.now()) + PATIENCE;
        let line = member.line(lab, left).await?;
        let one = serde_json::from_str(&line)
            .map_err(|error| crate::internal(format!("a worker process wrote {error}")))?;
        seen.push(one);
    }
    Ok(Outcome { from, until, seen })
}

/// One worker process. Dropping this ends the process, which releases what it holds.
struct Member {
    process: Child,
    input: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
}

impl Member {
    fn start(lab: &Lab, task: Task<'_>) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        command
            .args(["bench-worker", "--name", task.name, "--hold-us"])
            .arg(task.hold.as_micros().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.args(["--tasks", &task.tasks.to_string()]);
        for (flag, set) in [
            ("--sample", task.sample),
            ("--fair", task.fair),
            ("--token", task.token),
        ] {
            if set {
                command.arg(flag);
            }
        }
        lab.set_store(&mut command);
        let mut process = command.spawn().map_err(|error| failed(&error))?;
        let input = process.stdin.take();
        let (sender, lines) = mpsc::unbounded_channel();
        if let Some(output) = process.stdout.take() {
            // Ends with the process, or when the receiver is dropped.
            let read = move || {
                let mut lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.all(|line| sender.send(line).is_ok())
            };
            std::thread::Builder::new()
                .name("clinch-bench".into())
                .spawn(read)
                .map_err(|error| failed(&error))?;
        }
        Ok(Self {
            process,
            input,
            lines,
        })
    }

    fn go(&mut self, from: BootTime, until: BootTime) -> Result<()> {
        let line = format!("{} {}\n", from.as_nanos(), until.as_nanos());
        match &mut self.input {
            Some(input) => input
                .write_all(line.as_bytes())
                .map_err(|error| failed(&error)),
            None => Err(crate::internal("a worker process has no input")),
        }
    }

    /// The next line that it prints.
    async fn line(&mut self, lab: &Lab, patience: Duration) -> Result<String, Halt> {
        tokio::select! {
            line = self.lines.recv() => {
                line.ok_or_else(|| crate::internal("a worker process ended early").into())
            }
            halted = lab.pause(patience) => {
                halted?;
                Err(crate::internal("a worker process does not answer").into())
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // At the end of its input it releases what it holds and exits.
        drop(self.input.take());
        for _ in 0..200 {
            match self.process.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                _ => return,
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn failed(error: &std::io::Error) -> Error {
    crate::internal(format!("cannot run a worker process: {error}"))
}
