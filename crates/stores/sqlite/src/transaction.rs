//! One transaction: the steps of several operations, and what follows its commit.

use std::fs::File;
use std::path::Path;

use clinch_core::machine::{NameState, Outcome, Woken};
use clinch_core::store::Event;
use clinch_core::{BootTime, ClientId, Clock, Name};
use rusqlite::Connection;

use crate::cache::Cache;
use crate::error::Step;
use crate::ledger::Ledger;
use crate::record::NameRecord;
use crate::renew;
use crate::sequence::{self, Numbers, key};
use crate::session::{Liveness, Sessions, dead_clients};

/// An open transaction.
#[derive(Debug)]
pub(crate) struct Tx<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) path: &'a Path,
    pub(crate) ns: &'a str,
    pub(crate) clock: &'a Clock,
    pub(crate) sessions: &'a Sessions,
    pub(crate) numbers: &'a mut Numbers,
    pub(crate) cache: &'a mut Cache,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) after: AfterCommit,
}

/// What follows the commit of a transaction.
#[derive(Debug, Default)]
pub(crate) struct AfterCommit {
    /// Queued claims that were granted: their clients are woken.
    pub(crate) woken: Vec<Woken>,
    /// Events, in order. They are written before the commit.
    pub(crate) events: Vec<Event>,
    /// Clients that were found dead: their session files are removed.
    pub(crate) dead: Vec<ClientId>,
    /// Their files, locked so that no other client removes them before the commit.
    pub(crate) held: Vec<File>,
    /// Clients that watch events: they get a signal. Set when the events are written.
    pub(crate) watchers: Vec<ClientId>,
}

/// One name inside a transaction.
#[derive(Debug)]
pub(crate) struct Scope<'t> {
    /// The name's state, to be changed.
    pub(crate) state: &'t mut NameState,
    /// The moment of the step.
    pub(crate) now: BootTime,
    pub(crate) out: Outcome,
    numbers: &'t mut Numbers,
    floor: u64,
    db: &'t Connection,
    sessions: &'t Sessions,
    /// Clients that this step found dead.
    dead: Vec<ClientId>,
}

impl Tx<'_> {
    /// Applies a step to one name, and writes what it changed.
    pub(crate) fn on_name<T>(
        &mut self,
        name: &Name,
        step: impl FnOnce(&mut Scope<'_>) -> T,
    ) -> Step<T> {
        let record = match self.cache.take(name) {
            Some(record) => record,
            None => NameRecord::load(self.db, self.path, self.ns, name)?,
        };
        self.on_record(record, step)
    }

    /// Applies a step to a name that has been loaded, and writes what it changed.
    pub(crate) fn on_record<T>(
        &mut self,
        mut record: NameRecord,
        step: impl FnOnce(&mut Scope<'_>) -> T,
    ) -> Step<T> {
        let floor = match record.is_new() {
            true => sequence::number(self.db, key::FLOOR)?,
            false => 0,
        };
        // Before the renewals of others are read: see `renewal_table.rs`.
        let now = self.clock.now();
        renew::apply_file_renewals(&mut record.state, now, self.db, self.sessions)?;
        let mut scope = Scope {
            state: &mut record.state,
            now,
            out: Outcome::default(),
            numbers: self.numbers,
            floor,
            db: self.db,
            sessions: self.sessions,
            dead: Vec::new(),
        };
        let reply = step(&mut scope);
        scope.end_dead_grantees();
        let Scope { out, dead, .. } = scope;
        dead_clients::record(self.db, &dead)?;
        self.after.dead.extend(dead);
        record.save(self.db, self.ns)?;
        if !record.is_new() {
            self.cache.put(record);
        }
        self.after.woken.extend(out.granted);
        self.after.events.extend(out.events);
        Ok(reply)
    }
}

impl Scope<'_> {
    /// Runs a step of the machine.
    pub(crate) fn step<T>(
        &mut self,
        step: impl FnOnce(
            &mut NameState,
            BootTime,
            &mut dyn clinch_core::machine::Sequence,
            &mut Outcome,
        ) -> T,
    ) -> T {
        let mut above = self.numbers.above(self.floor);
        step(self.state, self.now, &mut above, &mut self.out)
    }

    /// Ends the claims of holders whose process has died; `true` if there were any.
    pub(crate) fn end_dead_holders(&mut self) -> bool {
        let holders = self.state.entries.iter().filter(|e| e.seq().is_some());
        let clients = distinct(holders.map(|e| e.client.id));
        self.end_if_dead(&clients)
    }

    /// Ends every claim whose process has died; `true` if there were any.
    pub(crate) fn end_all_dead(&mut self) -> bool {
        let clients = distinct(self.state.entries.iter().map(|e| e.client.id));
        self.end_if_dead(&clients)
    }

    /// Ends grants to dead waiters: otherwise the next waiter would have to detect them.
    fn end_dead_grantees(&mut self) {
        loop {
            let granted = &self.out.granted;
            let fresh = |request| granted.iter().any(|woken| woken.request == request);
            let entries = self.state.entries.iter().filter(|e| fresh(e.request));
            let clients = distinct(entries.map(|e| e.client.id));
            if !self.end_if_dead(&clients) {
                return;
            }
        }
    }

    fn is_dead(&mut self, client: ClientId) -> bool {
        match self.sessions.liveness(client) {
            Liveness::Alive => false,
            Liveness::Dead => {
                self.dead.push(client);
                true
            }
            // A missing file proves no death: the lease decides.
            Liveness::Unknown => {
                self.dead.contains(&client)
                    || dead_clients::is_recorded(self.db, client).unwrap_or(false)
            }
        }
    }

    fn end_if_dead(&mut self, clients: &[ClientId]) -> bool {
        let mut any = false;
        for client in clients.iter().copied() {
            if self.is_dead(client) {
                any = true;
                self.step(|state, now, seq, out| state.client_died(client, now, seq, out));
                self.out.granted.retain(|woken| woken.client != client);
            }
        }
        any
    }
}

fn distinct(clients: impl Iterator<Item = ClientId>) -> Vec<ClientId> {
    let mut found = Vec::new();
    for client in clients {
        if !found.contains(&client) {
            found.push(client);
        }
    }
    found
}
