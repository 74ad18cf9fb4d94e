//! `ringfence completions` and `ringfence man`: the grammar of the command line, for shells and for man(1).

use crate::output::write;
use clap::{Args, Command, ValueEnum};
use lifecycle::Result;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Directory for the pages, which is made
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

pub(crate) fn completions(args: &Completions, mut grammar: Command) -> Result<()> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut grammar, "ringfence", &mut script);
    write(String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &Man, grammar: Command) -> Result<()> {
    // The version is a line in a page's margin.
    let grammar = grammar.version(env!("CARGO_PKG_VERSION"));
    let written =
        std::fs::create_dir_all(&args.dir).and_then(|()| clap_mangen::generate_to(grammar, &args.dir));
    written.map_err(|error| format!("{}: {error}", args.dir.display()).into())
}
