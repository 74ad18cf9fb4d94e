//! The table itself, grouped by family. To add a call: a row here, a handler in
//! the family's file, a test; see docs/runbooks/add-a-syscall.md.

use crate::arg::{DirFd, Fd, PathPtr, Ptr};
use crate::table::Support::{Absent, Full, Partial};
use crate::table::{Row, rows};

use crate::ipc::{futex, futex2};
use crate::memory::{mempolicy, mmap, process_madvise};
use crate::namespaces::ns;
use crate::processes::{exec, id, kcmp, limits, prctl, process, ptrace, sched, wait4};
use crate::security::{keyctl, landlock, lsm, seccomp};
use crate::signals::signal;
use crate::system::{bpf, misc, syslog};
use crate::time::clock;

rows! {
    // Memory
    9 mmap(u64, u64, i32, i32, i32, u64) = mmap::mmap, Partial("MAP_HUGETLB answers ENOMEM; MAP_GROWSDOWN grows for the program's own accesses, not for those of calls"), MMAP;
    10 mprotect(u64, u64, i32) = mmap::mprotect, Full;
    11 munmap(u64, u64) = mmap::munmap, Full;
    12 brk(u64) = mmap::brk, Full;
    25 mremap(u64, u64, u64, i32, u64) = mmap::mremap, Full;
    26 msync(u64, u64, i32) = mmap::msync, Full;
    329 pkey_mprotect(u64, u64, i32, i32) = mmap::pkey_mprotect, Absent("as on a processor without protection keys");
    330 pkey_alloc(u64, u64) = mmap::pkey_alloc, Absent("as on a processor without protection keys");
    331 pkey_free(i32) = mmap::pkey_free, Absent("as on a processor without protection keys");
    27 mincore(u64, u64, Ptr) = mmap::mincore, Full;
    216 remap_file_pages(u64, u64, u64, u64, u64) = mmap::remap_file_pages, Full;
    324 membarrier(i32, u32, i32) = mmap::membarrier, Partial("no restartable sequences, as there is no rseq");
    462 mseal(u64, u64, u64) = mmap::mseal, Full;
    28 madvise(u64, u64, i32) = mmap::madvise, Full;
    440 process_madvise(Fd, Ptr, u64, i32, u32) = process_madvise::process_madvise, Partial("advice about another process's memory is checked and has no effect");
    149 mlock(u64, u64) = mmap::mlock, Partial("limits are kept, pages are read in and not pinned");
    150 munlock(u64, u64) = mmap::munlock, Full;
    151 mlockall(i32) = mmap::mlockall, Partial("limits are kept, pages are read in and not pinned");
    152 munlockall() = mmap::munlockall, Full;
    325 mlock2(u64, u64, i32) = mmap::mlock2, Partial("limits are kept, pages are read in and not pinned");
    310 process_vm_readv(i32, Ptr, u64, Ptr, u64, u64) = mmap::process_vm_readv, Full;
    312 kcmp(i32, i32, i32, u64, u64) = kcmp::kcmp, Partial("KCMP_EPOLL_TFD answers EINVAL");
    311 process_vm_writev(i32, Ptr, u64, Ptr, u64, u64) = mmap::process_vm_writev, Full;
    237 mbind(u64, u64, i32, Ptr, u64, u32) = mempolicy::mbind, Partial("one node: policies are kept and shown");
    238 set_mempolicy(i32, Ptr, u64) = mempolicy::set_mempolicy, Partial("one node: policies are kept and shown");
    239 get_mempolicy(Ptr, Ptr, u64, u64, u64) = mempolicy::get_mempolicy, Full;
    256 migrate_pages(i32, u64, Ptr, Ptr) = mempolicy::migrate_pages, Full;
    279 move_pages(i32, u64, Ptr, Ptr, Ptr, i32) = mempolicy::move_pages, Partial("every mapped page of another process counts as resident");
    450 set_mempolicy_home_node(u64, u64, u64, u64) = mempolicy::set_mempolicy_home_node, Full;

    // Signals
    13 rt_sigaction(i32, Ptr, Ptr, u64) = signal::rt_sigaction, Full;
    14 rt_sigprocmask(i32, Ptr, Ptr, u64) = signal::rt_sigprocmask, Full;
    15 rt_sigreturn() = signal::rt_sigreturn, Full;
    34 pause() = signal::pause, Full;
    62 kill(i32, i32) = signal::kill, Full;
    127 rt_sigpending(Ptr, u64) = signal::rt_sigpending, Full;
    128 rt_sigtimedwait(Ptr, Ptr, Ptr, u64) = signal::rt_sigtimedwait, Full;
    129 rt_sigqueueinfo(i32, i32, Ptr) = signal::rt_sigqueueinfo, Full;
    130 rt_sigsuspend(Ptr, u64) = signal::rt_sigsuspend, Full;
    131 sigaltstack(Ptr, Ptr) = signal::sigaltstack, Full;
    200 tkill(i32, i32) = signal::tkill, Full;
    219 restart_syscall() = clock::restart_syscall, Full;
    234 tgkill(i32, i32, i32) = signal::tgkill, Full;
    297 rt_tgsigqueueinfo(i32, i32, i32, Ptr) = signal::rt_tgsigqueueinfo, Full;
    424 pidfd_send_signal(Fd, i32, Ptr, u32) = signal::pidfd_send_signal, Full;

    // Processes
    39 getpid() = id::getpid, Full;
    56 clone(u64, u64, u64, u64, u64) = process::clone, Full, CLONE;
    57 fork() = process::fork, Full, FORK;
    58 vfork() = process::vfork, Full, FORK;
    59 execve(PathPtr, Ptr, Ptr) = exec::execve, Full, EXECVE;
    60 exit(i32) = process::exit, Full;
    61 wait4(i32, Ptr, i32, Ptr) = wait4::wait4, Full;
    101 ptrace(u64, i32, u64, u64) = ptrace::ptrace, Partial("watchpoints see changes only, none for reads (ENOSPC), no PTRACE_SINGLEBLOCK, segments stay those of 64-bit programs"), PTRACE;
    110 getppid() = id::getppid, Full;
    186 gettid() = id::gettid, Full;
    218 set_tid_address(u64) = process::set_tid_address, Full;
    231 exit_group(i32) = process::exit_group, Full;
    247 waitid(i32, i32, Ptr, i32, Ptr) = wait4::waitid, Full;
    272 unshare(i32) = ns::unshare, Full;
    308 setns(Fd, i32) = ns::setns, Full;
    322 execveat(DirFd, PathPtr, Ptr, Ptr, i32) = exec::execveat, Full, EXECVEAT;
    434 pidfd_open(i32, u32) = process::pidfd_open, Full;
    435 clone3(Ptr, u64) = process::clone3, Full;
    448 process_mrelease(Fd, u32) = process::process_mrelease, Full;
    438 pidfd_getfd(Fd, i32, u32) = process::pidfd_getfd, Full;

    // Identity
    102 getuid() = id::getuid, Full;
    104 getgid() = id::getgid, Full;
    105 setuid(u32) = id::setuid, Full, SETID;
    106 setgid(u32) = id::setgid, Full, SETID;
    107 geteuid() = id::geteuid, Full;
    108 getegid() = id::getegid, Full;
    109 setpgid(i32, i32) = id::setpgid, Full;
    111 getpgrp() = id::getpgrp, Full;
    112 setsid() = id::setsid, Full, SETSID;
    113 setreuid(u32, u32) = id::setreuid, Full;
    114 setregid(u32, u32) = id::setregid, Full;
    115 getgroups(i32, Ptr) = id::getgroups, Full;
    116 setgroups(u64, Ptr) = id::setgroups, Full;
    117 setresuid(u32, u32, u32) = id::setresuid, Full, SETRESID;
    118 getresuid(Ptr, Ptr, Ptr) = id::getresuid, Full;
    119 setresgid(u32, u32, u32) = id::setresgid, Full, SETRESID;
    120 getresgid(Ptr, Ptr, Ptr) = id::getresgid, Full;
    121 getpgid(i32) = id::getpgid, Full;
    122 setfsuid(u32) = id::setfsuid, Full;
    123 setfsgid(u32) = id::setfsgid, Full;
    124 getsid(i32) = id::getsid, Full;
    125 capget(Ptr, Ptr) = id::capget, Full;
    126 capset(Ptr, Ptr) = id::capset, Full;

    // Limits, usage, scheduling
    24 sched_yield() = sched::sched_yield, Full;
    97 getrlimit(i32, Ptr) = limits::getrlimit, Full;
    98 getrusage(i32, Ptr) = limits::getrusage, Full;
    99 sysinfo(Ptr) = misc::sysinfo, Partial("no buffers and swap");
    100 times(Ptr) = limits::times, Full;
    140 getpriority(i32, i32) = sched::getpriority, Full;
    141 setpriority(i32, i32, i32) = sched::setpriority, Partial("recorded, not applied");
    142 sched_setparam(i32, Ptr) = sched::sched_setparam, Partial("recorded, not applied");
    143 sched_getparam(i32, Ptr) = sched::sched_getparam, Full;
    144 sched_setscheduler(i32, i32, Ptr) = sched::sched_setscheduler, Partial("recorded, not applied");
    145 sched_getscheduler(i32) = sched::sched_getscheduler, Full;
    146 sched_get_priority_max(i32) = sched::sched_get_priority_max, Full;
    147 sched_get_priority_min(i32) = sched::sched_get_priority_min, Full;
    148 sched_rr_get_interval(i32, Ptr) = sched::sched_rr_get_interval, Full;
    160 setrlimit(i32, Ptr) = limits::setrlimit, Full;
    203 sched_setaffinity(i32, u64, Ptr) = sched::sched_setaffinity, Partial("recorded, not applied");
    204 sched_getaffinity(i32, u64, Ptr) = sched::sched_getaffinity, Full;
    251 ioprio_set(i32, i32, i32) = sched::ioprio_set, Partial("recorded, not applied");
    252 ioprio_get(i32, i32) = sched::ioprio_get, Full;
    302 prlimit64(i32, i32, Ptr, Ptr) = limits::prlimit64, Full, PRLIMIT64;
    309 getcpu(Ptr, Ptr) = sched::getcpu, Full;
    314 sched_setattr(i32, Ptr, u32) = sched::sched_setattr, Partial("recorded, not applied; no deadline class");
    315 sched_getattr(i32, Ptr, u32, u32) = sched::sched_getattr, Full;

    // Time
    35 nanosleep(Ptr, Ptr) = clock::nanosleep, Full;
    36 getitimer(i32, Ptr) = clock::getitimer, Full;
    37 alarm(u32) = clock::alarm, Full;
    38 setitimer(i32, Ptr, Ptr) = clock::setitimer, Full;
    96 gettimeofday(Ptr, Ptr) = clock::gettimeofday, Full;
    305 clock_adjtime(i32, Ptr) = clock::clock_adjtime, Partial("reads; clocks cannot be set: EPERM");
    159 adjtimex(Ptr) = clock::adjtimex, Partial("reads; clocks cannot be set: EPERM");
    164 settimeofday(Ptr, Ptr) = clock::settimeofday, Absent("clocks cannot be set: EPERM");
    201 time(Ptr) = clock::time, Full;
    222 timer_create(i32, Ptr, Ptr) = clock::timer_create, Full;
    223 timer_settime(i32, i32, Ptr, Ptr) = clock::timer_settime, Full;
    224 timer_gettime(i32, Ptr) = clock::timer_gettime, Full;
    225 timer_getoverrun(i32) = clock::timer_getoverrun, Full;
    226 timer_delete(i32) = clock::timer_delete, Full;
    227 clock_settime(i32, Ptr) = clock::clock_settime, Absent("clocks cannot be set: EPERM");
    228 clock_gettime(i32, Ptr) = clock::clock_gettime, Full;
    229 clock_getres(i32, Ptr) = clock::clock_getres, Full;
    230 clock_nanosleep(i32, i32, Ptr, Ptr) = clock::clock_nanosleep, Full;

    // Futexes
    202 futex(u64, u32, u32, u64, u64, u32) = futex::futex, Partial("priorities order the waiters of a priority-inheritance futex but are not lent");
    273 set_robust_list(u64, u64) = futex::set_robust_list, Full;
    274 get_robust_list(i32, Ptr, Ptr) = futex::get_robust_list, Full;
    449 futex_waitv(u64, u32, u32, u64, i32) = futex2::futex_waitv, Full;
    454 futex_wake(u64, u64, i32, u32) = futex2::futex_wake, Full;
    455 futex_wait(u64, u64, u64, u32, u64, i32) = futex2::futex_wait, Full;
    456 futex_requeue(u64, u32, i32, i32) = futex2::futex_requeue, Full;

    // Landlock
    444 landlock_create_ruleset(Ptr, u64, u32) = landlock::landlock_create_ruleset, Full;
    445 landlock_add_rule(Fd, i32, Ptr, u32) = landlock::landlock_add_rule, Full;
    446 landlock_restrict_self(Fd, u32) = landlock::landlock_restrict_self, Partial("nothing is logged: there is no audit");

    // eBPF
    321 bpf(i32, Ptr, u32) = bpf::bpf, Partial("programs of BPF_PROG_TYPE_CGROUP_DEVICE without loops, calls, maps and stack; other programs, maps, BTF, links and files of bpffs answer EINVAL");

    // Security modules
    459 lsm_get_self_attr(u32, Ptr, Ptr, u32) = lsm::lsm_get_self_attr, Full;
    460 lsm_set_self_attr(u32, Ptr, u32, u32) = lsm::lsm_set_self_attr, Full;
    461 lsm_list_modules(Ptr, Ptr, u32) = lsm::lsm_list_modules, Full;

    // Keys
    248 add_key(Ptr, Ptr, Ptr, u64, i32) = keyctl::add_key, Partial("types user, logon, big_key and keyring");
    249 request_key(Ptr, Ptr, Ptr, i32) = keyctl::request_key, Partial("no upcall: as without /sbin/request-key");
    250 keyctl(i32, u64, u64, u64, u64) = keyctl::keyctl, Partial("no instantiation, as there is no upcall; no operations of public keys, Diffie-Hellman and notifications (EOPNOTSUPP)");

    // The rest
    63 uname(Ptr) = misc::uname, Full;
    103 syslog(i32, Ptr, i32) = syslog::syslog, Partial("messages of the kernel inside and of programs; there is no console");
    135 personality(u64) = misc::personality, Partial("recorded; only ADDR_NO_RANDOMIZE, UNAME26, READ_IMPLIES_EXEC and STICKY_TIMEOUTS have an effect");
    317 seccomp(u32, u32, u64) = seccomp::seccomp, Full;
    157 prctl(i32, u64, u64, u64, u64) = prctl::prctl, Partial("options that need hardware or tracing answer EINVAL");
    158 arch_prctl(i32, u64) = prctl::arch_prctl, Full;
    170 sethostname(Ptr, u64) = misc::sethostname, Full;
    171 setdomainname(Ptr, u64) = misc::setdomainname, Full;
    153 vhangup() = misc::vhangup, Full;
    169 reboot(i32, i32, i32, u64) = misc::reboot, Absent("EPERM");
    318 getrandom(Ptr, u64, u32) = misc::getrandom, Full;
}
