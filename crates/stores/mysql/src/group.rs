//! Steps: the short way, and the general one.
//!
//! The short way is one statement (`short.rs`). The general way is to read the row, work out what
//! becomes of it, and write it if it has not changed. No lock is held between the read and the
//! write, so a client that stops there hinders nobody.
//!
//! Steps of this process on one name gather while others of it are under way, and share one read
//! and one write: only processes race each other. And they are in order: a withdrawal never
//! overtakes its own claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::machine::Outcome;
use clinch_core::store::{ClaimReply, Wake};
use clinch_core::{BootTime, ClientId, Clock, Effect, Error, ErrorKind, Name, Result, keeper};
use tokio::sync::oneshot;

use crate::bell::Bell;
use crate::error::{Trouble, damaged};
use crate::events;
use crate::pool::{How, Pool};
use crate::row::{Content, Key, Row};
use crate::short::{Short, Tried};
use crate::sql::{Sql, names};
use crate::steps::{Answer, Changed, Step, apply};

type Receiver = oneshot::Receiver<Result<Answer>>;

/// A step on its way.
struct Waiting {
    step: Step,
    answer: oneshot::Sender<Result<Answer>>,
}

/// For how long a row that was read is good enough to give up a hold in it.
const FRESH: Duration = Duration::from_secs(1);
/// Names whose rows are kept for that.
const MOST_RECENT: usize = 1024;

/// Gathers the steps of each name.
pub(crate) struct Group {
    pool: Arc<Pool>,
    bell: Arc<Bell>,
    me: ClientId,
    ns: Vec<u8>,
    pub(crate) short: Short,
    queues: Mutex<HashMap<Name, Vec<Waiting>>>,
    /// Rows in which this client has just been granted a hold that others wait for.
    recent: Mutex<HashMap<Name, (BootTime, Row)>>,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

impl Group {
    pub(crate) fn new(
        pool: Arc<Pool>,
        bell: Arc<Bell>,
        short: Short,
        me: ClientId,
        ns: &str,
    ) -> Arc<Self> {
        Arc::new(Self {
            pool,
            bell,
            me,
            ns: ns.as_bytes().to_vec(),
            short,
            queues: Mutex::default(),
            recent: Mutex::default(),
        })
    }

    pub(crate) fn key(&self, name: &Name) -> Key {
        Key {
            ns: self.ns.clone(),
            name: name.as_str().as_bytes().to_vec(),
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Name, Vec<Waiting>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a step on its way; a dropped receiver does not undo it.
    pub(crate) fn send(self: &Arc<Self>, name: &Name, step: Step) -> Receiver {
        let (answer, receiver) = oneshot::channel();
        let start = {
            let mut queues = self.queues();
            let start = !queues.contains_key(name);
            let queue = queues.entry(name.clone()).or_default();
            queue.push(Waiting { step, answer });
            start
        };
        if start && let Err(error) = keeper::spawn(self.clone().pump(name.clone())) {
            for waiting in self.queues().remove(name).unwrap_or_default() {
                let _ = waiting.answer.send(Err(error.clone()));
            }
        }
        receiver
    }

    /// Sends a step and waits for its answer.
    pub(crate) async fn run(self: &Arc<Self>, name: &Name, step: Step) -> Result<Answer> {
        self.send(name, step).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unreachable, "the step was lost")
                .with_effect(Effect::Possible))
        })
    }

    async fn pump(self: Arc<Self>, name: Name) {
        let mut pumping = Pumping(Some((&self, &name)));
        loop {
            let steps = {
                let mut queues = self.queues();
                let Some(queue) = queues.get_mut(&name).filter(|steps| !steps.is_empty()) else {
                    queues.remove(&name);
                    pumping.0 = None;
                    return;
                };
                std::mem::take(queue)
            };
            self.perform(&name, steps).await;
        }
    }

    /// Performs steps as one.
    async fn perform(&self, name: &Name, waiting: Vec<Waiting>) {
        let (steps, senders): (Vec<_>, Vec<_>) =
            waiting.into_iter().map(|w| (w.step, w.answer)).unzip();
        let mut row = None;
        if let ([step], [_]) = (steps.as_slice(), senders.as_slice()) {
            match self.try_short(name, step).await {
                Ok(Tried::Done(answer)) => {
                    for sender in senders {
                        let _ = sender.send(Ok(answer.clone()));
                    }
                    return;
                }
                Ok(Tried::Row(known)) => row = known,
                Err(error) => {
                    for sender in senders {
                        let _ = sender.send(Err(error.clone()));
                    }
                    return;
                }
            }
        }
        // The bell must know of a claim before the claim is at the server.
        for step in &steps {
            if let Step::Claim(claim) = step
                && claim.queue
            {
                self.bell.expect(claim);
            }
        }
        match self.attempt(name, &steps, row).await {
            Ok(answers) => {
                for ((sender, answer), step) in senders.into_iter().zip(answers).zip(&steps) {
                    if let Step::Claim(claim) = step
                        && !matches!(answer, Ok(Answer::Claim(ClaimReply::Queued(_))))
                    {
                        self.bell.forget(claim.request);
                    }
                    let _ = sender.send(answer);
                }
            }
            Err(error) => {
                for sender in senders {
                    let _ = sender.send(Err(error.clone()));
                }
            }
        }
    }

    /// Tries one statement for one step.
    async fn try_short(&self, name: &Name, step: &Step) -> Result<Tried> {
        match step {
            // One that waits is in a row that no single statement can change.
            Step::Claim(claim) if !self.bell.awaits(claim.request) => {
                let key = self.key(name);
                let tried = self.short.take(&key, claim, self.bell.greatest()).await?;
                if let Tried::Done(Answer::Claim(ClaimReply::Granted(grant))) = &tried {
                    self.bell.saw(grant.seq);
                }
                Ok(tried)
            }
            Step::Release(hold) => match self.take_recent(name) {
                Some(row) => Ok(Tried::Row(Some(row))),
                // Others waited the last time: they do now, and the short way would be in vain.
                None if self.short.known.is_contended(name) => Ok(Tried::Row(None)),
                None => self.short.give(&self.key(name), hold).await,
            },
            _ => Ok(Tried::Row(None)),
        }
    }

    /// Keeps a row in which a claim of this client was granted.
    pub(crate) fn keep_recent(&self, name: &Name, row: Row) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if row.content.state.is_none() {
            recent.remove(name);
            return;
        }
        if recent.len() >= MOST_RECENT {
            recent.clear();
        }
        recent.insert(name.clone(), (Clock::boot().now(), row));
    }

    fn take_recent(&self, name: &Name) -> Option<Row> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, row) = recent.remove(name)?;
        (Clock::boot().now().since(since) < FRESH).then_some(Row {
            recent: true,
            ..row
        })
    }

    /// Reads, works out and writes, until nobody has come between.
    async fn attempt(
        &self,
        name: &Name,
        steps: &[Step],
        mut known: Option<Row>,
    ) -> Result<Vec<Result<Answer>>> {
        let key = self.key(name);
        let clock = Clock::boot();
        let give_up = clock.now() + self.pool.timeout();
        let mut tries = 0u32;
        loop {
            let last = match self.once(name, &key, steps, known.take()).await {
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
            clock.sleep(pause(tries, clock.now().as_nanos())).await;
            tries += 1;
        }
    }

    /// `None` when the row has changed meanwhile.
    async fn once(
        &self,
        name: &Name,
        key: &Key,
        steps: &[Step],
        known: Option<Row>,
    ) -> Result<Option<Vec<Result<Answer>>>, Failed> {
        let row = match known {
            Some(row) => row,
            None => self.read(key).await?,
        };
        let state = row.state(name).map_err(Failed::Known)?;
        let steps: Vec<&Step> = steps.iter().collect();
        let changed = apply(&row, state, &steps, self.bell.greatest());
        if !changed.differs {
            // Only a write shows that a row from before is still the present one.
            return Ok((!row.recent).then_some(changed.answers));
        }
        let Some(before) = row.seq else {
            let made = self.pool.query(&names::make(key, changed.seq)).await;
            made.map_err(Failed::Server)?;
            return Ok(None);
        };
        let content = Content::of_state(&changed.state);
        if !self.write(key, &changed, &content, before, &row).await? {
            return Ok(None);
        }
        self.bell.saw(changed.state.last_seq);
        if steps.iter().any(|step| matches!(step, Step::Release(_))) {
            let contended = !changed.out.granted.is_empty();
            self.short.known.contended(name, contended);
        }
        self.tell(&changed);
        let granted =
            |answer: &Result<Answer>| matches!(answer, Ok(Answer::Claim(ClaimReply::Granted(_))));
        if changed.answers.iter().any(granted) {
            let seq = Some(changed.seq);
            self.keep_recent(
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

    async fn read(&self, key: &Key) -> Result<Row, Failed> {
        let reply = self.pool.query(&names::read(key)).await;
        let reply = reply.map_err(Failed::Server)?;
        let slack = reply.took;
        let values = reply.into_first_row();
        let row = values.and_then(|values| Row::read(&mut values.into_iter()));
        let row = row.ok_or_else(|| damaged(&String::from_utf8_lossy(&key.name)));
        Ok(Row {
            slack,
            ..row.map_err(Failed::Known)?
        })
    }

    /// Writes the row, tells the events, and rings for one of those who were granted: all in one
    /// request. `false` if the row has changed.
    async fn write(
        &self,
        key: &Key,
        changed: &Changed,
        content: &Content,
        before: u64,
        row: &Row,
    ) -> Result<bool, Failed> {
        let mut sql = names::write(key, content, changed.seq, before, row.watched);
        if row.recent {
            // Time has passed since: it must not have ended anything.
            sql = sql.then(names::NOTHING_ENDED);
        }
        let mut at = 0;
        if row.watched && !changed.out.events.is_empty() {
            // One transaction, so that events are seen in the order in which they happened; and one
            // request, so that it does not stay open.
            sql = Sql {
                text: format!("START TRANSACTION;{}", sql.text),
                ..sql
            };
            sql = events::append(sql, &self.ns, &changed.out.events).then(";COMMIT");
            at = 1;
        }
        let others = self.others(&changed.out);
        if let Some(first) = others.first() {
            sql = match at {
                0 => sql.then(";").then(&Bell::ring_if_written(*first)),
                _ => sql.then(";").then(&Bell::ring(*first)),
            };
        }
        let reply = self.pool.send(&sql, How::TextOnce).await;
        let reply = reply.map_err(Failed::Server)?;
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

/// Why an attempt has failed.
enum Failed {
    Server(Trouble),
    Known(Error),
}

/// Between half and all of a pause that grows, by the low bits of the clock.
fn pause(tries: u32, nanos: u64) -> Duration {
    let longest = Duration::from_micros(200 << tries.min(7));
    let part = u32::try_from(nanos % 512).unwrap_or_default();
    longest / 2 + longest / 2 * part / 512
}

/// Fails the steps of a name whose task has panicked: others must not wait for ever.
struct Pumping<'a>(Option<(&'a Group, &'a Name)>);

impl Drop for Pumping<'_> {
    fn drop(&mut self) {
        if let Some((group, name)) = self.0 {
            group.queues().remove(name);
        }
    }
}
