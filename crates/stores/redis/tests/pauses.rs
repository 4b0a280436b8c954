//! The server or a client is paused, for half a lease and for two.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::process::ExitCode;

use clinch_core::Clinch;
use clinch_core::store::StoreInfo;
use clinch_redis::RedisStore;
use clinch_testkit::pauses::{self, Paused};
use clinch_testkit::servers::Redis;
use common::Ours;

impl Paused for Ours {
    type Server = Redis;

    fn info() -> StoreInfo {
        RedisStore::describe("redis")
    }

    fn start() -> Redis {
        Redis::start().unwrap()
    }

    async fn clinch(url: &str) -> Clinch {
        common::clinch(url).await
    }
}

fn main() -> ExitCode {
    pauses::main::<Ours>()
}
