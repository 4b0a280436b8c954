//! The general way: read the row, work out what becomes of it, and write it if it has not changed.
//!
//! No lock is held between the read and the write, so a client that stops there hinders nobody. But
//! one that is slow can lose the race each time; so whoever has lost some of them queues for a turn.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::machine::Outcome;
use clinch_core::store::{ClaimReply, Wake};
use clinch_core::{ClientId, Clock, Error, ErrorKind, Name, Result};
use mysql_async::Value;

use crate::bell::Bell;
use crate::error::{Trouble, damaged};
use crate::events;
use crate::known::Names;
use crate::pool::{How, Line, Pool};
use crate::quiet::Quiet;
use crate::recent::Recent;
use crate::row::{Content, Key, Row};
use crate::sql::names::{self, Watch};
use crate::steps::{Answer, Changed, Step, apply};
use crate::turn::{self, Turns};

/// After so many lost races a client queues for its turn.
const LOSSES: u32 = 3;

/// What the general way needs.
#[derive(Debug)]
pub(crate) struct General {
    pub(crate) pool: Arc<Pool>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) me: ClientId,
    pub(crate) ns: Vec<u8>,
    pub(crate) known: Arc<Names>,
    pub(crate) quiet: Arc<Quiet>,
    pub(crate) recent: Arc<Recent>,
    pub(crate) turns: Turns,
}

impl General {
    /// Reads, works out and writes, until nobody has come between.
    pub(crate) async fn attempt(
        &self,
        name: &Name,
        steps: &[Step],
        mut known: Option<Row>,
    ) -> Result<Vec<Result<Answer>>> {
        let key = Key::of(&self.ns, name);
        let patience = self.patience(steps);
        let clock = Clock::boot();
        let give_up = clock.now() + patience;
        let mut tries = 0u32;
        loop {
            // What is known of watchers may be wrong if the server's clock was stepped: once only.
            let watch = match tries {
                0 => self.quiet.watch(),
                _ => Watch::Unknown,
            };
            let tried = match tries < LOSSES {
                true => {
                    let mut line = Line::Any(&self.pool, patience);
                    let known = known.take();
                    self.once(&mut line, name, &key, steps, known, watch).await
                }
                false => self.in_turn(name, &key, steps, patience).await,
            };
            let last = match tried {
                Ok(Some(answers)) => return Ok(answers),
                Ok(None) => "others keep changing the name".to_owned(),
                Err(Failed::Known(error)) => return Err(error),
                Err(Failed::Server(trouble)) if trouble.is_race() => {
                    self.pool.raced(&trouble);
                    trouble.into_error(self.pool.to()).to_string()
                }
                Err(Failed::Server(trouble)) => return Err(trouble.into_error(self.pool.to())),
            };
            if clock.now() >= give_up {
                return Err(Error::new(ErrorKind::Unreachable, last));
            }
            let pause = pause(tries.min(LOSSES), clock.now().as_nanos());
            clock.sleep(pause).await;
            tries += 1;
        }
    }

    /// How long these steps may take: renewals must leave time for another try.
    fn patience(&self, steps: &[Step]) -> Duration {
        let leases = steps.iter().filter_map(|step| match step {
            Step::Renew(renewal) => Some(renewal.lease),
            _ => None,
        });
        self.pool.patience(leases)
    }

    /// One attempt while the others yield.
    async fn in_turn(
        &self,
        name: &Name,
        key: &Key,
        steps: &[Step],
        patience: Duration,
    ) -> Result<Option<Vec<Result<Answer>>>, Failed> {
        let mut line = Line::One(self.pool.session(patience).await?);
        self.turns.take(&mut line, key, patience).await?;
        let watch = Watch::Unknown;
        let done = self.once(&mut line, name, key, steps, None, watch).await;
        // A connection that cannot say so ends here, and its turn with it.
        if turn::end(&mut line, key).await.is_ok() {
            line.keep();
        }
        done
    }

    /// `None` when the row has changed meanwhile.
    async fn once(
        &self,
        line: &mut Line<'_>,
        name: &Name,
        key: &Key,
        steps: &[Step],
        known: Option<Row>,
        watch: Watch,
    ) -> Result<Option<Vec<Result<Answer>>>, Failed> {
        let row = match known {
            Some(row) => row,
            None => {
                let row = read(line, key, watch).await?;
                self.pool.late.heard(row.now);
                row
            }
        };
        let state = row.state(name).map_err(Failed::Known)?;
        let steps: Vec<&Step> = steps.iter().collect();
        let changed = apply(&row, state, &steps, self.bell.greatest(), &self.pool.late);
        if !changed.differs {
            // Only a write shows that a row from before is still the present one.
            return Ok((!row.recent).then_some(changed.answers));
        }
        if row.seq.is_none() {
            line.query(&names::make(key, changed.seq)).await?;
            return Ok(None);
        }
        let content = Content::of_state(&changed.state);
        let written = self.write(line, key, &changed, &content, &row, watch);
        if !written.await? {
            return Ok(None);
        }
        self.bell.saw(changed.state.last_seq);
        if steps.iter().any(|step| matches!(step, Step::Release(_))) {
            let contended = !changed.out.granted.is_empty();
            self.known.contended(name, contended);
        }
        self.tell(&changed);
        let granted =
            |answer: &Result<Answer>| matches!(answer, Ok(Answer::Claim(ClaimReply::Granted(_))));
        if changed.answers.iter().any(granted) {
            let seq = Some(changed.seq);
            self.recent.keep(
                name,
                Row {
                    seq,
                    content,
                    ..row
                },
            );
        }
        Ok(Some(changed.answers))
    }

    /// Writes the row, tells the events, and rings for one of those who were granted: all in one
    /// request. `false` if the row has changed.
    async fn write(
        &self,
        line: &mut Line<'_>,
        key: &Key,
        changed: &Changed,
        content: &Content,
        row: &Row,
        watch: Watch,
    ) -> Result<bool, Failed> {
        let watch = match row.watched {
            true => Watch::Watched,
            false => watch,
        };
        let before = row.seq.unwrap_or_default();
        let mut sql = names::write(key, content, changed.seq, before, watch);
        if let Line::Any(..) = line {
            sql = sql.then(&names::if_no_turn(key));
        }
        if changed.claims {
            // Its client may be gone by then, without having withdrawn it.
            sql = sql.then(&names::until(self.pool.late.latest_after(row.now)));
        }
        if row.recent {
            // Time has passed since: it must not have ended anything.
            sql = sql.then(names::NOTHING_ENDED);
        }
        let mut at = 0;
        if row.watched && !changed.out.events.is_empty() {
            // One transaction, so that events are seen in the order in which they happened; and one
            // request, so that it does not stay open.
            sql = events::append(sql, &self.ns, &changed.out.events).in_transaction();
            at = 1;
        }
        let others = self.others(&changed.out);
        if let Some(first) = others.first() {
            sql = match at {
                0 => sql.then(";").then(&Bell::ring_if_written(*first)),
                _ => sql.then(";").then(&Bell::ring(*first)),
            };
        }
        let reply = line.send(&sql, How::TextOnce).await?;
        let Some(affected) = reply.affected(at) else {
            let lost = || Trouble::Lost("there was no reply".to_owned());
            return Err(Failed::Server(reply.failed.unwrap_or_else(lost)));
        };
        // Without the commit nothing has happened, as far as is known.
        if at == 1 && reply.sets.len() < 4 && reply.failed.is_some() {
            let lost = || Trouble::Lost("the commit was not answered".to_owned());
            return Err(Failed::Server(reply.failed.unwrap_or_else(lost)));
        }
        if affected > 0 {
            self.bell.ring_all(others.get(1..).unwrap_or_default());
        }
        Ok(affected > 0)
    }

    /// The other clients among those who were granted.
    fn others(&self, out: &Outcome) -> Vec<ClientId> {
        let mut clients: Vec<_> = out.granted.iter().map(|woken| woken.client).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.retain(|client| *client != self.me);
        clients
    }

    /// Tells the own claims that were granted by another own step.
    fn tell(&self, changed: &Changed) {
        for woken in &changed.out.granted {
            if woken.client == self.me {
                let granted = Wake::Granted(woken.grant.clone());
                self.bell.forget(woken.request);
                self.bell.book.deliver(woken.request, granted);
            }
        }
        for entry in &changed.state.entries {
            if entry.client.id == self.me && entry.seq().is_none() {
                self.bell.queued(entry.request, changed.state.last_seq);
            }
        }
    }
}

async fn read(line: &mut Line<'_>, key: &Key, watch: Watch) -> Result<Row, Failed> {
    if watch != Watch::Unknown {
        let reply = line.send(&names::look(key), How::Prepared).await?.whole()?;
        let slack = reply.took;
        if let Some(values) = reply.into_first_row() {
            return as_row(values, slack, key);
        }
    }
    let reply = line.query(&names::read(key)).await?;
    let slack = reply.took;
    as_row(reply.into_first_row().unwrap_or_default(), slack, key)
}

fn as_row(values: Vec<Value>, slack: Duration, key: &Key) -> Result<Row, Failed> {
    match Row::read(&mut values.into_iter()) {
        Some(row) => Ok(Row { slack, ..row }),
        None => Err(Failed::Known(damaged(&String::from_utf8_lossy(&key.name)))),
    }
}

/// Why an attempt has failed.
enum Failed {
    Server(Trouble),
    Known(Error),
}

impl From<Trouble> for Failed {
    fn from(trouble: Trouble) -> Self {
        Self::Server(trouble)
    }
}

/// Between half and all of a pause that grows, by the low bits of the clock.
fn pause(tries: u32, nanos: u64) -> Duration {
    let longest = Duration::from_micros(200 << tries);
    let part = u32::try_from(nanos % 512).unwrap_or_default();
    longest / 2 + longest / 2 * part / 512
}
