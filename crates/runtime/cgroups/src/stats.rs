//! Usage, in the form of `runc events --stats`.

use crate::files::{number, table};
use crate::groups::Groups;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What a container uses: the `data` of a `stats` event.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Processor time.
    pub cpu: Cpu,
    /// Processors and memory nodes.
    pub cpuset: Cpuset,
    /// Memory.
    pub memory: Memory,
    /// Processes. These are the sandbox's own on the host; a caller that knows the guest's puts them here.
    pub pids: Pids,
    /// Block devices.
    pub blkio: Blkio,
    /// Huge pages by size.
    pub hugetlb: BTreeMap<String, Hugetlb>,
    /// Always empty.
    pub intel_rdt: BTreeMap<String, ()>,
    /// Filled in by a caller that knows the network.
    pub network_interfaces: Option<Vec<serde_json::Value>>,
    /// Figures of the kernel inside, which runc does not have. Filled in by a caller that knows them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ringfence: BTreeMap<String, serde_json::Value>,
}

/// Processor time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// Time used.
    pub usage: CpuUsage,
    /// Time held back by the quota.
    pub throttling: Throttling,
}

/// Nanoseconds used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuUsage {
    /// In all.
    pub total: u64,
    /// On each processor (cgroup v1).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percpu: Vec<u64>,
    /// In the kernel, on each processor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percpu_kernel: Vec<u64>,
    /// Outside the kernel, on each processor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percpu_user: Vec<u64>,
    /// In the kernel.
    pub kernel: u64,
    /// Outside the kernel.
    pub user: u64,
}

/// What the quota did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Throttling {
    /// Periods that began.
    #[serde(skip_serializing_if = "is_zero")]
    pub periods: u64,
    /// Periods with throttling.
    #[serde(skip_serializing_if = "is_zero")]
    pub throttled_periods: u64,
    /// Nanoseconds throttled.
    #[serde(skip_serializing_if = "is_zero")]
    pub throttled_time: u64,
}

/// Processors and memory nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names of the files")]
pub struct Cpuset {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u16>,
    pub cpu_exclusive: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mems: Vec<u16>,
    pub mem_hardwall: u64,
    pub mem_exclusive: u64,
    pub memory_migrate: u64,
    pub memory_spread_page: u64,
    pub memory_spread_slab: u64,
    pub memory_pressure: u64,
    pub sched_load_balance: u64,
    pub sched_relax_domain_level: i64,
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// Page cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache: u64,
    /// Memory.
    pub usage: MemoryEntry,
    /// Memory and swap.
    pub swap: MemoryEntry,
    /// Kernel memory.
    pub kernel: MemoryEntry,
    /// Kernel memory for TCP.
    #[serde(rename = "kernelTCP")]
    pub kernel_tcp: MemoryEntry,
    /// memory.stat.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub raw: BTreeMap<String, u64>,
}

/// One kind of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryEntry {
    /// Limit.
    pub limit: u64,
    /// Used now.
    #[serde(skip_serializing_if = "is_zero")]
    pub usage: u64,
    /// Most that was used.
    #[serde(skip_serializing_if = "is_zero")]
    pub max: u64,
    /// How often the limit was hit.
    pub failcnt: u64,
}

/// Processes and threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pids {
    /// How many.
    #[serde(skip_serializing_if = "is_zero")]
    pub current: u64,
    /// How many there may be; 0 is no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub limit: u64,
}

/// Block devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names of the files")]
pub struct Blkio {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_service_bytes_recursive: Vec<BlkioEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub io_serviced_recursive: Vec<BlkioEntry>,
}

/// One counter of one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BlkioEntry {
    /// Device.
    #[serde(skip_serializing_if = "is_zero")]
    pub major: u64,
    /// Device.
    #[serde(skip_serializing_if = "is_zero")]
    pub minor: u64,
    /// `Read`, `Write`, ...
    #[serde(skip_serializing_if = "String::is_empty")]
    pub op: String,
    /// Count.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: u64,
}

/// Huge pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hugetlb {
    /// Bytes used now.
    #[serde(skip_serializing_if = "is_zero")]
    pub usage: u64,
    /// Most bytes that were used.
    #[serde(skip_serializing_if = "is_zero")]
    pub max: u64,
    /// How often the limit was hit.
    pub failcnt: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Reads what there is; a controller that is not there shows zeros.
pub(crate) fn collect(groups: &Groups) -> Stats {
    if groups.v2() { unified(groups) } else { legacy(groups) }
}

fn legacy(groups: &Groups) -> Stats {
    let mut stats = Stats::default();
    if let Ok(dir) = groups.dir("cpuacct") {
        let usage = std::fs::read_to_string(dir.join("cpuacct.usage_percpu")).unwrap_or_default();
        let split = table(&dir.join("cpuacct.stat"));
        // Hundredths of a second.
        let ticks = |name: &str| split.get(name).copied().unwrap_or(0) * 10_000_000;
        let all = std::fs::read_to_string(dir.join("cpuacct.usage_all")).unwrap_or_default();
        let column = |n: usize| -> Vec<u64> {
            all.lines().skip(1).filter_map(|line| line.split(' ').nth(n)?.parse().ok()).collect()
        };
        stats.cpu.usage = CpuUsage {
            total: number(&dir.join("cpuacct.usage")),
            percpu: usage.split_whitespace().filter_map(|n| n.parse().ok()).collect(),
            percpu_user: column(1),
            percpu_kernel: column(2),
            kernel: ticks("system"),
            user: ticks("user"),
        };
    }
    if let Ok(dir) = groups.dir("cpu") {
        let table = table(&dir.join("cpu.stat"));
        let get = |name: &str| table.get(name).copied().unwrap_or(0);
        stats.cpu.throttling = Throttling {
            periods: get("nr_periods"),
            throttled_periods: get("nr_throttled"),
            throttled_time: get("throttled_time"),
        };
    }
    if let Ok(dir) = groups.dir("cpuset") {
        let get = |name: &str| number(&dir.join(format!("cpuset.{name}")));
        let text =
            |name: &str| std::fs::read_to_string(dir.join(format!("cpuset.{name}"))).unwrap_or_default();
        stats.cpuset = Cpuset {
            cpus: list(&text("cpus")),
            cpu_exclusive: get("cpu_exclusive"),
            mems: list(&text("mems")),
            mem_hardwall: get("mem_hardwall"),
            mem_exclusive: get("mem_exclusive"),
            memory_migrate: get("memory_migrate"),
            memory_spread_page: get("memory_spread_page"),
            memory_spread_slab: get("memory_spread_slab"),
            memory_pressure: get("memory_pressure"),
            sched_load_balance: get("sched_load_balance"),
            sched_relax_domain_level: text("sched_relax_domain_level").trim().parse().unwrap_or(0),
        };
    }
    if let Ok(dir) = groups.dir("memory") {
        let entry = |prefix: &str| MemoryEntry {
            limit: number(&dir.join(format!("{prefix}.limit_in_bytes"))),
            usage: number(&dir.join(format!("{prefix}.usage_in_bytes"))),
            max: number(&dir.join(format!("{prefix}.max_usage_in_bytes"))),
            failcnt: number(&dir.join(format!("{prefix}.failcnt"))),
        };
        let raw = table(&dir.join("memory.stat"));
        stats.memory = Memory {
            cache: raw.get("cache").copied().unwrap_or(0),
            usage: entry("memory"),
            swap: entry("memory.memsw"),
            kernel: entry("memory.kmem"),
            kernel_tcp: entry("memory.kmem.tcp"),
            raw,
        };
    }
    if let Ok(dir) = groups.dir("pids") {
        stats.pids = pids(dir);
    }
    if let Ok(dir) = groups.dir("blkio") {
        let read = |bfq: &str, throttle: &str| {
            let entries = blkio_v1(&dir.join(bfq));
            if entries.is_empty() { blkio_v1(&dir.join(throttle)) } else { entries }
        };
        stats.blkio = Blkio {
            io_service_bytes_recursive: read(
                "blkio.bfq.io_service_bytes_recursive",
                "blkio.throttle.io_service_bytes_recursive",
            ),
            io_serviced_recursive: read(
                "blkio.bfq.io_serviced_recursive",
                "blkio.throttle.io_serviced_recursive",
            ),
        };
    }
    if let Ok(dir) = groups.dir("hugetlb") {
        stats.hugetlb = hugetlb(dir, ".limit_in_bytes", |size| Hugetlb {
            usage: number(&dir.join(format!("hugetlb.{size}.usage_in_bytes"))),
            max: number(&dir.join(format!("hugetlb.{size}.max_usage_in_bytes"))),
            failcnt: number(&dir.join(format!("hugetlb.{size}.failcnt"))),
        });
    }
    stats
}

fn unified(groups: &Groups) -> Stats {
    let Ok(dir) = groups.dir("") else { return Stats::default() };
    let cpu = table(&dir.join("cpu.stat"));
    let cpu = |name: &str| cpu.get(name).copied().unwrap_or(0);
    let raw = table(&dir.join("memory.stat"));
    let memory = |name: &str| number(&dir.join(format!("memory.{name}")));
    let (used, limit) = (memory("current"), memory("max"));
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    Stats {
        cpu: Cpu {
            usage: CpuUsage {
                total: cpu("usage_usec") * 1000,
                kernel: cpu("system_usec") * 1000,
                user: cpu("user_usec") * 1000,
                ..CpuUsage::default()
            },
            throttling: Throttling {
                periods: cpu("nr_periods"),
                throttled_periods: cpu("nr_throttled"),
                throttled_time: cpu("throttled_usec") * 1000,
            },
        },
        cpuset: Cpuset {
            cpus: list(&text("cpuset.cpus.effective")),
            mems: list(&text("cpuset.mems.effective")),
            ..Cpuset::default()
        },
        memory: Memory {
            cache: raw.get("file").copied().unwrap_or(0),
            usage: MemoryEntry {
                limit,
                usage: used,
                max: memory("peak"),
                failcnt: table(&dir.join("memory.events")).get("max").copied().unwrap_or(0),
            },
            // Readers of this count memory and swap together, as cgroup v1 does.
            swap: MemoryEntry {
                limit: memory("swap.max").saturating_add(limit),
                usage: memory("swap.current").saturating_add(used),
                max: 0,
                failcnt: table(&dir.join("memory.swap.events")).get("fail").copied().unwrap_or(0),
            },
            kernel: MemoryEntry { usage: raw.get("kernel").copied().unwrap_or(0), ..MemoryEntry::default() },
            kernel_tcp: MemoryEntry {
                usage: raw.get("sock").copied().unwrap_or(0),
                ..MemoryEntry::default()
            },
            raw,
        },
        pids: pids(dir),
        blkio: blkio_v2(&text("io.stat")),
        hugetlb: hugetlb(dir, ".max", |size| Hugetlb {
            usage: number(&dir.join(format!("hugetlb.{size}.current"))),
            max: 0,
            failcnt: table(&dir.join(format!("hugetlb.{size}.events"))).get("max").copied().unwrap_or(0),
        }),
        intel_rdt: BTreeMap::new(),
        network_interfaces: None,
        ringfence: BTreeMap::new(),
    }
}

fn pids(dir: &Path) -> Pids {
    let limit = number(&dir.join("pids.max"));
    Pids { current: number(&dir.join("pids.current")), limit: if limit == u64::MAX { 0 } else { limit } }
}

/// The sizes of huge pages that a directory has files for.
fn hugetlb(dir: &Path, suffix: &str, read: impl Fn(&str) -> Hugetlb) -> BTreeMap<String, Hugetlb> {
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let sizes = names.filter_map(|name| {
        let size = name.to_str()?.strip_prefix("hugetlb.")?.strip_suffix(suffix)?.to_string();
        (!size.contains('.')).then_some(size)
    });
    sizes.map(|size| (size.clone(), read(&size))).collect()
}

/// `8:0 Read 4096` by lines, with a total at the end that is left out.
fn blkio_v1(path: &Path) -> Vec<BlkioEntry> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor) = words.next()?.split_once(':')?;
        let (op, value) = (words.next()?, words.next()?);
        Some(BlkioEntry {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            op: op.into(),
            value: value.parse().ok()?,
        })
    };
    text.lines().filter_map(line).collect()
}

/// `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`.
fn blkio_v2(text: &str) -> Blkio {
    let mut blkio = Blkio::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some((major, minor)) = words.next().and_then(|word| word.split_once(':')) else { continue };
        let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else { continue };
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            let entry =
                |op: &str| BlkioEntry { major, minor, op: op.into(), value: value.parse().unwrap_or(0) };
            match name {
                "rbytes" => blkio.io_service_bytes_recursive.push(entry("Read")),
                "wbytes" => blkio.io_service_bytes_recursive.push(entry("Write")),
                "dbytes" => blkio.io_service_bytes_recursive.push(entry("Discard")),
                "rios" => blkio.io_serviced_recursive.push(entry("Read")),
                "wios" => blkio.io_serviced_recursive.push(entry("Write")),
                "dios" => blkio.io_serviced_recursive.push(entry("Discard")),
                _ => {}
            }
        }
    }
    blkio
}

/// A list such as `0-3,7`.
fn list(text: &str) -> Vec<u16> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u16>(), to.parse::<u16>()) {
            all.extend(from..=to);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(list("\n"), Vec::<u16>::new());
    }

    #[test]
    fn io_of_v2() {
        let blkio = blkio_v2("8:16 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n");
        assert_eq!(
            blkio.io_service_bytes_recursive[1],
            BlkioEntry { major: 8, minor: 16, op: "Write".into(), value: 20 }
        );
        assert_eq!(blkio.io_serviced_recursive.len(), 3);
    }

    #[test]
    fn the_form_is_runcs() {
        let value = serde_json::to_value(Stats::default()).unwrap();
        assert_eq!(value["cpu"]["usage"], serde_json::json!({"total": 0, "kernel": 0, "user": 0}));
        assert_eq!(value["memory"]["kernelTCP"], serde_json::json!({"limit": 0, "failcnt": 0}));
        assert_eq!(value["pids"], serde_json::json!({}));
        assert!(value["network_interfaces"].is_null() && value["intel_rdt"].is_object());
    }
}
