//! Reads the command line; a mistake in it gets one line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::Cli;
use crate::failure::{Failure, exit};

/// Reads the arguments; what is wrong with them is reported and gives an exit status.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, i32> {
    let args: Vec<OsString> = args.into_iter().collect();
    let matches = Cli::command().try_get_matches_from(&args);
    matches
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
                Ok(()) => exit::OK,
                Err(error) => Failure::from(error).report(false),
            },
            ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Failure::usage("no command given")
                    .with_advice("try `clinch run NAME -- CMD`, or see `clinch --help`")
                    .report(wants_json(&args))
            }
            _ => explain(&error, &args).report(wants_json(&args)),
        })
}

/// Whether `--json` stands among clinch's own arguments.
fn wants_json(args: &[OsString]) -> bool {
    args.iter()
        .take_while(|arg| *arg != "--")
        .any(|arg| arg == "--json")
}

fn explain(error: &clap::Error, args: &[OsString]) -> Failure {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    let missing_command = argument.contains("CMD");
    match error.kind() {
        ErrorKind::MissingRequiredArgument if missing_command => {
            let sub = subcommand(args);
            Failure::usage("there is no command to run")
                .with_advice(format!("write it after `--`: clinch {sub} NAME -- CMD"))
        }
        ErrorKind::MissingRequiredArgument => {
            let sub = subcommand(args);
            Failure::usage(format!("{sub} needs {argument}"))
                .with_advice(format!("see `clinch {sub} --help`"))
        }
        // The value's own reader has said what is wrong and what would be right.
        ErrorKind::ValueValidation => match std::error::Error::source(error) {
            Some(source) => Failure::usage(format!("{argument}: {source}")),
            None => Failure::usage(first_lines(error)),
        },
        ErrorKind::UnknownArgument if unmarked_command(&argument, args) => {
            let sub = subcommand(args);
            Failure::usage(format!("{argument:?} is not expected here")).with_advice(format!(
                "put `--` before the command: clinch {sub} NAME -- {argument}"
            ))
        }
        _ => {
            let failure = Failure::usage(first_lines(error));
            match text(ContextKind::SuggestedArg).or_else(|| text(ContextKind::SuggestedSubcommand))
            {
                Some(right) => failure.with_advice(format!("did you mean {right}?")),
                None => failure.with_advice(help_of(args)),
            }
        }
    }
}

/// `clinch run NAME echo hi`: a command without the `--` before it.
fn unmarked_command(argument: &str, args: &[OsString]) -> bool {
    matches!(subcommand(args).as_str(), "run" | "elect") && !argument.starts_with('-')
}

fn help_of(args: &[OsString]) -> String {
    match subcommand(args).as_str() {
        "COMMAND" => "see `clinch --help`".into(),
        sub => format!("see `clinch {sub} --help`"),
    }
}

/// The subcommand among the arguments, for the help that a message points to.
fn subcommand(args: &[OsString]) -> String {
    let known = Cli::command();
    args.iter()
        .skip(1)
        .filter_map(|arg| arg.to_str())
        .find(|arg| known.find_subcommand(arg).is_some())
        .unwrap_or("COMMAND")
        .to_owned()
}

/// The first paragraph of clap's message as one line.
fn first_lines(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.lines().take_while(|line| !line.trim().is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(args: &[&str]) -> String {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let error = Cli::command().try_get_matches_from(&args).unwrap_err();
        serde_json::to_value(explain(&error, &args))
            .unwrap()
            .to_string()
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn mistakes_get_what_would_be_right() {
        for (args, want) in [
            (&["clinch", "run", "x"][..], "after `--`"),
            (&["clinch", "run", "x", "echo"], "put `--` before"),
            (&["clinch", "run", "--wait", "5", "x", "--", "a"], "5ms"),
            (&["clinch", "show"], "<NAME>"),
            (&["clinch", "lst"], "list"),
            (&["clinch", "list", "--jsn"], "--json"),
        ] {
            let text = message(args);
            assert!(text.contains(want), "{args:?}: {text}");
        }
    }

    #[test]
    fn json_is_seen_before_the_command_only() {
        let args = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        assert!(wants_json(&args(&["clinch", "list", "--json"])));
        assert!(!wants_json(&args(&["clinch", "run", "x", "--", "--json"])));
    }
}
