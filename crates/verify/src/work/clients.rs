//! The clients of a worker process: two of one store, which are closed and opened again while tasks use
//! them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch::{Clinch, Clock, Connect, Result};

use super::client::Shared;
use super::{PATIENCE, tap};
use crate::history::{Closed, Event, now};

/// How many clients a process has.
const COUNT: usize = 2;

/// A client, and its number in this process.
#[derive(Debug, Clone)]
pub(crate) struct Numbered {
    pub(crate) number: u32,
    pub(crate) clinch: Clinch,
}

/// The clients that tasks use just now.
#[derive(Debug)]
pub(crate) struct Clients {
    shared: Arc<Shared>,
    present: Mutex<Vec<Option<Numbered>>>,
    next: AtomicU32,
    /// Which one is closed next.
    turn: AtomicU32,
}

impl Clients {
    /// Opens all of them.
    pub(crate) async fn open(shared: &Arc<Shared>) -> Result<Arc<Self>> {
        let clients = Arc::new(Self {
            shared: shared.clone(),
            present: Mutex::default(),
            next: AtomicU32::new(1),
            turn: AtomicU32::new(0),
        });
        for _ in 0..COUNT {
            let client = clients.connect().await?;
            clients.present().push(Some(client));
        }
        Ok(clients)
    }

    /// The client of a task; none while it is opened again.
    pub(crate) fn of(&self, task: usize) -> Option<Numbered> {
        self.present().get(task % COUNT).cloned().flatten()
    }

    /// Closes one while tasks use it, and opens another one in its place.
    pub(crate) async fn replace_one(&self) -> Result<()> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let task = usize::try_from(turn).unwrap_or(0);
        let Some(old) = self.of(task) else {
            return Ok(());
        };
        // What it could not end cleanly shows at the store.
        let _ = old.clinch.close().await;
        self.shared.recorder.write(&Event::Closed(Closed {
            process: self.shared.config.process,
            client: old.number,
            at: now(),
        }));
        self.put(task, None);
        let new = self.connect().await?;
        self.put(task, Some(new));
        Ok(())
    }

    /// Closes all of them.
    pub(crate) async fn close(&self) {
        let all = self.present().clone();
        for client in all.into_iter().flatten() {
            let _ = client.clinch.close().await;
        }
    }

    fn put(&self, task: usize, client: Option<Numbered>) {
        if let Some(place) = self.present().get_mut(task % COUNT) {
            *place = client;
        }
    }

    fn present(&self) -> MutexGuard<'_, Vec<Option<Numbered>>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the store, and tries again for a while: a worker may be started while the engine is down.
    async fn connect(&self) -> Result<Numbered> {
        let shared = &self.shared;
        let config = &shared.config;
        let give_up = shared.clock.now() + PATIENCE;
        loop {
            let (recorder, process) = (shared.recorder.clone(), config.process);
            let tap = |inner| -> Arc<dyn clinch::store::Admin> {
                Arc::new(tap::Tap {
                    inner,
                    recorder,
                    process,
                })
            };
            let mut connect = Connect::new(&config.url).namespace(&config.namespace);
            if config.drift != 0 {
                connect = connect.clock(Clock::drifting(config.drift));
            }
            match connect.open_with(tap).await {
                Err(error) if error.is_temporary() && shared.clock.now() < give_up => {
                    shared
                        .clock
                        .sleep(std::time::Duration::from_millis(100))
                        .await;
                }
                outcome => {
                    let number = self.next.fetch_add(1, Ordering::Relaxed);
                    return outcome.map(|clinch| Numbered { number, clinch });
                }
            }
        }
    }
}
