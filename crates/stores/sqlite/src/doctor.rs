//! What could break a promise of this store on this machine.

use std::fs;
use std::os::unix::fs::MetadataExt;

use clinch_core::store::{Finding, Severity};

use crate::boot;
use crate::error::{DAMAGED_ADVICE, Fail};
use crate::folder;
use crate::owner;
use crate::place;
use crate::rows::NameRow;
use crate::tx::Tx;

/// Below this much room, the log may soon not grow any more.
const LITTLE_SPACE: u64 = 64 * 1024 * 1024;
/// More dead session files than this are worth a word.
const MANY_STALE: usize = 100;
/// How many names are read at once.
const BATCH: u32 = 500;

/// Looks at the file, its place and its neighbours.
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

fn finding(severity: Severity, subject: &str, message: String, advice: Option<&str>) -> Finding {
    let finding = Finding::new(severity, subject, message);
    match advice {
        Some(advice) => finding.with_advice(advice),
        None => finding,
    }
}

fn permissions(tx: &Tx<'_>) -> Finding {
    let shown = tx.path.display();
    let mode = match fs::metadata(tx.path) {
        Ok(meta) => meta.mode() & 0o777,
        Err(error) => {
            let text = format!("{shown} cannot be looked at: {error}");
            return finding(
                Severity::Broken,
                "permissions",
                text,
                Some("check the path"),
            );
        }
    };
    if let Ok(Some(fault)) = owner::examine(tx.path) {
        let text = fault.message();
        return finding(Severity::Broken, "permissions", text, Some(owner::ADVICE));
    }
    match mode & 0o022 {
        0 => finding(
            Severity::Ok,
            "permissions",
            format!("{shown} has mode {mode:03o}"),
            None,
        ),
        _ => finding(
            Severity::Warning,
            "permissions",
            format!("{shown} has mode {mode:03o}: others can take and break its locks"),
            Some("chmod go-w it, unless that is meant"),
        ),
    }
}

fn place(tx: &Tx<'_>) -> Finding {
    match place::examine(tx.path) {
        Ok(None) => finding(
            Severity::Ok,
            "file system",
            "it is a local one".to_owned(),
            None,
        ),
        Ok(Some(fault)) => finding(
            Severity::Broken,
            "file system",
            fault.message(),
            Some(fault.advice()),
        ),
        Err(error) => finding(
            Severity::Warning,
            "file system",
            format!("it cannot be told: {error}"),
            None,
        ),
    }
}

fn space(tx: &Tx<'_>) -> Finding {
    let free = rustix::fs::statvfs(tx.path).map(|stat| stat.f_bavail * stat.f_frsize);
    match free {
        Ok(free) if free < LITTLE_SPACE => finding(
            Severity::Warning,
            "disk space",
            format!(
                "{} KiB are left; nothing is granted on a full disk",
                free / 1024
            ),
            Some("free some space"),
        ),
        Ok(free) => finding(
            Severity::Ok,
            "disk space",
            format!("{} MiB are left", free / 1024 / 1024),
            None,
        ),
        Err(error) => finding(
            Severity::Warning,
            "disk space",
            format!("it cannot be told: {error}"),
            None,
        ),
    }
}

fn library() -> Finding {
    // An older one was refused when the store was opened.
    finding(
        Severity::Ok,
        "sqlite",
        format!("version {}", rusqlite::version()),
        None,
    )
}

fn log(tx: &Tx<'_>) -> Finding {
    let mode: rusqlite::Result<String> =
        tx.db.query_row("PRAGMA journal_mode", [], |row| row.get(0));
    match mode {
        Ok(mode) if mode == "wal" => finding(
            Severity::Ok,
            "write-ahead log",
            "it is in use".to_owned(),
            None,
        ),
        other => finding(
            Severity::Broken,
            "write-ahead log",
            format!("it is not in use: {other:?}"),
            Some("nobody but clinch may change the file's settings"),
        ),
    }
}

/// Reads what every name of every namespace has.
fn records(tx: &Tx<'_>) -> Finding {
    let (mut after, mut count, mut damaged) = (0, 0, Vec::new());
    loop {
        match NameRow::batch(tx.db, tx.path, after, BATCH) {
            Ok(rows) if rows.count == 0 => break,
            Ok(rows) => {
                (after, count) = (rows.last, count + rows.count);
                damaged.extend(rows.damaged);
            }
            Err(fail) => {
                let why = match fail {
                    Fail::Sql(error) => error.to_string(),
                    Fail::Refused(error) => error.message().to_owned(),
                };
                let text = format!("they cannot be read: {why}");
                return finding(Severity::Broken, "records", text, Some(DAMAGED_ADVICE));
            }
        }
    }
    match damaged.first() {
        None => finding(
            Severity::Ok,
            "records",
            format!("all {count} can be read"),
            None,
        ),
        Some(first) => finding(
            Severity::Broken,
            "records",
            format!(
                "{} of {count} cannot be read, the first: {}",
                damaged.len(),
                first.message()
            ),
            Some(DAMAGED_ADVICE),
        ),
    }
}

fn sessions(tx: &Tx<'_>) -> Finding {
    if let Ok(Some(fault)) = folder::fault(tx.sessions.folder(), tx.path) {
        return finding(
            Severity::Broken,
            "sessions",
            format!("their folder {fault}: others could make a running process look dead"),
            Some("let only the users of the file write it"),
        );
    }
    match tx.sessions.stale() {
        Ok(stale) if stale.len() > MANY_STALE => finding(
            Severity::Warning,
            "sessions",
            format!("{} files of processes that have died", stale.len()),
            Some("they are removed with time; many of them mean that processes crash often"),
        ),
        Ok(stale) => finding(
            Severity::Ok,
            "sessions",
            format!("{} files of processes that have died", stale.len()),
            None,
        ),
        Err(error) => finding(
            Severity::Broken,
            "sessions",
            format!("their folder cannot be read: {error}"),
            Some("dead processes are not noticed: check the folder's permissions"),
        ),
    }
}

fn clock() -> Finding {
    match boot::id() {
        Some(id) => finding(Severity::Ok, "boot clock", format!("boot {id}"), None),
        None => finding(
            Severity::Warning,
            "boot clock",
            "the kernel's boot id cannot be read: a reboot is noticed by the boot clock alone"
                .to_owned(),
            Some(
                "mount /proc in full; after a power cut tokens then rise whatever the wall clock says",
            ),
        ),
    }
}
