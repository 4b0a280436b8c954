//! Pushed messages of one server of a cluster.
//!
//! Wakes have a connection of their own. A server whose slot moves away ends subscriptions unasked, and
//! the driver takes that message for the reply to the request in flight: on the connection for steps
//! every later reply would go to the wrong step.

use std::sync::{Arc, Weak};

use clinch_core::{Error, ErrorKind};
use redis::{PushInfo, PushKind, Value};

use super::Cluster;
use crate::config::Address;
use crate::connection::{PushHandler, Session, Trouble};
use crate::wakes::PushRouter;

/// Handles messages on a connection for steps: events only.
#[derive(Debug)]
pub(crate) struct CommandPushes {
    pushes: Arc<PushRouter>,
    cluster: Weak<Cluster>,
}

impl CommandPushes {
    pub(crate) fn new(pushes: Arc<PushRouter>, cluster: Weak<Cluster>) -> Self {
        Self { pushes, cluster }
    }
}

impl PushHandler for CommandPushes {
    fn channels(&self) -> Vec<String> {
        self.pushes.channels()
    }

    fn handle(&self, push: PushInfo) {
        self.pushes.handle(push);
    }

    fn missed(&self) {}

    fn disconnected(&self) {
        // It may never come back, and another server may have taken its place.
        if self.pushes.events.watchers.is_watched()
            && let Some(cluster) = self.cluster.upgrade()
        {
            cluster.recover();
        }
    }

    fn is_needed(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.pushes.is_closed()
    }
}

/// Handles messages on a connection for wakes.
#[derive(Debug)]
struct WakePushes {
    pushes: Arc<PushRouter>,
    cluster: Weak<Cluster>,
    at: Address,
}

impl PushHandler for WakePushes {
    fn channels(&self) -> Vec<String> {
        Vec::new()
    }

    fn handle(&self, push: PushInfo) {
        if push.kind != PushKind::SUnsubscribe {
            self.pushes.handle(push);
        } else if let Some(cluster) = self.cluster.upgrade()
            && let Some(Value::BulkString(channel)) = push.data.first()
            && let Ok(channel) = std::str::from_utf8(channel)
        {
            cluster.wakes.ended(channel, &self.at);
        }
    }

    fn missed(&self) {}

    fn disconnected(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.wakes.lost(&self.at);
        }
    }

    fn is_needed(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.pushes.is_closed()
    }
}

/// The connection for wakes to one server.
#[derive(Debug)]
pub(crate) struct Listener {
    session: Arc<Session>,
    /// One request at a time, so that a reply can only belong to this one.
    busy: tokio::sync::Mutex<()>,
}

impl Listener {
    /// With a session that is made by `session` for these messages.
    pub(crate) fn new(
        at: &Address,
        pushes: &Arc<PushRouter>,
        cluster: Weak<Cluster>,
        session: impl FnOnce(Arc<dyn PushHandler>) -> Arc<Session>,
    ) -> Self {
        let pushes = WakePushes {
            pushes: pushes.clone(),
            cluster,
            at: at.clone(),
        };
        Self {
            session: session(Arc::new(pushes)),
            busy: tokio::sync::Mutex::default(),
        }
    }

    /// Subscribes to a channel of a slot; the server has it when this returns.
    pub(crate) async fn subscribe(&self, channel: &str, asking: bool) -> Result<(), Trouble> {
        let _busy = self.busy.lock().await;
        let live = self.session.live().await.map_err(Trouble::Ours)?;
        let mut cmd = redis::cmd("SSUBSCRIBE");
        cmd.arg(channel);
        let reply = match asking {
            false => self.session.query(&live, &cmd).await?,
            true => {
                let mut pipeline = redis::pipe();
                pipeline.cmd("ASKING").add_command(cmd);
                let reply = self
                    .session
                    .send(&live, &pipeline, self.session.limit(None))
                    .await?
                    .pop();
                let reply = reply.unwrap_or(Value::Nil).extract_error();
                reply.map_err(|error| self.session.trouble(&live, error))?
            }
        };
        match &reply {
            Value::Push { kind, data }
                if *kind == PushKind::SSubscribe && is_about(data, channel) =>
            {
                Ok(())
            }
            _ => {
                // An unexpected message came in between: this connection cannot be used any more.
                self.session.reset();
                Err(Trouble::Ours(Error::new(
                    ErrorKind::Unreachable,
                    format!("{} moves the slot of {channel}", live.server.address),
                )))
            }
        }
    }

    /// Ends a subscription, if a connection is open.
    pub(crate) async fn unsubscribe(&self, channel: &str) {
        let _busy = self.busy.lock().await;
        let Some(live) = self.session.current() else {
            return;
        };
        let mut cmd = redis::cmd("SUNSUBSCRIBE");
        cmd.arg(channel);
        // A failure ends the connection, and the subscription with it.
        let _ = self.session.query(&live, &cmd).await;
    }

    pub(crate) fn reset(&self) {
        self.session.reset();
    }
}

fn is_about(data: &[Value], channel: &str) -> bool {
    matches!(data.first(), Some(Value::BulkString(name)) if name == channel.as_bytes())
}
