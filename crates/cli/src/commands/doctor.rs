//! `clinch doctor`

use clinch::store::StoreUrl;
use clinch::{Error, Finding, Severity};

use super::with_store;
use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output::{self, Paint, plain};

pub(crate) async fn main(context: &Context) -> Outcome {
    with_store(context, |clinch| async move {
        let findings = clinch.doctor().await?;
        if context.json {
            let findings: Vec<_> = findings.iter().map(output::json::finding).collect();
            output::json_line(&findings)?;
        } else {
            for finding in &findings {
                output::line(&line(context.paint, finding))?;
            }
        }
        let broken = findings
            .iter()
            .any(|finding| finding.severity == Severity::Broken);
        Ok(if broken { exit::NO } else { exit::OK })
    })
    .await
}

/// Prints the tables that the store needs, without a connection to it.
pub(crate) fn print_schema(context: &Context) -> Outcome {
    let url: StoreUrl = context.store().unwrap_or("sqlite:").parse()?;
    match url.scheme() {
        #[cfg(feature = "servers")]
        "mysql" | "mariadb" => {
            output::line(clinch::mysql::schema().trim_end())?;
            Ok(exit::OK)
        }
        scheme => {
            let text = format!("{scheme}: needs no tables that somebody could make for it");
            let error = Error::invalid(text).with_advice("--print-schema is for mysql:");
            Err(error.into())
        }
    }
}

fn line(paint: Paint, finding: &Finding) -> String {
    let severity = format!("{:<8}", finding.severity.as_str());
    let severity = match finding.severity {
        Severity::Ok => paint.green(&severity),
        Severity::Warning => paint.yellow(&severity),
        Severity::Broken => paint.red(&severity),
    };
    let advice = finding
        .advice
        .as_ref()
        .map(|text| format!("; {text}"))
        .unwrap_or_default();
    let text = format!("{}: {}{advice}", finding.subject, finding.message);
    format!("{severity} {}", plain(&text))
}
