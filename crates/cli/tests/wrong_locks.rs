//! Each lock that is known to be wrong is caught, for what is wrong with it; and one that is right is
//! not. A verifier that lets one of them pass is the one that is wrong.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]
#![cfg(feature = "verify")]

mod common;

use clinch_verify::Wrong;
use common::Sandbox;
use serde_json::Value;

/// Longer runs with other seeds, until the fault shows: it depends on the machine when it does. A lock
/// that is not caught by then fails the test.
const RUNS: [(&str, &str); 4] = [("1", "4"), ("2", "6"), ("3", "10"), ("4", "20")];

fn run(s: &Sandbox, lock: &str, (seed, seconds): (&str, &str)) -> (i32, Value) {
    let args = [
        "verify",
        "--json",
        "--wrong",
        lock,
        "--clients",
        "4",
        "--seed",
        seed,
        "--seconds",
        seconds,
    ];
    let ran = s.run(&args);
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_default();
    assert!(report.is_object(), "{ran:?}");
    (ran.code, report)
}

fn is_caught(wrong: Wrong) {
    let s = Sandbox::new();
    let expected = wrong.expected().unwrap().as_str();
    let mut seen = Vec::new();
    for plan in RUNS {
        let (code, report) = run(&s, wrong.as_str(), plan);
        let found = report["violations"].as_array().unwrap();
        if found.iter().any(|found| found["property"] == expected) {
            assert_eq!(code, 1);
            return;
        }
        seen.push(report);
    }
    assert!(
        seen.is_empty(),
        "{} was not caught: {seen:#?}",
        wrong.as_str()
    );
}

#[test]
fn setnx_then_expire_sticks() {
    is_caught(Wrong::SetnxExpire);
}

#[test]
fn setnx_with_a_time_and_getset_has_two_holders() {
    is_caught(Wrong::SetnxGetset);
}

#[test]
fn del_without_an_owner_has_two_holders() {
    is_caught(Wrong::DelWithoutOwner);
}

#[test]
fn get_then_del_has_two_holders() {
    is_caught(Wrong::GetThenDel);
}

#[test]
fn a_lease_without_renewal_has_two_holders() {
    is_caught(Wrong::NoRenewal);
}

#[test]
fn a_deadline_from_the_reply_has_two_holders() {
    is_caught(Wrong::DeadlineFromReply);
}

#[test]
fn a_retry_under_a_new_identity_leaves_something_behind() {
    is_caught(Wrong::NewRequestId);
}

#[test]
fn tokens_that_a_restart_resets_fall() {
    is_caught(Wrong::TokenReset);
}

#[test]
fn a_waiter_that_only_listens_sticks() {
    is_caught(Wrong::WakeWithoutPoll);
}

#[test]
fn a_row_without_an_end_sticks() {
    is_caught(Wrong::InsertDelete);
}

#[test]
fn a_lock_that_is_right_passes() {
    let s = Sandbox::new();
    let (code, report) = run(&s, "right", ("1", "6"));
    assert_eq!(code, 0, "{report:#}");
    assert!(report["grants"].as_u64().unwrap() > 0, "{report:#}");
}
