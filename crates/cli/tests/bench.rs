//! `clinch bench` from outside: it measures, says so in the documented fields, and cleans up.
//! Speed is never asserted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn clinch(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clinch"));
        command
            .args(args)
            .env(
                "CLINCH_STORE",
                format!("sqlite:{}/locks.db", self.0.display()),
            )
            .env_remove("CLINCH_NAMESPACE");
        command
    }

    /// The names in use.
    fn list(&self) -> Value {
        let output = self.clinch(&["list", "--json"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_quick_run_has_every_field_and_leaves_nothing() {
    let folder = Folder::new("quick");
    let output = folder
        .clinch(&["bench", "--quick", "--json"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text, "", "no progress where nobody looks");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();

    assert_eq!(report["version"], 2);
    assert_eq!(report["store"], "sqlite");
    assert_eq!(report["interrupted"], false);
    assert_eq!(report["left_behind"], 0);
    let rows = |part: &str| report[part].as_array().unwrap().clone();
    let percentiles = ["p50_us", "p99_us", "p999_us", "max_us"];
    let numbers = |row: &Value, fields: &[&str]| {
        for field in percentiles.iter().chain(fields) {
            assert!(row[field].is_number(), "{field} in {row}");
        }
    };
    for part in ["floor", "uncontended"] {
        let workers: Vec<_> = rows(part)
            .iter()
            .map(|row| row["workers"].clone())
            .collect();
        assert_eq!(workers, [1, 8, 64], "{part}");
    }
    for row in rows("floor") {
        numbers(&row, &["pairs_per_s"]);
    }
    for row in rows("uncontended") {
        let fields = [
            "operations_per_acquisition",
            "ratio_to_floor",
            "ratio_to_one_worker",
        ];
        numbers(&row, &fields);
    }
    assert_eq!(rows("contended").len(), 6);
    for row in rows("contended") {
        numbers(
            &row,
            &["tasks", "acquisitions_per_s", "operations_per_acquisition"],
        );
        assert_eq!(row["violations"], 0, "{row}");
    }
    let rivals: Vec<_> = rows("processes")
        .iter()
        .map(|row| (row["tasks"].clone(), row["fair"].clone()))
        .collect();
    assert_eq!(
        rivals,
        [(1, false), (16, false), (16, true)].map(|(tasks, fair)| (tasks.into(), fair.into()))
    );
    for row in rows("processes") {
        numbers(&row, &["processes", "acquisitions_per_s", "section_us"]);
        assert_eq!(row["violations"], 0, "{row}");
    }
    let waits = [
        "operations_per_wait",
        "long_wait_operations",
        "long_wait_wakeups",
    ];
    numbers(&report["handover"], &waits);
    assert_eq!(report["handover"]["violations"], 0);
    assert_eq!(report["renewal"]["lost"], 0);
    assert!(report["renewal"]["cpu_percent_10000_holds_30s"].is_number());
    assert!(!rows("aims").is_empty());

    assert_eq!(folder.list(), serde_json::json!([]));
}

#[test]
fn an_interrupted_run_releases_prints_and_says_so() {
    let folder = Folder::new("interrupted");
    let mut run = folder
        .clinch(&["bench", "--only", "renew", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Any moment will do from the first hold on: signals are handled by then.
    while folder.list() == serde_json::json!([]) {
        assert!(run.try_wait().unwrap().is_none(), "it has ended");
    }
    let pid = i32::try_from(run.id()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    assert_eq!(report["renewal"], Value::Null);
    assert_eq!(report["left_behind"], 0);
    assert_eq!(folder.list(), serde_json::json!([]));
}

/// The worker processes open the engine's bare token themselves.
#[cfg(feature = "servers")]
#[test]
fn a_server_is_compared_with_its_raw_operations() {
    let server = clinch_testkit::servers::Redis::start().unwrap();
    let folder = Folder::new("redis");
    let output = folder
        .clinch(&["bench", "--quick", "--only", "floor,handover", "--json"])
        .env("CLINCH_STORE", server.url())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["floor"].as_array().unwrap().len(), 3);
    assert!(report["handover"]["baton"]["p50_us"].is_number());
    assert!(report["handover"]["ratio_to_baton"].is_number());
    let left = server.dump_keys("clinch:*").unwrap();
    let raw = |key: &String| key.contains(":floor:") || key.contains(":baton:");
    assert!(!left.keys().any(raw), "{left:?}");
}
