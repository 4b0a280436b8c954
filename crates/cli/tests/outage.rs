//! A store that cannot be reached for a while. On Redis, which can be killed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use std::fs::File;

use clinch_testkit::servers::Redis;
use common::{Proc, Sandbox};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Starts the command on this server; what it prints goes to files.
fn start(s: &Sandbox, server: &Redis, name: &str, args: &[&str]) -> Proc {
    let mut command = s.clinch(args);
    command.env("CLINCH_STORE", server.url());
    command.stdout(File::create(s.path(&format!("{name}.out"))).unwrap());
    command.stderr(File::create(s.path(&format!("{name}.err"))).unwrap());
    Proc(Some(command.spawn().unwrap()))
}

#[test]
fn candidates_survive_an_outage_that_outlasts_the_lease() {
    let (s, server) = (Sandbox::new(), Redis::start().unwrap());
    let elect = |who: &str| {
        let script = format!("echo {who} >> log; exec sleep 1000");
        let args = ["elect", "--lease", "3s", "e", "--", "sh", "-c", &script];
        start(&s, &server, who, &args)
    };
    let mut one = elect("one");
    s.until("one leads", || s.read("log") == "one\n");
    let mut two = elect("two");
    s.until("two waits", || s.read("two.err").contains("waiting for e"));
    server.kill().unwrap();
    for name in ["one.err", "two.err"] {
        s.until(name, || s.read(name).contains("trying again"));
    }
    assert!(s.read("one.err").contains("campaigning again"));
    assert!(!one.has_ended() && !two.has_ended());
    server.start_again().unwrap();
    s.until("somebody leads again", || {
        s.read("log").lines().count() >= 2
    });
    assert!(!one.has_ended() && !two.has_ended());
    for candidate in [one, two] {
        candidate.signal(Signal::TERM);
        candidate.wait();
    }
}

#[test]
fn patience_ends() {
    let (s, server) = (Sandbox::new(), Redis::start().unwrap());
    let holder = start(&s, &server, "holder", &["hold", "--lease", "10m", "x"]);
    s.until("it is held", || s.read("holder.out").starts_with("held"));
    let args = ["run", "--patience", "2s", "x", "--", "true"];
    let waiter = start(&s, &server, "waiter", &args);
    s.until("it waits", || {
        s.read("waiter.err").contains("waiting for x")
    });
    server.kill().unwrap();
    assert_eq!(waiter.wait().code, 69);
    drop(holder);
    // Asked for, patience holds for the first connection as well; without, that is an error at once.
    let ran = common::Ran::from(
        s.clinch(&["run", "x", "--", "true"])
            .env("CLINCH_STORE", server.url())
            .output()
            .unwrap(),
    );
    assert_eq!(
        (ran.code, ran.err.contains("trying again")),
        (69, false),
        "{ran:?}"
    );
    let args = ["run", "--patience", "10m", "y", "--", "true"];
    let early = start(&s, &server, "early", &args);
    s.until("it tries again", || {
        s.read("early.err").contains("trying again")
    });
    server.start_again().unwrap();
    assert_eq!(early.wait().code, 0);
}

#[test]
fn a_wait_for_a_store_can_be_interrupted() {
    let (s, server) = (Sandbox::new(), Redis::start().unwrap());
    server.kill().unwrap();
    let hold = ["hold", "--patience", "10m", "x"];
    let run = ["run", "--patience", "10m", "x", "--", "true"];
    for args in [&hold[..], &run] {
        let waiter = start(&s, &server, "waiter", args);
        s.until("it tries again", || {
            s.read("waiter.err").contains("trying again")
        });
        waiter.signal(Signal::INT);
        assert_eq!(waiter.wait().code, 130);
    }
}

#[test]
fn hold_says_that_its_release_is_not_confirmed() {
    let (s, server) = (Sandbox::new(), Redis::start().unwrap());
    for json in [true, false] {
        let mut args = vec!["hold", "--lease", "10m", "x"];
        if json {
            args.push("--json");
        }
        let hold = start(&s, &server, "hold", &args);
        s.until("it is held", || s.read("hold.out").ends_with('\n'));
        server.kill().unwrap();
        hold.signal(Signal::TERM);
        assert_eq!(hold.wait().code, 69);
        let (out, err) = (s.read("hold.out"), s.read("hold.err"));
        let last = out.lines().last().unwrap();
        if json {
            let last: Value = serde_json::from_str(last).unwrap();
            assert_eq!(
                last,
                json!({ "event": "unconfirmed", "name": "x", "reason": null })
            );
            let error: Value = serde_json::from_str(&err).unwrap();
            assert_eq!(error["error"]["kind"], "unreachable");
        } else {
            assert_eq!(last, "gave up x, unconfirmed");
            assert!(err.contains("frees itself when its lease ends"), "{err}");
        }
        server.start_empty().unwrap();
    }
}

#[test]
fn a_run_warns_in_json() {
    let (s, server) = (Sandbox::new(), Redis::start().unwrap());
    let script = "echo > ready; until test -e go; do sleep 0.01; done; exit 4";
    let args = [
        "--json", "run", "--lease", "10m", "x", "--", "sh", "-c", script,
    ];
    let run = start(&s, &server, "run", &args);
    s.until("the job runs", || s.path("ready").exists());
    server.kill().unwrap();
    std::fs::write(s.path("go"), "").unwrap();
    assert_eq!(run.wait().code, 4);
    let warning: Value = serde_json::from_str(&s.read("run.err")).unwrap();
    assert_eq!(warning["error"]["kind"], "unreachable");
}
