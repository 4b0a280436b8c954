//! A Redis cluster: three masters with a replica each.
//!
//! A grant counts when the replica has it (`wait=1`, the default, which is all of them): so exclusion
//! is promised across the loss of a master, and checked without an excuse. Places in the queue are not
//! waited for.
//!
//! A replica that takes over knows nothing of a slot that is on its way to another master. What comes of
//! that is excused for that slot, and for no other.

use std::net::SocketAddr;
use std::time::Duration;

use clinch::Result;
use clinch_testkit::servers::{Cluster as Servers, Redis as Server};

use super::redis::{lasting, version};
use super::{Aftermath, Engine, EngineFault, fault};
use crate::check::Property;
use crate::history::now;

/// The new master may not know the last places in a queue.
const FORGETS_PLACES: &[Property] = &[Property::Fifo];
/// What is at the other master already is not found.
const HALF_MOVED: EngineFault = fault(
    "slot half moved when its master failed over",
    &[
        Property::Exclusion,
        Property::Fifo,
        Property::Idempotence,
        Property::FalseLoss,
        Property::TokenOrder,
        Property::Fencing,
    ],
);

const KILL: usize = 0;
const ASK: usize = 1;
const KILL_REPLICA: usize = 2;
const PAUSE: usize = 3;
const MOVE: usize = 4;
const KILL_MOVING: usize = 5;

pub(super) const FAULTS: [EngineFault; 6] = [
    fault("master killed, a replica takes over", FORGETS_PLACES),
    fault("failover asked for", &[]),
    fault("replica killed, started again", &[]),
    fault("master paused", FORGETS_PLACES),
    fault("slot of a lock moved to another master", &[]),
    HALF_MOVED,
];

/// The first slots of the three masters: whoever has them is a master.
const SHARES: [u16; 3] = [0, 5500, 11_000];

pub(super) struct Cluster {
    all: Servers,
    /// The node that is disturbed, by its number.
    victim: usize,
    /// A slot that is on its way, and to whom.
    moving: Option<(u16, usize)>,
    /// How many faults there were: each takes the next master.
    turn: usize,
    /// Who had which share when the fault began.
    before: Vec<usize>,
    aftermath: Aftermath,
}

impl Cluster {
    pub(super) fn start() -> Result<Self> {
        Ok(Self {
            // A master that is back before a failover must know what it knew. A busy machine must not take
            // masters for dead that are not.
            all: Servers::start_with(|node| lasting(node).config("cluster-node-timeout", "3000"))?,
            victim: 0,
            moving: None,
            turn: 0,
            before: Vec::new(),
            aftermath: Aftermath::default(),
        })
    }

    /// The masters, and which of them has its turn.
    fn masters(&self) -> Result<(Vec<usize>, usize)> {
        let masters: Result<Vec<_>> = SHARES.iter().map(|s| self.all.node_of_slot(*s)).collect();
        let masters = masters?;
        let chosen = masters.get(self.turn % SHARES.len()).copied();
        Ok((masters, chosen.unwrap_or(0)))
    }

    /// The replica of a master: of each pair, nodes i and i + 3, one has the slots.
    fn replica(master: usize) -> usize {
        (master + SHARES.len()) % (2 * SHARES.len())
    }

    fn victim(&self) -> Result<&Server> {
        self.all.node(self.victim)
    }

    /// The key of a lock of this master: every other time of one that is held for long, if it has one.
    fn some_key(&self, master: usize) -> Result<String> {
        let node = self.all.node(master)?;
        let long = match self.turn.is_multiple_of(2) {
            true => node.command(&["KEYS", "*/long/*"])?.texts(),
            false => Vec::new(),
        };
        match long.into_iter().next() {
            Some(key) => Ok(key),
            None => node.cli(&["RANDOMKEY"]),
        }
    }

    /// Begins to move the slot of some lock, and moves one of its keys.
    fn begin_move(&mut self, masters: &[usize], from: usize) -> Result<()> {
        let key = self.some_key(from)?;
        let to = masters.iter().copied().find(|node| *node != from);
        let Some(to) = to.filter(|_| !key.is_empty()) else {
            return Ok(());
        };
        let slot = self.all.slot_of(&key);
        let migration = self.all.begin_migration(slot, from, to)?;
        migration.move_some(1)?;
        self.victim = from;
        self.moving = Some((slot, to));
        Ok(())
    }

    /// Moves the rest, and gives the slot away. Where one of the two masters failed over meanwhile, the
    /// slot stays with its owner.
    fn end_move(&mut self) -> Result<()> {
        let Some((slot, to)) = self.moving else {
            return Ok(());
        };
        if self.all.node_of_slot(slot)? != self.victim {
            self.aftermath.slots = Some(vec![(slot, slot)]);
            return self.stop_taking();
        }
        self.moving = None;
        self.all.wait_ok()?;
        let still = self.all.node_of_slot(slot)? == self.victim && self.masters()?.0.contains(&to);
        self.aftermath.slots = Some(vec![(slot, slot)]);
        if still && self.all.migrate_slot(slot, self.victim, to).is_ok() {
            return Ok(());
        }
        self.repair(Some(slot))
    }

    /// A master that takes a slot over believes in the old owner of it, and calls the cluster down when that one
    /// has failed, until it is told to stop.
    fn stop_taking(&self) -> Result<()> {
        let Some((slot, to)) = self.moving else {
            return Ok(());
        };
        // Waits until the slot has an owner that is well.
        self.all.node_of_slot(slot)?;
        let slot = slot.to_string();
        let stable = ["CLUSTER", "SETSLOT", slot.as_str(), "STABLE"];
        self.all.node(to)?.cli(&stable).map(drop)
    }

    /// Finds the slot again that was half moved: only a master that takes it over gives its keys back.
    fn take_back(&mut self) -> Result<()> {
        let Some((slot, to)) = self.moving.take() else {
            return self.repair(None);
        };
        let owner = self.all.id(self.all.node_of_slot(slot)?)?;
        let name = slot.to_string();
        // It is refused to one that has the slot, or is no master any more: that has nothing to give.
        let _ = self
            .all
            .node(to)?
            .cli(&["CLUSTER", "SETSLOT", &name, "IMPORTING", owner]);
        self.repair(Some(slot))
    }

    /// Ends what is half moved, as an operator would do it, and says which slots that were.
    fn repair(&mut self, known: Option<u16>) -> Result<()> {
        let mut slots = self.all.end_moves()?;
        slots.extend(known);
        slots.sort_unstable();
        slots.dedup();
        if !slots.is_empty() {
            let slots = slots.into_iter().map(|slot| (slot, slot)).collect();
            self.aftermath.beside = Some((HALF_MOVED, slots));
        }
        Ok(())
    }

    /// The master dies while a slot of it is half moved.
    fn kill_moving(&mut self, masters: &[usize], master: usize) -> Result<()> {
        self.begin_move(masters, master)?;
        self.victim = master;
        // Of the rest of its slots it is the loss of a master like any other. The other one answers nobody
        // as long as it takes the slot over from a master that has failed.
        self.aftermath.instead = FAULTS.get(KILL).copied();
        if let (Some((_, to)), Some(slots)) = (self.moving, &mut self.aftermath.slots) {
            slots.extend(self.all.slots_of(to)?);
        }
        self.victim()?.kill()
    }
}

impl Engine for Cluster {
    fn url(&self) -> String {
        self.all.url()
    }

    fn faults(&self) -> Vec<EngineFault> {
        FAULTS.to_vec()
    }

    fn begin(&mut self, fault: usize, _span: Duration) -> Result<Option<EngineFault>> {
        self.turn += 1;
        let (masters, master) = self.masters()?;
        let replica = Self::replica(master);
        self.before.clone_from(&masters);
        self.aftermath = Aftermath {
            slots: Some(self.all.slots_of(master)?),
            ..Aftermath::default()
        };
        self.victim = match fault {
            KILL | PAUSE => master,
            _ => replica,
        };
        match fault {
            KILL | KILL_REPLICA => self.victim()?.kill()?,
            PAUSE => self.victim()?.pause()?,
            ASK => self.victim()?.cli(&["CLUSTER", "FAILOVER"]).map(drop)?,
            MOVE => self.begin_move(&masters, master)?,
            KILL_MOVING => self.kill_moving(&masters, master)?,
            _ => {}
        }
        if fault == MOVE {
            return Ok(None);
        }
        // What the old master had not passed on is forgotten at this moment, not later.
        self.aftermath.excused_until = Some(now());
        Ok(None)
    }

    fn end(&mut self, fault: usize) -> Result<()> {
        match fault {
            KILL | KILL_MOVING => {
                self.stop_taking()?;
                // It is back when its replica has its place, so that it has to give way.
                self.all.wait_ok()?;
                self.victim()?.start_again()?;
            }
            KILL_REPLICA => self.victim()?.start_again()?,
            PAUSE => self.victim()?.resume()?,
            MOVE => self.end_move()?,
            _ => {}
        }
        self.all.wait_ok()?;
        if self.aftermath.beside.is_none() {
            self.take_back()?;
        }
        let master = self.before.get(self.turn % SHARES.len());
        let others = |(of, now): (&usize, usize)| Some(of) != master && *of != now;
        if self.before.iter().zip(self.masters()?.0).any(others) {
            // Another master failed over as well: a busy machine let it wait too long.
            self.aftermath.slots = None;
            self.aftermath.excused_until = None;
        }
        self.all.wait_synced()
    }

    fn aftermath(&mut self) -> Aftermath {
        self.aftermath.clone()
    }

    fn servers(&self) -> Vec<SocketAddr> {
        let nodes = self.all.nodes().iter();
        nodes.map(|n| (n.address(), n.port()).into()).collect()
    }

    fn version(&self) -> String {
        let version = self.victim().map(version).unwrap_or_default();
        format!("{version}, a cluster of 3 masters and 3 replicas")
    }
}
