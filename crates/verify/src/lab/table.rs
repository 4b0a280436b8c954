//! The table of faults in `docs/verification.md` says what the code does: for each lab the same kinds, of which
//! each comes in a round of the plan, with the same reach and the same excuses.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{EngineFault, Lab};
use crate::history::Renewals;
use crate::run::kinds::{self, Kind};
use crate::run::{OfEngine, Plan, What};

const DOCUMENT: &str = include_str!("../../../../docs/verification.md");

/// Name, whom it delays, what it excuses.
type Row = (String, String, BTreeSet<String>);

fn labs(text: &str) -> Vec<Lab> {
    let servers = Lab::ALL.into_iter().filter(|lab| *lab != Lab::Sqlite);
    match text {
        "all" => Lab::ALL.to_vec(),
        "all with servers" => servers.collect(),
        list => list.split(", ").map(|lab| lab.parse().unwrap()).collect(),
    }
}

/// Without what stands in brackets, which explains.
fn plain(text: &str) -> String {
    let (mut depth, mut plain) = (0, String::new());
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let words: Vec<_> = plain.split_whitespace().collect();
    words.join(" ").replace(" ,", ",").replace(" ;", ";")
}

/// The words in backquotes.
fn quoted(text: &str) -> BTreeSet<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

/// What the document says of a lab.
fn documented(lab: Lab) -> BTreeSet<Row> {
    let (_, table) = DOCUMENT.split_once("| fault | labs |").unwrap();
    let rows = table.lines().skip(2).take_while(|l| l.starts_with('|'));
    let mut all = BTreeSet::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [names, of, delays, excuses] = cells[..] else {
            panic!("{row}");
        };
        if labs(&plain(of)).contains(&lab) {
            for name in plain(names).split("; ") {
                all.insert((name.to_owned(), plain(delays), quoted(excuses)));
            }
        }
    }
    all
}

fn of_engine(lab: Lab) -> Vec<EngineFault> {
    match lab {
        Lab::Sqlite => super::sqlite::FAULTS.to_vec(),
        Lab::Redis => super::redis::FAULTS.to_vec(),
        Lab::RedisSentinel => super::redis_sentinel::FAULTS.to_vec(),
        Lab::RedisCluster => super::redis_cluster::FAULTS.to_vec(),
        Lab::RedisQuorum => super::redis_quorum::FAULTS.to_vec(),
        Lab::Mysql => super::mysql::faults(),
        // With the bug of old versions and without.
        Lab::Etcd => [super::etcd::faults("3.4.23"), super::etcd::faults("3.6.0")].concat(),
        Lab::ZooKeeper => super::zookeeper::faults(),
    }
}

fn delays(lab: Lab, kind: Kind, of_worker: bool) -> &'static str {
    match (kind.renewals, of_worker) {
        _ if kind.harmless => "–",
        (Renewals::Delayed, true) => "that worker",
        (Renewals::GoOn, true) => "that worker, but not its renewals",
        (Renewals::Delayed, false) if lab == Lab::RedisCluster => "locks in its slots",
        (Renewals::Delayed, false) => "everybody",
        (Renewals::GoOn, false) => "everybody, but not renewals",
        (Renewals::OfWholeHolds, _) => "everybody, but not renewals of holds that every server has",
    }
}

/// What one round of each sequence of a lab has, and what workers have from their start.
fn planned(lab: Lab) -> BTreeSet<Row> {
    let embedded = lab == Lab::Sqlite;
    let engine = of_engine(lab);
    let mut workers = Plan::of_workers();
    let mut links = Plan::of_links();
    let mut conditions = vec![kinds::FAST, kinds::SLOW, kinds::DELIVERED];
    if embedded {
        workers.push(What::Peek);
        links.clear();
        conditions = vec![kinds::OTHER_BOOT];
    }
    let of_engine = |(number, fault): (usize, &EngineFault)| {
        let excuses = !fault.excuses.is_empty();
        What::Engine(OfEngine { number, excuses })
    };
    let lane = engine.iter().enumerate().map(of_engine).collect();
    let mut all: BTreeSet<Row> = BTreeSet::new();
    let mut add = |kind: Kind, of_worker| {
        let excuses = kind.excuses.iter().map(|p| p.as_str().to_owned());
        let delays = delays(lab, kind, of_worker);
        all.insert((kind.name.to_owned(), delays.to_owned(), excuses.collect()));
    };
    for kinds in [workers, links, lane] {
        let round = kinds.len();
        let mut plan = Plan::new(7, 1, Duration::from_secs(1), kinds);
        for planned in (0..round).filter_map(|_| plan.next()) {
            match planned.what {
                What::Kill => add(kinds::KILLED, true),
                What::PauseShort => add(kinds::PAUSED, true),
                What::PauseLong => add(kinds::PAUSED_LONG, true),
                What::Stall => add(kinds::BLOCKED, true),
                What::Evict => add(kinds::BROKEN, true),
                What::Close => add(kinds::CLOSED, true),
                What::Fork => add(kinds::FORKED, true),
                What::Peek => add(kinds::READ, true),
                // The scheme of a lab is its name, but for `+`.
                What::Link(fault) => {
                    let scheme = lab.as_str().replacen('-', "+", 1);
                    add(kinds::of_link(fault, &scheme), true);
                }
                What::Engine(fault) => add(engine[fault.number].into(), false),
            }
        }
    }
    conditions.into_iter().for_each(|kind| add(kind, true));
    all
}

#[test]
fn the_documented_table_is_what_is_planned() {
    for lab in Lab::ALL {
        let (documented, planned) = (documented(lab), planned(lab));
        let only =
            |one: &BTreeSet<Row>, other| -> Vec<Row> { one.difference(other).cloned().collect() };
        let (undone, unsaid) = (only(&documented, &planned), only(&planned, &documented));
        assert!(
            undone.is_empty() && unsaid.is_empty(),
            "{lab:?}: only in docs/verification.md: {undone:#?}, only in the code: {unsaid:#?}"
        );
    }
}

#[test]
fn explanations_are_left_out() {
    assert_eq!(plain("a (b), c ([d](e)) ; f"), "a, c; f");
    assert_eq!(quoted("`a`: b, `c`"), ["a", "c"].map(str::to_owned).into());
}
