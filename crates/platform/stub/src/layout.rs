//! Addresses of a stub process and the layout of a slot.
//!
//! `build.rs` includes this file and prints it as a C header, so there is one
//! definition of each number. A slot is shared memory that the guest can write
//! at any time: the sentry reads each field once and validates it.

/// Declares constants and remembers their values for the C header.
macro_rules! constants {
    ($($(#[$m:meta])* $name:ident : $t:ty = $v:expr;)*) => {
        $($(#[$m])* pub const $name: $t = $v;)*
        /// Every constant by name, for the C header.
        pub const CONSTANTS: &[(&str, u64)] = &[$((stringify!($name), $v as u64)),*];
    };
}

/// Declares a `repr(C)` structure and remembers its fields for the C header.
macro_rules! shared {
    ($($(#[$m:meta])* struct $name:ident { $($(#[$fm:meta])* $f:ident : $t:ty,)* })*) => {
        $(
            $(#[$m])*
            #[repr(C)]
            pub struct $name { $($(#[$fm])* pub $f: $t,)* }
        )*
        /// Structures for the C header: name, size, and per field its name, type and offset.
        pub const STRUCTS: &[(&str, usize, &[(&str, &str, usize)])] = &[$((
            stringify!($name),
            size_of::<$name>(),
            &[$((stringify!($f), stringify!($t), core::mem::offset_of!($name, $f))),*],
        )),*];
    };
}

constants! {
    /// First address above the guest's range; the stub's code, read and execute.
    STUB_TEXT: u64 = 0x7ffe_0000_0000;
    /// Room for the code. The seccomp filter allows system calls from this range only.
    STUB_TEXT_SIZE: u64 = 0x1_0000;
    /// A `syscall` instruction followed by a breakpoint, for the ptrace platform.
    STUB_INJECT: u64 = 0x7ffe_0000_0010;
    /// `lock cmpxchg %esi,(%rdi)` followed by a breakpoint, for the same.
    STUB_CMPXCHG: u64 = 0x7ffe_0000_0020;
    /// Where a rewritten call site enters, by way of its trampoline; a multiple of 64.
    STUB_FAST: u64 = 0x7ffe_0000_0040;
    /// Where vvar and vDSO are moved to.
    STUB_VDSO: u64 = 0x7ffe_0010_0000;
    /// Slots of the process: one memfd, mapped shared.
    SLOT_BASE: u64 = 0x7ffe_1000_0000;
    /// Bytes per slot.
    SLOT_SIZE: u64 = 0x2_0000;
    /// Slots per process, hence guest threads per address space.
    NSLOTS: u64 = 4096;
    /// Private stacks of the stub (alternate signal stacks), one per slot.
    STACK_BASE: u64 = 0x7ffe_4000_0000;
    /// Bytes per private stack; `Priv` is at its low end. A power of two.
    STACK_SIZE: u64 = 0x1_0000;
    /// Bytes of a command line shown to the host, with the zero byte at its end.
    TITLE_SIZE: u64 = 2032;
    /// Where a zygote runs while it clears its address space.
    TEMP_TEXT: u64 = 0x1000_0000_0000;
    /// Arguments and stack of that first stage.
    TEMP_DATA: u64 = 0x1000_0010_0000;
    /// Size of that area.
    TEMP_DATA_SIZE: u64 = 0x1_0000;
    /// Where vvar and vDSO stay between their two moves.
    TEMP_VDSO: u64 = 0x1000_0020_0000;
    /// End of the temporary area.
    TEMP_END: u64 = 0x1000_0100_0000;
    /// One past the last address of a 47-bit address space.
    TASK_END: u64 = 0x7fff_ffff_f000;

    /// Offset of the copy buffer in a slot.
    SLOT_DATA: u64 = 0x1_0000;
    /// Size of the copy buffer.
    SLOT_DATA_SIZE: u64 = 0x1_0000;
    /// Index of a failed action: the copy before the first one.
    FAILED_COPY: u32 = 0xffff;
    /// Actions per hand-off.
    MAX_ACTIONS: u64 = 64;
    /// Offset in the copy buffer at which the second captured window starts.
    CAPTURE_SECOND: u64 = 0x1000;
    /// Bit of `req` and `rsp`: the waiter sleeps in futex(2).
    SLEEP: u32 = 0x8000_0000;
    /// Most hand-offs without a spin after spins in vain.
    MAX_BACKOFF: u32 = 255;
    /// How often a spin looks before it reads the time, which takes longer.
    LOOKS: u32 = 8;
    /// Sequence number with which a new thread starts to wait.
    FIRST_SEQ: u32 = 1;

    /// Bytes per trampoline of a rewritten call site.
    TRAMP_SIZE: u64 = 64;
    /// Offset in a trampoline: a `syscall` that raises SIGSYS, for calls that cannot take the fast path.
    TRAMP_CALL: u64 = 22;
    /// Offset in a trampoline: the way back to the guest.
    TRAMP_BACK: u64 = 24;
    /// Offset in a trampoline: address of [`STUB_FAST`].
    TRAMP_ENTRY: u64 = 40;
    /// Offset in a trampoline: the guest's own address after its `syscall`, from the trampoline's on.
    TRAMP_RIP: u64 = 48;
    /// Offset in a trampoline: a `syscall` instruction that stands for the guest's, from the trampoline's address on.
    TRAMP_FALLBACK: u64 = 56;
    /// System call numbers below this may have an answer in the slot.
    KNOWN: u64 = 256;
    /// Bit of an answer in the slot: it is valid.
    KNOWN_BIT: u64 = 63;
    /// Signals that a call site raises before it is worth rewriting.
    HOT: u64 = 6;

    /// System call that the filter routes to the sentry's listener: getpgrp, which the stub has no other use for. One that
    /// exists, because the filter of a container around us would answer any other itself.
    NR_NOTIFY: u64 = 111;
    /// `NR_NOTIFY` operation: a forked process reports in; argument: nonce; answer: its slot memfd.
    NOTIFY_HELLO: u64 = 1;
    /// `NR_NOTIFY` operation: a descriptor for an action; argument: its number; answer: the descriptor.
    NOTIFY_FD: u64 = 2;
    /// Most descriptors one hand-off can ask for.
    MAX_FDS: u64 = 8;
    /// Bit of `a[4]` of `ACT_MMAP_FD`: the descriptor that was kept.
    FD_KEPT: u64 = 0x100;
    /// Bit of `a[4]` of `ACT_MMAP_FD`: keep the descriptor for mappings to come, instead of the one kept so far.
    FD_KEEP: u64 = 0x200;

    /// Flags of a thread's clone(2): VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, CHILD_CLEARTID.
    CLONE_THREAD_FLAGS: u64 = 0x25_0f00;
    /// Flags of a fork's clone(2): PARENT, CHILD_CLEARTID; the exit signal is inherited (none).
    CLONE_FORK_FLAGS: u64 = 0x20_8000;

    /// Signal that interrupts a thread (SIGURG).
    INTERRUPT_SIGNAL: u32 = 23;

    /// Place of the blocked signals in `Slot::words`.
    WORD_BLOCKED: u64 = 0;
    /// Place of the pending signals.
    WORD_PENDING: u64 = 1;
    /// Place of the robust list's head.
    WORD_ROBUST_LIST: u64 = 2;
    /// Place of the address to clear when the thread ends.
    WORD_CLEAR_CHILD_TID: u64 = 3;

    /// The bits of `Slot::what` that hold the reason.
    REQ_MASK: u32 = 0xff;
    /// Bit of `Slot::what`: guest memory was captured with the call.
    REQ_CAPTURED: u32 = 0x100;
    /// Bit of `Slot::what`: the call site has become hot.
    REQ_SITE: u32 = 0x200;
    /// Bit of `Slot::what`: call sites have raised their first signal in this thread, see `Slot::fresh`.
    REQ_FRESH: u32 = 0x400;
    /// Most call sites in `Slot::fresh`.
    MAX_FRESH: u64 = 7;
    /// Where the CPU starts in `Slot::what` and `Slot::cmd`; CPUs beyond 65535 look like others.
    CPU_SHIFT: u32 = 16;
    /// Reason: a system call of the guest.
    REQ_SYSCALL: u32 = 1;
    /// Reason: a processor exception in the guest.
    REQ_FAULT: u32 = 2;
    /// Reason: interrupted by `INTERRUPT_SIGNAL`.
    REQ_INTERRUPT: u32 = 3;
    /// Reason: a native futex wait was interrupted.
    REQ_FUTEX: u32 = 4;
    /// Reason: the actions of a `CMD_REPORT` are done.
    REQ_DONE: u32 = 5;
    /// Reason: an action failed.
    REQ_FAILED: u32 = 6;
    /// Reason: the zygote is ready.
    REQ_READY: u32 = 7;
    /// Reason: a call was answered by the stub, and its site has become hot.
    REQ_HOT: u32 = 8;
    /// Reason: a call by the 32-bit interface.
    REQ_INT80: u32 = 9;
    /// Reason: a futex call that was let through (`REPORT_NEXT_DONE`) has been made.
    REQ_TOLD: u32 = 10;

    /// Command: execute the actions, load the registers, resume the guest.
    CMD_RESUME: u32 = 1;
    /// Command: execute the actions, then report.
    CMD_REPORT: u32 = 2;
    /// Command: execute the actions, then end the host thread.
    CMD_EXIT: u32 = 3;
    /// Command: execute the actions, resume the guest with the registers it had and `Slot::ret` in rax.
    CMD_RETURN: u32 = 4;
    /// The bits of `Slot::cmd` that hold the command.
    CMD_MASK: u32 = 0xffff;

    /// Action: host system call `nr` with arguments `a`.
    ACT_SYSCALL: u64 = 1;
    /// Action: mmap with injected descriptor number `a[4]`, or as `FD_KEPT` and `FD_KEEP` say.
    ACT_MMAP_FD: u64 = 2;
    /// Action: copy `a[2]` bytes at data offset `a[1]` to guest address `a[0]`.
    ACT_WRITE: u64 = 3;
    /// Action: store `a[1]` at `a[0]` if `a[3]` is set, then wake `a[2]` waiters; faults ignored.
    ACT_STORE_WAKE: u64 = 4;
    /// Action: copy `a[1]` bytes at data offset `a[0]` into the frame's extended state.
    ACT_XSTATE: u64 = 5;
    /// Action: start a thread on slot `a[0]`; its tid goes to `result`.
    ACT_THREAD: u64 = 6;
    /// Action: replace the 8 bytes at `a[0]`, which do not cross a cache line, if they are `a[1]`, by `a[2]`.
    ACT_SWAP: u64 = 8;
    /// Action: fork; the child says hello with nonce `a[0]`, after it has closed what was lent to its parent if `a[1]` is
    /// set; its pid goes to `result`.
    ACT_FORK: u64 = 7;

    /// A frame to go on obeying the sentry with.
    FRAME_OBEY: u32 = 1;
    /// A frame to resume the guest with.
    FRAME_RESUME: u32 = 2;
    /// Action: compare-and-exchange of the word at `a[0]`, from `a[1]` to `a[2]`; what was there goes to `result`.
    ACT_CMPXCHG: u64 = 9;

    /// Action: store the extended state, all components of mask `a[1]`, at `a[0]`, then reset it. Without a frame only.
    ACT_XSAVE: u64 = 10;
    /// Action: load the extended state, all components of mask `a[1]`, from `a[0]`. Without a frame only.
    ACT_XRSTOR: u64 = 11;
    /// Action: take injected descriptor number `a[0]` and leave it open; which one it is here goes to `result`. Number
    /// `MAX_FDS` is the one that is lent.
    ACT_HOLD: u64 = 12;
    /// Action: as `ACT_SYSCALL`, a transfer that fails with EAGAIN unless it moves all `a[2]` bytes.
    ACT_TRANSFER: u64 = 13;
    /// Close a descriptor, if it is there: number.
    ACT_CLOSE: u64 = 14;
    /// First number of the descriptors that are lent to a process for transfers; a multiple of `LENT`.
    LENT_FIRST: u64 = 248;
    /// How many there may be.
    LENT: u64 = 8;
    /// Bytes of a signal frame that are captured for rt_sigreturn.
    SIGNAL_FRAME: u64 = 440;
    /// Offset of the extended state's address in it.
    SIGNAL_FRAME_FPSTATE: u64 = 232;
    /// Offset of Linux's words in the extended state.
    XSTATE_WORDS: u64 = 464;
    /// Bytes of them.
    XSTATE_WORDS_SIZE: u64 = 48;

    /// Value of `report_all`: native futex calls are reported as well.
    REPORT_ALL: u32 = 1;
    /// Value of `report_all`: as `REPORT_ALL`, but the next call is not reported if it is a native futex call.
    REPORT_NEXT_NOT: u32 = 2;
    /// Value of `report_all`: as `REPORT_NEXT_NOT`, but the sentry is told when the futex call has been made.
    REPORT_NEXT_DONE: u32 = 3;
    /// Bit of `report_all` with one of the last two: the futex call takes the time-out in the slot.
    REPORT_TIMED: u32 = 4;

    /// Capture kind: a buffer with the length in argument `len`.
    CAP_BUFFER: u8 = 1;
    /// Capture kind: a C string of at most 4096 bytes.
    CAP_STRING: u8 = 2;
    /// Capture kind: `len` bytes.
    CAP_FIXED: u8 = 3;
    /// Capture kind: an array; `len` is the argument holding the count plus 16 times the element size.
    CAP_ARRAY: u8 = 4;
}

shared! {
    /// One completion action.
    struct Action {
        /// ACT_*.
        op: u64,
        /// Host system call number of `ACT_SYSCALL`.
        nr: u64,
        /// Arguments.
        a: [u64; 6],
    }
    /// The shared part of a guest thread, ordered by writer and by time: most calls move two cache lines, the first one
    /// to the sentry and the second one back. Bytes from `SLOT_DATA` on are the copy buffer.
    struct Slot {
        /// Stub to sentry: sequence number of the request, and `SLEEP`.
        req: u32,
        /// What it is: REQ_*, flags (`REQ_CAPTURED`, `REQ_SITE`), and the CPU on which the stub runs (`CPU_SHIFT`).
        what: u32,
        /// Of `REQ_SYSCALL`: number and arguments, as they are in `regs`.
        call: [u64; 7],

        /// Sentry to stub: sequence number answered, and `SLEEP`.
        rsp: u32,
        /// CMD_*, and the CPU on which the sentry's thread runs (`CPU_SHIFT`).
        cmd: u32,
        /// Result of the call for `CMD_RETURN`.
        ret: u64,
        /// Number of actions.
        nact: u32,
        /// Bytes to copy to guest memory before the actions, or 0.
        copy_len: u32,
        /// Where to.
        copy_to: u64,
        /// Where they are in the slot.
        copy_from: u32,
        /// Nonzero: close the kept descriptor before the actions.
        let_go: u32,
        /// Padding.
        pad1: [u32; 6],

        /// Longest spin in TSC cycles. This line seldom changes.
        spin: u32,
        /// REPORT_*, or 0.
        report_all: u32,
        /// Bytes of extended state to show when the sentry asks for a report without actions.
        xstate_size: u32,
        /// Nonzero while the host thread lives (cleared by the host kernel).
        alive: u32,
        /// Nonzero when the processor has `rdpid`.
        rdpid: u32,
        /// Padding.
        pad2: u32,
        /// The words of `platform::Word`, which the stub changes as well.
        words: [u64; 4],
        /// Padding.
        pad7: u64,

        /// Index of the action that failed. From here on the stub writes.
        fail_index: u32,
        /// Its error number.
        fail_errno: u32,
        /// Result of `ACT_THREAD`, `ACT_FORK`; the listener's number in `REQ_READY`.
        result: u64,
        /// Fault: signal number.
        fault_signo: u32,
        /// si_code.
        fault_code: u32,
        /// si_addr.
        fault_addr: u64,
        /// Trap number.
        fault_trapno: u64,
        /// Error code.
        fault_err: u64,
        /// Of `REQ_SITE`: a call site that has raised many signals, the address after its `syscall`.
        hot: u64,
        /// Padding.
        pad3: u64,

        /// Of `REQ_CAPTURED`: guest addresses of the captured windows.
        cap_addr: [u64; 2],
        /// Their lengths.
        cap_len: [u32; 2],
        /// Padding.
        pad4: [u64; 5],

        /// Address of this thread's `Priv`. What follows is for the stub's own use, but for some looks of the sentry.
        private: u64,
        /// Address of the extended state in the signal frame.
        fpstate: u64,
        /// Arithmetic flags of a fast call, as lahf and seto give them.
        flags: u32,
        /// The thread waits on a native futex.
        waiting: u32,
        /// Padding.
        pad5: [u64; 5],

        /// General-purpose registers, in the order of `platform::Regs`.
        regs: [u64; 21],
        /// Of `REPORT_TIMED`: the time-out, a `struct timespec`.
        timeout: [u64; 2],
        /// Padding.
        pad6: u64,
        /// Answers known without the sentry, by system call number: 32 bits, and `KNOWN_BIT` when it is valid.
        known: [u64; 256],
        /// Sentry to stub: the last request that its thread has taken up. A line of its own: the stub looks at it only when an
        /// answer takes its time.
        taken: u32,
        /// Padding.
        pad8: [u32; 15],
        /// Of `REQ_FRESH`: how many.
        nfresh: u64,
        /// The addresses after their `syscall`.
        fresh: [u64; 7],
        /// Bytes of brief copies.
        brief: [u64; 168],
        /// Actions.
        act: [Action; 64],
    }
    /// Private part of a guest thread, at the low end of its private stack.
    struct Priv {
        /// An interrupt arrived in stub code.
        pending: u32,
        /// Sequence number of the last request.
        seq: u32,
        /// Answers still to be awaited without a spin.
        skip: u32,
        /// How many that were after the last spin in vain.
        backoff: u32,
        /// Set in the zygote before its first frame: announce readiness.
        announce: u32,
        /// Listener descriptor of the zygote.
        listener: u32,
        /// Trampoline of the fast call in progress.
        tramp: u64,
        /// What the frame that the stub asks of the host is for: FRAME_*.
        frame: u32,
        /// The kept descriptor plus one, or 0.
        kept: u32,
        /// Nonzero: the futex call takes the time-out in the slot.
        timed: u32,
        /// Padding.
        pad: u32,
        /// Call sites in `Slot::fresh` that have not been reported.
        nfresh: u64,
        /// Signals per call site: the address in the upper 56 bits, the count in the lower 8.
        hot: [u64; 128],
        /// Of the first private stack: the command line that the host's process lists show, up to the first zero byte.
        title: [u64; 254],
        /// Its first byte, which is the last of what the host takes for the arguments, is not zero: then they are one string.
        title_end: u64,
        /// Where the ptrace platform puts a thread's name.
        name: [u64; 2],
    }
    /// What the first stage of a zygote needs; at `TEMP_DATA`.
    struct ZygoteArgs {
        /// Descriptor of the text memfd.
        text_fd: u64,
        /// Descriptor of the slot memfd.
        slot_fd: u64,
        /// Start of each vvar/vdso mapping, in order.
        map_start: [u64; 6],
        /// Length of each.
        map_len: [u64; 6],
        /// Number of them.
        map_count: u64,
        /// 1 when the host refuses to move them: leave them in place.
        map_stay: u64,
        /// Instructions of the filter, which follow this structure.
        filter_len: u64,
    }
}

const _: () = assert!(core::mem::offset_of!(Slot, act) == 0x1000);
// Cache lines.
const _: () = assert!(
    core::mem::offset_of!(Slot, rsp) == 64
        && core::mem::offset_of!(Slot, spin) == 128
        && core::mem::offset_of!(Slot, fail_index) == 192
        && core::mem::offset_of!(Slot, cap_addr) == 256
        && core::mem::offset_of!(Slot, private) == 320
        && core::mem::offset_of!(Slot, regs) == 384
        && core::mem::offset_of!(Slot, known).is_multiple_of(64)
        && core::mem::offset_of!(Slot, taken).is_multiple_of(64)
);
// It costs a process no page of its own.
const _: () = assert!(size_of::<Priv>() <= 4096);
const _: () = assert!(
    core::mem::offset_of!(Priv, title_end) - core::mem::offset_of!(Priv, title) == TITLE_SIZE as usize
);
const _: () = assert!(size_of::<Slot>() <= SLOT_DATA as usize);
const _: () =
    assert!(SLOT_BASE >> 32 == STUB_TEXT >> 32 && (SLOT_BASE + NSLOTS * SLOT_SIZE) >> 32 == STUB_TEXT >> 32);
const _: () = assert!(SLOT_BASE + NSLOTS * SLOT_SIZE <= STACK_BASE);
const _: () = assert!(STACK_BASE.is_multiple_of(STACK_SIZE) && STACK_SIZE.is_power_of_two());
const _: () = assert!(STACK_BASE + NSLOTS * STACK_SIZE <= TASK_END);
// One mask tells a lent descriptor, and one what may be closed.
const _: () = assert!(
    LENT.is_power_of_two() && LENT_FIRST.is_multiple_of(LENT) && (LENT_FIRST + LENT).is_power_of_two()
);
