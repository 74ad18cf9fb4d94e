//! Uses of those parts of system calls that are not there, for the report of `debug --coverage`.
//!
//! A row's note says what of a call is missing; the entries here say by which arguments a program asks for that. Calls
//! without an entry cost one comparison. What only memory tells, such as a member of a structure, is not seen here.

use abi::Errno;
use task::{Asked, Current, SysErr, SysResult};

/// How a program asks for a part that is not there.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// By the call itself.
    Whole,
    /// By bits of an argument.
    Bits(usize, &'static [(u64, &'static str)]),
    /// By the value of an argument.
    Values(usize, &'static [(u64, &'static str)]),
    /// By an argument, of which the result tells: EINVAL, EOPNOTSUPP or ENOSYS.
    Refused(usize, &'static str),
}

use Part::{Bits, Refused, Values, Whole};

/// By number of the call.
pub(crate) const PARTS: &[(i64, &[Part])] = &[
    (libc::SYS_mmap, &[Bits(3, &[(0x4_0000, "MAP_HUGETLB")])]),
    (libc::SYS_membarrier, &[Refused(0, "command")]),
    (libc::SYS_mlock, &[Whole]),
    (libc::SYS_mlock2, &[Whole]),
    (libc::SYS_mlockall, &[Whole]),
    (libc::SYS_kcmp, &[Refused(2, "type")]),
    (libc::SYS_mbind, &[Whole]),
    (libc::SYS_set_mempolicy, &[Whole]),
    (libc::SYS_ptrace, &[Values(0, &[(33, "PTRACE_SINGLEBLOCK")])]),
    (libc::SYS_setpriority, &[Whole]),
    (libc::SYS_sched_setparam, &[Whole]),
    (libc::SYS_sched_setscheduler, &[Whole]),
    (libc::SYS_sched_setaffinity, &[Whole]),
    (libc::SYS_sched_setattr, &[Whole]),
    (libc::SYS_ioprio_set, &[Whole]),
    (libc::SYS_bpf, &[Refused(0, "command")]),
    (libc::SYS_keyctl, &[Refused(0, "operation")]),
    (libc::SYS_personality, &[Bits(0, PERSONALITY)]),
    (libc::SYS_memfd_create, &[Bits(1, &[(4, "MFD_HUGETLB")])]),
    (libc::SYS_fallocate, &[Refused(1, "mode")]),
    (libc::SYS_renameat2, &[Refused(4, "flags")]),
    (libc::SYS_name_to_handle_at, &[Refused(4, "flags")]),
    (libc::SYS_fanotify_init, &[Refused(0, "flags")]),
    (libc::SYS_fanotify_mark, &[Refused(2, "events")]),
    (libc::SYS_fspick, &[Refused(2, "flags")]),
    (libc::SYS_mount_setattr, &[Refused(2, "flags")]),
    (libc::SYS_fadvise64, &[Whole]),
    (libc::SYS_pipe2, &[Bits(1, &[(libc::O_EXCL as u64, "O_NOTIFICATION_PIPE")])]),
    (libc::SYS_timerfd_settime, &[Bits(1, &[(2, "TFD_TIMER_CANCEL_ON_SET")])]),
    (libc::SYS_shmget, &[Bits(2, &[(0o4000, "SHM_HUGETLB")])]),
    (libc::SYS_shmctl, &[Values(1, &[(11, "SHM_LOCK")])]),
];

/// Those of personality(2) that have no effect.
const PERSONALITY: &[(u64, &str)] = &[
    (0x0008_0000, "FDPIC_FUNCPTRS"),
    (0x0010_0000, "MMAP_PAGE_ZERO"),
    (0x0020_0000, "ADDR_COMPAT_LAYOUT"),
    (0x0080_0000, "ADDR_LIMIT_32BIT"),
    (0x0100_0000, "SHORT_INODE"),
    (0x0200_0000, "WHOLE_SECONDS"),
    (0x0800_0000, "ADDR_LIMIT_3GB"),
];
/// personality(2) only asks.
const ASKS: u64 = 0xffff_ffff;

/// The missing parts of a call. `absent`: all of it is.
pub const fn of(nr: u32, absent: bool) -> &'static [Part] {
    let mut i = 0;
    while i < PARTS.len() {
        if PARTS[i].0 == nr as i64 {
            return PARTS[i].1;
        }
        i += 1;
    }
    if absent { &[Whole] } else { &[] }
}

/// Notes what a call that has been made asked for.
#[cold]
pub(crate) fn note(
    c: &Current,
    (nr, name, parts): (u32, &str, &[Part]),
    args: &[u64; 6],
    result: &SysResult,
) {
    let arg = |i: usize| args.get(i).copied().unwrap_or(0);
    let note = |what: String| c.kernel().coverage.note(Asked::Part, what);
    for part in parts {
        match part {
            Whole => note(name.into()),
            Bits(i, _) if nr == libc::SYS_personality as u32 && arg(*i) & ASKS == ASKS => {}
            Bits(i, names) => names
                .iter()
                .filter(|(bit, _)| arg(*i) & bit != 0)
                .for_each(|(_, part)| note(format!("{name}: {part}"))),
            Values(i, names) => names
                .iter()
                .filter(|(value, _)| arg(*i) == *value)
                .for_each(|(_, part)| note(format!("{name}: {part}"))),
            Refused(i, what) => {
                if let Err(SysErr::Errno(errno @ (Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOSYS))) =
                    result
                {
                    note(format!("{name}: {what} {:#x}: {errno}", arg(*i)));
                }
            }
        }
    }
}
