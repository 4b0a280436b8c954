//! The holder process itself.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::blocking::block_on;
use clinch_core::{Clinch, Clock, Guard, Lock, ReleaseReply, keeper};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::{Value, json};

use crate::conformance::Subject;

/// The `main` of a holder: `SUBJECT URL NAMESPACE`.
///
/// ```
/// use clinch_testkit::holder::serve;
/// use std::process::ExitCode;
/// let code = serve(&[], Vec::new()); // a store, a URL and a namespace are missing
/// assert_eq!(code, ExitCode::from(2));
/// ```
pub fn serve(subjects: &[Arc<dyn Subject>], words: Vec<String>) -> ExitCode {
    let [subject, url, namespace] = &words[..] else {
        eprintln!("a holder wants a store, a URL and a namespace");
        return ExitCode::from(2);
    };
    // A stopped process does not see the end of its input; the kernel reaches it all the same.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a death signal can be set");
    let subject = subjects.iter().find(|s| s.name() == *subject);
    let subject = subject.expect("the store is known");
    let context = Clinch::context(namespace).expect("a namespace");
    let store = block_on(subject.open(url, context.clone())).expect("the store opens");
    let mut holder = Child {
        clinch: Clinch::builder(store, context).build(),
        guards: HashMap::new(),
    };
    say(&json!({"ready": true}));
    for line in std::io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line.expect("input")).expect("JSON");
        say(&holder.answer(&command));
    }
    ExitCode::SUCCESS
}

struct Child {
    clinch: Clinch,
    guards: HashMap<String, VecDeque<Guard>>,
}

impl Child {
    fn answer(&mut self, command: &Value) -> Value {
        let name = command["name"].as_str().unwrap_or_default();
        match command["op"].as_str() {
            Some("acquire") => self.acquire(name, command),
            Some("release") => self.release(name),
            Some("state") => {
                let guard = self.guard(name);
                json!({"valid": guard.is_valid(), "token": guard.token().get()})
            }
            Some("watch") => self.watch(name, span(command, "gap_ms")),
            Some("block") => self.block(name, span(command, "lease_ms")),
            Some("count") => self.count(name, command),
            _ => json!({"error": format!("unknown command {command}")}),
        }
    }

    fn guard(&self, name: &str) -> &Guard {
        let guards = self.guards.get(name).expect("the name is held");
        guards.front().expect("the name is held")
    }

    fn lock(&self, name: &str, command: &Value) -> Lock {
        let number = |key: &str| u32::try_from(command[key].as_u64().unwrap_or(1)).unwrap();
        let (units, limit) = (number("units"), number("limit"));
        let lock = match (units, limit) {
            (_, 1) => self.clinch.lock(name),
            (u32::MAX, u32::MAX) => self.clinch.rwlock(name).write(),
            (_, u32::MAX) => self.clinch.rwlock(name).read(),
            _ => self.clinch.semaphore(name, limit).permits(units),
        };
        let lock = lock.lease(span(command, "lease_ms"));
        let lock = match span(command, "delay_ms") {
            Duration::ZERO => lock,
            delay => lock.lock_delay(delay),
        };
        match command["fair"] == json!(true) {
            true => lock.fair(),
            false => lock,
        }
    }

    fn acquire(&mut self, name: &str, command: &Value) -> Value {
        let lock = self.lock(name, command);
        let outcome = block_on(async {
            match command["wait_ms"].as_u64() {
                None => lock.acquire().await.map(Some),
                Some(0) => lock.try_acquire().await,
                Some(ms) => lock.acquire_within(Duration::from_millis(ms)).await,
            }
        });
        match outcome {
            Ok(Some(guard)) => {
                let (token, valid) = (guard.token().get(), guard.is_valid());
                self.guards
                    .entry(name.to_owned())
                    .or_default()
                    .push_back(guard);
                json!({"token": token, "valid": valid})
            }
            Ok(None) => json!({"token": null}),
            Err(error) => json!({"error": error.to_string()}),
        }
    }

    fn release(&mut self, name: &str) -> Value {
        let guard = self.guards.get_mut(name).and_then(VecDeque::pop_front);
        match block_on(guard.expect("the name is held").release()) {
            Ok(ReleaseReply::Released) => json!({"end": "released"}),
            Ok(ReleaseReply::WasLost(reason)) => json!({"end": reason.as_str()}),
            Err(error) => json!({"end": error.to_string()}),
        }
    }

    /// Reads the clock until it jumps: then the process was stopped, and what `is_valid` says first
    /// is what counts.
    fn watch(&self, name: &str, gap: Duration) -> Value {
        let (guard, clock) = (self.guard(name), Clock::boot());
        // Before the answer: the test may stop us at once.
        let mut last = clock.now();
        say(&json!({"watching": true}));
        loop {
            std::thread::sleep(Duration::from_millis(1));
            let now = clock.now();
            if now.since(last) >= gap {
                let valid = guard.is_valid();
                return json!({"valid": valid});
            }
            last = now;
        }
    }

    /// Stops the keeper by blocking its only thread, so that no renewal and no timer runs.
    fn block(&self, name: &str, lease: Duration) -> Value {
        let (blocked, wait) = std::sync::mpsc::channel();
        let block = async move {
            blocked.send(()).expect("somebody waits");
            std::thread::sleep(lease * 2);
        };
        keeper::spawn(block).expect("the keeper runs");
        wait.recv().expect("the keeper is blocked");
        std::thread::sleep(lease);
        json!({"valid": self.guard(name).is_valid()})
    }

    /// Read, add one, write: wrong unless the lock excludes. The file has the number and the token
    /// of the last writer, so it also refuses a token that is not greater.
    fn count(&self, name: &str, command: &Value) -> Value {
        let lock = self.lock(name, command);
        let file = command["file"].as_str().expect("a file");
        for _ in 0..command["times"].as_u64().expect("times") {
            let guard = match block_on(lock.acquire()) {
                Ok(guard) => guard,
                Err(error) => return json!({"error": error.to_string()}),
            };
            let text = std::fs::read_to_string(file).expect("the file is there");
            let (number, token) = text.split_once(' ').expect("two numbers");
            let number: u64 = number.parse().expect("a number");
            let token: u64 = token.parse().expect("a token");
            if self.clinch.info().capabilities.tokens && guard.token().get() <= token {
                return json!({"error": format!("token {} after {token}", guard.token())});
            }
            std::thread::yield_now();
            let text = format!("{} {}", number + 1, guard.token());
            std::fs::write(file, text).expect("the file can be written");
            if let Err(error) = block_on(guard.release()) {
                return json!({"error": error.to_string()});
            }
        }
        json!({"counted": true})
    }
}

fn span(command: &Value, key: &str) -> Duration {
    Duration::from_millis(command[key].as_u64().unwrap_or(0))
}

fn say(answer: &Value) {
    let mut out = std::io::stdout().lock();
    // The test may have gone; then the input ends next.
    let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
}
