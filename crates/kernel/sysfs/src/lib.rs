//! The part of sysfs that programs read to find out about processors, memory and devices. See sysfs(5).

#![forbid(unsafe_code)]

mod block;
mod bridge;
mod cache;
mod devices;
mod net;

use abi::{CpuMask, Errno, Result};
use devices::Class;
use kernfs::{At, Child, Entry, FsType, KernFs, Names, What, dir, line, memory_used, text};
use std::sync::Arc;
use task::Kernel;
use vfs::FileSystem;

/// An instance.
pub fn new(kernel: Arc<Kernel>) -> Arc<dyn FileSystem> {
    let pids = kernel.pids.clone();
    KernFs::new(kernel, pids, &Sysfs)
}

struct Sysfs;

impl FsType for Sysfs {
    fn name(&self) -> &'static str {
        "sysfs"
    }
    fn magic(&self) -> i64 {
        0x6265_6572
    }
    fn root(&self) -> &'static Entry {
        &ROOT
    }
    fn block_size(&self) -> u32 {
        4096
    }
    fn text_size(&self) -> u64 {
        4096
    }
}

static ROOT: Entry = dir("/", &TOP);

static TOP: [Entry; 10] = [
    names("block", &block::BLOCK),
    dir("bus", &[]),
    dir("class", &CLASS),
    dir("dev", &DEV),
    dir("devices", &DEVICES),
    dir("firmware", &[]),
    dir("fs", &FS),
    dir("kernel", &KERNEL),
    dir("module", &[]),
    dir("power", &[]),
];

/// A directory of names that are made up on the way.
const fn names(name: &'static str, names: &'static dyn Names) -> Entry {
    Entry { name, mode: 0o555, what: What::Dir(&[], Some(names)) }
}

static CLASS: [Entry; 6] = [
    names("block", &block::CLASS),
    names("mem", &Class::links("mem")),
    names("misc", &Class::links("misc")),
    names("net", &net::ClassLinks),
    dir("power_supply", &[]),
    names("tty", &Class::links("tty")),
];
static DEV: [Entry; 2] = [names("block", &block::NUMBERS), names("char", &devices::Numbers)];
static FS: [Entry; 1] = [dir("cgroup", &[])];
static DEVICES: [Entry; 2] = [dir("system", &SYSTEM), dir("virtual", &VIRTUAL)];
static VIRTUAL: [Entry; 5] = [
    names("block", &block::DIRECTORIES),
    names("mem", &Class::directories("mem")),
    names("misc", &Class::directories("misc")),
    names("net", &net::Links),
    names("tty", &Class::directories("tty")),
];
static SYSTEM: [Entry; 2] = [
    Entry { name: "cpu", mode: 0o555, what: What::Dir(CPU, Some(&Cpus)) },
    Entry { name: "node", mode: 0o555, what: What::Dir(NODE, None) },
];

static CPU: &[Entry] = &[
    text("isolated", |_| line("")),
    text("kernel_max", |_| line(CpuMask::MOST - 1)),
    text("offline", |_| line("")),
    text("online", online),
    text("possible", online),
    text("present", online),
    dir("vulnerabilities", &[]),
];

static NODE: &[Entry] = &[
    text("has_cpu", |_| line(0)),
    text("has_memory", |_| line(0)),
    text("has_normal_memory", |_| line(0)),
    dir("node0", &NODE0),
    text("online", |_| line(0)),
    text("possible", |_| line(0)),
];

static NODE0: [Entry; 4] = [
    text("cpulist", online),
    text("cpumap", every),
    text("distance", |_| line(10)),
    text("meminfo", node_meminfo),
];

static KERNEL: [Entry; 4] = [dir("debug", &[]), dir("mm", &MM), dir("security", &[]), dir("tracing", &[])];
static MM: [Entry; 2] = [dir("hugepages", &[]), dir("transparent_hugepage", &THP)];
static THP: [Entry; 5] = [
    text("defrag", |_| line("always defer defer+madvise [madvise] never")),
    text("enabled", |_| line("always [madvise] never")),
    text("hpage_pmd_size", |_| line(2 << 20)),
    text("shmem_enabled", |_| line("always within_size advise [never] deny force")),
    text("use_zero_page", |_| line(1)),
];

fn online(at: &At) -> Result<Vec<u8>> {
    line(at.limits().online().list())
}

fn every(at: &At) -> Result<Vec<u8>> {
    let online = at.limits().online();
    line(online.words(online.width()))
}

fn node_meminfo(at: &At) -> Result<Vec<u8>> {
    let total = at.limits().memory() / 1024;
    let used = (memory_used(at.kernel()).0 / 1024).min(total);
    let rows = [("MemTotal:", total), ("MemFree:", total - used), ("MemUsed:", used)];
    Ok(rows.iter().flat_map(|(n, v)| format!("Node 0 {n:<15}{v:>8} kB\n").into_bytes()).collect())
}

/// One directory per processor, with its number as `At::n`.
struct Cpus;

static ONE: Entry = dir("cpu", &IN_CPU);
static IN_CPU: [Entry; 2] = [names("cache", &cache::Caches), dir("topology", &TOPOLOGY)];
static TOPOLOGY: [Entry; 13] = [
    text("core_cpus", me),
    text("core_cpus_list", number),
    text("core_id", number),
    text("core_siblings", every),
    text("core_siblings_list", online),
    text("die_cpus", every),
    text("die_cpus_list", online),
    text("die_id", |_| line(0)),
    text("package_cpus", every),
    text("package_cpus_list", online),
    text("physical_package_id", |_| line(0)),
    text("thread_siblings", me),
    text("thread_siblings_list", number),
];

fn number(at: &At) -> Result<Vec<u8>> {
    line(at.n)
}

fn me(at: &At) -> Result<Vec<u8>> {
    line(CpuMask::one(usize::try_from(at.n).unwrap_or(0)).words(at.limits().online().width()))
}

impl Names for Cpus {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let n = std::str::from_utf8(name).ok().and_then(|s| s.strip_prefix("cpu")).ok_or(Errno::ENOENT)?;
        let i: usize = n.parse().map_err(|_| Errno::ENOENT)?;
        if !at.limits().online().contains(i) || i.to_string() != n {
            return Err(Errno::ENOENT);
        }
        Ok(Child { entry: &ONE, proc: None, n: i as i64 })
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        let one = |i: usize| (i as u64, format!("cpu{i}"), Child { entry: &ONE, proc: None, n: i as i64 });
        Ok(at.limits().online().iter().map(one).collect())
    }
    fn subdirs(&self, at: &At) -> u64 {
        at.limits().online().count() as u64
    }
}
