//! The interfaces that programs made, and the users that may attach to them.

use crate::names;
use crate::packet::Framing;
use abi::{Errno, Result};
use lock_order::{Mutex, rank};
use netstack::driver::Features;
use netstack::iface::{Config, Iface, Kind};
use netstack::notify::{Events, Notify};
use netstack::queue::QueueDevice;
use netstack::vnet;
use netstack::wire::eth::Mac;
use rights::Cap;
use socket::NetNamespace;
use std::collections::HashMap;
use std::sync::Arc;
use vfs::Caller;
use wait::WaitQueue;

/// Flags of TUNSETIFF and TUNGETIFF.
pub(crate) const IFF_TUN: u16 = 0x0001;
pub(crate) const IFF_TAP: u16 = 0x0002;
pub(crate) const IFF_PERSIST: u16 = 0x0800;
/// No filter is attached: filters are not supported.
pub(crate) const IFF_NOFILTER: u16 = 0x1000;
const IFF_NO_PI: u16 = 0x1000;
/// Has had no effect since Linux 3.8.
const IFF_ONE_QUEUE: u16 = 0x2000;
const IFF_TUN_EXCL: u16 = 0x8000;
/// Frames have a virtio-net header.
const IFF_VNET_HDR: u16 = 0x4000;
/// IFF_NAPI, IFF_NAPI_FRAGS, IFF_NO_CARRIER, IFF_MULTI_QUEUE.
const UNSUPPORTED: u16 = 0x0010 | 0x0020 | 0x0040 | 0x0100;
/// What TUNGETFEATURES answers.
pub(crate) const FEATURES: u16 = IFF_TUN | IFF_TAP | OWN;
/// Flags that an interface takes from each TUNSETIFF.
pub(crate) const OWN: u16 = IFF_NO_PI | IFF_ONE_QUEUE | IFF_VNET_HDR;
const MTU: u32 = 1500;

/// What TUNSETIFF asks for.
pub(crate) struct InterfaceRequest<'a> {
    pub name: &'a str,
    pub flags: u16,
    /// TUNSETIFINDEX, or 0.
    pub index: u32,
}

/// The interfaces of a namespace.
pub(crate) struct Tuns {
    net: Arc<NetNamespace>,
    /// By index.
    pub(crate) devices: Mutex<HashMap<u32, Arc<Tun>>, { rank::TUN_DEVICES }>,
}

/// An interface with a file as its other end.
pub(crate) struct Tun {
    pub link: Arc<Iface>,
    pub queue: Arc<QueueDevice>,
    pub tap: bool,
    pub state: Mutex<State>,
    pub(crate) reader: Arc<Reader>,
}

/// What the ioctls set.
#[derive(Clone, Copy)]
pub(crate) struct State {
    /// IFF_NO_PI, IFF_ONE_QUEUE, IFF_VNET_HDR and IFF_PERSIST.
    pub flags: u16,
    pub owner: Option<u32>,
    pub group: Option<u32>,
    /// Kept for TUNGETSNDBUF: a write is over when the stack has received the frame.
    pub sndbuf: i32,
    /// Bytes of the virtio-net header, and what the reader does with frames that have one.
    pub vnet: usize,
    pub offload: Features,
    /// A file has the interface.
    pub(crate) attached: bool,
}

/// Wakes the waiters of the file that has an interface.
#[derive(Default)]
pub(crate) struct Reader(pub(crate) Mutex<Option<WaitQueue>>);

impl Notify for Reader {
    fn changed(&self, events: Events) {
        let queue = self.0.lock().clone();
        if let Some(queue) = queue
            && events.contains(Events::IN)
        {
            queue.notify(wait::Events::READABLE);
        }
    }
}

impl Tun {
    /// The headers that frames have.
    pub(crate) fn framing(&self) -> Framing {
        let state = self.state.lock();
        let vnet = if state.flags & IFF_VNET_HDR != 0 { state.vnet } else { 0 };
        Framing { tap: self.tap, bare: state.flags & IFF_NO_PI != 0, vnet }
    }

    /// The flags that TUNGETIFF shows.
    pub(crate) fn shown_flags(&self) -> u16 {
        self.state.lock().flags | if self.tap { IFF_TAP } else { IFF_TUN }
    }
}

impl Tuns {
    pub(crate) fn new(net: &Arc<NetNamespace>) -> Arc<Tuns> {
        Arc::new(Tuns { net: net.clone(), devices: Mutex::default() })
    }

    pub(crate) fn net(&self) -> &NetNamespace {
        &self.net
    }

    /// Gives a file the interface that it asks for, and makes it if there is none of the name.
    pub(crate) fn attach(
        &self,
        cx: &dyn Caller,
        wanted: &InterfaceRequest<'_>,
        queue: &WaitQueue,
    ) -> Result<Arc<Tun>> {
        if wanted.flags & UNSUPPORTED != 0 {
            return Err(Errno::EINVAL);
        }
        let mut devices = self.devices.lock();
        let _rtnl = self.net.rtnl();
        // Interfaces can be deleted by rtnetlink requests.
        devices.retain(|_, tun| self.has(tun));
        let known = self.net.interfaces().links.iter().find(|link| link.name == wanted.name).map(|l| l.index);
        let tun = match known {
            Some(_) if wanted.flags & IFF_TUN_EXCL != 0 => return Err(Errno::EBUSY),
            Some(index) => {
                let tun = devices.get(&index).filter(|tun| fits(tun, wanted.flags)).ok_or(Errno::EINVAL)?;
                self.check(cx, tun)?;
                tun.clone()
            }
            None => {
                let tun = self.make(cx, wanted)?;
                devices.insert(tun.link.index, tun.clone());
                tun
            }
        };
        let mut state = tun.state.lock();
        if state.attached {
            return Err(Errno::EBUSY);
        }
        state.attached = true;
        state.flags = state.flags & !OWN | wanted.flags & OWN;
        drop(state);
        self.apply_offload(&tun);
        // Packets sent while no file was attached are lost.
        while tun.queue.pop().is_some() {}
        *tun.reader.0.lock() = Some(queue.clone());
        Ok(tun)
    }

    /// Tells the stack what the reader does. Without a header it can be told of nothing, so it does nothing.
    pub(crate) fn apply_offload(&self, tun: &Tun) {
        let state = *tun.state.lock();
        let told = state.flags & IFF_VNET_HDR != 0;
        self.net.stack().set_features(&tun.link, if told { state.offload } else { Features::default() });
    }

    /// The interface has not been deleted: another one may have its index by now.
    pub(crate) fn has(&self, tun: &Tun) -> bool {
        self.net.stack().link(tun.link.index).is_some_and(|link| Arc::ptr_eq(&link, &tun.link))
    }

    /// A file lets go of its interface, which goes with it unless it is persistent.
    pub(crate) fn detach(&self, tun: &Tun) {
        let mut devices = self.devices.lock();
        *tun.reader.0.lock() = None;
        let mut state = tun.state.lock();
        state.attached = false;
        let persistent = state.flags & IFF_PERSIST != 0;
        drop(state);
        if !persistent && self.has(tun) {
            let _rtnl = self.net.rtnl();
            devices.remove(&tun.link.index);
            // An rtnetlink request may delete it at the same time.
            let _ = self.net.stack().remove_link(tun.link.index);
        }
    }

    /// Whether the caller may have an interface that exists.
    fn check(&self, cx: &dyn Caller, tun: &Tun) -> Result<()> {
        let (creds, state) = (cx.creds(), *tun.state.lock());
        let others = state.owner.is_some_and(|owner| owner != creds.euid);
        let in_group = |group: u32| creds.egid == group || creds.groups.contains(&group);
        let outside = state.group.is_some_and(|group| !in_group(group));
        if (others || outside) && !creds.ns_capable(self.net.user_ns(), Cap::NET_ADMIN) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    fn make(&self, cx: &dyn Caller, wanted: &InterfaceRequest<'_>) -> Result<Arc<Tun>> {
        if !cx.creds().ns_capable(self.net.user_ns(), Cap::NET_ADMIN) {
            return Err(Errno::EPERM);
        }
        let (tap, pattern) = match wanted.flags {
            flags if flags & IFF_TUN != 0 => (false, "tun%d"),
            flags if flags & IFF_TAP != 0 => (true, "tap%d"),
            _ => return Err(Errno::EINVAL),
        };
        let pattern = if wanted.name.is_empty() { pattern } else { wanted.name };
        let shown = self.net.interfaces();
        let name = names::choose(pattern, |name| shown.links.iter().any(|link| link.name == name))?;
        let reader = Arc::new(Reader::default());
        let queue = QueueDevice::new(Features::default(), reader.clone());
        let (kind, mac) = if tap { (Kind::Ethernet, random_mac()) } else { (Kind::Tunnel, Mac::default()) };
        let config = Config { name, kind, mac, mtu: MTU };
        let stack = self.net.stack();
        let link = match wanted.index {
            0 => stack.add_link(config, queue.clone())?,
            index if shown.links.iter().any(|link| link.index == index) => return Err(Errno::EBUSY),
            index => stack.add_link_at(index, config, queue.clone())?,
        };
        let state = State {
            flags: 0,
            owner: None,
            group: None,
            sndbuf: i32::MAX,
            vnet: vnet::HEADER,
            offload: Features::default(),
            attached: false,
        };
        Ok(Arc::new(Tun { link, queue, tap, state: Mutex::new(state), reader }))
    }
}

/// The kind is the one that the flags ask for; IFF_TUN comes first.
fn fits(tun: &Tun, flags: u16) -> bool {
    flags & if tun.tap { IFF_TAP } else { IFF_TUN } != 0
}

/// A local unicast address.
fn random_mac() -> Mac {
    let mut mac = [0; 6];
    hostsys::clock::random(&mut mac);
    mac[0] = mac[0] & 0xfe | 2;
    Mac(mac)
}
