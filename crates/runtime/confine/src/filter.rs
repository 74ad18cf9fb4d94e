//! Seccomp filters as data: a table of rules, each with the reason it is there.
//!
//! A call that no rule allows kills the process: none of ours makes such a
//! call unless somebody has taken it over.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::io;

/// One host call, and with which arguments it may be made.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Number of the call.
    pub call: libc::c_long,
    /// Alternatives, one of which must hold; with none, any arguments will do.
    pub when: &'static [&'static [Arg]],
    /// Why the process needs the call.
    pub why: &'static str,
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
pub const fn allow(call: libc::c_long, why: &'static str) -> Rule {
    Rule { call, when: &[], why }
}

/// A rule with conditions.
pub const fn allow_when(call: libc::c_long, when: &'static [&'static [Arg]], why: &'static str) -> Rule {
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

/// Calls that fail with ENOSYS, as on a kernel without them: the C library then uses what a filter can judge.
/// clone3(2) keeps its flags in memory, where no filter can look.
const ABSENT: &[libc::c_long] = &[libc::SYS_clone3];

const EXEC: u64 = libc::PROT_EXEC as u64;

/// Compiles tables into one filter. Rules for one call add up; an unconditional one allows it altogether.
pub fn compile(tables: &[&[Rule]]) -> io::Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut unconditional = Vec::new();
    for rule in tables.iter().copied().flatten() {
        let entry = rules.entry(rule.call).or_default();
        if rule.when.is_empty() {
            unconditional.push(rule.call);
        }
        for all in rule.when {
            let conditions = all.iter().map(condition).collect::<Result<_, _>>().map_err(invalid)?;
            entry.push(SeccompRule::new(conditions).map_err(invalid)?);
        }
    }
    for call in unconditional {
        rules.insert(call, Vec::new());
    }
    let filter =
        SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, TargetArch::x86_64)
            .map_err(invalid)?;
    let mut program = vec![statement(LOAD_NUMBER, 0, 0, 0)];
    for &call in ABSENT {
        program.push(statement(JUMP_IF_EQUAL, 0, 1, call as u32));
        program.push(statement(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
    }
    program.extend(BpfProgram::try_from(filter).map_err(invalid)?);
    Ok(program)
}

// The number of the call is the first word of struct seccomp_data.
const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

fn statement(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Puts the calling thread, and all that it starts from now on, under the filter.
pub fn install(program: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(program).map_err(|error| io::Error::other(error.to_string()))
}

fn invalid(error: seccompiler::BackendError) -> io::Error {
    io::Error::other(format!("seccomp rules: {error}"))
}

fn condition(arg: &Arg) -> Result<SeccompCondition, seccompiler::BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    match *arg {
        Arg::Is(n, value) => SeccompCondition::new(n, Dword, SeccompCmpOp::Eq, value.into()),
        Arg::IsLong(n, value) => SeccompCondition::new(n, Qword, SeccompCmpOp::Eq, value),
        Arg::Bits(n, mask, value) => SeccompCondition::new(n, Qword, SeccompCmpOp::MaskedEq(mask), value),
        Arg::AtMost(n, value) => SeccompCondition::new(n, Qword, SeccompCmpOp::Le, value),
    }
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

    #[test]
    fn every_rule_has_a_reason() {
        assert!(RUST_RUNTIME.iter().all(|rule| !rule.why.is_empty()));
        compile(&[RUST_RUNTIME]).unwrap();
    }
}
