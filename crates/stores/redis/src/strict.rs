//! Strict mode: after a loss of data nothing is granted until every earlier hold has ended.
//!
//! `scripts/fast_path.lua` enforces it; here are its limits, and the findings of `doctor`.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Claim, Finding, Severity};
use clinch_core::{Error, Result};
use redis::Value;

use crate::config::Config;
use crate::connection::Server;
use crate::connection::{Live, Session};
use crate::doctor::finding;
use crate::error::unexpected;
use crate::keys::Keys;
use crate::record::Reader;

/// Refuses a claim that could outlast the pause.
pub(crate) fn check(claim: &Claim, config: &Config) -> Result<()> {
    let whole = claim.lease + claim.lock_delay;
    match config.strict {
        Some(longest) if whole > longest => Err(Error::invalid(format!(
            "lease and lock-delay together are {whole:?}, and in strict mode {longest:?} is the most"
        ))
        .with_name(claim.name.as_str())
        .with_advice("shorten them, or raise the URL's longest= for all clients")),
        _ => Ok(()),
    }
}

/// Whether grants are open in strict mode, and whether all clients use the same settings.
pub(crate) async fn examine(
    session: &Arc<Session>,
    live: &Live,
    config: &Config,
    keys: &Keys,
) -> Result<Option<Finding>> {
    if config.deployment.is_cluster() {
        // A cluster has no strict mode.
        return Ok(None);
    }
    let epoch = epoch(session, live, keys).await?;
    let to = &live.server.address;
    let found = |severity, message, advice| Some(finding(severity, "durability", message, advice));
    let Some(longest) = config.strict else {
        return Ok(epoch.and_then(|_| {
            found(
                Severity::Broken,
                format!("{to}: other clients of this namespace use durability=strict"),
                "use it everywhere, or delete the key clinch:NAMESPACE:epoch once no client does",
            )
        }));
    };
    Ok(match epoch {
        Some(epoch) if epoch.longest != longest => found(
            Severity::Broken,
            format!(
                "{to}: other clients have longest={:?}, this one {longest:?}: its claims are refused",
                epoch.longest
            ),
            "give all clients the same longest=",
        ),
        Some(epoch) if epoch.is_of_this_run && epoch.left.is_zero() => found(
            Severity::Ok,
            format!("{to}: strict, and grants are open"),
            "",
        ),
        Some(epoch) if epoch.is_of_this_run => found(
            Severity::Warning,
            format!(
                "{to}: strict; grants open in {} s, because the data were lost or another server \
                 took over",
                epoch.left.as_secs() + 1
            ),
            "wait; locks held before are safe until then",
        ),
        _ => found(
            Severity::Warning,
            format!(
                "{to}: strict; grants open {longest:?} after the first request, because the data \
                 are new or another server's"
            ),
            "wait; locks held before are safe until then",
        ),
    })
}

/// The value of the key of strict mode.
struct Epoch {
    longest: Duration,
    /// How long until grants open.
    left: Duration,
    is_of_this_run: bool,
}

async fn epoch(session: &Arc<Session>, live: &Live, keys: &Keys) -> Result<Option<Epoch>> {
    let mut get = redis::cmd("GET");
    get.arg(&keys.epoch);
    let Value::BulkString(bytes) = session.query(live, &get).await? else {
        return Ok(None);
    };
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    let info = session.query(live, &info).await?;
    let now = Server::read(info, &live.server.address);
    let time = session.query(live, &redis::cmd("TIME")).await?;
    let time: (u64, u64) = redis::FromRedisValue::from_redis_value(time)
        .map_err(|_| unexpected(&live.server.address))?;
    // Milliseconds since 2020, as in the script.
    let time = (time.0 * 1000 + time.1 / 1000).saturating_sub(1_577_836_800_000);
    let mut reader = Reader(&bytes);
    let (Some(opens), Some(longest)) = (reader.u64(), reader.u64()) else {
        return Ok(None);
    };
    let history = now.field("master_replid").unwrap_or_default();
    let marks = format!("{}{history}", live.server.run());
    Ok(Some(Epoch {
        longest: Duration::from_millis(longest),
        left: Duration::from_millis(opens.saturating_sub(time)),
        is_of_this_run: reader.0 == marks.as_bytes(),
    }))
}
