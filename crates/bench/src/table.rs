//! The figures as a table for people.

use crate::hist::Percentiles;
use crate::report::Report;

/// Rows of cells: the first column to the left, figures to the right.
#[derive(Default)]
struct Table(Vec<Vec<String>>);

impl Table {
    fn new(heading: &[&str]) -> Self {
        Self(vec![heading.iter().map(|cell| (*cell).into()).collect()])
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().collect());
    }

    fn render(&self) -> String {
        let width = |column| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(String::len).max().unwrap_or_default()
        };
        let columns = self.0.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.0 {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => line += &format!("{cell:width$}"),
                    _ => line += &format!("  {cell:>width$}"),
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// The whole report.
pub(crate) fn render(report: &Report) -> String {
    let mut parts = vec![heading(report)];
    parts.extend(pairs(report));
    parts.extend(contended(report));
    parts.extend(singles(report));
    parts.extend(aims(report));
    if report.interrupted {
        parts.push("interrupted: these are the cells that were complete\n".into());
    }
    if let Some(left) = report.left_behind.filter(|left| *left > 0) {
        parts.push(format!("{left} names were left in the store\n"));
    }
    parts.join("\n").trim_end().to_owned()
}

fn heading(report: &Report) -> String {
    let (store, seconds, cpus) = (report.store, report.seconds, report.cpus);
    let mut text = format!("{store}, {seconds} s per cell, {cpus} CPUs\n");
    if report.quick {
        text += "quick: too short to be exact\n";
    }
    for skipped in &report.skipped {
        text += &format!("{}: none ({})\n", skipped.cell, skipped.reason);
    }
    text
}

fn pairs(report: &Report) -> Option<String> {
    if report.floor.is_empty() && report.uncontended.is_empty() {
        return None;
    }
    let mut heads = vec![
        "ACQUIRE + RELEASE",
        "workers",
        "pairs/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "ops",
        ":floor",
        ":1 worker",
    ];
    if !report.classic.is_empty() {
        heads.push(":usual");
    }
    let mut table = Table::new(&heads);
    let floor = report.floor.iter().map(|row| ("floor", row));
    let classic = report.classic.iter().map(|row| ("usual lock", row));
    for (what, row) in floor.chain(classic) {
        let what = match row.failed {
            0 => what.to_owned(),
            failed => format!("{what} ({failed} failed)"),
        };
        let mut cells = vec![what, row.workers.to_string(), rate(row.pairs_per_s)];
        cells.extend(latencies(row.latency));
        table.row(cells);
    }
    for row in &report.uncontended {
        let mut cells = vec![
            "uncontended".into(),
            row.workers.to_string(),
            rate(row.pairs_per_s),
        ];
        cells.extend(latencies(row.latency));
        cells.push(two(row.operations_per_acquisition));
        cells.push(times(row.ratio_to_floor));
        cells.push(times(row.ratio_to_one_worker));
        if !report.classic.is_empty() {
            cells.push(times(row.ratio_to_classic));
        }
        table.row(cells);
    }
    Some(table.render())
}

fn contended(report: &Report) -> Option<String> {
    if report.contended.is_empty() && report.processes.is_empty() {
        return None;
    }
    let mut table = Table::new(&[
        "ONE NAME",
        "rivals",
        "acq/s",
        "wait p50",
        "p99",
        "p99.9",
        "max",
        "ops",
        "max/min",
        "violations",
        ":uncontended",
    ]);
    for row in &report.contended {
        let kind = if row.fair { "tasks, fair" } else { "tasks" };
        let mut cells = vec![
            kind.into(),
            row.tasks.to_string(),
            rate(row.acquisitions_per_s),
        ];
        cells.extend(latencies(row.wait));
        cells.push(two(row.operations_per_acquisition));
        cells.push(times(row.fairness));
        cells.push(row.violations.to_string());
        cells.push(times(row.ratio_to_uncontended));
        table.row(cells);
    }
    for row in &report.processes {
        let kind = match (row.tasks, row.fair) {
            (1, _) => "processes".to_owned(),
            (_, fair) => format!(
                "{} processes, {:.1} ms inside{}",
                row.processes,
                row.section_us / 1e3,
                if fair { ", fair" } else { "" }
            ),
        };
        let rivals = u64::from(row.tasks) * u64::try_from(row.processes).unwrap_or_default();
        let mut cells = vec![kind, rivals.to_string()];
        cells.push(rate(row.acquisitions_per_s));
        cells.extend(latencies(row.wait));
        cells.push(two(row.operations_per_acquisition));
        cells.push(times(row.fairness));
        cells.push(row.violations.to_string());
        cells.push(times(row.ratio_to_uncontended));
        table.row(cells);
    }
    Some(table.render())
}

fn singles(report: &Report) -> Option<String> {
    let mut text = String::new();
    if let Some(row) = &report.handover {
        let [p50, p99, _, max] = latencies(row.latency);
        text += &format!(
            "hand-over between two processes: p50 {p50}, p99 {p99}, max {max} ({} of them, {} violations)\n",
            row.handovers, row.violations
        );
        if let Some(baton) = row.baton {
            let [p50, p99, _, max] = latencies(baton);
            text += &format!(
                "  the engine's bare token: p50 {p50}, p99 {p99}, max {max}; {} by the median\n",
                times(row.ratio_to_baton)
            );
        }
        text += &format!(
            "  operations of the waiter: {} in 3 ms, {} in {:.0} ms (with {:.1} wake-ups and {} of CPU)\n",
            two(row.operations_per_wait),
            two(row.long_wait_operations),
            row.long_wait_ms,
            row.long_wait_wakeups,
            micros(row.long_wait_cpu_us),
        );
    }
    if let Some(row) = &report.command {
        text += &format!(
            "clinch run NAME -- true: {:.2} ms; flock FILE true: {:.2} ms; {} (medians of {})\n",
            row.run_ms,
            row.flock_ms,
            times(row.ratio_to_flock),
            row.runs
        );
    }
    if let Some(row) = &report.renewal {
        text += &format!(
            "renewal of {} holds with leases of {} s: {:.2} % of a core over {:.1} s ({} operations, {} lost)\n",
            row.holds, row.lease_s, row.cpu_percent, row.window_s, row.operations, row.lost
        );
        if row.holds != 10_000 {
            text += &format!(
                "  scaled to 10,000 holds of 30 s: {:.2} %\n",
                row.cpu_percent_10000_holds_30s
            );
        }
    }
    (!text.is_empty()).then_some(text)
}

fn aims(report: &Report) -> Option<String> {
    if report.aims.is_empty() {
        return None;
    }
    let mut table = Table::new(&["AIM", "wanted", "seen", ""]);
    for aim in &report.aims {
        let sign = if aim.at_least { ">=" } else { "<=" };
        table.row([
            aim.aim.to_owned(),
            format!("{sign} {}", aim.wanted),
            two(aim.seen),
            if aim.met { "met" } else { "missed" }.to_owned(),
        ]);
    }
    Some(table.render())
}

fn latencies(p: Percentiles) -> [String; 4] {
    [p.p50_us, p.p99_us, p.p999_us, p.max_us].map(micros)
}

fn micros(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.1}us"),
        v if v < 1e4 => format!("{v:.0}us"),
        v if v < 1e6 => format!("{:.1}ms", v / 1e3),
        v => format!("{:.2}s", v / 1e6),
    }
}

fn rate(value: f64) -> String {
    format!("{value:.0}")
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}

fn times(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}x"))
}
