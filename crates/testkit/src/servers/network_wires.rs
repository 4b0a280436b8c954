//! What a private network is made of: namespaces, pairs of virtual interfaces, a bridge.
//!
//! The bridge has a namespace of its own, so that no firewall of this machine sees what the hosts
//! say to each other, and so that everything goes with the namespaces.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use clinch_core::Result;

use super::network_plot::{Plot, remove};
use super::{Folder, tool};

/// What no interface has: a packet for it is lost without a word.
const NOBODY: &str = "02:c1:00:00:ff:ff";

/// All of one network; removed on drop.
#[derive(Debug)]
pub(super) struct Wires {
    plot: Plot,
    hosts: usize,
    /// The names of all namespaces, the switch's first.
    namespaces: Vec<String>,
    /// For the commands.
    folder: Folder,
}

impl Wires {
    pub(super) fn lay(hosts: usize) -> Result<Self> {
        let plot = Plot::choose()?;
        let names = (0..hosts).map(|host| plot.namespace(&host.to_string()));
        let mut namespaces = vec![plot.namespace("switch")];
        namespaces.extend(names);
        // From here on, what there is of it is removed when something fails.
        let wires = Self {
            plot,
            hosts,
            namespaces,
            folder: Folder::new("network")?,
        };
        let add = |name: &String| format!("netns add {name}\n");
        wires.ip(None, &wires.namespaces.iter().map(add).collect::<String>())?;
        wires.ip(Some(wires.switch()), &wires.switch_plan())?;
        for host in 0..hosts {
            let name = wires.plot.namespace(&host.to_string());
            wires.ip(Some(&name), &wires.host_plan("eth0", host))?;
        }
        wires.ip(None, &wires.host_plan(&wires.plot.interface(), hosts))?;
        Ok(wires)
    }

    /// A bridge, and a port for each host and for this process.
    fn switch_plan(&self) -> String {
        let mut plan = "link add name sw type bridge\nlink set dev sw up\n".to_owned();
        for host in 0..=self.hosts {
            let far = match host == self.hosts {
                // Our own namespace has no name, so it is that of our process.
                true => format!("{} netns {}", self.plot.interface(), std::process::id()),
                false => format!("eth0 netns {}", self.plot.namespace(&host.to_string())),
            };
            let mac = mac(host);
            plan += &format!("link add name p{host} type veth peer name {far} address {mac}\n");
            plan += &format!("link set dev p{host} master sw up\n");
        }
        plan
    }

    /// An address, and the places of all others: nobody has to ask for them, so a packet for a host
    /// that is cut off is lost instead of refused.
    fn host_plan(&self, interface: &str, host: usize) -> String {
        let address = self.address(host);
        let mut plan =
            format!("addr add {address}/28 dev {interface}\nlink set dev {interface} up\n");
        if host < self.hosts {
            plan += "link set dev lo up\n";
        }
        let others = (0..=self.hosts).filter(|other| *other != host);
        others.fold(plan, |plan, other| {
            plan + &self.place(interface, other, &mac(other))
        })
    }

    fn place(&self, interface: &str, other: usize, mac: &str) -> String {
        let address = self.address(other);
        format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent\n")
    }

    /// A host's address; this process comes after the last host.
    pub(super) fn address(&self, host: usize) -> Ipv4Addr {
        self.plot.address(host)
    }

    pub(super) fn namespace(&self, host: usize) -> PathBuf {
        let name = self.plot.namespace(&host.to_string());
        Path::new(super::network_plot::NAMESPACES).join(name)
    }

    pub(super) fn unplug(&self, host: usize) -> Result<()> {
        self.ip(
            Some(self.switch()),
            &format!("link set dev p{host} nomaster\n"),
        )
    }

    pub(super) fn divide(&self, groups: &[Vec<usize>]) -> Result<()> {
        for (at, group) in groups.iter().enumerate() {
            for host in group {
                let others = groups.iter().enumerate().filter(|(other, _)| *other != at);
                let others = others.flat_map(|(_, hosts)| hosts).filter(|o| *o != host);
                let lost = others.map(|other| self.place("eth0", *other, NOBODY));
                let name = self.plot.namespace(&host.to_string());
                self.ip(Some(&name), &lost.collect::<String>())?;
            }
        }
        Ok(())
    }

    pub(super) fn heal(&self) -> Result<()> {
        let plug = |host| format!("link set dev p{host} master sw\n");
        let plugs: String = (0..self.hosts).map(plug).collect();
        self.ip(Some(self.switch()), &plugs)?;
        for host in 0..self.hosts {
            let others = (0..self.hosts).filter(|other| *other != host);
            let places = others.map(|other| self.place("eth0", other, &mac(other)));
            let name = self.plot.namespace(&host.to_string());
            self.ip(Some(&name), &places.collect::<String>())?;
        }
        Ok(())
    }

    fn switch(&self) -> &str {
        self.namespaces.first().map_or("", String::as_str)
    }

    /// Runs commands, a line each, in a namespace.
    fn ip(&self, namespace: Option<&str>, lines: &str) -> Result<()> {
        let file = self.folder.write("commands", lines)?;
        let file = file.to_string_lossy();
        let place = namespace.map(|name| ["-n", name]);
        let words = [
            place.as_ref().map_or(&[][..], |words| words),
            &["-batch", &file],
        ];
        tool::run("ip", &words.concat(), &[], "ip").map(drop)
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        remove(&self.plot.interface(), &self.namespaces);
    }
}

fn mac(host: usize) -> String {
    format!("02:c1:00:00:00:{:02x}", host + 1)
}
