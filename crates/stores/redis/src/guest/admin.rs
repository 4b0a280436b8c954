//! Operations for operators.

use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{Admin, Capability, Events, Evicted, Finding, LockView, PartyView};
use clinch_core::{Name, Result, keeper};

use super::layout::seq;
use super::reply::Reply;
use super::store::{GuestStore, missing};
use crate::doctor;
use crate::error::unexpected;
use crate::ledger::window;
use crate::record::millis;

#[async_trait]
impl Admin for GuestStore {
    async fn list(&self, _prefix: &str) -> Result<Vec<LockView>> {
        Err(missing(Capability::List))
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let reply = self.one("view", 0, name, "", Duration::ZERO).await?;
        let (left, holders) = match reply {
            Reply::None => return Ok(None),
            Reply::Holder(left, holders) => (left, holders),
            _ => return Err(unexpected(self.info.scheme)),
        };
        let mut view = LockView::new(name.clone(), 1);
        let holders = holders.into_iter();
        view.holders = holders
            .map(|(owner, count)| self.party(owner, &count, left))
            .collect();
        Ok(Some(view))
    }

    async fn events(&self, _prefix: &str) -> Result<Events> {
        Err(missing(Capability::Events))
    }

    async fn evict(&self, name: &Name, number: Option<u64>) -> Result<Evicted> {
        let owner = match number {
            None => String::new(),
            Some(number) => {
                let view = self.inspect(name).await?;
                let holders = view.map(|view| view.holders).unwrap_or_default();
                let meant = |holder: &PartyView| seq(holder.owner.as_str()) == number;
                match holders.into_iter().find(meant) {
                    Some(holder) => holder.owner.to_string(),
                    None => return Ok(Evicted::default()),
                }
            }
        };
        let longest = millis(window(self.config.timeout, Duration::MAX));
        let keep = self.session.clock().now() + u64::from(longest);
        let reply = self.one("evict", keep, name, &owner, Duration::ZERO);
        match reply.await? {
            Reply::Evicted(owner) => Ok(Evicted::new(vec![seq(&owner)], Vec::new())),
            Reply::None => Ok(Evicted::default()),
            _ => Err(unexpected(self.info.scheme)),
        }
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        let (servers, config) = (self.servers.clone(), self.config.clone());
        keeper::run(async move { doctor::examine(&servers, &config, None).await }).await
    }
}
