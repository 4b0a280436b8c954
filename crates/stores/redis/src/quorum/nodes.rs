//! The independent servers.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Claim, Finding, Hold, Operations, Renewal, Severity};
use clinch_core::{Clock, Error, ErrorKind, Name, RequestId, Result, keeper};
use tokio::sync::mpsc;

use super::answers::Answers;
use crate::batch::{self, Batcher, Pending};
use crate::config::{Address, Config};
use crate::connection::{Server, Servers, Session};
use crate::doctor::{self, finding};
use crate::keys::Keys;
use crate::wakes::PushRouter;

/// How long the rest is awaited once enough servers are reached.
const GRACE: Duration = Duration::from_millis(200);

/// One of the servers.
#[derive(Debug)]
pub(crate) struct Node {
    address: Address,
    session: Arc<Session>,
    pub(crate) servers: Servers,
    batcher: Batcher,
}

/// A step for some of them. It is dated for each, because their clocks differ.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// The first phase of a claim, packed.
    Prepare(Claim, Vec<u8>),
    /// A renewal, and how long its reply is awaited.
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
    pushes: Arc<PushRouter>,
}

impl Nodes {
    pub(crate) fn new(
        config: Arc<Config>,
        hosts: &[Address],
        need: usize,
        keys: Keys,
        operations: &Operations,
    ) -> Self {
        // There is no queue, and there are no events.
        let pushes = PushRouter::new(String::new(), None);
        let node = |address: &Address| {
            let locate = Box::new(address.clone());
            let session = Session::new(config.clone(), locate, pushes.clone(), operations.clone());
            let servers = Servers::One(session.clone(), config.scheme);
            Node {
                address: address.clone(),
                batcher: Batcher::new(servers.clone(), &config, &keys),
                session,
                servers,
            }
        };
        Self {
            all: hosts.iter().map(node).collect(),
            need,
            keys,
            config,
            pushes,
        }
    }

    /// Sends a step to one server.
    pub(crate) fn send(&self, at: usize, name: &Name, step: &Step) -> Option<Pending> {
        let (batcher, key) = (&self.all.get(at)?.batcher, self.keys.state(name));
        Some(match step {
            Step::Prepare(claim, packed) => batcher.claim(key, claim, packed.clone()),
            Step::Renew(renewal, limit) => batcher.renew(key, renewal, *limit),
            Step::Release(hold) => batcher.release(key, hold),
            Step::Withdraw(request) => batcher.withdraw(key, *request),
            Step::Other(packed) => batcher.send(batch::Step::new(key, packed.clone(), true)),
        })
    }

    /// Sends a step to each server for which there is one.
    pub(crate) fn send_to(
        &self,
        name: &Name,
        mut step: impl FnMut(usize) -> Option<Step>,
    ) -> Answers {
        let pending = (0..self.all.len())
            .map(|at| step(at).and_then(|step| self.send(at, name, &step)))
            .collect();
        Answers::new(self.config.scheme, pending)
    }

    /// Sends a step to all servers.
    pub(crate) fn send_all(&self, name: &Name, step: &Step) -> Answers {
        let pending = (0..self.all.len()).map(|at| self.send(at, name, step));
        Answers::new(self.config.scheme, pending.collect())
    }

    /// Connects to all servers. `need` must be reachable, and none of these unfit to keep locks.
    pub(crate) async fn connect(&self, clock: &Clock) -> Result<()> {
        let (outcomes, mut opened) = mpsc::unbounded_channel();
        for node in &self.all {
            let (session, outcomes) = (node.session.clone(), outcomes.clone());
            keeper::spawn(async move {
                let live = session.live().await;
                // The receiver may have gone: enough servers were reached.
                let _ = outcomes.send(live.map(|live| live.connection.server));
            })?;
        }
        drop(outcomes);
        let mut reached: Vec<Arc<Server>> = Vec::new();
        let mut failed = None;
        loop {
            let outcome = match reached.len() >= self.need {
                false => opened.recv().await,
                true => tokio::select! {
                    biased;
                    outcome = opened.recv() => outcome,
                    () = clock.sleep(GRACE) => None,
                },
            };
            match outcome {
                Some(Ok(server)) => reached.push(server),
                Some(Err(error)) if error.is_temporary() => failed = Some(error),
                // A configuration error does not go away by waiting.
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

    /// The findings of `clinch doctor`.
    pub(crate) async fn examine(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let mut reached = Vec::new();
        for node in &self.all {
            let examined = doctor::examine(&node.servers, &self.config, Some(&self.keys)).await;
            match examined {
                Ok(found) => findings.extend(found),
                Err(error) => findings.push(finding(
                    Severity::Warning,
                    "server",
                    format!("{} takes no part: {error}", node.address),
                    "start it again",
                )),
            }
            if let Ok(live) = node.session.live().await {
                reached.push(live.connection.server);
            }
        }
        if let Err(error) = different(&reached) {
            findings.push(finding(
                Severity::Broken,
                "quorum",
                error.message().to_owned(),
                error.advice().unwrap_or_default(),
            ));
        }
        if reached.len() < self.need {
            findings.push(finding(
                Severity::Broken,
                "quorum",
                too_few(reached.len(), self, None).message().to_owned(),
                "nothing is granted until more of them are up",
            ));
        }
        Ok(findings)
    }

    pub(crate) fn close(&self) {
        self.pushes.close();
        for node in &self.all {
            node.session.reset();
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.pushes.close();
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

/// Too few servers have replied.
pub(crate) fn too_few(answered: usize, nodes: &Nodes, why: Option<Error>) -> Error {
    let (all, need) = (nodes.all.len(), nodes.need);
    let text = format!("{answered} of {all} servers answer, and {need} are needed");
    match why {
        Some(why) => Error::new(ErrorKind::Unreachable, format!("{text}: {}", why.message()))
            .with_source(why),
        None => Error::new(ErrorKind::Unreachable, text),
    }
}
