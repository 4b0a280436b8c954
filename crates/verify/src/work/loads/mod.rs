//! The workloads, each one turn of a loop that the worker repeats until it is told to stop.

mod election;
mod locks;
mod multi;
mod reentrant;
mod shared;
mod update;

use super::client::Client;
use crate::workload::Workload;

/// Does a workload until the worker is told to stop.
pub(super) async fn run(workload: Workload, client: &Client) {
    while !client.shared.stopped() {
        client.refresh().await;
        match workload {
            Workload::Hot => locks::hot(client).await,
            Workload::Many => locks::many(client).await,
            Workload::Fair => locks::fair(client).await,
            Workload::Long => locks::long(client).await,
            Workload::Storm => locks::storm(client).await,
            Workload::Reentrant => reentrant::turn(client).await,
            Workload::ReadWrite => shared::read_write(client).await,
            Workload::Semaphore => shared::semaphore(client).await,
            Workload::Multi => multi::turn(client).await,
            Workload::Election => election::turn(client).await,
            Workload::Fenced => update::turn(client, true).await,
            Workload::Unfenced => update::turn(client, false).await,
        }
    }
}
