//! Messages about a wrong command line, with suggestions.

use crate::{USAGE_ERROR, runsc};
use clap::Command;
use clap::error::{ContextKind, ContextValue};
use lifecycle::Error;

/// One line for the user about an error in a command line of this grammar. Clap's first paragraph says what is wrong; the rest is the usage.
pub(crate) fn explain(error: &clap::Error, grammar: &Command) -> String {
    let text = error.render().to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let what = lines.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what).trim_end_matches(':');
    match hint(error, grammar) {
        Some(hint) => format!("{what}; {hint}"),
        None => what.into(),
    }
}

/// The failure of a command line that makes no sense.
pub(crate) fn usage(message: String) -> Error {
    Error::with_status(USAGE_ERROR, message)
}

/// What a flag of other programs is here.
fn habit(flag: &str) -> Option<&'static str> {
    match flag {
        "-i" | "-it" | "-ti" | "--interactive" => {
            Some("standard input always comes along; a terminal is --tty, as in: ringfence exec --tty ID CMD")
        }
        "--rm" => Some("a container in the foreground goes with its end; only --keep keeps it"),
        // kill(1)'s: a signal.
        flag if flag.len() > 1 && flag[1..].bytes().all(|b| b.is_ascii_digit()) => {
            Some("a signal comes after the name, as in: ringfence kill ID 9")
        }
        _ => None,
    }
}

fn hint(error: &clap::Error, grammar: &Command) -> Option<String> {
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(why) = runsc::why_no_command(name)
    {
        return Some(why.into());
    }
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && let Some(hint) = habit(flag)
    {
        return Some(hint.into());
    }
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && let Some(name) = flag.split('=').next().and_then(|flag| flag.strip_prefix("--"))
        && grammar.get_arguments().any(|known| known.get_long() == Some(name))
    {
        return Some(format!(
            "--{name} is a global flag, which goes before the command: ringfence --{name} ... COMMAND"
        ));
    }
    let suggested =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let names = suggested.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(name) => Some(vec![name.clone()]),
        ContextValue::Strings(names) if !names.is_empty() => Some(names.clone()),
        _ => None,
    })?;
    let names: Vec<_> = names
        .into_iter()
        .filter(|name| {
            !grammar.get_subcommands().any(|known| known.get_name() == name && known.is_hide_set())
        })
        .collect();
    // The likeliest one is the last.
    (!names.is_empty())
        .then(|| format!("did you mean {}?", names.into_iter().rev().collect::<Vec<_>>().join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::{CommandFactory, Parser};

    #[test]
    fn what_was_meant() {
        let says = |line: &[&str], what: &str| {
            let error = Cli::try_parse_from([&["ringfence"], line].concat()).unwrap_err();
            let text = explain(&error, &Cli::command());
            assert!(text.contains(what), "{line:?}: {text}");
        };
        says(&["craete"], "did you mean create");
        says(&["do", "--volum", "/x", "true"], "did you mean --volume?");
        says(&["do", "--network=none", "true"], "--network is a global flag");
        says(&["kill", "-9", "box"], "kill ID 9");
        says(&["exec", "-it", "box", "sh"], "exec --tty ID CMD");
        says(&["run", "--rm", "box"], "goes with its end");
        says(&["--netwrk=none", "do", "true"], "did you mean --network?");
    }
}
