//! Tokens on a cluster whose servers have clocks of their own, and whose slots move.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clinch_testkit::servers::{Cluster, Redis, Step};
use clinch_testkit::wait::eventually;
use common::{Client, LONG, hold};

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than a name is remembered here.
const IDLE: Duration = Duration::from_secs(60);
const KEY: &str = "clinch:{clinch:x}";

struct World {
    cluster: Cluster,
    last: AtomicU64,
}

impl World {
    fn new() -> Self {
        let cluster = Cluster::start_with(|node| {
            // Else after the step the nodes would consider each other silent for an hour.
            node.clock_shim().config("cluster-node-timeout", "36000000")
        });
        Self {
            cluster: cluster.unwrap(),
            last: AtomicU64::new(0),
        }
    }

    /// A client that has seen nothing takes the lock and gives it up: the number is greater than all before.
    async fn next(&self, when: &str) {
        let url = format!("{}?remember=1s", self.cluster.url());
        let client = Client::open(&url).await.unwrap();
        let claim = client.mutex("x", LONG);
        let grant = client.granted(&claim).await;
        client.store.release(&hold(&claim, &grant)).await.unwrap();
        let last = self.last.swap(grant.seq, Ordering::Relaxed);
        assert!(grant.seq > last, "{} after {last}: {when}", grant.seq);
    }

    /// The master of the lock.
    fn master(&self) -> usize {
        self.cluster.node_of(KEY).unwrap()
    }

    fn node(&self, at: usize) -> &Redis {
        self.cluster.node(at).unwrap()
    }

    /// The lock is idle for long, and the server forgets it.
    async fn forget(&self, at: usize) {
        self.node(at).step_clock(IDLE, Step::Forward).unwrap();
        eventually("it is forgotten", async || {
            self.node(at).cli(&["EXISTS", KEY]).unwrap() == "0"
        })
        .await;
    }

    /// Of all locks of a slot one key is left, in this slot.
    fn one_key_is_left(&self, at: usize) {
        let keys = self.node(at).command(&["KEYS", "clinch:*"]).unwrap();
        let keys = keys.texts();
        let [key] = &keys[..] else {
            panic!("{keys:?}");
        };
        assert!(key.starts_with("clinch:{clinch:") && key.ends_with("}highest"));
        assert_eq!(self.node(at).cli(&["PTTL", key]).unwrap(), "-1");
        assert_eq!(self.cluster.slot_of(key), self.cluster.slot_of(KEY));
    }
}

/// The clock is ahead for longer than the name is remembered, and then it is right again.
#[tokio::test]
async fn they_rise_for_a_name_that_was_forgotten_while_the_clock_was_ahead() {
    let world = World::new();
    let at = world.master();
    world.node(at).step_clock(HOUR, Step::Forward).unwrap();
    world.next("the clock is ahead").await;
    world.forget(at).await;
    world.node(at).step_clock(HOUR, Step::Back).unwrap();
    for _ in 0..3 {
        world.next("the clock is right").await;
        world.forget(at).await;
    }
    world.one_key_is_left(at);
}

/// A server's clock is ahead, and the slot moves to one whose clock is right. The key of a lock takes the time
/// that it has left with it, and ends there before that clock has passed its number.
#[tokio::test]
async fn they_rise_when_a_slot_leaves_a_server_whose_clock_is_ahead() {
    let world = World::new();
    let from = world.master();
    let to = (from + 1) % 3;
    world.node(from).step_clock(HOUR, Step::Forward).unwrap();
    world.next("the clock is ahead").await;
    let slot = world.cluster.slot_of(KEY);
    world.cluster.migrate_slot(slot, from, to).unwrap();
    world.forget(to).await;
    world.next("the slot has moved").await;
    world.forget(to).await;
    world.one_key_is_left(to);
    world.next("later").await;
}

/// A name that is new, or was forgotten, is claimed while its slot moves, at the server that gets the slot. The
/// key of the highest number is still at the other one, and can be moved on.
#[tokio::test]
async fn they_rise_while_a_slot_moves() {
    let world = World::new();
    let from = world.master();
    let to = (from + 1) % 3;
    world.node(from).step_clock(HOUR, Step::Forward).unwrap();
    world.next("the clock is ahead").await;
    world.forget(from).await;
    let slot = world.cluster.slot_of(KEY);
    let migration = world.cluster.begin_migration(slot, from, to).unwrap();
    world.next("no key has moved").await;
    world
        .next("the lock is there, and the highest number is not")
        .await;
    migration.move_keys().unwrap();
    world.next("all keys have moved").await;
    migration.finish().unwrap();
    world.next("the slot has moved").await;
    world.forget(to).await;
    world.one_key_is_left(to);
    world.next("later").await;
}
