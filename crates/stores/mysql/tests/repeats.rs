//! A connection breaks under a request, and the client sends the request again on another one. The
//! first copy may have been applied, or may arrive later: no answer hides that.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test: it plays the user, who has a runtime"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clinch_core::ErrorKind;
use clinch_core::store::{Claim, Grant, ReleaseReply};
use clinch_testkit::proxy::{Link, Proxy, Splitter, mysql};
use clinch_testkit::servers::MariaDb;
use clinch_testkit::wait::{eventually, soon};
use common::{Client, LONG, all_free, clinch, hold, proxy};

/// Other holders in between: more than a row remembers by count.
const OTHERS: usize = 12;
/// Both ways to take a name with one statement.
const DIALECTS: [&str; 2] = ["", "&dialect=mysql"];
/// A name that is in no other packet.
const NAME: &str = "the-name-of-the-lock";

/// Two proxies in a row: the outer one hangs up on the client, and the inner one still has what was sent.
struct World {
    server: MariaDb,
    outer: Proxy,
    inner: Proxy,
    /// Whether a request about the name has reached the inner proxy.
    seen: Arc<AtomicBool>,
    others: Client,
    theirs: (Claim, Grant),
}

impl World {
    /// The name is held by others.
    async fn new() -> Self {
        let server = MariaDb::start().unwrap();
        let seen = Arc::new(AtomicBool::new(false));
        let inner = Proxy::with_splitter(server.socket_address(), spy(seen.clone()))
            .await
            .unwrap();
        let outer = Proxy::start(inner.addr()).await.unwrap();
        let others = Client::at(&server).await;
        let claim = others.mutex(NAME, LONG);
        let grant = others.granted(&claim).await;
        Self {
            server,
            outer,
            inner,
            seen,
            others,
            theirs: (claim, grant),
        }
    }

    fn url(&self, dialect: &str) -> String {
        let address = self.outer.addr();
        format!("mysql://clinch:secret@{address}/clinch?pool=2{dialect}")
    }

    /// Hangs up on the client as soon as its request is under way, and says what is kept of it.
    async fn interrupt<T>(&self, request: impl Future<Output = T>) -> (T, Vec<Link>) {
        let (kept, before) = (self.inner.keep_requests(), self.outer.links().len());
        let hang_up = async {
            let seen = async || self.seen.load(Ordering::SeqCst);
            eventually("the request is under way", seen).await;
            self.outer.reset();
        };
        let (answer, ()) = tokio::join!(soon("an answer", request), hang_up);
        assert!(
            self.outer.links().len() > before,
            "it was not sent on another connection"
        );
        (answer, kept)
    }

    /// The others give the name up, and use it for a while; then the first copy arrives. It must not take it.
    async fn assert_stays_free(&self, kept: Vec<Link>) {
        let (claim, grant) = &self.theirs;
        let released = self.others.store.release(&hold(claim, grant)).await;
        assert_eq!(released.unwrap(), ReleaseReply::Released);
        for _ in 0..OTHERS {
            pair(&self.others, NAME).await;
        }
        kept.iter().for_each(Link::deliver);
        eventually("the server is done with the connections", async || {
            kept.iter().all(|link| !link.is_open())
        })
        .await;
        let view = self.others.store.inspect(&claim.name).await.unwrap();
        assert!(view.is_none(), "the first copy has taken it: {view:?}");
        all_free(&self.server).await;
    }
}

/// Cuts packets, and tells of the first that has the name in it: as it is, or in hexadecimal digits.
fn spy(seen: Arc<AtomicBool>) -> Splitter {
    let digits = |byte: u8| format!("{byte:02x}");
    let digits: String = NAME.bytes().map(digits).collect();
    Arc::new(move || {
        let (mut split, seen, digits) = (mysql()(), seen.clone(), digits.clone());
        Box::new(move |bytes: &[u8]| {
            let frames = split(bytes);
            let has = |bytes: &[u8], text: &str| {
                let text = text.as_bytes();
                bytes.windows(text.len()).any(|part| part == text)
            };
            if frames
                .iter()
                .any(|frame| has(&frame.bytes, NAME) || has(&frame.bytes, &digits))
            {
                seen.store(true, Ordering::SeqCst);
            }
            frames
        })
    })
}

async fn pair(client: &Client, name: &str) {
    let claim = client.mutex(name, LONG);
    let grant = client.granted(&claim).await;
    let released = client.store.release(&hold(&claim, &grant)).await.unwrap();
    assert_eq!(released, ReleaseReply::Released);
}

/// The copy that is answered finds the lock taken; the first one arrives when it is free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_was_sent_twice_and_refused_takes_nothing_later() {
    for dialect in DIALECTS {
        let world = World::new().await;
        let clinch = clinch(&world.url(dialect)).await;
        // The statement is prepared on its connection.
        let warm = clinch.lock("warm").lease(LONG).acquire().await.unwrap();
        warm.release().await.unwrap();
        let lock = clinch.lock(NAME).lease(LONG);
        let (tried, kept) = world.interrupt(lock.try_acquire()).await;
        assert!(tried.unwrap().is_none());
        world.assert_stays_free(kept).await;
    }
}

/// The same where the answer is that the name is in use with another limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_sent_twice_and_does_not_fit_takes_nothing_later() {
    for dialect in DIALECTS {
        let world = World::new().await;
        let client = Client::open(&world.url(dialect)).await.unwrap();
        pair(&client, "warm").await;
        let claim = client.permit(NAME, 2, LONG);
        let (answer, kept) = world.interrupt(client.store.claim(&claim)).await;
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(!error.may_have_taken_effect(), "{error}");
        world.assert_stays_free(kept).await;
    }
}

/// The first copy has released the lock, and by the time of the second one no row remembers that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_was_sent_twice_is_a_release_however_many_came_after() {
    let server = MariaDb::start().unwrap();
    let proxy = proxy(&server).await;
    let others = Client::at(&server).await;
    let clinch = clinch(&format!(
        "mysql://clinch:secret@{}/clinch?pool=2",
        proxy.addr()
    ))
    .await;
    let warm = clinch.lock("warm").lease(LONG).acquire().await.unwrap();
    warm.release().await.unwrap();
    let guard = clinch.lock("a").lease(LONG).acquire().await.unwrap();
    let caught = proxy.catch(1);
    let meanwhile = async {
        let link = caught.await.unwrap();
        for _ in 0..OTHERS {
            pair(&others, "a").await;
        }
        link.reset();
    };
    let (released, ()) = tokio::join!(soon("the release", guard.release()), meanwhile);
    assert_eq!(released.unwrap(), ReleaseReply::Released);
    all_free(&server).await;
}

/// The first copy was applied, and the second one meets a server that takes no writes any more: the
/// refusal of the second says nothing about the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_second_copy_does_not_speak_for_the_first() {
    let server = MariaDb::start().unwrap();
    let proxy = proxy(&server).await;
    drop(Client::at(&server).await);
    // The others may write to a server that is read-only.
    let url = format!("mysql://limited:secret@{}/clinch?pool=2", proxy.addr());
    let client = Client::open(&url).await.unwrap();
    // The next reply is lost, and the server is read-only before the request is sent again.
    let lose = || {
        let (caught, server) = (proxy.catch(1), &server);
        async move {
            let link = caught.await.unwrap();
            server.sql("SET GLOBAL read_only = 1").unwrap();
            link.reset();
        }
    };
    pair(&client, "warm").await;
    let claim = client.mutex("a", LONG);
    let held = hold(&claim, &client.granted(&claim).await);
    let losing = lose();
    let (answer, ()) = tokio::join!(client.store.release(&held), losing);
    let error = answer.unwrap_err();
    assert!(error.to_string().contains("takes no writes"), "{error}");
    assert!(error.may_have_taken_effect(), "{error}");
    server.sql("SET GLOBAL read_only = 0").unwrap();
    let released = client.store.release(&held).await.unwrap();
    assert_eq!(released, ReleaseReply::Released);

    // A new client: one that is busy asks who watches, and that reply would be the next.
    let client = Client::open(&url).await.unwrap();
    pair(&client, "warm").await;
    let claim = client.mutex("b", LONG);
    let losing = lose();
    let (answer, ()) = tokio::join!(client.store.claim(&claim), losing);
    let error = answer.unwrap_err();
    assert!(error.to_string().contains("takes no writes"), "{error}");
    assert!(error.may_have_taken_effect(), "{error}");
    server.sql("SET GLOBAL read_only = 0").unwrap();
    assert_eq!(client.holders("b").await, 1);
    client.store.withdraw(&claim).await.unwrap();
    all_free(&server).await;
}
