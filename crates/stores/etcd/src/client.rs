//! State that all operations of a client share, and the listing of a name.

use std::sync::Arc;

use clinch_core::{Clock, Name};

use crate::connection::Session;
use crate::error::CallError;
use crate::keys::{KeyRange, Keys};
use crate::leases::Leases;
use crate::ledger::Ledger;
use crate::lock_state::LockState;
use crate::predecessor::GrantRecorder;
use crate::txn::{self, TxnReply};
use crate::wakes::Watches;
use crate::wire::{Op, TxnRequest};

/// State that all operations of a client share.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) session: Arc<Session>,
    pub(crate) clock: Clock,
    pub(crate) keys: Keys,
    pub(crate) leases: Arc<Leases>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) recorder: GrantRecorder,
    pub(crate) watches: Arc<Watches>,
}

impl Client {
    pub(crate) fn new(session: Arc<Session>, keys: Keys, leases: Arc<Leases>, id: u64) -> Self {
        let ledger = Arc::new(Ledger::new(session.clock.clone(), id));
        let recorder = GrantRecorder {
            session: session.clone(),
            keys: keys.clone(),
            leases: leases.clone(),
            ledger: ledger.clone(),
        };
        Self {
            clock: session.clock.clone(),
            watches: Watches::new(session.clone(), keys.clone(), recorder.clone()),
            session,
            keys,
            leases,
            ledger,
            recorder,
        }
    }

    /// Operations that list a name; [`Self::read_listing`] reads their replies.
    pub(crate) fn listing(&self, name: &Name) -> [Op; 3] {
        // Delay keys and the end record are neighbours.
        let (delays, ended) = (self.keys.delays(name), self.keys.ended(name));
        let delays_and_end = KeyRange(delays.0, [ended.as_slice(), b"\0"].concat());
        [
            txn::range(self.keys.claims(name)),
            txn::range(delays_and_end),
            txn::get(&self.keys.held(name)),
        ]
    }

    /// The state of a name, from the replies to [`Self::listing`].
    pub(crate) fn read_listing(
        &self,
        name: &Name,
        reply: &mut TxnReply,
    ) -> Result<LockState, CallError> {
        let mut state = LockState::new(reply.revision);
        for _ in 0..3 {
            for kv in reply.keys()? {
                match self.keys.parse(&kv.key) {
                    Some((of, kind)) if of == *name => state.add(kind, kv),
                    _ => {}
                }
            }
        }
        Ok(state)
    }

    /// Lists a name.
    pub(crate) async fn list(&self, name: &Name) -> Result<LockState, CallError> {
        let txn = TxnRequest::always(self.listing(name).into());
        let mut reply = txn::run(&self.session, txn).await?;
        self.read_listing(name, &mut reply)
    }
}
