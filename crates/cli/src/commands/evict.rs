//! `clinch evict NAME`

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clinch::store::{LockView, PartyView};
use clinch::{Clinch, Token};
use serde_json::json;

use super::with_store;
use crate::args::EvictArgs;
use crate::context::Context;
use crate::failure::{Failure, Outcome, exit};
use crate::output::{self, plain};
use crate::wait_line::who;

pub(crate) async fn main(context: &Context, args: &EvictArgs) -> Outcome {
    if !args.yes && !std::io::stdin().is_terminal() {
        return Err(
            Failure::usage("there is nobody to ask whether to break the hold")
                .with_name(args.name.as_str())
                .with_advice("say --yes"),
        );
    }
    with_store(context, |clinch| async move {
        evict(context, &clinch, args).await
    })
    .await
}

async fn evict(context: &Context, clinch: &Clinch, args: &EvictArgs) -> Outcome {
    if !args.yes {
        let view = clinch.inspect(args.name.as_str()).await?;
        let holders = view
            .as_ref()
            .map(|view| wanted(view, args.token))
            .unwrap_or_default();
        if holders.is_empty() {
            return nobody(context, args);
        }
        if !confirm(args, &holders)? {
            output::complain("nothing was changed");
            return Ok(exit::NO);
        }
    }
    let evicted = clinch.evict(args.name.as_str(), args.token).await?;
    if evicted.seqs.is_empty() {
        return nobody(context, args);
    }
    let tokens: Vec<Token> = evicted
        .seqs
        .iter()
        .filter_map(|seq| Token::new(*seq, 0))
        .collect();
    if context.json {
        output::json_line(&json!({ "name": args.name.as_str(), "evicted": tokens }))?;
    } else {
        let fenced = clinch.info().capabilities.tokens;
        for token in tokens {
            let name = plain(args.name.as_str());
            output::line(&match fenced {
                true => format!("evicted {name} token {token}"),
                false => format!("evicted {name}"),
            })?;
        }
    }
    Ok(exit::OK)
}

/// The holders that would be evicted. A token from inside a process differs from the store's in
/// its local part only.
fn wanted(view: &LockView, token: Option<Token>) -> Vec<&PartyView> {
    let meant = |holder: &&PartyView| match token {
        Some(token) => holder.token.is_some_and(|held| held.seq() == token.seq()),
        None => true,
    };
    view.holders.iter().filter(meant).collect()
}

fn nobody(context: &Context, args: &EvictArgs) -> Outcome {
    if context.json {
        let none: [Token; 0] = [];
        output::json_line(&json!({ "name": args.name.as_str(), "evicted": none }))?;
    } else {
        let with = args
            .token
            .map(|token| format!(" with token {token}"))
            .unwrap_or_default();
        output::complain(&format!("nobody holds {}{with}", plain(args.name.as_str())));
    }
    Ok(exit::NO)
}

fn confirm(args: &EvictArgs, holders: &[&PartyView]) -> Result<bool, Failure> {
    for holder in holders {
        output::complain(&format!(
            "{} is held by {}",
            plain(args.name.as_str()),
            plain(&who(holder))
        ));
    }
    let mut err = std::io::stderr().lock();
    err.write_all(b"Break it? The holder may still be at work. [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
