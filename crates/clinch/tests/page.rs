//! The crate's page lists every metric, feature and store.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

const PAGE: &str = include_str!("../src/lib.rs");

/// The first column of the table with this heading.
fn table(heading: &str) -> Vec<&'static str> {
    let after = PAGE.split(heading).nth(1).unwrap();
    let rows = after.lines().skip_while(|line| !line.starts_with("//! |"));
    rows.take_while(|line| line.starts_with("//! |"))
        .skip(2)
        .filter_map(|line| line.split('|').nth(1))
        .collect()
}

fn quoted(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}

#[test]
fn every_metric() {
    let source = include_str!("../../core/src/telemetry.rs");
    let mut made: Vec<_> = source
        .split('"')
        .filter(|text| text.starts_with("clinch_"))
        .collect();
    let rows = table("With the feature `metrics`");
    let mut listed: Vec<_> = rows.iter().filter_map(|row| quoted(row)).collect();
    made.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, made);
}

#[test]
fn every_feature() {
    let manifest = include_str!("../Cargo.toml");
    let section = manifest.split("[features]").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    let mut made: Vec<_> = section
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .map(|(feature, _)| feature)
        .filter(|feature| *feature != "default")
        .collect();
    let rows = table("# Cargo features");
    let mut listed: Vec<_> = rows.iter().filter_map(|row| quoted(row)).collect();
    made.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, made);
}

#[test]
fn every_store() {
    let rows = table("# Stores");
    for store in clinch::stores() {
        let scheme = store.scheme.split('?').next().unwrap();
        let url = format!("`{scheme}:");
        assert!(rows.iter().any(|row| row.contains(&url)), "{scheme}");
    }
}
