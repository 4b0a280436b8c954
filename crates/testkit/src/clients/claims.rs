//! Claims and what comes of them.

use std::time::Duration;

use clinch_core::store::{Claim, Grant, Hold, Renewal};
use clinch_core::{Clock, Guard, Identity, Name};

/// A new claim of a mutex by this client, which is its own owner.
///
/// ```
/// use clinch_testkit::clients::{LONG, mutex};
/// let claim = mutex(&clinch_core::Identity::new(), "a", LONG);
/// assert_eq!((claim.units, claim.limit, claim.queue), (1, 1, true));
/// ```
pub fn mutex(identity: &Identity, name: &str, lease: Duration) -> Claim {
    Claim::new(identity, Name::new(name).unwrap(), lease)
}

/// What a granted claim holds; see the [module](super).
pub fn hold(claim: &Claim, grant: &Grant) -> Hold {
    claim.hold(grant.seq)
}

/// The renewal of a granted claim by its own lease.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> clinch_core::Result<()> {
/// use clinch_core::store::RenewReply;
/// use clinch_testkit::clients::{Client, LONG, Memory, renewal};
/// let client = Client::<Memory>::open("memory:").await?;
/// let claim = client.mutex("a", LONG);
/// let renewal = renewal(&claim, &client.granted(&claim).await);
/// assert_eq!(client.store.renew(&[renewal]).await?, [RenewReply::Held]);
/// # Ok(()) }
/// ```
pub fn renewal(claim: &Claim, grant: &Grant) -> Renewal {
    Renewal::new(hold(claim, grant), claim.lease)
}

/// The number of a guard.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> clinch_core::Result<()> {
/// use clinch_testkit::clients::number;
/// let clinch = clinch_core::Clinch::memory();
/// let first = number(&clinch.lock("a").acquire().await?);
/// assert!(number(&clinch.lock("a").acquire().await?) > first);
/// # Ok(()) }
/// ```
pub fn number(guard: &Guard) -> u64 {
    guard.token().seq()
}

/// Waits until this much of the boot clock has passed: a lease must run out, and nothing else tells.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::time::Duration;
/// let (clock, span) = (clinch_core::Clock::boot(), Duration::from_millis(5));
/// let began = clock.now();
/// clinch_testkit::clients::pass(span).await;
/// assert!(clock.now().since(began) >= span);
/// # }
/// ```
pub async fn pass(span: Duration) {
    Clock::boot().sleep(span).await;
}
