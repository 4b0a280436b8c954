//! What all steps of a client share.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Ending, Grant};
use clinch_core::{Clock, LostReason, Name, OwnerId, RequestId, keeper};

use crate::error::Trouble;
use crate::keys::{Keys, Span};
use crate::leases::Leases;
use crate::mirror::Mirror;
use crate::ours::{Mine, Ours};
use crate::record::Word;
use crate::session::Session;
use crate::txn::{self, Done};
use crate::wakes::{Ears, Granted};
use crate::wire::{KeyValue, Op, TxnRequest};

/// A hold that came after waiting is written down if it lasts longer than this: short ones leave a
/// word when they end, and need none when they begin.
const SETTLED: Duration = Duration::from_secs(1);

/// What all steps of a client share.
#[derive(Debug, Clone)]
pub(crate) struct Core {
    pub(crate) session: Arc<Session>,
    pub(crate) clock: Clock,
    pub(crate) keys: Keys,
    pub(crate) leases: Arc<Leases>,
    pub(crate) ours: Arc<Ours>,
    pub(crate) ears: Arc<Ears>,
}

impl Core {
    pub(crate) fn new(session: Arc<Session>, keys: Keys, leases: Arc<Leases>, client: u64) -> Self {
        let ours = Arc::new(Ours::new(client));
        let scribe = Scribe {
            session: session.clone(),
            keys: keys.clone(),
            leases: leases.clone(),
            ours: ours.clone(),
        };
        Self {
            clock: session.clock.clone(),
            ears: Ears::new(session.clone(), keys.clone(), Box::new(scribe)),
            session,
            keys,
            leases,
            ours,
        }
    }

    /// Operations that list a name; [`Self::read_listing`] reads their replies.
    pub(crate) fn listing(&self, name: &Name) -> [Op; 3] {
        // Delays and the last ending are neighbours.
        let (delays, ended) = (self.keys.delays(name), self.keys.ended(name));
        let words = Span(delays.0, [ended.as_slice(), b"\0"].concat());
        [
            txn::range(self.keys.line(name)),
            txn::range(words),
            txn::get(&self.keys.held(name)),
        ]
    }

    /// One name, from the replies to [`Self::listing`].
    pub(crate) fn read_listing(&self, name: &Name, done: &mut Done) -> Result<Mirror, Trouble> {
        let mut mirror = Mirror::new(done.revision);
        for _ in 0..3 {
            for kv in done.keys()? {
                match self.keys.parse(&kv.key) {
                    Some((whose, kind)) if whose == *name => mirror.add(kind, kv),
                    _ => {}
                }
            }
        }
        Ok(mirror)
    }

    /// Lists a name.
    pub(crate) async fn list(&self, name: &Name) -> Result<Mirror, Trouble> {
        let txn = TxnRequest {
            success: self.listing(name).into(),
            ..TxnRequest::default()
        };
        let mut done = txn::run(&self.session, txn).await?;
        self.read_listing(name, &mut done)
    }

    /// Operations that ask how a claim ended; [`Self::reason`] reads their replies.
    pub(crate) fn words(&self, name: &Name, request: RequestId) -> [Op; 2] {
        [
            txn::get(&self.keys.gone(name, request)),
            txn::get(&self.keys.ended(name)),
        ]
    }

    /// Why this claim, whose key is not there, has ended.
    pub(crate) fn reason(
        &self,
        mine: &Mine,
        done: &mut Done,
    ) -> Result<Option<LostReason>, Trouble> {
        let read = |kv: Option<KeyValue>| kv.and_then(|kv| Word::read(&kv.value));
        let (gone, ended) = (read(done.key()?), read(done.key()?));
        let ended = ended.filter(|word| Some(word.seq) == mine.seq);
        let word = gone.or(ended).map(|word| word.ending().into());
        Ok(word)
    }

    /// The reason, where nobody left a word.
    pub(crate) fn reason_without_word(&self, mine: &Mine) -> LostReason {
        let lease = mine.lease.as_ref();
        let alive = lease.is_some_and(|l| !l.is_dead() && l.word().0 > self.clock.now());
        match alive {
            // Its key was deleted, and not by us.
            true => LostReason::Forgotten,
            false => LostReason::Expired,
        }
    }

    /// Writes down, somewhat later, that this claim was granted.
    pub(crate) fn note(&self, request: RequestId) {
        self.scribe().note(request, SETTLED);
    }

    /// Writes it down once more, before it is forgotten: the hold lasts.
    pub(crate) fn note_again(&self, request: RequestId, mine: &Mine) {
        let (now, remember) = (self.clock.now(), self.session.config.remember);
        if mine
            .noted
            .is_some_and(|noted| now.since(noted) >= remember / 2)
        {
            self.scribe().note(request, Duration::ZERO);
        }
    }

    fn scribe(&self) -> Scribe {
        Scribe {
            session: self.session.clone(),
            keys: self.keys.clone(),
            leases: self.leases.clone(),
            ours: self.ours.clone(),
        }
    }
}

/// Who writes down which claims were granted after waiting.
#[derive(Debug, Clone)]
struct Scribe {
    session: Arc<Session>,
    keys: Keys,
    leases: Arc<Leases>,
    ours: Arc<Ours>,
}

impl Scribe {
    fn note(&self, request: RequestId, later: Duration) {
        let scribe = self.clone();
        let writing = async move {
            scribe.session.clock.sleep(later).await;
            if let Err(trouble) = scribe.write(request).await {
                // The next holder is told less.
                tracing::debug!(?trouble, "a grant was not written down");
            }
        };
        if let Err(error) = keeper::spawn(writing) {
            tracing::debug!(%error, "a grant is not written down");
        }
    }

    async fn write(&self, request: RequestId) -> Result<(), Trouble> {
        let Some(mine) = self.ours.get(request) else {
            return Ok(());
        };
        let Some(seq) = mine.seq else { return Ok(()) };
        let memory = self.leases.memory().await?;
        let txn = TxnRequest {
            compare: vec![txn::created(&mine.key, seq)],
            success: vec![txn::put(
                &self.keys.held(&mine.name),
                held(seq, &mine.record.owner()).bytes(),
                memory,
            )],
            failure: Vec::new(),
        };
        let now = self.session.clock.now();
        txn::run(&self.session, txn).await?;
        self.ours.update(request, |mine| mine.noted = Some(now));
        Ok(())
    }
}

impl Granted for Scribe {
    fn granted(&self, request: RequestId, grant: &Grant) -> bool {
        let mut complete = false;
        self.ours.update(request, |mine| {
            // What is to stay of it after an unclean end must be there before it is told.
            complete = mine.delay.is_none();
            if complete {
                mine.grant = Some(grant.clone());
            }
        });
        if complete {
            self.note(request, SETTLED);
        }
        complete
    }
}

/// The word about a grant: it will have expired, unless there is another word.
pub(crate) fn held(seq: u64, owner: &OwnerId) -> Word {
    Word::new(seq, owner, Ending::Expired)
}
