//! The server's clock is stepped by ten leases, forward and back: while a lock is held, waited for
//! and idle.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use clinch_testkit::servers::Redis;
use common::Ours;

clinch_testkit::clock_cases!(Ours, Redis::with().clock_shim().start().unwrap());
