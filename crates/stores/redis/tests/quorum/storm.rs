//! Several clients, each behind a bad network of its own.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use clinch_core::{HandOver, Token};
use clinch_testkit::proxy::{Direction, Flow, Then};
use clinch_testkit::wait::soon;

use super::*;

const CLIENTS: usize = 3;
const EACH: usize = 100;

/// Does something bad to one way to one server, of any client.
async fn one_fault(ways: &[Vec<Proxy>], round: u64) {
    let random = usize::try_from(RandomState::new().hash_one(round) % 65_536).unwrap();
    let proxy = &ways[random % ways.len()][random / 8 % 5];
    let late = Flow::Delay(Duration::from_millis(40));
    match random / 64 % 7 {
        0 => proxy.reset(),
        1 => proxy.flow(Direction::Down, Flow::Hold),
        2 => proxy.flow(Direction::Up, Flow::Hold),
        3 => proxy.flow(Direction::Down, late),
        4 => proxy.flow(Direction::Up, late),
        5 => (proxy.links().iter()).for_each(|link| link.swallow(1, Then::Silence)),
        _ => (proxy.links().iter()).for_each(|link| link.swallow(1, Then::Reset)),
    }
    tokio::time::sleep(Duration::from_millis(15)).await;
    // Some stay bad for a while, so that they outlast a timeout.
    if !(random / 512).is_multiple_of(8) {
        ways.iter().flatten().for_each(Proxy::heal);
    }
}

/// Messages to claim, to vote and to give back are late, lost and out of order all the time, and still
/// no two clients hold at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn contenders_behind_bad_networks_are_alone() {
    let servers = Servers::start(5);
    let mut ways = Vec::new();
    for _ in 0..CLIENTS {
        ways.push(proxies(&servers).await);
    }
    let (inside, last) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(std::sync::Mutex::new(None)),
    );
    let mut tasks = Vec::new();
    for way in &ways {
        let calm = |builder: ClinchBuilder| {
            let patience = Duration::from_secs(30);
            builder.hand_over(HandOver::OFF).patience(patience)
        };
        let client = client_with(&through(way, "timeout=300ms"), calm).await;
        let (inside, last) = (inside.clone(), last.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..EACH {
                let lock = client.lock("x").lease(LONG);
                let guard = soon("the lock", lock.acquire()).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
                tokio::time::sleep(Duration::from_millis(2)).await;
                let token: Option<Token> = Some(guard.token());
                assert!(last.lock().unwrap().replace(guard.token()) < token);
                assert!(guard.is_valid());
                inside.fetch_sub(1, Ordering::SeqCst);
                released(guard).await;
            }
        }));
    }
    let calm = Arc::new(AtomicBool::new(false));
    let storm = async {
        let mut round = 0;
        while !calm.load(Ordering::SeqCst) {
            one_fault(&ways, round).await;
            round += 1;
        }
        ways.iter().flatten().for_each(Proxy::heal);
        round
    };
    let work = async {
        for task in tasks {
            task.await.unwrap();
        }
        calm.store(true, Ordering::SeqCst);
    };
    let (faults, ()) = tokio::join!(storm, work);
    assert!(faults > 20, "{faults} faults");
    servers.all_are_free("x").await;
}
