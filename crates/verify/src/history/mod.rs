//! What happened, in a form that can be kept, read again and checked.
//!
//! A history is a file of JSON lines. Each process writes a file of its own, a line at a time, so
//! that a process that is killed leaves every line but its last; the files are merged at the end.
//! Every moment is in nanoseconds of the boot clock, which all processes of a machine share.

mod event;
mod recorder;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

pub(crate) use event::{
    Access, Acquire, Answer, Call, CallKind, Closed, Event, Exit, FAST, FORKED, Fault, Forked,
    Hired, Kind, Lag, Look, Lost, OTHER_BOOT, Observe, Outcome, Poll, Release, Renewals, Requests,
    SLOW, Scan, Seen, Start, VERSION, Waiting,
};
pub(crate) use recorder::{Recorder, now};

use clinch::{Error, ErrorKind, Result};

/// A whole run, in the order of its events.
#[derive(Debug, Default, Clone)]
pub(crate) struct History {
    pub(crate) events: Vec<Event>,
}

impl History {
    /// Puts events in order.
    pub(crate) fn new(mut events: Vec<Event>) -> Self {
        events.sort_by_key(Event::at);
        Self { events }
    }

    /// Reads files and puts their events in one order. The last line of a file may be half of one:
    /// its process was killed. A broken line elsewhere is an error.
    pub(crate) fn read<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> Result<Self> {
        let mut events = Vec::new();
        for file in files {
            read_file(file.as_ref(), &mut events)?;
        }
        let history = Self::new(events);
        match history.start().map(|start| start.version) {
            Some(other) if other != VERSION => Err(Error::invalid(format!(
                "the history has version {other}, and this build reads version {VERSION}"
            ))),
            _ => Ok(history),
        }
    }

    /// Writes it as one file.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let failed = |why: std::io::Error| failed("write", file, &why);
        let mut out = std::io::BufWriter::new(std::fs::File::create(file).map_err(failed)?);
        for event in &self.events {
            serde_json::to_writer(&mut out, event).map_err(|why| failed(why.into()))?;
            out.write_all(b"\n").map_err(failed)?;
        }
        out.flush().map_err(failed)
    }

    /// How the run was set up.
    pub(crate) fn start(&self) -> Option<&Start> {
        self.events.iter().find_map(|event| match event {
            Event::Start(start) => Some(start),
            _ => None,
        })
    }

    /// When it ended; `None` while it runs.
    pub(crate) fn end(&self) -> Option<u64> {
        self.events.iter().rev().find_map(|event| match event {
            Event::End { at } => Some(*at),
            _ => None,
        })
    }

    /// When the faults were over; `None` while they are not.
    pub(crate) fn healed(&self) -> Option<u64> {
        self.events.iter().rev().find_map(|event| match event {
            Event::Healed { at } => Some(*at),
            _ => None,
        })
    }

    /// The faults, in order.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.events.iter().filter_map(|event| match event {
            Event::Fault(fault) => Some(fault),
            _ => None,
        })
    }

    /// The worker processes, and by how many millionths their clocks are too fast.
    pub(crate) fn hired(&self) -> impl Iterator<Item = (u32, i64)> {
        self.events.iter().filter_map(|event| match event {
            Event::Hired(hired) => Some((hired.process, hired.drift)),
            _ => None,
        })
    }

    /// When each process was killed.
    pub(crate) fn killed(&self) -> BTreeMap<u32, u64> {
        let exits = self.events.iter().filter_map(|event| match event {
            Event::Exit(exit) if exit.killed => Some((exit.process, exit.at)),
            _ => None,
        });
        exits.collect()
    }
}

fn read_file(file: &Path, events: &mut Vec<Event>) -> Result<()> {
    let open = std::fs::File::open(file).map_err(|why| failed("read", file, &why))?;
    let mut reader = BufReader::new(open);
    let (mut line, mut number) = (Vec::new(), 0_usize);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line);
        if read.map_err(|why| failed("read", file, &why))? == 0 {
            return Ok(());
        }
        number += 1;
        match serde_json::from_slice(&line) {
            Ok(event) => events.push(event),
            Err(_) if !line.ends_with(b"\n") => return Ok(()),
            Err(why) => {
                let place = format!("{}, line {number}: {why}", file.display());
                return Err(Error::invalid(format!("not a history: {place}")));
            }
        }
    }
}

fn failed(what: &str, file: &Path, why: &std::io::Error) -> Error {
    let text = format!("cannot {what} the history {}: {why}", file.display());
    Error::new(ErrorKind::Invalid, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_last_line_is_the_end_and_half_a_line_elsewhere_is_an_error() {
        let folder = clinch_testkit::servers::Folder::new("history").unwrap();
        let file = folder.path().join("a.jsonl");
        let whole = serde_json::to_string(&Event::End { at: 7 }).unwrap();
        std::fs::write(&file, format!("{whole}\n{}", &whole[..9])).unwrap();
        assert_eq!(History::read([&file]).unwrap().end(), Some(7));
        std::fs::write(&file, format!("{}\n{whole}\n", &whole[..9])).unwrap();
        let error = History::read([&file]).unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
    }

    #[test]
    fn files_of_several_processes_become_one_order() {
        let folder = clinch_testkit::servers::Folder::new("history").unwrap();
        let files: Vec<_> = ["a", "b"].map(|name| folder.path().join(name)).into();
        for (file, moments) in files.iter().zip([[1, 4], [2, 3]]) {
            let recorder = Recorder::create(file).unwrap();
            let _ = moments.map(|at| recorder.write(&Event::Healed { at }));
        }
        let history = History::read(&files).unwrap();
        let moments: Vec<_> = history.events.iter().map(Event::at).collect();
        assert_eq!(moments, [1, 2, 3, 4]);
        let whole = folder.path().join("whole");
        history.write(&whole).unwrap();
        assert_eq!(History::read([whole]).unwrap().events, history.events);
    }

    #[test]
    fn another_version_is_refused() {
        let folder = clinch_testkit::servers::Folder::new("history").unwrap();
        let file = folder.path().join("old");
        let start = Start {
            version: VERSION + 1,
            ..Start::default()
        };
        Recorder::create(&file).unwrap().write(&Event::Start(start));
        let error = History::read([file]).unwrap_err();
        assert!(error.to_string().contains("version"), "{error}");
    }
}
