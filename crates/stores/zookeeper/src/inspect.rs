//! Reads locks: lists, views and checks.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Freshness, LockView, PartyView, fifo};
use clinch_core::{ClientId, Name, OwnerId, Result, Token};
use zookeeper_client::{Error as Zk, Stat};

use crate::client::Client;
use crate::connection::Session;
use crate::error::request_error;
use crate::keys::Child;
use crate::queue::Queue;
use crate::record::Record;

/// Requests that are sent before their replies are read.
const PIPELINE: usize = 256;

/// A child with its data.
#[derive(Debug, Clone)]
pub(crate) struct Party {
    pub(crate) child: Child,
    /// `None` for a node of another library.
    pub(crate) record: Option<Record>,
    pub(crate) data: Vec<u8>,
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

    fn view(&self, client: &Client, holds: bool) -> PartyView {
        let record = self.record.as_ref();
        let id = record.and_then(Record::client_id);
        let mut view = PartyView::new(self.owner(), id.unwrap_or(ClientId::from_u64(0)));
        if let Some(record) = record {
            view.host.clone_from(&record.host);
            view.pid = record.pid;
            view.label.clone_from(&record.label);
            view.value.clone_from(&record.value);
            // An upper bound: only its own client has the time of the latest renewal.
            view.lease_left = Duration::from_millis(record.lease);
        }
        let request = self.child.request();
        if let Some(own) = request.and_then(|request| client.ledger.get(request)) {
            view.lease_left = own.state().deadline.since(client.clock.now());
        }
        view.units = self.child.place.units;
        view.token = Token::new(self.seq(), 0).filter(|_| holds);
        view.age = client.age(&self.stat);
        view
    }

    /// The view of a lock-delay; `None` for a node of another library.
    fn delay_view(&self, client: &Client) -> Option<PartyView> {
        let delay = self.record.as_ref()?.lock_delay() + client.sessions.config.tick;
        // Its node may exist a moment longer.
        let least = Duration::from_millis(1);
        let mut view = self.view(client, true);
        view.lease_left = delay.saturating_sub(client.age(&self.stat)).max(least);
        Some(view)
    }
}

/// All claims of a name in order.
pub(crate) struct Parties {
    pub(crate) all: Vec<Party>,
    /// The number of claims at the front that hold.
    holders: usize,
}

impl Parties {
    fn view(&self, client: &Client, name: &Name) -> Option<LockView> {
        let is_live = |party: &&Party| !party.child.is_delay;
        let first = self.all.iter().find(is_live).or(self.all.first())?;
        let mut view = LockView::new(name.clone(), first.child.place.limit);
        for (at, party) in self.all.iter().enumerate() {
            let holds = at < self.holders;
            if party.child.is_delay {
                view.delayed.extend(party.delay_view(client));
            } else if holds {
                view.holders.push(party.view(client, true));
            } else {
                view.waiters.push(party.view(client, false));
            }
        }
        Some(view)
    }

    pub(crate) fn into_holders(self) -> impl Iterator<Item = Party> {
        let holders = self.all.into_iter().take(self.holders);
        holders.filter(|party| !party.child.is_delay)
    }

    pub(crate) fn delays(&self) -> impl Iterator<Item = &Party> {
        self.all.iter().filter(|party| party.child.is_delay)
    }
}

/// Reads the folders of these names in as few round trips as possible.
///
/// A folder with foreign nodes has an error of its own.
pub(crate) async fn read(client: &Arc<Client>, names: &[Name]) -> Result<Vec<Result<Parties>>> {
    let base = client.sessions.base().await?;
    let mut all = Vec::with_capacity(names.len());
    for names in names.chunks(PIPELINE) {
        let folders: Vec<_> = names.iter().map(|name| client.paths.folder(name)).collect();
        let listings = list_folders(&base, client.paths.root(), &folders).await;
        for (folder, listing) in folders.iter().zip(listings.map_err(request_error)?) {
            all.push(match Queue::parse(&listing) {
                Ok(queue) => Ok(read_nodes(&base, folder, queue)
                    .await
                    .map_err(request_error)?),
                Err(error) => Err(error),
            });
        }
    }
    Ok(all)
}

async fn list_folders(
    base: &Session,
    root: &str,
    folders: &[String],
) -> Result<Vec<Vec<String>>, Zk> {
    let driver = base.driver(1 + folders.len() as u64)?;
    // Through the leader: the listings have all that was committed before this call.
    let synced = driver.sync(root);
    let requests: Vec<_> = folders.iter().map(|f| driver.get_children(f)).collect();
    base.with_timeout(synced).await??;
    let mut listings = Vec::with_capacity(requests.len());
    for listing in requests {
        listings.push(match base.with_timeout(listing).await? {
            Ok((children, _)) => children,
            Err(Zk::NoNode) => Vec::new(),
            Err(error) => return Err(error),
        });
    }
    Ok(listings)
}

/// Reads the data of all nodes of a queue.
async fn read_nodes(base: &Session, folder: &str, queue: Queue) -> Result<Parties, Zk> {
    let mut all = Vec::with_capacity(queue.children.len());
    for children in queue.children.chunks(PIPELINE) {
        let driver = base.driver(children.len() as u64)?;
        let requests: Vec<_> = children
            .iter()
            .map(|child| driver.get_data(&format!("{folder}/{}", child.name)))
            .collect();
        for (child, data) in children.iter().zip(requests) {
            match base.with_timeout(data).await? {
                Ok((data, stat)) => all.push(Party {
                    child: child.clone(),
                    record: Record::read(&data),
                    data,
                    stat,
                }),
                // It was deleted after the listing.
                Err(Zk::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let holders = fifo::holders(0, all.iter().map(|party: &Party| party.child.place));
    Ok(Parties { all, holders })
}

/// All claims of one name.
pub(crate) async fn parties(client: &Arc<Client>, name: &Name) -> Result<Option<Parties>> {
    let mut found = read(client, std::slice::from_ref(name)).await?;
    found.pop().transpose()
}

/// Handles [`Admin::inspect`](clinch_core::store::Admin::inspect).
pub(crate) async fn inspect(client: &Arc<Client>, name: &Name) -> Result<Option<LockView>> {
    let parties = parties(client, name).await?;
    Ok(parties.and_then(|parties| parties.view(client, name)))
}

/// The names that have a folder and start with `prefix`, in byte order.
pub(crate) async fn names(client: &Arc<Client>, prefix: &str) -> Result<Vec<Name>> {
    let base = client.sessions.base().await?;
    let root = client.paths.root();
    let listing = async {
        let driver = base.driver(2)?;
        let (synced, listing) = (driver.sync(root), driver.get_children(root));
        let replies = async { tokio::join!(synced, listing) };
        let (synced, listing) = base.with_timeout(replies).await?;
        synced?;
        listing
    };
    let folders = match listing.await {
        Ok((folders, _)) => folders,
        Err(Zk::NoNode) => Vec::new(),
        Err(error) => return Err(request_error(error)),
    };
    let names = folders
        .iter()
        .filter_map(|folder| client.paths.name(folder));
    let mut names: Vec<_> = names
        .filter(|name| name.as_str().starts_with(prefix))
        .collect();
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    Ok(names)
}

/// Handles [`Admin::list`](clinch_core::store::Admin::list).
pub(crate) async fn list(client: &Arc<Client>, prefix: &str) -> Result<Vec<LockView>> {
    let names = names(client, prefix).await?;
    let parties = read(client, &names).await?;
    let views = names.iter().zip(parties);
    Ok(views
        .filter_map(|(name, parties)| parties.ok()?.view(client, name))
        .collect())
}

/// Handles [`Store::check`](clinch_core::store::Store::check).
pub(crate) async fn check(client: &Arc<Client>, name: &Name, seq: u64) -> Result<Freshness> {
    let parties = parties(client, name).await?;
    let mut holders = parties.into_iter().flat_map(Parties::into_holders);
    Ok(match holders.any(|party| party.seq() == seq) {
        true => Freshness::Current,
        false => Freshness::Stale,
    })
}
