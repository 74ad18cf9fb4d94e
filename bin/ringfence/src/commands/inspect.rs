//! `list`, `state`, `kill` and `delete`.

use crate::cli::{Delete, Global, Id, Kill, List, ListFormat};
use crate::{Failure, container};
use rustix::process::{Pid, Signal, kill_process};
use sandbox::state::{self, State};
use std::time::{Duration, Instant};

pub(crate) fn list(global: &Global, args: &List) -> Result<u8, Failure> {
    let dir = container::state_dir(global);
    let mut states = Vec::new();
    for id in state::list(&dir)? {
        states.extend(state::read(&dir, &id)?);
    }
    if args.quiet {
        states.iter().for_each(|state| println!("{}", state.id));
    } else if args.format == ListFormat::Json {
        println!("{}", serde_json::to_string(&states)?);
    } else {
        println!("{:<20} {:>8} {:<10} {:<30} CREATED", "ID", "PID", "STATUS", "BUNDLE");
        for s in &states {
            println!("{:<20} {:>8} {:<10} {:<30} {}", s.id, s.pid, s.status, s.bundle.display(), s.created);
        }
    }
    Ok(0)
}

fn find(global: &Global, id: &str) -> Result<State, Failure> {
    state::read(&container::state_dir(global), id)?.ok_or_else(|| "container does not exist".into())
}

pub(crate) fn state(global: &Global, args: &Id) -> Result<u8, Failure> {
    println!("{}", serde_json::to_string_pretty(&find(global, &args.id)?)?);
    Ok(0)
}

pub(crate) fn kill(global: &Global, args: &Kill) -> Result<u8, Failure> {
    let signal = parse_signal(&args.signal)?;
    let state = find(global, &args.id)?;
    send(&state, signal)?;
    Ok(0)
}

/// Signals the process that runs the container in the foreground; it passes the signal on, and SIGKILL ends all.
fn send(state: &State, signal: Signal) -> Result<(), Failure> {
    let pid = i32::try_from(state.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Err("container not running".into()) };
    Ok(kill_process(pid, signal)?)
}

pub(crate) fn delete(global: &Global, args: &Delete) -> Result<u8, Failure> {
    let dir = container::state_dir(global);
    let state = match state::read(&dir, &args.id)? {
        Some(state) => state,
        None if args.force => return Ok(0),
        None => return Err("container does not exist".into()),
    };
    if state.status != "stopped" {
        if !args.force {
            return Err(
                format!("container {} is {}; stop it first, or use --force", state.id, state.status).into()
            );
        }
        send(&state, Signal::KILL)?;
    }
    // The lock is free as soon as the holder has ended.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match state::claim(&dir, &args.id) {
            Ok(claim) => {
                drop(claim);
                return Ok(0);
            }
            Err(message) if Instant::now() > deadline => return Err(message.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

fn parse_signal(text: &str) -> Result<Signal, Failure> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = match text.parse::<i32>() {
        Ok(number) => Some(number),
        Err(_) => NAMES.iter().position(|known| *known == name).map(|at| at as i32 + 1),
    };
    match number.and_then(Signal::from_named_raw) {
        Some(signal) => Ok(signal),
        None => Err(format!("unknown signal {text:?}").into()),
    }
}
