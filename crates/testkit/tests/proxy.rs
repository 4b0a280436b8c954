//! The fault proxy against a small echo server.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking"
)]

use std::net::SocketAddr;
use std::time::Duration;

use clinch_testkit::proxy::{Direction, Flow, Proxy, Then, lines};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Long enough for anything that is to happen.
const SOON: Duration = Duration::from_secs(20);
/// Long enough to believe that nothing happens.
const QUIET: Duration = Duration::from_millis(150);

async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = socket.into_split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    addr
}

struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(proxy: &Proxy) -> Self {
        Self(BufReader::new(
            TcpStream::connect(proxy.addr()).await.unwrap(),
        ))
    }

    async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.get_mut().write_all(line.as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        timeout(SOON, self.0.read_line(&mut line)).await.unwrap()?;
        Ok(line.trim_end().to_owned())
    }

    async fn hears_nothing(&mut self) -> bool {
        timeout(QUIET, self.0.fill_buf()).await.is_err()
    }

    async fn is_reset(&mut self) -> bool {
        let mut rest = Vec::new();
        let end = timeout(SOON, self.0.read_to_end(&mut rest)).await.unwrap();
        end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
    }
}

async fn proxy() -> Proxy {
    Proxy::with_splitter(echo().await, lines()).await.unwrap()
}

#[tokio::test]
async fn passes_bytes_both_ways() {
    let proxy = Proxy::start(echo().await).await.unwrap();
    let mut client = Client::connect(&proxy).await;
    client.say("hello").await;
    assert_eq!(client.hear().await.unwrap(), "hello");
    assert_eq!(proxy.open(), 1);
    client.0.get_mut().shutdown().await.unwrap();
    assert_eq!(client.hear().await.unwrap(), "", "the end is passed on");
}

#[tokio::test]
async fn delay_is_at_least_so_long_and_keeps_the_order() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    let span = Duration::from_millis(80);
    proxy.flow(Direction::Down, Flow::Delay(span));
    let start = tokio::time::Instant::now();
    client.say("a").await;
    client.say("b").await;
    assert_eq!(client.hear().await.unwrap(), "a");
    assert!(start.elapsed() >= span);
    assert_eq!(client.hear().await.unwrap(), "b");
}

#[tokio::test]
async fn held_bytes_are_flushed_by_healing() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.flow(Direction::Up, Flow::Hold);
    client.say("late").await;
    assert!(client.hears_nothing().await);
    proxy.heal();
    assert_eq!(client.hear().await.unwrap(), "late");
}

#[tokio::test]
async fn one_direction_vanishes_and_the_connection_stays() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.flow(Direction::Down, Flow::Blackhole);
    client.say("lost").await;
    assert!(client.hears_nothing().await);
    proxy.flow(Direction::Down, Flow::Pass);
    client.say("kept").await;
    assert_eq!(client.hear().await.unwrap(), "kept");
}

#[tokio::test]
async fn reset_is_seen_as_a_reset() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    client.say("a").await;
    client.hear().await.unwrap();
    proxy.reset();
    assert!(client.is_reset().await);
    let mut again = Client::connect(&proxy).await;
    again.say("b").await;
    assert_eq!(again.hear().await.unwrap(), "b");
}

#[tokio::test]
async fn half_open_is_silent_until_reset() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    client.say("a").await;
    client.hear().await.unwrap();
    proxy.half_open();
    client.say("into the void").await;
    assert!(client.hears_nothing().await);
    proxy.reset();
    assert!(client.is_reset().await);
}

#[tokio::test]
async fn the_nth_reply_is_swallowed() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.swallow(2, Then::Stay);
    for line in ["1", "2", "3"] {
        client.say(line).await;
    }
    assert_eq!(client.hear().await.unwrap(), "1");
    assert_eq!(client.hear().await.unwrap(), "3");
}

#[tokio::test]
async fn replies_are_counted_over_all_connections_and_swallowed_ones_too() {
    let proxy = proxy().await;
    let (mut first, mut second) = (Client::connect(&proxy).await, Client::connect(&proxy).await);
    first.say("one\ntwo").await;
    assert_eq!(first.hear().await.unwrap(), "one");
    assert_eq!(first.hear().await.unwrap(), "two");
    proxy.swallow(1, Then::Stay);
    second.say("lost\nheard").await;
    assert_eq!(second.hear().await.unwrap(), "heard");
    assert_eq!(proxy.replies(), 4);
}

#[tokio::test]
async fn a_swallowed_reply_can_reset_the_connection() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.swallow(1, Then::Reset);
    client.say("1").await;
    assert!(client.is_reset().await);
}

#[tokio::test]
async fn a_swallowed_reply_can_come_late_or_never() {
    let proxy = proxy().await;
    let (mut late, mut never) = (Client::connect(&proxy).await, Client::connect(&proxy).await);
    while proxy.links().len() < 2 {
        tokio::task::yield_now().await;
    }
    let links = proxy.links();
    links[0].swallow(1, Then::Hold);
    links[1].swallow(1, Then::Silence);
    for client in [&mut late, &mut never] {
        client.say("1").await;
        client.say("2").await;
        assert!(client.hears_nothing().await);
    }
    proxy.flow(Direction::Down, Flow::Pass);
    assert_eq!(late.hear().await.unwrap(), "1");
    assert_eq!(late.hear().await.unwrap(), "2");
    assert!(never.hears_nothing().await);
}

#[tokio::test]
async fn a_cut_lets_so_many_bytes_pass() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.cut_after(Direction::Up, 7);
    client.say("first").await;
    assert_eq!(client.hear().await.unwrap(), "first");
    client.say("second").await;
    assert!(client.is_reset().await);
}

#[tokio::test]
async fn connections_can_be_refused() {
    let proxy = proxy().await;
    proxy.down();
    let mut client = Client::connect(&proxy).await;
    assert!(client.is_reset().await);
    assert_eq!((proxy.refused(), proxy.open()), (1, 0));
    proxy.heal();
    let mut client = Client::connect(&proxy).await;
    client.say("back").await;
    assert_eq!(client.hear().await.unwrap(), "back");
}

/// A server whose three replies come in one piece.
async fn at_once() -> SocketAddr {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut peer, _)) = server.accept().await {
            tokio::spawn(async move {
                peer.read_u8().await.unwrap();
                peer.write_all(b"1\n2\n3\n").await.unwrap();
                // It stays open until the other side has gone.
                let _ = peer.read_to_end(&mut Vec::new()).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn replies_before_the_one_that_is_stopped_pass_however_they_come() {
    let proxy = Proxy::with_splitter(at_once().await, lines())
        .await
        .unwrap();
    let caught = proxy.catch(3);
    let mut client = Client::connect(&proxy).await;
    client.say("x").await;
    assert_eq!(client.hear().await.unwrap(), "1");
    assert_eq!(client.hear().await.unwrap(), "2");
    let link = caught.await.unwrap();
    link.flow(Direction::Down, Flow::Pass);
    assert_eq!(client.hear().await.unwrap(), "3");
    let mut client = Client::connect(&proxy).await;
    proxy.swallow(3, Then::Hold);
    client.say("x").await;
    assert_eq!(client.hear().await.unwrap(), "1");
    assert_eq!(client.hear().await.unwrap(), "2");
    proxy.heal();
    assert_eq!(client.hear().await.unwrap(), "3");
}
