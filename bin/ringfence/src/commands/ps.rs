//! `ringfence ps`: the processes of a container.

use super::list::ListFormat;
use crate::output::say;
use clap::Args;
use lifecycle::{Result, Settings};
use spec::ProcessInfo;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Form of the output
    #[arg(long, short = 'f', value_enum, default_value_t = ListFormat::Table)]
    pub(crate) format: ListFormat,
    /// The container's name
    pub(crate) id: String,
    /// Options of ps(1): the host's program lists, and of its rows those of the container are shown
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PS OPTIONS")]
    pub(crate) options: Vec<String>,
}

pub(crate) fn ps(settings: &Settings, args: &Ps) -> Result<()> {
    match args.format {
        ListFormat::Table if args.options.is_empty() => table(&lifecycle::processes(settings, &args.id)?),
        // What clients do with these is look them up on the host.
        ListFormat::Table => host_table(&args.options, &lifecycle::host_processes(settings, &args.id)?),
        ListFormat::Json => say(serde_json::to_string(&lifecycle::host_processes(settings, &args.id)?)?),
    }
}

/// What the host's ps(1) says with these options, of some processes.
fn host_table(options: &[String], pids: &[i32]) -> Result<()> {
    let listed =
        Command::new("ps").args(options).output().map_err(|error| format!("cannot run ps: {error}"))?;
    if !listed.status.success() {
        let why = String::from_utf8_lossy(&listed.stderr);
        let why = why.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it says nothing");
        return Err(format!("ps {}: {}: {why}", options.join(" "), listed.status).into());
    }
    let text = String::from_utf8_lossy(&listed.stdout);
    let mut lines = text.lines();
    let title = lines.next().unwrap_or_default();
    let Some(column) = title.split_whitespace().position(|word| word == "PID") else {
        return Err(format!("ps {}: its output has no column PID", options.join(" ")).into());
    };
    say(title)?;
    for line in lines {
        let pid = line.split_whitespace().nth(column).and_then(|word| word.parse().ok());
        if pid.is_some_and(|pid: i32| pids.contains(&pid)) {
            say(line)?;
        }
    }
    Ok(())
}

/// Processes as the kernel inside knows them.
pub(crate) fn table(processes: &[ProcessInfo]) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    say(format_args!(
        "{:<8} {:>7} {:>7} {:>2} {:<5} {:<6} {:>8} CMD",
        "UID", "PID", "PPID", "C", "STIME", "TTY", "TIME"
    ))?;
    for p in processes {
        let lived = (now - p.started).max(1) as u64;
        let (h, m, s) = (p.cpu / 3600, p.cpu / 60 % 60, p.cpu % 60);
        let started = p.started.rem_euclid(86_400);
        say(format_args!(
            "{:<8} {:>7} {:>7} {:>2} {:02}:{:02} {:<6} {h:02}:{m:02}:{s:02} {}",
            p.uid,
            p.pid,
            p.ppid,
            (p.cpu * 100 / lived).min(99),
            started / 3600,
            started / 60 % 60,
            p.tty,
            p.command
        ))?;
    }
    Ok(())
}
