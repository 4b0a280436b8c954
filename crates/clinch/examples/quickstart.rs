//! The primitives, one after the other, on any store:
//!
//! ```text
//! cargo run --example quickstart [URL]
//! ```

use std::time::Duration;

#[tokio::main]
async fn main() -> clinch::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let clinch = clinch::connect(&url).await?;

    // A mutex. The guard's token goes to the resource with every write.
    let guard = clinch
        .lock("orders/42")
        .label("quickstart")
        .acquire()
        .await?;
    println!(
        "mutex: token {}, valid for {:?}",
        guard.token(),
        guard.remaining()
    );
    println!(
        "  taken: {}",
        clinch.lock("orders/42").try_acquire().await?.is_none()
    );
    guard.release().await?;

    // Readers share, a writer is alone.
    let config = clinch.rwlock("config");
    let (a, b) = (
        config.read().acquire().await?,
        config.read().acquire().await?,
    );
    let writer = config
        .write()
        .acquire_within(Duration::from_millis(50))
        .await?;
    println!(
        "rwlock: two readers, the writer waits in vain: {}",
        writer.is_none()
    );
    drop((a, b));

    // Three permits.
    let workers = clinch.semaphore("workers", 3);
    let two = workers.permits(2).acquire().await?;
    println!(
        "semaphore: {} of 3, one more: {}",
        two.mode(),
        workers.try_acquire().await?.is_some()
    );
    drop(two);

    // All or nothing, in an order that cannot deadlock.
    let both = clinch.all(["accounts/b", "accounts/a"]).acquire().await?;
    println!("all: {} locks", both.guards().len());
    both.release().await?;

    // One leader, and what it says.
    let election = clinch.election("scheduler");
    let leader = election.campaign("host-1:8080").await?;
    if let Some(seen) = election.leader().await? {
        println!(
            "election: {} leads in term {}",
            seen.value.as_deref().unwrap_or("?"),
            seen.token
        );
    }
    leader.resign().await?;

    // The same owner may enter again.
    let me = clinch.owner();
    me.scope(async {
        let outer = clinch.lock("reports").acquire().await?;
        let inner = clinch.lock("reports").acquire().await?;
        println!("reentrancy: same token {}", outer.token() == inner.token());
        Ok::<_, clinch::Error>(())
    })
    .await?;
    clinch.close().await
}
