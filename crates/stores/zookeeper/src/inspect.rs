//! What is there: lists, views, checks, and breaking holds.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Evicted, Freshness, LockView, PartyView};
use clinch_core::{ClientId, Name, OwnerId, Result, Token};
use zookeeper_client::{Error as Zk, Stat};

use crate::core::Core;
use crate::error::sending;
use crate::leave::{self, Victim};
use crate::places::{Child, Line};
use crate::record::{How, Record, Word};

/// Requests in one flight.
const FLIGHT: usize = 256;

/// A child with its data.
#[derive(Debug, Clone)]
pub(crate) struct Party {
    pub(crate) child: Child,
    /// `None` for a node of another library.
    pub(crate) record: Option<Record>,
    data: Vec<u8>,
    stat: Stat,
}

impl Party {
    pub(crate) fn seq(&self) -> u64 {
        let moved = self.record.as_ref().and_then(|record| record.seq);
        moved.unwrap_or_else(|| u64::try_from(self.stat.czxid).unwrap_or_default())
    }

    pub(crate) fn owner(&self) -> OwnerId {
        match &self.record {
            Some(record) => OwnerId::new(record.owner.as_str()),
            // Curator writes the address of its machine.
            None => OwnerId::new(String::from_utf8_lossy(&self.data).into_owned()),
        }
    }

    fn view(&self, core: &Core, holds: bool) -> PartyView {
        let record = self.record.as_ref();
        let own = self
            .child
            .request()
            .and_then(|request| core.book.find(request));
        let lease_left = match (&own, record) {
            (Some(entry), _) => entry.state().until.since(core.clock.now()),
            // Only its own client knows when it was renewed.
            (None, Some(record)) => Duration::from_millis(record.lease),
            (None, None) => Duration::MAX,
        };
        let client = record.and_then(Record::client_id);
        let mut view = PartyView::new(self.owner(), client.unwrap_or(ClientId::from_u64(0)));
        if let Some(record) = record {
            view.host.clone_from(&record.host);
            view.pid = record.pid;
            view.label.clone_from(&record.label);
            view.value.clone_from(&record.value);
        }
        view.units = self.child.place.units;
        view.token = Token::new(self.seq(), 0).filter(|_| holds);
        view.age = core.age(&self.stat);
        view.lease_left = lease_left;
        view
    }
}

/// Everybody in line for a name, in order, and how many of them hold.
pub(crate) struct Parties {
    pub(crate) all: Vec<Party>,
    pub(crate) holders: usize,
}

impl Parties {
    fn view(&self, core: &Core, name: &Name) -> Option<LockView> {
        let delay = |party: &Party| {
            let record = party.record.as_ref()?;
            let whole = record.lock_delay() + core.sessions.config.tick;
            // Its node may live a moment longer.
            let least = Duration::from_millis(1);
            let mut view = party.view(core, true);
            view.lease_left = whole.saturating_sub(core.age(&party.stat)).max(least);
            Some(view)
        };
        let delayed = self.all.iter().filter(|party| party.child.delayed);
        let live = |(at, party): (usize, &Party)| {
            let holds = at < self.holders;
            (!party.child.delayed).then(|| (holds, party.view(core, holds)))
        };
        let (holders, waiters): (Vec<_>, Vec<_>) = self
            .all
            .iter()
            .enumerate()
            .filter_map(live)
            .partition(|(holds, _)| *holds);
        let first = self.all.iter().find(|party| !party.child.delayed);
        let first = first.or(self.all.first())?;
        let bare =
            |views: Vec<(bool, PartyView)>| views.into_iter().map(|(_, view)| view).collect();
        let mut view = LockView::new(name.clone(), first.child.place.limit);
        view.holders = bare(holders);
        view.waiters = bare(waiters);
        view.delayed = delayed.filter_map(delay).collect();
        Some(view)
    }

    /// Those that hold.
    fn holding(self) -> impl Iterator<Item = Party> {
        let holders = self.holders;
        let all = self.all.into_iter().take(holders);
        all.filter(|party| !party.child.delayed)
    }
}

/// Reads the folders of some names, in as few flights as possible.
///
/// A folder in which something else lies is an error of its own.
pub(crate) async fn read(core: &Arc<Core>, names: &[Name]) -> Result<Vec<Result<Parties>>> {
    let base = core.sessions.base().await?;
    let mut all = Vec::with_capacity(names.len());
    for names in names.chunks(FLIGHT) {
        let folders: Vec<_> = names.iter().map(|name| core.paths.folder(name)).collect();
        let listings = async {
            let client = base.client(1 + folders.len() as u64)?;
            // Through the leader: what was committed before this call is seen.
            let synced = client.sync(core.paths.root());
            let asked: Vec<_> = folders.iter().map(|f| client.get_children(f)).collect();
            base.within(synced).await??;
            let mut listings = Vec::with_capacity(asked.len());
            for listing in asked {
                listings.push(match base.within(listing).await? {
                    Ok((children, _)) => children,
                    Err(Zk::NoNode) => Vec::new(),
                    Err(error) => return Err(error),
                });
            }
            Ok(listings)
        };
        let listings = listings.await.map_err(sending)?;
        for (folder, listing) in folders.iter().zip(listings) {
            all.push(match Line::read(&listing) {
                Ok(line) => Ok(fill(&base, folder, line).await.map_err(sending)?),
                Err(error) => Err(error),
            });
        }
    }
    Ok(all)
}

/// Reads the data of everybody in line.
async fn fill(base: &crate::session::Session, folder: &str, line: Line) -> Result<Parties, Zk> {
    let mut all = Vec::with_capacity(line.children.len());
    for children in line.children.chunks(FLIGHT) {
        let client = base.client(children.len() as u64)?;
        let asked: Vec<_> = children
            .iter()
            .map(|child| client.get_data(&format!("{folder}/{}", child.name)))
            .collect();
        for (child, asked) in children.iter().zip(asked) {
            match base.within(asked).await? {
                Ok((data, stat)) => all.push(Party {
                    child: child.clone(),
                    record: Record::read(&data),
                    data,
                    stat,
                }),
                // It has gone meanwhile.
                Err(Zk::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let places = all.iter().map(|party: &Party| party.child.place);
    let holders = clinch_core::store::fifo::holders(0, places);
    Ok(Parties { all, holders })
}

async fn one(core: &Arc<Core>, name: &Name) -> Result<Option<Parties>> {
    let mut found = read(core, std::slice::from_ref(name)).await?;
    found.pop().transpose()
}

/// One name.
pub(crate) async fn view(core: &Arc<Core>, name: &Name) -> Result<Option<LockView>> {
    let parties = one(core, name).await?;
    Ok(parties.and_then(|parties| parties.view(core, name)))
}

/// The names that have a folder.
pub(crate) async fn names(core: &Arc<Core>, prefix: &str) -> Result<Vec<Name>> {
    let base = core.sessions.base().await?;
    let root = core.paths.root();
    let listed = async {
        let client = base.client(2)?;
        let synced = client.sync(root);
        let listed = client.get_children(root);
        let (synced, listed) = base.within(async { tokio::join!(synced, listed) }).await?;
        synced?;
        listed
    };
    let folders = match listed.await {
        Ok((folders, _)) => folders,
        Err(Zk::NoNode) => Vec::new(),
        Err(error) => return Err(sending(error)),
    };
    let names = folders.iter().filter_map(|folder| core.paths.name(folder));
    let mut names: Vec<_> = names
        .filter(|name| name.as_str().starts_with(prefix))
        .collect();
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    Ok(names)
}

/// All names that start so.
pub(crate) async fn list(core: &Arc<Core>, prefix: &str) -> Result<Vec<LockView>> {
    let names = names(core, prefix).await?;
    let parties = read(core, &names).await?;
    let views = names.iter().zip(parties);
    Ok(views
        .filter_map(|(name, parties)| parties.ok()?.view(core, name))
        .collect())
}

/// Whether a number is a current grant.
pub(crate) async fn check(core: &Arc<Core>, name: &Name, seq: u64) -> Result<Freshness> {
    let parties = one(core, name).await?;
    let mut holding = parties.into_iter().flat_map(Parties::holding);
    Ok(match holding.any(|party| party.seq() == seq) {
        true => Freshness::Current,
        false => Freshness::Stale,
    })
}

/// Breaks holds.
pub(crate) async fn evict(core: &Arc<Core>, name: &Name, seq: Option<u64>) -> Result<Evicted> {
    let mut evicted = Evicted::default();
    let Some(parties) = one(core, name).await? else {
        return Ok(evicted);
    };
    let meant = |party: &Party| seq.is_none_or(|seq| seq == party.seq());
    let is_delay = |party: &&Party| party.child.delayed;
    let delays: Vec<_> = parties.all.iter().filter(is_delay).cloned().collect();
    let holding: Vec<_> = parties.holding().collect();
    if seq.is_some() || holding.is_empty() {
        for party in delays.iter().filter(|party| meant(party)) {
            let path = format!("{}/{}", core.paths.folder(name), party.child.name);
            if leave::end_delay(core, &path).await? {
                evicted.delays.push(party.seq());
            }
        }
    }
    for party in holding.into_iter().filter(meant) {
        let held = party.seq();
        let request = party.child.request();
        let victim = Victim {
            word: Word {
                request: request
                    .map(|request| request.to_string())
                    .unwrap_or_default(),
                number: party.child.number,
                seq: held,
                owner: party.owner().as_str().to_owned(),
                ending: How::Evicted,
                delayed: false,
                record: party.record.clone(),
                before: None,
            },
            lock_delay: party
                .record
                .as_ref()
                .map(Record::lock_delay)
                .unwrap_or_default(),
            data: party.data,
            child: party.child,
        };
        if leave::evict(core, &core.paths.folder(name), victim).await? {
            evicted.seqs.push(held);
        }
    }
    Ok(evicted)
}
