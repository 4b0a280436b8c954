//! The patterns on the caller's own tables, on a real server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and plays the user, who has a runtime"
)]

mod fence;
mod guarded;
mod lock_columns;
mod lock_columns_faults;
mod row_lock;
mod version;

use std::future::Future;

use clinch_testkit::proxy::Proxy;
use clinch_testkit::servers::MariaDb;
use mysql_async::Conn;

/// As many sessions as the contention tests have.
const SESSIONS: usize = 64;

/// A server with a table.
fn server(sql: &str) -> MariaDb {
    let server = MariaDb::start().unwrap();
    server.sql(sql).unwrap();
    server
}

async fn connect(server: &MariaDb) -> Conn {
    Conn::from_url(server.url()).await.unwrap()
}

/// A connection through a proxy that can lose replies.
async fn through_proxy(server: &MariaDb) -> (Proxy, Conn) {
    let proxy = Proxy::before(server).await.unwrap();
    let port = proxy.addr().port().to_string();
    let url = server.url().replace(&server.port().to_string(), &port);
    // Else the driver asks the server for its socket file, and goes around the proxy.
    let url = format!("{url}?prefer_socket=false");
    let conn = Conn::from_url(url).await.unwrap();
    (proxy, conn)
}

/// A connection on which an update counts what it matches, and one on which it counts what it
/// changes.
async fn both_ways_of_counting(server: &MariaDb) -> [Conn; 2] {
    let matched = format!("{}?client_found_rows=true", server.url());
    [
        connect(server).await,
        Conn::from_url(matched).await.unwrap(),
    ]
}

/// Runs the same in many sessions at once; gives what each returned.
async fn in_sessions<T, F>(server: &MariaDb, work: impl Fn(usize, Conn) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut tasks = Vec::new();
    for i in 0..SESSIONS {
        let conn = connect(server).await;
        tasks.push(tokio::spawn(work(i, conn)));
    }
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}
