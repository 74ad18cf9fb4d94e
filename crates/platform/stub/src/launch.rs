//! Starting a zygote and learning from it what stub processes look like.

use crate::layout::{self as l, Slot};
use crate::zygote::{self, Zygote};
use crate::{filter, xstate};
use abi::{Errno, Result};
use core::mem::offset_of;
use hostsys::memfd::SharedMapping;
use hostsys::{cpu, process};
use platform::Limits;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Why the platform cannot be used on this host.
#[derive(Debug)]
pub enum Error {
    /// The host kernel or CPU lacks something.
    Missing(&'static str),
    /// The zygote failed during its set-up.
    Zygote(&'static str),
    /// A host call failed.
    Host(&'static str, Errno),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Missing(what) => write!(f, "{what}"),
            Error::Zygote(what) => write!(f, "cannot set up a stub process: {what}"),
            Error::Host(what, e) => write!(f, "{what}: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// A zygote that waits on its slot, having reported `REQ_READY` there.
#[derive(Debug)]
pub struct Launched {
    /// Its process id; a child of the calling thread without an exit signal.
    pub pid: i32,
    /// The same as a descriptor.
    pub pidfd: OwnedFd,
    /// The file of its slots.
    pub slot_file: OwnedFd,
    /// Slot 0.
    pub slot: SharedMapping,
    /// The listener of the filter, for every process forked from it.
    pub listener: OwnedFd,
    /// Number of the listener in the zygote; must be closed there, or stubs could keep it alive without the sentry.
    pub listener_number: u64,
    /// Address limits.
    pub limits: Limits,
    /// Extended state in signal frames.
    pub xstate: xstate::Layout,
    /// Its processes may have the numbers at which descriptors are lent.
    pub lends: bool,
}

fn host(what: &'static str) -> impl Fn(Errno) -> Error {
    move |e| Error::Host(what, e)
}

/// A stub process costs the sentry two descriptors: make room for thousands, as far as the host lets us. Says whether a
/// process may have the numbers at which descriptors are lent.
fn raise_descriptor_limit() -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Not fatal: fork then fails with EAGAIN when the limit is reached.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    limit.maximum.is_none_or(|most| most >= l::LENT_FIRST + l::LENT)
}

/// Address of a process's command line as the host's process lists show it.
pub const TITLE: u64 = l::STACK_BASE + offset_of!(l::Priv, title) as u64;

/// Where a process counts the signals of its first thread's call sites, and how many bytes that is.
pub const COUNTS: (u64, usize) = {
    let (start, end) = (offset_of!(l::Priv, nfresh), offset_of!(l::Priv, title));
    (l::STACK_BASE + start as u64, end - start)
};

/// Address of 16 bytes for a name on its way to the host.
pub const NAME: u64 = l::STACK_BASE + offset_of!(l::Priv, name) as u64;

/// What to write at [`TITLE`]: as much of the line as fits, and the zero byte that ends it.
pub fn title(line: &[u8]) -> Vec<u8> {
    let mut bytes = line.get(..l::TITLE_SIZE as usize - 1).unwrap_or(line).to_vec();
    bytes.push(0);
    bytes
}

/// The text of /proc/self/maps, for [`launch`].
pub fn own_maps() -> Result<String, Error> {
    std::fs::read_to_string("/proc/self/maps")
        .map_err(|e| Error::Host("cannot read /proc/self/maps", e.into()))
}

/// Forks a zygote from the calling thread, which must outlive all stub processes. `maps` is [`own_maps`].
pub fn launch(maps: &str) -> Result<Launched, Error> {
    if !cpu::has_fsgsbase() {
        return Err(Error::Missing("the host kernel or CPU does not offer FSGSBASE"));
    }
    let lends = raise_descriptor_limit();
    let filter = filter::assemble().map_err(|_| Error::Zygote("its filter is longer than the host takes"))?;
    let zygote = zygote::start(&filter, maps).map_err(host("cannot start a stub process"))?;
    wait_until_ready(&zygote)?;
    let listener_number = zygote.slot.long(offset_of!(Slot, result)).load(Ordering::Relaxed);
    let listener = process::pidfd_getfd(zygote.pidfd.as_fd(), listener_number as i32)
        .map_err(host("cannot take the seccomp listener (pidfd_getfd)"))?;
    hostsys::seccomp::set_sync_wake_up(listener.as_fd());
    let xstate = learn_xstate(&zygote)?;
    let (vdso, vvar) = zygote::placed(&zygote.maps, vdso_moved(&zygote));
    let lowest = [vdso, vvar].into_iter().flatten().map(|m| m.0).min().unwrap_or(l::STUB_TEXT);
    let limits =
        Limits { min: 0x1_0000, max: lowest.min(l::STUB_TEXT), vdso, vvar, xstate_size: xstate.size };
    let Zygote { pid, pidfd, slot_file, slot, .. } = zygote;
    Ok(Launched { pid, pidfd, slot_file, slot, listener, listener_number, limits, xstate, lends })
}

fn wait_until_ready(zygote: &Zygote) -> Result<(), Error> {
    loop {
        if zygote.slot.word(offset_of!(Slot, req)).load(Ordering::Acquire) & !l::SLEEP != l::FIRST_SEQ {
            return Ok(());
        }
        match process::wait_child(zygote.pidfd.as_fd(), false) {
            Ok(process::Wait::Running) => std::thread::sleep(Duration::from_micros(50)),
            Ok(process::Wait::Reaped(status)) => return Err(Error::Zygote(zygote::explain(status))),
            Err(e) => return Err(Error::Host("waitid", e)),
        }
    }
}

fn learn_xstate(zygote: &Zygote) -> Result<xstate::Layout, Error> {
    let at = zygote.slot.long(offset_of!(Slot, fpstate)).load(Ordering::Relaxed);
    let read = |buf: &mut [u8]| match process::vm_read(zygote.pid, at, buf) {
        Ok(n) if n == buf.len() => Ok(()),
        Ok(_) => Err(Error::Zygote("its signal frame is cut short")),
        Err(e) => Err(Error::Host("cannot read a stub's memory (process_vm_readv)", e)),
    };
    let mut frame = vec![0; xstate::LEGACY];
    read(&mut frame)?;
    let odd = Error::Zygote("its signal frame has no XSAVE state");
    let Some(size) = xstate::Layout::size_of_frame(&frame) else { return Err(odd) };
    frame.resize(size, 0);
    read(&mut frame)?;
    xstate::Layout::learn(frame).ok_or(odd)
}

/// The vDSO starts with an ELF header: look whether it stands at the new place.
fn vdso_moved(zygote: &Zygote) -> bool {
    let (vdso, _) = zygote::placed(&zygote.maps, true);
    let mut magic = [0; 4];
    vdso.is_some_and(|(at, _)| process::vm_read(zygote.pid, at, &mut magic) == Ok(4) && magic == *b"\x7fELF")
}
