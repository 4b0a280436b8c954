//! Each lock that is known to be wrong is caught, for what is wrong with it; and one that is right is
//! not. A verifier that lets one of them pass is the one that is wrong.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]
#![cfg(feature = "verify")]

mod common;

use clinch_testkit::servers::ZooKeeper;
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

/// One test for each, and one that none was forgotten.
macro_rules! all_are_caught {
    ($($wrong:ident: $test:ident,)*) => {
        $(
            #[test]
            fn $test() {
                is_caught(Wrong::$wrong);
            }
        )*

        #[test]
        fn every_wrong_lock_has_a_test() {
            assert_eq!(Wrong::ALL.to_vec(), [$(Wrong::$wrong),*]);
        }
    };
}

all_are_caught! {
    SetnxExpire: setnx_then_expire_sticks,
    SetnxGetset: setnx_with_a_time_and_getset_has_two_holders,
    DelWithoutOwner: del_without_an_owner_has_two_holders,
    GetThenDel: get_then_del_has_two_holders,
    NoRenewal: a_lease_without_renewal_has_two_holders,
    DeadlineFromReply: a_deadline_from_the_reply_has_two_holders,
    NewRequestId: a_retry_under_a_new_identity_leaves_something_behind,
    TokenReset: tokens_that_a_restart_resets_fall,
    WakeWithoutPoll: a_waiter_that_only_listens_sticks,
    InsertDelete: a_row_without_an_end_sticks,
    ForUpdateKilled: a_row_lock_on_a_killed_connection_has_two_holders,
    ZooKeeperHerd: watchers_of_one_node_are_a_herd,
    ZooKeeperPredecessorRace: a_watch_on_a_predecessor_that_has_gone_sticks,
}

#[test]
fn a_lock_that_is_right_passes() {
    let (code, report) = run("right", 1, SEARCH[0]);
    assert_eq!(code, 0, "{report:#}");
    assert!(report["grants"].as_u64().unwrap() > 0, "{report:#}");
}

/// The control of the herd: the same server with a store of clinch's, many in line, and requests
/// counted in the same way.
#[test]
fn clinchs_own_line_on_zookeeper_is_no_herd() {
    let s = Sandbox::new();
    let zookeeper = ZooKeeper::start().unwrap();
    let url = zookeeper.url();
    let args = "--clients 12 --seed 1 --seconds 6 --workload hot,fair";
    let args: Vec<_> = args.split(' ').collect();
    let ran = s.run(&[&["verify", "--json", "--store", &url][..], &args].concat());
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_default();
    assert_eq!(ran.code, 0, "{ran:?}");
    let judged = report["calm"]["operations"].as_u64().unwrap();
    assert!(judged > 0, "no second without a fault: {report:#}");
}
