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

/// How long a search may take: runs of so many seconds, each with its number as the seed, until the
/// fault shows. What a fault meets is chance, and more of them come on a machine with more time; a
/// verifier that lets a wrong lock pass for all that time has failed.
const SEARCH: [u32; 3] = [10, 20, 40];

fn run(lock: &str, seed: usize, seconds: u32) -> (i32, Value) {
    let s = Sandbox::new();
    let args = [
        "verify",
        "--json",
        "--wrong",
        lock,
        "--clients",
        "4",
        "--seed",
        &seed.to_string(),
        "--seconds",
        &seconds.to_string(),
    ];
    let ran = s.run(&args);
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_default();
    assert!(report.is_object(), "{ran:?}");
    (ran.code, report)
}

fn is_caught(wrong: Wrong) {
    let expected = wrong.expected().unwrap().as_str();
    let caught = (1..).zip(SEARCH).any(|(seed, seconds)| {
        let (code, report) = run(wrong.as_str(), seed, seconds);
        let found = report["violations"].as_array().unwrap();
        assert_eq!(code, i32::from(!found.is_empty()), "{report:#}");
        found.iter().any(|found| found["property"] == expected)
    });
    assert!(caught, "{} was not caught", wrong.as_str());
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
    let (code, report) = run("right", 1, SEARCH[0]);
    assert_eq!(code, 0, "{report:#}");
    assert!(report["grants"].as_u64().unwrap() > 0, "{report:#}");
}
