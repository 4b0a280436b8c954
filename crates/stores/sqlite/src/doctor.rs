//! Checks for settings of this machine that would break a promise of the store.

use std::fs;
use std::os::unix::fs::MetadataExt;

use clinch_core::store::{Finding, Severity};

use crate::boot;
use crate::error::{DAMAGED_ADVICE, Fail};
use crate::file::{owner, place};
use crate::record::NameRecord;
use crate::session::folder;
use crate::transaction::Tx;

/// Below this much free space, the log may soon be unable to grow.
const LITTLE_SPACE: u64 = 64 * 1024 * 1024;
/// More files of dead sessions than this are a warning.
const MANY_STALE: usize = 100;
/// How many names are read at once.
const BATCH: u32 = 500;

/// Checks the file, its place and the files next to it.
pub(crate) fn examine(tx: &Tx<'_>) -> Vec<Finding> {
    vec![
        permissions(tx),
        place(tx),
        space(tx),
        library(),
        log(tx),
        records(tx),
        sessions(tx),
        clock(),
    ]
}

fn ok(subject: &str, message: impl Into<String>) -> Finding {
    Finding::new(Severity::Ok, subject, message)
}

fn warning(subject: &str, message: impl Into<String>) -> Finding {
    Finding::new(Severity::Warning, subject, message)
}

fn broken(subject: &str, message: impl Into<String>, advice: &str) -> Finding {
    Finding::new(Severity::Broken, subject, message).with_advice(advice)
}

fn permissions(tx: &Tx<'_>) -> Finding {
    let (subject, shown) = ("permissions", tx.path.display());
    let mode = match fs::metadata(tx.path) {
        Ok(meta) => meta.mode() & 0o777,
        Err(error) => {
            let text = format!("{shown} cannot be read: {error}");
            return broken(subject, text, "check the path");
        }
    };
    if let Ok(Some(fault)) = owner::examine(tx.path) {
        return broken(subject, fault.message(), owner::ADVICE);
    }
    let text = format!("{shown} has mode {mode:03o}");
    match mode & 0o022 {
        0 => ok(subject, text),
        _ => warning(subject, text + ": others can take and break its locks")
            .with_advice("chmod go-w it, unless that is meant"),
    }
}

fn place(tx: &Tx<'_>) -> Finding {
    let subject = "file system";
    match place::examine(tx.path) {
        Ok(None) => ok(subject, "it is a local one"),
        Ok(Some(fault)) => broken(subject, fault.message(), fault.advice()),
        Err(error) => warning(subject, format!("it cannot be determined: {error}")),
    }
}

fn space(tx: &Tx<'_>) -> Finding {
    let subject = "disk space";
    let free = rustix::fs::statvfs(tx.path).map(|stat| stat.f_bavail * stat.f_frsize);
    match free {
        Ok(free) if free < LITTLE_SPACE => {
            let free = free / 1024;
            let text = format!("{free} KiB are left; nothing is granted on a full disk");
            warning(subject, text).with_advice("free some space")
        }
        Ok(free) => ok(subject, format!("{} MiB are left", free / 1024 / 1024)),
        Err(error) => warning(subject, format!("it cannot be determined: {error}")),
    }
}

fn library() -> Finding {
    // An older one was refused when the store was opened.
    ok("sqlite", format!("version {}", rusqlite::version()))
}

fn log(tx: &Tx<'_>) -> Finding {
    let subject = "write-ahead log";
    let mode: rusqlite::Result<String> =
        tx.db.query_row("PRAGMA journal_mode", [], |row| row.get(0));
    match mode {
        Ok(mode) if mode == "wal" => ok(subject, "it is in use"),
        other => broken(
            subject,
            format!("it is not in use: {other:?}"),
            "no program but clinch may change the file's settings",
        ),
    }
}

/// Reads the records of all names in all namespaces.
fn records(tx: &Tx<'_>) -> Finding {
    let subject = "records";
    let (mut after, mut count, mut damaged) = (0, 0, Vec::new());
    loop {
        match NameRecord::batch(tx.db, tx.path, after, BATCH) {
            Ok(records) if records.count == 0 => break,
            Ok(records) => {
                (after, count) = (records.last, count + records.count);
                damaged.extend(records.damaged);
            }
            Err(fail) => {
                let why = match fail {
                    Fail::Sql(error) => error.to_string(),
                    Fail::Refused(error) => error.message().to_owned(),
                };
                return broken(
                    subject,
                    format!("they cannot be read: {why}"),
                    DAMAGED_ADVICE,
                );
            }
        }
    }
    let Some(first) = damaged.first() else {
        return ok(subject, format!("all {count} can be read"));
    };
    let (bad, first) = (damaged.len(), first.message());
    let text = format!("{bad} of {count} cannot be read, the first: {first}");
    broken(subject, text, DAMAGED_ADVICE)
}

fn sessions(tx: &Tx<'_>) -> Finding {
    let subject = "sessions";
    if let Ok(Some(fault)) = folder::fault(tx.sessions.folder(), tx.path) {
        return broken(
            subject,
            format!("their folder {fault}: others could make a running process look dead"),
            "let only the users of the file write it",
        );
    }
    match tx.sessions.stale() {
        Ok(stale) => {
            let text = format!("{} files of processes that have died", stale.len());
            match stale.len() > MANY_STALE {
                true => warning(subject, text).with_advice(
                    "they are removed with time; many of them mean that processes crash often",
                ),
                false => ok(subject, text),
            }
        }
        Err(error) => broken(
            subject,
            format!("their folder cannot be read: {error}"),
            "dead processes are not noticed: check the folder's permissions",
        ),
    }
}

fn clock() -> Finding {
    let subject = "boot clock";
    match boot::id() {
        Some(id) => ok(subject, format!("boot {id}")),
        None => warning(
            subject,
            "the kernel's boot id cannot be read: a reboot is noticed by the boot clock alone",
        )
        .with_advice(
            "mount /proc in full; after a power cut tokens then rise whatever the wall clock says",
        ),
    }
}
