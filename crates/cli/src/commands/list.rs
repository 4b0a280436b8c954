//! `clinch list [PREFIX]`

use std::io::IsTerminal as _;

use clinch::store::{LockView, PartyView};

use super::with_store;
use crate::args::PrefixArgs;
use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output::{self, Table, age, complain};
use crate::wait_line::process;

pub(crate) async fn main(context: &Context, args: &PrefixArgs) -> Outcome {
    with_store(context, |clinch| async move {
        let locks = clinch.list(&args.prefix).await?;
        if context.json {
            let locks: Vec<_> = locks.iter().map(output::json::Lock::new).collect();
            output::json_line(&locks)?;
        } else if !locks.is_empty() {
            output::line(&table(&locks).render(context.paint))?;
        } else if std::io::stdout().is_terminal() && !context.quiet {
            complain("nobody holds or waits for a lock here");
        }
        Ok(exit::OK)
    })
    .await
}

/// One row for each holder and waiter; a lock's name stands in its first row.
fn table(locks: &[LockView]) -> Table {
    let heading = [
        "NAME",
        "STATE",
        "MODE",
        "WHO",
        "FOR",
        "LEASE LEFT",
        "TOKEN",
        "LABEL",
    ];
    let mut table = Table::new(&heading);
    for lock in locks {
        let mut name = lock.name.to_string();
        let mut row = |cells: [String; 7]| {
            let name = std::mem::take(&mut name);
            table.row([name].into_iter().chain(cells));
        };
        for party in &lock.holders {
            row(cells("held", lock.limit, party));
        }
        for party in &lock.delayed {
            row(cells("lock-delay", lock.limit, party));
        }
        for party in &lock.waiters {
            row(cells("waiting", lock.limit, party));
        }
    }
    table
}

fn cells(state: &str, limit: u32, party: &PartyView) -> [String; 7] {
    [
        state.to_owned(),
        mode(party.units, limit),
        process(party),
        age(party.age),
        age(party.lease_left),
        party
            .token
            .map(|token| token.to_string())
            .unwrap_or_default(),
        party.label.as_deref().unwrap_or_default().to_owned(),
    ]
}

/// How a party holds or wants to hold, in a word or as `2/5`.
pub(super) fn mode(units: u32, limit: u32) -> String {
    match clinch::Mode::of(units, limit) {
        permits @ clinch::Mode::Permits { .. } => permits.to_string(),
        mode => output::json::mode_word(mode).to_owned(),
    }
}
