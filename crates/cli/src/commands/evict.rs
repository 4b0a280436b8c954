//! `clinch evict NAME`

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clinch::store::{Evicted, LockView, PartyView};
use clinch::{Clinch, Token};
use serde_json::{Value, json};

use super::with_store;
use crate::args::EvictArgs;
use crate::context::Context;
use crate::failure::{Failure, Outcome, exit};
use crate::output::{self, plain};
use crate::wait_line::{delay, who};

pub(crate) async fn main(context: &Context, args: &EvictArgs) -> Outcome {
    if !args.yes && !std::io::stdin().is_terminal() {
        return Err(Failure::usage("no terminal to confirm on")
            .with_name(args.name.as_str())
            .with_advice("repeat with --yes"));
    }
    with_store(context, |clinch| async move {
        evict(context, &clinch, args).await
    })
    .await
}

/// What is broken: that which was shown, and nothing that came after.
enum Targets {
    /// The holds, or lock-delays of ended holds, with these tokens.
    Tokens(Vec<Token>),
    /// The store has no tokens: whatever has the name.
    Name,
}

async fn evict(context: &Context, clinch: &Clinch, args: &EvictArgs) -> Outcome {
    let targets = match (args.token, args.yes) {
        (Some(token), true) => Targets::Tokens(vec![token]),
        _ => {
            let view = clinch.inspect(args.name.as_str()).await?;
            let found = view.as_ref().map(|view| wanted(view, args.token));
            let found = found.unwrap_or_default();
            if found.is_empty() {
                return nobody(context, args);
            }
            if !args.yes && !confirm(args, &found)? {
                output::complain("nothing was changed");
                return Ok(exit::NO);
            }
            let tokens: Option<Vec<Token>> = found.iter().map(|(_, party)| party.token).collect();
            tokens.map_or(Targets::Name, Targets::Tokens)
        }
    };
    let (done, failed) = execute(clinch, args, &targets).await;
    if done.seqs.is_empty() && done.delays.is_empty() {
        failed?;
        return match args.token {
            None => ended_meanwhile(context, args),
            Some(_) => nobody(context, args),
        };
    }
    say(context, clinch, args, &done)?;
    failed?;
    Ok(exit::OK)
}

/// Breaks each of them. What was done before an error is worth saying, too.
async fn execute(
    clinch: &Clinch,
    args: &EvictArgs,
    targets: &Targets,
) -> (Evicted, Result<(), Failure>) {
    let tokens: Vec<Option<Token>> = match targets {
        Targets::Tokens(tokens) => tokens.iter().copied().map(Some).collect(),
        Targets::Name => vec![None],
    };
    let mut done = Evicted::default();
    for token in tokens {
        match clinch.evict(args.name.as_str(), token).await {
            Ok(evicted) => {
                done.seqs.extend(evicted.seqs);
                done.delays.extend(evicted.delays);
            }
            Err(error) => return (done, Err(error.into())),
        }
    }
    (done, Ok(()))
}

fn say(
    context: &Context,
    clinch: &Clinch,
    args: &EvictArgs,
    done: &Evicted,
) -> std::io::Result<()> {
    let tokens = |seqs: &[u64]| -> Vec<Token> {
        seqs.iter().filter_map(|seq| Token::new(*seq, 0)).collect()
    };
    let (evicted, delays) = (tokens(&done.seqs), tokens(&done.delays));
    if context.json {
        return output::json_line(&as_json(args, &evicted, &delays));
    }
    let fenced = clinch.info().capabilities.tokens;
    let name = plain(args.name.as_str());
    let evicted = evicted.iter().map(|token| ("evicted", token));
    let delays = delays
        .iter()
        .map(|token| ("ended the lock-delay of", token));
    for (what, token) in evicted.chain(delays) {
        output::line(&match fenced {
            true => format!("{what} {name} token {token}"),
            false => format!("{what} {name}"),
        })?;
    }
    Ok(())
}

fn as_json(args: &EvictArgs, evicted: &[Token], delays: &[Token]) -> Value {
    json!({ "name": args.name.as_str(), "evicted": evicted, "delays": delays })
}

/// A holder, or an ended one whose lock-delay runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Holder,
    Delay,
}

/// What would be broken: the holds, or where nobody holds the lock, the lock-delays. A token from
/// inside a process differs from the store's in its local part only.
fn wanted(view: &LockView, token: Option<Token>) -> Vec<(Part, &PartyView)> {
    let holders = view.holders.iter().map(|party| (Part::Holder, party));
    let delays = view.delayed.iter().map(|party| (Part::Delay, party));
    match token {
        Some(token) => holders
            .chain(delays)
            .filter(|(_, party)| party.token.is_some_and(|held| held.seq() == token.seq()))
            .collect(),
        None if view.holders.is_empty() => delays.collect(),
        None => holders.collect(),
    }
}

fn nobody(context: &Context, args: &EvictArgs) -> Outcome {
    let with = args.token.map(|token| format!(" with token {token}"));
    let with = with.unwrap_or_default();
    let text = format!("nobody holds {}{with}", plain(args.name.as_str()));
    nothing(context, args, &text)
}

fn ended_meanwhile(context: &Context, args: &EvictArgs) -> Outcome {
    let name = plain(args.name.as_str());
    let text = format!("nothing was changed: {name} is not held by the same holder any more");
    nothing(context, args, &text)
}

fn nothing(context: &Context, args: &EvictArgs, text: &str) -> Outcome {
    match context.json {
        true => output::json_line(&as_json(args, &[], &[]))?,
        false => output::complain(text),
    }
    Ok(exit::NO)
}

fn confirm(args: &EvictArgs, found: &[(Part, &PartyView)]) -> Result<bool, Failure> {
    let name = plain(args.name.as_str());
    for (part, party) in found {
        output::complain(&match part {
            Part::Holder => format!("{name} is held by {}", plain(&who(party))),
            Part::Delay => format!("{name} is {}", plain(&delay(party))),
        });
    }
    let question: &[u8] = match found.first() {
        Some((Part::Delay, _)) => {
            b"End the lock-delay? The last holder may still be at work. [y/N] "
        }
        _ => b"Break it? The holder may still be at work. [y/N] ",
    };
    let mut err = std::io::stderr().lock();
    err.write_all(question)?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
