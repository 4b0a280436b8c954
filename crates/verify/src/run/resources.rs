//! The protected resources: counters behind a socket, one of which checks tokens.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clinch::{Error, ErrorKind, Result};

use crate::history::{Access, Event, Recorder, now};
use crate::work::Use;

#[derive(Debug, Default)]
struct Counter {
    value: u64,
    /// The greatest token that was seen, by a read or a write.
    floor: u64,
}

type Counters = Arc<Mutex<HashMap<String, Counter>>>;

/// Who is between its read and its write of a resource that does not check tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct Gap(Arc<AtomicU32>);

impl Gap {
    /// The process, if there is one.
    pub(super) fn process(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|process| *process > 0)
    }

    fn note(&self, using: &Use) {
        if !using.fenced {
            let process = u32::try_from(using.op >> 32).unwrap_or(0);
            let inside = if using.write { 0 } else { process };
            self.0.store(inside, Ordering::Relaxed);
        }
    }
}

/// Serves the resources at a socket for as long as the process lives.
pub(super) fn serve(path: &Path, recorder: &Recorder) -> Result<Gap> {
    let failed = |why| {
        Error::new(
            ErrorKind::Internal,
            format!("cannot serve resources: {why}"),
        )
    };
    let listener = UnixListener::bind(path).map_err(failed)?;
    let (counters, recorder) = (Counters::default(), recorder.clone());
    let gap = Gap::default();
    let noted = gap.clone();
    let accept = move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (counters, recorder) = (counters.clone(), recorder.clone());
            let gap = noted.clone();
            let serve = move || answer(&stream, &counters, &recorder, &gap);
            let thread = std::thread::Builder::new().name("clinch-resource".into());
            // A connection that cannot be served is closed, and its worker tries again.
            let _ = thread.spawn(serve);
        }
    };
    let thread = std::thread::Builder::new().name("clinch-resources".into());
    thread.spawn(accept).map_err(failed)?;
    Ok(gap)
}

fn answer(stream: &UnixStream, counters: &Counters, recorder: &Recorder, gap: &Gap) {
    let mut writer = stream;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Ok(using) = serde_json::from_str::<Use>(&line) else {
            return;
        };
        let reply = access(&using, counters, recorder);
        gap.note(&using);
        if writeln!(writer, "[{},{}]", reply.0, reply.1).is_err() {
            return;
        }
    }
}

/// One use. It is recorded under the lock: the record has the order of the resource.
fn access(using: &Use, counters: &Counters, recorder: &Recorder) -> (bool, u64) {
    let mut counters = counters.lock().unwrap_or_else(PoisonError::into_inner);
    let counter = counters.entry(using.resource.clone()).or_default();
    let accepted = !using.fenced || using.token >= counter.floor;
    if accepted {
        counter.floor = counter.floor.max(using.token);
        if using.write {
            counter.value = using.value + 1;
        }
    }
    recorder.write(&Event::Access(Access {
        resource: using.resource.clone(),
        fenced: using.fenced,
        write: using.write,
        op: using.op,
        at: now(),
        token: using.token,
        value: if using.write {
            using.value
        } else {
            counter.value
        },
        accepted,
    }));
    (accepted, counter.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Resource;

    #[test]
    fn smaller_tokens_are_refused_where_they_are_checked() {
        let folder = clinch_testkit::servers::Folder::new("resources").unwrap();
        let recorder = Recorder::create(&folder.path().join("history")).unwrap();
        let socket = folder.path().join("socket");
        let gap = serve(&socket, &recorder).unwrap();
        let mut resource = Resource::connect(&socket).unwrap();
        for fenced in [true, false] {
            let using = |token, write| Use {
                resource: format!("{fenced}"),
                fenced,
                write,
                op: 1,
                token,
                value: 0,
            };
            assert_eq!(resource.access(&using(7, true)).unwrap(), (true, 1));
            // A read counts as well: what it saw must not change under it.
            assert_eq!(resource.access(&using(9, false)).unwrap(), (true, 1));
            assert_eq!(resource.access(&using(8, true)).unwrap().0, !fenced);
        }
        let read = |fenced, process: u64| Use {
            resource: format!("{fenced}"),
            fenced,
            write: false,
            op: process << 32 | 1,
            token: 10,
            value: 0,
        };
        for (fenced, process) in [(false, 3), (true, 4)] {
            resource.access(&read(fenced, process)).unwrap();
        }
        assert_eq!(gap.process(), Some(3), "the one that no token stops");
        let write = Use {
            write: true,
            ..read(false, 3)
        };
        resource.access(&write).unwrap();
        // The gap is noted before the next answer of this connection.
        resource.access(&read(true, 4)).unwrap();
        assert_eq!(gap.process(), None);
    }
}
