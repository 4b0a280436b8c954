//! Rows of names that have been idle for long are deleted, off the hot path.
//!
//! A new row must not begin with a smaller token than the old one had, whatever the clock does
//! meanwhile. So the namespace has a floor, and a round deletes only rows below the floor that an
//! earlier round has set: no statement that began before is still under way.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::{Clock, Name, Result, keeper};

use crate::bell::Bell;
use crate::error::Trouble;
use crate::group::Group;
use crate::pool::Pool;
use crate::row::{bytes, optional, span};
use crate::sql::{NOW, Sql};
use crate::steps::Step;

/// How often a round is due, at least and at most.
const BETWEEN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(900));
/// Rows that are looked at in one request, and rows that are deleted in one.
const LOOKED_AT: u64 = 1000;
const AT_ONCE: usize = 50;
/// Between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// Reaps for one namespace, until the store is closed.
pub(crate) struct Reaper {
    pub(crate) pool: Arc<Pool>,
    pub(crate) group: Arc<Group>,
    pub(crate) ns: Vec<u8>,
    pub(crate) remember: Duration,
}

impl Reaper {
    /// Starts it.
    pub(crate) fn start(self, bell: Arc<Bell>) -> Result<()> {
        keeper::spawn(async move {
            tokio::select! {
                biased;
                () = bell.closed() => {}
                () = self.run() => {}
            }
        })
    }

    async fn run(self) {
        let clock = Clock::boot();
        let between = (self.remember / 4).clamp(BETWEEN.0, BETWEEN.1);
        loop {
            let part = u32::try_from(clock.now().as_nanos() % 512).unwrap_or_default();
            clock.sleep(between / 2 + between * part / 512).await;
            if let Err(trouble) = self.round(between).await {
                tracing::debug!(?trouble, "idle names were not reaped");
            }
        }
    }

    async fn round(&self, between: Duration) -> Result<(), Trouble> {
        let Some(floor) = self.turn(between).await? else {
            return Ok(());
        };
        let clock = Clock::boot();
        let mut from = Vec::new();
        loop {
            let rows = self.look(&from, floor).await?;
            let last = (rows.len() as u64) < LOOKED_AT;
            let mut idle = Vec::new();
            for row in rows {
                from.clone_from(&row.name);
                match row.what {
                    What::Idle => idle.push(row),
                    What::Ended => self.tick(&row.name),
                    What::InUse => {}
                }
            }
            for some in idle.chunks(AT_ONCE) {
                self.delete(some).await?;
                clock.sleep(PAUSE).await;
            }
            if last {
                break;
            }
            clock.sleep(PAUSE).await;
        }
        let raise = Sql::new(format!(
            "UPDATE clinch_meta SET floor=GREATEST(floor,{NOW}-?) WHERE ns=?"
        ))
        .with(span(self.remember))
        .bytes(&self.ns);
        self.pool.query(&raise).await?;
        Ok(())
    }

    /// The floor, if it is this client's turn: one of all is enough.
    async fn turn(&self, between: Duration) -> Result<Option<u64>, Trouble> {
        let make = Sql::new("INSERT IGNORE INTO clinch_meta (ns) VALUES (?)").bytes(&self.ns);
        self.pool.query(&make).await?;
        let take = Sql::new(format!(
            "UPDATE clinch_meta SET reaped={NOW} WHERE ns=? AND reaped NOT BETWEEN {NOW}-? AND {NOW}"
        ))
        .bytes(&self.ns)
        .with(span(between / 2));
        if self.pool.query(&take).await?.affected(0) != Some(1) {
            return Ok(None);
        }
        let read = Sql::new("SELECT floor FROM clinch_meta WHERE ns=?").bytes(&self.ns);
        let floor = self.pool.query(&read).await?.into_first_value();
        Ok(floor.and_then(optional).flatten())
    }

    async fn look(&self, from: &[u8], floor: u64) -> Result<Vec<Looked>, Trouble> {
        let sql = Sql::new(format!(
            "SELECT name,seq,seq<{NOW}-? AND seq<=?,request='' AND state IS NULL,until<{NOW} \
             FROM clinch_names WHERE ns=? AND name>? ORDER BY name LIMIT ?"
        ))
        .with(span(self.remember))
        .with(floor)
        .bytes(&self.ns)
        .bytes(from)
        .with(LOOKED_AT);
        let rows = self.pool.query(&sql).await?.into_rows();
        let looked = |row: Vec<mysql_async::Value>| {
            let mut values = row.into_iter();
            let name = bytes(values.next()?)?;
            let mut number = || values.next().and_then(optional).flatten();
            let seq = number()?;
            let (old, free, ended) = (number()? > 0, number()? > 0, number()? > 0);
            let what = match (old, free, ended) {
                (true, true, _) => What::Idle,
                (true, false, true) => What::Ended,
                _ => What::InUse,
            };
            Some(Looked { name, seq, what })
        };
        Ok(rows.into_iter().filter_map(looked).collect())
    }

    /// Each row on its own, and only as it was seen.
    async fn delete(&self, rows: &[Looked]) -> Result<(), Trouble> {
        let mut sql = Sql::default();
        for row in rows {
            sql = sql
                .then("DELETE FROM clinch_names WHERE ns=? AND name=? AND seq=?;")
                .bytes(&self.ns)
                .bytes(&row.name)
                .with(row.seq);
        }
        sql.text.pop();
        self.pool.query(&sql).await.map(drop)
    }

    /// A holder that never came back: the row becomes idle, and goes in a later round.
    fn tick(&self, name: &[u8]) {
        if let Ok(Ok(name)) = String::from_utf8(name.to_vec()).map(Name::new) {
            drop(self.group.send(&name, Step::Tick));
        }
    }
}

/// A row that was looked at.
struct Looked {
    name: Vec<u8>,
    seq: u64,
    what: What,
}

enum What {
    /// Nobody has used it for long.
    Idle,
    /// The same, and its last holder has never given it up.
    Ended,
    InUse,
}
