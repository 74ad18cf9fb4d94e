//! /proc/sys. See proc_sys(5).
//!
//! One row for each value. Values set by the sandbox's specification, or by a guest with the right to set them, are
//! kept in `Kernel::sysctls`. All others show their default.

mod core_pattern;
mod groups;
mod make;
mod numbers;
mod pid_max;
mod stack;
mod users;

use crate::conf;
use abi::{Errno, Result};
use caller::quota::Limit;
use conntrack::Timeout;
use container::Container;
use kernfs::{At, Changes, Child, Entry, Names, What, parse_int};
use keys::Setting;
use make::{apply, fixed, made, namespaces, numbers, quota, range, ro, spec, stack, timeout, words};
use netstack::conf::{Which, Whose};
use netstack::tcp::Algorithm;
use nsproxy::{NsProxy, UtsNamespace};
use numbers::{limit_value, set_numbers};
use pid::PidNamespace;
use rights::Cap;
use std::sync::{Arc, atomic::AtomicU64, atomic::Ordering};
use task::{Kernel, RELEASE, VERSION};
use user_ns::{Kind, UserNamespace};
use vfs::Caller;
use wait::{Events, WaitQueue};

/// The kernel as a task with these namespaces sees it.
struct SysctlView<'a> {
    kernel: &'a Arc<Kernel>,
    ns: Arc<NsProxy>,
    user_ns: Arc<UserNamespace>,
    /// The PID namespace of the task itself.
    pid_ns: Arc<PidNamespace>,
}

impl std::ops::Deref for SysctlView<'_> {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        self.kernel
    }
}

fn seen<'a>(at: &'a At) -> SysctlView<'a> {
    let user_ns =
        at.cx.map_or_else(|| at.kernel().vfs.resources.user_ns.clone(), |cx| cx.creds().user_ns.clone());
    let ns = at.nsproxy();
    let pid_ns = at.cx.and_then(|cx| cx.pid_ns()).unwrap_or_else(|| ns.pid_for_children.clone());
    SysctlView { kernel: at.kernel(), ns, user_ns, pid_ns }
}

/// Default of a value.
enum Value {
    Fixed(&'static str),
    Made(fn(&SysctlView) -> String),
    /// Settings of the TCP/IP stack.
    Stack(&'static [&'static str]),
    /// A time of connection tracking.
    Timeout(Timeout),
    /// How many namespaces, inotify instances and so on each user of the user namespace may have.
    Namespaces(Kind),
}

/// Which processes may set a value, and what that does.
#[derive(Clone, Copy)]
enum Put {
    /// None.
    No,
    /// The specification, and a guest within these bounds: values of the sandbox's own namespaces.
    Range(i64, i64),
    /// The specification, and a guest: any text.
    Words,
    /// The specification only: a container sees these read-only.
    Spec,
    /// As `Range`, and it takes effect at once.
    Apply(fn(&SysctlView, &str) -> Result<()>),
    /// None, although Linux has it writable: the value cannot change.
    Fixed,
    /// The specification, and a guest up to what that gives: how much of the kernel's memory a guest may use.
    Quota(Limit),
    /// The specification, and a guest: this many numbers.
    Numbers(usize),
    /// The specification, and a guest: settings of the TCP/IP stack, which know their bounds.
    Stack(&'static [&'static str]),
    /// The specification, and a guest: a time of connection tracking.
    Timeout(Timeout),
    /// Those with CAP_SYS_RESOURCE in the user namespace.
    Namespaces(Kind),
    /// Those that may set the TCP/IP stack: a range of groups of the user namespace.
    Groups,
    /// Those with CAP_SYS_ADMIN over the PID namespace: its kernel.pid_max.
    PidMax,
}

struct Row {
    path: &'static str,
    mode: u32,
    value: Value,
    put: Put,
}

const INT: i64 = i32::MAX as i64;

static ROWS: &[Row] = &[
    made("fs/aio-nr", |at| at.kernel.spaces.aio.total().to_string()),
    ro("fs/aio-max-nr", "65536"),
    made("fs/dentry-state", |k| format!("{}\t0\t45\t0\t0\t0", k.vfs.dcache().alive())),
    spec("fs/dir-notify-enable", "1"),
    quota("fs/epoll/max_user_watches", |k| limit(k, Limit::EpollWatches), Limit::EpollWatches),
    ro("fs/fanotify/max_queued_events", "16384"),
    ro("fs/fanotify/max_user_groups", "128"),
    ro("fs/fanotify/max_user_marks", "8192"),
    quota("fs/file-max", |k| limit(k, Limit::FileMax), Limit::FileMax),
    made("fs/file-nr", |k| {
        format!("{}\t0\t{}", k.vfs.resources.quotas.files.now(), limit(k, Limit::FileMax))
    }),
    ro("fs/inode-nr", "0\t0"),
    ro("fs/inode-state", "0\t0\t0\t0\t0\t0\t0"),
    quota("fs/inotify/max_queued_events", |k| limit(k, Limit::InotifyEvents), Limit::InotifyEvents),
    quota("fs/inotify/max_user_instances", |k| limit(k, Limit::InotifyInstances), Limit::InotifyInstances),
    quota("fs/inotify/max_user_watches", |k| limit(k, Limit::InotifyWatches), Limit::InotifyWatches),
    apply(
        "fs/lease-break-time",
        |k| k.vfs.resources.lease_break_time.load(Ordering::Relaxed).to_string(),
        |k, v| {
            k.vfs.resources.lease_break_time.store(bounded(v, 0, INT)? as u32, Ordering::Relaxed);
            Ok(())
        },
    ),
    ro("fs/leases-enable", "1"),
    fixed("fs/mount-max", "100000"),
    apply(
        "fs/mqueue/msg_default",
        |k| mqueue_limit(k, 3),
        |k, v| set_mqueue_limit(k, 3, bounded(v, 1, 65536)?),
    ),
    apply("fs/mqueue/msg_max", |k| mqueue_limit(k, 1), |k, v| set_mqueue_limit(k, 1, bounded(v, 1, 65536)?)),
    apply(
        "fs/mqueue/msgsize_default",
        |k| mqueue_limit(k, 4),
        |k, v| set_mqueue_limit(k, 4, bounded(v, 128, 16 << 20)?),
    ),
    apply(
        "fs/mqueue/msgsize_max",
        |k| mqueue_limit(k, 2),
        |k, v| set_mqueue_limit(k, 2, bounded(v, 128, 16 << 20)?),
    ),
    apply("fs/mqueue/queues_max", |k| mqueue_limit(k, 0), |k, v| set_mqueue_limit(k, 0, bounded(v, 0, INT)?)),
    quota("fs/nr_open", |k| limit(k, Limit::NrOpen), Limit::NrOpen),
    spec("fs/overflowgid", "65534"),
    spec("fs/overflowuid", "65534"),
    quota("fs/pipe-max-size", |k| limit(k, Limit::PipeMaxSize), Limit::PipeMaxSize),
    quota("fs/pipe-user-pages-hard", |k| limit(k, Limit::PipeHard), Limit::PipeHard),
    quota("fs/pipe-user-pages-soft", |k| limit(k, Limit::PipeSoft), Limit::PipeSoft),
    apply(
        "fs/protected_fifos",
        |k| k.vfs.resources.protected.fifos.load(Ordering::Relaxed).to_string(),
        |k, v| {
            k.vfs.resources.protected.fifos.store(bounded(v, 0, 2)? as u32, Ordering::Relaxed);
            Ok(())
        },
    ),
    apply(
        "fs/protected_hardlinks",
        |k| u8::from(k.vfs.resources.protected.hardlinks.load(Ordering::Relaxed)).to_string(),
        |k, v| {
            k.vfs.resources.protected.hardlinks.store(bounded(v, 0, 1)? == 1, Ordering::Relaxed);
            Ok(())
        },
    ),
    apply(
        "fs/protected_regular",
        |k| k.vfs.resources.protected.regular.load(Ordering::Relaxed).to_string(),
        |k, v| {
            k.vfs.resources.protected.regular.store(bounded(v, 0, 2)? as u32, Ordering::Relaxed);
            Ok(())
        },
    ),
    apply(
        "fs/protected_symlinks",
        |k| u8::from(k.vfs.resources.protected.symlinks.load(Ordering::Relaxed)).to_string(),
        |k, v| {
            k.vfs.resources.protected.symlinks.store(bounded(v, 0, 1)? == 1, Ordering::Relaxed);
            Ok(())
        },
    ),
    spec("fs/suid_dumpable", "0"),
    ro("kernel/arch", "x86_64"),
    ro("kernel/bootloader_type", "0"),
    made("kernel/cap_last_cap", |_| Cap::LAST.to_string()),
    apply("kernel/core_pattern", |_| "core".into(), core_pattern::put),
    spec("kernel/core_pipe_limit", "0"),
    range("kernel/core_uses_pid", "0", 0, INT),
    spec("kernel/ctrl-alt-del", "0"),
    spec("kernel/dmesg_restrict", "1"),
    apply(
        "kernel/domainname",
        |k| k.ns.uts.names().domainname.clone(),
        |k, v| {
            k.ns.uts.rename(|uts| uts.domainname = v.chars().take(64).collect());
            Ok(())
        },
    ),
    apply(
        "kernel/hostname",
        |k| k.ns.uts.names().nodename.clone(),
        |k, v| {
            k.ns.uts.rename(|uts| uts.nodename = v.chars().take(64).collect());
            Ok(())
        },
    ),
    spec("kernel/io_uring_disabled", "2"),
    apply(
        "kernel/keys/gc_delay",
        |k| key_setting(k, Setting::GcDelay),
        |k, v| set_keys(k, Setting::GcDelay, v),
    ),
    apply(
        "kernel/keys/maxbytes",
        |k| key_setting(k, Setting::MaxBytes),
        |k, v| set_keys(k, Setting::MaxBytes, v),
    ),
    apply(
        "kernel/keys/maxkeys",
        |k| key_setting(k, Setting::MaxKeys),
        |k, v| set_keys(k, Setting::MaxKeys, v),
    ),
    apply(
        "kernel/keys/persistent_keyring_expiry",
        |k| key_setting(k, Setting::PersistentExpiry),
        |k, v| set_keys(k, Setting::PersistentExpiry, v),
    ),
    apply(
        "kernel/keys/root_maxbytes",
        |k| key_setting(k, Setting::RootMaxBytes),
        |k, v| set_keys(k, Setting::RootMaxBytes, v),
    ),
    apply(
        "kernel/keys/root_maxkeys",
        |k| key_setting(k, Setting::RootMaxKeys),
        |k, v| set_keys(k, Setting::RootMaxKeys, v),
    ),
    spec("kernel/kptr_restrict", "1"),
    apply("kernel/msg_next_id", |k| next_id(k, 1), |k, v| set_next_id(k, 1, v)),
    apply(
        "kernel/msgmax",
        |k| k.ns.ipc.sysv.limits.msgmax.load(Ordering::Relaxed).to_string(),
        |k, v| store(&k.ns.ipc.sysv.limits.msgmax, v, INT as u64),
    ),
    apply(
        "kernel/msgmnb",
        |k| k.ns.ipc.sysv.limits.msgmnb.load(Ordering::Relaxed).to_string(),
        |k, v| store(&k.ns.ipc.sysv.limits.msgmnb, v, INT as u64),
    ),
    apply(
        "kernel/msgmni",
        |k| k.ns.ipc.sysv.limits.msgmni.load(Ordering::Relaxed).to_string(),
        |k, v| store(&k.ns.ipc.sysv.limits.msgmni, v, 32768),
    ),
    ro("kernel/ngroups_max", "65536"),
    Row {
        path: "kernel/ns_last_pid",
        mode: 0o666,
        value: Value::Made(|k| k.pid_ns.last().to_string()),
        put: Put::Apply(|k, v| {
            let pid = bounded(v, 0, k.pid_ns.max().into())?;
            k.pid_ns.set_last(pid as i32);
            Ok(())
        }),
    },
    spec("kernel/numa_balancing", "0"),
    made("kernel/osrelease", |_| RELEASE.into()),
    ro("kernel/ostype", "Linux"),
    spec("kernel/overflowgid", "65534"),
    spec("kernel/overflowuid", "65534"),
    spec("kernel/panic", "0"),
    spec("kernel/panic_on_oops", "0"),
    Row { path: "kernel/pid_max", mode: 0o644, value: Value::Made(pid_max::get), put: Put::PidMax },
    numbers("kernel/printk", "4\t4\t1\t7", 4),
    spec("kernel/printk_ratelimit", "5"),
    spec("kernel/printk_ratelimit_burst", "10"),
    spec("kernel/pty/max", "4096"),
    ro("kernel/pty/nr", "0"),
    spec("kernel/pty/reserve", "1024"),
    made("kernel/random/boot_id", |at| boot_id(at.kernel)),
    ro("kernel/random/entropy_avail", "256"),
    ro("kernel/random/poolsize", "256"),
    spec("kernel/random/urandom_min_reseed_secs", "60"),
    made("kernel/random/uuid", |_| uuid()),
    spec("kernel/random/write_wakeup_threshold", "256"),
    spec("kernel/randomize_va_space", "2"),
    spec("kernel/sched_autogroup_enabled", "1"),
    spec("kernel/sched_child_runs_first", "0"),
    spec("kernel/sched_rr_timeslice_ms", "100"),
    spec("kernel/sched_rt_period_us", "1000000"),
    spec("kernel/sched_rt_runtime_us", "950000"),
    ro("kernel/seccomp/actions_avail", "kill_process kill_thread trap errno user_notif trace log allow"),
    ro("kernel/seccomp/actions_logged", "kill_process kill_thread trap errno user_notif trace log"),
    apply(
        "kernel/sem",
        |k| k.ns.ipc.sysv.limits.sem.each_ref().map(|v| v.load(Ordering::Relaxed).to_string()).join("\t"),
        set_sem,
    ),
    apply("kernel/sem_next_id", |k| next_id(k, 2), |k, v| set_next_id(k, 2, v)),
    apply("kernel/shm_next_id", |k| next_id(k, 0), |k, v| set_next_id(k, 0, v)),
    spec("kernel/shm_rmid_forced", "0"),
    apply(
        "kernel/shmall",
        |k| k.ns.ipc.sysv.limits.shmall.load(Ordering::Relaxed).to_string(),
        |k, v| store(&k.ns.ipc.sysv.limits.shmall, v, u64::MAX),
    ),
    apply(
        "kernel/shmmax",
        |k| k.ns.ipc.sysv.limits.shmmax.load(Ordering::Relaxed).to_string(),
        |k, v| store(&k.ns.ipc.sysv.limits.shmmax, v, u64::MAX),
    ),
    apply(
        "kernel/shmmni",
        |k| k.ns.ipc.sysv.limits.shmmni.load(Ordering::Relaxed).to_string(),
        |k, v| store(&k.ns.ipc.sysv.limits.shmmni, v, 32768),
    ),
    spec("kernel/sysctl_writes_strict", "1"),
    spec("kernel/tainted", "0"),
    apply(
        "kernel/threads-max",
        |k| k.most_tasks.load(Ordering::Relaxed).to_string(),
        |k, v| store(&k.most_tasks, v, k.task_bound.load(Ordering::Relaxed)),
    ),
    spec("kernel/unprivileged_bpf_disabled", "2"),
    made("kernel/version", |_| VERSION.into()),
    ro("net/core/bpf_jit_enable", "1"),
    spec("net/core/busy_poll", "0"),
    spec("net/core/busy_read", "0"),
    spec("net/core/default_qdisc", "pfifo_fast"),
    spec("net/core/netdev_max_backlog", "1000"),
    spec("net/core/optmem_max", "131072"),
    spec("net/core/rmem_default", "212992"),
    spec("net/core/rmem_max", "4194304"),
    stack("net/core/somaxconn", &["core/somaxconn"]),
    spec("net/core/wmem_default", "212992"),
    spec("net/core/wmem_max", "4194304"),
    stack("net/ipv4/icmp_echo_ignore_all", &["ipv4/icmp_echo_ignore_all"]),
    stack("net/ipv4/icmp_echo_ignore_broadcasts", &["ipv4/icmp_echo_ignore_broadcasts"]),
    stack("net/ipv4/icmp_msgs_burst", &["ipv4/icmp_msgs_burst"]),
    stack("net/ipv4/icmp_msgs_per_sec", &["ipv4/icmp_msgs_per_sec"]),
    stack("net/ipv4/igmp_max_memberships", &["ipv4/igmp_max_memberships"]),
    stack("net/ipv4/igmp_max_msf", &["ipv4/igmp_max_msf"]),
    stack("net/ipv4/ip_default_ttl", &["ipv4/ip_default_ttl"]),
    stack("net/ipv4/ip_forward", &["ipv4/ip_forward"]),
    stack("net/ipv4/ip_local_port_range", &["ipv4/ip_local_port_range/low", "ipv4/ip_local_port_range/high"]),
    words("net/ipv4/ip_local_reserved_ports", ""),
    stack("net/ipv4/ip_no_pmtu_disc", &["ipv4/ip_no_pmtu_disc"]),
    stack("net/ipv4/ip_nonlocal_bind", &["ipv4/ip_nonlocal_bind"]),
    stack("net/ipv4/ip_unprivileged_port_start", &["ipv4/ip_unprivileged_port_start"]),
    stack("net/ipv4/ipfrag_high_thresh", &["ipv4/ipfrag_high_thresh"]),
    stack("net/ipv4/ipfrag_time", &["ipv4/ipfrag_time"]),
    Row { path: "net/ipv4/ping_group_range", mode: 0o644, value: Value::Made(groups::get), put: Put::Groups },
    stack("net/ipv4/tcp_abort_on_overflow", &["ipv4/tcp_abort_on_overflow"]),
    ro("net/ipv4/tcp_available_congestion_control", "reno cubic bbr"),
    apply(
        "net/ipv4/tcp_congestion_control",
        |k| Algorithm::of_new_connections(&k.ns.net.stack().sysctls).name().into(),
        |k, v| Algorithm::set_for_new_connections(&k.ns.net.stack().sysctls, v.trim()),
    ),
    stack("net/ipv4/tcp_dsack", &["ipv4/tcp_dsack"]),
    stack("net/ipv4/tcp_early_retrans", &["ipv4/tcp_early_retrans"]),
    stack("net/ipv4/tcp_ecn", &["ipv4/tcp_ecn"]),
    stack("net/ipv4/tcp_fack", &["ipv4/tcp_fack"]),
    stack("net/ipv4/tcp_fastopen", &["ipv4/tcp_fastopen"]),
    stack("net/ipv4/tcp_fastopen_blackhole_timeout_sec", &["ipv4/tcp_fastopen_blackhole_timeout_sec"]),
    Row {
        mode: 0o600,
        ..apply(
            "net/ipv4/tcp_fastopen_key",
            |k| k.ns.net.stack().fast_open_keys().to_string(),
            |k, v| k.ns.net.stack().fast_open_keys().set(v.trim()),
        )
    },
    stack("net/ipv4/tcp_fin_timeout", &["ipv4/tcp_fin_timeout"]),
    stack("net/ipv4/tcp_frto", &["ipv4/tcp_frto"]),
    stack("net/ipv4/tcp_invalid_ratelimit", &["ipv4/tcp_invalid_ratelimit"]),
    stack("net/ipv4/tcp_keepalive_intvl", &["ipv4/tcp_keepalive_intvl"]),
    stack("net/ipv4/tcp_keepalive_probes", &["ipv4/tcp_keepalive_probes"]),
    stack("net/ipv4/tcp_keepalive_time", &["ipv4/tcp_keepalive_time"]),
    stack("net/ipv4/tcp_max_orphans", &["ipv4/tcp_max_orphans"]),
    stack("net/ipv4/tcp_max_reordering", &["ipv4/tcp_max_reordering"]),
    stack("net/ipv4/tcp_max_syn_backlog", &["ipv4/tcp_max_syn_backlog"]),
    stack("net/ipv4/tcp_max_tw_buckets", &["ipv4/tcp_max_tw_buckets"]),
    stack("net/ipv4/tcp_min_snd_mss", &["ipv4/tcp_min_snd_mss"]),
    stack("net/ipv4/tcp_min_tso_segs", &["ipv4/tcp_min_tso_segs"]),
    stack("net/ipv4/tcp_moderate_rcvbuf", &["ipv4/tcp_moderate_rcvbuf"]),
    stack("net/ipv4/tcp_notsent_lowat", &["ipv4/tcp_notsent_lowat"]),
    stack("net/ipv4/tcp_orphan_retries", &["ipv4/tcp_orphan_retries"]),
    stack("net/ipv4/tcp_pacing_ca_ratio", &["ipv4/tcp_pacing_ca_ratio"]),
    stack("net/ipv4/tcp_pacing_ss_ratio", &["ipv4/tcp_pacing_ss_ratio"]),
    stack("net/ipv4/tcp_recovery", &["ipv4/tcp_recovery"]),
    stack("net/ipv4/tcp_reordering", &["ipv4/tcp_reordering"]),
    stack("net/ipv4/tcp_retries2", &["ipv4/tcp_retries2"]),
    stack("net/ipv4/tcp_rfc1337", &["ipv4/tcp_rfc1337"]),
    stack("net/ipv4/tcp_rmem", &["ipv4/tcp_rmem/0", "ipv4/tcp_rmem/1", "ipv4/tcp_rmem/2"]),
    stack("net/ipv4/tcp_sack", &["ipv4/tcp_sack"]),
    stack("net/ipv4/tcp_slow_start_after_idle", &["ipv4/tcp_slow_start_after_idle"]),
    stack("net/ipv4/tcp_syn_retries", &["ipv4/tcp_syn_retries"]),
    stack("net/ipv4/tcp_synack_retries", &["ipv4/tcp_synack_retries"]),
    stack("net/ipv4/tcp_syncookies", &["ipv4/tcp_syncookies"]),
    stack("net/ipv4/tcp_timestamps", &["ipv4/tcp_timestamps"]),
    stack("net/ipv4/tcp_tso_win_divisor", &["ipv4/tcp_tso_win_divisor"]),
    stack("net/ipv4/tcp_tw_reuse", &["ipv4/tcp_tw_reuse"]),
    stack("net/ipv4/tcp_window_scaling", &["ipv4/tcp_window_scaling"]),
    stack("net/ipv4/tcp_wmem", &["ipv4/tcp_wmem/0", "ipv4/tcp_wmem/1", "ipv4/tcp_wmem/2"]),
    fixed("net/ipv6/auto_flowlabels", "0"),
    stack("net/ipv6/bindv6only", &["ipv6/bindv6only"]),
    stack("net/ipv6/conf/all/forwarding", &["ipv6/conf/all/forwarding"]),
    stack("net/ipv6/conf/default/hop_limit", &["ipv6/conf/default/hop_limit"]),
    stack("net/ipv6/ip6frag_time", &["ipv6/ip6frag_time"]),
    stack("net/ipv6/ip_nonlocal_bind", &["ipv6/ip_nonlocal_bind"]),
    fixed("net/netfilter/nf_conntrack_acct", "0"),
    fixed("net/netfilter/nf_conntrack_buckets", "65536"),
    fixed("net/netfilter/nf_conntrack_checksum", "1"),
    made("net/netfilter/nf_conntrack_count", |k| {
        k.ns.net.netfilter().connections.count(k.ns.net.now().millis()).to_string()
    }),
    timeout("net/netfilter/nf_conntrack_generic_timeout", Timeout::Generic),
    timeout("net/netfilter/nf_conntrack_icmp_timeout", Timeout::Icmp),
    timeout("net/netfilter/nf_conntrack_icmpv6_timeout", Timeout::Icmpv6),
    fixed("net/netfilter/nf_conntrack_log_invalid", "0"),
    apply("net/netfilter/nf_conntrack_max", most_connections, set_most_connections),
    fixed("net/netfilter/nf_conntrack_tcp_be_liberal", "1"),
    fixed("net/netfilter/nf_conntrack_tcp_loose", "1"),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_close", Timeout::Close),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_close_wait", Timeout::CloseWait),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_established", Timeout::Established),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_fin_wait", Timeout::FinWait),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_last_ack", Timeout::LastAck),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_max_retrans", Timeout::MaxRetrans),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_syn_recv", Timeout::SynRecv),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_syn_sent", Timeout::SynSent),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_time_wait", Timeout::TimeWait),
    timeout("net/netfilter/nf_conntrack_tcp_timeout_unacknowledged", Timeout::Unacknowledged),
    fixed("net/netfilter/nf_conntrack_timestamp", "0"),
    timeout("net/netfilter/nf_conntrack_udp_timeout", Timeout::Udp),
    timeout("net/netfilter/nf_conntrack_udp_timeout_stream", Timeout::UdpStream),
    apply("net/nf_conntrack_max", most_connections, set_most_connections),
    range("net/unix/max_dgram_qlen", "10", 0, INT),
    namespaces("user/max_cgroup_namespaces", Kind::Cgroup),
    namespaces("user/max_fanotify_groups", Kind::FanotifyGroups),
    namespaces("user/max_fanotify_marks", Kind::FanotifyMarks),
    namespaces("user/max_inotify_instances", Kind::InotifyInstances),
    namespaces("user/max_inotify_watches", Kind::InotifyWatches),
    namespaces("user/max_ipc_namespaces", Kind::Ipc),
    namespaces("user/max_mnt_namespaces", Kind::Mount),
    namespaces("user/max_net_namespaces", Kind::Net),
    namespaces("user/max_pid_namespaces", Kind::Pid),
    namespaces("user/max_time_namespaces", Kind::Time),
    namespaces("user/max_user_namespaces", Kind::User),
    namespaces("user/max_uts_namespaces", Kind::Uts),
    spec("vm/admin_reserve_kbytes", "8192"),
    spec("vm/dirty_background_bytes", "0"),
    spec("vm/dirty_background_ratio", "10"),
    spec("vm/dirty_bytes", "0"),
    spec("vm/dirty_expire_centisecs", "3000"),
    spec("vm/dirty_ratio", "20"),
    spec("vm/dirty_writeback_centisecs", "500"),
    Row { path: "vm/drop_caches", mode: 0o200, value: Value::Fixed("0"), put: Put::Spec },
    spec("vm/laptop_mode", "0"),
    spec("vm/legacy_va_layout", "0"),
    spec("vm/max_map_count", "65530"),
    spec("vm/memfd_noexec", "0"),
    spec("vm/min_free_kbytes", "67584"),
    spec("vm/mmap_min_addr", "65536"),
    spec("vm/nr_hugepages", "0"),
    spec("vm/nr_overcommit_hugepages", "0"),
    spec("vm/oom_dump_tasks", "1"),
    spec("vm/oom_kill_allocating_task", "0"),
    spec("vm/overcommit_kbytes", "0"),
    spec("vm/overcommit_memory", "0"),
    spec("vm/overcommit_ratio", "50"),
    spec("vm/page-cluster", "3"),
    spec("vm/panic_on_oom", "0"),
    spec("vm/swappiness", "60"),
    spec("vm/unprivileged_userfaultfd", "0"),
    spec("vm/user_reserve_kbytes", "131072"),
    spec("vm/vfs_cache_pressure", "100"),
    spec("vm/zone_reclaim_mode", "0"),
];

fn limit(k: &Kernel, l: Limit) -> String {
    k.vfs.resources.quotas.limit(l).to_string()
}

fn store(to: &AtomicU64, v: &str, max: u64) -> Result<()> {
    let n = v.trim().parse().map_err(|_| Errno::EINVAL)?;
    if n > max {
        return Err(Errno::EINVAL);
    }
    to.store(n, Ordering::Relaxed);
    Ok(())
}

fn mqueue_limit(k: &SysctlView, which: usize) -> String {
    k.ns.ipc.mqueue.limits.get(which).map_or(0, |v| v.load(Ordering::Relaxed)).to_string()
}

fn set_mqueue_limit(k: &SysctlView, which: usize, v: i64) -> Result<()> {
    if let Some(l) = k.ns.ipc.mqueue.limits.get(which) {
        l.store(v, Ordering::Relaxed);
    }
    Ok(())
}

fn next_id(k: &SysctlView, which: usize) -> String {
    k.ns.ipc.sysv.limits.next_id.get(which).map_or(-1, |v| v.load(Ordering::Relaxed)).to_string()
}

fn set_next_id(k: &SysctlView, which: usize, v: &str) -> Result<()> {
    let n = bounded(v, 0, INT)?;
    if let Some(x) = k.ns.ipc.sysv.limits.next_id.get(which) {
        x.store(n as i32, Ordering::Relaxed);
    }
    Ok(())
}

/// SEMMSL, SEMMNS, SEMOPM, SEMMNI; fewer leave the others alone.
fn set_sem(k: &SysctlView, v: &str) -> Result<()> {
    let max = [INT as u64, INT as u64, 65536, 32768];
    for ((word, to), max) in v.split_whitespace().zip(&k.ns.ipc.sysv.limits.sem).zip(max) {
        store(to, word, max)?;
    }
    Ok(())
}

fn key_setting(k: &SysctlView, which: Setting) -> String {
    k.kernel.keys.setting(which).to_string()
}

fn set_keys(k: &SysctlView, which: Setting, v: &str) -> Result<()> {
    k.kernel.keys.set(which, bounded(v, 0, INT)? as u32);
    Ok(())
}

fn bounded(v: &str, min: i64, max: i64) -> Result<i64> {
    let n = parse_int(v.as_bytes())?;
    if (min..=max).contains(&n) { Ok(n) } else { Err(Errno::EINVAL) }
}

fn most_connections(k: &SysctlView) -> String {
    k.ns.net.netfilter().connections.max().to_string()
}

fn set_most_connections(k: &SysctlView, v: &str) -> Result<()> {
    let max = bounded(v, 0, conntrack::MAX_ENTRIES.into())? as u32;
    k.ns.net.netfilter().connections.set_max(max);
    Ok(())
}

/// A random UUID of version 4.
fn uuid() -> String {
    let mut b = [0u8; 16];
    hostsys::clock::random(&mut b);
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    let h = |r: std::ops::Range<usize>| b[r].iter().map(|x| format!("{x:02x}")).collect::<String>();
    format!("{}-{}-{}-{}-{}", h(0..4), h(4..6), h(6..8), h(8..10), h(10..16))
}

fn boot_id(kernel: &Kernel) -> String {
    kernel.sysctls.lock().entry("kernel/random/boot_id").or_insert_with(uuid).clone()
}

/// Sets a value as the specification asks (`net.core.somaxconn` or with slashes). ENOENT when there is none.
pub fn set(kernel: &Arc<Kernel>, container: &Arc<Container>, name: &str, value: &str) -> Result<()> {
    let path = if name.contains('/') { name.to_string() } else { name.replace('.', "/") };
    let row = ROWS.iter().find(|r| r.path == path).ok_or(Errno::ENOENT)?;
    put(
        &SysctlView {
            kernel,
            ns: container.namespaces.clone(),
            user_ns: kernel.vfs.resources.user_ns.clone(),
            pid_ns: container.pids().clone(),
        },
        row,
        value.trim(),
    )
}

fn put(kernel: &SysctlView, row: &Row, value: &str) -> Result<()> {
    match row.put {
        Put::No => return Err(Errno::EACCES),
        Put::Fixed if value == get(kernel, row) => return Ok(()),
        Put::Fixed => return Err(Errno::EINVAL),
        Put::Apply(f) => return f(kernel, value),
        Put::Stack(["ipv4/ip_forward"]) => {
            let stack = kernel.ns.net.stack();
            return stack.set_conf(Whose::All, Which::Forwarding, bounded(value, 0, 1)?);
        }
        Put::Stack(names) => return stack::set(kernel, names, value),
        Put::Groups => return groups::set(kernel, value),
        Put::PidMax => return pid_max::set(kernel, value),
        Put::Timeout(of) => {
            let seconds = bounded(value, 0, INT)? as u32;
            kernel.ns.net.netfilter().connections.timeouts.set(of, seconds);
            return Ok(());
        }
        Put::Namespaces(kind) => return users::set(kernel, kind, value),
        Put::Quota(l) => {
            kernel.vfs.resources.quotas.give_limit(l, limit_value(l, value)?);
            return Ok(());
        }
        Put::Range(min, max) => {
            bounded(value, min, max)?;
        }
        Put::Numbers(many) => return set_numbers(kernel, row, value, many),
        Put::Words | Put::Spec => {}
    }
    kernel.sysctls.lock().insert(row.path, value.to_string());
    Ok(())
}

fn get(kernel: &SysctlView, row: &Row) -> String {
    if let Some(v) = kernel.sysctls.lock().get(row.path) {
        return v.clone();
    }
    match row.value {
        Value::Fixed(v) => v.to_string(),
        Value::Made(f) => f(kernel),
        Value::Stack(names) => stack::get(kernel, names),
        Value::Namespaces(kind) => users::get(kernel, kind).to_string(),
        Value::Timeout(of) => kernel.ns.net.netfilter().connections.timeouts.get(of).to_string(),
    }
}

/// The numbers of entries below /proc/sys: `row * 16 + depth` for a directory that the row lies in, with
/// depth `LEAF` for the value itself.
const LEAF: i64 = 15;

fn row(n: i64) -> Result<&'static Row> {
    usize::try_from(n / 16).ok().and_then(|i| ROWS.get(i)).ok_or(Errno::ENOENT)
}

fn read(at: &At) -> Result<Vec<u8>> {
    let r = row(at.n)?;
    Ok((get(&seen(at), r) + "\n").into_bytes())
}

fn write(at: &At, data: &[u8]) -> Result<()> {
    let r = row(at.n)?;
    let same = || get(&seen(at), r).split_whitespace().eq(String::from_utf8_lossy(data).split_whitespace());
    // A limit on files could not be opened to be raised again.
    let given = matches!(r.put, Put::Spec | Put::Fixed | Put::Quota(Limit::FileMax));
    // What holds for the whole kernel is not one container's to set for the others of its pod.
    let shared = matches!(r.put, Put::Quota(_) | Put::Numbers(_)) || r.path.starts_with("kernel/core_");
    let of_all = match r.put {
        Put::Namespaces(kind) => kind.has_quota() && seen(at).user_ns.is_initial(),
        _ => shared,
    };
    let others = of_all && !at.kernel().has_one_container();
    if (given || others) && r.path != "vm/drop_caches" && !same() {
        return Err(Errno::EPERM);
    }
    if !at.cx()?.creds().capable(Cap::SYS_ADMIN) && !may_write(at, at.cx()?) {
        return Err(Errno::EPERM);
    }
    let v = String::from_utf8_lossy(data);
    let v = v.trim_end_matches(['\0', '\n', ' ']);
    match r.put {
        Put::Quota(l) => at.kernel().vfs.resources.quotas.lower_limit(l, limit_value(l, v)?),
        _ => put(&seen(at), r, v),
    }
}

/// Values of a network namespace or a user namespace, which processes with the capability there may set.
pub fn judges_writers(at: &At) -> bool {
    conf::is_here(at.n)
        || row(at.n).is_ok_and(|r| {
            matches!(r.put, Put::Stack(_) | Put::Timeout(_) | Put::Namespaces(_) | Put::Groups | Put::PidMax)
        })
}

/// Whether the caller has that capability.
pub fn may_write(at: &At, cx: &dyn Caller) -> bool {
    if conf::is_here(at.n) {
        return conf::may_write(at, cx);
    }
    let (Ok(r), creds) = (row(at.n), cx.creds()) else { return false };
    match r.put {
        Put::Stack(_) | Put::Timeout(_) | Put::Groups => {
            creds.ns_capable(at.nsproxy().net.user_ns(), Cap::NET_ADMIN)
        }
        Put::PidMax => pid_max::may_write(at, cx),
        Put::Namespaces(_) => creds.own_ns_capable(Cap::SYS_RESOURCE),
        _ => false,
    }
}

/// What an open name of the machine knows of: the names may be set by others.
struct MachineNames {
    uts: Arc<UtsNamespace>,
    seen: AtomicU64,
}

impl Changes for MachineNames {
    fn poll(&self) -> Events {
        let now = self.uts.names().version;
        if self.seen.swap(now, Ordering::Relaxed) == now {
            return Events::READABLE | Events::WRITABLE;
        }
        Events::READABLE | Events::ERR | Events::PRI
    }
    fn queue(&self) -> WaitQueue {
        self.uts.names().changed
    }
}

/// Of a value that poll(2) can wait for: how to.
pub fn watch(at: &At) -> Option<Box<dyn Changes>> {
    if !matches!(row(at.n).ok()?.path, "kernel/hostname" | "kernel/domainname") {
        return None;
    }
    let uts = at.nsproxy().uts.clone();
    let seen = AtomicU64::new(uts.names().version);
    Some(Box::new(MachineNames { uts, seen }))
}

static DIR: Entry = Entry { name: "d", mode: 0o555, what: What::Dir(&[], Some(&SYSCTLS)) };
/// Where binfmt_misc would be mounted.
static BINFMT_MISC: Entry = Entry { name: "binfmt_misc", mode: 0o555, what: What::Dir(&[], None) };
static LEAVES: [Entry; 5] = [
    Entry { name: "f", mode: 0o444, what: What::Text(read, None) },
    Entry { name: "f", mode: 0o644, what: What::Text(read, Some(write)) },
    Entry { name: "f", mode: 0o666, what: What::Text(read, Some(write)) },
    Entry { name: "f", mode: 0o600, what: What::Text(read, Some(write)) },
    Entry { name: "f", mode: 0o200, what: What::Text(read, Some(write)) },
];

/// The tree of values as directories.
pub struct Sysctls;
/// The one instance.
pub static SYSCTLS: Sysctls = Sysctls;

impl Sysctls {
    /// Names in the directory `n`, in the order of the rows.
    fn entries(n: i64) -> Result<Vec<(&'static str, Child)>> {
        let depth = (n % 16) as usize;
        let prefix: Vec<&str> = row(n)?.path.split('/').take(depth).collect();
        let mut out: Vec<(&'static str, Child)> = Vec::new();
        for (i, r) in ROWS.iter().enumerate() {
            let mut parts = r.path.split('/');
            if !prefix.iter().all(|p| parts.next() == Some(p)) {
                continue;
            }
            let Some(name) = parts.next() else { continue };
            // The settings of interfaces are elsewhere; their rows are for a specification.
            let of_interfaces = prefix == ["net", "ipv6"] && name == conf::DIR6.name;
            if of_interfaces || out.iter().any(|x| x.0 == name) {
                continue;
            }
            let (entry, d) = match parts.next() {
                Some(_) => (&DIR, depth as i64 + 1),
                None => (LEAVES.iter().find(|e| e.mode == r.mode).unwrap_or(&LEAVES[0]), LEAF),
            };
            out.push((name, Child { entry, proc: None, n: i as i64 * 16 + d }));
        }
        let more: Option<&Entry> = match prefix[..] {
            ["fs"] => Some(&BINFMT_MISC),
            ["net", "ipv4"] => Some(&conf::DIR),
            ["net", "ipv6"] => Some(&conf::DIR6),
            _ => None,
        };
        out.extend(more.map(|entry| (entry.name, Child { entry, proc: None, n: 0 })));
        Ok(out)
    }
}

impl Names for Sysctls {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        let all = Self::entries(at.n)?;
        all.into_iter().find(|x| x.0.as_bytes() == name).map(|x| x.1).ok_or(Errno::ENOENT)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        let all = Self::entries(at.n)?;
        Ok(all.into_iter().enumerate().map(|(i, (n, c))| (i as u64, n.to_string(), c)).collect())
    }
}

#[cfg(test)]
mod tests;
