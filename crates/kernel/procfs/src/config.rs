//! /proc/config.gz: the options of Linux's configuration that stand for what this kernel has.

use flate2::Compression;
use flate2::write::GzEncoder;
use kernfs::At;
use std::fmt::Write as _;
use std::io::Write as _;

/// What is there.
const ON: &[&str] = &[
    // The processor, processes and memory.
    "64BIT",
    "X86",
    "X86_64",
    "MMU",
    "SMP",
    "MULTIUSER",
    "PRINTK",
    "POSIX_TIMERS",
    "HIGH_RES_TIMERS",
    "BINFMT_ELF",
    "BINFMT_SCRIPT",
    "COREDUMP",
    "ELF_CORE",
    "CROSS_MEMORY_ATTACH",
    "SHMEM",
    "ADVISE_SYSCALLS",
    "MEMBARRIER",
    "CACHESTAT_SYSCALL",
    "SYSVIPC",
    "SYSVIPC_SYSCTL",
    "POSIX_MQUEUE",
    "POSIX_MQUEUE_SYSCTL",
    "FUTEX",
    "FUTEX_PI",
    "EPOLL",
    "SIGNALFD",
    "TIMERFD",
    "EVENTFD",
    "AIO",
    "FHANDLE",
    "BPF",
    "BPF_SYSCALL",
    "SECCOMP",
    "SECCOMP_FILTER",
    "KEYS",
    "SECURITY_LANDLOCK",
    // Namespaces and control groups.
    "NAMESPACES",
    "UTS_NS",
    "TIME_NS",
    "IPC_NS",
    "USER_NS",
    "PID_NS",
    "NET_NS",
    "CGROUPS",
    "CGROUP_PIDS",
    "CGROUP_FREEZER",
    "CGROUP_BPF",
    // Files.
    "PROC_FS",
    "PROC_SYSCTL",
    "PROC_CHILDREN",
    "SYSCTL",
    "SYSFS",
    "TMPFS",
    "TMPFS_POSIX_ACL",
    "TMPFS_XATTR",
    "DEVTMPFS",
    "UNIX98_PTYS",
    "TTY",
    "FILE_LOCKING",
    "FSNOTIFY",
    "INOTIFY_USER",
    "FANOTIFY",
    "FANOTIFY_ACCESS_PERMISSIONS",
    "FUSE_FS",
    "OVERLAY_FS",
    "EROFS_FS",
    "MEMFD_CREATE",
    // Networks.
    "NET",
    "PACKET",
    "UNIX",
    "INET",
    "IPV6",
    "IP_MULTICAST",
    "IP_ADVANCED_ROUTER",
    "IP_MULTIPLE_TABLES",
    "INET_DIAG",
    "INET_TCP_DIAG",
    "TUN",
    "VETH",
    "BRIDGE",
    "VLAN_8021Q",
    "DUMMY",
    "NETDEVICES",
    "NETFILTER",
    "NF_CONNTRACK",
    "NF_NAT",
    "NF_TABLES",
    "NF_TABLES_INET",
    "NFT_CT",
    "NFT_NAT",
    "NFT_MASQ",
    "IP_NF_IPTABLES",
    "IP_NF_FILTER",
    "IP_NF_NAT",
    "IP6_NF_IPTABLES",
    "IP6_NF_FILTER",
];

/// What programs look for and is not there.
const OFF: &[&str] = &[
    "AUDIT",
    "HUGETLBFS",
    "HUGETLB_PAGE",
    "IO_URING",
    "MEMCG",
    "MODULES",
    "NUMA",
    "PERF_EVENTS",
    "QUOTA",
    "RSEQ",
    "SWAP",
    "UCLAMP_TASK",
    "USERFAULTFD",
];

/// The text.
fn text(release: &str) -> String {
    let mut text = format!("#\n# Linux/x86 {release} Kernel Configuration\n#\n");
    for name in ON {
        let _ = writeln!(text, "CONFIG_{name}=y");
    }
    for name in OFF {
        let _ = writeln!(text, "# CONFIG_{name} is not set");
    }
    text
}

pub fn config(_at: &At) -> abi::Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    // Memory takes everything.
    let _ = out.write_all(text(task::RELEASE).as_bytes());
    Ok(out.finish().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_is_there_twice() {
        let mut all: Vec<&str> = ON.iter().chain(OFF).copied().collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] != two[1]));
    }
}
