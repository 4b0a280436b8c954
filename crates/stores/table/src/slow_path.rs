//! Slow path: optimistic concurrency. Read the row, apply the steps, write back if the version is unchanged.
//!
//! No lock is held between the read and the write, so a client that stops there blocks no other. But a
//! slow client can lose each race; after some losses it takes priority on the row.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::machine::Outcome;
use clinch_core::store::{ClaimReply, Wake};
use clinch_core::{ClientId, Clock, Error, ErrorKind, Name, Result};
use clinch_kit::backoff::{doubled, jitter};

use crate::client::Client;
use crate::dialect::{Rows, Sent, Write};
use crate::steps::{Answer, Changed, Step, apply};
use crate::{Content, Row, Waiters, Watch, events};

/// After this number of lost races a client takes priority.
const LOSSES: u32 = 3;
/// The pause after a lost race, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_micros(1600));

/// Reads and writes whole rows.
#[derive(Debug)]
pub(crate) struct SlowPath {
    pub(crate) client: Arc<Client>,
    pub(crate) waiters: Arc<Waiters>,
}

impl SlowPath {
    /// Repeats until no other client has changed the row in between. `known` is the row, if it was just
    /// read.
    pub(crate) async fn perform(
        &self,
        name: &Name,
        steps: &[Step],
        mut known: Option<Row>,
    ) -> Result<Vec<Result<Answer>>> {
        let Client {
            dialect,
            cache,
            conflicts,
            ..
        } = &*self.client;
        let timeout = self.timeout(steps);
        let clock = Clock::boot();
        let give_up = clock.now() + timeout;
        let mut losses = 0u32;
        loop {
            // The cached answer may be wrong if the server's clock was stepped: used once only.
            let watch = match losses {
                0 => cache.watch(),
                _ => Watch::Unknown,
            };
            let done = match losses < LOSSES {
                true => {
                    let mut rows = dialect.rows(timeout);
                    let known = known.take();
                    self.attempt(&mut *rows, name, steps, known, watch).await
                }
                false => self.with_priority(name, steps, timeout).await,
            };
            let last = match done {
                Ok(Some(answers)) => return Ok(answers),
                Ok(None) => "others keep changing the name".to_owned(),
                Err(failure) if failure.is_conflict() => {
                    conflicts.count(&failure);
                    failure.error.to_string()
                }
                Err(failure) => return Err(failure.error),
            };
            if clock.now() >= give_up {
                return Err(Error::new(ErrorKind::Unreachable, last));
            }
            clock.sleep(jitter(doubled(PAUSE.0, losses, PAUSE.1))).await;
            losses += 1;
        }
    }

    /// How long these steps may take: renewals must leave time for another attempt.
    fn timeout(&self, steps: &[Step]) -> Duration {
        let leases = steps.iter().filter_map(|step| match step {
            Step::Renew(renewal) => Some(renewal.lease),
            _ => None,
        });
        self.client.timeout(leases)
    }

    /// One attempt while the writes of other clients yield.
    async fn with_priority(
        &self,
        name: &Name,
        steps: &[Step],
        timeout: Duration,
    ) -> Sent<Option<Vec<Result<Answer>>>> {
        let mut rows = self.client.dialect.prioritized(name, timeout).await?;
        let watch = Watch::Unknown;
        let done = self.attempt(&mut *rows, name, steps, None, watch).await;
        rows.finish().await;
        done
    }

    /// One attempt; `None` if the row has changed meanwhile.
    async fn attempt(
        &self,
        rows: &mut dyn Rows,
        name: &Name,
        steps: &[Step],
        known: Option<Row>,
        watch: Watch,
    ) -> Sent<Option<Vec<Result<Answer>>>> {
        let client = &*self.client;
        let row = match known {
            Some(row) => row,
            None => {
                let row = rows.read(name, watch).await?;
                client.late.saw_clock(row.now);
                row
            }
        };
        let changed = apply(
            &row,
            row.state(name)?,
            steps,
            client.highest.get(),
            &client.late,
        );
        if !changed.differs {
            // Only a write proves that a cached row is current.
            return Ok((!row.cached).then_some(changed.answers));
        }
        let Some(expected) = row.version else {
            rows.create(name, changed.version).await?;
            return Ok(None);
        };
        let content = Content::of_state(&changed.state);
        let events = (row.watched && !changed.out.events.is_empty())
            .then(|| events::encode(&changed.out.events));
        let write = Write {
            name,
            content: &content,
            version: changed.version,
            expected,
            watch: match row.watched {
                true => Watch::Watched,
                false => watch,
            },
            // The client of a claim may be gone by then, without having withdrawn it.
            before: changed.claims.then(|| client.late.deadline_from(row.now)),
            // Time has passed since a cached row was read: it must not have ended anything.
            unexpired: row.cached,
            events: events.as_deref(),
            notify: &self.others(&changed.out),
        };
        if !rows.write(&write).await? {
            return Ok(None);
        }
        self.written(name, row, content, &changed, steps);
        Ok(Some(changed.answers))
    }

    /// Records what a successful write means to this client.
    fn written(&self, name: &Name, row: Row, content: Content, changed: &Changed, steps: &[Step]) {
        let client = &*self.client;
        client.highest.saw(changed.state.last_seq);
        if steps.iter().any(|step| matches!(step, Step::Release(_))) {
            let contended = !changed.out.granted.is_empty();
            client.cache.contended(name, contended);
        }
        self.wake_own(changed);
        let granted =
            |answer: &Result<Answer>| matches!(answer, Ok(Answer::Claim(ClaimReply::Granted(_))));
        if changed.answers.iter().any(granted) {
            let version = Some(changed.version);
            let row = Row {
                version,
                content,
                ..row
            };
            client.cache.keep_granted(name, row);
        }
    }

    /// The other clients whose claims were granted.
    fn others(&self, out: &Outcome) -> Vec<ClientId> {
        let mut clients: Vec<_> = out.granted.iter().map(|woken| woken.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.retain(|client| *client != self.client.id);
        clients
    }

    /// Wakes claims of this client that were granted by its own step, and registers those in the queue.
    fn wake_own(&self, changed: &Changed) {
        for woken in &changed.out.granted {
            if woken.client == self.client.id {
                let granted = Wake::Granted(woken.grant.clone());
                self.waiters.forget(woken.request);
                self.waiters.deliver(woken.request, granted);
            }
        }
        for entry in &changed.state.entries {
            if entry.client.id == self.client.id && entry.seq().is_none() {
                self.waiters.queued(entry.request, changed.state.last_seq);
            }
        }
    }
}
