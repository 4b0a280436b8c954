//! The whole run: grants in the course of time, every fault, every violation.

use std::collections::BTreeMap;

use super::picture::as_f64;
use super::svg::{Scale, Svg};
use super::{Report, millis};
use crate::history::{Event, History, Outcome};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 270.0;
const BARS: usize = 200;
const BARS_HEIGHT: f64 = 90.0;
const ROW: f64 = 16.0;

pub(super) fn draw(report: &Report, history: &History) -> String {
    let from = history.start().map_or(0, |start| start.at);
    let until = history
        .events
        .last()
        .map_or(from + 1, Event::at)
        .max(from + 1);
    let scale = Scale {
        from,
        until,
        left: LEFT,
        width: WIDTH - LEFT - 10.0,
    };
    let rows = report.faults.len();
    let height = BARS_HEIGHT + 30.0 + ROW * as_f64(rows + 1) + 30.0;
    let mut svg = Svg::new(WIDTH, height);
    bars(&mut svg, history, scale);
    let mut y = BARS_HEIGHT + 34.0;
    let mut kinds: BTreeMap<&str, f64> = BTreeMap::new();
    for (kind, count) in &report.faults {
        svg.text((10.0, y + 11.0), "", &format!("{count} × {kind}"));
        kinds.insert(kind, y);
        y += ROW;
    }
    for fault in history.faults() {
        if let Some(y) = kinds.get(fault.kind.as_str()) {
            let (x, w) = (scale.x(fault.at), scale.x(fault.until) - scale.x(fault.at));
            let title = format!("{} {}", fault.kind, fault.lock.as_deref().unwrap_or(""));
            svg.rect((x, *y, w, ROW - 3.0), r##"fill="#e69f00""##, &title);
        }
    }
    let count = report.findings.violations.len();
    svg.text(
        (10.0, y + 11.0),
        r##"fill="#d00""##,
        &format!("{count} × violation"),
    );
    for violation in &report.findings.violations {
        let (x, w) = (
            scale.x(violation.from),
            scale.x(violation.until) - scale.x(violation.from),
        );
        svg.rect((x, y, w, ROW - 3.0), r##"fill="#d00""##, &violation.message);
    }
    let end = millis(until - from) / 1e3;
    svg.text((LEFT, height - 8.0), r#"font-size="10""#, "0 s");
    svg.text(
        (WIDTH - 10.0, height - 8.0),
        r#"font-size="10" text-anchor="end""#,
        &format!("{end:.0} s"),
    );
    svg.end()
}

fn bars(svg: &mut Svg, history: &History, scale: Scale) {
    let step = (scale.until - scale.from) / u64::try_from(BARS).unwrap_or(1) + 1;
    let mut counts = vec![0_usize; BARS];
    for event in &history.events {
        if let Event::Acquire(acquire) = event
            && acquire.outcome == Outcome::Ok
        {
            let at = acquire.complete.saturating_sub(scale.from) / step;
            if let Some(count) = usize::try_from(at).ok().and_then(|at| counts.get_mut(at)) {
                *count += 1;
            }
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    svg.text((10.0, 24.0), r#"font-weight="600""#, "grants");
    let seconds = millis(step) / 1e3;
    svg.text(
        (10.0, 42.0),
        r#"font-size="10""#,
        &format!("up to {:.0} a second", as_f64(most) / seconds),
    );
    let width = scale.width / as_f64(BARS);
    for (at, count) in counts.into_iter().enumerate() {
        let height = BARS_HEIGHT * as_f64(count) / as_f64(most);
        let place = (
            scale.left + width * as_f64(at),
            10.0 + BARS_HEIGHT - height,
            width - 0.5,
            height,
        );
        svg.rect(place, r##"fill="#0072b2""##, &format!("{count} grants"));
    }
}
