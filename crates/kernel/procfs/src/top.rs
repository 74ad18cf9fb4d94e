//! The files of /proc itself.

use crate::notices;
use crate::pid::{PIDS, SELF, THREAD_SELF};
use abi::{CpuMask, Errno, PAGE_SIZE, Result};
use kernfs::{At, Entry, What, dir, empty, line, link, memory_locked, memory_used, private, text};
use sched::{HostCounts, add_counts};
use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use task::{Kernel, RELEASE, VERSION, uptime_ns};

/// The root of procfs.
pub static ROOT: Entry = Entry { name: "/", mode: 0o555, what: What::Dir(TABLE, Some(&PIDS)) };

static TABLE: &[Entry] = &[
    text("buddyinfo", empty_zone),
    text("cgroups", cgroups),
    text("cmdline", cmdline),
    text("config.gz", crate::config::config),
    empty("consoles"),
    text("cpuinfo", crate::cpu::cpuinfo),
    empty("crypto"),
    text("devices", devices),
    empty("diskstats"),
    dir("driver", &[]),
    text("execdomains", execdomains),
    text("filesystems", filesystems),
    dir("fs", &[]),
    dir("gvisor", &notices::GVISOR),
    text("interrupts", interrupts),
    empty("iomem"),
    empty("ioports"),
    dir("irq", &[]),
    empty("kallsyms"),
    text("key-users", key_users),
    text("keys", keys),
    private("kmsg", kernfs::nothing),
    text("loadavg", loadavg),
    text("locks", crate::locks::locks),
    text("meminfo", meminfo),
    text("misc", misc),
    empty("modules"),
    link("mounts", |_| Ok(b"self/mounts".to_vec())),
    link("net", |_| Ok(b"self/net".to_vec())),
    text("partitions", partitions),
    dir("pressure", &PRESSURE),
    dir("ringfence", &notices::RINGFENCE),
    text("schedstat", schedstat),
    SELF,
    private("slabinfo", slabinfo),
    text("softirqs", softirqs),
    text("stat", stat),
    text("swaps", swaps),
    Entry { name: "sys", mode: 0o555, what: What::Dir(&[], Some(&crate::sysctl::SYSCTLS)) },
    dir("sysvipc", &SYSVIPC),
    THREAD_SELF,
    dir("tty", &TTY),
    text("uptime", uptime),
    text("version", version),
    text("vmstat", vmstat),
    text("zoneinfo", empty_zone),
];

static PRESSURE: [Entry; 3] =
    [text("cpu", cpu_pressure), text("io", io_pressure), text("memory", memory_pressure)];
static SYSVIPC: [Entry; 3] = [text("msg", msg), text("sem", sem), text("shm", shm)];
static TTY: [Entry; 3] = [text("drivers", tty_drivers), dir("driver", &[]), text("ldiscs", tty_ldiscs)];

/// The kernel inside has no slabs.
fn slabinfo(_at: &At) -> Result<Vec<u8>> {
    let columns = "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> \
                   <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>";
    line(format_args!("slabinfo - version: 2.1\n{columns}"))
}

fn empty_zone(_at: &At) -> Result<Vec<u8>> {
    Ok(Vec::new())
}

fn cgroups(at: &At) -> Result<Vec<u8>> {
    let groups = at.kernel().cgroups.count_all();
    // All in the one hierarchy of version 2, which has the number 0.
    let rows = ["cpuset", "cpu", "cpuacct", "memory", "pids"].map(|name| format!("\n{name}\t0\t{groups}\t1"));
    line(format_args!("#subsys_name\thierarchy\tnum_cgroups\tenabled{}", rows.concat()))
}

fn cmdline(_at: &At) -> Result<Vec<u8>> {
    line("quiet")
}

/// The drivers that are registered, by number.
fn devices(at: &At) -> Result<Vec<u8>> {
    let mut s = String::from("Character devices:\n");
    for (major, name) in at.kernel().vfs.devices.char_devices() {
        let _ = writeln!(s, "{major:3} {name}");
    }
    s.push_str("\nBlock devices:\n");
    for (major, name) in at.kernel().vfs.devices.block_devices() {
        let _ = writeln!(s, "{major:3} {name}");
    }
    Ok(s.into_bytes())
}

fn execdomains(_at: &At) -> Result<Vec<u8>> {
    line("0-0\tLinux           \t[kernel]")
}

/// What mount(2) knows, and the internal ones.
fn filesystems(at: &At) -> Result<Vec<u8>> {
    let mut all = at.kernel().fs_types.names();
    for n in ["sockfs", "pipefs"] {
        all.push((n, true));
    }
    Ok(all
        .iter()
        .flat_map(|(n, nodev)| format!("{}\t{n}\n", if *nodev { "nodev" } else { "" }).into_bytes())
        .collect())
}

fn per_cpu_header(online: CpuMask, first: usize) -> String {
    let mut s = " ".repeat(first);
    for i in online.iter() {
        let _ = write!(s, "{:<11}", format!("CPU{i}"));
    }
    s
}

fn interrupts(at: &At) -> Result<Vec<u8>> {
    let online = at.limits().online();
    let all = at.kernel().interrupts.load(Ordering::Relaxed);
    // What this kernel itself interrupts: the code of programs on other processors.
    let parts: String = shares(all, online.count() as u64).map(|part| format!(" {part:>10}")).collect();
    let header = per_cpu_header(online, 11);
    line(format_args!("{header}\nRES:{parts}   Rescheduling interrupts"))
}

/// A number spread over the processors. What does not divide goes to the first ones.
fn shares(all: u64, cpus: u64) -> impl Iterator<Item = u64> {
    (0..cpus).map(move |i| all / cpus + u64::from(i < all % cpus))
}

fn softirqs(at: &At) -> Result<Vec<u8>> {
    let online = at.limits().online();
    let mut s = per_cpu_header(online, 20);
    s.push('\n');
    for n in ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"] {
        let _ = writeln!(s, "{n:>12}:{}", format!(" {:>10}", 0).repeat(online.count()));
    }
    Ok(s.into_bytes())
}

/// Asks the kernel's keys for the thread that reads.
fn with_keys(at: &At, f: impl FnOnce(&keys::Keys, &keys::Subject<'_>) -> Vec<u8>) -> Result<Vec<u8>> {
    let cx = at.cx()?;
    let task = at.caller().ok_or(Errno::ESRCH)?;
    Ok(f(&at.kernel().keys, &keys::Subject::new(&cx.creds(), &task.keyrings)))
}

fn keys(at: &At) -> Result<Vec<u8>> {
    with_keys(at, |keys, subject| keys.list(subject))
}

fn key_users(at: &At) -> Result<Vec<u8>> {
    with_keys(at, |keys, subject| keys.users(subject).into_bytes())
}

fn loadavg(at: &At) -> Result<Vec<u8>> {
    let (run, all) = at.kernel().running();
    let l = at.kernel().load_averages();
    let last = at.fs.pids.last();
    line(format_args!("{:.2} {:.2} {:.2} {run}/{all} {last}", l[0], l[1], l[2]))
}

fn meminfo(at: &At) -> Result<Vec<u8>> {
    let k = at.kernel();
    let l = at.limits();
    let total = l.memory() / 1024;
    let (used, shared) = memory_used(k);
    // Under a limit everything counts that the limit counts.
    let used = l.memory_max().and_then(|_| l.memory_current()).unwrap_or(used);
    let used = (used / 1024).min(total);
    let cached = (shared / 1024).min(used);
    let shmem = (k.memory.bytes() / 1024).min(cached);
    let anon = used - cached;
    let locked = (memory_locked(k) / 1024).min(used);
    let free = total - used;
    // Files in memory are not given back.
    let avail = free + (cached - shmem);
    let rows: &[(&str, u64)] = &[
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", avail),
        ("Buffers", 0),
        ("Cached", cached),
        ("SwapCached", 0),
        ("Active", used),
        ("Inactive", 0),
        ("Active(anon)", anon),
        ("Inactive(anon)", 0),
        ("Active(file)", cached),
        ("Inactive(file)", 0),
        ("Unevictable", locked),
        ("Mlocked", locked),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Zswap", 0),
        ("Zswapped", 0),
        ("Dirty", 0),
        ("Writeback", 0),
        ("AnonPages", anon),
        ("Mapped", cached),
        ("Shmem", shmem),
        ("KReclaimable", 0),
        ("Slab", 0),
        ("SReclaimable", 0),
        ("SUnreclaim", 0),
        ("KernelStack", 0),
        ("PageTables", 0),
        ("SecPageTables", 0),
        ("NFS_Unstable", 0),
        ("Bounce", 0),
        ("WritebackTmp", 0),
        ("CommitLimit", total / 2),
        ("Committed_AS", anon),
        ("VmallocTotal", 34_359_738_367),
        ("VmallocUsed", 0),
        ("VmallocChunk", 0),
        ("Percpu", 0),
        ("AnonHugePages", 0),
        ("ShmemHugePages", 0),
        ("ShmemPmdMapped", 0),
        ("FileHugePages", 0),
        ("FilePmdMapped", 0),
    ];
    let mut s = String::new();
    for (name, v) in rows {
        let _ = writeln!(s, "{:<16}{v:>8} kB", format!("{name}:"));
    }
    for n in ["HugePages_Total", "HugePages_Free", "HugePages_Rsvd", "HugePages_Surp"] {
        let _ = writeln!(s, "{:<16}{:>8}", format!("{n}:"), 0);
    }
    for (n, v) in [
        ("Hugepagesize", 2048),
        ("Hugetlb", 0),
        ("DirectMap4k", 0),
        ("DirectMap2M", total),
        ("DirectMap1G", 0),
    ] {
        let _ = writeln!(s, "{:<16}{v:>8} kB", format!("{n}:"));
    }
    Ok(s.into_bytes())
}

fn misc(_at: &At) -> Result<Vec<u8>> {
    Ok(Vec::new())
}

/// Devices that hold something: loop devices (major 7) with a file.
fn partitions(at: &At) -> Result<Vec<u8>> {
    let mut s = String::from("major minor  #blocks  name\n\n");
    let loops = &at.container().loops;
    for number in loops.numbers() {
        let kib = loops.about(number).map_or(0, |about| about.size / 1024);
        if kib > 0 {
            let _ = writeln!(s, "{:4}  {number:7} {kib:10} loop{number}", 7);
        }
    }
    Ok(s.into_bytes())
}

/// What the host says of the container's control group. Without one it is as on a kernel started with `psi=0`.
fn pressure(at: &At, name: &str) -> Result<Vec<u8>> {
    at.limits().text(name).map(String::into_bytes).ok_or(Errno::EOPNOTSUPP)
}

fn cpu_pressure(at: &At) -> Result<Vec<u8>> {
    pressure(at, "cpu.pressure")
}

fn io_pressure(at: &At) -> Result<Vec<u8>> {
    pressure(at, "io.pressure")
}

fn memory_pressure(at: &At) -> Result<Vec<u8>> {
    pressure(at, "memory.pressure")
}

/// The value of Linux's clock of ticks at its start, and how many there are in a second.
const FIRST_TICK: u64 = (u32::MAX as u64 + 1) - 300 * TICKS;
const TICKS: u64 = 1000;

/// What a kernel has without `kernel.sched_schedstats`: for each processor the time that threads ran and that they waited for
/// one, and how often one got it. There are no scheduling domains.
fn schedstat(at: &At) -> Result<Vec<u8>> {
    let k = at.kernel();
    let online = at.limits().online();
    let cpus = online.count() as u64;
    let (user, sys) = k.processor_time();
    let [.., involuntary] = counts_total(k);
    let ran = shares(user + sys, cpus);
    let parts = ran.zip(shares(k.run_delay(), cpus)).zip(shares(k.sleeps() + involuntary, cpus));
    let mut s = format!("version 17\ntimestamp {}\n", FIRST_TICK + uptime_ns() / (1_000_000_000 / TICKS));
    for (i, ((ran, waited), count)) in online.iter().zip(parts) {
        let _ = writeln!(s, "cpu{i} 0 0 0 0 0 0 {ran} {waited} {count}");
    }
    Ok(s.into_bytes())
}

/// Seconds since the epoch at which CLOCK_BOOTTIME started; does not jitter.
fn boot_time() -> u64 {
    static AT: OnceLock<u64> = OnceLock::new();
    *AT.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_nanos(uptime_ns())).as_secs()
    })
}

/// Nanoseconds that the reader's time namespace adds to CLOCK_BOOTTIME.
fn boottime_offset(at: &At) -> i64 {
    at.caller().map_or(0, |t| t.nsproxy().time.offset_ns(libc::CLOCK_BOOTTIME))
}

fn stat(at: &At) -> Result<Vec<u8>> {
    let k = at.kernel();
    let (user, sys) = k.processor_time();
    let (user, sys) = (crate::pid::ticks(user), crate::pid::ticks(sys));
    let online = at.limits().online();
    let cpus = online.count() as u64;
    let up = crate::pid::ticks(uptime_ns());
    let idle = (up * cpus).saturating_sub(user + sys);
    let mut s = format!("cpu  {user} 0 {sys} {idle} 0 0 0 0 0 0\n");
    let parts = shares(user, cpus).zip(shares(sys, cpus)).zip(shares(idle, cpus));
    for (i, ((user, sys), idle)) in online.iter().zip(parts) {
        let _ = writeln!(s, "cpu{i} {user} 0 {sys} {idle} 0 0 0 0 0 0");
    }
    let (run, _) = k.running();
    let _ = writeln!(
        s,
        "intr {}\nctxt {}\nbtime {}\nprocesses {}\nprocs_running {}\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0",
        // What this kernel itself interrupts and switches; it has no soft interrupts.
        k.interrupts.load(Ordering::Relaxed),
        k.sleeps(),
        boot_time().saturating_add_signed(-(boottime_offset(at).div_euclid(1_000_000_000))),
        k.forks.load(Ordering::Relaxed),
        run.max(1)
    );
    Ok(s.into_bytes())
}

fn swaps(_at: &At) -> Result<Vec<u8>> {
    line("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority")
}

fn uptime(at: &At) -> Result<Vec<u8>> {
    let k = at.kernel();
    let host = uptime_ns();
    let up = host.saturating_add_signed(boottime_offset(at)) / 10_000_000;
    let (u, s) = k.processor_time();
    let idle = (host / 10_000_000 * at.limits().online().count() as u64).saturating_sub((u + s) / 10_000_000);
    line(format_args!("{}.{:02} {}.{:02}", up / 100, up % 100, idle / 100, idle % 100))
}

fn version(_at: &At) -> Result<Vec<u8>> {
    line(format_args!("Linux version {RELEASE} (ringfence) (rustc) {VERSION}"))
}

/// What has been counted of all processes.
fn counts_total(k: &Kernel) -> HostCounts {
    let mut sum = HostCounts::default();
    for group in k.groups() {
        group.measure_faults();
        let usage = group.total_usage();
        add_counts(&mut sum, usage.own_counts());
        add_counts(&mut sum, usage.child_counts);
    }
    sum
}

/// What the host says of the container's control group.
fn oom_kills(limits: &container::Limits) -> u64 {
    let kills = limits.field("memory.events", "oom_kill");
    kills.or_else(|| limits.field("memory.oom_control", "oom_kill")).unwrap_or(0)
}

fn vmstat(at: &At) -> Result<Vec<u8>> {
    let k = at.kernel();
    let [minor, major, read, written, ..] = counts_total(k);
    let (used, shared) = memory_used(k);
    let (used, shared) = (used / PAGE_SIZE, shared / PAGE_SIZE);
    let locked = (memory_locked(k) / PAGE_SIZE).min(used);
    let free = (at.limits().memory() / PAGE_SIZE).saturating_sub(used);
    let known = [
        ("nr_free_pages", free),
        ("nr_zone_inactive_anon", 0),
        ("nr_zone_active_anon", used - shared),
        ("nr_zone_inactive_file", 0),
        ("nr_zone_active_file", shared),
        ("nr_inactive_anon", 0),
        ("nr_active_anon", used - shared),
        ("nr_inactive_file", 0),
        ("nr_active_file", shared),
        ("nr_unevictable", locked),
        ("nr_mlock", locked),
        ("nr_anon_pages", used - shared),
        ("nr_mapped", shared),
        ("nr_file_pages", shared),
        ("nr_dirty", 0),
        ("nr_writeback", 0),
        // In KiB.
        ("pgpgin", read / 2),
        ("pgpgout", written / 2),
        ("pswpin", 0),
        ("pswpout", 0),
        ("pgfault", minor + major),
        ("pgmajfault", major),
        ("oom_kill", oom_kills(&at.limits())),
        ("nr_shmem", shared),
        ("nr_zone_unevictable", locked),
    ];
    // There are no zones, no pages of the kernel's own and no swap here; pages come from the host.
    let mut s = String::new();
    for name in crate::counter_names::VMSTAT.split_whitespace() {
        let value = known.iter().find(|(of, _)| *of == name).map_or(0, |(_, value)| *value);
        let _ = writeln!(s, "{name} {value}");
    }
    Ok(s.into_bytes())
}

fn msg(at: &At) -> Result<Vec<u8>> {
    Ok(at.nsproxy().ipc.sysv.msg_table(&at.fs.pids).into_bytes())
}

fn sem(at: &At) -> Result<Vec<u8>> {
    Ok(at.nsproxy().ipc.sysv.sem_table().into_bytes())
}

fn shm(at: &At) -> Result<Vec<u8>> {
    Ok(at.nsproxy().ipc.sysv.shm_table(&at.fs.pids).into_bytes())
}

fn tty_drivers(_at: &At) -> Result<Vec<u8>> {
    Ok(b"/dev/tty             /dev/tty        5       0 system:/dev/tty\n\
/dev/console         /dev/console    5       1 system:console\n\
/dev/ptmx            /dev/ptmx       5       2 system\n\
pty_slave            /dev/pts      136 0-1048575 pty:slave\n\
pty_master           /dev/ptm      128 0-1048575 pty:master\n"
        .to_vec())
}

fn tty_ldiscs(_at: &At) -> Result<Vec<u8>> {
    line("n_tty       0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        let names: Vec<_> = TABLE.iter().map(|e| e.name).collect();
        assert!(names.windows(2).all(|w| w[0] < w[1]));
    }
}
