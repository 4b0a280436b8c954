//! The command as a guest in other libraries' locks: a store without tokens, and foreign holders.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::process::{Command, Output};

use clinch_testkit::servers::Redis;
use serde_json::Value;

fn clinch(server: &Redis, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_clinch"))
        .args(args)
        .env("CLINCH_STORE", format!("{}?layout=plain", server.url()))
        .env("CLINCH_TOKEN", "7")
        .env("CLINCH_SEQUENCER", "x:7:outer")
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_command_is_told_no_token_also_not_that_of_an_outer_lock() {
    let server = Redis::start().unwrap();
    let script = "echo ${CLINCH_TOKEN-none} ${CLINCH_SEQUENCER-none} $CLINCH_NAME";
    let ran = clinch(&server, &["run", "x", "--", "sh", "-c", script]);
    assert_eq!(text(&ran), "none none x\n");
    let held = clinch(&server, &["hold", "--for", "1ms", "x"]);
    assert_eq!(text(&held), "held x\nreleased x\n");
    let held = clinch(&server, &["--json", "hold", "--for", "1ms", "x"]);
    let first: Value = serde_json::from_str(text(&held).lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["token"], &first["sequencer"]),
        (&Value::Null, &Value::Null)
    );
    let checked = clinch(&server, &["check", "x:7:x"]);
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(said.contains("no fencing tokens"), "{said}");
}

#[test]
fn a_foreign_holder_is_shown_as_far_as_it_is_known() {
    let server = Redis::start().unwrap();
    server.cli(&["SET", "x", "somebody"]).unwrap();
    let shown = text(&clinch(&server, &["show", "x"]));
    assert!(
        shown.contains("somebody") && shown.contains("without end"),
        "{shown}"
    );
    assert!(
        !shown.contains("process") && !shown.contains("since"),
        "{shown}"
    );
    let shown: Value =
        serde_json::from_str(&text(&clinch(&server, &["show", "--json", "x"]))).unwrap();
    let holder = &shown["holders"][0];
    assert_eq!(holder["owner"], "somebody");
    assert_eq!(
        (&holder["since_ms"], &holder["lease_left_ms"]),
        (&Value::Null, &Value::Null)
    );
    let refused = clinch(&server, &["run", "--no-wait", "x", "--", "true"]);
    assert_eq!(refused.status.code(), Some(75));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("held by somebody"), "{said}");
    let evicted = clinch(&server, &["evict", "--yes", "x"]);
    assert_eq!(text(&evicted), "evicted x\n");
    assert_eq!(text(&clinch(&server, &["show", "x"])), "x: free\n");
}
