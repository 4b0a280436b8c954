//! How many acquire-and-release pairs a second the store does, against the raw floor.
//!
//! `cargo run --release -p clinch-sqlite --example pairs [FOLDER]`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, Hold, OpenContext, Store};
use clinch_core::{Clock, Identity, Name, OwnerId, Result, StoreUrl};
use clinch_sqlite::SqliteStore;

const SPAN: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let folder = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let file = folder.join(format!("clinch-pairs-{}.db", std::process::id()));
    let url: StoreUrl = format!("sqlite:{}", file.display()).parse()?;
    let single = tokio::runtime::Builder::new_current_thread().build();
    let multi = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build();
    let (Ok(single), Ok(multi)) = (single, multi) else {
        return Ok(());
    };
    let store = Arc::new(SqliteStore::open(&url, context())?);

    let floor = single.block_on(floor(&store))?;
    println!("floor                      {floor:>9.0} pairs/s");
    let one = single.block_on(pairs(&store, 1))?;
    println!(
        "1 worker                   {one:>9.0} pairs/s   {:.2} of the floor",
        one / floor
    );
    for (kind, runtime) in [("1 thread ", &single), ("2 threads", &multi)] {
        for workers in [8, 64] {
            let many = runtime.block_on(pairs(&store, workers))?;
            println!(
                "{workers:>2} workers, {kind}      {many:>9.0} pairs/s   {:.2} of one worker",
                many / one
            );
        }
    }
    single.block_on(short_lives(&url))?;
    single.block_on(store.close())?;
    drop(store);
    println!("... and as the only one that has the file open:");
    single.block_on(short_lives(&url))?;
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
    let _ = std::fs::remove_dir_all(format!("{}.sessions", file.display()));
    Ok(())
}

fn context() -> OpenContext {
    OpenContext {
        namespace: "clinch".into(),
        identity: Identity::new().into(),
        clock: Clock::boot(),
    }
}

fn rate(count: u64, span: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let count = count as f64;
    count / span.as_secs_f64()
}

async fn floor(store: &SqliteStore) -> Result<f64> {
    let Some(mut floor) = store.floor().await? else {
        return Ok(0.0);
    };
    let (clock, mut count) = (Clock::boot(), 0);
    let start = clock.now();
    while clock.now().since(start) < SPAN {
        floor.pair(1).await?;
        count += 1;
    }
    Ok(rate(count, clock.now().since(start)))
}

async fn pairs(store: &Arc<SqliteStore>, workers: usize) -> Result<f64> {
    let (clock, identity) = (Clock::boot(), Arc::new(Identity::new()));
    let start = clock.now();
    let before = store.operations();
    let tasks: Vec<_> = (0..workers)
        .map(|worker| {
            let (store, clock, identity) = (store.clone(), clock.clone(), identity.clone());
            let work = async move {
                let mut count = 0;
                while clock.now().since(start) < SPAN {
                    pair(&store, &identity, &format!("bench/{worker}")).await?;
                    count += 1;
                }
                Ok::<u64, clinch_core::Error>(count)
            };
            tokio::runtime::Handle::current().spawn(work)
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.unwrap_or(Ok(0))?;
    }
    let transactions = store.operations() - before;
    println!(
        "                           {:>9.1} operations in a transaction",
        rate(2 * count, Duration::from_secs(transactions.max(1)))
    );
    Ok(rate(count, clock.now().since(start)))
}

async fn pair(store: &SqliteStore, identity: &Identity, name: &str) -> Result<()> {
    let claim = Claim {
        name: Name::new(name)?,
        request: identity.request(),
        owner: OwnerId::new(identity.info().id.to_string()),
        client: identity.info().clone(),
        units: 1,
        limit: 1,
        lease: Duration::from_secs(30),
        lock_delay: Duration::ZERO,
        label: None,
        value: None,
        queue: false,
    };
    match store.claim(&claim).await? {
        ClaimReply::Granted(grant) => {
            let hold = Hold {
                name: claim.name,
                request: claim.request,
                seq: grant.seq,
            };
            store.release(&hold).await.map(drop)
        }
        other => {
            println!("not granted: {other:?}");
            Ok(())
        }
    }
}

async fn short_lives(url: &StoreUrl) -> Result<()> {
    let (clock, count) = (Clock::boot(), 500);
    let start = clock.now();
    for _ in 0..count {
        let store = SqliteStore::open(url, context())?;
        pair(&store, &Identity::new(), "bench/short").await?;
        store.close().await?;
    }
    println!(
        "open, pair, close          {:>9.0} us",
        clock.now().since(start).as_secs_f64() * 1e6 / f64::from(count)
    );
    Ok(())
}
