//! Bad input: one line that says what is wrong and what would be right, status 2, nothing changed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use common::Sandbox;

#[test]
fn each_mistake_gets_one_line_and_changes_nothing() {
    let s = Sandbox::new();
    let long = "x".repeat(256);
    let bad: &[(&[&str], &str)] = &[
        (&["run", "x"], "after `--`"),
        (&["run", "x", "--"], "after `--`"),
        (&["run", "x", "touch", "ran"], "put `--` before the command"),
        (&["run", "", "--", "touch", "ran"], "1 to 255 bytes"),
        (&["run", &long, "--", "touch", "ran"], "the maximum is 255"),
        (&["run", "--wait", "5", "x", "--", "touch", "ran"], "5s"),
        (
            &["run", "--wait", "5 parsecs", "x", "--", "touch", "ran"],
            "with a unit",
        ),
        (
            &[
                "run",
                "--wait",
                "1s",
                "--no-wait",
                "x",
                "--",
                "touch",
                "ran",
            ],
            "--no-wait",
        ),
        (
            &["run", "--lease", "1ms", "x", "--", "touch", "ran"],
            "the least on this store is",
        ),
        (
            &["run", "--lease", "400d", "x", "--", "touch", "ran"],
            "the most on this store is",
        ),
        (
            &["run", "--lock-delay", "400d", "x", "--", "touch", "ran"],
            "the most is",
        ),
        (&["run", "--permits", "3", "x", "--", "touch", "ran"], "K/N"),
        (
            &["run", "--permits", "6/5", "x", "--", "touch", "ran"],
            "at most 5/5",
        ),
        (
            &["run", "--permits", "0/5", "x", "--", "touch", "ran"],
            "at least 1/5",
        ),
        (
            &[
                "run",
                "--shared",
                "--permits",
                "1/5",
                "x",
                "--",
                "touch",
                "ran",
            ],
            "--permits",
        ),
        (
            &["run", "--grace", "soon", "x", "--", "touch", "ran"],
            "with a unit",
        ),
        (
            &["run", "--namespace", "a/b", "x", "--", "touch", "ran"],
            "1 to 64 letters",
        ),
        (
            &["run", "--store", "nosuch://host", "x", "--", "touch", "ran"],
            "sqlite:",
        ),
        (
            &["run", "--store", "/just/a/path", "x", "--", "touch", "ran"],
            "starts with a scheme",
        ),
        (
            &[
                "run",
                "--store",
                "sqlite:/x?bussy=1s",
                "x",
                "--",
                "touch",
                "ran",
            ],
            "it takes busy",
        ),
        (&["elect", "x"], "after `--`"),
        (
            &["elect", "x", "--observe", "--", "touch", "ran"],
            "--observe",
        ),
        (&["hold"], "<NAME>"),
        (&["hold", "x", "--for", "10"], "10s"),
        (&["check", "nonsense"], "it looks like"),
        (&["evict", "x", "--token", "abc", "--yes"], "a number"),
        (&["watch", "--count", "many"], "--count"),
        (&["lsit"], "list"),
        (&["list", "--jsn"], "--json"),
        (&[], "clinch run NAME -- CMD"),
    ];
    for (args, right) in bad {
        let ran = s.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{args:?}: {ran:?}");
        assert!(
            ran.err.starts_with("clinch: ") && ran.err.contains(right),
            "{args:?}: {ran:?}"
        );
        let json = s.run(&[&["--json"], *args].concat());
        assert_eq!(json.code, 2, "{args:?}: {json:?}");
        let error = &json.error_json()["error"];
        assert!(
            error["message"].is_string() && error["kind"].is_string(),
            "{args:?}: {json:?}"
        );
        assert_eq!(error["may_have_taken_effect"], false);
    }
    assert!(!s.path("ran").exists());
    assert_eq!(s.list(), serde_json::json!([]));
}

#[test]
fn help_teaches() {
    let s = Sandbox::new();
    let commands = [
        "run", "hold", "elect", "list", "show", "watch", "check", "evict", "stores", "doctor",
    ];
    for command in commands {
        let ran = s.run(&[command, "--help"]);
        assert_eq!(ran.code, 0);
        assert!(
            ran.out.contains("Examples:") && ran.out.contains("CLINCH_STORE"),
            "{command}: {ran:?}"
        );
    }
    assert!(s.run(&["run", "--help"]).out.contains("76"));
    assert!(s.run(&["--version"]).out.starts_with("clinch "));
}

#[test]
fn secrets_are_never_said() {
    let s = Sandbox::new();
    let url = "nosuch://user:s3cr3t@host/0?password=s3cr3t";
    for args in [
        &["list"][..],
        &["--json", "list"],
        &["run", "x", "--", "true"],
        &["--help"],
        &["run", "--help"],
        &["run", "--wait", "5", "x", "--", "true"],
    ] {
        let output = s.clinch(args).env("CLINCH_STORE", url).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!said.contains("s3cr3t"), "{args:?}: {said}");
    }
}

#[cfg(feature = "servers")]
#[test]
fn no_secret_reaches_the_command() {
    let s = Sandbox::new();
    let builder = clinch_testkit::servers::Redis::with();
    let server = builder.password("s3cr3t").start().unwrap();
    assert!(server.url().contains("s3cr3t"));
    let mut run = s.clinch(&["run", "x", "--", "env"]);
    let output = run.env("CLINCH_STORE", server.url()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("CLINCH_STORE=redis://"), "{said}");
    assert!(!said.contains("s3cr3t"), "{said}");
}

#[test]
fn a_store_that_excludes_nobody_is_refused() {
    let s = Sandbox::new();
    for command in [
        &["run", "x", "--", "touch", "ran"][..],
        &["hold", "x"],
        &["elect", "x", "--", "touch", "ran"],
    ] {
        let ran = s.run(&[&["--store", "memory:"], command].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(
            ran.err.contains("exclude nobody") && ran.err.contains("sqlite:"),
            "{ran:?}"
        );
        assert!(!s.path("ran").exists());
    }
    assert_eq!(s.run(&["--store", "memory:", "list"]).code, 0);
}

#[test]
fn a_relative_path_is_said_in_full() {
    let s = Sandbox::new();
    let file = s.path("here.db");
    let run = |options: &[&str]| {
        let job = ["run", "x", "--", "sh", "-c", "echo $CLINCH_STORE"];
        let store = ["--store", "sqlite:here.db?busy=3s"];
        s.run(&[&store, options, &job].concat())
    };
    let ran = run(&[]);
    assert_eq!(
        ran.err,
        format!("clinch: sqlite:here.db is {}\n", file.display())
    );
    // A clinch inside uses the same file, wherever it runs.
    assert_eq!(ran.out, format!("sqlite:{}?busy=3s\n", file.display()));
    assert_eq!(run(&["-q"]).err, "");
}
