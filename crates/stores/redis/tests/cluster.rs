//! Locks on a cluster: slots that move, masters that die, wakes that are lost.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the test is the user, and its bounds are not leases"
)]

use std::ops::Deref;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use clinch_core::store::{
    Claim, ClaimReply, EventKind, Hold, OpenContext, ReleaseReply, RenewReply, Renewal,
};
use clinch_core::{Clinch, ErrorKind, Guard, Name, OwnerId};
use clinch_testkit::servers::{Cluster, Redis, Step};
use clinch_testkit::wait::{eventually, soon};

/// So long that no lease ends within a test, and that a poll is more than a second away.
const LONG: Duration = Duration::from_secs(120);

/// One cluster for the tests that leave it well; each has a namespace of its own.
fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start().unwrap())
}

struct Client {
    clinch: Clinch,
    context: OpenContext,
}

impl Deref for Client {
    type Target = Clinch;

    fn deref(&self) -> &Clinch {
        &self.clinch
    }
}

impl Client {
    async fn open(url: &str, namespace: &str) -> Self {
        let context = Clinch::context(namespace).unwrap();
        let store = clinch_redis::open(&url.parse().unwrap(), context.clone()).await;
        Self {
            clinch: Clinch::builder(store.unwrap(), context.clone()).build(),
            context,
        }
    }

    /// Takes a lock below the engine, which does not renew it then.
    async fn take(&self, name: &str) -> Hold {
        let claim = Claim {
            name: Name::new(name).unwrap(),
            request: self.context.identity.request(),
            owner: OwnerId::new("raw"),
            client: self.context.identity.info().clone(),
            units: 1,
            limit: 1,
            lease: LONG,
            lock_delay: Duration::ZERO,
            label: None,
            value: None,
            queue: false,
        };
        let reply = self.store().claim(&claim).await.unwrap();
        let ClaimReply::Granted(grant) = reply else {
            panic!("{name} is not free: {reply:?}");
        };
        Hold {
            name: claim.name,
            request: claim.request,
            seq: grant.seq,
        }
    }

    async fn renews(&self, hold: &Hold) -> bool {
        let renewal = Renewal {
            hold: hold.clone(),
            lease: LONG,
            value: None,
        };
        self.store().renew(&[renewal]).await.unwrap() == [RenewReply::Held]
    }

    /// Starts to wait for a lock.
    fn wait_for(&self, name: &str) -> tokio::task::JoinHandle<Guard> {
        let lock = self.lock(name).lease(LONG);
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    }

    /// Waits until a lock has this number of holders and waiters.
    async fn until(&self, name: &str, holders: usize, waiters: usize) {
        eventually(&format!("{holders} and {waiters} of {name}"), async || {
            let view = self.inspect(name).await.unwrap();
            let seen = view.map_or((0, 0), |v| (v.holders.len(), v.waiters.len()));
            seen == (holders, waiters)
        })
        .await;
    }
}

/// The key of a lock.
fn key(namespace: &str, name: &str) -> String {
    format!("clinch:{{{namespace}:{name}}}")
}

/// The keys of a namespace, at each master, without those of the highest numbers, which stay.
fn keys(cluster: &Cluster, namespace: &str) -> Vec<Vec<String>> {
    let pattern = format!("clinch:{{{namespace}:*");
    let is_master = |node: &&Redis| {
        let info = node.is_running().then(|| node.info("replication").unwrap());
        info.is_some_and(|info| info.get("role").is_some_and(|role| role == "master"))
    };
    let nodes = cluster.nodes().iter().filter(is_master);
    let of = |node: &Redis| {
        let mut keys = node.command(&["KEYS", &pattern]).unwrap().texts();
        keys.retain(|key| !key.ends_with("}highest"));
        keys
    };
    nodes.map(of).collect()
}

/// The channels of a namespace for wakes, at one server.
fn channels(node: &Redis, namespace: &str) -> Vec<String> {
    let ours = format!("clinch:{{{namespace}:");
    let all = node.command(&["PUBSUB", "SHARDCHANNELS"]).unwrap().texts();
    all.into_iter().filter(|at| at.starts_with(&ours)).collect()
}

/// Waits until a client has subscribed at the server of a lock.
async fn until_subscribed(cluster: &Cluster, namespace: &str, name: &str) {
    eventually("a subscription where the lock is", async || {
        let key = key(namespace, name);
        let node = cluster.node_of(&key).unwrap();
        let channels = channels(cluster.node(node).unwrap(), namespace);
        channels.iter().any(|channel| channel.starts_with(&key))
    })
    .await;
}

/// Waits until nothing is held, closes clients, and waits until nothing but idle states that end is
/// left.
async fn expect_nothing_left(cluster: &Cluster, namespace: &str, clients: &[&Client]) {
    let any = clients.first().unwrap();
    eventually("nothing is held", async || {
        any.list("").await.unwrap().is_empty()
    })
    .await;
    for client in clients {
        client.close().await.unwrap();
    }
    let mut left = Vec::new();
    let mut look = || {
        left.clear();
        for key in keys(cluster, namespace).concat() {
            let node = cluster.node(cluster.node_of(&key).unwrap()).unwrap();
            let ends = node.cli(&["PTTL", &key]).unwrap();
            if !key.ends_with('}') || ends.starts_with('-') {
                left.push(format!("{key}, which ends in {ends} ms"));
            }
        }
        for node in cluster.nodes().iter().filter(|node| node.is_running()) {
            left.extend(channels(node, namespace));
        }
        left.is_empty()
    };
    let gone = clinch_testkit::wait::eventually_or(async || look()).await;
    assert!(gone, "left behind: {left:?}");
}

#[tokio::test]
async fn locks_of_many_slots_at_once() {
    let (cluster, ns) = (shared(), "many");
    let a = Client::open(&cluster.url(), ns).await;
    let b = Client::open(&cluster.url(), ns).await;
    let names: Vec<_> = (0..100).map(|n| format!("n/{n}")).collect();
    let taken: Vec<_> = names.iter().map(|name| a.wait_for(name)).collect();
    let mut guards = Vec::new();
    for taken in taken {
        guards.push(soon("a lock", taken).await.unwrap());
    }
    for name in &names {
        assert!(
            b.lock(name)
                .lease(LONG)
                .try_acquire()
                .await
                .unwrap()
                .is_none()
        );
    }
    let spread = keys(cluster, ns);
    assert_eq!(spread.concat().len(), names.len());
    assert!(spread.iter().filter(|keys| keys.len() > 10).count() == 3);
    assert_eq!(b.list("").await.unwrap().len(), names.len());
    let next: Vec<_> = names.iter().map(|name| b.wait_for(name)).collect();
    for name in &names {
        a.until(name, 1, 1).await;
    }
    for (guard, next) in guards.into_iter().zip(next) {
        let before = guard.token();
        assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
        let next = soon("the waiter", next).await.unwrap();
        assert!(next.token() > before);
        next.release().await.unwrap();
    }
    expect_nothing_left(cluster, ns, &[&a, &b]).await;
}

#[tokio::test]
async fn a_lock_is_one_key() {
    let (cluster, ns) = (shared(), "one");
    let a = Client::open(&cluster.url(), ns).await;
    let b = Client::open(&cluster.url(), ns).await;
    let semaphore = a.semaphore("s", 3).permits(1).lease(LONG);
    let holders = [
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];
    let waiter = b.semaphore("s", 3).permits(1).lease(LONG);
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    a.until("s", 3, 1).await;
    // A slot moves key by key: what is one key cannot be torn apart.
    assert_eq!(keys(cluster, ns).concat(), [key(ns, "s")]);
    drop(holders);
    let entered = soon("the waiter", waiter).await.unwrap().unwrap();
    entered.release().await.unwrap();
    expect_nothing_left(cluster, ns, &[&a, &b]).await;
}

#[tokio::test]
async fn a_waiter_of_another_client_is_woken() {
    let (cluster, ns) = (shared(), "woken");
    let a = Client::open(&cluster.url(), ns).await;
    let b = Client::open(&cluster.url(), ns).await;
    let mut guard = a.lock("x").lease(LONG).acquire().await.unwrap();
    let mut fastest = LONG;
    for round in 0..10 {
        let next = [&b, &a][round % 2].wait_for("x");
        a.until("x", 1, 1).await;
        until_subscribed(cluster, ns, "x").await;
        let released = Instant::now();
        guard.release().await.unwrap();
        guard = soon("the waiter", next).await.unwrap();
        fastest = fastest.min(released.elapsed());
    }
    // The next poll would have been more than a second away each time.
    assert!(fastest < Duration::from_millis(500), "{fastest:?}");
    guard.release().await.unwrap();
    expect_nothing_left(cluster, ns, &[&a, &b]).await;
}

#[tokio::test]
async fn locks_live_while_their_slot_moves() {
    let (cluster, ns) = (shared(), "moving");
    let a = Client::open(&cluster.url(), ns).await;
    let b = Client::open(&cluster.url(), ns).await;
    // The slot is that of the text up to the first brace, so these are all in one.
    let names: Vec<_> = (0..12).map(|n| format!("x}}{n}")).collect();
    let slot = cluster.slot_of(&key(ns, "x"));
    assert!(
        names
            .iter()
            .all(|name| cluster.slot_of(&key(ns, name)) == slot)
    );
    let semaphore = a.semaphore("x}s", 2).permits(1).lease(LONG);
    let shared = [
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];
    let mut held = Vec::new();
    for name in &names {
        let hold = a.take(name).await;
        let waiter = b.wait_for(name);
        a.until(name, 1, 1).await;
        until_subscribed(cluster, ns, name).await;
        held.push((hold, waiter));
    }
    // Nothing is lost, and exclusion holds; then some are handed over.
    let works = async |held: &mut Vec<(Hold, tokio::task::JoinHandle<Guard>)>, stage: &str| {
        assert_eq!(b.list("").await.unwrap().len(), names.len() + 1, "{stage}");
        let third = b
            .semaphore("x}s", 2)
            .permits(1)
            .lease(LONG)
            .try_acquire()
            .await;
        assert!(third.unwrap().is_none(), "a third one entered: {stage}");
        for (hold, waiter) in held.iter() {
            assert!(a.renews(hold).await, "{} is lost: {stage}", hold.name);
            assert!(!waiter.is_finished(), "{} is shared: {stage}", hold.name);
        }
        for (hold, waiter) in held.split_off(held.len() - 3) {
            let released = a.store().release(&hold).await.unwrap();
            assert_eq!(released, ReleaseReply::Released, "{stage}");
            let next = soon(stage, waiter).await.unwrap();
            assert!(next.token().seq() > hold.seq);
            // They stay taken, so that later stages have them as well.
            let again = b.lock(hold.name.as_str()).lease(LONG);
            std::mem::forget(next);
            assert!(again.try_acquire().await.unwrap().is_none());
        }
    };
    let from = cluster.node_of_slot(slot).unwrap();
    let to = (0..3).find(|node| *node != from).unwrap();
    let migration = cluster.begin_migration(slot, from, to).unwrap();
    works(&mut held, "no key has moved").await;
    assert_eq!(migration.move_some(6).unwrap(), 6);
    works(&mut held, "some keys have moved").await;
    migration.move_keys().unwrap();
    works(&mut held, "all keys have moved").await;
    migration.finish().unwrap();
    works(&mut held, "the slot has moved").await;
    assert!(held.is_empty() && shared.iter().all(Guard::is_valid));
    assert_eq!(cluster.node_of_slot(slot).unwrap(), to);
    drop(shared);
    for name in &names {
        assert_eq!(a.evict(name, None).await.unwrap().seqs.len(), 1);
    }
    expect_nothing_left(cluster, ns, &[&a, &b]).await;
}

#[tokio::test]
async fn a_subscription_follows_its_slot() {
    let (cluster, ns) = (shared(), "following");
    let a = Client::open(&cluster.url(), ns).await;
    let b = Client::open(&cluster.url(), ns).await;
    let slot = cluster.slot_of(&key(ns, "x"));
    let mut guard = a.lock("x").lease(LONG).acquire().await.unwrap();
    let mut fastest = LONG;
    for _ in 0..4 {
        let next = b.wait_for("x");
        a.until("x", 1, 1).await;
        until_subscribed(cluster, ns, "x").await;
        let from = cluster.node_of_slot(slot).unwrap();
        let to = (0..3).find(|node| *node != from).unwrap();
        cluster.migrate_slot(slot, from, to).unwrap();
        until_subscribed(cluster, ns, "x").await;
        assert!(channels(cluster.node(from).unwrap(), ns).is_empty());
        let released = Instant::now();
        guard.release().await.unwrap();
        let next = soon("the waiter", next).await.unwrap();
        fastest = fastest.min(released.elapsed());
        next.release().await.unwrap();
        guard = a.lock("x").lease(LONG).acquire().await.unwrap();
    }
    assert!(fastest < Duration::from_millis(500), "{fastest:?}");
    guard.release().await.unwrap();
    expect_nothing_left(cluster, ns, &[&a, &b]).await;
}

#[tokio::test]
async fn a_waiter_gets_in_when_its_messages_are_cut() {
    let (cluster, ns) = (shared(), "cut");
    let a = Client::open(&cluster.url(), ns).await;
    let b = Client::open(&cluster.url(), ns).await;
    let cut = || {
        for node in cluster.nodes() {
            node.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        }
    };
    // The message itself is lost: the grant is found all the same.
    let guard = a.lock("x").lease(LONG).acquire().await.unwrap();
    let next = b.wait_for("x");
    a.until("x", 1, 1).await;
    until_subscribed(cluster, ns, "x").await;
    cut();
    guard.release().await.unwrap();
    let guard = soon("the waiter", next).await.unwrap();
    // The subscription comes back by itself.
    let next = a.wait_for("x");
    a.until("x", 1, 1).await;
    until_subscribed(cluster, ns, "x").await;
    cut();
    until_subscribed(cluster, ns, "x").await;
    guard.release().await.unwrap();
    soon("the waiter", next)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    expect_nothing_left(cluster, ns, &[&a, &b]).await;
}

#[tokio::test]
async fn the_loss_of_a_master_loses_no_lock() {
    let cluster = Cluster::start().unwrap();
    let ns = "loss";
    let a = Client::open(&cluster.url(), ns).await;
    let b = Client::open(&cluster.url(), ns).await;
    let watcher = Client::open(&cluster.url(), ns).await;
    let mut events = watcher.events("late").await.unwrap();
    // Content with the master alone.
    let hasty = Client::open(&format!("{}?wait=0", cluster.url()), ns).await;
    let names: Vec<_> = (0..30).map(|n| format!("n/{n}")).collect();
    let mut held = Vec::new();
    for name in &names {
        // A lease that has to be renewed on the way.
        let guard = a.lock(name).lease(Duration::from_secs(30)).acquire().await;
        held.push((guard.unwrap(), b.wait_for(name)));
        a.until(name, 1, 1).await;
    }
    let lost = cluster.node_of(&key(ns, "n/0")).unwrap();
    cluster.kill(lost).unwrap();
    cluster.wait_ok().unwrap();
    let master = cluster.node_of(&key(ns, "n/0")).unwrap();
    assert_ne!(master, lost);
    // The new master is found without a redirection: the old one is dead.
    let there = async |prefix: &str| {
        let mut names = (0..).map(|n| format!("{prefix}/{n}"));
        let is_there = |name: &String| cluster.node_of(&key(ns, name)).unwrap() == master;
        names.find(is_there).unwrap()
    };
    let soon_name = there("soon").await;
    let guard = soon("a lock at the new master", hasty.wait_for(&soon_name));
    let guard = guard.await.unwrap();
    let next = watcher.wait_for(&soon_name);
    hasty.until(&soon_name, 1, 1).await;
    until_subscribed(&cluster, ns, &soon_name).await;
    guard.release().await.unwrap();
    // A grant needs a replica, and the new master has none until the old one is back.
    cluster.start_again(lost).unwrap();
    cluster.wait_synced().unwrap();
    for (guard, next) in held {
        assert!(guard.is_valid(), "{} was lost", guard.name());
        assert!(!next.is_finished(), "{} is shared", guard.name());
        let before = guard.token();
        assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
        let next = soon("the waiter", next).await.unwrap();
        assert!(next.token() > before);
        next.release().await.unwrap();
    }
    soon("the waiter at the new master", next)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    // The new master is watched.
    let late = there("late").await;
    eventually("the new master is watched", async || {
        let node = cluster.node(master).unwrap();
        let channels = node.cli(&["PUBSUB", "CHANNELS", "clinch:loss:*"]);
        !channels.unwrap().trim().is_empty()
    })
    .await;
    let guard = a.lock(&late).lease(LONG).acquire().await.unwrap();
    let event = soon("the event", events.next()).await.unwrap();
    assert_eq!(
        (event.kind, event.name.as_str()),
        (EventKind::Granted, &*late)
    );
    guard.release().await.unwrap();
    expect_nothing_left(&cluster, ns, &[&a, &b, &watcher, &hasty]).await;
}

#[tokio::test]
async fn any_server_of_the_cluster_will_do() {
    let (cluster, ns) = (shared(), "seeds");
    let replica = cluster.node(4).unwrap().port();
    let url = format!("redis+cluster://127.0.0.1:1,127.0.0.1:{replica}");
    let a = Client::open(&url, ns).await;
    for n in 0..20 {
        let guard = a.lock(format!("n/{n}")).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    expect_nothing_left(cluster, ns, &[&a]).await;
}

#[tokio::test]
async fn the_wrong_scheme_is_named() {
    let open = async |url: String| {
        let context = Clinch::context("wrong").unwrap();
        clinch_redis::open(&url.parse().unwrap(), context).await
    };
    let alone = Redis::start().unwrap();
    let error = open(format!("redis+cluster://127.0.0.1:{}", alone.port()));
    let error = error.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("redis://"), "{error}");
    let error = open(shared().node(0).unwrap().url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

/// One of three masters dies and no replica takes its slots: the holds on the others live on.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_master_costs_only_the_holds_on_it() {
    let cluster = Cluster::start().unwrap();
    let set = |server: &Redis, name, value| server.cli(&["CONFIG", "SET", name, value]).unwrap();
    for server in cluster.nodes() {
        set(server, "cluster-require-full-coverage", "no");
    }
    // Not of the masters: nodes would show them with a flag that looks like a failure.
    for replica in cluster.nodes().iter().skip(3) {
        set(replica, "cluster-replica-no-failover", "yes");
    }
    let ns = "dead";
    let a = Client::open(&cluster.url(), ns).await;
    let lease = Duration::from_secs(9);
    let dead = cluster.node_of(&key(ns, "n/0")).unwrap();
    let (mut there, mut elsewhere) = (Vec::new(), Vec::new());
    for n in 0..30 {
        let name = format!("n/{n}");
        let guard = a.lock(&name).lease(lease).acquire().await.unwrap();
        match cluster.node_of(&key(ns, &name)).unwrap() == dead {
            true => there.push(guard),
            false => elsewhere.push(guard),
        }
    }
    assert!(there.len() > 3 && elsewhere.len() > 10);
    cluster.kill(dead).unwrap();
    for guard in &there {
        soon("the loss of those on the dead master", guard.lost()).await;
    }
    // They have been renewed since it died, and are renewed on.
    tokio::time::sleep(lease * 3 / 2).await;
    for guard in elsewhere {
        assert!(guard.is_valid(), "{} was lost", guard.name());
        assert_eq!(guard.release().await.unwrap(), ReleaseReply::Released);
    }
}

/// The clocks were ahead and are right again. Names are remembered for a second, and all the same until the
/// clock has passed their last number.
#[tokio::test]
async fn tokens_rise_when_clocks_that_were_ahead_are_set_right() {
    const HOUR: Duration = Duration::from_secs(3600);
    let cluster = Cluster::start_with(|node| {
        // Else after the step the nodes would consider each other silent for an hour.
        node.clock_shim().config("cluster-node-timeout", "36000000")
    })
    .unwrap();
    let step = |by: Duration, how: Step| {
        for node in cluster.nodes() {
            node.step_clock(by, how).unwrap();
        }
    };
    let url = format!("{}?remember=1s", cluster.url());
    let mut last = 0;
    let mut next = async || {
        let client = Client::open(&url, "clocks").await;
        let hold = client.take("x").await;
        client.store().release(&hold).await.unwrap();
        assert!(hold.seq > last, "{} after {last}", hold.seq);
        last = hold.seq;
    };
    step(HOUR, Step::Forward);
    next().await;
    step(HOUR, Step::Back);
    for _ in 0..3 {
        next().await;
        step(Duration::from_secs(60), Step::Forward);
    }
    next().await;
}
