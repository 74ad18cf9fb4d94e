//! Entrances for `fuzz/`: both ends of the control socket, each against an end that sends arbitrary messages.

use crate::client::Client;
use crate::control::{OpenRequests, serve};
use crate::messages::Event;
use channel::Channel;
use metrics::Sample;
use overlay_diff::Purpose;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown};
use sentry::{Attending, Executed, Running, Stdio};
use spec::{Interfaces, ProcessInfo, ProcessSpec, SandboxSpec, StartError, Target, WindowSize};
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace_wire::session::{Session, Status};

/// Most messages of one conversation: as many as fit into the socket with their answers.
const MOST: usize = 32;
/// Most descriptors that go along with a message.
const FILES: usize = 8;

/// A message as it goes over the socket, and what is in the descriptors that go along.
pub type Message<'a> = (&'a [u8], Vec<&'a [u8]>);

/// What the sentry answers to these messages: the kinds of the answers.
pub fn requests(messages: &[Message<'_>]) -> Vec<String> {
    let Ok((client, sentry)) = conversation(messages) else { return Vec::new() };
    serve(&sentry, &Nobody, &Arc::new(OpenRequests::default()));
    drop(sentry);
    let mut kinds = Vec::new();
    while let Ok(Some((event, _))) = client.recv::<Event>() {
        let kind = format!("{event:?}");
        kinds.push(kind.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default().to_string());
    }
    kinds
}

/// What a command line makes of a sentry that says this: the processes that it lists, and how a start ends.
pub fn answers(messages: &[Message<'_>]) -> (Option<usize>, bool) {
    let Ok((sentry, command_line)) = conversation(messages) else { return (None, false) };
    let client = Client::over(command_line);
    let processes = client.processes().ok();
    let clean = |process: &ProcessInfo| !process.command.contains(char::is_control);
    assert!(processes.iter().flatten().all(clean), "what a guest chose reaches the terminal");
    let figures = client.metrics(Instant::now() + Duration::from_secs(1)).unwrap_or_default();
    let clean = figures.iter().all(|(_, sample)| !sample.labels.concat().contains(char::is_control));
    assert!(clean, "what a guest chose reaches those that watch");
    let started = client.start().is_ok();
    drop(sentry);
    (processes.map(|list| list.len()), started)
}

/// Two ends; the first has said all this and says no more.
fn conversation(messages: &[Message<'_>]) -> io::Result<(Channel, Channel)> {
    let (one, other) = Channel::pair()?;
    other.set_patience(Some(Duration::from_secs(1)))?;
    for (bytes, files) in messages.iter().take(MOST) {
        let files = files.iter().take(FILES).map(|contents| {
            let mut file = File::from(memfd_create("fuzz", MemfdFlags::CLOEXEC)?);
            file.write_all(contents)?;
            Ok(OwnedFd::from(file))
        });
        let files = files.collect::<io::Result<Vec<OwnedFd>>>()?;
        let fds: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        sendmsg(&one, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    }
    shutdown(&one, Shutdown::Write)?;
    Ok((one, other))
}

/// A kernel without anything in it.
struct Nobody;

impl Running for Nobody {
    fn refusals(&self) -> Vec<spec::Refusal> {
        Vec::new()
    }
    fn describe(&self) -> String {
        String::new()
    }

    fn start(&self) -> Result<(), StartError> {
        Ok(())
    }
    fn show_network(&self, _interfaces: Interfaces) -> Result<(), StartError> {
        Ok(())
    }
    fn signal(&self, signo: i32, _to: Target) -> bool {
        signo % 2 == 0
    }
    fn resize(&self, _size: WindowSize) {}
    fn exec(&self, process: &ProcessSpec, stdio: Stdio) -> Result<Arc<dyn Executed>, StartError> {
        assert!(!process.args.is_empty());
        drop(stdio);
        Ok(Arc::new(Nobody))
    }
    fn processes(&self) -> Vec<ProcessInfo> {
        Vec::new()
    }
    fn metrics(&self) -> Vec<Sample> {
        Vec::new()
    }
    fn bound_tasks(&self, _mappings: u64) {}
    fn memory(&self) -> u64 {
        1 << 30
    }
    fn trace(&self, _on: bool) {}
    fn layers(&self) -> Vec<i32> {
        Vec::new()
    }
    fn clone_to(&self, _files: [OwnedFd; 2], _keeps: bool) -> Result<(), StartError> {
        Ok(())
    }
    fn checkpoint(
        &self,
        _files: [OwnedFd; 2],
        _then: spec::AfterCheckpoint,
        _spares: bool,
    ) -> Result<(), StartError> {
        Ok(())
    }
    fn await_request(
        &self,
        _idle: bool,
        attending: &dyn Fn(),
        _gone: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Attending>, StartError> {
        attending();
        Err(StartError { kind: spec::StartErrorKind::Other, message: "nothing asks".into() })
    }
    fn await_checkpoint(&self, _gone: &dyn Fn() -> bool) -> Result<(), StartError> {
        Ok(())
    }
    fn guest_core(&self, _pid: i32, _to: OwnedFd) -> Result<(u32, u32), StartError> {
        Ok((0, 0))
    }
    fn add(&self, spec: SandboxSpec, _fds: Vec<OwnedFd>) -> Result<Arc<dyn Running>, StartError> {
        assert!(!spec.process.args.is_empty());
        Ok(Arc::new(Nobody))
    }
    fn wait(&self) -> i32 {
        0
    }
    fn wait_process(&self, _: i32, _: bool) -> Option<i32> {
        None
    }
    fn end(&self) {}
    fn freeze(&self, _on: bool) -> bool {
        true
    }
    fn changes(&self, to: OwnedFd, _purpose: Purpose) -> Result<(), StartError> {
        drop(to);
        Ok(())
    }
    fn write_back(&self) -> Result<String, StartError> {
        Ok(String::new())
    }
    fn trace_create(&self, _: Session, _: Vec<OwnedFd>, _: bool) -> Result<(), StartError> {
        Ok(())
    }
    fn trace_delete(&self, _: &str) -> Result<(), StartError> {
        Ok(())
    }
    fn dump_processes(&self, _: OwnedFd) -> Result<(), StartError> {
        Ok(())
    }
    fn trace_list(&self) -> Vec<Status> {
        Vec::new()
    }
    fn limit_tasks(&self, _limit: Option<u32>) {}
    fn forward(
        &self,
        _port: u16,
        _from: OwnedFd,
        _to: OwnedFd,
    ) -> Result<Box<dyn FnOnce() + Send>, StartError> {
        Ok(Box::new(|| {}))
    }
    fn release_idle_files(&self) -> bool {
        false
    }
}

impl Executed for Nobody {
    fn pid(&self) -> i32 {
        2
    }
    fn signal(&self, _signo: i32) {}
    fn resize(&self, _size: WindowSize) {}
    fn wait(&self) -> i32 {
        0
    }
}
