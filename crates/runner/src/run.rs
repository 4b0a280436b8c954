//! One program while it runs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::plan;
use crate::processes::{self, MARK};
use crate::programs::Program;
use crate::progress::{Outcome, Progress};
use crate::report::Report;

/// A program that runs, perhaps for the second time because a test of it had to be stopped.
pub(crate) struct Run {
    program: Program,
    report: Report,
    limit: Duration,
    mark: String,
    log: PathBuf,
    round: Round,
}

/// One process of the program.
struct Round {
    child: Child,
    output: File,
    /// The start of a line whose end has not come yet.
    partial: Vec<u8>,
    progress: Progress,
}

impl Run {
    /// Starts a program; `number` tells it from the others of this process.
    pub(crate) fn start(
        program: Program,
        number: usize,
        limit: Duration,
        logs: &Path,
    ) -> io::Result<Self> {
        let mark = format!("{}-{number}", std::process::id());
        let log = logs.join(number.to_string());
        let report = Report::new(program.name.clone());
        let round = Round::start(&program, &program.left_out, &mark, &log)?;
        Ok(Self {
            program,
            report,
            limit,
            mark,
            log,
            round,
        })
    }

    /// Looks how it is; the report when it has ended.
    pub(crate) fn poll(&mut self) -> io::Result<Option<Report>> {
        let ended = self.round.child.try_wait()?;
        self.round.read()?;
        let now = Instant::now();
        let overdue = self.round.progress.overdue(self.limit, now);
        let silent = self.round.progress.silent_for(now) > plan::silence(&self.program, self.limit);
        match ended {
            Some(status) => self.ended(status),
            None if !overdue.is_empty() || silent => self.stop(&overdue),
            None => Ok(None),
        }
    }

    /// What it does now, in a few words.
    pub(crate) fn describe(&self) -> String {
        let progress = &self.round.progress;
        let running: Vec<&str> = progress.running().collect();
        format!(
            "{}: {} to go, among them {}",
            self.program.name,
            progress.left(),
            running.join(", ")
        )
    }

    /// Kills it and all that it has started.
    pub(crate) fn kill(&mut self) {
        let session = i32::try_from(self.round.child.id()).ok();
        processes::kill(&self.mark, session);
        let _ = self.round.child.wait();
    }

    /// A test has taken too long: it has failed, and the tests that are left run in a new process.
    fn stop(&mut self, overdue: &[String]) -> io::Result<Option<Report>> {
        let processes = processes::describe(&self.mark);
        self.kill();
        self.round.read()?;
        let why = format!(
            "took longer than {} s and was stopped",
            self.limit.as_secs()
        );
        self.count_lines();
        for test in overdue {
            self.report.fail(test, &why);
        }
        if overdue.is_empty() {
            self.report
                .fail("(unknown)", "printed nothing for too long");
        }
        self.report.note("its processes were", &processes);
        self.go_on()
    }

    fn ended(&mut self, status: ExitStatus) -> io::Result<Option<Report>> {
        let left = processes::leftovers(&self.mark);
        if !left.is_empty() {
            self.report.fail("(all)", "processes were left running");
            self.report.note("it left running", &left);
            processes::kill(&self.mark, None);
        }
        self.round.read()?;
        let Some([passed, failed, skipped]) = self.round.progress.closing() else {
            return self.crashed(status);
        };
        self.report.passed += passed;
        self.report.skipped += skipped;
        let ended = self.round.progress.ended().iter();
        let names = ended.filter(|(_, outcome)| *outcome == Outcome::Failed);
        let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
        names.iter().for_each(|name| self.report.fail(name, ""));
        (names.len()..failed).for_each(|_| self.report.fail("(unknown)", ""));
        if self.report.failed() == 0 && !status.success() {
            self.report.fail("(all)", &format!("{status}"));
        }
        self.finish().map(Some)
    }

    /// It ended before it could sum up.
    fn crashed(&mut self, status: ExitStatus) -> io::Result<Option<Report>> {
        let why = format!("the program ended meanwhile: {status}");
        self.count_lines();
        let running: Vec<String> = self.round.progress.running().map(str::to_owned).collect();
        running.iter().for_each(|test| self.report.fail(test, &why));
        match running.is_empty() {
            true => {
                self.report.fail("(all)", &why);
                self.finish().map(Some)
            }
            false => self.go_on(),
        }
    }

    /// Counts what ended before the program was stopped.
    fn count_lines(&mut self) {
        for (name, outcome) in self.round.progress.ended() {
            match outcome {
                Outcome::Passed => self.report.passed += 1,
                Outcome::Skipped => self.report.skipped += 1,
                Outcome::Failed => self.report.fail(name, ""),
            }
        }
    }

    /// Runs what is left of a program that was stopped.
    fn go_on(&mut self) -> io::Result<Option<Report>> {
        let ended = self.round.progress.ended().iter();
        let ended: Vec<String> = ended.map(|(name, _)| name.clone()).collect();
        let failed: Vec<String> = self.report.failed_tests().map(str::to_owned).collect();
        let is_over = |test: &String| ended.contains(test) || failed.contains(test);
        let tests = self.program.tests.take().unwrap_or_default();
        let (over, left) = tests.into_iter().partition(is_over);
        self.program.left_out.extend::<Vec<String>>(over);
        self.program.tests = Some(left);
        if self.program.count() == 0 {
            return self.finish().map(Some);
        }
        self.round = Round::start(&self.program, &self.program.left_out, &self.mark, &self.log)?;
        Ok(None)
    }

    fn finish(&mut self) -> io::Result<Report> {
        let output = std::fs::read(&self.log)?;
        self.report.output = String::from_utf8_lossy(&output).into_owned();
        Ok(std::mem::take(&mut self.report))
    }
}

impl Round {
    /// Starts the program, in a session of its own, without the tests that are left out.
    ///
    /// The kernel kills it when this process ends, however that ends. It is this thread that must
    /// live until then.
    fn start(program: &Program, left_out: &[String], mark: &str, log: &Path) -> io::Result<Self> {
        let threads = plan::threads(program);
        let sink = OpenOptions::new().create(true).append(true).open(log)?;
        let mut output = File::open(log)?;
        // What an earlier round printed was read.
        io::Seek::seek(&mut output, io::SeekFrom::End(0))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "setsid"]);
        command.args(&program.words);
        if program.tests.is_some() {
            command.arg(format!("--test-threads={threads}"));
            command.env("CARGO_MANIFEST_DIR", &program.folder);
        }
        if !left_out.is_empty() {
            command.arg("--exact");
            command.args(left_out.iter().flat_map(|test| ["--skip", test]));
        }
        let child = command
            .current_dir(&program.folder)
            .env(MARK, mark)
            .stdin(Stdio::null())
            .stdout(sink.try_clone()?)
            .stderr(sink)
            .spawn()?;
        let tests = program.tests.clone().unwrap_or_default();
        Ok(Self {
            child,
            output,
            partial: Vec::new(),
            progress: Progress::new(tests, threads, Instant::now()),
        })
    }

    /// Reads what it has printed since.
    fn read(&mut self) -> io::Result<()> {
        self.output.read_to_end(&mut self.partial)?;
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        for line in String::from_utf8_lossy(&whole).lines() {
            self.progress.line(line, Instant::now());
        }
        Ok(())
    }
}
