//! `ringfence list`, `state` and `ps`.

use crate::cli::{Global, Id, List, ListFormat, Ps};
use crate::{Failure, container, pod, record, say};
use sandbox::state::{self, State, Status};
use spec::ProcessInfo;
use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn list(global: &Global, args: &List) -> Result<u8, Failure> {
    let records = state::list(&container::state_dir(global))?;
    let states: Vec<State> = records.into_iter().map(|record| record.state).collect();
    if args.quiet {
        states.iter().try_for_each(|state| say(&state.id))?;
    } else if args.format == ListFormat::Json {
        say(serde_json::to_string(&states)?)?;
    } else {
        let row = |cells: [&str; 6]| {
            let [id, pid, status, bundle, created, owner] = cells;
            say(format_args!("{id:<20} {pid:<8} {status:<10} {bundle:<30} {created:<28} {owner}"))
        };
        row(["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"])?;
        for s in &states {
            let (pid, bundle) = (s.pid.to_string(), s.bundle.to_string_lossy());
            row([&s.id, &pid, &s.status.to_string(), &bundle, &s.created, &s.owner])?;
        }
    }
    Ok(0)
}

pub(crate) fn state(global: &Global, args: &Id) -> Result<u8, Failure> {
    let (_, record) = container::find(global, &args.id)?;
    say(serde_json::to_string_pretty(&record.state)?)?;
    Ok(0)
}

pub(crate) fn ps(global: &Global, args: &Ps) -> Result<u8, Failure> {
    let (container, record) = container::find(global, &args.id)?;
    if record.state.status == Status::Stopped {
        return Err("container not running".into());
    }
    if record::is_frozen(&record) {
        return frozen(args, record.state.pid);
    }
    let processes = container::connect(&container)?.processes()?;
    if args.format == ListFormat::Table && args.options.is_empty() {
        table(&processes)?;
        return Ok(0);
    }
    // What clients do with these is look them up on the host.
    let outside = host_pids(pod::sandbox_of(global, record)?.state.pid);
    let pids: Vec<i32> =
        processes.iter().filter_map(|process| outside.get(&process.host_pid)).copied().collect();
    show(args, &pids)
}

/// The processes of a container as the host knows them.
fn show(args: &Ps, pids: &[i32]) -> Result<u8, Failure> {
    match args.format {
        ListFormat::Json => say(serde_json::to_string(pids)?)?,
        ListFormat::Table => host_table(&args.options, pids)?,
    }
    Ok(0)
}

/// Those of a container that the host has frozen, whose kernel says nothing until it goes on.
fn frozen(args: &Ps, init: i32) -> Result<u8, Failure> {
    if args.format == ListFormat::Table && args.options.is_empty() {
        return Err("container is paused: resume it first, or give options of ps(1) after its name".into());
    }
    // Pid 1 is init, and the sentry is its only child; processes that hold no program are called by ours.
    let mut pids: Vec<i32> = host_pids(init)
        .into_iter()
        .filter(|(inside, pid)| {
            *inside > 2 && command_line(*pid).first().is_some_and(|name| name != "ringfence stub")
        })
        .map(|(_, pid)| pid)
        .collect();
    pids.sort_unstable();
    show(args, &pids)
}

fn command_line(pid: i32) -> Vec<String> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// What the host's ps(1) says with these options, of some processes.
fn host_table(options: &[String], pids: &[i32]) -> Result<(), Failure> {
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

/// For every process of the sandbox's pid namespace, its id there and on the host.
fn host_pids(init: i32) -> HashMap<i32, i32> {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid"));
    let Ok(sandbox) = namespace(&init.to_string()) else { return HashMap::new() };
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| {
            let name = name.to_str()?;
            let pid: i32 = name.parse().ok()?;
            if namespace(name).ok()? != sandbox {
                return None;
            }
            let status = fs::read_to_string(format!("/proc/{name}/status")).ok()?;
            let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            Some((ids.split_whitespace().last()?.parse().ok()?, pid))
        })
        .collect()
}

pub(crate) fn table(processes: &[ProcessInfo]) -> Result<(), Failure> {
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
