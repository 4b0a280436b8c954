//! `clinch stores`

use clinch::{Capability, StoreInfo};

use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output::{self, Paint};

pub(crate) fn main(context: &Context) -> Outcome {
    let stores = clinch::stores();
    if context.json {
        let stores: Vec<_> = stores.iter().map(output::json::store).collect();
        output::json_line(&stores)?;
    } else {
        let texts: Vec<String> = stores
            .iter()
            .map(|info| text(context.paint, info))
            .collect();
        output::line(&texts.join("\n\n"))?;
    }
    Ok(exit::OK)
}

fn text(paint: Paint, info: &StoreInfo) -> String {
    let names = |there: bool| {
        let of = |c: &Capability| info.capabilities.has(*c) == there;
        let list: Vec<_> = Capability::EVERY
            .iter()
            .filter(|c| of(c))
            .map(Capability::to_string)
            .collect();
        list.join(", ")
    };
    let (promises, limits) = (&info.guarantees, &info.limits);
    let span = clinch::store::format_duration;
    let mut lines = vec![format!(
        "{}  {}",
        paint.bold(&format!("{}:", info.scheme)),
        info.summary
    )];
    for (key, value) in [
        ("scope", promises.scope.to_owned()),
        ("exclusion", promises.exclusion.to_owned()),
        ("token order", promises.token_order.to_owned()),
        ("liveness", promises.liveness.to_owned()),
        ("clock", promises.clock.to_owned()),
        ("can", names(true)),
        ("cannot", names(false)),
        (
            "leases",
            format!("{} to {}", span(limits.min_lease), span(limits.max_lease)),
        ),
        ("names", format!("up to {} bytes", limits.max_name)),
    ] {
        if !value.is_empty() {
            lines.push(format!("  {key:<13}{value}"));
        }
    }
    lines.join("\n")
}
