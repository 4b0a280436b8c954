//! What operators need: the names in use, events, eviction, the doctor.

use async_trait::async_trait;
use clinch_core::store::{Admin, Events, Evicted, Finding, LockView};
use clinch_core::{Name, Result, keeper};

use crate::SqliteStore;
use crate::error::Step;
use crate::events::Feed;
use crate::rows::NameRow;
use crate::steps::view;
use crate::tx::Tx;
use crate::writer::Route;
use crate::{doctor, events};

#[async_trait]
impl Admin for SqliteStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let prefix = prefix.to_owned();
        let step = move |tx: &mut Tx<'_>| {
            let rows = NameRow::in_use(tx.db, tx.path, tx.ns, &prefix)?.sound();
            let views = rows.into_iter().map(|row| tx.on_row(row, view));
            views.filter_map(Step::transpose).collect()
        };
        self.writer.call(Route::Thread, step).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let name = name.clone();
        let step = move |tx: &mut Tx<'_>| tx.on_name(&name, view);
        self.writer.call(Route::Inline, step).await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        let me = self.me;
        let bells = self.writer.bells();
        bells.listen();
        // Before the watch begins, so that no other stream that ends just now ends it.
        let nudges = bells.nudges();
        let last = self
            .writer
            .call(Route::Inline, move |tx| events::subscribe(tx, me))
            .await?;
        let (sender, events) = Events::channel();
        let feed = Feed {
            writer: self.writer.clone(),
            prefix: prefix.into(),
            me,
            nudges,
            to: sender,
        };
        keeper::spawn(feed.run(last))?;
        Ok(events)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        let name = name.clone();
        let step = move |tx: &mut Tx<'_>| {
            tx.on_name(&name, |name| {
                name.step(|state, now, numbers, out| state.evict(seq, now, numbers, out))
            })
        };
        self.writer.call(Route::Inline, step).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.writer
            .call(Route::Thread, |tx| Ok(doctor::examine(tx)))
            .await
    }
}
