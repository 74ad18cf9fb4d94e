//! `ringfence kill`: sends a signal to a container.

use clap::Args;
use lifecycle::{Result, Settings};
use spec::Target;

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// To every process of the container
    #[arg(long, short = 'a')]
    pub(crate) all: bool,
    /// To one process, by its id inside the container
    #[arg(long, value_name = "PID", conflicts_with = "all")]
    pub(crate) pid: Option<i32>,
    /// To one process group, by its id inside the container
    #[arg(long, value_name = "PGID", conflicts_with_all = ["all", "pid"])]
    pub(crate) pgid: Option<i32>,
    /// The container's name
    pub(crate) id: String,
    /// Signal, by number or name
    #[arg(default_value = "SIGTERM")]
    pub(crate) signal: String,
}

pub(crate) fn kill(settings: &Settings, args: &Kill) -> Result<()> {
    let to = match (args.pid, args.pgid) {
        _ if args.all => Target::All,
        (Some(pid), _) => Target::Process(pid),
        (None, Some(pgid)) => Target::Group(pgid),
        (None, None) => Target::Init,
    };
    lifecycle::kill(settings, &args.id, parse_signal(&args.signal)?, to)
}

/// A signal by its number, or by its name with or without `SIG`.
pub(crate) fn parse_signal(text: &str) -> Result<i32> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = match text.parse::<i32>() {
        Ok(number) => Some(number),
        Err(_) => match name.strip_prefix("RTMIN") {
            Some("") => Some(libc::SIGRTMIN()),
            Some(more) => more.parse::<i32>().ok().map(|more| libc::SIGRTMIN() + more),
            None => abi::signal::by_name(&upper).map(abi::Signal::raw),
        },
    };
    match number {
        Some(number @ 0..=64) => Ok(number),
        _ => Err(format!("unknown signal {text:?}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals() {
        for (text, number) in [
            ("9", 9),
            ("0", 0),
            ("KILL", 9),
            ("sigterm", 15),
            ("SIGWINCH", 28),
            ("RTMIN", 34),
            ("rtmin+2", 36),
        ] {
            assert_eq!(parse_signal(text), Ok(number), "{text}");
        }
        for text in ["", "SIG", "NONE", "65", "-1", "RTMIN+31", "SIGSIGTERM"] {
            assert!(parse_signal(text).is_err(), "{text}");
        }
    }
}
