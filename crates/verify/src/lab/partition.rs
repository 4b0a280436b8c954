//! Servers that are cut off, each on a host of its own, where network namespaces may be made.

use clinch::Result;
use clinch_testkit::servers::{Host, Network};

/// From whom servers are cut off. What is sent meanwhile arrives when the network has healed, unless
/// the sender gives up before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// From the other servers; clients still reach both sides.
    Servers,
    /// From clients as well.
    Everybody,
}

/// So many hosts, where there may be any.
pub(super) fn network(hosts: usize) -> Result<Option<Network>> {
    match Network::check() {
        Ok(()) => Network::start(hosts).map(Some),
        Err(_) => Ok(None),
    }
}

/// Why there is none.
pub(super) fn missing() -> Vec<String> {
    let why = Network::check().err();
    let text = |why| format!("servers cut off in network namespaces: {why}");
    why.map(text).into_iter().collect()
}

/// Cuts off the servers at these places.
pub(super) fn cut(network: &Network, places: &[usize], from: From) -> Result<()> {
    let hosts = network.hosts().iter().enumerate();
    let (away, rest): (Vec<_>, Vec<_>) = hosts.partition(|(place, _)| places.contains(place));
    let plain = |side: Vec<(usize, &Host)>| -> Vec<Host> {
        side.into_iter().map(|(_, host)| host.clone()).collect()
    };
    let (away, rest) = (plain(away), plain(rest));
    match from {
        From::Servers => network.divide(&[&away, &rest]),
        From::Everybody => away.iter().try_for_each(|host| network.cut(host)),
    }
}
