//! The servers, each an ordinary one.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Claim, Finding, Hold, Renewal, Severity};
use clinch_core::{Clock, Error, ErrorKind, Name, RequestId, Result, keeper};
use tokio::sync::mpsc;

use super::answers::Answers;
use crate::config::{Address, Config};
use crate::doctor;
use crate::group::{Coming, Group};
use crate::keys::Keys;
use crate::server::Server;
use crate::servers::Servers;
use crate::session::Session;
use crate::wakes::Ears;

/// For how long the rest is waited for when enough servers have been reached.
const GRACE: Duration = Duration::from_millis(200);

/// One of the servers.
#[derive(Debug)]
pub(crate) struct Node {
    address: Address,
    session: Arc<Session>,
    pub(crate) servers: Servers,
    group: Arc<Group>,
}

/// A step for some of them. What it says of late copies differs, because their clocks do.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Half a claim, packed.
    Half(Claim, Vec<u8>),
    /// A renewal, and how long its reply is waited for.
    Renew(Renewal, Duration),
    Release(Hold),
    Withdraw(RequestId),
    /// Anything else, packed.
    Other(Vec<u8>),
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) all: Vec<Node>,
    /// How many must agree.
    pub(crate) need: usize,
    pub(crate) keys: Keys,
    config: Arc<Config>,
    ears: Arc<Ears>,
}

impl Nodes {
    pub(crate) fn new(config: Arc<Config>, hosts: &[Address], need: usize, keys: Keys) -> Self {
        // Nobody is told of anything: there is no queue.
        let ears = Ears::new(String::new(), keys.events.clone());
        let node = |address: &Address| {
            let locate = Box::new(address.clone());
            let session = Session::new(config.clone(), locate, ears.clone());
            let servers = Servers::One(session.clone(), config.scheme);
            Node {
                address: address.clone(),
                group: Group::new(servers.clone(), &config, &keys),
                session,
                servers,
            }
        };
        Self {
            all: hosts.iter().map(node).collect(),
            need,
            keys,
            config,
            ears,
        }
    }

    /// Puts a step on its way to one server.
    pub(crate) fn send(&self, at: usize, name: &Name, step: &Step) -> Option<Coming> {
        let (group, key) = (&self.all.get(at)?.group, self.keys.state(name));
        Some(match step {
            Step::Half(claim, packed) => group.claim(key, claim, packed.clone()),
            Step::Renew(renewal, limit) => group.renew(key, renewal, *limit),
            Step::Release(hold) => group.release(key, hold),
            Step::Withdraw(request) => group.withdraw(key, *request),
            Step::Other(packed) => group.send(key, packed.clone(), true),
        })
    }

    /// Puts a step on its way to all servers, or to some.
    pub(crate) fn send_to(
        &self,
        name: &Name,
        mut step: impl FnMut(usize) -> Option<Step>,
    ) -> Answers {
        let coming = (0..self.all.len())
            .map(|at| step(at).and_then(|step| self.send(at, name, &step)))
            .collect();
        Answers::new(self.config.scheme, coming)
    }

    /// Puts a step on its way to all servers.
    pub(crate) fn send_all(&self, name: &Name, step: &Step) -> Answers {
        let coming = (0..self.all.len()).map(|at| self.send(at, name, step));
        Answers::new(self.config.scheme, coming.collect())
    }

    /// Connects to all servers; it takes `need` of them, and none that cannot keep locks.
    pub(crate) async fn connect(&self, clock: &Clock) -> Result<()> {
        let (told, mut hear) = mpsc::unbounded_channel();
        for node in &self.all {
            let (session, told) = (node.session.clone(), told.clone());
            keeper::spawn(async move {
                let live = session.live().await;
                // Nobody may wait for it any more.
                let _ = told.send(live.map(|live| live.server));
            })?;
        }
        drop(told);
        let mut reached: Vec<Arc<Server>> = Vec::new();
        let mut failed = None;
        loop {
            let heard = match reached.len() >= self.need {
                false => hear.recv().await,
                true => tokio::select! {
                    biased;
                    heard = hear.recv() => heard,
                    () = clock.sleep(GRACE) => None,
                },
            };
            match heard {
                Some(Ok(server)) => reached.push(server),
                Some(Err(error)) if error.is_temporary() => failed = Some(error),
                // What is set up wrongly does not get better by waiting.
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        different(&reached)?;
        match reached.len() >= self.need {
            true => Ok(()),
            false => Err(too_few(reached.len(), self, failed)),
        }
    }

    /// What `clinch doctor` says of them.
    pub(crate) async fn examine(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let mut reached = Vec::new();
        for node in &self.all {
            let looked = doctor::examine(&node.servers, &self.config, Some(&self.keys)).await;
            match looked {
                Ok(found) => findings.extend(found),
                Err(error) => findings.push(Finding {
                    severity: Severity::Warning,
                    subject: "server".into(),
                    message: format!("{} takes no part: {error}", node.address),
                    advice: Some("start it again".into()),
                }),
            }
            if let Ok(live) = node.session.live().await {
                reached.push(live.server);
            }
        }
        if let Err(error) = different(&reached) {
            findings.push(Finding {
                severity: Severity::Broken,
                subject: "quorum".into(),
                message: error.message().to_owned(),
                advice: error.advice().map(str::to_owned),
            });
        }
        if reached.len() < self.need {
            findings.push(Finding {
                severity: Severity::Broken,
                subject: "quorum".into(),
                message: too_few(reached.len(), self, None).message().to_owned(),
                advice: Some("nothing is granted before more of them are up".into()),
            });
        }
        Ok(findings)
    }

    /// Commands sent so far.
    pub(crate) fn commands(&self) -> u64 {
        self.all.iter().map(|node| node.session.commands()).sum()
    }

    pub(crate) fn close(&self) {
        self.ears.close();
        for node in &self.all {
            node.session.reset();
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.ears.close();
    }
}

/// Two names of one server would be counted as two servers.
fn different(servers: &[Arc<Server>]) -> Result<()> {
    for (at, server) in servers.iter().enumerate() {
        let twin = servers
            .iter()
            .skip(at + 1)
            .find(|other| !server.run().is_empty() && other.run() == server.run());
        if let Some(twin) = twin {
            let (one, other) = (&server.address, &twin.address);
            return Err(
                Error::invalid(format!("{one} and {other} are the same server"))
                    .with_advice("a quorum takes independent servers"),
            );
        }
    }
    Ok(())
}

/// Too few servers have answered.
pub(crate) fn too_few(answered: usize, nodes: &Nodes, why: Option<Error>) -> Error {
    let (all, need) = (nodes.all.len(), nodes.need);
    let text = format!("{answered} of {all} servers answer, and {need} are needed");
    match why {
        Some(why) => Error::new(ErrorKind::Unreachable, format!("{text}: {}", why.message()))
            .with_source(why),
        None => Error::new(ErrorKind::Unreachable, text),
    }
}
