//! The server's clock is stepped by ten leases, forward and back: while a lock is held, waited for
//! and idle.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use clinch_testkit::clock;
use clinch_testkit::servers::Redis;
use common::Ours;

fn server() -> Redis {
    Redis::with().clock_shim().start().unwrap()
}

#[tokio::test]
async fn idle_names_give_rising_tokens_over_both_steps() {
    clock::idle_names_give_rising_tokens_over_both_steps::<Ours>(&server()).await;
}

#[tokio::test]
async fn back_a_dead_holder_blocks_for_one_lease_not_for_ten() {
    clock::back_a_dead_holder_blocks_for_one_lease_not_for_ten::<Ours>(&server()).await;
}

#[tokio::test]
async fn back_a_dead_sharer_blocks_for_one_lease_behind_a_living_one() {
    clock::back_a_dead_sharer_blocks_for_one_lease_behind_a_living_one::<Ours>(&server()).await;
}

#[tokio::test]
async fn back_short_leases_end_beside_long_ones() {
    clock::back_short_leases_end_beside_long_ones::<Ours>(&server()).await;
}

#[tokio::test]
async fn back_dead_waiters_go_after_one_lease() {
    clock::back_dead_waiters_go_after_one_lease::<Ours>(&server()).await;
}

#[tokio::test]
async fn back_a_lock_delay_lasts_no_longer_than_it_is() {
    clock::back_a_lock_delay_lasts_no_longer_than_it_is::<Ours>(&server()).await;
}

#[tokio::test]
async fn back_a_living_holder_keeps_its_lock_and_waiters_their_places() {
    clock::back_a_living_holder_keeps_its_lock_and_waiters_their_places::<Ours>(&server()).await;
}

#[tokio::test]
async fn forward_the_holder_is_told_and_tokens_stay_in_order() {
    clock::forward_the_holder_is_told_and_tokens_stay_in_order::<Ours>(&server()).await;
}

#[tokio::test]
async fn forward_a_sharer_is_told_at_its_next_renewal() {
    clock::forward_a_sharer_is_told_at_its_next_renewal::<Ours>(&server()).await;
}

#[tokio::test]
async fn a_clock_before_2020_is_named() {
    clock::a_clock_before_2020_is_named::<Ours>(&server()).await;
}
