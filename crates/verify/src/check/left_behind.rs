//! When every client has gone, the store is empty.

use super::{Index, Property, Violation};
use crate::history::{Event, Scan};

pub(super) fn check(index: &Index<'_>) -> Vec<Violation> {
    let scans = index.history.events.iter().filter_map(|event| match event {
        Event::Scan(scan) => Some(scan),
        _ => None,
    });
    scans.map(|scan| tell(index, scan)).collect()
}

fn tell(index: &Index<'_>, scan: &Scan) -> Violation {
    let at = index.time(scan.at);
    let message = format!("{} is still there at {at}: {}", scan.lock, scan.found);
    index.violation(
        Property::LeftBehind,
        &scan.lock,
        (scan.at, scan.at),
        Vec::new(),
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn what_a_scan_finds_is_named() {
        passes(vec![Event::End { at: 1 }]);
        let scan = Scan {
            at: 9,
            lock: "a".to_owned(),
            found: "held by r1".to_owned(),
        };
        fails(
            vec![Event::Scan(scan)],
            Property::LeftBehind,
            &["a is still there", "held by r1"],
        );
    }
}
