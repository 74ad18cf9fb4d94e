//! The list.

use crate::Kind::{Counter, Gauge};
use crate::Scope::{Container, Sandbox, Server};
use crate::Source::{ControlGroup, Kernel, State};
use crate::Unit::{Bytes, Count, Seconds};
use crate::{Figure, Kind, Scope, Source, Unit};

const fn figure(
    name: &'static str,
    (kind, unit): (Kind, Unit),
    (scope, source): (Scope, Source),
    labels: &'static [&'static str],
    help: &'static str,
) -> Figure {
    Figure { name, kind, unit, scope, source, labels, help }
}

macro_rules! figures {
    ($($id:ident = $name:literal, $what:expr, $of:expr, $labels:expr, $help:literal;)*) => {
        $(#[doc = $help] pub static $id: Figure = figure($name, $what, $of, $labels, $help);)*
        /// All figures.
        pub static ALL: &[&Figure] = &[$(&$id),*];
    };
}

figures! {
    // The names of runsc, where it has the figure.
    SANDBOX_PRESENCE = "sandbox_presence", (Gauge, Count), (Sandbox, State), &[],
        "1 for each known sandbox.";
    SANDBOX_RUNNING = "sandbox_running", (Gauge, Count), (Sandbox, State), &[],
        "1 for a sandbox that runs, 0 for one that has been created or is paused.";
    SANDBOX_METADATA = "sandbox_metadata", (Gauge, Count), (Sandbox, State),
        &["version", "status", "owner"],
        "1, with facts about the sandbox as labels: version of the metric server, status, user that made it.";
    SANDBOX_CREATION = "sandbox_creation_time_seconds", (Gauge, Seconds), (Sandbox, State), &[],
        "When the sandbox was created, in seconds since 1970.";
    SANDBOXES_RUNNING = "num_sandboxes_running", (Gauge, Count), (Server, State), &[],
        "Sandboxes that run.";
    SANDBOXES_BROKEN = "num_sandboxes_broken_metrics", (Gauge, Count), (Server, State), &[],
        "Sandboxes that run and have not answered within the time limit, or have answered nonsense.";
    SANDBOXES_SEEN = "num_sandboxes_total", (Counter, Count), (Server, State), &[],
        "Sandboxes that the metric server has seen since its start.";

    CONTAINER_RUNNING = "container_running", (Gauge, Count), (Container, State), &[],
        "1 for a container that runs, 0 for one that has been created, is paused or has ended.";

    CPU = "processor_seconds_total", (Counter, Seconds), (Container, Kernel), &["mode"],
        "Processor time of the container's programs: user in their own code, system in the kernel inside for them.";
    SENTRY_CPU = "sentry_processor_seconds_total", (Counter, Seconds), (Sandbox, Kernel), &[],
        "Processor time of the process of the kernel inside, which includes the system time of the containers.";
    UPTIME = "uptime_seconds", (Gauge, Seconds), (Sandbox, Kernel), &[],
        "Time since the kernel inside started.";
    LOAD = "running_threads", (Gauge, Count), (Sandbox, Kernel), &[],
        "Threads of programs that do not sleep.";
    PROCESSES = "processes", (Gauge, Count), (Container, Kernel), &[],
        "Processes, without those that have ended and have not been waited for.";
    THREADS = "threads", (Gauge, Count), (Container, Kernel), &[],
        "Threads of all processes.";
    THREADS_MAX = "threads_limit", (Gauge, Count), (Container, Kernel), &[],
        "Most threads that the container may have (pids.max); missing without a limit.";
    PROCESSES_MADE = "processes_created_total", (Counter, Count), (Container, Kernel), &[],
        "Processes made by fork(2), vfork(2) and clone(2), and processes started from outside.";
    THREADS_MADE = "threads_created_total", (Counter, Count), (Container, Kernel), &[],
        "Threads made by clone(2) in processes that had one already.";
    SLEEPS = "context_switches_total", (Counter, Count), (Sandbox, Kernel), &[],
        "Sleeps of threads in the kernel inside.";
    INTERRUPTS = "interrupts_total", (Counter, Count), (Sandbox, Kernel), &[],
        "Times that the kernel inside interrupted a thread in a program's code.";
    SIGNALS = "signals_delivered_total", (Counter, Count), (Container, Kernel), &[],
        "Signals that threads have taken, for a handler, a default action, sigwait(2) or a signalfd(2).";
    FAULTS = "faults_total", (Counter, Count), (Container, Kernel), &[],
        "Faults of programs that the kernel inside served: signals such as SIGSEGV, and stacks that grow.";

    SYSCALLS = "syscalls_total", (Counter, Count), (Container, Kernel), &[],
        "System calls that the kernel inside served. Calls that the program's side answers alone, such as getpid(2), are not among them.";
    UNIMPLEMENTED = "unimplemented_syscalls_total", (Counter, Count), (Sandbox, Kernel), &["sysno"],
        "System calls that were made and are not implemented, by number; other for numbers that Linux does not use.";

    FS_OPENS = "fs_opens_total", (Counter, Count), (Container, Kernel), &[],
        "Files opened by open(2) and its like.";
    FS_READS = "fs_reads_total", (Counter, Count), (Container, Kernel), &[],
        "Calls that read (syscr of proc_pid_io(5)), from files of any kind.";
    FS_WRITES = "fs_writes_total", (Counter, Count), (Container, Kernel), &[],
        "Calls that write (syscw of proc_pid_io(5)), to files of any kind.";
    FS_READ_BYTES = "fs_read_bytes_total", (Counter, Bytes), (Container, Kernel), &[],
        "Bytes that calls have read (rchar of proc_pid_io(5)).";
    FS_WRITTEN_BYTES = "fs_written_bytes_total", (Counter, Bytes), (Container, Kernel), &[],
        "Bytes that calls have written (wchar of proc_pid_io(5)).";
    OPEN_FILES = "open_files", (Gauge, Count), (Sandbox, Kernel), &[],
        "Open files of all containers (file-nr of proc(5)).";

    MEMORY_FILES = "tmpfs_mapped_bytes", (Gauge, Bytes), (Sandbox, Kernel), &[],
        "Memory of files in memory that programs have mapped or that are large: tmpfs, memfd_create(2), shared memory.";
    HEAP = "kernel_heap_bytes", (Gauge, Bytes), (Sandbox, Kernel), &[],
        "Heap of the kernel inside: its own objects, and small files in memory.";

    NETWORK_RECEIVED_BYTES = "network_receive_bytes_total", (Counter, Bytes), (Sandbox, Kernel), &["interface"],
        "Bytes received.";
    NETWORK_RECEIVED = "network_receive_packets_total", (Counter, Count), (Sandbox, Kernel), &["interface"],
        "Packets received.";
    NETWORK_RECEIVE_ERRORS = "network_receive_errors_total", (Counter, Count), (Sandbox, Kernel), &["interface"],
        "Packets received that were broken.";
    NETWORK_RECEIVE_DROPS = "network_receive_dropped_total", (Counter, Count), (Sandbox, Kernel), &["interface"],
        "Packets received that were dropped.";
    NETWORK_SENT_BYTES = "network_transmit_bytes_total", (Counter, Bytes), (Sandbox, Kernel), &["interface"],
        "Bytes sent.";
    NETWORK_SENT = "network_transmit_packets_total", (Counter, Count), (Sandbox, Kernel), &["interface"],
        "Packets sent.";
    NETWORK_SEND_ERRORS = "network_transmit_errors_total", (Counter, Count), (Sandbox, Kernel), &["interface"],
        "Packets that could not be sent.";
    NETWORK_SEND_DROPS = "network_transmit_dropped_total", (Counter, Count), (Sandbox, Kernel), &["interface"],
        "Packets to be sent that were dropped.";
    NETSTACK = "netstack_events_total", (Counter, Count), (Sandbox, Kernel), &["protocol", "event"],
        "Counters of /proc/net/snmp, snmp6 and netstat, under the names they have there: RetransSegs are retransmissions of TCP.";
    TCP_CONNECTIONS = "tcp_connections_established", (Gauge, Count), (Sandbox, Kernel), &[],
        "TCP connections that are established (CurrEstab).";
    TRACE_SENT = "trace_points_sent_total", (Counter, Count), (Sandbox, Kernel), &["session", "sink"],
        "Trace points that the sinks of a trace session took.";
    TRACE_DROPS = "trace_points_dropped_total", (Counter, Count), (Sandbox, Kernel), &["session", "sink"],
        "Trace points that the sinks of a trace session did not take.";

    HOST_CPU = "cgroup_processor_seconds_total", (Counter, Seconds), (Container, ControlGroup), &["mode"],
        "Processor time of all processes of the control group, the kernel inside among them.";
    HOST_THROTTLED = "cgroup_throttled_seconds_total", (Counter, Seconds), (Container, ControlGroup), &[],
        "Time for which the limit on processor time held the group back.";
    HOST_MEMORY = "cgroup_memory_usage_bytes", (Gauge, Bytes), (Container, ControlGroup), &[],
        "Memory that counts towards the limit.";
    HOST_MEMORY_LIMIT = "cgroup_memory_limit_bytes", (Gauge, Bytes), (Container, ControlGroup), &[],
        "The limit on memory; missing without a limit.";
    HOST_MEMORY_KIND = "cgroup_memory_bytes", (Gauge, Bytes), (Container, ControlGroup), &["kind"],
        "Memory by kind, from memory.stat: anonymous, file (the page cache), tmpfs (shared memory), kernel (of the host).";
    HOST_FAULTS = "cgroup_page_faults_total", (Counter, Count), (Container, ControlGroup), &["kind"],
        "Page faults by kind: all, and major ones, which waited for a disk.";
    HOST_OOM_KILLS = "cgroup_oom_kills_total", (Counter, Count), (Container, ControlGroup), &[],
        "Processes that the host killed for want of memory.";
    HOST_PIDS = "cgroup_threads", (Gauge, Count), (Container, ControlGroup), &[],
        "Threads of the host in the group: those of the programs, and those of the kernel inside.";
    HOST_IO_BYTES = "cgroup_block_bytes_total", (Counter, Bytes), (Container, ControlGroup), &["device", "op"],
        "Bytes read from and written to block devices.";
    HOST_IO = "cgroup_block_operations_total", (Counter, Count), (Container, ControlGroup), &["device", "op"],
        "Reads from and writes to block devices.";
}
