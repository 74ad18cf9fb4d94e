//! The figures of a container and of its sandbox, for those that watch it. docs/metrics.md has the table.
//!
//! All are read from counters that the kernel keeps for other ends, or that threads keep for themselves. So a sandbox
//! that nothing watches pays nothing for them.

use container::Container;
use metrics::{Figure, Sample, Samples};
use netstack::counters::{Counter, Link};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::{Activity, Kernel};

/// The figures of a container; of the one that the sandbox began with, those of the sandbox as well.
pub(crate) fn all(kernel: &Arc<Kernel>, container: &Arc<Container>) -> Vec<Sample> {
    let mut samples = Samples::default();
    tasks(kernel, container, &mut samples);
    if container.index() == 0 {
        sandbox(kernel, &mut samples);
        traces(kernel, &mut samples);
        network(kernel, &mut samples);
    }
    samples.into_vec()
}

fn tasks(kernel: &Kernel, container: &Arc<Container>, to: &mut Samples) {
    let [user, system] = kernel.time_in(container.cgroup());
    to.add(&metrics::CPU, &["user"], user);
    to.add(&metrics::CPU, &["system"], system);
    let Activity { io, calls, opens, signals, faults, processes, threads } = kernel.activity(container);
    let (processes_made, threads_made) = container.totals.made();
    let [read, written, reads, writes] = io;
    for (figure, value) in [
        (&metrics::PROCESSES, processes),
        (&metrics::THREADS, threads),
        (&metrics::PROCESSES_MADE, processes_made),
        (&metrics::THREADS_MADE, threads_made),
        (&metrics::SIGNALS, signals),
        (&metrics::FAULTS, faults),
        (&metrics::SYSCALLS, calls),
        (&metrics::FS_OPENS, opens),
        (&metrics::FS_READS, reads),
        (&metrics::FS_WRITES, writes),
        (&metrics::FS_READ_BYTES, read),
        (&metrics::FS_WRITTEN_BYTES, written),
    ] {
        to.add(figure, &[], value);
    }
    let limit = container.cgroup().pids().max;
    if limit != u64::MAX {
        to.add(&metrics::THREADS_MAX, &[], limit);
    }
}

fn sandbox(kernel: &Kernel, to: &mut Samples) {
    for (figure, value) in [
        (&metrics::SENTRY_CPU, hostsys::clock::own_cpu_ns()),
        (&metrics::UPTIME, kernel.clock().now().since(kernel.boot).as_nanos() as u64),
        (&metrics::LOAD, kernel.running().0 as u64),
        (&metrics::SLEEPS, kernel.sleeps()),
        (&metrics::INTERRUPTS, kernel.interrupts.load(Ordering::Relaxed)),
        (&metrics::OPEN_FILES, kernel.vfs.resources.quotas.files.now()),
        (&metrics::MEMORY_FILES, kernel.memory.bytes()),
        (&metrics::HEAP, hostsys::heap::used()),
    ] {
        to.add(figure, &[], value);
    }
    for (number, count) in kernel.calls.missing() {
        let number = number.map_or_else(|| "other".into(), |number| number.to_string());
        to.add(&metrics::UNIMPLEMENTED, &[&number], count);
    }
}

/// What the sinks of trace sessions took and did not take, those of a kind together.
fn traces(kernel: &Kernel, to: &mut Samples) {
    for session in kernel.trace.list() {
        let mut kinds: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for sink in session.sinks {
            let [sent, dropped] = kinds.entry(sink.kind).or_default();
            *sent += sink.sent;
            *dropped += sink.dropped;
        }
        for (kind, [sent, dropped]) in kinds {
            to.add(&metrics::TRACE_SENT, &[&session.name, &kind], sent);
            to.add(&metrics::TRACE_DROPS, &[&session.name, &kind], dropped);
        }
    }
}

/// What is counted of an interface.
type OfLink = fn(&Link) -> &Counter;

const OF_LINK: [(&Figure, OfLink); 8] = [
    (&metrics::NETWORK_RECEIVED_BYTES, |c| &c.rx_bytes),
    (&metrics::NETWORK_RECEIVED, |c| &c.rx_packets),
    (&metrics::NETWORK_RECEIVE_ERRORS, |c| &c.rx_errors),
    (&metrics::NETWORK_RECEIVE_DROPS, |c| &c.rx_dropped),
    (&metrics::NETWORK_SENT_BYTES, |c| &c.tx_bytes),
    (&metrics::NETWORK_SENT, |c| &c.tx_packets),
    (&metrics::NETWORK_SEND_ERRORS, |c| &c.tx_errors),
    (&metrics::NETWORK_SEND_DROPS, |c| &c.tx_dropped),
];

/// The TCP/IP stack of the first network namespace. With the host's own sockets there is none to ask.
fn network(kernel: &Kernel, to: &mut Samples) {
    let net = &kernel.first.namespaces.net;
    if !net.shows_stack() {
        return;
    }
    let stack = net.stack();
    for interface in &net.interfaces().links {
        let Some(link) = stack.link_by_name(&interface.name) else { continue };
        for (figure, of) in OF_LINK {
            to.add(figure, &[&interface.name], of(&link.counters).get());
        }
    }
    let counters = &stack.counters;
    for (protocol, values) in [
        ("Ip", counters.ip.values()),
        ("Ip6", counters.ip6.values()),
        ("Icmp", counters.icmp.values()),
        ("Icmp6", counters.icmp6.values()),
        ("Udp", counters.udp.values()),
        ("Udp6", counters.udp6.values()),
        ("UdpLite", counters.udp_lite.values()),
        ("UdpLite6", counters.udp_lite6.values()),
        ("Tcp", counters.tcp.values()),
    ] {
        // The one that may fall has a figure of its own.
        for (event, value) in values.into_iter().filter(|(event, _)| *event != "CurrEstab") {
            to.add(&metrics::NETSTACK, &[protocol, event], value);
        }
    }
    to.add(&metrics::TCP_CONNECTIONS, &[], counters.tcp.curr_estab.get());
}
