//! System calls that a platform may answer without reporting them: one table. The stub's build script reads it too, so
//! that its C code answers these calls and no others.

/// How a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// With what the kernel has said before, see `Interrupt::set_answers`.
    Known,
    /// By code of the platform's.
    Code,
}

/// Number, name, how.
pub const NATIVE: [(u32, &str, Native); 18] = [
    (14, "rt_sigprocmask", Native::Code),
    (24, "sched_yield", Native::Code),
    (39, "getpid", Native::Known),
    (102, "getuid", Native::Known),
    (104, "getgid", Native::Known),
    (107, "geteuid", Native::Known),
    (108, "getegid", Native::Known),
    (110, "getppid", Native::Known),
    (158, "arch_prctl", Native::Code),
    (186, "gettid", Native::Known),
    (202, "futex", Native::Code),
    (218, "set_tid_address", Native::Code),
    (273, "set_robust_list", Native::Code),
    (334, "rseq", Native::Code),
    (449, "futex_waitv", Native::Code),
    (454, "futex_wake", Native::Code),
    (455, "futex_wait", Native::Code),
    (456, "futex_requeue", Native::Code),
];

/// Their numbers, see `Context::set_report_all`.
pub const NATIVE_CALLS: [u32; NATIVE.len()] = numbers(None);

/// The numbers of the calls that the stub answers with values that the kernel gives in advance.
pub const KNOWN_CALLS: [u32; count(Native::Known)] = numbers(Some(Native::Known));

const fn is(how: Native, wanted: Option<Native>) -> bool {
    match wanted {
        None => true,
        Some(wanted) => how as u8 == wanted as u8,
    }
}

const fn count(how: Native) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < NATIVE.len() {
        n += is(NATIVE[i].2, Some(how)) as usize;
        i += 1;
    }
    n
}

const fn numbers<const N: usize>(wanted: Option<Native>) -> [u32; N] {
    let (mut out, mut n, mut i) = ([0; N], 0, 0);
    while i < NATIVE.len() {
        if is(NATIVE[i].2, wanted) {
            out[n] = NATIVE[i].0;
            n += 1;
        }
        i += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_from_the_table() {
        assert_eq!(KNOWN_CALLS, [39, 102, 104, 107, 108, 110, 186]);
        assert_eq!(NATIVE_CALLS[..3], [14, 24, 39]);
        assert!(NATIVE_CALLS.is_sorted());
    }
}
