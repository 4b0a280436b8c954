//! Owners: reentrancy.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Guard;
use crate::engine::{ClaimRequest, Engine, LocalHold, Status, WaitPolicy};
use crate::{Error, ErrorKind, Mode, Name, OwnerId, Result};

/// An explicit owner, for reentrancy. No thread or task is an owner by itself.
///
/// If [an owner](crate::Lock::as_owner) claims a name that it holds, the claim succeeds at once with
/// the same token; the lock is free when every guard has been released. Inside
/// [`scope`](Self::scope) the owner is the default. A write lock includes reading. A reader cannot
/// become a writer: two that tried would deadlock.
///
/// # Fairness
///
/// A reentrant claim does not queue. Claims of one owner on one name run one after the other: the
/// first queues as for [`Lock`](crate::Lock), and the others share its hold.
///
/// # Cancel safety
///
/// As for [`Lock`](crate::Lock); what the owner holds already stays held.
///
/// # Guarantees
///
/// All guards of an owner on one name have one token and one lease, and are lost together. An owner
/// is a handle, not a secret: any code that has a clone of it may claim as it.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let me = clinch.owner();
/// me.scope(async {
///     let outer = clinch.lock("a").acquire().await?;
///     let inner = clinch.lock("a").acquire().await?; // no deadlock
///     assert_eq!(outer.token(), inner.token());
///     Ok::<_, clinch::Error>(())
/// }).await?;
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Owner {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: OwnerId,
    /// What it holds, by client and name. The async mutex serialises claims of one owner on one name:
    /// the second shares the hold of the first.
    entered: Mutex<HashMap<(usize, Name), Arc<Place>>>,
}

type Place = tokio::sync::Mutex<Weak<LocalHold>>;

tokio::task_local! {
    static CURRENT: Owner;
}

impl Owner {
    pub(super) fn new() -> Self {
        let id = OwnerId::new(format!("owner-{:016x}", crate::ids::random_u64()));
        Self {
            inner: Arc::new(Inner {
                id,
                entered: Mutex::default(),
            }),
        }
    }

    /// The owner's id, as `clinch list` shows it.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let me = clinch.owner();
    /// let guard = clinch.lock("a").as_owner(&me).acquire().await?;
    /// assert_eq!(clinch.inspect("a").await?.unwrap().holders[0].owner, *me.id());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn id(&self) -> &OwnerId {
        &self.inner.id
    }

    /// Makes this owner the default for claims inside `future`.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let (me, lock) = (clinch.owner(), clinch.lock("a"));
    /// let outer = me.scope(lock.acquire()).await?;
    /// assert!(me.scope(lock.try_acquire()).await?.is_some()); // reentrant
    /// assert!(lock.try_acquire().await?.is_none()); // outside the scope: another owner
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        CURRENT.scope(self.clone(), future).await
    }

    /// Makes this owner the default for [blocking](crate::blocking) claims inside `work`.
    ///
    /// ```
    /// let clinch = clinch::blocking::Clinch::memory();
    /// let (me, lock) = (clinch.owner(), clinch.lock("a"));
    /// me.sync_scope(|| {
    ///     let (outer, inner) = (lock.acquire()?, lock.acquire()?); // no deadlock
    ///     assert_eq!(outer.token(), inner.token());
    ///     Ok::<_, clinch::Error>(())
    /// })?;
    /// # Ok::<_, clinch::Error>(())
    /// ```
    pub fn sync_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), work)
    }

    /// The owner of the surrounding [`scope`](Self::scope).
    pub(super) fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Shares the owner's hold, or claims.
    pub(super) async fn claim(
        &self,
        engine: &Arc<Engine>,
        name: &Name,
        units: u32,
        limit: u32,
        ask: impl Fn(OwnerId) -> Result<ClaimRequest>,
        how: WaitPolicy,
    ) -> Result<Option<Guard>> {
        let ask = ask(self.inner.id.clone())?;
        let place = self.place(engine, name);
        let mut held = match how {
            WaitPolicy::Forever => place.lock().await,
            // Another task of the same owner is claiming.
            WaitPolicy::Try => match place.try_lock() {
                Ok(held) => held,
                Err(_) => return Ok(None),
            },
            WaitPolicy::Until(deadline) => tokio::select! {
                held = place.lock() => held,
                () = engine.clock.sleep_until(deadline) => return Ok(None),
            },
        };
        // If the hold has ended or is lost, this is a claim like any other.
        let inside = held
            .upgrade()
            .filter(|t| !matches!(t.status(), Status::Lost(_)));
        if let Some(guard) = inside.and_then(Guard::again) {
            covers(guard.local_hold(), units, limit)
                .map_err(|error| engine.explain(error, name))?;
            return Ok(Some(guard));
        }
        let guard = engine.acquire(&ask, how).await?.map(Guard::new);
        if let Some(guard) = &guard {
            *held = Arc::downgrade(guard.local_hold());
        }
        Ok(guard)
    }

    fn place(&self, engine: &Arc<Engine>, name: &Name) -> Arc<Place> {
        let mut entered = self
            .inner
            .entered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Forget names that the owner neither holds nor claims.
        entered.retain(|_, place| {
            Arc::strong_count(place) > 1
                || place
                    .try_lock()
                    .map_or(true, |held| held.strong_count() > 0)
        });
        let key = (Arc::as_ptr(engine) as usize, name.clone());
        entered.entry(key).or_default().clone()
    }
}

/// Checks that what the owner holds includes what it claims.
fn covers(local_hold: &LocalHold, units: u32, limit: u32) -> Result<()> {
    let (held, wanted) = (local_hold.mode(), Mode::of(units, limit));
    let refuse = |kind, message: &str, advice: &str| {
        Err(Error::new(kind, message.to_owned()).with_advice(advice.to_owned()))
    };
    match (held, wanted) {
        (held, wanted) if held == wanted => Ok(()),
        (Mode::Write, Mode::Read) => Ok(()),
        (Mode::Read, Mode::Write) => refuse(
            ErrorKind::WouldDeadlock,
            "its owner holds the read lock and requests the write lock",
            "release the read lock first, or acquire the write lock from the start",
        ),
        (Mode::Permits { limit: a, .. }, Mode::Permits { limit: b, .. }) if a == b => refuse(
            ErrorKind::WouldDeadlock,
            "its owner holds another number of permits",
            "request the same number, or use another owner",
        ),
        _ => refuse(
            ErrorKind::Mismatch,
            "its owner holds it as another kind of lock",
            "use one kind and limit for a name",
        ),
    }
}
