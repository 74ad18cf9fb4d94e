//! Clocks, processor time and thread identity. See clock_gettime(2).

/// Nanoseconds of a host clock; `None` when the clock does not exist.
pub fn gettime_ns(clock: i32) -> Option<i64> {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the duration of the call.
    let r = unsafe { libc::clock_gettime(clock, &mut ts) };
    (r == 0).then(|| ts.tv_sec * 1_000_000_000 + ts.tv_nsec)
}

/// Resolution of a host clock in nanoseconds.
pub fn getres_ns(clock: i32) -> Option<i64> {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the duration of the call.
    let r = unsafe { libc::clock_getres(clock, &mut ts) };
    (r == 0).then(|| ts.tv_sec * 1_000_000_000 + ts.tv_nsec)
}

/// Processor time in nanoseconds of all threads of a process of this pid namespace.
pub fn process_cpu_ns(pid: i32) -> Option<i64> {
    if pid <= 0 { None } else { gettime_ns((!pid << 3) | 2) }
}

/// Processor time in nanoseconds of this process.
pub fn own_cpu_ns() -> u64 {
    gettime_ns(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0) as u64
}

/// Processor time in nanoseconds of a thread of this process.
pub fn thread_cpu_ns(tid: i32) -> Option<i64> {
    if tid <= 0 { None } else { gettime_ns((!tid << 3) | 6) }
}

/// Thread id of the caller.
pub fn gettid() -> i32 {
    // SAFETY: no arguments, no memory.
    unsafe { libc::gettid() }
}

/// A word of the host's auxiliary vector (AT_HWCAP, AT_MINSIGSTKSZ, ...), 0 when absent.
pub fn auxval(kind: u64) -> u64 {
    // SAFETY: reads the process's own auxiliary vector.
    unsafe { libc::getauxval(kind) }
}

/// Processors that this process may run on.
pub fn processors() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |s| s.count() as usize).max(1)
}

/// Physical memory of the host in bytes.
pub fn total_memory() -> u64 {
    let i = rustix::system::sysinfo();
    i.totalram * u64::from(i.mem_unit)
}

/// Free memory of the host in bytes.
pub fn free_memory() -> u64 {
    let i = rustix::system::sysinfo();
    i.freeram * u64::from(i.mem_unit)
}

/// Fills a buffer with random bytes from the host kernel.
pub fn random(buf: &mut [u8]) {
    let mut done = 0;
    while done < buf.len() {
        let rest = &mut buf[done..];
        // SAFETY: `rest` is a valid, writable buffer of the given length.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len().min(256), 0) };
        if n <= 0 {
            continue;
        }
        done += n as usize;
    }
}

/// A random number from the host kernel.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    random(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn own_clocks_advance() {
        let pid = std::process::id() as i32;
        assert!(super::process_cpu_ns(pid).is_some());
        assert!(super::thread_cpu_ns(super::gettid()).is_some());
        assert!(super::gettime_ns(libc::CLOCK_MONOTONIC) > Some(0));
    }
}
