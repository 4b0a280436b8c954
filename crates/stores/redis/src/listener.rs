//! What is heard from one server of a cluster.
//!
//! Wakes have a connection of their own. A server that gives a slot away ends subscriptions without
//! having been asked to, and the driver takes such a word for the reply to whatever is under way: on
//! the connection for steps every later reply would go to the wrong step.

use std::sync::{Arc, Weak};

use clinch_core::{Error, ErrorKind};
use redis::{PushInfo, PushKind, Value};

use crate::cluster::Cluster;
use crate::config::{Address, Config};
use crate::session::{Listen, Session, Trouble};
use crate::wakes::Ears;

/// Hears on a connection for steps: events only.
#[derive(Debug)]
pub(crate) struct CommandEars {
    ears: Arc<Ears>,
    cluster: Weak<Cluster>,
}

impl CommandEars {
    pub(crate) fn new(ears: Arc<Ears>, cluster: Weak<Cluster>) -> Self {
        Self { ears, cluster }
    }
}

impl Listen for CommandEars {
    fn channels(&self) -> Vec<String> {
        self.ears.channels()
    }

    fn hear(&self, push: PushInfo) {
        self.ears.hear(push);
    }

    fn missed(&self) {}

    fn disconnected(&self) {
        // It may never come back, and another server have taken its place.
        if self.ears.watchers.any()
            && let Some(cluster) = self.cluster.upgrade()
        {
            cluster.mend();
        }
    }

    fn is_needed(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.ears.is_closed()
    }
}

/// Hears on a connection for wakes.
#[derive(Debug)]
struct ShardEars {
    ears: Arc<Ears>,
    cluster: Weak<Cluster>,
    at: Address,
}

impl Listen for ShardEars {
    fn channels(&self) -> Vec<String> {
        Vec::new()
    }

    fn hear(&self, push: PushInfo) {
        if push.kind != PushKind::SUnsubscribe {
            self.ears.hear(push);
        } else if let Some(cluster) = self.cluster.upgrade()
            && let Some(Value::BulkString(channel)) = push.data.first()
            && let Ok(channel) = std::str::from_utf8(channel)
        {
            cluster.shards.ended(channel, &self.at);
        }
    }

    fn missed(&self) {}

    fn disconnected(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.shards.lost(&self.at);
        }
    }

    fn is_needed(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.ears.is_closed()
    }
}

/// The connection for wakes to one server.
#[derive(Debug)]
pub(crate) struct Listener {
    session: Arc<Session>,
    /// One word at a time, so that a reply can only be that of this word.
    busy: tokio::sync::Mutex<()>,
}

impl Listener {
    pub(crate) fn new(
        config: &Arc<Config>,
        at: &Address,
        ears: &Arc<Ears>,
        cluster: Weak<Cluster>,
    ) -> Self {
        let ears = ShardEars {
            ears: ears.clone(),
            cluster,
            at: at.clone(),
        };
        Self {
            session: Session::new(config.clone(), Box::new(at.clone()), Arc::new(ears)),
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
                // A word that nobody asked for came in between: this connection is of no more use.
                self.session.reset();
                Err(Trouble::Ours(Error::new(
                    ErrorKind::Unreachable,
                    format!("{} moves the slot of {channel}", live.server.address),
                )))
            }
        }
    }

    /// Ends a subscription, as far as there is a connection.
    pub(crate) async fn unsubscribe(&self, channel: &str) {
        let _busy = self.busy.lock().await;
        let Some(live) = self.session.current() else {
            return;
        };
        let mut cmd = redis::cmd("SUNSUBSCRIBE");
        cmd.arg(channel);
        // Without a connection there is no subscription either.
        let _ = self.session.query(&live, &cmd).await;
    }

    pub(crate) fn reset(&self) {
        self.session.reset();
    }

    /// Commands sent so far.
    pub(crate) fn commands(&self) -> u64 {
        self.session.commands()
    }
}

fn is_about(data: &[Value], channel: &str) -> bool {
    matches!(data.first(), Some(Value::BulkString(name)) if name == channel.as_bytes())
}
