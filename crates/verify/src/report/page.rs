//! One page that opens without a network.

use super::svg::escape;
use super::{Report, overview, picture};
use crate::check::Index;
use crate::history::History;

/// The most violations that are drawn.
const DRAWN: usize = 8;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}pre{background:#f4f4f4;padding:1em;overflow:auto;white-space:pre-wrap}\
svg{max-width:100%;height:auto;border:1px solid #ddd}.ok{color:#07713d}.bad{color:#c00}figcaption{font-size:13px;color:#555}figure{margin:1em 0}";

pub(super) fn render(report: &Report, history: &History) -> String {
    let (class, verdict) = match report.findings.violations.len() {
        0 => ("ok", "no violation".to_owned()),
        1 => ("bad", "1 violation".to_owned()),
        n => ("bad", format!("{n} violations")),
    };
    let title = format!("clinch verify: {}", escape(&report.start.store));
    let mut body = format!("<h1>{title}: <span class=\"{class}\">{verdict}</span></h1>\n");
    body += &format!("<pre>{}</pre>\n", escape(&report.text()));
    body += "<h2>The run</h2>\n";
    body += &overview::draw(report, history);
    let index = Index::new(history);
    for violation in report.told().take(DRAWN) {
        let heading = format!("violation of {}", violation.property.as_str());
        body += &format!("<h2 class=\"bad\">{heading}</h2>\n<figure>\n");
        body += &picture::of(&index, violation);
        let names = picture::names(violation);
        body += &format!(
            "<figcaption>{} {}</figcaption></figure>\n",
            escape(&violation.message),
            escape(&names)
        );
    }
    body += &sample(report, &index);
    body += "<p><small>Dashed: waiting. Solid: the guard said that it was valid. Pale: until the release was complete. \
        Yellow: a fault. Point at anything to read more.</small></p>\n";
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )
}

/// The busiest lock around a fault in the middle of the run.
fn sample(report: &Report, index: &Index<'_>) -> String {
    let locks = index.by_lock();
    let busiest = locks.iter().max_by_key(|(_, holds)| holds.len());
    let Some((lock, _)) = busiest else {
        return String::new();
    };
    let faults: Vec<_> = index
        .history
        .faults()
        .filter(|fault| fault.process.is_some())
        .collect();
    let Some(fault) = faults.get(faults.len() / 2) else {
        return String::new();
    };
    let lease = report.start.lease;
    let span = (fault.at.saturating_sub(lease / 4), fault.at + lease / 2);
    format!(
        "<h2>The busiest lock around a fault</h2>\n{}",
        picture::draw(index, lock, span, None)
    )
}
