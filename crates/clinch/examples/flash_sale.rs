//! The flash sale: thousands of buyers, a few goods, several servers, nothing oversold.
//!
//! ```text
//! cargo run --release -p clinch --features sqlite --example flash_sale [URL] [BUYERS]
//! ```
//!
//! Each "server" is a client of its own. The stock is a plain number that is read, looked at and
//! written back: without the lock it would be oversold. The stock's gate also refuses a write with
//! an old token, so that even a server that was paused past its lease could not spoil it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use clinch::fence::Gate;
use clinch::{Clinch, Clock, Result};

const GOODS: u32 = 10;
const SERVERS: usize = 3;

#[derive(Default)]
struct Shop {
    stock: AtomicU32,
    gate: Gate,
    sold: AtomicU32,
    refused: AtomicU32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "memory:flash-sale".into());
    let buyers: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(3000);

    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        servers.push(clinch::connect(&url).await?);
    }
    let shop = Arc::new(Shop {
        stock: AtomicU32::new(GOODS),
        ..Shop::default()
    });
    let clock = Clock::boot();
    let start = clock.now();
    let mut crowd = tokio::task::JoinSet::new();
    for buyer in 0..buyers {
        if let Some(server) = servers.get(buyer % SERVERS) {
            crowd.spawn(buy(server.clone(), shop.clone()));
        }
    }
    while let Some(done) = crowd.join_next().await {
        done.map_err(|e| clinch::Error::new(clinch::ErrorKind::Internal, e.to_string()))??;
    }
    let took = clock.now().since(start);

    let sold = shop.sold.load(Ordering::SeqCst);
    println!("{buyers} buyers at {SERVERS} servers, {GOODS} goods: {sold} sold in {took:?}");
    println!(
        "late writes refused: {}",
        shop.refused.load(Ordering::SeqCst)
    );
    assert_eq!(sold, GOODS, "neither oversold nor left over");
    assert_eq!(shop.stock.load(Ordering::SeqCst), 0);
    for server in servers {
        server.close().await?;
    }
    Ok(())
}

async fn buy(server: Clinch, shop: Arc<Shop>) -> Result<()> {
    let guard = server.lock("sale/phone").acquire().await?;
    let left = shop.stock.load(Ordering::Relaxed);
    // Where an unlocked shop would be overtaken.
    tokio::task::yield_now().await;
    if left > 0 {
        let write = || {
            shop.stock.store(left - 1, Ordering::Relaxed);
            shop.sold.fetch_add(1, Ordering::SeqCst);
        };
        if shop.gate.admit(guard.token(), write).is_err() {
            shop.refused.fetch_add(1, Ordering::SeqCst);
        }
    }
    guard.release().await?;
    Ok(())
}
