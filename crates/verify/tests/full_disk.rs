//! What each store does when the disk of its engine is full: it refuses in words, grants nothing
//! twice, and goes on when there is room again. Where no small disk may be mounted, the tests are
//! listed as ignored, with the reason.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

use std::process::ExitCode;
use std::time::Duration;

use clinch::{Clinch, Connect, Error, ErrorKind, Guard};
use clinch_testkit::servers::{Disk, Etcd, Folder, MariaDb, Redis, ZooKeeper};
use clinch_testkit::wait::{eventually, soon};
use libtest_mimic::{Arguments, Completion, Trial};

/// Nothing runs out by itself.
const LONG: Duration = Duration::from_secs(120);
/// More claims than fit on any of these disks once they are full.
const MANY: usize = 5_000;

fn main() -> ExitCode {
    let trial = |name: &str, test: fn()| {
        Trial::ignorable_test(name, move || match Disk::check() {
            Err(why) => Ok(Completion::ignored_with(why.to_string())),
            Ok(()) => {
                test();
                Ok(Completion::Completed)
            }
        })
    };
    let trials = vec![
        trial("sqlite", sqlite),
        trial("redis_that_ends", || redis("always")),
        trial("redis_that_refuses", || redis("everysec")),
        trial("mysql", mysql),
        trial("etcd", etcd),
        trial("zookeeper", zookeeper),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn sqlite() {
    let folder = Folder::new("test").unwrap();
    let disk = Disk::mount(&folder, "small", 8).unwrap();
    let url = format!("sqlite:{}", disk.path().join("locks.db").display());
    let refused = fills(&url, &disk, || {}, || {});
    assert!(refused.message().contains("is full"), "{refused}");
}

/// One that has to have everything on its disk ends; another one says why it takes no writes.
fn redis(flush: &str) {
    let setup = Redis::with().append_only(flush).disk(4);
    let redis = setup
        .config("auto-aof-rewrite-percentage", "0")
        .start()
        .unwrap();
    let again = || {
        if !redis.is_running() {
            redis.start_again().unwrap();
        }
    };
    let refused = fills(&redis.url(), redis.disk().unwrap(), || {}, again);
    let named = refused.message().contains("No space left");
    assert_eq!(named, flush == "everysec", "{refused}");
}

fn mysql() {
    let mariadb = MariaDb::with().disk(96).start().unwrap();
    let again = || {
        if !mariadb.is_running() {
            mariadb.start_again().unwrap();
        }
    };
    let refused = fills(&mariadb.url(), mariadb.disk().unwrap(), || {}, again);
    assert!(refused.message().contains("is full"), "{refused}");
}

fn etcd() {
    let etcd = Etcd::with().disk(160).start().unwrap();
    // Its log has room for many claims, its database has none for these.
    let swell = || {
        let big = "x".repeat(100_000);
        let put = || etcd.ctl(&["--command-timeout=2s", "put", "b", &big]);
        (0..20).any(|_| put().is_err());
    };
    let url = format!("{}/?timeout=1s", etcd.url());
    fills(&url, etcd.disk().unwrap(), swell, || {
        etcd.start_again().unwrap()
    });
}

fn zookeeper() {
    let zookeeper = ZooKeeper::with().disk(64).start().unwrap();
    let again = || {
        if !zookeeper.is_running() {
            zookeeper.start_again().unwrap();
        }
    };
    fills(&zookeeper.url(), zookeeper.disk().unwrap(), || {}, again);
}

/// Fills the disk under a client, and frees it again; what the client was told in between.
fn fills(url: &str, disk: &Disk, swell: impl Fn(), again: impl Fn()) -> Error {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let clinch = Connect::new(url).namespace("full").open().await.unwrap();
        let first = take(&clinch, "first").await.unwrap();
        let held = take(&clinch, "held").await.unwrap();
        disk.fill().unwrap();
        swell();
        let mut guards = Vec::new();
        let refused = soon("a refusal", async {
            for number in 0..MANY {
                match take(&clinch, &format!("{number:0>200}")).await {
                    Ok(guard) => guards.push(guard),
                    Err(error) => return error,
                }
            }
            panic!("all of {MANY} claims were kept on a full disk");
        })
        .await;
        assert_eq!(refused.kind(), ErrorKind::Unreachable, "{refused}");
        // What was granted before excludes others still, whatever became of the server.
        let other = clinch.lock("held").lease(LONG).try_acquire().await;
        assert!(!matches!(other, Ok(Some(_))), "two hold it");
        disk.free().unwrap();
        again();
        let mut next = None;
        eventually("locks are granted again", async || {
            next = take(&clinch, "next").await.ok();
            next.is_some()
        })
        .await;
        let (next, tokens) = (next.unwrap(), clinch.info().capabilities.tokens);
        assert!(!tokens || next.token() > first.token());
        if held.is_valid() {
            let other = clinch.lock("held").lease(LONG).try_acquire().await;
            assert!(other.unwrap().is_none(), "two hold it");
        }
        refused
    })
}

async fn take(clinch: &Clinch, name: &str) -> Result<Guard, Error> {
    let asked = clinch.lock(name).lease(LONG).try_acquire().await?;
    Ok(asked.unwrap_or_else(|| panic!("somebody else has {name}")))
}
