//! What runs in another process: tasks that take a lock again and again.
//!
//! It prints `ready`, reads `START END` (moments on the boot clock in nanoseconds), works between
//! them, and prints what it saw as one line of JSON. When its standard input ends, it stops early.

use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use clinch::store::Baton;
use clinch::{BootTime, Clinch, Clock, Guard, Lock, Result};
use serde::{Deserialize, Serialize};

use super::stop::Stop;
use super::usage;

/// The most turns of one process: nothing runs for ever.
const MOST: usize = 500_000;

/// How a worker process is told what to do.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The name to take
    #[arg(long)]
    pub(crate) name: String,
    /// Microseconds to hold it each time
    #[arg(long, default_value_t = 0)]
    pub(crate) hold_us: u64,
    /// Look at the use of CPU during each wait
    #[arg(long)]
    pub(crate) sample: bool,
    /// Tasks that take it, each for itself
    #[arg(long, default_value_t = 1)]
    pub(crate) tasks: u32,
    /// Queue at the store, strictly first come, first served
    #[arg(long)]
    pub(crate) fair: bool,
    /// Take the engine's bare token instead of a lock
    #[arg(long)]
    pub(crate) baton: bool,
}

/// What a worker process saw.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) turns: Vec<Turn>,
    /// Operations at the engine over all turns.
    pub(super) operations: u64,
}

/// One acquisition. Moments are nanoseconds on the boot clock, which all processes share.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Turn {
    /// Just before it asked.
    pub(super) asked: u64,
    /// Just after the grant.
    pub(super) entered: u64,
    /// Just before the release.
    pub(super) left: u64,
    pub(super) token: u64,
    /// Operations at the engine between asking and entering.
    pub(super) operations: u64,
    /// CPU time used meanwhile, in nanoseconds, if sampled.
    pub(super) cpu: u64,
    /// Wake-ups of any thread meanwhile, if sampled.
    pub(super) switches: u64,
}

/// Works as told by the process that started this one.
pub(crate) fn run(args: &Args, url: Option<&str>, namespace: Option<&str>) -> Result<i32> {
    let stop = Stop::on_signals()?;
    clinch::blocking::block_on(async {
        let clinch = super::connect(url, namespace).await?;
        say("ready");
        let seen = match go() {
            Some((from, until)) => {
                stop_with_input(&stop)?;
                work(args, &clinch, &stop, from, until).await
            }
            // Whoever started this one has gone.
            None => Ok(Seen::default()),
        };
        let closed = clinch.close().await;
        let seen = serde_json::to_string(&seen?)
            .map_err(|error| super::internal(format!("cannot write JSON: {error}")))?;
        say(&seen);
        closed.map(|()| 0)
    })
}

/// Runs the tasks side by side and adds up what they saw.
async fn work(
    args: &Args,
    clinch: &Clinch,
    stop: &Stop,
    from: BootTime,
    until: BootTime,
) -> Result<Seen> {
    let at_start = clinch.operations();
    let mut seen = Seen::default();
    if args.tasks == 1 {
        seen.turns = turns(args, clinch, stop, from, until).await?;
    } else {
        let runtime = super::runtime()?;
        let tasks: Vec<_> = (0..args.tasks)
            .map(|_| {
                let (args, clinch, stop) = (args.clone(), clinch.clone(), stop.clone());
                runtime.spawn(async move { turns(&args, &clinch, &stop, from, until).await })
            })
            .collect();
        for task in tasks {
            let ended = |error| super::internal(format!("a task failed: {error}"));
            seen.turns.extend(task.await.map_err(ended)??);
        }
        runtime.shutdown_background();
    }
    seen.operations = clinch.operations() - at_start;
    Ok(seen)
}

async fn turns(
    args: &Args,
    clinch: &Clinch,
    stop: &Stop,
    from: BootTime,
    until: BootTime,
) -> Result<Vec<Turn>> {
    let clock = Clock::boot();
    let hold = Duration::from_micros(args.hold_us);
    let store = clinch.store();
    let mut way = Way::new(args, clinch).await?;
    clock.sleep_until(from).await;
    let mut turns = Vec::new();
    while turns.len() < MOST && clock.now() < until && !stop.is_set() {
        let operations = store.operations();
        let used = args.sample.then(usage::now).unwrap_or_default();
        let asked = clock.now();
        let inside = way.enter().await?;
        let entered = clock.now();
        let mut turn = Turn {
            asked: asked.as_nanos(),
            entered: entered.as_nanos(),
            token: match &inside {
                Some(guard) if store.info().capabilities.tokens => guard.token().get(),
                _ => 0,
            },
            operations: store.operations() - operations,
            ..Turn::default()
        };
        if args.sample {
            let now = usage::now();
            turn.cpu = nanos(now.cpu.saturating_sub(used.cpu));
            turn.switches = now.switches.saturating_sub(used.switches);
        }
        if !hold.is_zero() {
            clock.sleep_until(entered + hold).await;
        }
        turn.left = clock.now().as_nanos();
        way.leave(inside).await?;
        turns.push(turn);
    }
    Ok(turns)
}

/// How a task gets in: by a lock, or by the engine's bare token.
enum Way {
    Lock(Lock),
    Baton(Box<dyn Baton>),
}

impl Way {
    async fn new(args: &Args, clinch: &Clinch) -> Result<Self> {
        if args.baton {
            let baton = clinch.store().baton(&args.name).await?;
            return baton
                .map(Self::Baton)
                .ok_or_else(|| super::internal("this store has no bare token"));
        }
        let lock = clinch.lock(&args.name);
        Ok(Self::Lock(if args.fair { lock.fair() } else { lock }))
    }

    async fn enter(&mut self) -> Result<Option<Guard>> {
        match self {
            Self::Lock(lock) => lock.acquire().await.map(Some),
            Self::Baton(baton) => baton.take().await.map(|()| None),
        }
    }

    async fn leave(&mut self, inside: Option<Guard>) -> Result<()> {
        match (self, inside) {
            (Self::Baton(baton), _) => baton.pass().await,
            (Self::Lock(_), Some(guard)) => guard.release().await.map(drop),
            (Self::Lock(_), None) => Ok(()),
        }
    }
}

/// Reads between which moments to work.
fn go() -> Option<(BootTime, BootTime)> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).ok()?;
    let mut moments = line.split_whitespace().map(str::parse);
    match (moments.next(), moments.next()) {
        (Some(Ok(from)), Some(Ok(until))) => {
            Some((BootTime::from_nanos(from), BootTime::from_nanos(until)))
        }
        _ => None,
    }
}

/// Sets the flag when standard input ends: whoever started this process has gone, or wants an end.
fn stop_with_input(stop: &Stop) -> Result<()> {
    let stop = stop.clone();
    std::thread::Builder::new()
        .name("clinch-bench".into())
        .spawn(move || {
            let mut line = String::new();
            let _ = std::io::stdin().lock().read_line(&mut line);
            stop.set();
        })
        .map(drop)
        .map_err(|error| super::internal(format!("cannot start a thread: {error}")))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever started this process has gone: it will notice by its input.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Turn {
    /// From asking to entering.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_nanos(self.entered.saturating_sub(self.asked))
    }
}
