//! On a terminal: the waiting line, keys, job control. The terminal is a pty.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

mod common;

use common::tty::Tty;
use common::{Proc, Sandbox, state};
use rustix::process::Signal;

#[test]
fn a_live_line_says_what_is_waited_for_and_goes_away() {
    let s = Sandbox::new();
    let holder = s.start_job(&["--label", "nightly", "x"], "ready; exec sleep 1000");
    let tty = Tty::new();
    let mut waiter = s.clinch(&["run", "x", "--", "true"]);
    waiter.stderr(tty.end());
    let waiter = Proc(Some(waiter.spawn().unwrap()));
    let says =
        || tty.seen().contains("waiting for x: held by") && tty.seen().contains("(nightly) for");
    s.until("the line is there", says);
    // Again, in the same place.
    s.until("the line is renewed", || {
        tty.seen().matches("\r\x1b[Kwaiting for x").count() >= 2
    });
    holder.signal(Signal::TERM);
    assert_eq!(waiter.wait().code, 0);
    s.until("the line is gone", || tty.seen().ends_with("\r\x1b[K"));
}

#[test]
fn the_job_can_read_and_keys_reach_it() {
    let s = Sandbox::new();
    let mut tty = Tty::new();
    let script = "read line; echo got:$line; echo $$ > child; exec sleep 1000";
    let run = tty.start(&s, &["clinch", "run", "x", "--", "sh", "-c", script]);
    tty.press("hello\n");
    s.until("the job has read it", || tty.seen().contains("got:hello"));
    s.pid("child");
    tty.press("\x03");
    assert_eq!(run.wait().code, 130);
    assert_eq!(s.list(), serde_json::json!([]));
}

#[test]
fn a_job_in_a_pipeline_gets_the_terminal_when_it_reads() {
    let s = Sandbox::new();
    let mut tty = Tty::new();
    let script = "clinch run x -- sh -c 'read line; echo got:$line' | cat";
    let shell = tty.start(&s, &["sh", "-c", script]);
    tty.press("hello\n");
    s.until("the job has read it", || tty.seen().contains("got:hello"));
    assert_eq!(shell.wait().code, 0);
}

#[test]
fn ctrl_z_stops_both_and_fg_continues_them() {
    let s = Sandbox::new();
    let mut tty = Tty::new();
    let shell = tty.start(&s, &["sh", "-i"]);
    tty.press("clinch run x -- sh -c 'echo $$ > child; exec sleep 1000'\n");
    let child = s.pid("child");
    let clinch = i32::try_from(s.list()[0]["holders"][0]["pid"].as_i64().unwrap()).unwrap();
    tty.press("\x1a");
    s.until("both are stopped", || {
        state(clinch) == Some('T') && state(child) == Some('T')
    });
    tty.press("fg\n");
    s.until("both run", || {
        [clinch, child]
            .iter()
            .all(|pid| state(*pid).is_some_and(|s| s != 'T'))
    });
    s.until("the job has the terminal again", || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect();
        // The process group and the terminal's foreground group.
        fields.get(2).is_some() && fields.get(2) == fields.get(5)
    });
    tty.press("\x03");
    s.until("it has ended", || state(clinch).is_none());
    tty.press("echo status=$?; exit\n");
    s.until("the shell is back", || tty.seen().contains("status=130"));
    shell.wait();
    assert_eq!(s.list(), serde_json::json!([]));
}

/// A shell that reads a line from the terminal without echo, whatever its standard input is.
const PASSWORD: &str =
    "exec 3<> /dev/tty; stty -echo <&3; read line <&3; stty echo <&3; echo got:$line >&3";

#[test]
fn a_job_can_ask_for_a_password_while_its_input_is_something_else() {
    let s = Sandbox::new();
    for input in ["clinch run x -- sh -c", "seq 1 9 | clinch run x -- sh -c"] {
        let mut tty = Tty::new();
        let redirect = if input.starts_with("seq") {
            ""
        } else {
            "< /dev/null"
        };
        let script = format!("{input} '{PASSWORD}' {redirect}");
        let shell = tty.start(&s, &["sh", "-c", &script]);
        tty.press("secret\n");
        s.until("the job has read it", || tty.seen().contains("got:secret"));
        assert_eq!(shell.wait().code, 0);
        assert_eq!(s.list(), serde_json::json!([]));
    }
}

#[test]
fn a_job_that_asks_on_the_terminal_can_be_ended() {
    let s = Sandbox::new();
    let job = "exec 3<> /dev/tty; stty -echo <&3; echo $$ > child; read line <&3";
    let script = format!("clinch run x -- sh -c '{job}' < /dev/null");
    for end in ["key", "signal"] {
        let _ = std::fs::remove_file(s.path("child"));
        let mut tty = Tty::new();
        let shell = tty.start(&s, &["sh", "-c", &script]);
        let child = s.pid("child");
        let clinch = s.list()[0]["holders"][0]["pid"].as_i64().unwrap();
        match end {
            "key" => tty.press("\x03"),
            _ => common::kill(i32::try_from(clinch).unwrap(), Signal::TERM),
        }
        s.until("the job has ended", || state(child).is_none());
        let code = shell.wait().code;
        assert!([-1, 130, 143].contains(&code), "{end}: {code}");
        s.until("the lock is free", || s.list() == serde_json::json!([]));
    }
}

#[test]
fn ctrl_z_stops_a_job_whose_input_is_not_the_terminal() {
    let s = Sandbox::new();
    let mut tty = Tty::new();
    let shell = tty.start(&s, &["sh", "-i"]);
    tty.press("clinch run x -- sh -c 'echo $$ > child; exec sleep 1000' < /dev/null\n");
    let child = s.pid("child");
    let clinch = i32::try_from(s.list()[0]["holders"][0]["pid"].as_i64().unwrap()).unwrap();
    tty.press("\x1a");
    s.until("both are stopped", || {
        state(clinch) == Some('T') && state(child) == Some('T')
    });
    tty.press("fg\n");
    s.until("both run", || {
        let runs = |pid| state(pid).is_some_and(|state| state != 'T');
        runs(clinch) && runs(child)
    });
    tty.press("\x03");
    s.until("it has ended", || state(clinch).is_none());
    tty.press("exit\n");
    shell.wait();
    assert_eq!(s.list(), serde_json::json!([]));
}
