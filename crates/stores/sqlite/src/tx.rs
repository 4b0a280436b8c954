//! One transaction: the steps of several operations, and what others are to be told of them.

use std::fs::File;
use std::path::Path;

use clinch_core::machine::{NameState, Outcome, Woken};
use clinch_core::store::Event;
use clinch_core::{BootTime, ClientId, ClientInfo, Clock, Name};
use rusqlite::Connection;

use crate::cache::Cache;
use crate::dead;
use crate::error::Step;
use crate::mine::Mine;
use crate::renewals;
use crate::rows::NameRow;
use crate::sequence::{self, Numbers, key};
use crate::session::{Life, Sessions};

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
    /// Claims of this client that may be at the store: what `close` has to end.
    pub(crate) mine: &'a mut Mine,
    /// What to tell after the commit.
    pub(crate) news: News,
}

/// What a transaction did that others want to know.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Queued claims that were granted.
    pub(crate) woken: Vec<Woken>,
    /// What happened, in order.
    pub(crate) events: Vec<Event>,
    /// Clients that were found dead: their session files go after the commit.
    pub(crate) died: Vec<ClientId>,
    /// Files of clients that were found dead, kept so that nobody else removes them before the commit.
    pub(crate) held: Vec<File>,
    /// Clients that watch events: filled in when the events are written.
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
    /// Clients whose death was noticed just now.
    died: Vec<ClientId>,
}

impl Tx<'_> {
    /// Applies a step to one name, and writes what it changed.
    pub(crate) fn on_name<T>(
        &mut self,
        name: &Name,
        step: impl FnOnce(&mut Scope<'_>) -> T,
    ) -> Step<T> {
        let row = match self.cache.take(name) {
            Some(row) => row,
            None => NameRow::load(self.db, self.path, self.ns, name)?,
        };
        self.on_row(row, step)
    }

    /// Applies a step to a name that has been loaded, and writes what it changed.
    pub(crate) fn on_row<T>(
        &mut self,
        mut row: NameRow,
        step: impl FnOnce(&mut Scope<'_>) -> T,
    ) -> Step<T> {
        let floor = match row.is_new() {
            true => sequence::number(self.db, key::FLOOR)?,
            false => 0,
        };
        // Read before the renewals of others are: see `beats.rs`.
        let now = self.clock.now();
        renewals::take_up(&mut row.state, now, self.db, self.sessions)?;
        let mut scope = Scope {
            state: &mut row.state,
            now,
            out: Outcome::default(),
            numbers: self.numbers,
            floor,
            db: self.db,
            sessions: self.sessions,
            died: Vec::new(),
        };
        let reply = step(&mut scope);
        scope.bury_granted();
        let Scope { out, died, .. } = scope;
        dead::remember(self.db, &died)?;
        self.news.died.extend(died);
        row.save(self.db, self.ns)?;
        if !row.is_new() {
            self.cache.put(row);
        }
        self.news.woken.extend(out.granted);
        self.news.events.extend(out.events);
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
    pub(crate) fn bury_holders(&mut self) -> bool {
        let holders = self.state.entries.iter().filter(|e| e.seq().is_some());
        let clients = distinct(holders.map(|e| &*e.client));
        self.bury(&clients)
    }

    /// Ends every claim whose process has died; `true` if there were any.
    pub(crate) fn bury_all(&mut self) -> bool {
        let clients = distinct(self.state.entries.iter().map(|e| &*e.client));
        self.bury(&clients)
    }

    /// A grant must not go to the dead: whoever is next would have to find out by itself.
    fn bury_granted(&mut self) {
        loop {
            let granted = &self.out.granted;
            let fresh = |request| granted.iter().any(|woken| woken.request == request);
            let entries = self.state.entries.iter().filter(|e| fresh(e.request));
            let clients = distinct(entries.map(|e| &*e.client));
            if !self.bury(&clients) {
                return;
            }
        }
    }

    fn is_dead(&mut self, client: ClientId) -> bool {
        match self.sessions.look(client) {
            Life::Alive => false,
            Life::Dead => {
                self.died.push(client);
                true
            }
            // Who cannot be asked is not declared dead: the lease is the net.
            Life::Unknown => {
                self.died.contains(&client) || dead::is_known(self.db, client).unwrap_or(false)
            }
        }
    }

    fn bury(&mut self, clients: &[ClientInfo]) -> bool {
        let mut any = false;
        for client in clients {
            if self.is_dead(client.id) {
                any = true;
                self.step(|state, now, seq, out| state.client_died(client.id, now, seq, out));
                self.out.granted.retain(|woken| woken.client != client.id);
            }
        }
        any
    }
}

fn distinct<'a>(clients: impl Iterator<Item = &'a ClientInfo>) -> Vec<ClientInfo> {
    let mut found: Vec<ClientInfo> = Vec::new();
    for client in clients {
        if !found.iter().any(|known| known.id == client.id) {
            found.push(client.clone());
        }
    }
    found
}
