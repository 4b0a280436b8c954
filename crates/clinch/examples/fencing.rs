//! Why a token: a holder that comes back too late is refused at the resource.
//!
//! ```text
//! cargo run --example fencing
//! ```

use clinch::fence::Gate;

#[tokio::main]
async fn main() -> clinch::Result<()> {
    let clinch = clinch::connect("memory:").await?;
    let account = Gate::new();

    let slow = clinch.lock("account/7").acquire().await?;
    println!("A holds it with token {}", slow.token());

    // A is paused for longer than its lease; here an operator breaks its hold at once.
    clinch.evict("account/7", Some(slow.token())).await?;

    let next = clinch.lock("account/7").acquire().await?;
    let ended = next
        .predecessor()
        .map(|before| before.ending.as_str())
        .unwrap_or("unknown");
    println!(
        "B holds it with token {}; the hold before was {ended}",
        next.token()
    );
    account.admit(next.token(), || println!("B writes"))?;

    // A wakes up and writes without looking.
    match account.admit(slow.token(), || println!("A writes")) {
        Ok(()) => println!("this must not happen"),
        Err(refused) => println!("A is refused: {refused}"),
    }
    next.release().await?;
    Ok(())
}
