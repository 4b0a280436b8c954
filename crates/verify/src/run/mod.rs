//! A run: workers, faults, and the end of both.

mod budget;
mod crew;
mod enough;
mod inject;
pub(crate) mod kinds;
mod plan;
mod polls;
mod requests;
mod resources;
mod route;
mod watch;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch::{BootTime, Clinch, Clock, Connect, Error, ErrorKind, Result};
use clinch_testkit::servers::Folder;

use crew::Member;
pub(crate) use plan::What;
#[cfg(test)]
pub(crate) use plan::{OfEngine, Plan};
pub(crate) use route::LinkFault;
use route::{Route, Way};
pub use watch::Progress;

use crate::history::{Event, Exit, Fault, Hired, History, Recorder, Scan, Start, VERSION, now};
use crate::lab::Engine;
use crate::options::{Options, Target};
use crate::report::Report;
use crate::work::{Config, Counts, Order};
use crate::workload::Workload;
use crate::wrong::Wrong;

/// How much later than promised a busy machine may make things happen.
const GRACE: Duration = Duration::from_secs(5);
/// How long workers may take to connect.
const START: Duration = Duration::from_secs(40);
/// How long workers may take to end, as long as anything moves.
const LONGEST_END: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(50);
/// Where a store sees a process end, its locks pass on within this time, and what the machine lets wait.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Puts a store to the test; blocks until that is done, or `stop` is set. It must be called from a
/// thread that lives as long as the run, such as the first.
///
/// ```no_run
/// use clinch_verify::{Options, Target};
/// use std::sync::atomic::AtomicBool;
/// let options = Options {
///     target: Target::Store("sqlite:/tmp/locks.db".to_owned()),
///     worker: vec!["clinch".into(), "verify-worker".into()],
///     ..Options::default()
/// };
/// let report = clinch_verify::run(&options, &AtomicBool::new(false), &mut |now| {
///     eprintln!("{} grants, {} faults", now.grants, now.faults);
/// })?;
/// assert!(report.passed(), "{}", report.text());
/// # Ok::<(), clinch::Error>(())
/// ```
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Report> {
    let failed = |why| {
        Error::new(
            ErrorKind::Internal,
            format!("cannot start a runtime: {why}"),
        )
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(failed)?;
    let report = runtime.block_on(async {
        let run = Run::open(options, stop).await?;
        run.whole(progress).await
    });
    runtime.shutdown_background();
    report
}

/// A run under way.
struct Run<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    clock: Clock,
    folder: Folder,
    recorder: Recorder,
    /// Who is between a read and a write that no token protects.
    gap: resources::Gap,
    route: Route,
    /// Our own client, which goes to the store directly; none for a wrong lock.
    clinch: Option<Clinch>,
    engine: Arc<Mutex<Option<Box<dyn Engine>>>>,
    prefix: String,
    workloads: Vec<Workload>,
    lease: Duration,
    members: Mutex<Vec<(Member, Way)>>,
    next: AtomicU32,
    /// The workers so far by the number that the system gives them.
    pids: Mutex<HashMap<u32, u32>>,
    /// Connections whose requests are kept, whose they are, and until when.
    kept: Mutex<Vec<(BootTime, u32, Vec<clinch_testkit::proxy::Link>)>>,
    /// Why workers cannot be given a boot id of their own, if they cannot.
    other_boot: std::result::Result<(), String>,
    faults: AtomicU64,
    /// What members that have gone had done.
    retired: Mutex<Counts>,
    problems: Mutex<Vec<String>>,
    /// How often requests were counted.
    counted: AtomicU64,
    /// A wrong lock has shown what is wrong with it.
    enough: AtomicBool,
}

impl<'a> Run<'a> {
    async fn open(options: &'a Options, stop: &'a AtomicBool) -> Result<Self> {
        let engine = match options.target {
            Target::Store(_) => None,
            Target::Lab(lab) => Some(lab.start()?),
            Target::Wrong(wrong) => Some(wrong.start()?),
        };
        let servers = engine.as_ref().map(|engine| engine.servers());
        let servers = servers.unwrap_or_default();
        let url = match (&options.target, &engine) {
            (Target::Store(url), _) => url.clone(),
            (_, Some(engine)) => engine.url(),
            _ => String::new(),
        };
        if url.starts_with("memory") {
            let text =
                "the memory store lives in one process, and clients are processes of their own";
            return Err(Error::new(ErrorKind::Unsupported, text)
                .with_advice("give a store that processes share, such as sqlite:PATH"));
        }
        let mut clinch = None;
        if !matches!(options.target, Target::Wrong(_)) {
            let connect = Connect::new(&url).namespace(&options.namespace);
            clinch = Some(connect.open().await?);
        }
        let folder = Folder::new("verify")?;
        let recorder = Recorder::create(&folder.path().join("0.jsonl"))?;
        let gap = resources::serve(&folder.path().join("resources"), &recorder)?;
        let wanted = match options.workloads.is_empty() {
            true => Workload::ALL.to_vec(),
            false => options.workloads.clone(),
        };
        let mut lease = match options.target {
            Target::Wrong(wrong) => wrong.lease(),
            _ => options.lease,
        };
        let mut workloads = match options.target {
            Target::Wrong(_) => Vec::new(), // it knows one only
            _ => wanted,
        };
        if let Some(clinch) = &clinch {
            let info = clinch.info();
            workloads.retain(|workload| workload.fits(&info.capabilities));
            lease = lease.clamp(info.limits.min_lease, info.limits.max_lease);
        }
        Ok(Self {
            options,
            stop,
            clock: Clock::boot(),
            recorder,
            route: Route::new(&url, servers)?,
            clinch,
            engine: Arc::new(Mutex::new(engine)),
            prefix: format!("clinch-verify/{:x}-{}/", now(), std::process::id()),
            workloads,
            lease,
            members: Mutex::default(),
            next: AtomicU32::new(1),
            pids: Mutex::default(),
            kept: Mutex::default(),
            other_boot: crew::other_boot(&folder),
            faults: AtomicU64::new(0),
            retired: Mutex::default(),
            problems: Mutex::default(),
            counted: AtomicU64::new(0),
            enough: AtomicBool::new(false),
            folder,
            gap,
        })
    }

    async fn whole(self, progress: &mut dyn FnMut(&Progress)) -> Result<Report> {
        let start = self.start();
        self.recorder.write(&Event::Start(start));
        for _ in 0..self.options.clients {
            self.hire().await?;
        }
        self.ready().await?;
        let until = self.clock.now() + self.options.span;
        let expected = self.wrong().and_then(Wrong::expected);
        let watcher = watch::Watcher::start(self.folder.path(), expected);
        let shown = self.show(&watcher, until, progress);
        let disturbed = async {
            self.calm(until).await;
            self.disturb(until).await;
        };
        tokio::select! {
            biased;
            _ = async {
                tokio::join!(disturbed, self.count(until), self.poll(until), self.beat(until))
            } => {}
            () = shown => {}
        }
        self.recorder.write(&Event::Healed { at: now() });
        self.finish(&watcher, progress).await;
        watcher.stop();
        self.scan().await;
        self.report()
    }

    fn start(&self) -> Start {
        let info = self.clinch.as_ref().map(Clinch::info);
        let engine = lock(&self.engine).as_ref().map(|engine| engine.version());
        let missing = lock(&self.engine).as_ref().map(|engine| engine.missing());
        let mut missing = missing.unwrap_or_default();
        if self.wants_other_boot() {
            missing.extend(crew::missing(&self.other_boot));
        }
        let ours = format!("clinch {}", env!("CARGO_PKG_VERSION"));
        let store = match &self.options.target {
            Target::Store(url) => clinch::redact(url),
            Target::Lab(lab) => format!("lab {}", lab.as_str()),
            Target::Wrong(wrong) => format!("wrong lock {}", wrong.as_str()),
        };
        Start {
            version: VERSION,
            at: now(),
            store,
            seed: self.options.seed,
            clients: self.options.clients,
            workloads: self
                .workloads
                .iter()
                .map(|w| w.as_str().to_owned())
                .collect(),
            lease: nanos(self.lease),
            queue: info.is_some_and(|info| info.capabilities.queue),
            tokens: match self.wrong() {
                Some(wrong) => wrong.has_tokens(),
                None => info.is_some_and(|info| info.capabilities.tokens),
            },
            requests: self.promised_requests(),
            grace: nanos(self.grace()),
            at_once: (self.route.is_embedded() && self.wrong().is_none()).then(|| nanos(AT_ONCE)),
            // And until the next renewal.
            settle: self
                .route
                .reply_timeout()
                .filter(|_| self.wrong().is_none())
                .map(|timeout| nanos((timeout + self.lease / 3).min(self.grace()))),
            namespace: self.options.namespace.clone(),
            versions: [Some(ours), engine].into_iter().flatten().collect(),
            missing,
        }
    }

    fn wrong(&self) -> Option<Wrong> {
        match self.options.target {
            Target::Wrong(wrong) => Some(wrong),
            _ => None,
        }
    }

    fn grace(&self) -> Duration {
        self.wrong().map_or(GRACE, |_| Duration::from_secs(2))
    }

    /// Starts one more worker.
    async fn hire(&self) -> Result<()> {
        let way = self.route.open().await?;
        let process = self.next.fetch_add(1, Ordering::Relaxed);
        let config = self.config(process, way.url.clone());
        if let Some(lag) = self.wrong().and_then(|wrong| wrong.lag(process)) {
            way.lag(lag);
            let at = now();
            self.log(Fault {
                kind: format!("network slow: every reply {} ms late", lag.as_millis()),
                at,
                until: at + nanos(self.options.span),
                process: Some(process),
                ..Fault::default()
            });
        }
        let program = match self.has_other_boot(process) {
            true => crew::with_other_boot(&self.options.worker, &self.folder),
            false => self.options.worker.clone(),
        };
        let member = Member::start(&program, &config)?;
        self.tell_peculiarities(&config);
        lock(&self.pids).insert(member.pid(), process);
        self.recorder.write(&Event::Hired(Hired {
            process,
            pid: member.pid(),
            at: now(),
            drift: i64::from(config.drift),
        }));
        lock(&self.members).push((member, way));
        Ok(())
    }

    /// The task of a worker.
    fn config(&self, process: u32, url: String) -> Config {
        Config {
            process,
            url,
            namespace: self.options.namespace.clone(),
            prefix: self.prefix.clone(),
            history: self.folder.path().join(format!("{process}.jsonl")),
            seed: self.options.seed,
            workloads: self
                .workloads
                .iter()
                .map(|w| w.as_str().to_owned())
                .collect(),
            lease_ms: u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX),
            resource: self.folder.path().join("resources"),
            wrong: self.wrong().map(|wrong| wrong.as_str().to_owned()),
            drift: self.drift(process),
            peek: None,
        }
    }

    /// Of three workers the clock of one is right, of one it is fast and of one slow, by half of what is
    /// promised. Processes that share a file share a clock as well.
    fn drift(&self, process: u32) -> i32 {
        match process % 3 {
            _ if self.wrong().is_some() || self.route.is_embedded() => 0,
            1 => 5_000,
            2 => -5_000,
            _ => 0,
        }
    }

    /// Every third worker of the lab with an embedded store is in a container of its own.
    fn has_other_boot(&self, process: u32) -> bool {
        self.wants_other_boot() && self.other_boot.is_ok() && process % 3 == 2
    }

    fn wants_other_boot(&self) -> bool {
        matches!(self.options.target, Target::Lab(_)) && self.route.is_embedded()
    }

    /// Records what is strange about a worker from its start.
    fn tell_peculiarities(&self, config: &Config) {
        let fast = match config.drift {
            0 => None,
            drift if drift > 0 => Some(kinds::FAST),
            _ => Some(kinds::SLOW),
        };
        let boot = self.has_other_boot(config.process);
        let boot = boot.then_some(kinds::OTHER_BOOT);
        for kind in [fast, boot].into_iter().flatten() {
            let at = now();
            self.log(Fault {
                process: Some(config.process),
                ..kind.fault(at, at)
            });
        }
    }

    /// Something that keeps the run from being a whole one. Logs of servers are cut.
    fn problem(&self, text: &str) {
        const MOST: usize = 300;
        let line = text.lines().next().unwrap_or_default();
        let mut short: String = line.chars().take(MOST).collect();
        if short.len() < text.len() {
            short += " …";
        }
        lock(&self.problems).push(short);
    }

    /// Waits until every worker is connected.
    async fn ready(&self) -> Result<()> {
        let give_up = self.clock.now() + START;
        loop {
            let heard: Vec<_> = lock(&self.members).iter().map(|(m, _)| m.heard()).collect();
            if let Some(why) = heard.iter().find_map(|heard| heard.failed.clone()) {
                return Err(Error::new(
                    ErrorKind::Unreachable,
                    format!("a worker: {why}"),
                ));
            }
            if heard.iter().all(|heard| heard.ready) || self.stopped() {
                return Ok(());
            }
            if self.clock.now() > give_up {
                let text = "the worker processes do not get ready";
                return Err(Error::new(ErrorKind::Unreachable, text));
            }
            self.clock.sleep(TICK).await;
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps; `false` when the time of faults is over, or the run is to stop.
    async fn rest(&self, span: Duration, until: BootTime) -> bool {
        let end = (self.clock.now() + span).min(until);
        loop {
            let left = end.since(self.clock.now());
            let enough = self.enough.load(Ordering::Relaxed);
            if self.stopped() || enough || self.clock.now() >= until {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            self.clock.sleep(left.min(TICK)).await;
        }
    }

    /// Tells the workers to stop and waits for them; those that cannot end are killed after the
    /// record says so.
    async fn finish(&self, watcher: &watch::Watcher, progress: &mut dyn FnMut(&Progress)) {
        for (member, _) in lock(&self.members).iter_mut() {
            member.order(Order::Stop);
        }
        let most = self.lease + self.grace() + self.grace() / 2;
        let mut give_up = self.clock.now() + most;
        let (last, mut operations) = (self.clock.now() + LONGEST_END, 0);
        while self.clock.now() < give_up.min(last) {
            let done = lock(&self.members)
                .iter()
                .all(|(member, _)| member.heard().done);
            if done {
                break;
            }
            let now = self.now(watcher, "ending");
            progress(&now);
            // On a busy machine a queue takes its time; it is stuck when nothing moves.
            if now.operations > operations {
                operations = now.operations;
                give_up = self.clock.now() + most;
            }
            self.clock.sleep(TICK).await;
        }
        self.recorder.write(&Event::End { at: now() });
        let members = std::mem::take(&mut *lock(&self.members));
        for (member, _) in members {
            self.retire(&member);
            let exit = Exit {
                process: member.process,
                at: now(),
                killed: false,
            };
            self.recorder.write(&Event::Exit(exit));
        }
    }

    /// Adds up what a member had done.
    fn retire(&self, member: &Member) {
        let heard = member.heard();
        lock(&self.retired).add(heard.counts);
        if let Some(why) = heard.failed {
            self.problem(&format!("worker {}: {why}", member.process));
        }
    }

    /// Looks for what is left at the store, as long as a dead holder's lease may take.
    async fn scan(&self) {
        let give_up = self.clock.now() + self.lease + self.grace();
        loop {
            let found = self.leftovers().await;
            let over = self.clock.now() > give_up;
            match found {
                Ok(found) if found.is_empty() => return,
                Ok(found) if over => {
                    found
                        .into_iter()
                        .for_each(|scan| self.recorder.write(&Event::Scan(scan)));
                    return;
                }
                Err(error) if over => {
                    self.problem(&format!("the store cannot be scanned: {error}"));
                    return;
                }
                _ => self.clock.sleep(TICK * 2).await,
            }
        }
    }

    async fn leftovers(&self) -> Result<Vec<Scan>> {
        let Some(clinch) = &self.clinch else {
            return match self.wrong() {
                Some(wrong) => wrong.leftovers(&self.prefix, &self.url()).await,
                None => Ok(Vec::new()),
            };
        };
        let found = clinch.list(&self.prefix).await?;
        let scans = found.into_iter().map(|view| {
            let party =
                |p: &clinch::store::PartyView| format!("{} (pid {})", p.owner.as_str(), p.pid);
            let holders: Vec<_> = view.holders.iter().map(party).collect();
            let waiters: Vec<_> = view.waiters.iter().map(party).collect();
            Scan {
                at: now(),
                lock: view.name.as_str().to_owned(),
                found: format!(
                    "held by [{}], waited for by [{}]",
                    holders.join(", "),
                    waiters.join(", ")
                ),
            }
        });
        Ok(scans.collect())
    }

    fn url(&self) -> String {
        lock(&self.engine)
            .as_ref()
            .map_or_else(String::new, |engine| engine.url())
    }

    /// Merges what the processes wrote, checks it, and writes what was asked for.
    fn report(self) -> Result<Report> {
        let files = watch::files(self.folder.path())?;
        let history = History::read(&files)?;
        if let Some(file) = &self.options.history {
            history.write(file)?;
        }
        let mut problems = std::mem::take(&mut *lock(&self.problems));
        let counts = *lock(&self.retired);
        if counts.unrecorded + self.recorder.failures() > 0 {
            problems.push("not every event could be recorded: the disk may be full".to_owned());
        }
        let mut report = Report::of(&history, problems);
        report.interrupted = self.stopped();
        if let Some(page) = &self.options.page {
            report.write_page(&history, page)?;
        }
        Ok(report)
    }
}

/// Checks a history that was recorded before.
///
/// ```no_run
/// let report = clinch_verify::replay("history.jsonl".as_ref(), None)?;
/// println!("{}", report.text());
/// # Ok::<(), clinch::Error>(())
/// ```
pub fn replay(history: &std::path::Path, page: Option<&PathBuf>) -> Result<Report> {
    let history = History::read([history])?;
    if history.start().is_none() {
        return Err(Error::invalid(
            "the history does not begin with how it was set up",
        ));
    }
    let report = Report::of(&history, Vec::new());
    if let Some(page) = page {
        report.write_page(&history, page)?;
    }
    Ok(report)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
