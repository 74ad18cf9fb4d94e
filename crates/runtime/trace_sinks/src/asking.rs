//! Questions of a policy to programs outside.
//!
//! The kernel inside can open no socket. A process that lives as long as the session connects to the socket of the rule,
//! once for each question, writes a line of JSON with the operation, and reads a line with the answer. All questions are
//! served at once. A program may be gone, slow, silent or write garbage, and the kernel may ask anything: each line is
//! bounded, and each question has an end.

use decision_log::Entry;
use policy::{Action, errno_named};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trace_wire::ask::{Answer, MAX_PACKET, Question};

/// The policy's default among the rules that ask.
pub(crate) const DEFAULT: u32 = 0;
/// Most questions at once. More wait in the kernel's socket.
const MAX_OPEN: usize = 256;
/// Longest line of a program.
const MAX_LINE: usize = 4096;
/// When a program's queue of connections is full, the next try comes after this.
const AGAIN: Duration = Duration::from_millis(5);

/// What is asked for a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The program's socket.
    pub(crate) socket: PathBuf,
    /// How long an answer may take.
    pub(crate) timeout: Duration,
}

/// What a program writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    action: String,
    errno: Option<String>,
}

/// A question that is not answered yet.
struct Open {
    id: u64,
    until: Instant,
    stage: Stage,
}

enum Stage {
    /// The program's queue is full.
    Waiting { socket: PathBuf, line: Vec<u8> },
    /// Bytes of the line that are not written.
    Writing(OwnedFd, Vec<u8>),
    /// Bytes of the answer.
    Reading(OwnedFd, Vec<u8>),
}

/// What a step of a question comes to.
enum Step {
    GoesOn(Stage),
    Over(Result<Line, String>),
}

/// Asks what the kernel wants to know until the kernel closes its end.
pub(crate) fn serve(channel: &OwnedFd, asked: &BTreeMap<u32, Asked>) -> io::Result<()> {
    let mut open: Vec<Open> = Vec::new();
    let mut buffer = vec![0; MAX_PACKET + 1];
    loop {
        let ready = wait(channel, &open)?;
        if ready {
            let received = rustix::io::retry_on_intr(|| recv(channel, &mut buffer, RecvFlags::DONTWAIT));
            match received {
                Ok((0, _)) | Err(rustix::io::Errno::CONNRESET) => return Ok(()),
                Ok((length, _)) => match begin(buffer.get(..length).unwrap_or_default(), asked) {
                    Ok(question) => open.push(question),
                    Err((Some(id), why)) => answer(channel, id, Err(why))?,
                    // It has no number to answer to.
                    Err((None, why)) => log::warn!("policy: {why}"),
                },
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let now = Instant::now();
        for Open { id, until, stage } in std::mem::take(&mut open) {
            match step(stage) {
                Step::Over(result) => answer(channel, id, result)?,
                Step::GoesOn(_) if now >= until => answer(channel, id, Err("no answer in time".into()))?,
                Step::GoesOn(stage) => open.push(Open { id, until, stage }),
            }
        }
    }
}

/// Waits until something can be done; true when it is the kernel's turn.
fn wait(channel: &OwnedFd, open: &[Open]) -> io::Result<bool> {
    let has_room = open.len() < MAX_OPEN;
    let mut until: Option<Instant> = open.iter().map(|question| question.until).min();
    // Without room the channel is still watched for its end.
    let mut fds = vec![PollFd::new(channel, if has_room { PollFlags::IN } else { PollFlags::empty() })];
    for question in open {
        match &question.stage {
            Stage::Waiting { .. } => {
                let again = Instant::now() + AGAIN;
                until = Some(until.map_or(again, |until| until.min(again)));
            }
            Stage::Writing(socket, _) => fds.push(PollFd::new(socket, PollFlags::OUT)),
            Stage::Reading(socket, _) => fds.push(PollFd::new(socket, PollFlags::IN)),
        }
    }
    let left = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match poll(&mut fds, left.as_ref()) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let events = fds[0].revents();
    Ok(!events.is_empty())
}

/// Reads a question and goes to the program that is to be asked.
fn begin(packet: &[u8], asked: &BTreeMap<u32, Asked>) -> Result<Open, (Option<u64>, String)> {
    if packet.len() > MAX_PACKET {
        return Err((None, "a question of the kernel is too long".into()));
    }
    let question: Question<Entry> = serde_json::from_slice(packet)
        .map_err(|error| (None, format!("a question of the kernel is none: {error}")))?;
    let Question { id, rule, entry } = question;
    let failed = |why: String| (Some(id), why);
    let rule = rule.unwrap_or(DEFAULT);
    let Asked { socket, timeout } =
        asked.get(&rule).ok_or_else(|| failed(format!("rule {rule} asks no program")))?;
    let mut line = serde_json::to_vec(&entry).map_err(|error| failed(error.to_string()))?;
    line.push(b'\n');
    let stage = connected(socket.clone(), line).map_err(failed)?;
    Ok(Open { id, until: Instant::now() + *timeout, stage })
}

fn connected(socket: PathBuf, line: Vec<u8>) -> Result<Stage, String> {
    match try_connect(&socket) {
        Ok(connection) => Ok(Stage::Writing(connection, line)),
        Err(rustix::io::Errno::AGAIN) => Ok(Stage::Waiting { socket, line }),
        Err(error) => Err(format!("{}: {error}", socket.display())),
    }
}

fn try_connect(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn step(stage: Stage) -> Step {
    let again = |error| matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR);
    match stage {
        Stage::Waiting { socket, line } => match connected(socket, line) {
            Ok(stage) => Step::GoesOn(stage),
            Err(why) => Step::Over(Err(why)),
        },
        Stage::Writing(socket, mut rest) => {
            match send(&socket, &rest, SendFlags::NOSIGNAL) {
                Ok(written) => drop(rest.drain(..written)),
                Err(error) if again(error) => {}
                Err(error) => return Step::Over(Err(format!("the program has hung up: {error}"))),
            }
            match rest.is_empty() {
                true => Step::GoesOn(Stage::Reading(socket, Vec::new())),
                false => Step::GoesOn(Stage::Writing(socket, rest)),
            }
        }
        Stage::Reading(socket, mut line) => {
            let mut buffer = [0; MAX_LINE];
            match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => return Step::Over(Err("the program has hung up without an answer".into())),
                Ok((length, _)) => line.extend_from_slice(buffer.get(..length).unwrap_or_default()),
                Err(error) if again(error) => {}
                Err(error) => return Step::Over(Err(format!("the program has hung up: {error}"))),
            }
            if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                return Step::Over(understood(line.get(..end).unwrap_or_default()));
            }
            match line.len() > MAX_LINE {
                true => Step::Over(Err("the program's answer is too long".into())),
                false => Step::GoesOn(Stage::Reading(socket, line)),
            }
        }
    }
}

/// The answer, if it is one.
fn understood(line: &[u8]) -> Result<Line, String> {
    let line: Line =
        serde_json::from_slice(line).map_err(|error| format!("the program's answer is none: {error}"))?;
    let action = line.action.as_str();
    if action == Action::Ask.name() || !Action::NAMES.contains(&action) {
        return Err("the program's answer has no action that there is".into());
    }
    match line.errno.as_deref() {
        Some(errno) if errno_named(errno).is_none() => {
            Err("the program's answer has no errno that there is".into())
        }
        _ => Ok(line),
    }
}

fn answer(channel: &OwnedFd, id: u64, result: Result<Line, String>) -> io::Result<()> {
    let answer = match result {
        Ok(Line { action, errno }) => Answer { id, action: Some(action), errno, error: None },
        Err(why) => Answer { id, error: Some(why), ..Answer::default() },
    };
    let packet = serde_json::to_vec(&answer)?;
    rustix::io::retry_on_intr(|| send(channel, &packet, SendFlags::NOSIGNAL))?;
    Ok(())
}

#[cfg(test)]
#[path = "asking_tests.rs"]
mod tests;
