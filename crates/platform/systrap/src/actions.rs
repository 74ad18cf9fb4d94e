//! Queued actions in the slot's form.

use crate::slot::SlotMap;
use abi::libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_GROWSDOWN, MAP_LOCKED, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_SHARED, MAP_STACK, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE, PR_SET_NAME, SYS_madvise,
    SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munmap, SYS_prctl,
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
    /// Fork with that nonce.
    Fork(u64),
    /// Replace 8 bytes in one step: address, what is there, what shall be.
    Swap(u64, u64, u64),
    /// Compare-and-exchange: address, old, new.
    CompareExchange(u64, u32, u32),
    /// Take a descriptor and leave it open.
    Hold(Arc<OwnedFd>),
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
            Action::Unmap { addr, len } | Action::Protect { addr, len, .. } => range(addr, len, limits),
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
pub(crate) struct Kept(pub(crate) Option<Arc<OwnedFd>>);

impl Kept {
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
    pub(crate) fn fill(&mut self, slot: &SlotMap, mut keep: Option<&mut Kept>) -> Vec<Arc<OwnedFd>> {
        self.round.clear();
        let mut fds: Vec<Arc<OwnedFd>> = Vec::new();
        let mut data = 0;
        let room = l::SLOT_DATA_SIZE as usize;
        while let Some(job) = self.jobs.get(self.next) {
            let i = self.round.len();
            if i == l::MAX_ACTIONS as usize {
                break;
            }
            let call = |nr: i64, a: [u64; 6]| slot.set_action(i, l::ACT_SYSCALL, nr as u64, a);
            match job {
                Job::Call(nr, a) => slot.set_action(i, l::ACT_SYSCALL, *nr, *a),
                Job::Thread(index) => slot.set_action(i, l::ACT_THREAD, 0, [*index as u64, 0, 0, 0, 0, 0]),
                Job::Swap(at, old, new) => slot.set_action(i, l::ACT_SWAP, 0, [*at, *old, *new, 0, 0, 0]),
                Job::CompareExchange(addr, old, new) => {
                    let a = [*addr, (*old).into(), (*new).into(), 0, 0, 0];
                    slot.set_action(i, l::ACT_CMPXCHG, 0, a);
                }
                Job::StoreXstate(at, mask) => slot.set_action(i, l::ACT_XSAVE, 0, [*at, *mask, 0, 0, 0, 0]),
                Job::FetchXstate(at, mask) => slot.set_action(i, l::ACT_XRSTOR, 0, [*at, *mask, 0, 0, 0, 0]),
                Job::Hold(fd) => {
                    if fds.len() == l::MAX_FDS as usize {
                        break;
                    }
                    slot.set_action(i, l::ACT_HOLD, 0, [fds.len() as u64, 0, 0, 0, 0, 0]);
                    fds.push(fd.clone());
                }
                Job::MapHeld(fd, [addr, len, prot, flags, offset]) => {
                    call(SYS_mmap, [*addr, *len, *prot, *flags, *fd, *offset]);
                }
                Job::Fork(nonce) => slot.set_action(i, l::ACT_FORK, 0, [*nonce, 0, 0, 0, 0, 0]),
                Job::Xstate(bytes) => {
                    if room - data < bytes.len() {
                        break;
                    }
                    slot.write_data(data, bytes);
                    slot.set_action(i, l::ACT_XSTATE, 0, [data as u64, bytes.len() as u64, 0, 0, 0, 0]);
                    data += bytes.len();
                }
                Job::Action(action) => match action {
                    Action::MapAnon { addr, len, prot, flags } => {
                        let flags = flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
                        call(SYS_mmap, [*addr, *len, *prot as u64, flags as u64, u64::MAX, 0]);
                    }
                    Action::MapFile { addr, len, prot, flags, fd, offset } => {
                        let private = *flags & MAP_PRIVATE != 0;
                        let k = match fds.iter().position(|f| Arc::ptr_eq(f, fd)) {
                            _ if private && keep.as_ref().is_some_and(|kept| kept.is(fd)) => l::FD_KEPT,
                            Some(k) => k as u64,
                            None if fds.len() == l::MAX_FDS as usize => break,
                            None => {
                                fds.push(fd.clone());
                                let kept =
                                    private && keep.as_mut().map(|kept| kept.0 = Some(fd.clone())).is_some();
                                (fds.len() - 1) as u64 | if kept { l::FD_KEEP } else { 0 }
                            }
                        };
                        let flags = flags | MAP_FIXED;
                        let a = [*addr, *len, *prot as u64, flags as u64, k, *offset];
                        slot.set_action(i, l::ACT_MMAP_FD, 0, a);
                    }
                    Action::Unmap { addr, len } => call(SYS_munmap, [*addr, *len, 0, 0, 0, 0]),
                    Action::Protect { addr, len, prot } => {
                        call(SYS_mprotect, [*addr, *len, *prot as u64, 0, 0, 0])
                    }
                    Action::Remap { addr, len, new_addr, new_len, flags } => {
                        let flags = if addr == new_addr { 0 } else { flags | MREMAP_MAYMOVE | MREMAP_FIXED };
                        call(SYS_mremap, [*addr, *len, *new_len, flags as u64, *new_addr, 0]);
                    }
                    Action::Advise { addr, len, advice } => {
                        call(SYS_madvise, [*addr, *len, *advice as u64, 0, 0, 0]);
                    }
                    Action::Write { addr, data: bytes } => {
                        let rest = bytes.get(self.progress..).unwrap_or_default();
                        let n = rest.len().min(room - data);
                        if n == 0 && !rest.is_empty() {
                            break;
                        }
                        let (part, after) = rest.split_at(n);
                        slot.write_data(data, part);
                        let to = *addr + self.progress as u64;
                        slot.set_action(i, l::ACT_WRITE, 0, [to, data as u64, n as u64, 0, 0, 0]);
                        data += n;
                        if !after.is_empty() {
                            self.progress += n;
                            self.round.push(self.next);
                            break;
                        }
                        self.progress = 0;
                    }
                    Action::StoreAndWake { addr, value, wake } => {
                        let a =
                            [*addr, value.unwrap_or(0).into(), (*wake).into(), value.is_some().into(), 0, 0];
                        slot.set_action(i, l::ACT_STORE_WAKE, 0, a);
                    }
                    Action::Name(name) => {
                        if room - data < name.len() {
                            break;
                        }
                        slot.write_data(data, name);
                        let at = l::SLOT_BASE + self.index as u64 * l::SLOT_SIZE + l::SLOT_DATA;
                        call(SYS_prctl, [PR_SET_NAME as u64, at + data as u64, 0, 0, 0, 0]);
                        data += name.len();
                    }
                    Action::Title(line) => {
                        let line = stub::launch::title(line);
                        if room - data < line.len() {
                            break;
                        }
                        slot.write_data(data, &line);
                        let a = [stub::launch::TITLE, data as u64, line.len() as u64, 0, 0, 0];
                        slot.set_action(i, l::ACT_WRITE, 0, a);
                        data += line.len();
                    }
                    // In the registers already; a write of nothing keeps the numbering.
                    Action::SetFsBase(_) | Action::SetGsBase(_) => {
                        slot.set_action(i, l::ACT_WRITE, 0, [0; 6])
                    }
                },
            }
            self.round.push(self.next);
            self.next += 1;
        }
        slot.nact().store(self.round.len() as u32, Relaxed);
        fds
    }
}
