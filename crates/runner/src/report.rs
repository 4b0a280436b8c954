//! What is printed of a program.

use std::fmt::Write as _;
use std::time::Duration;

/// How a program went.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    /// The names of tests, and why they failed where their own output does not say it.
    failed: Vec<(String, String)>,
    notes: Vec<String>,
    /// All that it printed.
    pub(crate) output: String,
}

impl Report {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    pub(crate) fn fail(&mut self, test: &str, why: &str) {
        self.failed.push((test.to_owned(), why.to_owned()));
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed.len()
    }

    pub(crate) fn failed_tests(&self) -> impl Iterator<Item = &str> {
        self.failed.iter().map(|(test, _)| test.as_str())
    }

    /// Something to be known besides, if there is anything.
    pub(crate) fn note(&mut self, heading: &str, lines: &[String]) {
        if !lines.is_empty() {
            let text = format!("{heading}:\n  {}", lines.join("\n  "));
            self.notes.push(text);
        }
    }

    /// The line of the program; with what it printed if something failed.
    pub(crate) fn text(&self, took: Duration, cpu: Duration) -> String {
        let mut text = String::new();
        if self.failed() > 0 {
            let said = self.output.lines().filter(|line| !is_dull(line));
            let said: Vec<&str> = said.collect();
            let _ = write!(text, "\n--- {}\n{}\n---\n", self.name, said.join("\n"));
        }
        let verdict = if self.failed() > 0 { "FAILED" } else { "ok" };
        let _ = write!(
            text,
            "{verdict:6} {:6.1} s {:6.1} s cpu {:5} tests  {}",
            took.as_secs_f64(),
            cpu.as_secs_f64(),
            self.passed + self.failed() + self.skipped,
            self.name
        );
        if self.skipped > 0 {
            let _ = write!(text, " ({} skipped)", self.skipped);
        }
        for note in &self.notes {
            let _ = write!(text, "\n{}: {note}", self.name);
        }
        text + &self.failures()
    }

    /// A line for each test that failed.
    pub(crate) fn failures(&self) -> String {
        let line = |(test, why): &(String, String)| {
            let why = match why.is_empty() {
                true => String::new(),
                false => format!(": {why}"),
            };
            format!("\nFAILED {} {test}{why}", self.name)
        };
        self.failed.iter().map(line).collect()
    }
}

/// Lines that tell nothing about a failure.
fn is_dull(line: &str) -> bool {
    let ended = line.starts_with("test ") && line.contains(" ... ");
    ended && !line.ends_with("FAILED") || line.starts_with("running ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_what_failed_is_shown() {
        let mut report = Report::new("clinch-core engine".to_owned());
        report.passed = 2;
        report.output = "test a ... ok\ntest b ... FAILED\nwhy b failed\n".to_owned();
        let text = |report: &Report| report.text(Duration::from_secs(61), Duration::ZERO);
        assert_eq!(
            text(&report),
            "ok       61.0 s    0.0 s cpu     2 tests  clinch-core engine"
        );
        report.fail("b", "");
        report.fail("c", "took too long");
        report.note("it left running", &["7 sleep 9".to_owned()]);
        report.note("nothing", &[]);
        let text = text(&report);
        assert!(
            !text.contains("a ... ok") && !text.contains("nothing"),
            "{text}"
        );
        for part in [
            "why b failed",
            "\nFAILED clinch-core engine b\n",
            "engine c: took too long",
            "it left running:\n  7 sleep 9",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
