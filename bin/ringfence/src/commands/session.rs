//! `ringfence session`, `undo` and `branch`: the sessions of `do`.

use crate::output::say;
use clap::{Args, Subcommand};
use lifecycle::{Result, Sessions};

#[derive(Debug, Args)]
pub(crate) struct SessionCommand {
    #[command(subcommand)]
    command: SessionAction,
}

#[derive(Debug, Subcommand)]
enum SessionAction {
    /// List sessions
    List,
    /// Show the steps of a session: number, the step before, exit status and command; * is the one that the next command begins with
    Log {
        /// The session
        session: String,
    },
    /// Remove sessions with all their steps
    Delete {
        /// The sessions
        #[arg(required = true)]
        sessions: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// The session
    session: String,
    /// How many steps
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Branch {
    /// The session
    session: String,
    /// The step that the next command begins with
    step: u32,
}

pub(crate) fn session(args: &SessionCommand) -> Result<()> {
    let all = Sessions::open()?;
    match &args.command {
        SessionAction::List => all.names().iter().try_for_each(say),
        SessionAction::Log { session } => {
            let session = all.find(session)?;
            let head = session.head()?;
            for step in session.steps()? {
                let mark = if head == Some(step.number) { "*" } else { " " };
                let parent = step.parent.map_or("-".into(), |parent| parent.to_string());
                let (number, status) = (step.number, step.status);
                say(format_args!("{mark} {number:<5} {parent:<5} {status:<4} {}", step.args.join(" ")))?;
            }
            Ok(())
        }
        SessionAction::Delete { sessions } => sessions.iter().try_for_each(|name| all.delete(name)),
    }
}

pub(crate) fn undo(args: &Undo) -> Result<()> {
    let step = Sessions::open()?.find(&args.session)?.undo(args.count)?;
    say(format_args!("step {step}"))
}

pub(crate) fn branch(args: &Branch) -> Result<()> {
    Sessions::open()?.find(&args.session)?.go_to(args.step)
}
