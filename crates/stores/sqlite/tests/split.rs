//! What could split the store: two logs, two boots, two places.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use clinch_core::store::{Admin, ClaimReply, RenewReply, Renewal, Store};
use clinch_core::{Clock, ErrorKind};
use clinch_testkit::wait::eventually;
use common::{Client, Folder};

/// How many locks of its own this process has on a file.
fn own_locks(path: &Path) -> usize {
    let inode = format!(":{}", fs::metadata(path).unwrap().ino());
    let pid = std::process::id().to_string();
    let own = |line: &&str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        fields[1] == "POSIX" && fields[4] == pid && fields[5].ends_with(&inode)
    };
    // The kernel leaves lines out if other locks come and go while it writes the list.
    let mut counts = (0..50).map(|_| {
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks.lines().filter(own).count()
    });
    counts.find(|count| *count > 0).unwrap_or(0)
}

/// Reads the file with plain SQLite, as a backup would, when a test below starts it so.
#[test]
fn helper_that_reads() {
    let Some(path) = std::env::var_os("CLINCH_TEST_READ") else {
        return;
    };
    let db = rusqlite::Connection::open(path).unwrap();
    db.query_row("SELECT count(*) FROM names", [], |_| Ok(()))
        .unwrap();
    db.close().unwrap();
}

fn helper(name: &str, key: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture"])
        .env(key, path);
    command
}

#[tokio::test]
async fn every_client_of_a_process_keeps_the_files_lock() {
    let folder = Folder::new();
    let first = folder.client();
    assert!(own_locks(&folder.db()) > 0);
    let claim = first.mutex("n");
    first.granted(&claim).await;
    let log = folder.0.join("locks.db-wal");
    let inode = fs::metadata(&log).unwrap().ino();
    for round in 0..3 {
        let (second, third) = (folder.client(), folder.client());
        assert!(own_locks(&folder.db()) > 0, "round {round}");
        drop(second);
        third.store.close().await.unwrap();
        assert!(own_locks(&folder.db()) > 0, "round {round}");
    }
    // The last one to close would remove the log; plain SQLite sees that it is not the last.
    let output = helper("helper_that_reads", "CLINCH_TEST_READ", &folder.db())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(&log).unwrap().ino(), inode);
    let other = folder.client();
    other.queued(&other.mutex("n")).await;
}

/// The first client after the others have ended. A process that another test has just forked has
/// copies of their locks until it is replaced by the program that it is to run.
async fn next_client(folder: &Folder) -> Client {
    let mut next = None;
    eventually("the sessions have ended", async || {
        next = Client::open(&folder.db(), Clock::boot()).ok();
        next.is_some()
    })
    .await;
    next.unwrap()
}

#[tokio::test]
async fn a_log_that_is_removed_is_noticed_before_the_next_grant() {
    for ends in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
        let folder = Folder::new();
        let (holder, idle) = (folder.client(), folder.client());
        let claim = holder.mutex("n");
        let grant = holder.granted(&claim).await;
        idle.store.list("").await.unwrap();
        for end in ends {
            fs::remove_file(folder.0.join(format!("locks.db{end}"))).unwrap();
        }
        let pid = std::process::id().to_string();
        // A new client cannot see what is held; its error names the process that can.
        let error = Client::open(&folder.db(), Clock::boot()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains(&pid), "{error}");
        // The running clients can do nothing more.
        let error = idle.store.claim(&idle.mutex("n")).await.unwrap_err();
        assert!(error.to_string().contains("was removed"), "{error}");
        let renewal = Renewal::new(claim.hold(grant.seq), claim.lease);
        let renewed = holder.store.renew(&[renewal]).await;
        assert!(
            !matches!(renewed.as_deref(), Ok([RenewReply::Held])),
            "{renewed:?}"
        );
        assert!(holder.store.claim(&holder.mutex("else")).await.is_err());
        // Nothing is granted until the lease of the holder has ended.
        if let Ok(early) = Client::open(&folder.db(), Clock::boot()) {
            let reply = early.store.claim(&early.mutex("n")).await;
            assert!(!matches!(reply, Ok(ClaimReply::Granted(_))), "{reply:?}");
        }
        drop((holder, idle));
        let next = next_client(&folder).await;
        next.store.claim(&next.mutex("n")).await.unwrap();
    }
}

/// Tries to take a lock that is held, when a test below starts it so.
#[tokio::test]
async fn helper_that_tries() {
    let Some(path) = std::env::var_os("CLINCH_TEST_TRY") else {
        return;
    };
    let text = match Client::open(path.as_ref(), Clock::boot()) {
        Ok(client) => {
            let mut claim = client.mutex("n");
            claim.queue = false;
            format!("{:?}", client.store.claim(&claim).await.unwrap())
        }
        Err(error) => error.to_string(),
    };
    println!("\nanswer {text}");
}

/// The output of another process that tries to take the lock.
fn try_elsewhere(folder: &Folder) -> String {
    let output = helper("helper_that_tries", "CLINCH_TEST_TRY", &folder.db())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = text.lines().find_map(|line| line.strip_prefix("answer "));
    answer.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

#[tokio::test]
async fn an_index_that_is_removed_lets_no_other_process_in() {
    let folder = Folder::new();
    // An idle client checks no files: it may be stopped in a transaction.
    let holder = folder.client();
    holder.granted(&holder.mutex("n")).await;
    let index = folder.0.join("locks.db-shm");
    fs::remove_file(&index).unwrap();
    let answer = try_elsewhere(&folder);
    assert!(answer.contains("was removed"), "{answer}");
    assert!(answer.contains(&std::process::id().to_string()), "{answer}");
    assert!(!index.exists(), "a newcomer has made another one");
    drop(holder);
    drop(next_client(&folder).await);
    assert!(try_elsewhere(&folder).starts_with("Granted"));
}

#[tokio::test]
async fn an_index_that_another_program_made_anew_is_not_taken_for_ours() {
    let folder = Folder::new();
    let idle = folder.client();
    fs::remove_file(folder.0.join("locks.db-shm")).unwrap();
    // Plain SQLite does not check this, and makes a new one.
    let output = helper("helper_that_reads", "CLINCH_TEST_READ", &folder.db())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(folder.0.join("locks.db-shm").exists());
    // In this process SQLite would go on with the one that has no name.
    let error = Client::open(&folder.db(), Clock::boot()).err().unwrap();
    assert!(error.to_string().contains("was removed"), "{error}");
    let answer = try_elsewhere(&folder);
    assert!(answer.contains("was removed"), "{answer}");
    drop(idle);
    drop(next_client(&folder).await);
    assert!(try_elsewhere(&folder).starts_with("Granted"));
}

#[tokio::test]
async fn a_locked_session_that_cannot_be_read_keeps_newcomers_from_another_log() {
    for content in [&b""[..], b"clinch-2 and the rest of another version"] {
        let folder = Folder::new();
        drop(folder.client());
        let path = folder.0.join("locks.db.sessions/00000000000000ab.lock");
        fs::write(&path, content).unwrap();
        let session = fs::File::open(&path).unwrap();
        session.lock().unwrap();
        // Its log is unknown: it may be this one.
        drop(folder.client());
        fs::remove_file(folder.0.join("locks.db-wal")).unwrap();
        let error = Client::open(&folder.db(), Clock::boot()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("ab.lock"), "{error}");
        drop(session);
        next_client(&folder).await;
    }
}

/// Runs the helper in a mount namespace of its own, after some mounts.
fn try_among(mounts: &str, path: &Path) -> Option<String> {
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "set -e; {mounts}; echo mounted; exec {} --exact helper_that_tries --nocapture",
        program.display()
    );
    let output: Output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("CLINCH_TEST_TRY", path)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !text.contains("mounted") {
        eprintln!("skipped: no mounts can be made here: {output:?}");
        return None;
    }
    let answer = text.lines().find_map(|line| line.strip_prefix("answer "));
    Some(answer.unwrap_or_else(|| panic!("{output:?}")).to_owned())
}

#[tokio::test]
async fn a_container_with_another_boot_id_or_none_ends_no_hold() {
    let folder = Folder::new();
    let holder = folder.client();
    let claim = holder.mutex("n");
    let grant = holder.granted(&claim).await;
    let id = folder.0.join("boot_id");
    fs::write(&id, "0b1c2d3e-0000-4000-8000-00000000beef\n").unwrap();
    let other_id = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id",
        id.display()
    );
    let no_id = "mount -t proc -o subset=pid proc /proc";
    for mounts in [&*other_id, no_id, &*other_id] {
        if let Some(answer) = try_among(mounts, &folder.db()) {
            assert!(answer.starts_with("Busy"), "{mounts}: {answer}");
        }
        // And back: a client that opens it here again ends nothing either.
        let again = folder.client();
        assert!(
            again
                .store
                .check(&claim.name, grant.seq)
                .await
                .unwrap()
                .is_current()
        );
    }
}

#[tokio::test]
async fn a_file_that_is_mounted_alone_is_refused() {
    let folder = Folder::new();
    let holder = folder.client();
    holder.granted(&holder.mutex("n")).await;
    let other = Folder::new();
    fs::write(other.db(), b"").unwrap();
    let mounts = format!(
        "mount --bind {} {}",
        folder.db().display(),
        other.db().display()
    );
    if let Some(answer) = try_among(&mounts, &other.db()) {
        assert!(
            answer.contains("mounted") && answer.contains("folder"),
            "{answer}"
        );
    }
    // The whole folder is fine.
    let mounts = format!("mount --bind {} {}", folder.0.display(), other.0.display());
    if let Some(answer) = try_among(&mounts, &other.db()) {
        assert!(answer.starts_with("Busy"), "{answer}");
    }
}

#[tokio::test]
async fn a_file_with_two_names_is_refused_unless_it_is_accepted() {
    let folder = Folder::new();
    drop(folder.client());
    let second = folder.0.join("second.db");
    fs::hard_link(folder.db(), &second).unwrap();
    let error = Client::open(&second, Clock::boot()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("hard links"), "{error}");
    let url = format!("sqlite:{}?fs=accept", second.display());
    Client::open_url(&url, Clock::boot()).unwrap();
}

#[tokio::test]
async fn a_symbolic_link_leads_to_the_same_sessions() {
    let folder = Folder::new();
    let elsewhere = Folder::new();
    let holder = folder.client();
    holder.granted(&holder.mutex("n")).await;
    symlink(folder.db(), elsewhere.db()).unwrap();
    let other = elsewhere.client();
    assert_eq!(other.store.path(), fs::canonicalize(folder.db()).unwrap());
    other.queued(&other.mutex("n")).await;
    drop(holder);
    other.granted(&other.mutex("n2")).await;
    assert!(!elsewhere.0.join("locks.db.sessions").exists());
}
