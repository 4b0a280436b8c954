//! The locks that tutorials teach, each small and real, to see that the verifier finds what is wrong
//! with it. No URL reaches them: they are here to be caught (`docs/wrong-locks.md`).

mod db;
mod deadline_from_reply;
mod del_without_owner;
mod engines;
mod for_update_killed;
mod get_then_del;
mod insert_delete;
mod new_request_id;
mod no_renewal;
mod right;
mod setnx_expire;
mod setnx_getset;
mod token_reset;
mod turn;
mod wake_without_poll;
mod zookeeper;
mod zookeeper_herd;
mod zookeeper_predecessor_race;

use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use clinch::{BootTime, Error, Result};

pub(crate) use turn::work;

use crate::check::Property;
use crate::history::Scan;
use crate::lab::Engine;
use crate::run::{LinkFault, What};
use crate::work::Config;

/// What a naive client does not look at.
type Oops = Box<dyn std::error::Error + Send + Sync>;

/// A lock that is wrong, and one that is not.
///
/// ```
/// use clinch_verify::{Property, Wrong};
/// let wrong: Wrong = "setnx-expire".parse()?;
/// assert_eq!(wrong.expected(), Some(Property::Stuck));
/// assert_eq!(Wrong::Right.expected(), None);
/// # Ok::<(), clinch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wrong {
    /// `SETNX`, then `EXPIRE`: a client that stops between the two locks for ever.
    SetnxExpire,
    /// `SETNX` with a time in it, taken over with `GETSET`, released by `DEL`.
    SetnxGetset,
    /// `SET NX PX`, released by `DEL`, whoever holds it by then.
    DelWithoutOwner,
    /// `GET`, compare, `DEL`: the lock changes hands in between.
    GetThenDel,
    /// A lease that nobody renews, and a holder that never looks.
    NoRenewal,
    /// A lease that the holder counts from the reply.
    DeadlineFromReply,
    /// A request repeated under a new identity after its reply was lost.
    NewRequestId,
    /// Tokens from a counter that a restart forgets.
    TokenReset,
    /// A waiter that only listens.
    WakeWithoutPoll,
    /// A row that is inserted and deleted, without an end.
    InsertDelete,
    /// A row locked by `FOR UPDATE`, on a connection that somebody ends.
    ForUpdateKilled,
    /// One node, and everybody who waits watches it.
    ZooKeeperHerd,
    /// A line of nodes, and a watch on a predecessor that may have gone.
    ZooKeeperPredecessorRace,
    /// The control: `SET NX PX`, release by comparison, a deadline from before the send.
    Right,
}

impl Wrong {
    /// All that must be caught.
    pub const ALL: [Self; 13] = [
        Self::SetnxExpire,
        Self::SetnxGetset,
        Self::DelWithoutOwner,
        Self::GetThenDel,
        Self::NoRenewal,
        Self::DeadlineFromReply,
        Self::NewRequestId,
        Self::TokenReset,
        Self::WakeWithoutPoll,
        Self::InsertDelete,
        Self::ForUpdateKilled,
        Self::ZooKeeperHerd,
        Self::ZooKeeperPredecessorRace,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SetnxExpire => "setnx-expire",
            Self::SetnxGetset => "setnx-getset",
            Self::DelWithoutOwner => "del-without-owner",
            Self::GetThenDel => "get-then-del",
            Self::NoRenewal => "no-renewal",
            Self::DeadlineFromReply => "deadline-from-reply",
            Self::NewRequestId => "new-request-id",
            Self::TokenReset => "token-reset",
            Self::WakeWithoutPoll => "wake-without-poll",
            Self::InsertDelete => "insert-delete",
            Self::ForUpdateKilled => "for-update-killed",
            Self::ZooKeeperHerd => "zookeeper-herd",
            Self::ZooKeeperPredecessorRace => "zookeeper-predecessor-race",
            Self::Right => "right",
        }
    }

    /// The promise that it breaks.
    pub fn expected(self) -> Option<Property> {
        match self {
            Self::SetnxExpire | Self::WakeWithoutPoll | Self::InsertDelete => Some(Property::Stuck),
            Self::SetnxGetset | Self::DelWithoutOwner | Self::GetThenDel => {
                Some(Property::Exclusion)
            }
            Self::NoRenewal | Self::DeadlineFromReply | Self::ForUpdateKilled => {
                Some(Property::Exclusion)
            }
            Self::ZooKeeperHerd => Some(Property::Herd),
            Self::ZooKeeperPredecessorRace => Some(Property::Stuck),
            Self::NewRequestId => Some(Property::LeftBehind),
            Self::TokenReset => Some(Property::TokenOrder),
            Self::Right => None,
        }
    }

    /// The lease that shows it soon.
    pub(crate) fn lease(self) -> Duration {
        match self {
            // Nobody stays alive by requests here, and the last of many may wait for a while.
            Self::ZooKeeperHerd => Duration::from_secs(9),
            _ => Duration::from_millis(400),
        }
    }

    /// Whether it gives tokens.
    pub(crate) fn has_tokens(self) -> bool {
        self == Self::TokenReset
    }

    /// The most requests that an acquisition may cost. Those that poll promise nothing.
    pub(crate) fn requests(self) -> Option<u64> {
        match self {
            Self::ZooKeeperHerd | Self::ZooKeeperPredecessorRace => Some(8),
            _ => None,
        }
    }

    /// How many clients there are in each worker process. A herd shows where many wait.
    fn users(self) -> u64 {
        match self {
            Self::ZooKeeperHerd => 8,
            _ => 1,
        }
    }

    /// What is done to its workers and to their connections: what shows its fault, and for the
    /// control all of that.
    pub(crate) fn faults(self) -> (Vec<What>, Vec<What>) {
        let links = |faults: &[LinkFault]| faults.iter().copied().map(What::Link).collect();
        let swallow = LinkFault::ReplySwallowed(1, true);
        match self {
            Self::SetnxExpire => (vec![What::Kill], links(&[swallow])),
            Self::SetnxGetset | Self::DelWithoutOwner => {
                (vec![What::PauseLong], links(&[LinkFault::HoldAndFlush]))
            }
            Self::GetThenDel | Self::DeadlineFromReply => (Vec::new(), Vec::new()),
            Self::NoRenewal | Self::TokenReset => (Vec::new(), Vec::new()),
            // What is done to the server, and a slow network, are enough; a herd needs nothing.
            Self::ForUpdateKilled | Self::ZooKeeperPredecessorRace | Self::ZooKeeperHerd => {
                (Vec::new(), Vec::new())
            }
            Self::NewRequestId => (Vec::new(), links(&[swallow])),
            Self::WakeWithoutPoll => (Vec::new(), links(&[LinkFault::HalfOpen])),
            Self::InsertDelete => (vec![What::Kill], Vec::new()),
            Self::Right => (
                vec![What::Kill, What::PauseLong],
                links(&[
                    swallow,
                    LinkFault::Delay,
                    LinkFault::HoldAndFlush,
                    LinkFault::HalfOpen,
                ]),
            ),
        }
    }

    /// How slow the network of a worker is.
    pub(crate) fn lag(self, process: u32) -> Option<Duration> {
        match self {
            Self::GetThenDel => Some(self.lease() / 4),
            // Slow for some only: if it were for all, a late claim would be met by a late grant.
            Self::DeadlineFromReply => (process % 2 == 1).then(|| self.lease() / 2),
            // Those who are quick come and go while a slow one looks at an old list.
            Self::ZooKeeperPredecessorRace => (process % 2 == 1).then(|| self.lease() / 4),
            _ => None,
        }
    }

    /// Starts the engine that it runs on.
    pub(crate) fn start(self) -> Result<Box<dyn Engine>> {
        match self {
            Self::InsertDelete => engines::file(),
            Self::TokenReset => engines::forgetful_redis(),
            Self::ForUpdateKilled => engines::mariadb(for_update_killed::TABLE),
            Self::ZooKeeperHerd | Self::ZooKeeperPredecessorRace => engines::zookeeper(),
            _ => engines::redis(),
        }
    }

    /// What is left at the engine.
    pub(crate) async fn leftovers(self, prefix: &str, url: &str) -> Result<Vec<Scan>> {
        match self {
            Self::InsertDelete => insert_delete::leftovers(prefix, url),
            // These end with their connections and sessions.
            Self::ForUpdateKilled | Self::ZooKeeperHerd | Self::ZooKeeperPredecessorRace => {
                Ok(Vec::new())
            }
            _ => db::leftovers(prefix, url).await,
        }
    }

    fn open(self, config: &Config) -> Result<Box<dyn RawLock>> {
        let key = || format!("{}lock", config.prefix);
        let db = || db::Db::new(&config.url, key(), config.lease());
        Ok(match self {
            Self::SetnxExpire => Box::new(setnx_expire::Lock(db()?)),
            Self::SetnxGetset => Box::new(setnx_getset::Lock(db()?)),
            Self::DelWithoutOwner => Box::new(del_without_owner::Lock(db()?)),
            Self::GetThenDel => Box::new(get_then_del::Lock(db()?)),
            Self::NoRenewal => Box::new(no_renewal::Lock(db()?)),
            Self::DeadlineFromReply => Box::new(deadline_from_reply::Lock(db()?)),
            Self::NewRequestId => Box::new(new_request_id::Lock(db()?)),
            Self::TokenReset => Box::new(token_reset::Lock(db()?)),
            Self::WakeWithoutPoll => Box::new(wake_without_poll::Lock(db()?)),
            Self::InsertDelete => Box::new(insert_delete::Lock::open(&config.url, key())?),
            Self::ForUpdateKilled => Box::new(for_update_killed::Lock::new(&config.url)?),
            Self::ZooKeeperHerd => Box::new(zookeeper_herd::Lock::new(&config.url)),
            Self::ZooKeeperPredecessorRace => {
                Box::new(zookeeper_predecessor_race::Lock::new(&config.url))
            }
            Self::Right => Box::new(right::Lock(db()?)),
        })
    }
}

impl FromStr for Wrong {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut known = Self::ALL.into_iter().chain([Self::Right]);
        known.find(|wrong| wrong.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("no wrong lock is called {text:?}")).with_advice(format!(
                "there are {names}, and `right`, which is not wrong"
            ))
        })
    }
}

/// What a try came to.
#[derive(Debug, Clone)]
struct Taken {
    owner: String,
    /// Of those that give one.
    token: Option<u64>,
    /// Until when its holder believes it has it; for ever without one.
    deadline: Option<BootTime>,
}

/// A lock as tutorials show it: take, or wait and take again; give back.
#[async_trait]
trait RawLock: Send {
    /// One try.
    async fn take(&mut self) -> Result<Option<Taken>, Oops>;

    /// Gives it back.
    async fn give_back(&mut self, taken: &Taken) -> Result<(), Oops>;

    /// Waits until it is worthwhile to try again.
    async fn wait(&mut self) -> Result<(), Oops> {
        clinch::Clock::boot().sleep(Duration::from_millis(8)).await;
        Ok(())
    }

    /// How many milliseconds a client rests between two turns at most.
    fn rests(&self) -> u64 {
        3
    }

    /// How much of a lease the holder needs at most, in percent.
    fn needs(&self) -> u64 {
        60
    }
}
