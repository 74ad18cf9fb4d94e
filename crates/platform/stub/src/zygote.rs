//! The process from which all stub processes descend.
//!
//! It is cloned from the sentry, drops everything it inherited (capabilities,
//! descriptors, mappings), keeps the stub, and waits on slot 0 like any guest thread.

use crate::layout::{
    FIRST_SEQ, LENT, LENT_FIRST, NSLOTS, SLOT_SIZE, STUB_TEXT_SIZE, STUB_VDSO, Slot, TEMP_DATA,
    TEMP_DATA_SIZE, TEMP_TEXT, ZygoteArgs,
};
use abi::{Errno, Result};
use core::mem::offset_of;
use hostsys::memfd::SharedMapping;
use hostsys::{memfd, process};
use seccomp::SockFilter;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;

/// A zygote that is setting itself up.
pub(crate) struct Zygote {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) slot_file: OwnedFd,
    /// Slot 0, on which it reports.
    pub(crate) slot: SharedMapping,
    /// vvar and vDSO mappings of this process, which are the zygote's: (start, length, is vDSO).
    pub(crate) maps: Vec<(u64, u64, bool)>,
}

unsafe extern "C" {
    // glibc's registration of restartable sequences (2.35 and later).
    static __rseq_offset: isize;
}
const RSEQ_SIGNATURE: u32 = 0x5305_3053;

/// vvar and vDSO in the text of /proc/self/maps: (start, length, is vDSO).
fn parse_maps(text: &str) -> Result<Vec<(u64, u64, bool)>> {
    let mut maps = Vec::new();
    for line in text.lines() {
        if !(line.ends_with("[vdso]") || line.contains("[vvar")) {
            continue;
        }
        let range = line.split(' ').next().and_then(|r| r.split_once('-'));
        let parse = |s: &str| u64::from_str_radix(s, 16).ok();
        if let Some((Some(start), Some(end))) = range.map(|(a, b)| (parse(a), parse(b))) {
            maps.push((start, end - start, line.ends_with("[vdso]")));
        }
    }
    if maps.len() > 6 { Err(Errno::E2BIG) } else { Ok(maps) }
}

/// Starts a zygote. Its first request on the slot is `REQ_READY`.
pub(crate) fn start(filter: &[SockFilter], maps: &str) -> Result<Zygote> {
    let text = memfd::create(c"ringfence-stub", STUB_TEXT_SIZE, true)?;
    memfd::write_all(text.as_fd(), crate::IMAGE, 0)?;
    memfd::seal(text.as_fd())?;
    let slot_file = memfd::create(c"ringfence-slots", NSLOTS * SLOT_SIZE, false)?;
    let slot = SharedMapping::new(&slot_file, 0, SLOT_SIZE as usize)?;
    slot.word(offset_of!(Slot, req)).store(FIRST_SEQ, SeqCst);
    slot.word(offset_of!(Slot, alive)).store(1, SeqCst);

    let maps = parse_maps(maps)?;
    let mut args = ZygoteArgs {
        text_fd: text.as_raw_fd() as u64,
        slot_fd: slot_file.as_raw_fd() as u64,
        map_start: [0; 6],
        map_len: [0; 6],
        map_count: maps.len() as u64,
        map_stay: 0,
        filter_len: filter.len() as u64,
    };
    for (i, (start, len, _)) in maps.iter().enumerate() {
        args.map_start[i] = *start;
        args.map_len[i] = *len;
    }
    let mut image: Vec<u64> = Vec::new();
    image.extend([args.text_fd, args.slot_fd]);
    image.extend(args.map_start);
    image.extend(args.map_len);
    image.extend([args.map_count, args.map_stay, args.filter_len]);
    assert_eq!(image.len() * 8, size_of::<ZygoteArgs>());
    // struct sock_filter, as a word.
    image.extend(
        filter.iter().map(|i| {
            u64::from(i.code) | u64::from(i.jt) << 16 | u64::from(i.jf) << 24 | u64::from(i.k) << 32
        }),
    );
    assert!(image.len() * 8 + 0x4000 <= TEMP_DATA_SIZE as usize);

    let parent = std::process::id() as i32;
    // SAFETY: like fork(2) without an exit signal; the child only makes raw system calls on copied memory and never
    // returns, so it does not matter what other threads of this process hold.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0u64, 0u64, 0u64, 0u64, 0u64) };
    if pid == 0 {
        // SAFETY: we are the child of the clone above.
        unsafe { child(&image, text.as_raw_fd(), slot_file.as_raw_fd(), parent) }
    }
    if pid < 0 {
        return Err(Errno::from(std::io::Error::last_os_error()));
    }
    let pid = pid as i32;
    let pidfd = process::pidfd_open(pid)?;
    Ok(Zygote { pid, pidfd, slot_file, slot, maps })
}

/// A mapping: start and length.
type Place = Option<(u64, u64)>;

/// Where the vDSO and vvar of the stub processes stand.
pub(crate) fn placed(maps: &[(u64, u64, bool)], moved: bool) -> (Place, Place) {
    let first = maps.first().map_or(0, |m| m.0);
    let at = |start: u64| if moved { STUB_VDSO + (start - first) } else { start };
    let vdso = maps.iter().find(|m| m.2).map(|m| (at(m.0), m.1));
    let mut vvar: Option<(u64, u64)> = None;
    for m in maps.iter().filter(|m| !m.2) {
        vvar = Some(match vvar {
            None => (at(m.0), m.1),
            Some((s, _)) => (s, at(m.0) + m.1 - s),
        });
    }
    (vdso, vvar)
}

/// Exit status for a failed step before the stub runs; its own are 10 and up.
const STEP_LIMITS: i32 = 20;
const STEP_CAPABILITIES: i32 = 21;
const STEP_NO_NEW_PRIVS: i32 = 22;
const STEP_PDEATHSIG: i32 = 23;
const STEP_RSEQ: i32 = 24;
const STEP_MAP_TEXT: i32 = 25;
const STEP_MAP_DATA: i32 = 26;
const STEP_CLOSE: i32 = 27;
const STEP_PARENT: i32 = 28;

/// What an exit status of a zygote means.
pub(crate) fn explain(status: i32) -> &'static str {
    match status {
        10 | 15 => "the vDSO cannot be moved",
        11..=13 => {
            "its memory cannot be mapped: a limit on address space or data (ulimit -v, ulimit -d) is too low, or its \
                    address range is taken"
        }
        14 => "seccomp refuses the filter (CONFIG_SECCOMP_FILTER and Linux 5.19 are needed)",
        STEP_LIMITS => "setrlimit failed",
        STEP_CAPABILITIES => "capset failed",
        STEP_NO_NEW_PRIVS => "no_new_privs failed",
        STEP_PDEATHSIG => "PR_SET_PDEATHSIG failed",
        STEP_RSEQ => "rseq cannot be unregistered",
        STEP_MAP_TEXT | STEP_MAP_DATA => "the temporary address range is taken",
        STEP_CLOSE => "close_range failed",
        STEP_PARENT => "the sentry has gone",
        _ => "killed",
    }
}

/// Drops what the process inherited, then continues in the stub's copy at `TEMP_TEXT`.
///
/// # Safety
/// Only in the child of a clone(2) with a copied address space.
unsafe fn child(image: &[u64], text: i32, slots: i32, parent: i32) -> ! {
    // SAFETY: raw system calls without allocation; pointers are to locals. Leaving through the jump is the purpose:
    // nothing of this program runs in this process afterwards, and the new stack and code are freshly mapped here.
    unsafe {
        let must = |r: i64, step: i32| {
            if r < 0 {
                libc::syscall(libc::SYS_exit_group, step);
            }
            r
        };
        let prctl = |op: i32, a: u64, b: u64| libc::syscall(libc::SYS_prctl, op, a, b, 0, 0);
        libc::syscall(libc::SYS_setsid);
        prctl(libc::PR_SET_NAME, c"ringfence-stub".as_ptr() as u64, 0);
        let limit = |resource: u32, value: u64| {
            let limit = libc::rlimit64 { rlim_cur: value, rlim_max: value };
            libc::syscall(libc::SYS_prlimit64, 0, resource, &limit, 0)
        };
        // With 1, and with no other value, the host starts no core handler either: see `hostsys::spawn`. It may be beyond
        // what is allowed.
        if limit(libc::RLIMIT_CORE, 1) < 0 {
            must(limit(libc::RLIMIT_CORE, 0), STEP_LIMITS);
        }
        // Where that is beyond what is allowed nothing can be lent: reads and writes go the other way.
        if limit(libc::RLIMIT_NOFILE, LENT_FIRST + LENT) < 0 {
            must(limit(libc::RLIMIT_NOFILE, 64), STEP_LIMITS);
        }
        let header: [u32; 2] = [0x2008_0522, 0];
        let none = [0u32; 6];
        must(libc::syscall(libc::SYS_capset, &header, &none), STEP_CAPABILITIES);
        prctl(libc::PR_SET_DUMPABLE, 1, 0);
        must(prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0), STEP_NO_NEW_PRIVS);
        must(prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0), STEP_PDEATHSIG);
        if libc::syscall(libc::SYS_getppid) != i64::from(parent) {
            libc::syscall(libc::SYS_exit_group, STEP_PARENT);
        }
        libc::syscall(libc::SYS_set_robust_list, 0usize, 24);
        libc::syscall(libc::SYS_set_tid_address, 0usize);
        let thread_pointer: u64;
        core::arch::asm!("mov {}, fs:0", out(reg) thread_pointer);
        let rseq = thread_pointer.wrapping_add_signed(__rseq_offset as i64);
        if libc::syscall(libc::SYS_rseq, rseq, 32u32, 1, RSEQ_SIGNATURE) < 0 {
            let e = *libc::__errno_location();
            // EINVAL: was not registered. ENOSYS: does not exist.
            if e != libc::EINVAL && e != libc::ENOSYS {
                libc::syscall(libc::SYS_exit_group, STEP_RSEQ);
            }
        }
        let (low, high) = if text < slots { (text, slots) } else { (slots, text) };
        for (from, to) in [(0, low - 1), (low + 1, high - 1), (high + 1, i32::MAX)] {
            if from <= to {
                must(libc::syscall(libc::SYS_close_range, from, to, 0), STEP_CLOSE);
            }
        }
        let fixed = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
        let rx = libc::PROT_READ | libc::PROT_EXEC;
        let r = libc::syscall(libc::SYS_mmap, TEMP_TEXT, STUB_TEXT_SIZE, rx, fixed, text, 0u64);
        must(if r == TEMP_TEXT as i64 { 0 } else { -1 }, STEP_MAP_TEXT);
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let anon = fixed | libc::MAP_ANONYMOUS;
        let r = libc::syscall(libc::SYS_mmap, TEMP_DATA, TEMP_DATA_SIZE, rw, anon, -1, 0u64);
        must(if r == TEMP_DATA as i64 { 0 } else { -1 }, STEP_MAP_DATA);
        core::ptr::copy_nonoverlapping(image.as_ptr(), TEMP_DATA as *mut u64, image.len());
        core::arch::asm!(
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "call {entry}",
            "ud2",
            stack = in(reg) TEMP_DATA + TEMP_DATA_SIZE - 64,
            entry = in(reg) TEMP_TEXT,
            in("rdi") TEMP_DATA,
            options(noreturn),
        )
    }
}
