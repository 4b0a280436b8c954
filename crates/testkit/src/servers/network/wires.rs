//! The parts of a private network: namespaces, pairs of virtual interfaces, a bridge.
//!
//! The bridge has its own namespace, so that no firewall of this machine filters the traffic, and
//! so that everything is removed with the namespaces.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use clinch_core::Result;

use super::addresses::{Block, NAMESPACES, remove};
use crate::servers::{Folder, tool};

/// No interface has this address: packets to it are lost silently.
const NO_HOST: &str = "02:c1:00:00:ff:ff";

/// All of one network; removed on drop.
#[derive(Debug)]
pub(super) struct Wires {
    block: Block,
    hosts: usize,
    /// The names of all namespaces, the switch's first.
    namespaces: Vec<String>,
    /// Has the files with commands.
    folder: Folder,
}

impl Wires {
    pub(super) fn lay(hosts: usize) -> Result<Self> {
        let block = Block::choose()?;
        let names = (0..hosts).map(|host| block.namespace(&host.to_string()));
        let mut namespaces = vec![block.namespace("switch")];
        namespaces.extend(names);
        // From here on, a failure removes what has been made.
        let wires = Self {
            block,
            hosts,
            namespaces,
            folder: Folder::new("network")?,
        };
        let add = |name: &String| format!("netns add {name}\n");
        wires.ip(None, &wires.namespaces.iter().map(add).collect::<String>())?;
        wires.ip(Some(wires.switch()), &wires.switch_plan())?;
        for host in 0..hosts {
            let name = wires.block.namespace(&host.to_string());
            wires.ip(Some(&name), &wires.host_plan("eth0", host))?;
        }
        wires.ip(None, &wires.host_plan(&wires.block.interface(), hosts))?;
        Ok(wires)
    }

    /// Commands for a bridge, and for a port for each host and for this process.
    fn switch_plan(&self) -> String {
        let mut plan = "link add name sw type bridge\nlink set dev sw up\n".to_owned();
        for host in 0..=self.hosts {
            let far = match host == self.hosts {
                // The namespace of this process has no name; its process id identifies it.
                true => format!("{} netns {}", self.block.interface(), std::process::id()),
                false => format!("eth0 netns {}", self.block.namespace(&host.to_string())),
            };
            let mac = mac(host);
            plan += &format!("link add name p{host} type veth peer name {far} address {mac}\n");
            plan += &format!("link set dev p{host} master sw up\n");
        }
        plan
    }

    /// Commands for an address, and for static neighbours: without ARP, a packet to a host that is cut
    /// off is lost instead of refused.
    fn host_plan(&self, interface: &str, host: usize) -> String {
        let address = self.address(host);
        let mut plan =
            format!("addr add {address}/28 dev {interface}\nlink set dev {interface} up\n");
        if host < self.hosts {
            plan += "link set dev lo up\n";
        }
        let others = (0..=self.hosts).filter(|other| *other != host);
        others.fold(plan, |plan, other| {
            plan + &self.neighbour(interface, other, &mac(other))
        })
    }

    fn neighbour(&self, interface: &str, other: usize, mac: &str) -> String {
        let address = self.address(other);
        format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent\n")
    }

    /// A host's address; the index after the last host is this process.
    pub(super) fn address(&self, host: usize) -> Ipv4Addr {
        self.block.address(host)
    }

    pub(super) fn namespace(&self, host: usize) -> PathBuf {
        let name = self.block.namespace(&host.to_string());
        Path::new(NAMESPACES).join(name)
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
                let lost = others.map(|other| self.neighbour("eth0", *other, NO_HOST));
                let name = self.block.namespace(&host.to_string());
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
            let neighbours = others.map(|other| self.neighbour("eth0", other, &mac(other)));
            let name = self.block.namespace(&host.to_string());
            self.ip(Some(&name), &neighbours.collect::<String>())?;
        }
        Ok(())
    }

    fn switch(&self) -> &str {
        self.namespaces.first().map_or("", String::as_str)
    }

    /// Runs commands, one in each line, in a namespace.
    fn ip(&self, namespace: Option<&str>, lines: &str) -> Result<()> {
        let file = self.folder.write("commands", lines)?;
        let file = file.to_string_lossy();
        let within = namespace.map(|name| ["-n", name]);
        let args = [
            within.as_ref().map_or(&[][..], |args| args),
            &["-batch", &file],
        ];
        tool::run("ip", &args.concat(), &[], "ip").map(drop)
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        remove(&self.block.interface(), &self.namespaces);
    }
}

fn mac(host: usize) -> String {
    format!("02:c1:00:00:00:{:02x}", host + 1)
}
