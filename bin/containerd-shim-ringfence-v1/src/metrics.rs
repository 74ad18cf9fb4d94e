//! A container's usage in containerd's form: `io.containerd.cgroups.v1.Metrics` or `.v2.Metrics`.

use cgroups::stats::{BlkioEntry, MemoryEntry, Pids, Stats};
use containerd_shim_protos::cgroups::metrics::{self as v1, Metrics};
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{self, CodedOutputStream, Message, MessageField};
use std::collections::BTreeMap;

/// Packs the figures.
pub(crate) fn pack(stats: &Stats, is_v2: bool, oom_kills: u64) -> Result<Any, protobuf::Error> {
    let (kind, value) = if is_v2 {
        ("io.containerd.cgroups.v2.Metrics", unified(stats, oom_kills)?)
    } else {
        ("io.containerd.cgroups.v1.Metrics", legacy(stats, oom_kills).write_to_bytes()?)
    };
    Ok(Any { type_url: kind.into(), value, ..Any::default() })
}

/// Adds what the kernel inside knows, from the output of `ringfence events --stats`: processes and interfaces.
pub(crate) fn complete(stats: &mut Stats, event: &str) {
    let event: serde_json::Value = serde_json::from_str(event).unwrap_or_default();
    let data = &event["data"];
    if data["ringfence"].is_object() {
        let number = |name: &str| data["pids"][name].as_u64().unwrap_or(0);
        stats.pids = Pids { current: number("current"), limit: number("limit") };
        stats.network_interfaces = data["network_interfaces"].as_array().cloned();
    }
}

/// The names of an interface's figures, in the order of NetworkStat's fields, from 2 on.
const NETWORK_FIELDS: [&str; 8] =
    ["RxBytes", "RxPackets", "RxErrors", "RxDropped", "TxBytes", "TxPackets", "TxErrors", "TxDropped"];

/// The interfaces: name, and figures in the order of [`NETWORK_FIELDS`].
fn interfaces(stats: &Stats) -> impl Iterator<Item = (&str, [u64; 8])> {
    stats.network_interfaces.iter().flatten().map(|interface| {
        let name = interface["Name"].as_str().unwrap_or_default();
        (name, NETWORK_FIELDS.map(|field| interface[field].as_u64().unwrap_or(0)))
    })
}

fn some<T>(value: T) -> MessageField<T> {
    MessageField::some(value)
}

fn legacy(stats: &Stats, oom_kills: u64) -> Metrics {
    let mut metrics = Metrics::new();
    metrics.hugetlb = stats
        .hugetlb
        .iter()
        .map(|(size, pages)| v1::HugetlbStat {
            usage: pages.usage,
            max: pages.max,
            failcnt: pages.failcnt,
            pagesize: size.clone(),
            ..Default::default()
        })
        .collect();
    metrics.pids =
        some(v1::PidsStat { current: stats.pids.current, limit: stats.pids.limit, ..Default::default() });
    let (usage, throttling) = (&stats.cpu.usage, &stats.cpu.throttling);
    metrics.cpu = some(v1::CPUStat {
        usage: some(v1::CPUUsage {
            total: usage.total,
            kernel: usage.kernel,
            user: usage.user,
            per_cpu: usage.percpu.clone(),
            ..Default::default()
        }),
        throttling: some(v1::Throttle {
            periods: throttling.periods,
            throttled_periods: throttling.throttled_periods,
            throttled_time: throttling.throttled_time,
            ..Default::default()
        }),
        ..Default::default()
    });
    metrics.memory = some(memory(stats));
    metrics.blkio = some(v1::BlkIOStat {
        io_service_bytes_recursive: entries(&stats.blkio.io_service_bytes_recursive),
        io_serviced_recursive: entries(&stats.blkio.io_serviced_recursive),
        ..Default::default()
    });
    metrics.network = interfaces(stats)
        .map(
            |(
                name,
                [rx_bytes, rx_packets, rx_errors, rx_dropped, tx_bytes, tx_packets, tx_errors, tx_dropped],
            )| {
                v1::NetworkStat {
                    name: name.into(),
                    rx_bytes,
                    rx_packets,
                    rx_errors,
                    rx_dropped,
                    tx_bytes,
                    tx_packets,
                    tx_errors,
                    tx_dropped,
                    ..Default::default()
                }
            },
        )
        .collect();
    metrics.memory_oom_control = some(v1::MemoryOomControl { oom_kill: oom_kills, ..Default::default() });
    metrics
}

fn memory(stats: &Stats) -> v1::MemoryStat {
    let raw = Raw(&stats.memory.raw);
    let entry = |entry: &MemoryEntry| {
        some(v1::MemoryEntry {
            limit: entry.limit,
            usage: entry.usage,
            max: entry.max,
            failcnt: entry.failcnt,
            ..Default::default()
        })
    };
    v1::MemoryStat {
        cache: raw.get("cache"),
        rss: raw.get("rss"),
        rss_huge: raw.get("rss_huge"),
        mapped_file: raw.get("mapped_file"),
        dirty: raw.get("dirty"),
        writeback: raw.get("writeback"),
        pg_pg_in: raw.get("pgpgin"),
        pg_pg_out: raw.get("pgpgout"),
        pg_fault: raw.get("pgfault"),
        pg_maj_fault: raw.get("pgmajfault"),
        inactive_anon: raw.get("inactive_anon"),
        active_anon: raw.get("active_anon"),
        inactive_file: raw.get("inactive_file"),
        active_file: raw.get("active_file"),
        unevictable: raw.get("unevictable"),
        hierarchical_memory_limit: raw.get("hierarchical_memory_limit"),
        hierarchical_swap_limit: raw.get("hierarchical_memsw_limit"),
        total_cache: raw.get("total_cache"),
        total_rss: raw.get("total_rss"),
        total_rss_huge: raw.get("total_rss_huge"),
        total_mapped_file: raw.get("total_mapped_file"),
        total_dirty: raw.get("total_dirty"),
        total_writeback: raw.get("total_writeback"),
        total_pg_pg_in: raw.get("total_pgpgin"),
        total_pg_pg_out: raw.get("total_pgpgout"),
        total_pg_fault: raw.get("total_pgfault"),
        total_pg_maj_fault: raw.get("total_pgmajfault"),
        total_inactive_anon: raw.get("total_inactive_anon"),
        total_active_anon: raw.get("total_active_anon"),
        total_inactive_file: raw.get("total_inactive_file"),
        total_active_file: raw.get("total_active_file"),
        total_unevictable: raw.get("total_unevictable"),
        usage: entry(&stats.memory.usage),
        swap: entry(&stats.memory.swap),
        kernel: entry(&stats.memory.kernel),
        kernel_tcp: entry(&stats.memory.kernel_tcp),
        ..Default::default()
    }
}

fn entries(list: &[BlkioEntry]) -> Vec<v1::BlkIOEntry> {
    let entry = |entry: &BlkioEntry| v1::BlkIOEntry {
        op: entry.op.clone(),
        major: entry.major,
        minor: entry.minor,
        value: entry.value,
        ..Default::default()
    };
    list.iter().map(entry).collect()
}

/// memory.stat.
struct Raw<'a>(&'a BTreeMap<String, u64>);

impl Raw<'_> {
    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// memory.stat's names in the order of MemoryStat's fields, from 1 on, in cgroup v2.
const MEMORY_FIELDS: [&str; 31] = [
    "anon",
    "file",
    "kernel_stack",
    "slab",
    "sock",
    "shmem",
    "file_mapped",
    "file_dirty",
    "file_writeback",
    "anon_thp",
    "inactive_anon",
    "active_anon",
    "inactive_file",
    "active_file",
    "unevictable",
    "slab_reclaimable",
    "slab_unreclaimable",
    "pgfault",
    "pgmajfault",
    "workingset_refault",
    "workingset_activate",
    "workingset_nodereclaim",
    "pgrefill",
    "pgscan",
    "pgsteal",
    "pgactivate",
    "pgdeactivate",
    "pglazyfree",
    "pglazyfreed",
    "thp_fault_alloc",
    "thp_collapse_alloc",
];

/// A message with fields that are numbers, by field number.
fn numbers(fields: impl IntoIterator<Item = (u32, u64)>) -> Result<Vec<u8>, protobuf::Error> {
    let mut bytes = Vec::new();
    let mut out = CodedOutputStream::vec(&mut bytes);
    for (number, value) in fields.into_iter().filter(|(_, value)| *value != 0) {
        out.write_uint64(number, value)?;
    }
    out.flush()?;
    drop(out);
    Ok(bytes)
}

/// The v2 message; the shim crate does not have its type.
fn unified(stats: &Stats, oom_kills: u64) -> Result<Vec<u8>, protobuf::Error> {
    let (usage, throttling, memory) = (&stats.cpu.usage, &stats.cpu.throttling, &stats.memory);
    let raw = Raw(&memory.raw);
    let mut bytes = Vec::new();
    let mut out = CodedOutputStream::vec(&mut bytes);
    out.write_bytes(1, &numbers([(1, stats.pids.current), (2, stats.pids.limit)])?)?;
    out.write_bytes(
        2,
        &numbers([
            (1, usage.total / 1000),
            (2, usage.user / 1000),
            (3, usage.kernel / 1000),
            (4, throttling.periods),
            (5, throttling.throttled_periods),
            (6, throttling.throttled_time / 1000),
        ])?,
    )?;
    let named = (1..).zip(MEMORY_FIELDS.iter().map(|name| raw.get(name)));
    let (swap, used) = (&memory.swap, &memory.usage);
    let last = [
        (32, used.usage),
        (33, used.limit),
        (34, swap.usage),
        (35, swap.limit),
        (36, used.max),
        (37, swap.max),
    ];
    out.write_bytes(4, &numbers(named.chain(last))?)?;
    let mut io = Vec::new();
    let mut io_out = CodedOutputStream::vec(&mut io);
    for device in devices(stats) {
        io_out.write_bytes(1, &numbers((1..).zip(device))?)?;
    }
    io_out.flush()?;
    drop(io_out);
    out.write_bytes(6, &io)?;
    for (size, pages) in &stats.hugetlb {
        let mut entry = numbers([(1, pages.usage), (2, pages.max), (4, pages.failcnt)])?;
        let mut size_out = CodedOutputStream::vec(&mut entry);
        size_out.write_string(3, size)?;
        size_out.flush()?;
        drop(size_out);
        out.write_bytes(7, &entry)?;
    }
    out.write_bytes(8, &numbers([(5, oom_kills)])?)?;
    for (name, figures) in interfaces(stats) {
        let mut entry = Vec::new();
        let mut name_out = CodedOutputStream::vec(&mut entry);
        name_out.write_string(1, name)?;
        name_out.flush()?;
        drop(name_out);
        entry.extend(numbers((2..).zip(figures))?);
        out.write_bytes(9, &entry)?;
    }
    out.flush()?;
    drop(out);
    Ok(bytes)
}

/// For each device: major, minor, bytes read and written, reads and writes.
fn devices(stats: &Stats) -> Vec<[u64; 6]> {
    let mut devices: BTreeMap<(u64, u64), [u64; 4]> = BTreeMap::new();
    let lists = [&stats.blkio.io_service_bytes_recursive, &stats.blkio.io_serviced_recursive];
    for (at, list) in lists.into_iter().enumerate() {
        for entry in list {
            let op = match entry.op.to_ascii_lowercase().as_str() {
                "read" => 0,
                "write" => 1,
                _ => continue,
            };
            devices.entry((entry.major, entry.minor)).or_default()[2 * at + op] = entry.value;
        }
    }
    devices.into_iter().map(|((major, minor), [rb, wb, r, w])| [major, minor, rb, wb, r, w]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> Stats {
        let mut stats = Stats::default();
        stats.cpu.usage.total = 5_000_000;
        stats.cpu.usage.percpu = vec![2_000_000, 3_000_000];
        stats.pids.current = 7;
        stats.memory.usage = MemoryEntry { limit: 1 << 20, usage: 4096, max: 8192, failcnt: 3 };
        stats.memory.raw = [("rss", 11), ("total_rss", 12), ("anon", 13)].map(|(n, v)| (n.into(), v)).into();
        let entry = |op: &str, value| BlkioEntry { major: 8, minor: 1, op: op.into(), value };
        stats.blkio.io_service_bytes_recursive = vec![entry("Read", 512), entry("Write", 1024)];
        stats.blkio.io_serviced_recursive = vec![entry("Read", 1), entry("Sync", 9)];
        stats
    }

    #[test]
    fn version_1() {
        let any = pack(&stats(), false, 2).unwrap();
        assert_eq!(any.type_url, "io.containerd.cgroups.v1.Metrics");
        let metrics = Metrics::parse_from_bytes(&any.value).unwrap();
        assert_eq!((metrics.memory.rss, metrics.memory.total_rss), (11, 12));
        assert_eq!((metrics.memory.usage.usage, metrics.memory.usage.failcnt), (4096, 3));
        assert_eq!((metrics.pids.current, metrics.cpu.usage.total), (7, 5_000_000));
        assert_eq!(metrics.cpu.usage.per_cpu, [2_000_000, 3_000_000]);
        assert_eq!(metrics.blkio.io_service_bytes_recursive[1].value, 1024);
        assert_eq!(metrics.memory_oom_control.oom_kill, 2);
    }

    #[test]
    fn what_the_kernel_inside_says_is_added() {
        let mut with = stats();
        let event = r#"{"type":"stats","id":"a","data":{"pids":{"current":3},"ringfence":{"threads":3},
            "network_interfaces":[{"Name":"eth0","RxBytes":5,"TxDropped":6}]}}"#;
        complete(&mut with, event);
        let any = pack(&with, false, 0).unwrap();
        let metrics = Metrics::parse_from_bytes(&any.value).unwrap();
        assert_eq!(metrics.pids.current, 3);
        let one = &metrics.network[0];
        assert_eq!((one.name.as_str(), one.rx_bytes, one.tx_dropped), ("eth0", 5, 6));
        let any = pack(&with, true, 0).unwrap();
        assert!(any.value.ends_with(&[0x4a, 10, 0x0a, 4, b'e', b't', b'h', b'0', 0x10, 5, 0x48, 6]));
        // One that does not answer changes nothing.
        for none in ["", "{", r#"{"data":{"pids":{"current":9}}}"#] {
            let mut same = stats();
            complete(&mut same, none);
            assert_eq!(same, stats());
        }
    }

    #[test]
    fn version_2() {
        let any = pack(&stats(), true, 2).unwrap();
        assert_eq!(any.type_url, "io.containerd.cgroups.v2.Metrics");
        // pids, cpu, memory, io, memory_events
        let expected = [
            &[0x0a, 2, 0x08, 7][..],
            &[0x12, 3, 0x08, 0x88, 0x27],
            &[
                0x22, 15, 0x08, 13, 0x80, 0x02, 0x80, 0x20, 0x88, 0x02, 0x80, 0x80, 0x40, 0xa0, 0x02, 0x80,
                0x40,
            ],
            &[0x32, 14, 0x0a, 12, 0x08, 8, 0x10, 1, 0x18, 0x80, 0x04, 0x20, 0x80, 0x08, 0x28, 1],
            &[0x42, 2, 0x28, 2],
        ]
        .concat();
        assert_eq!(any.value, expected);
    }
}
