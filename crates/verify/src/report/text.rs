//! The summary for people.

use std::fmt::Write as _;

use super::{Report, Spread};

pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    let (start, counts) = (&report.start, &report.counts);
    let figures = &report.findings.figures;
    writeln!(out, "{} · {}", start.store, start.versions.join(" · "))?;
    write!(
        out,
        "seed {} · {} clients · {:.0} s",
        start.seed, start.clients, counts.seconds,
    )?;
    match start.workloads.is_empty() {
        true => writeln!(out)?,
        false => writeln!(out, " · {}", start.workloads.join(" "))?,
    }
    writeln!(
        out,
        "{} operations, {} grants, {} of unknown end, {} holders told of a loss; {} processes, {} of them killed",
        counts.operations,
        counts.grants,
        counts.unknown,
        counts.losses,
        counts.processes,
        counts.killed,
    )?;
    writeln!(
        out,
        "{} faults of {} kinds:",
        report.fault_count(),
        report.faults.len()
    )?;
    for (kind, count) in &report.faults {
        writeln!(out, "  {count:>5}  {kind}")?;
    }
    for what in &start.missing {
        writeln!(out, "  cannot be injected here: {what}")?;
    }
    if figures.excused > 0 {
        writeln!(
            out,
            "{:.0} s under faults that excuse something, or within a lease after them; {} grants at other times",
            super::millis(figures.excused) / 1000.0,
            figures.grants_unexcused,
        )?;
    }
    let recovery = Spread::of(&figures.recoveries);
    if recovery.count > 0 {
        writeln!(
            out,
            "a killed holder's lock passed on within {:.0} ms (99 % within {:.0} ms, {} times)",
            recovery.max, recovery.p99, recovery.count,
        )?;
    }
    let late = Spread::of(&figures.late_signals);
    if late.count > 0 {
        writeln!(
            out,
            "a loss was told at most {:.1} ms after the deadline",
            late.max
        )?;
    }
    if figures.unordered_beside > 0 {
        writeln!(
            out,
            "{} grants of permits and readers have a smaller token than one granted before, beside which they may be held",
            figures.unordered_beside,
        )?;
    }
    if figures.updates_fenced > 0 {
        writeln!(
            out,
            "a resource that checks tokens: {} updates, {} lost, {} refused",
            figures.updates_fenced, figures.lost_updates_fenced, figures.refused_writes,
        )?;
    }
    if figures.updates_unfenced > 0 {
        writeln!(
            out,
            "a resource that does not: {} updates, {} lost (no lock can prevent that)",
            figures.updates_unfenced, figures.lost_updates_unfenced,
        )?;
    }
    if figures.calm_operations > 0 {
        writeln!(
            out,
            "{} requests for {} operations that were under way in a second without a fault",
            figures.calm_requests, figures.calm_operations,
        )?;
    }
    for problem in &report.problems {
        writeln!(out, "problem: {problem}")?;
    }
    excused(out, report)?;
    let violations = report.findings.violations.len();
    for violation in report.told() {
        writeln!(
            out,
            "violation of {}: {}",
            violation.property.as_str(),
            violation.message
        )?;
    }
    let cut = if report.interrupted {
        "interrupted; so far "
    } else {
        ""
    };
    match violations {
        0 => write!(out, "{cut}no violation"),
        1 => write!(out, "{cut}1 violation"),
        n => write!(out, "{cut}{n} violations"),
    }
}

fn excused(out: &mut String, report: &Report) -> std::fmt::Result {
    let mut kinds = std::collections::BTreeMap::new();
    for violation in &report.findings.excused {
        let fault = violation.excused_by.as_deref().unwrap_or("a fault");
        *kinds
            .entry((violation.property.as_str(), fault))
            .or_insert(0_usize) += 1;
    }
    for ((property, fault), count) in kinds {
        writeln!(
            out,
            "not promised: {property}, {count} times, under: {fault}"
        )?;
    }
    Ok(())
}
