//! Connections and datagrams of the host's processes that are in the container's network namespace.
//!
//! The runtime leads the packets that the host's stack of the namespace sends to 127.0.0.1, to the namespace's own
//! addresses and to other hosts into a TUN interface (`host_interfaces::inward`). A thread reads them here. It carries
//! what they say, not the packets themselves, into the stack inside: for each connection and each pair of UDP ports there
//! is a socket of the stack inside, which connects to the same destination. So programs inside see peers as natively, the
//! packet filter inside applies, and a port inside without a listener refuses. It works for other hosts as well: Docker's
//! name server asks those that know other names from the container's namespace.
//!
//! A second stack is the other end of the host's TCP connections. It is made when the first packet comes. The same stack
//! leads connections to 127.0.0.11 inside to Docker's name server, which takes TCP as well.
//!
//! Packets come from processes of the host, and are checked all the same. The guest's share is what its own sockets send.
//! Bounds: connections, connections that are being made, pairs of UDP ports, bytes on their way for each. A checkpoint
//! keeps nothing of this. Lock rank: none; the thread owns everything.

mod flows;
mod packet;
mod streams;

use abi::Result;
use flows::Flows;
use host_interfaces::{HOST_SIDE, HOST_SIDE_V6, Listeners};
use ktime::{Clock, Ktime};
use netstack::conf::{Which, Whose};
use netstack::driver::{Device, Features};
use netstack::frame::Frame;
use netstack::iface::{Config, Kind};
use netstack::notify::{Events, Notify};
use netstack::route::{Route, RouteKind, TABLE_LOCAL};
use netstack::wire::eth::Mac;
use netstack::{NoAlarm, Stack, vnet};
use packet::{Packet, Transport};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno as HostErrno;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use streams::Streams;

/// Longest packet, behind its header.
const LONGEST: usize = vnet::HEADER + 65535;
/// Packets that are taken before the sockets inside are looked at.
const BATCH: usize = 64;

/// Wakes the thread when a socket has something.
pub(crate) struct Wake {
    bell: Arc<OwnedFd>,
    /// Something has happened since the last look.
    set: AtomicBool,
}

impl Wake {
    fn new(bell: &Arc<OwnedFd>) -> Arc<Wake> {
        Arc::new(Wake { bell: bell.clone(), set: AtomicBool::new(true) })
    }

    /// Whether something has happened.
    fn take(&self) -> bool {
        self.set.swap(false, Ordering::AcqRel)
    }
}

impl Notify for Wake {
    fn changed(&self, _events: Events) {
        if !self.set.swap(true, Ordering::AcqRel) {
            let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        }
    }
}

/// The host's side of the TUN interface.
struct Tun(Arc<OwnedFd>);

impl Device for Tun {
    fn features(&self) -> Features {
        Features { checksum: true, tso4: true, tso6: true }
    }

    /// The host takes a packet at once, or it is lost.
    fn transmit(&self, frame: Frame) {
        let header = vnet::encode(&frame.buf, 0, &frame.offload);
        let parts = [IoSlice::new(&header), IoSlice::new(&frame.buf)];
        let _ = rustix::io::retry_on_intr(|| rustix::io::writev(&*self.0, &parts));
    }
}

/// The thread, which ends when this is dropped.
pub(crate) struct Inward {
    told: Arc<Told>,
    bell: Arc<OwnedFd>,
}

/// What others tell the thread, and then ring its bell.
#[derive(Default)]
struct Told {
    end: AtomicBool,
    /// There is a name server.
    names: AtomicBool,
}

impl Drop for Inward {
    fn drop(&mut self) {
        self.told.end.store(true, Ordering::Release);
        self.ring();
    }
}

impl Inward {
    /// Starts it, with the interface's file and what tells of the namespace where that is.
    pub(crate) fn start(
        stack: &Arc<Stack>,
        clock: Clock,
        (tun, listeners): (OwnedFd, Listeners),
    ) -> Result<Inward> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| abi::Errno::from_raw(error.raw_os_error()))?;
        let inward = Inward { told: Arc::default(), bell: Arc::new(bell) };
        let (told, bell) = (inward.told.clone(), inward.bell.clone());
        let (streams, flows) = (Streams::new(bell.clone(), listeners), Flows::new(bell.clone()));
        let inside = Arc::downgrade(stack);
        let pump = Pump { inside, clock, tun: Arc::new(tun), near: None, streams, flows };
        std::thread::Builder::new()
            .name("inward".into())
            .stack_size(256 << 10)
            .spawn(move || pump.run(&bell, &told))?;
        Ok(inward)
    }

    /// Has it lead connections to the name server's address inside to that server.
    pub(crate) fn serve_names(&self) {
        self.told.names.store(true, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

struct Pump {
    inside: Weak<Stack>,
    clock: Clock,
    tun: Arc<OwnedFd>,
    /// The other end of the host's connections.
    near: Option<Arc<Stack>>,
    streams: Streams,
    flows: Flows,
}

impl Pump {
    fn run(mut self, bell: &OwnedFd, told: &Told) {
        let mut buffer = Vec::new();
        loop {
            self.wait(bell);
            let inside = self.inside.upgrade().filter(|_| !told.end.load(Ordering::Acquire));
            let Some(inside) = inside else { return self.streams.end(self.clock.now()) };
            let _ = rustix::io::read(bell, &mut [0; 8]);
            if told.names.swap(false, Ordering::AcqRel) {
                self.serve_names(&inside);
            }
            if let Err(error) = self.turn(&inside, &mut buffer) {
                log::warn!(
                    "processes of the host in the network namespace do not reach the sandbox: {error:?}"
                );
                return self.streams.end(self.clock.now());
            }
        }
    }

    fn serve_names(&mut self, inside: &Arc<Stack>) {
        if let Err(error) = self.streams.serve_names(self.clock.now(), inside) {
            log::debug!("the name server of the network namespace is not reached over TCP: {error:?}");
        }
    }

    /// Until a packet comes, a socket has something, or a deadline.
    fn wait(&self, bell: &OwnedFd) {
        let now = self.clock.now();
        let deadlines = [
            self.near.as_ref().and_then(|near| near.next_deadline()),
            self.streams.deadline(),
            self.flows.deadline(),
        ];
        let left = deadlines.into_iter().flatten().min().map(|at| at.since(now));
        // Not before the deadline.
        let left = left.map(|left| left + Duration::from_micros(1));
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut waited = [PollFd::new(bell, PollFlags::IN), PollFd::new(&*self.tun, PollFlags::IN)];
        let _ = poll(&mut waited, left.as_ref());
    }

    fn turn(&mut self, inside: &Arc<Stack>, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.resize(LONGEST, 0);
        for _ in 0..BATCH {
            match rustix::io::read(&*self.tun, &mut buffer[..]) {
                Ok(length) => self.take(inside, &buffer[..length])?,
                Err(HostErrno::INTR) => {}
                Err(HostErrno::AGAIN) => break,
                // The interface is gone: poll(2) would return at once from now on.
                Err(error) => return Err(abi::Errno::from_raw(error.raw_os_error())),
            }
        }
        let now = self.clock.now();
        if self.streams.asks_for_names() {
            self.near(inside)?;
        }
        if let Some(near) = &self.near {
            near.run_timers(now);
            self.streams.progress(now, near);
        }
        self.flows.progress(now, &self.tun);
        if self.near.is_none() {
            // Most sandboxes never have one more.
            *buffer = Vec::new();
        }
        Ok(())
    }

    /// Takes a packet of the host, behind its virtio-net header.
    fn take(&mut self, inside: &Arc<Stack>, bytes: &[u8]) -> Result<()> {
        let Some((header, bytes)) = bytes.split_first_chunk::<{ vnet::HEADER }>() else { return Ok(()) };
        let Some(packet) = Packet::parse(bytes) else { return Ok(()) };
        let now = self.clock.now();
        match packet.transport {
            Transport::Udp(payload) => self.flows.take(now, inside, (packet.from, packet.to), payload),
            Transport::Tcp { opens } => {
                let Some(offload) = vnet::decode(header, bytes, 0) else { return Ok(()) };
                let near = self.near(inside)?;
                let frame = Frame::with(near.pool().copy(bytes), offload);
                if opens {
                    self.streams.knock(now, (inside, &near), (packet.from, packet.to), frame);
                } else {
                    near.receive(now, LINK, frame);
                }
            }
        }
        Ok(())
    }

    /// The stack at the other end of the host's connections.
    fn near(&mut self, inside: &Arc<Stack>) -> Result<Arc<Stack>> {
        if let Some(near) = &self.near {
            return Ok(near.clone());
        }
        let near = near_stack(inside, Arc::new(Tun(self.tun.clone())))?;
        self.near = Some(near.clone());
        Ok(near)
    }
}

/// The only interface of that stack that is up.
const LINK: u32 = 2;

/// A stack to which every address is its own, but those of the host's side. Its queues count for the memory of the stack inside.
fn near_stack(inside: &Arc<Stack>, device: Arc<dyn Device>) -> Result<Arc<Stack>> {
    let mut seed = [0; 16];
    hostsys::clock::random(&mut seed);
    let near = Stack::sharing(seed, |_| Arc::new(NoAlarm), inside.memory.clone(), u64::MAX);
    let config = Config { name: "host".into(), kind: Kind::Tunnel, mac: Mac::default(), mtu: 65535 };
    near.add_link_at(LINK, config, device)?;
    near.set_conf(Whose::All, Which::RouteLocalnet, 1)?;
    near.set_up(LINK, true)?;
    let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let host: [IpAddr; 3] = [HOST_SIDE.into(), HOST_SIDE_V6.into(), crate::names::SERVER.into()];
    near.with_routes(|routes| -> Result<()> {
        for to in all {
            let route = Route::new(netstack::addr::Prefix::new(to, 0), LINK, None);
            routes.add(Route { table: TABLE_LOCAL, kind: RouteKind::Local, ..route })?;
        }
        for to in host {
            let bits = if to.is_ipv4() { 32 } else { 128 };
            let route = Route::new(netstack::addr::Prefix::new(to, bits), LINK, None);
            routes.add(Route { table: TABLE_LOCAL, source: to.is_ipv4().then_some(own), ..route })?;
        }
        Ok(())
    })?;
    Ok(near)
}

/// A process of the host, and where it wants to.
type Ends = (SocketAddr, SocketAddr);

/// Whether a time has come.
fn is_over(at: Ktime, now: Ktime) -> bool {
    at <= now
}
