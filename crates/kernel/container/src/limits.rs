//! The limits and the usage of a container, from its control group on the host. See cgroups(7), and the host's
//! Documentation/admin-guide/cgroup-v1 and cgroup-v2.
//!
//! The runtime opens the group's files for reading and passes the descriptors. They are read at every use, so a change
//! by `update` shows at once. Without a control group all values are those of the host. A further container of a
//! sandbox has groups of its own only for the resources that it has limits on. For the others the values of the
//! sandbox's group count.

use abi::CpuMask;
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
    processors: Processors,
    files: BTreeMap<String, File>,
    /// The sandbox's.
    outer: Option<Arc<Limits>>,
}

/// The processors of the host.
///
/// The kernel inside shows what a container without a kernel of its own sees (runc's): all that are online, with their own
/// numbers, which the processors' own instructions tell a program, too. A quota of processor time changes none of them: threads
/// run on several processors at once also with a quota of one or less, and a program that sees one processor leaves out what
/// keeps threads on others apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors {
    online: CpuMask,
    allowed: CpuMask,
}

impl Processors {
    /// Those that are online, as far as that is known, and those that the sandbox may run on.
    pub fn new(online: CpuMask, allowed: CpuMask) -> Self {
        let allowed = if allowed.is_empty() { CpuMask::one(0) } else { allowed };
        let all = online.iter().chain(allowed.iter()).collect();
        Self { online: all, allowed }
    }

    /// The first `count`, all allowed.
    pub fn first(count: usize) -> Self {
        Self::new(CpuMask::default(), CpuMask::first(count))
    }
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
    pub fn new(
        memory: u64,
        processors: Processors,
        files: impl IntoIterator<Item = (String, OwnedFd)>,
    ) -> Self {
        let files = files.into_iter().map(|(name, fd)| (name, fd.into())).collect();
        Self { memory, processors, files, outer: None }
    }

    /// The limits of one container of several: files of its own groups, where it is in any.
    pub fn within(outer: &Arc<Limits>, files: impl IntoIterator<Item = (String, OwnedFd)>) -> Self {
        Self { outer: Some(outer.clone()), ..Self::new(outer.memory, outer.processors, files) }
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

    /// Processors that are online.
    pub fn online(&self) -> CpuMask {
        self.processors.online
    }

    /// Processors that the container may run on. Those of the sandbox are known from its start: its own threads are on them.
    pub fn allowed(&self) -> CpuMask {
        let own = || self.text(self.files.keys().find(|name| name.starts_with("cpuset."))?);
        own().and_then(|list| CpuMask::parse_list(&list)).unwrap_or(self.processors.allowed)
    }

    /// Of the processors that a thread asked for, those that it may have: all that the container may run on where none of them
    /// is left.
    pub fn allowed_of(&self, asked: &CpuMask) -> CpuMask {
        let allowed = self.allowed();
        let left = allowed.and(asked);
        if left.is_empty() { allowed } else { left }
    }
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
        Limits::new(1 << 30, Processors::first(4), files.iter().map(open))
    }

    #[test]
    fn of_one_container_of_several() {
        let files = [("memory.limit_in_bytes", "8192\n"), ("cpu.cfs_quota_us", "300000\n")];
        let sandbox = Arc::new(limits(&files));
        let own = |files: &[(&str, &str)]| Limits::within(&sandbox, files.iter().map(open));
        let all = |l: Limits| (l.memory(), l.allowed().list());
        let is = |memory, processors: &str| (memory, processors.to_string());
        assert_eq!(all(own(&[])), is(8192, "0-3"));
        assert_eq!(all(own(&[("memory.limit_in_bytes", "16384\n")])), is(16384, "0-3"));
        assert_eq!(all(own(&[("cpuset.effective_cpus", "2-3\n")])), is(8192, "2-3"));
        assert_eq!(all(own(&[("cpuset.effective_cpus", "\n")])), is(8192, "0-3"));
        assert_eq!(own(&[("cpuset.effective_cpus", "2-3\n")]).online().list(), "0-3");
    }

    #[test]
    fn processors_keep_their_numbers() {
        let of = |online: &str, allowed: &str| {
            let mask = |list| CpuMask::parse_list(list).unwrap_or_default();
            let l = Limits::new(1 << 30, Processors::new(mask(online), mask(allowed)), []);
            (l.online().list(), l.allowed().list())
        };
        let is = |online: &str, allowed: &str| (online.to_string(), allowed.to_string());
        assert_eq!(of("0-3", "1"), is("0-3", "1"));
        assert_eq!(of("", "70,100"), is("70,100", "70,100"));
        assert_eq!(of("0-1", ""), is("0-1", "0"));
    }

    #[test]
    fn what_a_thread_asked_for() {
        let l = limits(&[("cpuset.cpus.effective", "1-2\n")]);
        assert_eq!(l.allowed_of(&CpuMask::ALL).list(), "1-2");
        assert_eq!(l.allowed_of(&CpuMask::one(2)).list(), "2");
        assert_eq!(l.allowed_of(&CpuMask::one(3)).list(), "1-2");
    }

    #[test]
    fn without_a_group_all_is_the_hosts() {
        let l = limits(&[]);
        assert_eq!(
            (l.memory(), l.allowed().count(), l.memory_max(), l.memory_current()),
            (1 << 30, 4, None, None)
        );
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
            assert_eq!((l.memory(), l.free(), l.allowed().count()), (4096, 3072, 4));
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
            assert_eq!((l.memory(), l.allowed().count(), l.cpu_max().quota), (1 << 30, 4, None));
        }
        // Threads run on all of them at once, if for a short time.
        let l = limits(&[("cpu.max", "1000 100000\n")]);
        assert_eq!((l.online().count(), l.allowed().count()), (4, 4));
    }
}
