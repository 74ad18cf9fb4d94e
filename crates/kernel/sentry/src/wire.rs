//! All wiring of one kernel: which families, file system types and devices there are, and what each is given. Nothing else
//! in the kernel knows more of another part than the traits that it declares itself.

use crate::errors::other;
use crate::host_side::HostSide;
use crate::settings::{offsets, uts};
use container::Limits;
use hostinet::{HostFamily, NetGofer};
use inet::{InetFamily, PacketFamily};
use ktime::{Clock, Ktime};
use mounts::fs_parameters::{ParameterSpec, Takes};
use socket::family::{ByNamespace, Family};
use socket::netlink::NetlinkFamily;
use socket::unix::UnixFamily;
use socket::{Families, NetNamespace};
use spec::{Network, SandboxSpec, StartError};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use syscalls::Calls;
use task::{HostFigures, Jobs, Kernel, MakeNet, Parts};
use tmpfs::{Options, TmpFs};
use user_ns::UserNamespace;
use vfs::{Internal, SuperBlock};

/// Messages in the queues of Unix sockets take at most one part in so many of the sandbox's memory, and so do the queues of
/// internet sockets.
const QUEUE_SHARE: u64 = 4;

/// Rules of packet filters and tracked connections take at most one part in so many.
const FILTER_SHARE: u64 = 8;

/// A kernel without tasks, with this clock, that started at this moment.
pub(crate) fn kernel(
    spec: &SandboxSpec,
    host: HostSide,
    limits: Limits,
    net_gofer: Option<OwnedFd>,
    (clock, boot): (Clock, Ktime),
) -> Result<Arc<Kernel>, StartError> {
    let HostSide { platform, memory, figures } = host;
    let figures = HostFigures::new(figures);
    let calls = Calls::new();
    let families = families(&limits, spec.network, net_gofer)?;
    let user_ns = match spec.id_maps.iter().any(|map| !map.is_empty()) {
        true => UserNamespace::initial_mapped(),
        false => UserNamespace::initial(),
    };
    let (queues, filters) = (queue_limit(&limits), filter_limit(&limits));
    let (owner, interfaces) = (user_ns.clone(), spec.interfaces.clone());
    let number = if spec.network.is_host() { nsproxy::inum::HOST_NET } else { nsproxy::inum::NET };
    let net: MakeNet = Box::new(move |timers| NetNamespace::new(number, owner, interfaces, timers));
    let (uts, offsets) = (uts(spec), offsets(spec)?);
    let parts =
        Parts { user_ns, platform, calls, uts, offsets, limits, families, net, memory, figures, clock, boot };
    let kernel = Kernel::new(parts);
    let net = &kernel.first.namespaces.net;
    net.stack().memory.set_limit(queues);
    net.nets().filters.set_limit(filters);
    net.set_log(Arc::new(Lines(kernel.log.clone())));
    if !spec.network.is_host() {
        net.show_stack();
    }
    let logged = syscalls::numbers(&spec.strace_only)
        .map_err(|name| other(format!("--strace-syscalls: {name:?} is no system call")))?;
    if !logged.is_empty() {
        kernel.trace.log_only(&logged);
    }
    kernel.set_strace(spec.strace);
    devices(&kernel, spec.network);
    file_system_types(&kernel);
    Ok(kernel)
}

/// The kernel's log for what rules of netfilter write.
struct Lines(Arc<kmsg::Log>);

impl netfilter::Log for Lines {
    fn line(&self, level: u8, text: &str) {
        self.0.print(u32::from(level), text);
    }
}

/// Bytes that the queues of one kind of sockets may hold.
fn queue_limit(limits: &Limits) -> usize {
    usize::try_from(limits.memory() / QUEUE_SHARE).unwrap_or(usize::MAX)
}

/// Bytes that the rules and tracked connections of all network namespaces may take.
fn filter_limit(limits: &Limits) -> usize {
    usize::try_from(limits.memory() / FILTER_SHARE).unwrap_or(usize::MAX)
}

fn families(limits: &Limits, network: Network, net_gofer: Option<OwnedFd>) -> Result<Families, StartError> {
    let queues = queue_limit(limits);
    let mut families = Families::default();
    families.add(libc::AF_UNIX, Arc::new(UnixFamily::new(queues)));
    families.add(libc::AF_NETLINK, Arc::new(NetlinkFamily));
    if let Network::Host { policed } = network {
        let channel = net_gofer.ok_or_else(|| other("host networking without a network gofer".into()))?;
        let [v4, v6] = HostFamily::pair(NetGofer::new(channel, policed));
        let in_made =
            |initial: Option<Arc<dyn Family>>, made: Arc<dyn Family>| Arc::new(ByNamespace { initial, made });
        families.add(libc::AF_INET, in_made(Some(v4), Arc::new(InetFamily::v4())));
        families.add(libc::AF_INET6, in_made(Some(v6), Arc::new(InetFamily::v6())));
        families.add(libc::AF_PACKET, in_made(None, Arc::new(PacketFamily)));
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
    fuse::register(devices);
    loopdev::register(devices, &kernel.containers.loops);
    if !network.is_host() {
        tun::register(devices, &kernel.first.namespaces.net);
    }
}

/// Parameters of cgroup2: what they switch is as it is.
const CGROUP2: &[ParameterSpec] = &[
    ("nsdelegate", Takes::Flag),
    ("favordynmods", Takes::Flag),
    ("memory_localevents", Takes::Flag),
    ("memory_recursiveprot", Takes::Flag),
    ("memory_hugetlb_accounting", Takes::Flag),
    ("pids_localevents", Takes::Flag),
];

fn file_system_types(kernel: &Arc<Kernel>) {
    let types = &kernel.fs_types;
    // The kernel owns its types: they must not keep it alive.
    let weak = || Arc::downgrade(kernel);
    let k = weak();
    types.register_with("proc", &[], move |cx, _| {
        let k = k.upgrade().ok_or(abi::Errno::ENODEV)?;
        let pids = cx.pid_ns().ok_or(abi::Errno::EPERM)?;
        Ok(SuperBlock::new(procfs::new(k, pids)))
    });
    let k = weak();
    types.register_with("sysfs", &[], move |_, _| {
        Ok(SuperBlock::new(sysfs::new(k.upgrade().ok_or(abi::Errno::ENODEV)?)))
    });
    let k = weak();
    types.register_with("cgroup2", CGROUP2, move |cx, _| {
        let k = k.upgrade().ok_or(abi::Errno::ENODEV)?;
        let ns = cx.namespaces().unwrap_or_else(|| k.first.namespaces.clone());
        Ok(SuperBlock::new(cgroupfs::tree(&k, &ns.cgroup)))
    });
    let memory = kernel.memory.clone();
    types.register_with("tmpfs", tmpfs::KNOWN, move |cx, r| {
        Ok(SuperBlock::new(TmpFs::new(&memory, Options::parse_for(&cx.creds(), &r.text())?)))
    });
    let memory = kernel.memory.clone();
    // It has no limits, and ignores parameters that it does not know.
    types.register("ramfs", true, move |cx, o| Ok(SuperBlock::new(TmpFs::ramfs(&memory, &cx.creds(), o)?)));
    let memory = kernel.memory.clone();
    types.register_with("devtmpfs", tmpfs::KNOWN, move |cx, _| {
        Ok(SuperBlock::new(devfs::new(&Internal::new(cx.vfs()), &memory)))
    });
    let k = weak();
    types.register_with("mqueue", &[], move |cx, _| {
        // The caller's, or while a container is made the first one's.
        let k = k.upgrade().ok_or(abi::Errno::ENODEV)?;
        let ns = cx.namespaces().unwrap_or_else(|| k.first.namespaces.clone());
        Ok(SuperBlock::new(ns.ipc.mqueue.clone()))
    });
    types.register_with("overlay", overlayfs::KNOWN, |cx, r| overlayfs::mount(cx, r));
    let memory = kernel.memory.clone();
    types.register_with("fuse", fuse::KNOWN, move |cx, r| fuse::mount(cx, r, &memory));
    let memory = kernel.memory.clone();
    types.register_for_devices("erofs", erofs::KNOWN, move |cx, r| erofs::mount(cx, r, &memory));
    let jobs = Jobs::of(kernel);
    types.register_with("devpts", tty::DEVPTS, move |cx, r| {
        Ok(SuperBlock::new(tty::Devpts::new(jobs.clone(), cx, &r.text())?))
    });
    user_namespaces(kernel);
}

/// The types that are made for user namespaces as well, and which one an instance belongs to.
fn user_namespaces(kernel: &Arc<Kernel>) {
    let types = &kernel.fs_types;
    for name in ["tmpfs", "ramfs", "devpts", "overlay", "fuse"] {
        types.open_to_user_namespaces(name, |cx| cx.creds().user_ns.clone());
    }
    types.open_to_user_namespaces("proc", |cx| match cx.pid_ns() {
        Some(pids) => pids.user_ns().clone(),
        None => cx.creds().user_ns.clone(),
    });
    let of_set = |name: &str, owner: fn(&nsproxy::NsProxy) -> &Arc<UserNamespace>| {
        types.open_to_user_namespaces(name, move |cx| match cx.namespaces() {
            Some(namespaces) => owner(&namespaces).clone(),
            None => cx.creds().user_ns.clone(),
        });
    };
    of_set("sysfs", |set| set.net.user_ns());
    of_set("mqueue", |set| set.ipc.user_ns());
    of_set("cgroup2", |set| set.cgroup.user_ns());
}
