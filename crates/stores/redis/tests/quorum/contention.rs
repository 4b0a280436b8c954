//! Several clients that want the same.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use clinch_core::{HandOver, Token};
use clinch_testkit::wait::soon;

use super::*;

/// What contenders do while they hold.
#[derive(Default)]
struct Section {
    inside: AtomicUsize,
    tokens: Mutex<Vec<Token>>,
}

impl Section {
    async fn enter(&self, token: Token) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
        tokio::task::yield_now().await;
        self.tokens.lock().unwrap().push(token);
        assert_eq!(self.inside.fetch_sub(1, Ordering::SeqCst), 1, "two hold");
    }

    fn expect_rising(&self, count: usize) {
        let tokens = self.tokens.lock().unwrap();
        assert_eq!(tokens.len(), count);
        assert!(tokens.is_sorted_by(|a, b| a < b), "a token did not rise");
    }
}

/// Lets clients take the lock so often each, each grant by the servers.
async fn contend(servers: &Servers, clients: usize, each: usize) {
    let section = Arc::new(Section::default());
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let off = |builder: ClinchBuilder| builder.hand_over(HandOver::OFF);
        let client = client_with(&servers.url(""), off).await;
        let section = section.clone();
        tasks.push(tokio::spawn(async move {
            let lock = client.lock("x").lease(LONG);
            for _ in 0..each {
                let guard = lock.acquire().await.unwrap();
                section.enter(guard.token()).await;
                released(guard).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    section.expect_rising(clients * each);
}

#[tokio::test(flavor = "multi_thread")]
async fn contenders_are_alone_and_their_tokens_rise() {
    let servers = Servers::start(5);
    contend(&servers, 3, 1_000).await;
    servers.all_are_free("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_while_servers_restart() {
    // They persist their data, so that no server loses a hold.
    let servers = Arc::new(Servers::with(5, Redis::with().append_only("always")));
    let done = Arc::new(AtomicBool::new(false));
    let (stirred, stop) = (servers.clone(), done.clone());
    let restarting = std::thread::spawn(move || {
        let mut restarts = 0;
        for server in stirred.0.iter().cycle() {
            if stop.load(Ordering::SeqCst) {
                return restarts;
            }
            server.start_again().unwrap();
            restarts += 1;
        }
        restarts
    });
    contend(&servers, 4, 250).await;
    done.store(true, Ordering::SeqCst);
    let restarts = restarting.join().unwrap();
    assert!(restarts > 1, "{restarts} restarts");
    servers.all_are_free("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_across_servers_that_forget_in_turn() {
    let servers = Servers::start(5);
    let (a, b) = (servers.client().await, servers.client().await);
    let mut last = None;
    for round in 0..20 {
        let client = if round % 2 == 0 { &a } else { &b };
        let guard = client.lock("x").lease(LONG).acquire().await.unwrap();
        assert!(Some(guard.token()) > last, "round {round}");
        last = Some(guard.token());
        guard.release().await.unwrap();
        servers.0[round % 5].start_empty().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_is_alone_and_readers_have_tokens_of_their_own() {
    let servers = Servers::start(5);
    servers.0[4].kill().unwrap();
    let mut readers = Vec::new();
    for _ in 0..8 {
        let client = servers.client().await;
        readers.push(tokio::spawn(async move {
            client
                .rwlock("x")
                .read()
                .lease(LONG)
                .acquire()
                .await
                .unwrap()
        }));
    }
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(soon("a reader", reader).await.unwrap());
    }
    let mut tokens: Vec<_> = guards.iter().map(Guard::token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 8, "two readers have the same token");
    let client = servers.client().await;
    let write = client.rwlock("x").write().lease(LONG);
    assert!(write.try_acquire().await.unwrap().is_none());
    for guard in guards {
        assert!(guard.release().await.unwrap().was_held());
    }
    let writer = soon("the writer", write.acquire()).await.unwrap();
    assert!(writer.token() > tokens[7]);
    let read = servers.client().await.rwlock("x").read().lease(LONG);
    assert!(read.try_acquire().await.unwrap().is_none());
}
