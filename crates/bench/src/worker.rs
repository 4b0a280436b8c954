//! The worker process: tasks that repeatedly take a lock.
//!
//! It prints `ready`, reads `START END` (times on the boot clock in nanoseconds), works between
//! them, and prints what it recorded as one line of JSON. When its standard input ends, it stops early.

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use clinch::{BootTime, Clinch, Clock, Guard, Lock, Result};
use serde::{Deserialize, Serialize};

use crate::baseline::{Engine, TokenPassing};
use crate::stop::Stop;
use crate::usage;

/// Upper bound on the turns of one process.
const MOST: usize = 500_000;

/// The options of a worker process.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The name to take
    #[arg(long)]
    pub name: String,
    /// Microseconds to hold it each time
    #[arg(long, default_value_t = 0)]
    pub hold_us: u64,
    /// Look at the use of CPU during each wait
    #[arg(long)]
    pub sample: bool,
    /// Tasks that take it, each for itself
    #[arg(long, default_value_t = 1)]
    pub tasks: u32,
    /// Queue at the store, strictly first come, first served
    #[arg(long)]
    pub fair: bool,
    /// Take the engine's bare token instead of a lock
    #[arg(long)]
    pub token: bool,
}

/// What a worker process recorded.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) turns: Vec<Turn>,
    /// Operations at the engine over all turns.
    pub(crate) operations: u64,
}

/// One acquisition. Times are nanoseconds on the boot clock, which all processes share.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// Just before the claim.
    pub(crate) asked: u64,
    /// Just after the grant.
    pub(crate) entered: u64,
    /// Just before the release.
    pub(crate) left: u64,
    pub(crate) token: u64,
    /// Operations at the engine between the claim and the grant.
    pub(crate) operations: u64,
    /// CPU time used meanwhile, in nanoseconds, if sampled.
    pub(crate) cpu: u64,
    /// Wake-ups of any thread meanwhile, if sampled.
    pub(crate) switches: u64,
}

/// What all tasks of a worker process share.
struct Job {
    args: Args,
    url: Option<String>,
    clinch: Clinch,
    stop: Stop,
    from: BootTime,
    until: BootTime,
}

/// Runs a worker process for the parent that started it with [`run`](crate::run); returns the exit status.
pub fn run(args: &Args, url: Option<&str>, namespace: &str) -> Result<i32> {
    let stop = Stop::on_signals()?;
    let running = serve(args, url, namespace, stop);
    match args.token {
        // On one thread with its I/O: the token then costs no thread switch.
        true => single_thread()?.block_on(running),
        false => clinch::blocking::block_on(running),
    }
}

async fn serve(args: &Args, url: Option<&str>, namespace: &str, stop: Stop) -> Result<i32> {
    let clinch = crate::connect(url, namespace).await?;
    say("ready");
    let seen = match go() {
        Some((from, until)) => {
            stop_with_input(&stop)?;
            work(Job {
                args: args.clone(),
                url: url.map(str::to_owned),
                clinch: clinch.clone(),
                stop,
                from,
                until,
            })
            .await
        }
        // The parent is gone.
        None => Ok(Seen::default()),
    };
    let closed = clinch.close().await;
    let seen = serde_json::to_string(&seen?)
        .map_err(|error| crate::internal(format!("cannot write JSON: {error}")))?;
    say(&seen);
    closed.map(|()| 0)
}

fn single_thread() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| crate::internal(format!("cannot start a runtime: {error}")))
}

/// Runs the tasks side by side and adds up what they recorded.
async fn work(job: Job) -> Result<Seen> {
    let client = job.clinch.clone();
    let at_start = client.operations();
    let mut seen = Seen::default();
    if job.args.tasks == 1 {
        seen.turns = turns(&job).await?;
    } else {
        let runtime = crate::runtime()?;
        let job = Arc::new(job);
        let tasks: Vec<_> = (0..job.args.tasks)
            .map(|_| {
                let job = job.clone();
                runtime.spawn(async move { turns(&job).await })
            })
            .collect();
        for task in tasks {
            let ended = |error| crate::internal(format!("a task failed: {error}"));
            seen.turns.extend(task.await.map_err(ended)??);
        }
        runtime.shutdown_background();
    }
    seen.operations = client.operations() - at_start;
    Ok(seen)
}

async fn turns(job: &Job) -> Result<Vec<Turn>> {
    let Job { args, stop, .. } = job;
    let clock = Clock::boot();
    let hold = Duration::from_micros(args.hold_us);
    let client = &job.clinch;
    let mut way = Way::new(job).await?;
    clock.sleep_until(job.from).await;
    let mut turns = Vec::new();
    while turns.len() < MOST && clock.now() < job.until && !stop.is_set() {
        let operations = client.operations();
        let used = args.sample.then(usage::now).unwrap_or_default();
        let asked = clock.now();
        let inside = way.enter().await?;
        let entered = clock.now();
        let mut turn = Turn {
            asked: asked.as_nanos(),
            entered: entered.as_nanos(),
            token: match &inside {
                Some(guard) if client.info().capabilities.tokens => guard.token().get(),
                _ => 0,
            },
            operations: client.operations() - operations,
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
    way.end().await?;
    Ok(turns)
}

/// How a task enters: with a lock, or with the engine's bare token.
enum Way {
    Lock(Lock),
    Token(Box<dyn Engine>, Box<dyn TokenPassing>),
}

impl Way {
    async fn new(job: &Job) -> Result<Self> {
        let name = &job.args.name;
        if job.args.token {
            let none = || crate::internal("this store has no bare token");
            let engine = crate::engine(job.url.as_deref(), job.clinch.client_id()).await?;
            let engine = engine.ok_or_else(none)?;
            let token = engine.token(name).await?;
            return Ok(Self::Token(engine, token.ok_or_else(none)?));
        }
        let lock = job.clinch.lock(name);
        Ok(Self::Lock(if job.args.fair { lock.fair() } else { lock }))
    }

    async fn enter(&mut self) -> Result<Option<Guard>> {
        match self {
            Self::Lock(lock) => lock.acquire().await.map(Some),
            Self::Token(_, token) => token.take().await.map(|()| None),
        }
    }

    async fn leave(&mut self, inside: Option<Guard>) -> Result<()> {
        match (self, inside) {
            (Self::Token(_, token), _) => token.pass().await,
            (Self::Lock(_), Some(guard)) => guard.release().await.map(drop),
            (Self::Lock(_), None) => Ok(()),
        }
    }

    async fn end(self) -> Result<()> {
        match self {
            Self::Lock(_) => Ok(()),
            Self::Token(engine, token) => {
                drop(token);
                engine.close().await
            }
        }
    }
}

/// Reads when to start and when to end.
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

/// Sets the flag at the end of standard input: the parent is gone, or wants this process to exit.
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
        .map_err(|error| crate::internal(format!("cannot start a thread: {error}")))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Ignored: without a parent, standard input ends as well.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl Turn {
    /// From the claim to the grant.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.entered.saturating_sub(self.asked))
    }
}
