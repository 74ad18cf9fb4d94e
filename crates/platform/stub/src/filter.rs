//! The stub's seccomp filter: all that guest code can ask of the host.
//!
//! One table of rules ([`RULES`]), each with its reason, for the compiler of the crate seccomp.
//! Guest code can jump to any `syscall` instruction of the stub with any
//! registers, so each rule must be harmless with hostile arguments.

use seccomp::compile::{self, Condition, Operator, Rules, Text, TooLong};
use seccomp::{RET_ALLOW, RET_TRAP, RET_USER_NOTIF, SockFilter};

use crate::layout::{
    CLONE_FORK_FLAGS, CLONE_THREAD_FLAGS, LENT, LENT_FIRST, NR_NOTIFY, STUB_TEXT, STUB_TEXT_SIZE,
};

/// Condition on the low 32 bits of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// `arg & mask` is one of the values.
    OneOf(u8, u32, &'static [u32]),
    /// The upper 32 bits of the argument are zero.
    HighZero(u8),
}

/// What happens to a call that a rule matches; all others raise SIGSYS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host executes it.
    Allow,
    /// The sentry is asked.
    Notify,
}

/// One row of the filter.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// System call number.
    pub nr: u32,
    /// Conditions, all of which must hold.
    pub tests: &'static [Test],
    /// What to do.
    pub verdict: Verdict,
    /// Why it is needed, and why it is harmless.
    pub reason: &'static str,
}

use Test::{HighZero, OneOf};
use Verdict::{Allow, Notify};

const ALL: u32 = !0;
/// Bits of mmap's flags that never matter to another process: GROWSDOWN, LOCKED, NORESERVE, POPULATE, STACK.
const MMAP_FREE: u32 = !(0x100 | 0x2000 | 0x4000 | 0x8000 | 0x2_0000);
const FUTEX_FREE: u32 = !(0x80 | 0x100);

/// Low bits of a clock that counts the processor time of one thread; CLOCK_MONOTONIC_COARSE has them, too.
const THREAD_CLOCK: u32 = 6;

/// The clock of a thread's processor time, as an argument of clock_gettime(2).
pub const fn thread_clock(tid: i32) -> u64 {
    (!tid << 3) as u32 as u64 | THREAD_CLOCK as u64
}

/// A `struct timespec` in nanoseconds; `None` when it is none.
pub fn nanoseconds(timespec: [u8; 16]) -> Option<u64> {
    let (sec, nsec) = timespec.split_at(8);
    let word = |b: &[u8]| Some(u64::from_le_bytes(b.try_into().ok()?));
    word(sec)?.checked_mul(1_000_000_000)?.checked_add(word(nsec)?)
}

const fn rule(nr: i64, tests: &'static [Test], verdict: Verdict, reason: &'static str) -> Rule {
    Rule { nr: nr as u32, tests, verdict, reason }
}

/// The filter.
pub const RULES: &[Rule] = &[
    rule(
        libc::SYS_rt_sigreturn,
        &[],
        Allow,
        "return to the guest; affects the caller's registers and signal mask only",
    ),
    rule(
        libc::SYS_futex,
        // WAIT WAKE REQUEUE CMP_REQUEUE WAKE_OP WAIT_BITSET WAKE_BITSET
        &[OneOf(1, FUTEX_FREE, &[0, 1, 3, 4, 5, 9, 10])],
        Allow,
        "hand-off and native futexes; reaches memory that the process has mapped",
    ),
    rule(
        libc::SYS_futex_waitv,
        &[],
        Allow,
        "native futexes; reaches memory that the process has mapped, at most 128 words of it",
    ),
    rule(454, &[], Allow, "futex_wake(2): native futexes; reaches memory that the process has mapped"),
    rule(455, &[], Allow, "futex_wait(2): native futexes; reaches memory that the process has mapped"),
    rule(456, &[], Allow, "futex_requeue(2): native futexes; reaches memory that the process has mapped"),
    rule(
        libc::SYS_membarrier,
        &[OneOf(0, ALL, MEMBARRIER), OneOf(1, ALL, &[0])],
        Allow,
        "orders memory accesses; interrupts processors for a moment, as every process may",
    ),
    rule(
        libc::SYS_mincore,
        &[],
        Allow,
        "own address space; of files that it may not write, the host says that all is resident",
    ),
    rule(libc::SYS_munmap, &[], Allow, "completion action; own address space"),
    rule(libc::SYS_mprotect, &[], Allow, "completion action; files are opened with the guest's rights only"),
    rule(
        libc::SYS_mmap,
        // PRIVATE|FIXED|ANONYMOUS, PRIVATE|FIXED or SHARED|FIXED of a descriptor
        &[OneOf(3, MMAP_FREE, &[0x32, 0x12, 0x11]), HighZero(3)],
        Allow,
        "completion action; the descriptor table holds only files the guest may map",
    ),
    rule(libc::SYS_mremap, &[OneOf(3, !7, &[0]), HighZero(3)], Allow, "completion action; own address space"),
    rule(
        libc::SYS_remap_file_pages,
        &[OneOf(2, ALL, &[0]), OneOf(4, ALL, &[0])],
        Allow,
        "completion action; another part of a file that the process has mapped, with the rights of that mapping",
    ),
    rule(
        libc::SYS_madvise,
        &[OneOf(2, ALL, MADVISE)],
        Allow,
        "completion action; own address space, no poisoning, no page merging; a guard does less than an unmapped page",
    ),
    rule(
        libc::SYS_close,
        &[OneOf(0, !(LENT_FIRST + LENT - 1) as u32, &[0])],
        Allow,
        "injected descriptors; own table",
    ),
    rule(
        libc::SYS_pread64,
        &[OneOf(0, !(LENT - 1) as u32, &[LENT_FIRST as u32])],
        Allow,
        "a large read; of the files that were lent to the process, which it may read and map, into its own memory",
    ),
    rule(
        libc::SYS_pwrite64,
        &[OneOf(0, !(LENT - 1) as u32, &[LENT_FIRST as u32])],
        Allow,
        "a large write; to host files that were lent to the process, those that it has open for writing",
    ),
    rule(libc::SYS_exit, &[], Allow, "end of a thread"),
    rule(libc::SYS_exit_group, &[], Allow, "end of a process that cannot be set up"),
    rule(libc::SYS_sigaltstack, &[], Allow, "a new thread's signal stack; own thread"),
    rule(
        libc::SYS_rt_sigprocmask,
        &[OneOf(0, ALL, &[libc::SIG_BLOCK as u32, libc::SIG_UNBLOCK as u32])],
        Allow,
        "no interrupt during clone; rt_sigreturn can do the same",
    ),
    rule(
        libc::SYS_prctl,
        &[OneOf(0, ALL, &[libc::PR_SET_PDEATHSIG as u32]), OneOf(1, ALL, &[libc::SIGKILL as u32])],
        Allow,
        "a process dies with the sentry; can only be switched on",
    ),
    rule(
        libc::SYS_prctl,
        &[OneOf(0, ALL, &[libc::PR_SET_NAME as u32])],
        Allow,
        "the guest's name in the host's process lists; 16 bytes of memory that the process has mapped, for the calling thread",
    ),
    rule(
        libc::SYS_prctl,
        &[OneOf(0, ALL, &[libc::PR_SET_THP_DISABLE as u32])],
        Allow,
        "huge pages for the process's own memory",
    ),
    rule(
        libc::SYS_getrusage,
        &[OneOf(0, ALL, &[libc::RUSAGE_SELF as u32, libc::RUSAGE_THREAD as u32])],
        Allow,
        "what the host counts of the process or the calling thread; writes to memory that the process has mapped",
    ),
    rule(
        libc::SYS_clock_gettime,
        &[OneOf(0, 7, &[THREAD_CLOCK])],
        Allow,
        "a thread's processor time; the host refuses threads of other processes; writes to memory that the process has mapped",
    ),
    rule(libc::SYS_restart_syscall, &[], Allow, "the host restarts a futex wait after a stop"),
    rule(libc::SYS_sched_yield, &[], Allow, "hand-off; no effect but on scheduling"),
    rule(
        libc::SYS_clone,
        &[OneOf(0, ALL, &[CLONE_THREAD_FLAGS as u32, CLONE_FORK_FLAGS as u32]), HighZero(0)],
        Notify,
        "thread and fork; each one checked by the sentry, arguments are registers",
    ),
    rule(NR_NOTIFY as i64, &[], Notify, "question to the sentry: hello of a process, descriptor to map"),
];

/// Advice a guest may give: NORMAL..WILLNEED, DONTNEED, FREE, REMOVE, DONTFORK, DOFORK, HUGEPAGE, NOHUGEPAGE, DONTDUMP,
/// DODUMP, WIPEONFORK, KEEPONFORK, COLD, PAGEOUT, POPULATE_READ, POPULATE_WRITE, DONTNEED_LOCKED, COLLAPSE, GUARD_INSTALL,
/// GUARD_REMOVE.
pub const MADVISE: &[u32] =
    &[0, 1, 2, 3, 4, 8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 102, 103];

/// Commands of membarrier(2) but for those of restartable sequences, which a guest has not.
pub const MEMBARRIER: &[u32] = &[0, 1, 2, 4, 8, 16, 32, 64, 512];

/// The filter as a program. i386 calls (int 0x80), calls from outside the stub's text (vsyscall page and vDSO
/// included), x32 numbers and all else: SIGSYS.
pub fn assemble() -> Result<Vec<SockFilter>, TooLong> {
    let text = Text::new(STUB_TEXT, STUB_TEXT_SIZE as u32).ok_or(TooLong)?;
    let condition = |test: &Test| match *test {
        OneOf(argument, mask, values) => (argument, Operator::LowIn(mask, values)),
        HighZero(argument) => (argument, Operator::MaskedEq(0xffff_ffff << 32)),
    };
    let compiled = RULES.iter().map(|rule| compile::Rule {
        nr: rule.nr,
        conditions: rule
            .tests
            .iter()
            .map(|test| {
                let (argument, operator) = condition(test);
                Condition { argument: argument.into(), operator, value: 0 }
            })
            .collect(),
        value: match rule.verdict {
            Allow => RET_ALLOW,
            Notify => RET_USER_NOTIF,
        },
    });
    Rules { default: RET_TRAP, text: Some(text), rules: compiled.collect(), ..Rules::default() }.compile()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seccomp::{ARCH as AUDIT_ARCH_X86_64, Data, Program};

    /// Runs the program on a call; the action it returns.
    fn run(p: &Program, arch: u32, ip: u64, nr: u32, args: [u64; 6]) -> u32 {
        p.run(&Data { nr: nr as i32, arch, ip, args })
    }

    fn program() -> Program {
        Program::new(&assemble().unwrap()).unwrap()
    }

    fn stub_call(nr: i64, args: [u64; 6]) -> u32 {
        run(&program(), AUDIT_ARCH_X86_64, STUB_TEXT + 0x100, nr as u32, args)
    }

    #[test]
    fn only_the_stub_may_call() {
        let p = program();
        let futex = libc::SYS_futex as u32;
        assert_eq!(run(&p, AUDIT_ARCH_X86_64, STUB_TEXT + 0x100, futex, [0; 6]), RET_ALLOW);
        for ip in [0x40_0000, STUB_TEXT - 1, STUB_TEXT + STUB_TEXT_SIZE, 0xffff_ffff_ff60_0000] {
            assert_eq!(run(&p, AUDIT_ARCH_X86_64, ip, futex, [0; 6]), RET_TRAP);
        }
        assert_eq!(run(&p, 0x4000_0003, STUB_TEXT + 0x100, 240, [0; 6]), RET_TRAP);
        assert_eq!(run(&p, AUDIT_ARCH_X86_64, STUB_TEXT, futex | 0x4000_0000, [0; 6]), RET_TRAP);
    }

    #[test]
    fn every_other_number_traps() {
        for nr in 0..1024 {
            if RULES.iter().all(|r| r.nr != nr) {
                assert_eq!(stub_call(i64::from(nr), [0; 6]), RET_TRAP, "{nr}");
            }
        }
    }

    #[test]
    fn arguments() {
        let mmap = |flags| stub_call(libc::SYS_mmap, [0, 4096, 3, flags, 0, 0]);
        for ok in [0x32, 0x4032, 0x12, 0x11, 0x8011, 0x132] {
            assert_eq!(mmap(ok), RET_ALLOW, "{ok:#x}");
        }
        for bad in [0x22, 0x31, 0x21, 0x02, 0x01, 0x13, 0x4_0032, 0x1_0000_0032, 0x10_0032, 0x8_0013] {
            assert_eq!(mmap(bad), RET_TRAP, "{bad:#x}");
        }
        assert_eq!(stub_call(libc::SYS_clone, [CLONE_FORK_FLAGS, 0, 0, 0, 0, 0]), RET_USER_NOTIF);
        assert_eq!(stub_call(libc::SYS_clone, [CLONE_THREAD_FLAGS, 0, 0, 0, 0, 0]), RET_USER_NOTIF);
        assert_eq!(stub_call(libc::SYS_clone, [17, 0, 0, 0, 0, 0]), RET_TRAP);
        assert_eq!(stub_call(libc::SYS_clone, [CLONE_FORK_FLAGS | 1 << 32, 0, 0, 0, 0, 0]), RET_TRAP);
        assert_eq!(stub_call(libc::SYS_clone, [CLONE_FORK_FLAGS | 0x1000_0000, 0, 0, 0, 0, 0]), RET_TRAP);
        assert_eq!(stub_call(libc::SYS_madvise, [0, 0, 4, 0, 0, 0]), RET_ALLOW);
        for advice in [12, 100, 101, 104] {
            assert_eq!(stub_call(libc::SYS_madvise, [0, 0, advice, 0, 0, 0]), RET_TRAP);
        }
        assert_eq!(stub_call(libc::SYS_futex, [0, 0x81, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(stub_call(libc::SYS_futex, [0, 6, 0, 0, 0, 0]), RET_TRAP);
        assert_eq!(stub_call(libc::SYS_prctl, [1, 9, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(stub_call(libc::SYS_prctl, [1, 0, 0, 0, 0, 0]), RET_TRAP);
        assert_eq!(stub_call(libc::SYS_prctl, [15, 0x1000, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(stub_call(libc::SYS_prctl, [35, 14, 0, 0, 0, 0]), RET_TRAP);
        assert_eq!(stub_call(libc::SYS_prctl, [4, 9, 0, 0, 0, 0]), RET_TRAP);
        assert_eq!(stub_call(libc::SYS_clock_gettime, [thread_clock(1234), 0, 0, 0, 0, 0]), RET_ALLOW);
        for other in [0, 1, 2, 3, 7, (!1234i32 << 3) as u32 as u64 | 2] {
            assert_eq!(stub_call(libc::SYS_clock_gettime, [other, 0, 0, 0, 0, 0]), RET_TRAP);
        }
        assert_eq!(stub_call(libc::SYS_close, [255, 0, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(stub_call(libc::SYS_close, [256, 0, 0, 0, 0, 0]), RET_TRAP);
        for (fd, verdict) in
            [(0, RET_TRAP), (247, RET_TRAP), (248, RET_ALLOW), (255, RET_ALLOW), (256, RET_TRAP)]
        {
            assert_eq!(stub_call(libc::SYS_pread64, [fd, 0x1000, 4096, 0, 0, 0]), verdict, "{fd}");
            assert_eq!(stub_call(libc::SYS_pwrite64, [fd, 0x1000, 4096, 0, 0, 0]), verdict, "{fd}");
        }
        assert_eq!(stub_call(libc::SYS_rt_sigprocmask, [2, 0, 0, 0, 0, 0]), RET_TRAP);
        assert_eq!(stub_call(libc::SYS_mremap, [0, 0, 0, 8, 0, 0]), RET_TRAP);
    }
}
