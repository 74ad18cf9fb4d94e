//! Queued actions in the slot's form.

use crate::slot::SlotMap;
use abi::libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_GROWSDOWN, MAP_LOCKED, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_SHARED, MAP_STACK, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, PR_SET_NAME, SYS_madvise,
    SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munmap, SYS_prctl, SYS_remap_file_pages,
};
use abi::{Errno, Result};
use platform::{Action, Limits};
use smallvec::SmallVec;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use stub::layout as l;

/// One thing for the stub to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// An action of the kernel.
    Action(Action),
    /// Load this (sanitised) extended state.
    Xstate(Vec<u8>),
    /// Store the extended state, these components of it, at that address, and reset it.
    StoreXstate(u64, u64),
    /// Load it from there.
    FetchXstate(u64, u64),
    /// Start a thread on that slot.
    Thread(usize),
    /// Fork with that nonce; whether the child is to close what is lent.
    Fork(u64, bool),
    /// Replace 8 bytes in one step: address, what is there, what shall be.
    Swap(u64, u64, u64),
    /// Compare-and-exchange: address, old, new.
    CompareExchange(u64, u32, u32),
    /// Close this descriptor, if it is open.
    Close(u64),
    /// Take a descriptor and leave it open.
    Hold(Arc<OwnedFd>),
    /// Take the descriptor that is lent ([`crate::space::Grants::lent`]), at a number of its own.
    Give,
    /// Make a host call that moves as many bytes as its third argument says.
    Transfer(u64, [u64; 6]),
    /// Map a file, privately, of which the process has this descriptor: address, length, protection, flags, offset.
    MapHeld(u64, [u64; 5]),
    /// A host call of the platform's own.
    Call(u64, [u64; 6]),
}

fn range(addr: u64, len: u64, limits: &Limits) -> Result<()> {
    match addr.checked_add(len) {
        Some(end) if end <= limits.max => Ok(()),
        _ => Err(Errno::ENOMEM),
    }
}

fn only(flags: i32, allowed: i32) -> Result<()> {
    if flags & !allowed == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

impl Job {
    /// Refuses what must not reach the stub's own area, or the filter would turn into a system call of the guest.
    pub(crate) fn check(&self, limits: &Limits) -> Result<()> {
        let action = match self {
            Job::Action(action) => action,
            Job::MapHeld(_, [addr, len, ..]) => return range(*addr, *len, limits),
            Job::CompareExchange(addr, ..) => return range(*addr, 4, limits).map_err(|_| Errno::EFAULT),
            _ => return Ok(()),
        };
        match *action {
            Action::MapAnon { addr, len, flags, .. } => {
                only(flags, MAP_NORESERVE | MAP_GROWSDOWN | MAP_POPULATE | MAP_LOCKED | MAP_STACK)?;
                range(addr, len, limits)
            }
            Action::MapFile { addr, len, flags, .. } => {
                only(flags, MAP_SHARED | MAP_PRIVATE | MAP_NORESERVE | MAP_POPULATE | MAP_LOCKED)?;
                let kind = flags & (MAP_SHARED | MAP_PRIVATE);
                if kind != MAP_SHARED && kind != MAP_PRIVATE {
                    return Err(Errno::EINVAL);
                }
                range(addr, len, limits)
            }
            Action::Unmap { addr, len }
            | Action::Protect { addr, len, .. }
            | Action::RemapFile { addr, len, .. } => range(addr, len, limits),
            Action::Remap { addr, len, new_addr, new_len, flags } => {
                only(flags, MREMAP_DONTUNMAP)?;
                range(addr, len, limits)?;
                range(new_addr, new_len, limits)
            }
            Action::Advise { addr, len, advice } => {
                if u32::try_from(advice).map_or(true, |a| !stub::filter::MADVISE.contains(&a)) {
                    return Err(Errno::EINVAL);
                }
                range(addr, len, limits)
            }
            Action::Write { addr, ref data } => {
                range(addr, data.len() as u64, limits).map_err(|_| Errno::EFAULT)
            }
            // Faults are ignored, but not into the stub's area.
            Action::StoreAndWake { addr, .. } => range(addr, 4, limits).map_err(|_| Errno::EFAULT),
            Action::Name(_) | Action::Title(_) => Ok(()),
            Action::SetFsBase(v) | Action::SetGsBase(v) => {
                if v < limits.max {
                    Ok(())
                } else {
                    Err(Errno::EPERM)
                }
            }
        }
    }
}

/// The descriptor that the stub has kept from an earlier mapping.
#[derive(Default)]
pub(crate) struct StubDescriptor(pub(crate) Option<Arc<OwnedFd>>);

impl StubDescriptor {
    fn is(&self, fd: &Arc<OwnedFd>) -> bool {
        self.0.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, fd))
    }
}

/// Puts jobs into the slot, as many at a time as fit.
pub(crate) struct Encoder<'a> {
    jobs: &'a [Job],
    /// Number of the slot.
    index: usize,
    /// Next job, and how much of its data has gone before.
    next: usize,
    progress: usize,
    /// Jobs of the actions in the slot.
    round: SmallVec<[usize; 8]>,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(jobs: &'a [Job], index: usize) -> Encoder<'a> {
        Encoder { jobs, index, next: 0, progress: 0, round: SmallVec::new() }
    }

    /// The encoder of `n` jobs that are all in the slot, each with one action.
    pub(crate) fn of_round(n: usize) -> Encoder<'static> {
        Encoder { jobs: &[], index: 0, next: 0, progress: 0, round: (0..n).collect() }
    }

    /// Everything has been put into the slot.
    pub(crate) fn done(&self) -> bool {
        self.next >= self.jobs.len()
    }

    /// Actions now in the slot.
    pub(crate) fn in_round(&self) -> usize {
        self.round.len()
    }

    /// The job that action `index` of the slot belongs to.
    pub(crate) fn job_of(&self, index: usize) -> Option<usize> {
        self.round.get(index).copied()
    }

    /// The actions in the slot are done.
    pub(crate) fn forget(&mut self) {
        self.round.clear();
    }

    /// Fills the slot with the next actions; the descriptors they need, by number. With `keep` the stub keeps the descriptor
    /// of a private mapping, and `keep` is the one that it has.
    pub(crate) fn fill(&mut self, slot: &SlotMap, keep: Option<&mut StubDescriptor>) -> Vec<Arc<OwnedFd>> {
        self.round.clear();
        let mut filling = Filling { slot, index: self.index, keep, at: 0, fds: Vec::new(), data: 0 };
        while let Some(job) = self.jobs.get(self.next) {
            filling.at = self.round.len();
            if filling.at == l::MAX_ACTIONS as usize {
                break;
            }
            match filling.job(job, self.progress) {
                Fits::All => {
                    self.round.push(self.next);
                    self.next += 1;
                    self.progress = 0;
                }
                Fits::Part(bytes) => {
                    self.round.push(self.next);
                    self.progress += bytes;
                    break;
                }
                Fits::Nothing => break,
            }
        }
        slot.nact().store(self.round.len() as u32, Relaxed);
        filling.fds
    }
}

/// How much of a job has gone into the slot.
enum Fits {
    All,
    /// So many bytes of its data.
    Part(usize),
    Nothing,
}

/// A slot that is being filled.
struct Filling<'a, 'k> {
    slot: &'a SlotMap,
    /// Number of the slot.
    index: usize,
    /// What the stub keeps a descriptor of, if it does.
    keep: Option<&'k mut StubDescriptor>,
    /// Where the next action goes.
    at: usize,
    /// Descriptors that go with the actions, by number.
    fds: Vec<Arc<OwnedFd>>,
    /// Bytes of the slot's data that are in use.
    data: usize,
}

impl Filling<'_, '_> {
    fn set(&self, kind: u64, nr: u64, arguments: [u64; 6]) -> Fits {
        self.slot.set_action(self.at, kind, nr, arguments);
        Fits::All
    }

    fn call(&self, nr: i64, arguments: [u64; 6]) -> Fits {
        self.set(l::ACT_SYSCALL, nr as u64, arguments)
    }

    /// Puts bytes behind those that are there: where they begin, or `None` when they do not fit.
    fn put(&mut self, bytes: &[u8]) -> Option<u64> {
        if l::SLOT_DATA_SIZE as usize - self.data < bytes.len() {
            return None;
        }
        let begin = self.data;
        self.slot.write_data(begin, bytes);
        self.data += bytes.len();
        Some(begin as u64)
    }

    /// Puts in a job of which `progress` bytes of data have gone before.
    fn job(&mut self, job: &Job, progress: usize) -> Fits {
        match job {
            Job::Call(nr, a) => self.set(l::ACT_SYSCALL, *nr, *a),
            Job::Thread(index) => self.set(l::ACT_THREAD, 0, [*index as u64, 0, 0, 0, 0, 0]),
            Job::Swap(at, old, new) => self.set(l::ACT_SWAP, 0, [*at, *old, *new, 0, 0, 0]),
            Job::CompareExchange(addr, old, new) => {
                self.set(l::ACT_CMPXCHG, 0, [*addr, (*old).into(), (*new).into(), 0, 0, 0])
            }
            Job::StoreXstate(at, mask) => self.set(l::ACT_XSAVE, 0, [*at, *mask, 0, 0, 0, 0]),
            Job::FetchXstate(at, mask) => self.set(l::ACT_XRSTOR, 0, [*at, *mask, 0, 0, 0, 0]),
            Job::Hold(fd) => {
                if self.fds.len() == l::MAX_FDS as usize {
                    return Fits::Nothing;
                }
                self.fds.push(fd.clone());
                self.set(l::ACT_HOLD, 0, [(self.fds.len() - 1) as u64, 0, 0, 0, 0, 0])
            }
            Job::MapHeld(fd, [addr, len, prot, flags, offset]) => {
                self.call(SYS_mmap, [*addr, *len, *prot, *flags, *fd, *offset])
            }
            Job::Close(number) => self.set(l::ACT_CLOSE, 0, [*number, 0, 0, 0, 0, 0]),
            Job::Give => self.set(l::ACT_HOLD, 0, [l::MAX_FDS, 0, 0, 0, 0, 0]),
            Job::Transfer(nr, a) => self.set(l::ACT_TRANSFER, *nr, *a),
            Job::Fork(nonce, lent) => self.set(l::ACT_FORK, 0, [*nonce, (*lent).into(), 0, 0, 0, 0]),
            Job::Xstate(bytes) => {
                let Some(at) = self.put(bytes) else { return Fits::Nothing };
                self.set(l::ACT_XSTATE, 0, [at, bytes.len() as u64, 0, 0, 0, 0])
            }
            Job::Action(action) => self.action(action, progress),
        }
    }

    fn action(&mut self, action: &Action, progress: usize) -> Fits {
        match action {
            Action::MapAnon { addr, len, prot, flags } => {
                let flags = flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
                self.call(SYS_mmap, [*addr, *len, *prot as u64, flags as u64, u64::MAX, 0])
            }
            Action::MapFile { addr, len, prot, flags, fd, offset } => {
                let Some(number) = self.descriptor(fd, *flags & MAP_PRIVATE != 0) else {
                    return Fits::Nothing;
                };
                let flags = flags | MAP_FIXED;
                let a = [*addr, *len, *prot as u64, flags as u64, number, *offset];
                self.set(l::ACT_MMAP_FD, 0, a)
            }
            Action::Unmap { addr, len } => self.call(SYS_munmap, [*addr, *len, 0, 0, 0, 0]),
            Action::Protect { addr, len, prot } => {
                self.call(SYS_mprotect, [*addr, *len, *prot as u64, 0, 0, 0])
            }
            Action::Remap { addr, len, new_addr, new_len, flags } => {
                let flags = if addr == new_addr { 0 } else { flags | MREMAP_MAYMOVE | MREMAP_FIXED };
                self.call(SYS_mremap, [*addr, *len, *new_len, flags as u64, *new_addr, 0])
            }
            Action::RemapFile { addr, len, first } => {
                self.call(SYS_remap_file_pages, [*addr, *len, 0, *first, 0, 0])
            }
            Action::Advise { addr, len, advice } => {
                self.call(SYS_madvise, [*addr, *len, *advice as u64, 0, 0, 0])
            }
            Action::Write { addr, data } => self.write(*addr, data, progress),
            Action::StoreAndWake { addr, value, wake } => {
                let a = [*addr, value.unwrap_or(0).into(), (*wake).into(), value.is_some().into(), 0, 0];
                self.set(l::ACT_STORE_WAKE, 0, a)
            }
            Action::Name(name) => {
                let Some(at) = self.put(name) else { return Fits::Nothing };
                let data = l::SLOT_BASE + self.index as u64 * l::SLOT_SIZE + l::SLOT_DATA;
                self.call(SYS_prctl, [PR_SET_NAME as u64, data + at, 0, 0, 0, 0])
            }
            Action::Title(line) => {
                let line = stub::launch::title(line);
                let Some(at) = self.put(&line) else { return Fits::Nothing };
                self.set(l::ACT_WRITE, 0, [stub::launch::TITLE, at, line.len() as u64, 0, 0, 0])
            }
            // In the registers already; a write of nothing keeps the numbering.
            Action::SetFsBase(_) | Action::SetGsBase(_) => self.set(l::ACT_WRITE, 0, [0; 6]),
        }
    }

    /// Writes the rest of `bytes` to memory from `addr`, as far as it fits.
    fn write(&mut self, addr: u64, bytes: &[u8], progress: usize) -> Fits {
        let rest = bytes.get(progress..).unwrap_or_default();
        let n = rest.len().min(l::SLOT_DATA_SIZE as usize - self.data);
        let (part, after) = rest.split_at(n);
        let Some(at) = self.put(part).filter(|_| n != 0 || rest.is_empty()) else { return Fits::Nothing };
        self.set(l::ACT_WRITE, 0, [addr + progress as u64, at, n as u64, 0, 0, 0]);
        if after.is_empty() { Fits::All } else { Fits::Part(n) }
    }

    /// How an action names a descriptor; `None` when no more fit.
    fn descriptor(&mut self, fd: &Arc<OwnedFd>, private: bool) -> Option<u64> {
        if private && self.keep.as_ref().is_some_and(|kept| kept.is(fd)) {
            return Some(l::FD_KEPT);
        }
        if let Some(number) = self.fds.iter().position(|known| Arc::ptr_eq(known, fd)) {
            return Some(number as u64);
        }
        if self.fds.len() == l::MAX_FDS as usize {
            return None;
        }
        self.fds.push(fd.clone());
        let number = (self.fds.len() - 1) as u64;
        match &mut self.keep {
            Some(kept) if private => {
                kept.0 = Some(fd.clone());
                Some(number | l::FD_KEEP)
            }
            _ => Some(number),
        }
    }
}
