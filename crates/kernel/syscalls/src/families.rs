//! The table itself, grouped by family. To add a call: a row here, a handler in
//! the family's file, a test; see docs/runbooks/add-a-syscall.md.

use crate::arg::{DirFd, Fd, PathPtr, Ptr};
use crate::table::Support::{Absent, Full, Partial};
use crate::table::{Row, rows};

use crate::{
    exec, futex, id, kcmp, limits, memory, misc, prctl, process, sched, seccomp, signal, time, wait4,
};

rows! {
    // Memory
    9 mmap(u64, u64, i32, i32, i32, u64) = memory::mmap, Partial("MAP_HUGETLB answers ENOMEM, MAP_GROWSDOWN does not grow");
    10 mprotect(u64, u64, i32) = memory::mprotect, Full;
    11 munmap(u64, u64) = memory::munmap, Full;
    12 brk(u64) = memory::brk, Full;
    25 mremap(u64, u64, u64, i32, u64) = memory::mremap, Full;
    26 msync(u64, u64, i32) = memory::msync, Full;
    27 mincore(u64, u64, Ptr) = memory::mincore, Partial("every mapped page counts as resident");
    28 madvise(u64, u64, i32) = memory::madvise, Full;
    149 mlock(u64, u64) = memory::mlock, Partial("limits are kept, pages are not pinned");
    150 munlock(u64, u64) = memory::munlock, Full;
    151 mlockall(i32) = memory::mlockall, Partial("limits are kept, pages are not pinned");
    152 munlockall() = memory::munlockall, Full;
    325 mlock2(u64, u64, i32) = memory::mlock2, Partial("limits are kept, pages are not pinned");
    310 process_vm_readv(i32, Ptr, u64, Ptr, u64, u64) = memory::process_vm_readv, Full;
    312 kcmp(i32, i32, i32, u64, u64) = kcmp::kcmp, Partial("KCMP_EPOLL_TFD answers EINVAL");
    311 process_vm_writev(i32, Ptr, u64, Ptr, u64, u64) = memory::process_vm_writev, Full;

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
    219 restart_syscall() = time::restart_syscall, Full;
    234 tgkill(i32, i32, i32) = signal::tgkill, Full;
    297 rt_tgsigqueueinfo(i32, i32, i32, Ptr) = signal::rt_tgsigqueueinfo, Full;
    424 pidfd_send_signal(Fd, i32, Ptr, u32) = signal::pidfd_send_signal, Full;

    // Processes
    39 getpid() = id::getpid, Full;
    56 clone(u64, u64, u64, u64, u64) = process::clone, Partial("namespace flags other than CLONE_NEWNS answer EINVAL");
    57 fork() = process::fork, Full;
    58 vfork() = process::vfork, Full;
    59 execve(PathPtr, Ptr, Ptr) = exec::execve, Partial("file capabilities are ignored");
    60 exit(i32) = process::exit, Full;
    61 wait4(i32, Ptr, i32, Ptr) = wait4::wait4, Full;
    110 getppid() = id::getppid, Full;
    186 gettid() = id::gettid, Full;
    218 set_tid_address(u64) = process::set_tid_address, Full;
    231 exit_group(i32) = process::exit_group, Full;
    247 waitid(i32, i32, Ptr, i32, Ptr) = wait4::waitid, Full;
    272 unshare(i32) = process::unshare, Partial("CLONE_FS, CLONE_FILES, CLONE_SYSVSEM and CLONE_NEWNS only");
    322 execveat(DirFd, PathPtr, Ptr, Ptr, i32) = exec::execveat, Partial("file capabilities are ignored");
    434 pidfd_open(i32, u32) = process::pidfd_open, Full;
    435 clone3(Ptr, u64) = process::clone3, Partial("namespaces other than of mounts, set_tid and cgroup are refused");
    438 pidfd_getfd(Fd, i32, u32) = process::pidfd_getfd, Full;

    // Identity
    102 getuid() = id::getuid, Full;
    104 getgid() = id::getgid, Full;
    105 setuid(u32) = id::setuid, Full;
    106 setgid(u32) = id::setgid, Full;
    107 geteuid() = id::geteuid, Full;
    108 getegid() = id::getegid, Full;
    109 setpgid(i32, i32) = id::setpgid, Full;
    111 getpgrp() = id::getpgrp, Full;
    112 setsid() = id::setsid, Full;
    113 setreuid(u32, u32) = id::setreuid, Full;
    114 setregid(u32, u32) = id::setregid, Full;
    115 getgroups(i32, Ptr) = id::getgroups, Full;
    116 setgroups(u64, Ptr) = id::setgroups, Full;
    117 setresuid(u32, u32, u32) = id::setresuid, Full;
    118 getresuid(Ptr, Ptr, Ptr) = id::getresuid, Full;
    119 setresgid(u32, u32, u32) = id::setresgid, Full;
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
    98 getrusage(i32, Ptr) = limits::getrusage, Partial("fault and context switch counts are zero");
    99 sysinfo(Ptr) = misc::sysinfo, Partial("no loads, buffers and swap");
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
    302 prlimit64(i32, i32, Ptr, Ptr) = limits::prlimit64, Full;
    309 getcpu(Ptr, Ptr) = sched::getcpu, Full;
    314 sched_setattr(i32, Ptr, u32) = sched::sched_setattr, Partial("recorded, not applied; no deadline class");
    315 sched_getattr(i32, Ptr, u32, u32) = sched::sched_getattr, Full;

    // Time
    35 nanosleep(Ptr, Ptr) = time::nanosleep, Full;
    36 getitimer(i32, Ptr) = time::getitimer, Full;
    37 alarm(u32) = time::alarm, Full;
    38 setitimer(i32, Ptr, Ptr) = time::setitimer, Full;
    96 gettimeofday(Ptr, Ptr) = time::gettimeofday, Full;
    305 clock_adjtime(i32, Ptr) = time::clock_adjtime, Partial("reads; clocks cannot be set: EPERM");
    159 adjtimex(Ptr) = time::adjtimex, Absent("clocks cannot be set: EPERM");
    164 settimeofday(Ptr, Ptr) = time::settimeofday, Absent("clocks cannot be set: EPERM");
    201 time(Ptr) = time::time, Full;
    222 timer_create(i32, Ptr, Ptr) = time::timer_create, Full;
    223 timer_settime(i32, i32, Ptr, Ptr) = time::timer_settime, Full;
    224 timer_gettime(i32, Ptr) = time::timer_gettime, Full;
    225 timer_getoverrun(i32) = time::timer_getoverrun, Full;
    226 timer_delete(i32) = time::timer_delete, Full;
    227 clock_settime(i32, Ptr) = time::clock_settime, Absent("clocks cannot be set: EPERM");
    228 clock_gettime(i32, Ptr) = time::clock_gettime, Full;
    229 clock_getres(i32, Ptr) = time::clock_getres, Full;
    230 clock_nanosleep(i32, i32, Ptr, Ptr) = time::clock_nanosleep, Full;

    // Futexes
    202 futex(u64, u32, u32, u64, u64, u32) = futex::futex, Partial("priorities order the waiters of a priority-inheritance futex but are not lent");
    273 set_robust_list(u64, u64) = futex::set_robust_list, Full;
    274 get_robust_list(i32, Ptr, Ptr) = futex::get_robust_list, Full;

    // The rest
    63 uname(Ptr) = misc::uname, Full;
    103 syslog(i32, Ptr, i32) = misc::syslog, Partial("the log is empty");
    135 personality(u64) = misc::personality, Partial("recorded; only ADDR_NO_RANDOMIZE has an effect");
    317 seccomp(u32, u32, u64) = seccomp::seccomp, Partial("no SECCOMP_RET_USER_NOTIF: SECCOMP_FILTER_FLAG_NEW_LISTENER answers EINVAL");
    157 prctl(i32, u64, u64, u64, u64) = prctl::prctl, Partial("options that need hardware or tracing answer EINVAL");
    158 arch_prctl(i32, u64) = prctl::arch_prctl, Full;
    170 sethostname(Ptr, u64) = misc::sethostname, Full;
    171 setdomainname(Ptr, u64) = misc::setdomainname, Full;
    169 reboot(i32, i32, i32, u64) = misc::reboot, Absent("EPERM");
    318 getrandom(Ptr, u64, u32) = misc::getrandom, Full;
}
