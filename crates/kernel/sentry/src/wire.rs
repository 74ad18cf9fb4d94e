//! All wiring of one kernel: which families, file system types and devices there are, and what each is given. Nothing else
//! in the kernel knows more of another part than the traits that it declares itself.

use crate::boot::{other, uts};
use container::Limits;
use hostinet::{HostFamily, NetGofer};
use inet::{InetFamily, PacketFamily};
use platform::Platform;
use socket::netlink::NetlinkFamily;
use socket::unix::UnixFamily;
use socket::{Families, NetNamespace};
use spec::{Network, SandboxSpec, StartError};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use syscalls::Calls;
use task::{Jobs, Kernel, Parts};
use tmpfs::{MemFiles, Options, TmpFs};
use user_ns::UserNamespace;
use vfs::{Internal, SuperBlock};

/// Messages in the queues of Unix sockets take at most one part in so many of the sandbox's memory, and so do the queues of
/// internet sockets.
const QUEUE_SHARE: u64 = 4;

/// A kernel without tasks, and its system calls.
pub(crate) fn kernel(
    spec: &SandboxSpec,
    platform: Arc<dyn Platform>,
    memory: Arc<MemFiles>,
    limits: Limits,
    net_gofer: Option<OwnedFd>,
) -> Result<(Arc<Kernel>, Arc<Calls>), StartError> {
    let calls = Calls::new();
    let families = families(&limits, spec.network, net_gofer)?;
    let user_ns = UserNamespace::initial();
    let net = NetNamespace::new(nsproxy::inum::NET, user_ns.clone(), spec.interfaces.clone());
    net.stack().memory.set_limit(queue_limit(&limits));
    let parts =
        Parts { user_ns, platform, calls: calls.clone(), uts: uts(spec), limits, families, net, memory };
    let kernel = Kernel::new(parts);
    let net = &kernel.first.namespaces.net;
    net.start(&kernel.vfs.timers);
    if !spec.network.is_host() {
        net.show_stack();
    }
    kernel.strace.store(spec.strace, Ordering::Relaxed);
    devices(&kernel, spec.network);
    file_system_types(&kernel);
    Ok((kernel, calls))
}

/// Bytes that the queues of one kind of sockets may hold.
fn queue_limit(limits: &Limits) -> usize {
    usize::try_from(limits.memory() / QUEUE_SHARE).unwrap_or(usize::MAX)
}

fn families(limits: &Limits, network: Network, net_gofer: Option<OwnedFd>) -> Result<Families, StartError> {
    let queues = queue_limit(limits);
    let mut families = Families::default();
    families.add(libc::AF_UNIX, Arc::new(UnixFamily::new(queues)));
    families.add(libc::AF_NETLINK, Arc::new(NetlinkFamily));
    if let Network::Host { policed } = network {
        let channel = net_gofer.ok_or_else(|| other("host networking without a network gofer".into()))?;
        let [v4, v6] = HostFamily::pair(NetGofer::new(channel, policed));
        families.add(libc::AF_INET, v4);
        families.add(libc::AF_INET6, v6);
    } else {
        families.add(libc::AF_INET, Arc::new(InetFamily::v4()));
        families.add(libc::AF_INET6, Arc::new(InetFamily::v6()));
        families.add(libc::AF_PACKET, Arc::new(PacketFamily));
    }
    Ok(families)
}

fn devices(kernel: &Arc<Kernel>, network: Network) {
    let devices = &kernel.vfs.devices;
    devfs::register(devices);
    tty::register(devices, &Jobs::of(kernel));
    ipc::pipe::fifo::register(devices);
    if !network.is_host() {
        tun::register(devices, &kernel.first.namespaces.net);
    }
}

fn file_system_types(kernel: &Arc<Kernel>) {
    let types = &kernel.vfs.types;
    // The kernel owns its types: they must not keep it alive.
    let weak = || Arc::downgrade(kernel);
    let k = weak();
    types.register("proc", true, move |cx, _| {
        let k = k.upgrade().ok_or(abi::Errno::ENODEV)?;
        let pids = cx.pid_ns().ok_or(abi::Errno::EPERM)?;
        Ok(SuperBlock::new(procfs::new(k, pids)))
    });
    let k = weak();
    types.register("sysfs", true, move |_, _| {
        Ok(SuperBlock::new(sysfs::new(k.upgrade().ok_or(abi::Errno::ENODEV)?)))
    });
    let k = weak();
    types.register("cgroup2", true, move |_, _| {
        Ok(SuperBlock::new(cgroupfs::new(k.upgrade().ok_or(abi::Errno::ENODEV)?)))
    });
    let memory = kernel.memory.clone();
    types.register("tmpfs", true, move |_, o| Ok(SuperBlock::new(TmpFs::new(&memory, Options::parse(o)?))));
    let memory = kernel.memory.clone();
    types.register("devtmpfs", true, move |cx, _| {
        Ok(SuperBlock::new(devfs::new(&Internal::new(cx.vfs()), &memory)))
    });
    let k = weak();
    types.register("mqueue", true, move |cx, _| {
        // The caller's, or while a container is made the first one's.
        let k = k.upgrade().ok_or(abi::Errno::ENODEV)?;
        let ns = k.task(cx.tid()).map_or_else(|| k.first.namespaces.clone(), |task| task.nsproxy());
        Ok(SuperBlock::new(ns.ipc.mqueue.clone()))
    });
    let jobs = Jobs::of(kernel);
    types.register("devpts", true, move |_, o| Ok(SuperBlock::new(tty::Devpts::new(jobs.clone(), o)?)));
}
