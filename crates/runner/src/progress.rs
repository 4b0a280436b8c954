//! Which tests of a program run now, and for how long; known from the lines that it prints.
//!
//! A program prints a line when a test has ended, and none when one starts. But it starts its tests
//! in the order of its list, always as many at once as it has threads.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// One run of a program.
#[derive(Debug)]
pub(crate) struct Progress {
    waiting: VecDeque<String>,
    running: Vec<(String, Instant)>,
    ended: Vec<(String, Outcome)>,
    /// When something was heard of it last.
    heard: Instant,
    /// What the closing lines say: passed, failed and skipped.
    closing: Option<[usize; 3]>,
}

impl Progress {
    /// A program that starts now, with these tests in this order.
    pub(crate) fn new(tests: Vec<String>, threads: usize, now: Instant) -> Self {
        let mut progress = Self {
            waiting: tests.into(),
            running: Vec::new(),
            ended: Vec::new(),
            heard: now,
            closing: None,
        };
        (0..threads).for_each(|_| progress.start_next(now));
        progress
    }

    fn start_next(&mut self, now: Instant) {
        let next = self.waiting.pop_front();
        self.running.extend(next.map(|test| (test, now)));
    }

    /// Takes a line that the program has printed.
    pub(crate) fn line(&mut self, line: &str, now: Instant) {
        self.heard = now;
        if let Some((name, outcome)) = ended(line) {
            self.ended.push((name.to_owned(), outcome));
            match self.running.iter().position(|(test, _)| test == name) {
                Some(at) => drop(self.running.remove(at)),
                None => self.waiting.retain(|test| test != name),
            }
            self.start_next(now);
        } else if let Some(counts) = closing(line) {
            let [passed, failed, skipped] = self.closing.unwrap_or_default();
            let [p, f, s] = counts;
            self.closing = Some([passed + p, failed + f, skipped + s]);
        } else if let Some(name) = slow(line)
            && !self.running.iter().any(|(test, _)| test == name)
        {
            self.running.push((name.to_owned(), now));
        }
    }

    /// The tests that have run for longer than this.
    pub(crate) fn overdue(&self, limit: Duration, now: Instant) -> Vec<String> {
        let late = |(_, since): &&(String, Instant)| now.duration_since(*since) > limit;
        let tests = self.running.iter().filter(late);
        tests.map(|(test, _)| test.clone()).collect()
    }

    /// The tests that run now.
    pub(crate) fn running(&self) -> impl Iterator<Item = &str> {
        self.running.iter().map(|(test, _)| test.as_str())
    }

    /// The tests that have ended.
    pub(crate) fn ended(&self) -> &[(String, Outcome)] {
        &self.ended
    }

    /// How many of its tests have not ended.
    pub(crate) fn left(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// For how long nothing was heard of it.
    pub(crate) fn silent_for(&self, now: Instant) -> Duration {
        now.duration_since(self.heard)
    }

    /// What its closing lines say, if it came to them: passed, failed and skipped.
    pub(crate) fn closing(&self) -> Option<[usize; 3]> {
        self.closing
    }
}

/// The name and the end of a test in `test NAME ... ok`; another process may have printed something
/// before it, without an end of line.
fn ended(line: &str) -> Option<(&str, Outcome)> {
    let (head, result) = line.rsplit_once(" ... ")?;
    let outcome = match result.trim_end() {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed,
        other if other.starts_with("ignored") => Outcome::Skipped,
        _ => return None,
    };
    let name = match head.strip_prefix("test ") {
        Some(name) => name,
        None => head.rsplit_once("test ")?.1,
    };
    let name = name.trim_end();
    Some((
        name.strip_suffix(" - should panic").unwrap_or(name),
        outcome,
    ))
}

/// The counts in `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
fn closing(line: &str) -> Option<[usize; 3]> {
    let counts = line.split_once("test result: ")?.1;
    let count = |what: &str| {
        let before = counts.split_once(what)?.0;
        before.trim_end().rsplit(' ').next()?.parse().ok()
    };
    Some([count("passed;")?, count("failed;")?, count("ignored;")?])
}

/// The name of a test that the program itself finds slow.
fn slow(line: &str) -> Option<&str> {
    let (name, _) = line.split_once(" has been running for over ")?;
    name.strip_prefix("test ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (Progress, Instant) {
        let now = Instant::now();
        let tests = ["a", "b", "c"].map(str::to_owned).into();
        (Progress::new(tests, 2, now), now)
    }

    #[test]
    fn a_test_starts_when_another_one_has_ended() {
        let (mut progress, began) = three();
        let second = Duration::from_secs(1);
        assert_eq!(progress.running().collect::<Vec<_>>(), ["a", "b"]);
        progress.line("test b ... ok", began + second);
        assert_eq!(progress.running().collect::<Vec<_>>(), ["a", "c"]);
        let now = began + second + second / 2;
        assert_eq!(progress.overdue(second, now), ["a"]);
        assert_eq!(progress.left(), 2);
    }

    #[test]
    fn lines_are_understood() {
        let (mut progress, now) = three();
        progress.line("words of a serverTest test a   ... FAILED", now);
        progress.line("test b - should panic ... ok", now);
        progress.line("test c ... ignored, no server", now);
        let outcomes: Vec<_> = progress.ended().iter().map(|(_, o)| *o).collect();
        assert_eq!(
            outcomes,
            [Outcome::Failed, Outcome::Passed, Outcome::Skipped]
        );
        assert_eq!(progress.left(), 0);
        progress.line("it waits ... for something else", now);
        let result = "test result: FAILED. 1 passed; 2 failed; 3 ignored; 0 measured";
        assert_eq!(progress.closing(), None);
        progress.line(result, now);
        progress.line(result, now);
        assert_eq!(progress.closing(), Some([2, 4, 6]));
    }

    #[test]
    fn tests_that_are_not_listed_are_known_once_they_are_slow() {
        let now = Instant::now();
        let mut progress = Progress::new(Vec::new(), 2, now);
        let doc = "src/a.rs - a::b (line 3)";
        progress.line(
            &format!("test {doc} has been running for over 60 seconds"),
            now,
        );
        assert_eq!(progress.running().collect::<Vec<_>>(), [doc]);
        progress.line(&format!("test {doc} ... ok"), now);
        assert_eq!(progress.left(), 0);
    }
}
