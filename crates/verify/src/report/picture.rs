//! One lock for a short time: who waited, who held it, who said it was valid, and what was done to
//! whom.

use std::collections::{BTreeMap, BTreeSet};

use super::millis;
use super::svg::{Scale, Svg};
use crate::check::{Hold, Index, Property, Violation, op_name};
use crate::history::{Acquire, Event, Requests, Waiting};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 70.0;
const ROW: f64 = 34.0;
const TOP: f64 = 40.0;
/// The most rows that are drawn.
const ROWS: usize = 14;
/// Colours of the processes, told apart by people who see few.
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d31", "#666",
];

/// A violation with some time around it.
pub(super) fn of(index: &Index<'_>, violation: &Violation) -> String {
    let mut span = (violation.from, violation.until);
    // The operations that it names are shown from their beginning, if that was not long ago.
    for hold in index
        .holds
        .iter()
        .filter(|hold| violation.ops.contains(&hold.acquire.op))
    {
        let (from, until) = hold
            .claim()
            .unwrap_or((hold.acquire.complete, hold.acquire.complete));
        span = (span.0.min(from), span.1.max(until));
    }
    let pad = (span.1 - span.0) / 5 + 20_000_000;
    let span = (span.0.saturating_sub(pad).max(index.origin), span.1 + pad);
    draw(index, &violation.lock, span, Some(violation))
}

/// A lock for a time.
pub(super) fn draw(
    index: &Index<'_>,
    lock: &str,
    (from, until): (u64, u64),
    violation: Option<&Violation>,
) -> String {
    let scale = Scale {
        from,
        until,
        left: LEFT,
        width: WIDTH - LEFT - 10.0,
    };
    let scene = Scene::new(index, lock, scale);
    let rows = scene.rows(violation);
    let herd = violation.is_some_and(|violation| violation.property == Property::Herd);
    let height = TOP + ROW * as_f64(rows.len() + usize::from(herd)) + 34.0;
    let mut svg = Svg::new(WIDTH, height);
    svg.text(
        (10.0, 18.0),
        r#"font-weight="600""#,
        lock.rsplit_once('/').map_or(lock, |_| short(lock)),
    );
    if let Some(violation) = violation {
        let (x, w) = (
            scale.x(violation.from),
            scale.x(violation.until) - scale.x(violation.from),
        );
        let body = (x, TOP - 6.0, w, height - TOP - 24.0);
        svg.rect(
            body,
            r##"fill="#d00" fill-opacity=".13""##,
            &violation.message,
        );
    }
    for (at, process) in rows.iter().enumerate() {
        scene.row(&mut svg, *process, TOP + ROW * as_f64(at));
    }
    if herd {
        requests(&mut svg, index, scale, TOP + ROW * as_f64(rows.len()));
    }
    axis(&mut svg, index, scale, height);
    svg.end()
}

/// How many requests there were, second by second.
fn requests(svg: &mut Svg, index: &Index<'_>, scale: Scale, y: f64) {
    svg.text((10.0, y + 16.0), "", "requests");
    for event in &index.history.events {
        let Event::Requests(counted) = event else {
            continue;
        };
        let Requests { from, at, count } = *counted;
        if !scale.shows(from, at) {
            continue;
        }
        let (x1, x2) = (scale.x(from), scale.x(at));
        let grants = index.holds.iter().map(|hold| hold.acquire.complete);
        let grants = grants.filter(|granted| from < *granted && *granted <= at);
        let words = format!("{count} for {} grants", grants.count());
        let style = r##"fill="none" stroke="#333""##;
        svg.rect((x1 + 1.0, y + 4.0, x2 - x1 - 2.0, 16.0), style, &words);
        if x2 - x1 > 120.0 {
            svg.text((x1 + 6.0, y + 16.0), r#"font-size="10""#, &words);
        }
    }
}

/// `clinch-verify/1f-7/hot` is shown as `hot`.
fn short(lock: &str) -> &str {
    let mut parts = lock.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("clinch-verify"), Some(_), Some(rest)) => rest,
        _ => lock,
    }
}

/// What there is to be seen, gathered in one pass: histories have millions of lines.
struct Scene<'a> {
    index: &'a Index<'a>,
    lock: &'a str,
    scale: Scale,
    acquires: Vec<&'a Acquire>,
    holds: Vec<&'a Hold<'a>>,
    /// Waits that did not end.
    open: BTreeMap<u64, &'a Waiting>,
    killed: BTreeMap<u32, u64>,
}

impl<'a> Scene<'a> {
    fn new(index: &'a Index<'a>, lock: &'a str, scale: Scale) -> Self {
        let mut open = BTreeMap::new();
        for event in &index.history.events {
            if let Event::Waiting(waiting) = event
                && waiting.lock == lock
            {
                open.insert(waiting.op, waiting);
            }
        }
        for acquire in index.acquires() {
            open.remove(&acquire.op);
            // A multi-lock waits as one and ends as several.
            acquire.group.map(|(group, _)| open.remove(&group));
        }
        let here = |acquire: &Acquire| acquire.lock == lock;
        let acquires = index
            .acquires()
            .filter(|acquire| here(acquire) && scale.shows(acquire.invoke, acquire.complete));
        let holds = index.holds.iter().filter(|hold| here(hold.acquire));
        Self {
            index,
            lock,
            scale,
            acquires: acquires.collect(),
            holds: holds.collect(),
            open,
            killed: index.history.killed(),
        }
    }

    fn rows(&self, violation: Option<&Violation>) -> Vec<u32> {
        let named = violation.map_or(&[][..], |violation| &violation.ops);
        let named = named.iter().filter_map(|op| u32::try_from(op >> 32).ok());
        let mut rows: BTreeSet<u32> = named.collect();
        for acquire in &self.acquires {
            if rows.len() < ROWS {
                rows.insert(acquire.process);
            }
        }
        for hold in &self.holds {
            let end = hold.ended().unwrap_or(hold.acquire.complete);
            if rows.len() < ROWS && self.scale.shows(hold.acquire.complete, end) {
                rows.insert(hold.acquire.process);
            }
        }
        rows.into_iter().collect()
    }

    fn row(&self, svg: &mut Svg, process: u32, y: f64) {
        let mut colours = COLOURS.iter().cycle();
        let number = usize::try_from(process).unwrap_or(0) % COLOURS.len();
        let colour = colours.nth(number).copied().unwrap_or("#666");
        svg.text((10.0, y + 16.0), "", &format!("process {process}"));
        self.disturbances(svg, process, y);
        for acquire in self.acquires.iter().filter(|a| a.process == process) {
            let (x1, x2) = (self.scale.x(acquire.invoke), self.scale.x(acquire.complete));
            let style = r##"stroke="#999" stroke-dasharray="2 2""##;
            svg.line((x1, y + 12.0), (x2, y + 12.0), style);
        }
        for waiting in self.open.values().filter(|w| w.process == process) {
            self.waits(svg, waiting, y);
        }
        for hold in self.holds.iter().filter(|h| h.acquire.process == process) {
            bar(svg, self.index, self.scale, hold, (y, colour));
        }
    }

    /// A wait that did not end, or only with its process.
    fn waits(&self, svg: &mut Svg, waiting: &Waiting, y: f64) {
        let died = self.killed.get(&waiting.process).copied();
        let until = died.unwrap_or(u64::MAX);
        if !self.scale.shows(waiting.invoke, until) {
            return;
        }
        let (x1, x2) = (self.scale.x(waiting.invoke), self.scale.x(until));
        let style = r##"stroke="#d00" stroke-width="2" stroke-dasharray="4 3""##;
        svg.line((x1, y + 12.0), (x2, y + 12.0), style);
        let style = r##"fill="#d00" font-size="10""##;
        svg.text((x1 + 4.0, y + 8.0), style, "waits");
    }

    /// What was done to a process, or to all, while it is shown.
    fn disturbances(&self, svg: &mut Svg, process: u32, y: f64) {
        let scale = self.scale;
        // Where the last words end: others are not written over them.
        let mut written = 0.0;
        for fault in self.index.history.faults() {
            let here = fault.process.is_none_or(|victim| victim == process)
                && fault.lock.as_ref().is_none_or(|victim| victim == self.lock);
            if !here || !scale.shows(fault.at, fault.until) {
                continue;
            }
            let (x, w) = (scale.x(fault.at), scale.x(fault.until) - scale.x(fault.at));
            svg.rect(
                (x, y, w, 24.0),
                r##"fill="#fc3" fill-opacity=".45""##,
                &fault.kind,
            );
            if x >= written {
                let style = r##"font-size="9" fill="#a60""##;
                svg.text((x + 2.0, y + 31.0), style, &fault.kind);
                written = x + 5.0 * as_f64(fault.kind.len());
            }
        }
        if let Some(at) = self.killed.get(&process)
            && scale.shows(*at, *at)
        {
            svg.text(
                (scale.x(*at) - 5.0, y + 18.0),
                r##"fill="#d00" font-size="16""##,
                "✕",
            );
        }
    }
}

fn bar(svg: &mut Svg, index: &Index<'_>, scale: Scale, hold: &Hold<'_>, (y, colour): (f64, &str)) {
    let (from, valid) = match hold.claim() {
        Some(claim) => claim,
        None => (hold.acquire.complete, hold.acquire.complete),
    };
    let end = hold
        .release
        .map_or(valid, |release| release.complete)
        .max(valid);
    if !scale.shows(from, end) {
        return;
    }
    let title = format!(
        "{}: granted at {}, valid until {} at least, {}",
        hold.name(),
        index.time(from),
        index.time(valid),
        match hold.release {
            Some(release) => format!("released at {}", index.time(release.complete)),
            None => "not released".to_owned(),
        },
    );
    let (x, x_valid, x_end) = (scale.x(from), scale.x(valid), scale.x(end));
    if x_end > x_valid {
        let style = format!(r#"fill="{colour}" fill-opacity=".25""#);
        svg.rect((x, y + 4.0, x_end - x, 16.0), &style, &title);
    }
    let style = format!(r#"fill="{colour}""#);
    svg.rect((x, y + 4.0, x_valid - x, 16.0), &style, &title);
    if x_end - x > 60.0 {
        let words = match index.has_tokens() {
            true => format!("token {}", hold.token),
            false => op_name(hold.acquire.op),
        };
        svg.text(
            (x + 4.0, y + 16.0),
            r##"fill="#fff" font-size="10""##,
            &words,
        );
    }
}

fn axis(svg: &mut Svg, index: &Index<'_>, scale: Scale, height: f64) {
    let y = height - 22.0;
    svg.line((LEFT, y), (LEFT + scale.width, y), r##"stroke="#333""##);
    for step in 0..=4_u64 {
        let at = scale.from + (scale.until - scale.from) / 4 * step;
        let x = scale.x(at);
        svg.line((x, y), (x, y + 4.0), r##"stroke="#333""##);
        let words = format!("{:.3} s", millis(at.saturating_sub(index.origin)) / 1e3);
        let anchor = if step == 4 { "end" } else { "start" };
        svg.text(
            (x, y + 16.0),
            &format!(r#"font-size="10" text-anchor="{anchor}""#),
            &words,
        );
    }
}

/// The operations of a violation, for a caption.
pub(super) fn names(violation: &Violation) -> String {
    let names: Vec<_> = violation.ops.iter().map(|op| op_name(*op)).collect();
    names.join(", ")
}

#[expect(clippy::cast_precision_loss, reason = "a number of rows")]
pub(super) fn as_f64(number: usize) -> f64 {
    number as f64
}
