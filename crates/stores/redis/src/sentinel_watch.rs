//! Hears of a failover as soon as a sentinel tells of it.
//!
//! Without this, requests would wait for a master that hangs until each of them has timed out. One
//! connection to one sentinel is enough; when it fails, another sentinel takes its turn.

use std::sync::{Arc, Weak};
use std::time::Duration;

use clinch_core::{Clock, Error, ErrorKind, Result, keeper};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::sentinel::{Said, Sentinels};
use crate::session::Session;
use crate::wakes::Ears;

/// The channel on which sentinels tell that a master has another address.
const SWITCH: &str = "+switch-master";
/// The pause after every sentinel has failed once.
const PAUSE: Duration = Duration::from_millis(500);

/// Watches until the store is closed or dropped.
pub(crate) fn start(
    sentinels: Arc<Sentinels>,
    session: &Arc<Session>,
    ears: &Arc<Ears>,
) -> Result<()> {
    let ears = ears.clone();
    let session = Arc::downgrade(session);
    keeper::spawn(async move {
        let watcher = Watcher { sentinels, session };
        tokio::select! {
            () = ears.closed() => {}
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
            let at = self.sentinels.turn(failed);
            let mut listened = false;
            if let Err(error) = self.listen(at, &mut listened).await {
                tracing::debug!(%error, "another sentinel is listened to");
            }
            failed = if listened { 1 } else { failed + 1 };
            if failed % self.sentinels.count().max(1) == 0 {
                Clock::boot().sleep(PAUSE).await;
            }
        }
    }

    /// Listens to one sentinel for as long as it answers and is not behind the others.
    async fn listen(&self, at: usize, listened: &mut bool) -> Result<()> {
        let (heard, mut messages) = unbounded_channel();
        let mut connection = self.sentinels.connect(at, heard).await?;
        let gone = |error| Error::new(ErrorKind::Unreachable, "it is gone").with_source(error);
        connection.subscribe(SWITCH).await.map_err(gone)?;
        loop {
            // After the subscription, so that no switch falls between; then now and then, to see
            // that the sentinel still answers.
            self.look(at, &mut connection).await?;
            *listened = true;
            if !self.news(&mut messages).await {
                return Ok(());
            }
        }
    }

    async fn look(&self, at: usize, connection: &mut MultiplexedConnection) -> Result<()> {
        match self.sentinels.ask(at, connection).await? {
            Said::Here(_, epoch) if self.sentinels.is_stale(epoch) => Err(Error::new(
                ErrorKind::Unreachable,
                "this sentinel is behind the others",
            )),
            Said::Here(address, epoch) => {
                if self.sentinels.is_news(epoch) {
                    self.sentinels.prefer(at);
                    if let Some(session) = self.session.upgrade() {
                        session.move_to(&address.to_string());
                    }
                }
                Ok(())
            }
            Said::Unknown(_) => Err(Error::new(
                ErrorKind::Unreachable,
                "this sentinel does not know the master",
            )),
        }
    }

    /// Waits until it is time to look again; `false` when the connection has ended.
    async fn news(&self, messages: &mut UnboundedReceiver<PushInfo>) -> bool {
        let news = async {
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
        tokio::time::timeout(quiet, news).await.unwrap_or(true)
    }

    /// `NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT`.
    fn is_ours(&self, data: &[Value]) -> bool {
        match data.get(1) {
            Some(Value::BulkString(text)) => {
                let mut words = text.split(|byte| *byte == b' ');
                words.next() == Some(self.sentinels.master().as_bytes())
            }
            _ => false,
        }
    }
}
