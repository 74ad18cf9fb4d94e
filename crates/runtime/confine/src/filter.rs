//! Seccomp filters as data: a table of rules, each with its reason.
//!
//! A call that no rule allows kills the process. A process of ours makes no such call unless an attacker has taken it
//! over.

use seccomp::compile::{Condition, Operator, Rule as Compiled, Rules};
use seccomp::{RET_ALLOW, RET_ERRNO, RET_KILL_PROCESS, SockFilter};
use std::io;

/// One host call, and with which arguments it may be made.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// Number of the call.
    pub call: libc::c_long,
    /// Alternatives, one of which must hold; with none, any arguments will do.
    pub when: &'a [&'a [Arg]],
    /// Why the process needs the call.
    pub why: &'a str,
}

/// A condition on one argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// The 32-bit argument equals the value.
    Is(u8, u32),
    /// The 64-bit argument equals the value.
    IsLong(u8, u64),
    /// Of the bits in the mask, the argument has exactly those in the value: (argument, mask, value).
    Bits(u8, u64, u64),
    /// The 64-bit argument is at most this.
    AtMost(u8, u64),
}

/// A rule without conditions.
pub const fn allow(call: libc::c_long, why: &'static str) -> Rule<'static> {
    Rule { call, when: &[], why }
}

/// A rule with conditions.
pub const fn allow_when(
    call: libc::c_long,
    when: &'static [&'static [Arg]],
    why: &'static str,
) -> Rule<'static> {
    Rule { call, when, why }
}

/// Calls that a Rust program makes by itself: memory, its own end, signal returns.
pub const RUST_RUNTIME: &[Rule] = &[
    allow(libc::SYS_exit_group, "the end of the process"),
    allow(libc::SYS_rt_sigreturn, "return from a signal handler"),
    allow(libc::SYS_munmap, "freeing memory"),
    allow(libc::SYS_brk, "allocating memory"),
    allow(libc::SYS_sigaltstack, "the standard library's stack overflow handler, on thread exit"),
    allow_when(
        libc::SYS_mmap,
        &[&[Arg::Bits(3, libc::MAP_ANONYMOUS as u64, libc::MAP_ANONYMOUS as u64), Arg::Bits(2, EXEC, 0)]],
        "allocating memory, never executable",
    ),
    allow(libc::SYS_mremap, "growing an allocation"),
    allow_when(libc::SYS_madvise, &[&[Arg::Is(2, libc::MADV_DONTNEED as u32)]], "giving memory back"),
    allow_when(libc::SYS_mprotect, &[&[Arg::Bits(2, EXEC, 0)]], "the allocator's heaps, never executable"),
    allow(libc::SYS_futex, "locks"),
    allow(libc::SYS_close, "dropping descriptors"),
    allow_when(libc::SYS_fcntl, &[&[Arg::Is(1, libc::F_GETFD as u32)]], "a debug build checks what it drops"),
    allow_when(libc::SYS_write, &[&[Arg::Is(0, 2)]], "a panic message to standard error"),
    allow_when(libc::SYS_writev, &[&[Arg::Is(0, 2)]], "the C library's last words to standard error"),
    allow(libc::SYS_getpid, "raising the signal of an abort"),
    allow(libc::SYS_gettid, "raising the signal of an abort"),
    allow_when(libc::SYS_tgkill, &[&[Arg::Is(2, libc::SIGABRT as u32)]], "an abort"),
    allow(libc::SYS_rt_sigprocmask, "an abort"),
    allow_when(libc::SYS_rt_sigaction, &[&[Arg::Is(0, libc::SIGABRT as u32)]], "an abort"),
    allow(libc::SYS_restart_syscall, "a timed call continued after a stop signal"),
];

/// What a process with threads needs beside.
pub const THREADS: &[Rule] = &[
    allow_when(
        libc::SYS_clone,
        &[&[Arg::Bits(0, CLONE_THREAD, CLONE_THREAD), Arg::Bits(0, NEW_NAMESPACES, 0)]],
        "threads, never processes or namespaces",
    ),
    allow(libc::SYS_exit, "the end of a thread"),
    allow(libc::SYS_set_robust_list, "a thread's start"),
    allow(libc::SYS_rseq, "a thread's start"),
    allow_when(libc::SYS_prctl, &[&[Arg::Is(0, libc::PR_SET_NAME as u32)]], "a thread's name"),
    allow_when(libc::SYS_prctl, &[&[Arg::Is(0, PR_GET_AUXV)]], "rustix learns the page size"),
    allow(libc::SYS_sched_getaffinity, "the number of processors; a thread's stack bounds"),
];

const CLONE_THREAD: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM) as u64;

const NEW_NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

const PR_GET_AUXV: u32 = 0x4155_5856;

/// Calls that fail with ENOSYS, as on a kernel without them: the C library then uses what a filter can judge.
/// clone3(2) keeps its flags in memory, where no filter can look.
const ABSENT: &[libc::c_long] = &[libc::SYS_clone3];

const EXEC: u64 = libc::PROT_EXEC as u64;

/// Compiles tables into one filter. Rules for one call add up; an unconditional one allows it altogether.
pub fn compile(tables: &[&[Rule]]) -> io::Result<Vec<SockFilter>> {
    compile_without(tables, &[])
}

/// The same; the calls of `absent`, which no rule allows, fail with ENOSYS, for what libraries try by themselves.
pub fn compile_without(tables: &[&[Rule]], absent: &[libc::c_long]) -> io::Result<Vec<SockFilter>> {
    let mut rules = Rules { default: RET_KILL_PROCESS, ..Rules::default() };
    for rule in tables.iter().copied().flatten() {
        let nr = rule.call as u32;
        let mut add = |conditions| rules.rules.push(Compiled { nr, conditions, value: RET_ALLOW });
        if rule.when.is_empty() {
            add(Vec::new());
        }
        for all in rule.when {
            add(all.iter().map(condition).collect());
        }
    }
    for &call in ABSENT.iter().chain(absent) {
        let value = RET_ERRNO | libc::ENOSYS as u32;
        rules.rules.push(Compiled { nr: call as u32, conditions: Vec::new(), value });
    }
    rules.compile().map_err(|_| io::Error::other("seccomp rules: the filter is longer than the host takes"))
}

/// Puts the calling thread, and all that it starts from now on, under the filter.
pub fn install(program: &[SockFilter]) -> io::Result<()> {
    let code: Vec<_> =
        program.iter().map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect();
    hostsys::seccomp::set_filter(&code).map_err(|e| io::Error::from_raw_os_error(e.raw()))
}

fn condition(arg: &Arg) -> Condition {
    let (argument, operator, value) = match *arg {
        Arg::Is(n, value) => (n, Operator::MaskedEq(u32::MAX.into()), value.into()),
        Arg::IsLong(n, value) => (n, Operator::Eq, value),
        Arg::Bits(n, mask, value) => (n, Operator::MaskedEq(mask), value),
        Arg::AtMost(n, value) => (n, Operator::Le, value),
    };
    Condition { argument: argument.into(), operator, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unconditional_rule_wins() {
        let table = [
            allow_when(libc::SYS_write, &[&[Arg::Is(0, 2)]], "test"),
            allow(libc::SYS_write, "test"),
            allow_when(libc::SYS_write, &[&[Arg::Is(0, 3)]], "test"),
        ];
        let all = compile(&[&table]).unwrap();
        let alone = compile(&[&[allow(libc::SYS_write, "test")]]).unwrap();
        assert_eq!(all.len(), alone.len());
    }

    fn answer(program: &[SockFilter], nr: i64, args: [u64; 6]) -> u32 {
        let data = seccomp::Data { nr: nr as i32, arch: seccomp::ARCH, ip: 0, args };
        seccomp::Program::new(program).unwrap().run(&data)
    }

    #[test]
    fn conditions_are_those_of_the_host() {
        const HIGH: u64 = 1 << 32;
        let table = [
            allow_when(1, &[&[Arg::Is(0, 7)], &[Arg::IsLong(1, 9), Arg::AtMost(2, HIGH)]], "test"),
            allow_when(2, &[&[Arg::Bits(0, 0xf0, 0x30)]], "test"),
        ];
        let program = compile(&[&table]).unwrap();
        let is = |nr, args: [u64; 3], allowed| {
            let value = if allowed { RET_ALLOW } else { RET_KILL_PROCESS };
            assert_eq!(answer(&program, nr, [args[0], args[1], args[2], 0, 0, 0]), value, "{nr} {args:x?}");
        };
        // The host looks at 32 bits of an int: what is above them does not count.
        is(1, [7, 0, 0], true);
        is(1, [HIGH | 7, 0, 0], true);
        is(1, [8, 9, HIGH], true);
        is(1, [8, 9, HIGH + 1], false);
        is(1, [8, HIGH | 9, 0], false);
        is(2, [0x135, 0, 0], true);
        is(2, [0x145, 0, 0], false);
        is(3, [0, 0, 0], false);
        assert_eq!(answer(&program, libc::SYS_clone3, [0; 6]), RET_ERRNO | libc::ENOSYS as u32);
        let other = seccomp::Data { nr: 1, arch: 0x4000_0003, ip: 0, args: [7; 6] };
        assert_eq!(seccomp::Program::new(&program).unwrap().run(&other), RET_KILL_PROCESS);
    }

    #[test]
    fn every_rule_has_a_reason() {
        assert!(RUST_RUNTIME.iter().chain(THREADS).all(|rule| !rule.why.is_empty()));
        compile(&[RUST_RUNTIME, THREADS]).unwrap();
    }
}
