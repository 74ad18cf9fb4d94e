//! The limits and the usage of a container, from its control group on the host. See cgroups(7), and the host's
//! Documentation/admin-guide/cgroup-v1 and cgroup-v2.
//!
//! The runtime opens the group's files for reading and passes the descriptors. They are read at every use, so a change
//! by `update` shows at once. Without a control group all values are those of the host. A further container of a
//! sandbox has groups of its own only for the resources that it has limits on. For the others the values of the
//! sandbox's group count.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Longest file that is read, in bytes: memory.stat has about 4 KiB.
const LONGEST: usize = 16 << 10;

/// The limits of a container, and the host's own.
pub struct Limits {
    memory: u64,
    cpus: usize,
    files: BTreeMap<String, File>,
    /// The sandbox's.
    outer: Option<Arc<Limits>>,
}

/// Processor time, as `cpu.max` has it: at most `quota` of each `period`, both in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMax {
    /// Nothing for no limit.
    pub quota: Option<u64>,
    /// Length of a period.
    pub period: u64,
}

impl Limits {
    /// The host's memory in bytes, its processors, and the group's files by their names in cgroup v1 or v2.
    pub fn new(memory: u64, cpus: usize, files: impl IntoIterator<Item = (String, OwnedFd)>) -> Self {
        let files = files.into_iter().map(|(name, fd)| (name, fd.into())).collect();
        Self { memory, cpus: cpus.max(1), files, outer: None }
    }

    /// The limits of one container of several: files of its own groups, where it is in any.
    pub fn within(outer: &Arc<Limits>, files: impl IntoIterator<Item = (String, OwnedFd)>) -> Self {
        Self { outer: Some(outer.clone()), ..Self::new(outer.memory, outer.cpus, files) }
    }

    /// A file of a group.
    fn file(&self, name: &str) -> Option<&File> {
        self.files.get(name).or_else(|| self.outer.as_ref()?.file(name))
    }

    /// The text of a file of the host's group; nothing when there is none, or the group has gone.
    pub fn text(&self, name: &str) -> Option<String> {
        let mut text = vec![0; LONGEST];
        let length = self.file(name)?.read_at(&mut text, 0).ok()?;
        text.truncate(length);
        String::from_utf8(text).ok()
    }

    /// The number in a file of the host's group.
    pub fn number(&self, name: &str) -> Option<u64> {
        let mut text = [0; 32];
        let length = self.file(name)?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
    }

    /// The first number there is, of a name in v2 and one in v1.
    pub fn either(&self, v2: &str, v1: &str) -> Option<u64> {
        self.number(v2).or_else(|| self.number(v1))
    }

    /// A line `key value` of a file.
    pub fn field(&self, name: &str, key: &str) -> Option<u64> {
        field(&self.text(name)?, key)
    }

    /// The limit on memory in bytes, when it is below what the host has.
    pub fn memory_max(&self) -> Option<u64> {
        self.either("memory.max", "memory.limit_in_bytes").filter(|max| *max < self.memory)
    }

    /// Bytes of memory that count towards the limit.
    pub fn memory_current(&self) -> Option<u64> {
        self.either("memory.current", "memory.usage_in_bytes")
    }

    /// Memory shown to the guest in bytes.
    pub fn memory(&self) -> u64 {
        self.memory_max().unwrap_or(self.memory)
    }

    /// Free memory in bytes: what the limit leaves, or what the host has.
    pub fn free(&self) -> u64 {
        match (self.memory_max(), self.memory_current()) {
            (Some(max), Some(current)) => max.saturating_sub(current),
            _ => hostsys::clock::free_memory().min(self.memory()),
        }
    }

    /// The limit on processor time.
    pub fn cpu_max(&self) -> CpuMax {
        const PERIOD: u64 = 100_000;
        if let Some(text) = self.text("cpu.max") {
            let mut words = text.split_whitespace().map(|word| word.parse().ok());
            let quota = words.next().flatten();
            return CpuMax { quota, period: words.next().flatten().unwrap_or(PERIOD) };
        }
        // -1 is no limit, and no number here.
        let period = self.number("cpu.cfs_period_us").unwrap_or(PERIOD);
        CpuMax { quota: self.number("cpu.cfs_quota_us"), period }
    }

    /// Processors shown to the guest: those that it may run on, and no more than its processor time fills.
    pub fn cpus(&self) -> usize {
        let CpuMax { quota, period } = self.cpu_max();
        let filled = quota.map_or(u64::MAX, |quota| quota.div_ceil(period.max(1)));
        self.allowed_cpus().min(usize::try_from(filled).unwrap_or(usize::MAX)).max(1)
    }

    /// Processors that the group may run on. Those of the sandbox are known from its start: its own threads are on them.
    fn allowed_cpus(&self) -> usize {
        let own = || self.text(self.files.keys().find(|name| name.starts_with("cpuset."))?);
        own().and_then(|list| listed(&list)).unwrap_or(self.cpus)
    }
}

/// How many numbers a list like `0-2,5` has; nothing for an empty one.
fn listed(list: &str) -> Option<usize> {
    let mut all = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all += last.checked_sub(first)? + 1;
    }
    Some(all)
}

/// A line `key value` of a file's text.
pub fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open((name, text): &(&str, &str)) -> (String, OwnedFd) {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, text.as_bytes()).unwrap();
        (name.to_string(), file)
    }

    fn limits(files: &[(&str, &str)]) -> Limits {
        Limits::new(1 << 30, 4, files.iter().map(open))
    }

    #[test]
    fn of_one_container_of_several() {
        let files = [("memory.limit_in_bytes", "8192\n"), ("cpu.cfs_quota_us", "300000\n")];
        let sandbox = Arc::new(limits(&files));
        let own = |files: &[(&str, &str)]| Limits::within(&sandbox, files.iter().map(open));
        let all = |l: Limits| (l.memory(), l.cpus());
        assert_eq!(all(own(&[])), (8192, 3));
        assert_eq!(all(own(&[("memory.limit_in_bytes", "16384\n")])), (16384, 3));
        assert_eq!(all(own(&[("cpu.cfs_quota_us", "-1\n"), ("cpu.cfs_period_us", "100000\n")])), (8192, 4));
        assert_eq!(all(own(&[("cpuset.effective_cpus", "0-1\n")])), (8192, 2));
        assert_eq!(all(own(&[("cpuset.effective_cpus", "\n")])), (8192, 3));
    }

    #[test]
    fn lists() {
        let of = |list| listed(list);
        assert_eq!(
            (of("0"), of("0-2,5\n"), of("1,3"), of("\n"), of("3-1")),
            (Some(1), Some(4), Some(2), None, None)
        );
    }

    #[test]
    fn without_a_group_all_is_the_hosts() {
        let l = limits(&[]);
        assert_eq!((l.memory(), l.cpus(), l.memory_max(), l.memory_current()), (1 << 30, 4, None, None));
        assert_eq!(l.cpu_max(), CpuMax { quota: None, period: 100_000 });
    }

    #[test]
    fn both_versions() {
        for files in [
            [
                ("memory.max", "4096\n"),
                ("memory.current", "1024\n"),
                ("cpu.max", "150000 100000\n"),
                ("cpu.stat", "a 1\nusage_usec 7\n"),
            ],
            [
                ("memory.limit_in_bytes", "4096\n"),
                ("memory.usage_in_bytes", "1024\n"),
                ("cpu.cfs_quota_us", "150000\n"),
                ("cpu.stat", "a 1\nusage_usec 7\n"),
            ],
        ] {
            let l = limits(&files);
            assert_eq!((l.memory(), l.free(), l.cpus()), (4096, 3072, 2));
            assert_eq!(l.cpu_max(), CpuMax { quota: Some(150_000), period: 100_000 });
            assert_eq!((l.field("cpu.stat", "usage_usec"), l.field("cpu.stat", "usage")), (Some(7), None));
        }
    }

    #[test]
    fn no_limits() {
        for files in [
            [("memory.max", "max\n"), ("cpu.max", "max 50000\n")],
            [("memory.limit_in_bytes", "9223372036854771712\n"), ("cpu.cfs_quota_us", "-1\n")],
        ] {
            let l = limits(&files);
            assert_eq!((l.memory(), l.cpus(), l.cpu_max().quota), (1 << 30, 4, None));
        }
        assert_eq!(limits(&[("cpu.max", "1000 100000\n")]).cpus(), 1);
    }
}
