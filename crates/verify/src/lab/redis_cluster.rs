//! A Redis cluster: three masters with a replica each.
//!
//! A grant counts when the replica has it (`wait=1`, the default, which is all of them): so exclusion
//! is promised across the loss of a master, and checked without an excuse. Places in the queue are not
//! waited for.

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
/// A replica that takes over knows nothing of a slot on its way: what is at the other master already is
/// not found.
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

const FAULTS: [EngineFault; 5] = [
    fault("master killed, a replica takes over", FORGETS_PLACES),
    fault("failover asked for", &[]),
    fault("replica killed, started again", &[]),
    fault("master paused", FORGETS_PLACES),
    fault("slot of a lock moved to another master", &[]),
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

    /// Begins to move the slot of some lock, and moves one of its keys.
    fn begin_move(&mut self, masters: &[usize], from: usize) -> Result<()> {
        let key = self.all.node(from)?.cli(&["RANDOMKEY"])?;
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
        let Some((slot, to)) = self.moving.take() else {
            return Ok(());
        };
        self.all.wait_ok()?;
        let still = self.all.node_of_slot(slot)? == self.victim && self.masters()?.0.contains(&to);
        self.aftermath.slots = Some(vec![(slot, slot)]);
        if still && self.all.migrate_slot(slot, self.victim, to).is_ok() {
            return Ok(());
        }
        self.aftermath.instead = Some(HALF_MOVED);
        self.all.end_moves().map(drop)
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
            KILL => {
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
        if !self.all.end_moves()?.is_empty() {
            self.aftermath = Aftermath {
                instead: Some(HALF_MOVED),
                ..Aftermath::default()
            };
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
