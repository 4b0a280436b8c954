//! What runs in a worker process: tasks that use locks, record what they see, and are killed.

mod client;
mod clients;
mod config;
mod fork;
mod held;
mod loads;
mod resource;
mod tap;

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch::{Error, ErrorKind, Result};

pub(crate) use client::Shared;
pub(crate) use config::{Config, Counts, Order, Said};
#[cfg(test)]
pub(crate) use resource::Resource;
pub(crate) use resource::Use;

use crate::history::{Event, Forked, Recorder, now};
use crate::workload::Workload;

/// Threads of the runtime that tasks run on.
const THREADS: usize = 2;

/// For how long a worker tries to reach the store at its start: three servers that start again on a
/// busy machine have taken more than half a minute.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a worker says how far it is.
const SAY: Duration = Duration::from_millis(250);

/// Does what the process that started this one asks for on standard input, and gives the exit status.
///
/// ```no_run
/// // in the program that `Options::worker` names:
/// std::process::exit(clinch_verify::work());
/// ```
pub fn work() -> i32 {
    // A worker that is stopped by a fault must not outlive the coordinator.
    let kill = Some(rustix::process::Signal::KILL);
    let _ = rustix::process::set_parent_process_death_signal(kill);
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    let config = read
        .ok()
        .and_then(|_| serde_json::from_str::<Config>(&line).ok());
    let Some(config) = config else {
        say(&Said::Failed(
            "no configuration on standard input".to_owned(),
        ));
        return 2;
    };
    match run(config) {
        Ok(()) => 0,
        Err(error) => {
            say(&Said::Failed(error.to_string()));
            1
        }
    }
}

fn run(config: Config) -> Result<()> {
    let failed = |why| {
        Error::new(
            ErrorKind::Internal,
            format!("cannot start a runtime: {why}"),
        )
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(failed)?;
    if let Some(file) = &config.peek {
        return peek(file);
    }
    let recorder = Recorder::create(&config.history)?;
    let shared = Shared::new(config, recorder);
    let outcome = match shared.config.wrong.clone() {
        Some(wrong) => runtime.block_on(crate::wrong::work(&wrong, &shared, runtime.handle())),
        None => runtime.block_on(with_clinch(&shared, runtime.handle())),
    };
    runtime.shutdown_background();
    outcome
}

async fn with_clinch(shared: &Arc<Shared>, runtime: &tokio::runtime::Handle) -> Result<()> {
    let config = &shared.config;
    let process = config.process;
    let clients = clients::Clients::open(shared).await?;
    say(&Said::Ready);
    obey(shared, Some(clients.clone()), runtime)?;
    let mut tasks = Vec::new();
    for name in &config.workloads {
        let workload: Workload = name.parse()?;
        for number in 0..workload.tasks() {
            let purpose = u64::from(process) << 16 | (workload as u64) << 8 | u64::from(number);
            let client = client::Client::new(&clients, shared, purpose, number);
            tasks.push(runtime.spawn(async move { loads::run(workload, &client).await }));
        }
    }
    watch(shared, tasks).await?;
    clients.close().await;
    say(&Said::Done(shared.counts()));
    Ok(())
}

/// Looks into the file of an embedded store, as `sqlite3` or a backup does.
fn peek(file: &std::path::Path) -> Result<()> {
    let failed = |why: rusqlite::Error| Error::new(ErrorKind::Unreachable, why.to_string());
    let connection = rusqlite::Connection::open(file).map_err(failed)?;
    let count = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
        row.get::<_, i64>(0)
    });
    // A file that is locked is not looked into.
    drop(count);
    connection.close().map_err(|(_, why)| failed(why))?;
    say(&Said::Done(Counts::default()));
    Ok(())
}

/// Holds a lock, has a child use it, and goes on holding it.
async fn fork(shared: &Arc<Shared>, clients: &Arc<clients::Clients>) {
    let client = client::Client::new(clients, shared, u64::from(shared.config.process), 0);
    client.refresh().await;
    if shared.stopped() {
        return;
    }
    let name = client.name(format_args!("fork/{}", shared.config.process));
    let (lock, ask) = (client.lock(&name), client.ask(&name));
    let held = client
        .acquire(&ask, async { lock.acquire().await.map(Some) })
        .await;
    let Some(held) = held else { return };
    let other = client.name(format_args!("fork/{}/child", shared.config.process));
    let at = now();
    let before = held.look();
    let clinch = client.clinch();
    let (held, saw) =
        tokio::task::block_in_place(|| held.lend(|guard| fork::child(&clinch, guard, &other)));
    if let Ok(saw) = saw {
        shared.recorder.write(&Event::Forked(Forked {
            process: shared.config.process,
            op: held.op,
            lock: name,
            at,
            valid: before && saw.valid,
            granted: saw.granted,
            released: saw.released,
        }));
    }
    held.keep(shared.config.lease() * 2).await;
    held.release().await;
}

/// Says how far the tasks are until they have ended.
pub(crate) async fn watch(shared: &Shared, tasks: Vec<tokio::task::JoinHandle<()>>) -> Result<()> {
    for mut task in tasks {
        loop {
            tokio::select! {
                ended = &mut task => {
                    ended.map_err(|why| Error::new(ErrorKind::Internal, format!("a task: {why}")))?;
                    break;
                }
                () = shared.clock.sleep(SAY) => say(&Said::Counts(shared.counts())),
            }
        }
    }
    Ok(())
}

/// Listens to standard input for orders; its end means stop.
pub(crate) fn obey(
    shared: &Arc<Shared>,
    clients: Option<Arc<clients::Clients>>,
    runtime: &tokio::runtime::Handle,
) -> Result<()> {
    let (shared, runtime) = (shared.clone(), runtime.clone());
    let listen = move || {
        for line in std::io::stdin().lock().lines() {
            let order = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            match order {
                Some(Order::Stall(millis)) => stall(&runtime, Duration::from_millis(millis)),
                Some(Order::Close) => {
                    if let Some(clients) = clients.clone() {
                        runtime.spawn(async move { clients.replace_one().await });
                    }
                }
                Some(Order::Fork) => {
                    if let Some(clients) = clients.clone() {
                        let shared = shared.clone();
                        runtime.spawn(async move { fork(&shared, &clients).await });
                    }
                }
                Some(Order::Stop) | None => break,
            }
        }
        shared.stop.store(true, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new()
        .name("clinch-orders".into())
        .spawn(listen);
    thread
        .map(drop)
        .map_err(|why| Error::new(ErrorKind::Internal, format!("no thread: {why}")))
}

/// Blocks every thread of the runtime, as a user's code may.
fn stall(runtime: &tokio::runtime::Handle, span: Duration) {
    for _ in 0..THREADS {
        runtime.spawn(async move { std::thread::sleep(span) });
    }
}

/// Tells the coordinator. If it has gone, standard input ends as well.
pub(crate) fn say(said: &Said) {
    if let Ok(line) = serde_json::to_string(said) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}
