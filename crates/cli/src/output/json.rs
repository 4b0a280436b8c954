//! The shapes of `--json`. These fields are an interface: `docs/command.md` documents them, tests
//! hold them, and they are only ever added to.

use std::time::Duration;

use clinch::store::{Event, Finding, LockView, PartyView, StoreInfo};
use clinch::{Mode, Name, Sequencer, Token};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::millis;

/// One lock of `list` and `show`.
#[derive(Debug, Serialize)]
pub(crate) struct Lock<'a> {
    name: &'a str,
    kind: Option<&'static str>,
    limit: Option<u32>,
    holders: Vec<Party<'a>>,
    waiters: Vec<Party<'a>>,
    delayed: Vec<Party<'a>>,
    delayed_for_ms: Option<u64>,
}

/// One holder or waiter.
#[derive(Debug, Serialize)]
struct Party<'a> {
    owner: &'a str,
    client: String,
    host: &'a str,
    pid: u32,
    label: Option<&'a str>,
    mode: &'static str,
    units: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequencer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    since_ms: Option<u64>,
    lease_left_ms: Option<u64>,
}

impl<'a> Lock<'a> {
    /// A lock as the store sees it.
    pub(crate) fn new(view: &'a LockView) -> Self {
        let party = |p| Party::new(&view.name, view.limit, p);
        Self {
            name: view.name.as_str(),
            kind: Some(kind(view.limit)),
            limit: Some(view.limit),
            holders: view.holders.iter().map(party).collect(),
            waiters: view.waiters.iter().map(party).collect(),
            delayed: view.delayed.iter().map(party).collect(),
            delayed_for_ms: view.delayed_for().map(millis),
        }
    }

    /// A lock that is free: it has no kind until somebody claims it.
    pub(crate) fn free(name: &'a Name) -> Self {
        Self {
            name: name.as_str(),
            kind: None,
            limit: None,
            holders: Vec::new(),
            waiters: Vec::new(),
            delayed: Vec::new(),
            delayed_for_ms: None,
        }
    }
}

impl<'a> Party<'a> {
    fn new(name: &Name, limit: u32, view: &'a PartyView) -> Self {
        let mode = Mode::of(view.units, limit);
        let sequencer = |token| Sequencer::new(name.clone(), mode, token).to_string();
        Self {
            owner: view.owner.as_str(),
            client: view.client.to_string(),
            host: &view.host,
            pid: view.pid,
            label: view.label.as_deref(),
            mode: mode_word(mode),
            units: view.units,
            token: view.token,
            sequencer: view.token.map(sequencer),
            value: view.value.as_deref(),
            since_ms: finite(view.age),
            lease_left_ms: finite(view.lease_left),
        }
    }
}

/// Nothing for what is not known, or has no end.
fn finite(span: Duration) -> Option<u64> {
    (span != Duration::MAX).then(|| millis(span))
}

/// What a capacity means to people.
pub(crate) fn kind(limit: u32) -> &'static str {
    match limit {
        1 => "mutex",
        u32::MAX => "read-write",
        _ => "semaphore",
    }
}

/// How a party holds or wants to hold.
pub(crate) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Read => "read",
        Mode::Write => "write",
        Mode::Permits { .. } => "permits",
    }
}

/// One line of `watch`; `at_ms` counts from when watching began.
pub(crate) fn event(event: &Event, at_ms: u64) -> Value {
    json!({
        "event": event.kind.as_str(),
        "name": event.name.as_str(),
        "owner": event.owner.as_str(),
        "host": event.host,
        "pid": event.pid,
        "label": event.label.as_deref(),
        "token": event.token,
        "value": event.value.as_deref(),
        "at_ms": at_ms,
    })
}

/// One store of `stores`.
pub(crate) fn store(info: &StoreInfo) -> Value {
    let mut capabilities = Map::new();
    for capability in clinch::store::Capability::EVERY {
        let key = capability.to_string().replace([' ', '-'], "_");
        capabilities.insert(key, info.capabilities.has(capability).into());
    }
    let (promises, limits) = (&info.guarantees, &info.limits);
    json!({
        "scheme": info.scheme,
        "summary": info.summary,
        "capabilities": capabilities,
        "guarantees": {
            "scope": promises.scope,
            "exclusion": promises.exclusion,
            "token_order": promises.token_order,
            "liveness": promises.liveness,
            "clock": promises.clock,
        },
        "limits": {
            "min_lease_ms": millis(limits.min_lease),
            "max_lease_ms": millis(limits.max_lease),
            "lease_step_ms": millis(limits.lease_step),
            "max_name_bytes": limits.max_name,
        },
    })
}

/// One finding of `doctor`.
pub(crate) fn finding(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.as_str(),
        "subject": finding.subject,
        "message": finding.message,
        "advice": finding.advice,
    })
}
