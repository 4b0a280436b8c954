//! The server and clients are paused, for half a lease and for two leases.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::process::ExitCode;

use clinch_core::Clinch;
use clinch_core::store::StoreInfo;
use clinch_etcd::EtcdStore;
use clinch_testkit::pauses::{self, Paused};
use clinch_testkit::servers::Etcd;
use common::Ours;

impl Paused for Ours {
    type Server = Etcd;

    fn info() -> StoreInfo {
        EtcdStore::describe()
    }

    fn start() -> Etcd {
        Etcd::start().unwrap()
    }

    async fn clinch(url: &str) -> Clinch {
        common::clinch(url).await
    }
}

fn main() -> ExitCode {
    pauses::main::<Ours>()
}
