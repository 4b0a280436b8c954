//! Watches the sentinels for failovers.
//!
//! Without this, each request to a hanging master would wait for its timeout. One connection to one
//! sentinel is enough; when it fails, the next sentinel is used.

use std::sync::{Arc, Weak};
use std::time::Duration;

use clinch_core::{Clock, Error, ErrorKind, Result, keeper};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::sentinels::{Answer, Sentinels};
use crate::connection::Session;
use crate::wakes::PushRouter;

/// The channel on which sentinels publish that a master has another address.
const SWITCH: &str = "+switch-master";
/// The pause after every sentinel has failed once.
const PAUSE: Duration = Duration::from_millis(500);

/// Watches until the store is closed or dropped.
pub(crate) fn start(
    sentinels: Arc<Sentinels>,
    session: &Arc<Session>,
    pushes: &Arc<PushRouter>,
) -> Result<()> {
    let pushes = pushes.clone();
    let session = Arc::downgrade(session);
    keeper::spawn(async move {
        let watcher = Watcher { sentinels, session };
        tokio::select! {
            () = pushes.closed.wait_closed() => {}
            () = watcher.run() => {}
        }
    })
}

struct Watcher {
    sentinels: Arc<Sentinels>,
    session: Weak<Session>,
}

impl Watcher {
    async fn run(self) {
        let mut failed = 0;
        while self.session.strong_count() > 0 {
            let at = self.sentinels.nth(failed);
            let mut replied = false;
            if let Err(error) = self.listen(at, &mut replied).await {
                tracing::debug!(%error, "the next sentinel is used");
            }
            failed = if replied { 1 } else { failed + 1 };
            if failed % self.sentinels.count().max(1) == 0 {
                Clock::boot().sleep(PAUSE).await;
            }
        }
    }

    /// Listens to one sentinel while it replies and is up to date.
    async fn listen(&self, at: usize, replied: &mut bool) -> Result<()> {
        let (pushes, mut messages) = unbounded_channel();
        let mut connection = self.sentinels.connect(at, pushes).await?;
        let gone = |error| Error::new(ErrorKind::Unreachable, "it is gone").with_source(error);
        connection.subscribe(SWITCH).await.map_err(gone)?;
        loop {
            // After the subscription, so that no switch is missed; then regularly, to check that the
            // sentinel still replies.
            self.check(at, &mut connection).await?;
            *replied = true;
            if !self.wait(&mut messages).await {
                return Ok(());
            }
        }
    }

    async fn check(&self, at: usize, connection: &mut MultiplexedConnection) -> Result<()> {
        match self.sentinels.query(at, connection).await? {
            Answer::Master(_, epoch) if self.sentinels.is_stale(epoch) => Err(Error::new(
                ErrorKind::Unreachable,
                "this sentinel is outdated",
            )),
            Answer::Master(address, epoch) => {
                if self.sentinels.is_news(epoch) {
                    self.sentinels.prefer(at);
                    if let Some(session) = self.session.upgrade() {
                        session.move_to(&address.to_string());
                    }
                }
                Ok(())
            }
            Answer::Unknown(_) => Err(Error::new(
                ErrorKind::Unreachable,
                "this sentinel has no such master",
            )),
        }
    }

    /// Waits until it is time for the next check; `false` once the connection has ended.
    async fn wait(&self, messages: &mut UnboundedReceiver<PushInfo>) -> bool {
        let switched = async {
            while let Some(message) = messages.recv().await {
                match message.kind {
                    PushKind::Disconnection => return false,
                    PushKind::Message if self.is_ours(&message.data) => return true,
                    _ => {}
                }
            }
            false
        };
        let quiet = 2 * self.sentinels.limit();
        tokio::time::timeout(quiet, switched).await.unwrap_or(true)
    }

    /// `NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT`.
    fn is_ours(&self, data: &[Value]) -> bool {
        match data.get(1) {
            Some(Value::BulkString(text)) => {
                let mut fields = text.split(|byte| *byte == b' ');
                fields.next() == Some(self.sentinels.master().as_bytes())
            }
            _ => false,
        }
    }
}
