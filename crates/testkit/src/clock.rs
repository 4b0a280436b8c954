//! A server's clock is stepped by ten leases, forward and back: while a lock is held, waited for and
//! idle. For stores that count leases on it.
//!
//! Each function is one case, and wants a server of its own. [`clock_cases!`](crate::clock_cases)
//! makes tests of all of them:
//!
//! ```no_run
//! use clinch_testkit::clients::Memory; // in a store's crate: its own
//! use clinch_testkit::servers::Redis;
//!
//! clinch_testkit::clock_cases!(Memory, Redis::with().clock_shim().start().unwrap());
//! ```

use std::time::Duration;

use clinch_core::store::{Claim, ClaimReply, RenewReply};
use clinch_core::{Clinch, Clock, LostReason, Result};

use crate::clients::{Client, LONG, Located, Opens, hold, number, renewal};
use crate::servers::{LibcClock, Server, Step};
use crate::wait::{eventually, soon};

const LEASE: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_secs(20);

/// A server whose clock can be stepped.
///
/// ```no_run
/// use clinch_testkit::{clock::Stepped, servers::{MariaDb, Step}};
/// # fn main() -> clinch_core::Result<()> {
/// let server = MariaDb::with().clock_shim().start()?;
/// Stepped::step_clock(&server, std::time::Duration::from_secs(3600), Step::Back)?;
/// # Ok(()) }
/// ```
pub trait Stepped: Located {
    /// Steps its wall clock.
    fn step_clock(&self, by: Duration, step: Step) -> Result<()>;
}

impl<E: LibcClock> Stepped for Server<E>
where
    Self: Located,
{
    fn step_clock(&self, by: Duration, step: Step) -> Result<()> {
        Server::step_clock(self, by, step)
    }
}

/// Two whole clients.
async fn clients<O: Opens>(server: &impl Stepped) -> (Clinch, Clinch) {
    let url = server.location();
    let one = Client::<O>::whole(&url).await.unwrap();
    (one, Client::<O>::whole(&url).await.unwrap())
}

async fn waits(by: &Clinch) {
    eventually("it waits", async || {
        by.inspect("a").await.unwrap().unwrap().waiters.len() == 1
    })
    .await;
}

/// Asks until it is granted; says how long that took.
async fn wait_for<O: Opens>(client: &Client<O>, claim: &Claim) -> Duration {
    let (clock, began) = (Clock::boot(), Clock::boot().now());
    eventually("the grant", async || {
        matches!(
            client.store.claim(claim).await.unwrap(),
            ClaimReply::Granted(_)
        )
    })
    .await;
    clock.now().since(began)
}

/// Names that nobody holds give rising tokens over steps forward and back.
pub async fn idle_names_give_rising_tokens_over_both_steps<O: Opens>(server: &impl Stepped) {
    let (one, other) = (Client::<O>::at(server).await, Client::<O>::at(server).await);
    let mut last = 0;
    for step in [Step::Forward, Step::Back, Step::Back, Step::Forward] {
        for client in [&one, &other] {
            let claim = client.mutex("a", LEASE);
            let grant = client.granted(&claim).await;
            assert!(grant.seq > last, "{} after {last}", grant.seq);
            last = grant.seq;
            client.store.release(&hold(&claim, &grant)).await.unwrap();
        }
        server.step_clock(STEP, step).unwrap();
    }
}

/// After a step back by ten leases, a dead holder blocks for one.
pub async fn back_a_dead_holder_blocks_for_one_lease_not_for_ten<O: Opens>(server: &impl Stepped) {
    let client = Client::<O>::at(server).await;
    let dead = client.mutex("a", LEASE);
    client.granted(&dead).await;
    server.step_clock(STEP, Step::Back).unwrap();
    let took = wait_for(&client, &client.mutex("a", LEASE)).await;
    assert!(took < STEP / 2, "{took:?}");
}

/// One sharer lives and renews; another has died, and its units come back all the same.
pub async fn back_a_dead_sharer_blocks_for_one_lease_behind_a_living_one<O: Opens>(
    server: &impl Stepped,
) {
    let client = Client::<O>::at(server).await;
    let living = client.permit("s", 2, LEASE);
    let grant = client.granted(&living).await;
    client.granted(&client.permit("s", 2, LEASE)).await;
    server.step_clock(STEP, Step::Back).unwrap();
    let (next, clock) = (client.permit("s", 2, LEASE), Clock::boot());
    let began = clock.now();
    eventually("the grant", async || {
        let held = client
            .store
            .renew(&[renewal(&living, &grant)])
            .await
            .unwrap();
        assert_eq!(held, [RenewReply::Held]);
        matches!(
            client.store.claim(&next).await.unwrap(),
            ClaimReply::Granted(_)
        )
    })
    .await;
    let took = clock.now().since(began);
    assert!(took < STEP / 2, "{took:?}");
}

/// A sharer with a long lease does not hide that of a dead one from the step.
pub async fn back_short_leases_end_beside_long_ones<O: Opens>(server: &impl Stepped) {
    let client = Client::<O>::at(server).await;
    // It has less left than the other, and still no more than its whole lease after the step.
    client.granted(&client.permit("s", 2, STEP * 2)).await;
    server
        .step_clock(STEP * 2 - LEASE / 2, Step::Forward)
        .unwrap();
    client.granted(&client.permit("s", 2, LEASE)).await;
    server.step_clock(STEP, Step::Back).unwrap();
    let took = wait_for(&client, &client.permit("s", 2, LEASE)).await;
    assert!(took < STEP / 2, "{took:?}");
}

/// After a step back, waiters that have died go after one lease.
pub async fn back_dead_waiters_go_after_one_lease<O: Opens>(server: &impl Stepped) {
    let client = Client::<O>::at(server).await;
    let held = client.mutex("a", LONG);
    client.granted(&held).await;
    for _ in 0..3 {
        client.queued(&client.mutex("a", LEASE)).await;
    }
    server.step_clock(STEP, Step::Back).unwrap();
    let (clock, living) = (Clock::boot(), client.mutex("a", LONG));
    let began = clock.now();
    eventually("the dead have gone", async || {
        client.queued(&living).await;
        let view = client.store.inspect(&held.name).await.unwrap().unwrap();
        view.waiters.len() == 1
    })
    .await;
    let took = clock.now().since(began);
    assert!(took < STEP / 2, "{took:?}");
}

/// After a step back, a lock-delay lasts no longer than it is.
pub async fn back_a_lock_delay_lasts_no_longer_than_it_is<O: Opens>(server: &impl Stepped) {
    let client = Client::<O>::at(server).await;
    for limit in [1, 2] {
        let claim = Claim {
            units: limit,
            lock_delay: LEASE,
            ..client.permit(&format!("d{limit}"), limit, LONG)
        };
        client.granted(&claim).await;
        client.store.evict(&claim.name, None).await.unwrap();
        server.step_clock(STEP, Step::Back).unwrap();
        let next = Claim {
            request: client.identity.request(),
            ..claim.clone()
        };
        let took = wait_for(&client, &next).await;
        assert!(took < STEP / 2, "{took:?}");
    }
}

/// After a step back, a living holder keeps its lock, and waiters keep their places.
pub async fn back_a_living_holder_keeps_its_lock_and_waiters_their_places<O: Opens>(
    server: &impl Stepped,
) {
    let (one, two) = clients::<O>(server).await;
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let lock = two.lock("a").lease(LEASE);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    waits(&one).await;
    server.step_clock(STEP, Step::Back).unwrap();
    let lost = soon("three leases", async {
        tokio::select! {
            reason = guard.lost() => Some(reason),
            () = one.clock().sleep(LEASE * 3) => None,
        }
    });
    assert_eq!(lost.await, None);
    assert!(guard.is_valid() && !waiting.is_finished());
    let token = number(&guard);
    assert!(guard.release().await.unwrap().was_held());
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_valid() && number(&next) > token);
}

/// After a step forward, the holder is told that its lease ran out, and its successor has a greater token.
pub async fn forward_the_holder_is_told_and_tokens_stay_in_order<O: Opens>(server: &impl Stepped) {
    let (one, two) = clients::<O>(server).await;
    let guard = one.lock("a").lease(LEASE).acquire().await.unwrap();
    let lock = two.lock("a").lease(LEASE);
    let waiting = tokio::task::spawn(async move { lock.acquire().await });
    waits(&one).await;
    server.step_clock(STEP, Step::Forward).unwrap();
    assert_eq!(soon("the word", guard.lost()).await, LostReason::Expired);
    assert!(!guard.is_valid());
    let next = soon("the waiter", waiting).await.unwrap().unwrap();
    assert!(next.is_valid() && number(&next) > number(&guard));
}

/// After a step forward, a sharer is told at its next renewal.
pub async fn forward_a_sharer_is_told_at_its_next_renewal<O: Opens>(server: &impl Stepped) {
    let client = Client::<O>::at(server).await;
    let claim = client.permit("s", 2, LEASE);
    let grant = client.granted(&claim).await;
    server.step_clock(STEP, Step::Forward).unwrap();
    let replies = client
        .store
        .renew(&[renewal(&claim, &grant)])
        .await
        .unwrap();
    assert_eq!(replies, [RenewReply::Lost(LostReason::Expired)]);
}

/// A clock that is decades behind is refused and named.
pub async fn a_clock_before_2020_is_named<O: Opens>(server: &impl Stepped) {
    let client = Client::<O>::at(server).await;
    let years = Duration::from_secs(40 * 365 * 86_400);
    server.step_clock(years, Step::Back).unwrap();
    let error = client
        .store
        .claim(&client.mutex("a", LEASE))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("before 2020"), "{error}");
    assert!(!error.may_have_taken_effect());
}

/// A test of each case, for the stores of a crate and an expression that starts a server.
#[macro_export]
macro_rules! clock_cases {
    ($ours:ty, $server:expr) => {
        $crate::clock_cases!($ours, $server;
            idle_names_give_rising_tokens_over_both_steps,
            back_a_dead_holder_blocks_for_one_lease_not_for_ten,
            back_a_dead_sharer_blocks_for_one_lease_behind_a_living_one,
            back_short_leases_end_beside_long_ones,
            back_dead_waiters_go_after_one_lease,
            back_a_lock_delay_lasts_no_longer_than_it_is,
            back_a_living_holder_keeps_its_lock_and_waiters_their_places,
            forward_the_holder_is_told_and_tokens_stay_in_order,
            forward_a_sharer_is_told_at_its_next_renewal,
            a_clock_before_2020_is_named
        );
    };
    ($ours:ty, $server:expr; $($case:ident),*) => {$(
        #[tokio::test]
        async fn $case() {
            $crate::clock::$case::<$ours>(&$server).await;
        }
    )*};
}
