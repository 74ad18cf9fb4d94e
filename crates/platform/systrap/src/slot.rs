//! One guest thread's slot as the sentry sees it.
//!
//! The other side can write every byte at any time. Fields are read once, as
//! atomics, into the sentry's own variables, and validated there.

use abi::Result;
use core::mem::offset_of;
use hostsys::memfd::{self, CopyArea, SharedMapping};
use platform::Regs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use stub::layout::{
    Action, CAPTURE_SECOND, CPU_SHIFT, KNOWN, MAX_FRESH, NSLOTS, SLOT_DATA, SLOT_DATA_SIZE, SLOT_SIZE, Slot,
    WORD_BLOCKED, WORD_CLEAR_CHILD_TID, WORD_PENDING, WORD_ROBUST_LIST,
};

/// Where the bytes of brief copies are in a slot, and how many there is room for.
pub(crate) const BRIEF_AT: usize = offset_of!(Slot, brief);
const BRIEF: usize = offset_of!(Slot, act) - BRIEF_AT;

/// A mapped slot.
#[derive(Debug)]
pub(crate) struct SlotMap(SharedMapping);

macro_rules! words {
    ($($name:ident: $kind:ident,)*) => { $(pub(crate) fn $name(&self) -> words!(@ty $kind) {
        self.0.$kind(offset_of!(Slot, $name))
    })* };
    (@ty word) => { &AtomicU32 };
    (@ty long) => { &AtomicU64 };
}

/// Creates the file that holds the slots of one process.
pub(crate) fn create_file() -> Result<OwnedFd> {
    memfd::create(c"ringfence-slots", NSLOTS * SLOT_SIZE, false)
}

/// Has a file of slots read as zeros.
pub(crate) fn empty_file(file: &OwnedFd) -> Result<()> {
    memfd::empty(file.as_fd(), NSLOTS * SLOT_SIZE)
}

impl From<SharedMapping> for SlotMap {
    fn from(map: SharedMapping) -> SlotMap {
        SlotMap(map)
    }
}

impl SlotMap {
    /// Maps slot `index` of a process.
    pub(crate) fn new(file: BorrowedFd<'_>, index: usize) -> Result<SlotMap> {
        SharedMapping::new(file, index as u64 * SLOT_SIZE, SLOT_SIZE as usize).map(SlotMap)
    }

    words! {
        req: word, what: word, rsp: word, cmd: word, ret: long, nact: word, copy_len: word, copy_to: long, copy_from: word, let_go: word, spin: word, report_all: word,
        xstate_size: word, alive: word, fail_index: word, fail_errno: word, result: long, fault_signo: word,
        fault_code: word, fault_addr: long, fault_trapno: long, fault_err: long, hot: long, fpstate: long,
        waiting: word, rdpid: word, taken: word,
    }

    /// The call sites of `REQ_FRESH`.
    pub(crate) fn fresh(&self) -> Vec<u64> {
        let n = self.0.long(offset_of!(Slot, nfresh)).load(Relaxed).min(MAX_FRESH) as usize;
        (0..n).map(|i| self.0.long(offset_of!(Slot, fresh) + 8 * i).load(Relaxed)).collect()
    }

    /// The answer to a system call that the stub gives by itself.
    pub(crate) fn known(&self, nr: u32) -> &AtomicU64 {
        self.0.long(offset_of!(Slot, known) + 8 * (nr as usize % KNOWN as usize))
    }

    /// A word of the thread that the stub may change.
    pub(crate) fn word(&self, which: platform::Word) -> &AtomicU64 {
        let place = match which {
            platform::Word::Blocked => WORD_BLOCKED,
            platform::Word::Pending => WORD_PENDING,
            platform::Word::RobustList => WORD_ROBUST_LIST,
            platform::Word::ClearChildTid => WORD_CLEAR_CHILD_TID,
        };
        self.0.long(offset_of!(Slot, words) + 8 * place as usize)
    }

    /// The time-out of `REPORT_TIMED`.
    pub(crate) fn set_timeout(&self, timeout: [u64; 2]) {
        for (i, word) in timeout.into_iter().enumerate() {
            self.0.long(offset_of!(Slot, timeout) + 8 * i).store(word, Relaxed);
        }
    }

    /// The CPU on which the stub was when it made its last request.
    pub(crate) fn stub_cpu(&self) -> u32 {
        self.what().load(Relaxed) >> CPU_SHIFT
    }

    /// Number and arguments of the system call.
    pub(crate) fn call(&self) -> [u64; 7] {
        std::array::from_fn(|i| self.0.long(offset_of!(Slot, call) + 8 * i).load(Relaxed))
    }

    /// Address and length of captured window `i`, clamped to its room in the copy buffer.
    pub(crate) fn window(&self, i: usize) -> (u64, usize) {
        let addr = self.0.long(offset_of!(Slot, cap_addr) + 8 * i).load(Relaxed);
        let len = self.0.word(offset_of!(Slot, cap_len) + 4 * i).load(Relaxed);
        let room = SLOT_DATA_SIZE as usize - if i == 0 { 0 } else { CAPTURE_SECOND as usize };
        (addr, (len as usize).min(room))
    }

    /// Copies out of captured window `i`; the caller stays within what [`SlotMap::window`] returned.
    pub(crate) fn read_window(&self, i: usize, offset: usize, buf: &mut [u8]) {
        let base = SLOT_DATA as usize + if i == 0 { 0 } else { CAPTURE_SECOND as usize };
        self.0.copy_out(base + offset, buf);
    }

    /// Copies out of the copy buffer.
    pub(crate) fn read_data(&self, buf: &mut [u8]) {
        self.0.copy_out(SLOT_DATA as usize, buf);
    }

    /// Copies into the copy buffer.
    pub(crate) fn write_data(&self, offset: usize, data: &[u8]) {
        self.0.copy_in(SLOT_DATA as usize + offset, data);
    }

    /// Where `len` bytes fit that are copied first: where brief copies go, or with `data` the copy buffer, or what there is
    /// of it.
    pub(crate) fn area(&self, len: usize, data: bool) -> Option<CopyArea<'_>> {
        match len {
            0 => None,
            1..=BRIEF => Some(self.0.area(BRIEF_AT, len)),
            _ if data => Some(self.0.area(SLOT_DATA as usize, len.min(SLOT_DATA_SIZE as usize))),
            _ => None,
        }
    }

    /// Stores one action.
    pub(crate) fn set_action(&self, i: usize, op: u64, nr: u64, a: [u64; 6]) {
        let at = offset_of!(Slot, act) + i * size_of::<Action>();
        self.0.long(at + offset_of!(Action, op)).store(op, Relaxed);
        self.0.long(at + offset_of!(Action, nr)).store(nr, Relaxed);
        for (k, v) in a.into_iter().enumerate() {
            self.0.long(at + offset_of!(Action, a) + 8 * k).store(v, Relaxed);
        }
    }

    fn reg(&self, i: usize) -> &AtomicU64 {
        self.0.long(offset_of!(Slot, regs) + 8 * i)
    }

    /// The guest's instruction pointer alone.
    pub(crate) fn rip(&self) -> u64 {
        self.reg(offset_of!(Regs, rip) / 8).load(Relaxed)
    }

    /// Reads the guest's registers.
    pub(crate) fn load_regs(&self, r: &mut Regs) {
        for (i, f) in fields(r).into_iter().enumerate() {
            *f = self.reg(i).load(Relaxed);
        }
    }

    /// Writes the guest's registers. Bases that the processor would refuse become 0.
    pub(crate) fn store_regs(&self, r: &mut Regs) {
        for base in [&mut r.fs_base, &mut r.gs_base] {
            if *base >= 1 << 47 {
                *base = 0;
            }
        }
        for (i, f) in fields(r).into_iter().enumerate() {
            self.reg(i).store(*f, Relaxed);
        }
    }
}

/// The registers in the order of the slot (that of `platform::Regs`, which is the enum at the top of stub.c).
fn fields(r: &mut Regs) -> [&mut u64; 21] {
    const { assert!(size_of::<Regs>() == 21 * 8 && offset_of!(Regs, gs_base) == 20 * 8) };
    [
        &mut r.r15,
        &mut r.r14,
        &mut r.r13,
        &mut r.r12,
        &mut r.rbp,
        &mut r.rbx,
        &mut r.r11,
        &mut r.r10,
        &mut r.r9,
        &mut r.r8,
        &mut r.rax,
        &mut r.rcx,
        &mut r.rdx,
        &mut r.rsi,
        &mut r.rdi,
        &mut r.orig_rax,
        &mut r.rip,
        &mut r.eflags,
        &mut r.rsp,
        &mut r.fs_base,
        &mut r.gs_base,
    ]
}
