//! Puts a delay in front of a server, to measure what each round trip costs:
//!
//! ```sh
//! cargo run -p clinch-testkit --release --example delay -- 127.0.0.1:3306 1 &   # says its own address
//! clinch bench --store mysql://user:password@THAT-ADDRESS/test
//! ```
//!
//! Replies are delayed by so many milliseconds, so a round trip costs that much more.
#![allow(clippy::disallowed_methods, reason = "it runs on a runtime of its own")]

use std::net::SocketAddr;
use std::time::Duration;

use clinch_testkit::proxy::{Direction, Flow, Proxy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(server), Some(millis)) = (args.next(), args.next()) else {
        return Err("usage: delay HOST:PORT MILLISECONDS".into());
    };
    let server: SocketAddr = server.parse()?;
    let delay = Duration::from_secs_f64(millis.parse::<f64>()? / 1e3);
    let proxy = Proxy::start(server).await?;
    proxy.flow(Direction::Down, Flow::Delay(delay));
    println!("{}", proxy.addr());
    std::future::pending().await
}
