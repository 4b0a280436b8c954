//! Files and folders of other users, and the default file of a user.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::*;

/// Runs as another user, when the test below starts it so.
#[test]
fn helper_that_opens_as_nobody() {
    let Some(path) = std::env::var_os("CLINCH_TEST_DENIED") else {
        return;
    };
    let error = refused(Path::new(&path));
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("run as the user"), "{error}");
}

#[test]
fn a_file_of_another_user_is_denied_with_advice() {
    let folder = Folder::new();
    drop(folder.client());
    if !rustix::process::geteuid().is_root() {
        fs::set_permissions(folder.db(), fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(refused(&folder.db()).kind(), ErrorKind::Denied);
        return;
    }
    // The test program must be in reach of the other user.
    let program = folder.0.join("helper");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(program)
        .args(["--exact", "users::helper_that_opens_as_nobody"])
        .env("CLINCH_TEST_DENIED", folder.db())
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[test]
fn a_folder_of_sessions_that_another_user_prepared_is_refused() {
    type Prepare = fn(&Path);
    let ways: [(&str, Prepare); 4] = [
        ("is not a folder", |path| fs::write(path, b"").unwrap()),
        ("is not a folder", |path| {
            std::os::unix::fs::symlink(std::env::temp_dir(), path).unwrap();
        }),
        ("written by all users", |path| {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o757)).unwrap();
        }),
        ("belongs to user 65534", |path| {
            fs::create_dir(path).unwrap();
            std::os::unix::fs::chown(path, Some(65_534), None).unwrap();
        }),
    ];
    for (fault, prepare) in ways {
        if fault.contains("belongs") && !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a folder away");
            continue;
        }
        let folder = Folder::new();
        prepare(&folder.0.join("locks.db.sessions"));
        let error = refused(&folder.db());
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains(fault), "{error}");
        assert!(error.advice().is_some());
    }
}

/// A folder that all users can write, as `/tmp` and `/run/lock`.
fn public_folder() -> Folder {
    let folder = Folder::new();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

/// Gives a file, a folder or a link to another user.
fn give_away(path: &Path) {
    std::os::unix::fs::lchown(path, Some(65_534), Some(65_534)).unwrap();
}

#[tokio::test]
async fn a_file_that_another_user_prepared_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give a file away");
        return;
    }
    type Prepare = fn(&Path);
    let ways: [(&str, Prepare); 5] = [
        ("locks.db", |folder| {
            fs::write(folder.join("locks.db"), b"").unwrap();
            fs::create_dir(folder.join("locks.db.sessions")).unwrap();
            give_away(&folder.join("locks.db"));
            give_away(&folder.join("locks.db.sessions"));
        }),
        // Into a folder that only he can write.
        ("locks.db", |folder| {
            let home = folder.join("home");
            fs::create_dir(&home).unwrap();
            fs::write(home.join("his.db"), b"").unwrap();
            std::os::unix::fs::symlink(home.join("his.db"), folder.join("locks.db")).unwrap();
            for file in ["home", "home/his.db", "locks.db"] {
                give_away(&folder.join(file));
            }
        }),
        // Even to a file of this user: the other one can change the link.
        ("locks.db", |folder| {
            fs::write(folder.join("mine.db"), b"").unwrap();
            std::os::unix::fs::symlink(folder.join("mine.db"), folder.join("locks.db")).unwrap();
            give_away(&folder.join("locks.db"));
        }),
        // The folder of the file.
        ("jobs/locks.db", |folder| {
            fs::create_dir(folder.join("jobs")).unwrap();
            give_away(&folder.join("jobs"));
        }),
        ("locks.db", |folder| {
            fs::write(folder.join("locks.db-wal"), b"").unwrap();
            give_away(&folder.join("locks.db-wal"));
        }),
    ];
    for (way, (file, prepare)) in ways.into_iter().enumerate() {
        let folder = public_folder();
        prepare(&folder.0);
        let path = folder.0.join(file);
        let error = refused(&path);
        assert_eq!(error.kind(), ErrorKind::Denied, "{way}: {error}");
        let text = error.to_string();
        assert!(text.contains("belongs to user 65534"), "{way}: {text}");
        assert!(text.contains("owner=accept"), "{way}: {text}");
        let url = format!("sqlite:{}?owner=accept", path.display());
        let client = Client::open_url(&url, Clock::boot()).unwrap();
        client.granted(&client.mutex("n")).await;
    }
}

#[tokio::test]
async fn root_uses_a_file_in_a_folder_that_only_its_owner_can_write() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give a file away");
        return;
    }
    let folder = Folder::new();
    fs::write(folder.db(), b"").unwrap();
    give_away(&folder.db());
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let client = folder.client();
    client.granted(&client.mutex("n")).await;
}

#[tokio::test]
async fn the_doctor_finds_a_folder_of_sessions_that_others_can_write() {
    let folder = Folder::new();
    let client = folder.client();
    let sessions = folder.0.join("locks.db.sessions");
    fs::set_permissions(sessions, fs::Permissions::from_mode(0o777)).unwrap();
    let findings = client.store.doctor().await.unwrap();
    let found = findings.iter().find(|f| f.subject == "sessions").unwrap();
    assert_eq!(found.severity, Severity::Broken, "{found:?}");
}

/// Prints the default file, when the test below starts it so.
#[test]
fn helper_that_prints_the_default() {
    if std::env::var_os("CLINCH_TEST_DEFAULT").is_some() {
        println!("\ndefault {:?}", clinch_sqlite::default_path());
    }
}

#[test]
fn the_default_file_does_not_depend_on_the_environment() {
    let printed = |home: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "users::helper_that_prints_the_default",
                "--nocapture",
            ])
            .env("CLINCH_TEST_DEFAULT", "1")
            .env_remove("XDG_STATE_HOME")
            .env_remove("HOME");
        if let Some(home) = home {
            command.env("HOME", home).env("XDG_STATE_HOME", home);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with("default "));
        line.unwrap().to_owned()
    };
    let without = printed(None);
    assert_eq!(without, printed(Some("/srv/elsewhere")));
    if rustix::process::geteuid().is_root() {
        assert!(without.contains("/var/lib/clinch/locks.db"), "{without}");
    }
}
