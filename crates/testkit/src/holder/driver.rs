//! The test's end of a holder process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::wait::{eventually, soon};

/// A process with a client of its own. It is killed when this is dropped.
///
/// ```standalone_crate
/// # use std::{process::ExitCode, sync::Arc, time::Duration};
/// # use clinch_testkit::conformance::{Memory, Subject};
/// # use clinch_testkit::holder::{self, Claiming, Holder};
/// # fn main() -> ExitCode {
/// # let mut words = std::env::args().skip(1);
/// # if words.next().as_deref() == Some(holder::FLAG) {
/// #     return holder::serve(&[Arc::new(Memory) as Arc<dyn Subject>], words.collect());
/// # }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// let mut child = Holder::spawn("memory", "memory:", "clinch").await;
/// let lease = Duration::from_millis(300);
/// child.acquire(&Claiming::lock("a", lease)).await.unwrap();
/// // Nobody renews for two leases; after one of them the guard knows by the clock alone.
/// assert!(!child.valid_with_blocked_keeper("a", lease).await);
/// # });
/// # ExitCode::SUCCESS
/// # }
/// ```
#[derive(Debug)]
pub struct Holder {
    child: Child,
    stdin: ChildStdin,
    replies: mpsc::UnboundedReceiver<String>,
}

/// How a holder is to claim; like the options of a lock.
///
/// ```standalone_crate
/// # use std::{process::ExitCode, sync::Arc, time::Duration};
/// # use clinch_testkit::conformance::{Memory, Subject};
/// # use clinch_testkit::holder::{self, Claiming, Holder};
/// # fn main() -> ExitCode {
/// # let mut words = std::env::args().skip(1);
/// # if words.next().as_deref() == Some(holder::FLAG) {
/// #     return holder::serve(&[Arc::new(Memory) as Arc<dyn Subject>], words.collect());
/// # }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// let mut child = Holder::spawn("memory", "memory:", "clinch").await;
/// let permits = |units| Claiming::lock("a", Duration::from_secs(30)).units(units, 3);
/// assert!(child.acquire(&permits(2)).await.is_some());
/// assert!(child.acquire(&permits(2).within(Duration::ZERO)).await.is_none());
/// assert!(child.acquire(&permits(1)).await.is_some());
/// # });
/// # ExitCode::SUCCESS
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Claiming {
    name: String,
    units: u32,
    limit: u32,
    lease: Duration,
    delay: Duration,
    fair: bool,
    /// `None` waits for ever.
    wait: Option<Duration>,
}

impl Claiming {
    /// A mutex, waited for without end.
    pub fn lock(name: &str, lease: Duration) -> Self {
        Self {
            name: name.to_owned(),
            units: 1,
            limit: 1,
            lease,
            delay: Duration::ZERO,
            fair: false,
            wait: None,
        }
    }

    /// Permits of a semaphore; `u32::MAX` of `u32::MAX` is a write lock.
    #[must_use]
    pub fn units(mut self, units: u32, limit: u32) -> Self {
        (self.units, self.limit) = (units, limit);
        self
    }

    /// With a lock-delay.
    #[must_use]
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Without hand-over.
    #[must_use]
    pub fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// With an end to the wait; zero only tries.
    #[must_use]
    pub fn within(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    fn json(&self, op: &str) -> Value {
        json!({
            "op": op,
            "name": self.name,
            "units": self.units,
            "limit": self.limit,
            "lease_ms": millis(self.lease),
            "delay_ms": millis(self.delay),
            "fair": self.fair,
            "wait_ms": self.wait.map(millis),
        })
    }
}

impl Holder {
    /// Starts this executable again, as a holder on the store at `url`.
    pub async fn spawn(subject: &str, url: &str, namespace: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([super::FLAG, subject, url, namespace])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process starts");
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tx, replies) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if tx.send(line).is_err() {
                    break;
                }
            }
        });
        let mut holder = Self {
            child,
            stdin,
            replies,
        };
        let ready = holder.reply().await;
        assert_eq!(ready, json!({"ready": true}), "the holder starts");
        holder
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command without waiting for the answer.
    pub fn send(&mut self, command: &Value) {
        writeln!(self.stdin, "{command}").expect("the holder reads");
    }

    /// The next answer.
    pub async fn reply(&mut self) -> Value {
        let line = soon("an answer of the holder", self.replies.recv()).await;
        serde_json::from_str(&line.expect("the holder lives")).expect("the holder answers in JSON")
    }

    /// Sends a command and waits for the answer.
    pub async fn call(&mut self, command: Value) -> Value {
        self.send(&command);
        self.reply().await
    }

    /// Claims and waits for the answer: the token, or `None` when it was not acquired.
    pub async fn acquire(&mut self, claiming: &Claiming) -> Option<u64> {
        self.start_acquire(claiming);
        self.acquired().await
    }

    /// Claims without waiting for the answer.
    pub fn start_acquire(&mut self, claiming: &Claiming) {
        self.send(&claiming.json("acquire"));
    }

    /// The answer to a claim.
    pub async fn acquired(&mut self) -> Option<u64> {
        let reply = self.reply().await;
        assert!(reply.get("error").is_none(), "{reply}");
        reply["token"].as_u64()
    }

    /// Releases the oldest guard of a name: `released`, or why it was lost.
    pub async fn release(&mut self, name: &str) -> String {
        let reply = self.call(json!({"op": "release", "name": name})).await;
        reply["end"].as_str().expect("an end").to_owned()
    }

    /// Whether the guard of a name is valid.
    pub async fn is_valid(&mut self, name: &str) -> bool {
        let reply = self.call(json!({"op": "state", "name": name})).await;
        reply["valid"].as_bool().expect("a state")
    }

    /// Starts to watch a guard for the end of a pause of at least `gap`. The answer, once the
    /// process was stopped and continued, is the first `is_valid()` after it.
    pub async fn watch_for_pause(&mut self, name: &str, gap: Duration) {
        let command = json!({"op": "watch", "name": name, "gap_ms": millis(gap)});
        assert_eq!(self.call(command).await, json!({"watching": true}));
    }

    /// Blocks the process's keeper for two leases, and asks the guard after one of them whether it
    /// is valid: nothing but the clock can have told it.
    pub async fn valid_with_blocked_keeper(&mut self, name: &str, lease: Duration) -> bool {
        let command = json!({"op": "block", "name": name, "lease_ms": millis(lease)});
        let reply = self.call(command).await;
        reply["valid"].as_bool().expect("a state")
    }

    /// Adds one to the number in a file so many times, each under the lock and checked by the
    /// token; does not wait for the answer.
    pub fn start_count(&mut self, claiming: &Claiming, file: &Path, times: u32) {
        let mut command = claiming.json("count");
        command["file"] = json!(file);
        command["times"] = json!(times);
        self.send(&command);
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Stops it with SIGSTOP, and waits until it stands.
    pub async fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.pid());
        eventually("the process stands", async || {
            let stat = std::fs::read_to_string(&stat).expect("the process lives");
            let state = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            state == Some('T')
        })
        .await;
    }

    /// Lets it go on.
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it takes signals");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = (self.child.kill(), self.child.wait());
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap()
}
