//! Interfaces and files as plain data, for a checkpoint. The interfaces are made again before the stack's other state is restored,
//! which has their addresses and settings; the files find them by index.

use crate::device::{IFF_PERSIST, OWN, Reader, State, Tun, Tuns};
use crate::file::TunFile;
use crate::ioctl::MOST_VNET;
use crate::names;
use crate::packet::LONGEST;
use abi::{Errno, Result};
use lock_order::Mutex;
use netstack::driver::{Device, Features};
use netstack::frame::Frame;
use netstack::iface::{Config, Kind};
use netstack::queue::QueueDevice;
use netstack::vnet;
use netstack::wire::eth::Mac;
use serde::{Deserialize, Serialize};
use socket::NetNamespace;
use std::sync::Arc;
use vfs::OpenFile;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunState {
    /// Its index and name.
    index: u32,
    name: String,
    mac: Mac,
    mtu: u32,
    tap: bool,
    /// IFF_*, owner and group.
    flags: u16,
    owner: Option<u32>,
    group: Option<u32>,
    sndbuf: i32,
    vnet: u64,
    /// Checksums, TCP over IPv4 and over IPv6 in large segments.
    offload: [bool; 3],
    /// Frames that wait for the reader, each with a virtio-net header before it.
    frames: Vec<Vec<u8>>,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunFileState {
    /// The index of its interface.
    attached: Option<u32>,
    /// TUNSETIFINDEX.
    index: u32,
}

fn driver(net: &NetNamespace) -> Option<Arc<Tuns>> {
    net.programs()?.downcast().ok()
}

fn link_type(tap: bool) -> u16 {
    if tap { vnet::ETHERNET } else { 0 }
}

/// The interfaces of a namespace, in order of their indices.
pub fn saved(net: &NetNamespace) -> Vec<TunState> {
    let Some(tuns) = driver(net) else { return Vec::new() };
    let devices = tuns.devices.lock();
    let mut states: Vec<_> = devices.values().filter(|tun| tuns.has(tun)).map(|tun| state(tun)).collect();
    states.sort_by_key(|state| state.index);
    states
}

fn state(tun: &Tun) -> TunState {
    let State { flags, owner, group, sndbuf, vnet, offload, attached: _ } = *tun.state.lock();
    let frame = |frame: Frame| {
        let header = vnet::encode(&frame.buf, link_type(tun.tap), &frame.offload);
        [&header[..], &frame.buf].concat()
    };
    TunState {
        index: tun.link.index,
        name: tun.link.name(),
        mac: tun.link.mac(),
        mtu: tun.link.mtu(),
        tap: tun.tap,
        flags,
        owner,
        group,
        sndbuf,
        vnet: vnet as u64,
        offload: [offload.checksum, offload.tso4, offload.tso6],
        frames: tun.queue.frames().into_iter().map(frame).collect(),
    }
}

impl TunState {
    /// Its index.
    pub fn index(&self) -> u32 {
        self.index
    }

    fn restore(&self, tuns: &Tuns) -> Result<()> {
        let vnet = usize::try_from(self.vnet).map_err(|_| Errno::EINVAL)?;
        let numbered = i32::try_from(self.index).is_ok_and(|index| index > 0);
        if !names::valid(&self.name)
            || !numbered
            || self.sndbuf <= 0
            || !(vnet::HEADER..=MOST_VNET).contains(&vnet)
        {
            return Err(Errno::EINVAL);
        }
        let reader = Arc::new(Reader::default());
        let queue = QueueDevice::new(Features::default(), reader.clone());
        let kind = if self.tap { Kind::Ethernet } else { Kind::Tunnel };
        let mtu = self.mtu.clamp(68, 65_536);
        let config = Config { name: self.name.clone(), kind, mac: self.mac, mtu };
        let link = tuns.net().stack().add_link_at(self.index, config, queue.clone())?;
        let [checksum, tso4, tso6] = self.offload;
        let state = State {
            flags: self.flags & (OWN | IFF_PERSIST),
            owner: self.owner,
            group: self.group,
            sndbuf: self.sndbuf,
            vnet,
            offload: Features { checksum, tso4, tso6 },
            attached: false,
        };
        let tun = Arc::new(Tun { link, queue, tap: self.tap, state: Mutex::new(state), reader });
        tuns.apply_offload(&tun);
        tuns.devices.lock().insert(self.index, tun);
        Ok(())
    }

    fn frame(&self, tuns: &Tuns, bytes: &[u8]) -> Result<Frame> {
        let (header, frame) = bytes.split_first_chunk().ok_or(Errno::EINVAL)?;
        if frame.len() > LONGEST {
            return Err(Errno::EINVAL);
        }
        let offload = vnet::decode(header, frame, link_type(self.tap)).ok_or(Errno::EINVAL)?;
        Ok(Frame::with(tuns.net().stack().pool().copy(frame), offload))
    }
}

/// Makes the interfaces, for a namespace that has none of these indices. The error is a sentence.
pub fn restore(net: &NetNamespace, saved: &[TunState]) -> Result<(), String> {
    let failed = |state: &TunState, error| format!("interface {}: {error:?}", state.name);
    for state in saved {
        let made = driver(net).ok_or(Errno::ENODEV).and_then(|tuns| state.restore(&tuns));
        made.map_err(|error| failed(state, error))?;
    }
    Ok(())
}

/// Once the interfaces are as they were: the frames that wait, and no others.
pub fn fill(net: &NetNamespace, saved: &[TunState]) -> Result<(), String> {
    let Some(tuns) = driver(net) else { return Ok(()) };
    for state in saved {
        let tun = tuns.devices.lock().get(&state.index).cloned();
        let Some(tun) = tun else { continue };
        while tun.queue.pop().is_some() {}
        for bytes in &state.frames {
            let frame = state.frame(&tuns, bytes);
            let frame = frame.map_err(|error| format!("a frame of interface {}: {error:?}", state.name))?;
            tun.queue.transmit(frame);
        }
    }
    Ok(())
}

/// A file of the device as plain data; `None` for another file. ENODEV when its interface was deleted.
pub fn file_state(file: &OpenFile) -> Option<Result<TunFileState>> {
    let file: &TunFile = file.ops.as_any().downcast_ref()?;
    let attached = file.attached.lock();
    let index = attached.index;
    Some(match &attached.tun {
        None => Ok(TunFileState { attached: None, index }),
        Some(tun) if file.tuns.has(tun) => Ok(TunFileState { attached: Some(tun.link.index), index }),
        Some(_) => Err(Errno::ENODEV),
    })
}

/// Gives a file that was opened again what it had.
pub fn restore_file(file: &OpenFile, saved: &TunFileState) -> Result<()> {
    let file: &TunFile = file.ops.as_any().downcast_ref().ok_or(Errno::EINVAL)?;
    let mut own = file.attached.lock();
    own.index = saved.index;
    let Some(index) = saved.attached else { return Ok(()) };
    let tun = file.tuns.devices.lock().get(&index).cloned().ok_or(Errno::ENODEV)?;
    let mut state = tun.state.lock();
    if std::mem::replace(&mut state.attached, true) {
        return Err(Errno::EBUSY);
    }
    drop(state);
    *tun.reader.0.lock() = Some(file.queue.clone());
    own.tun = Some(tun);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket::NetNamespace;
    use std::any::Any;

    fn namespace() -> (Arc<NetNamespace>, Arc<Tuns>) {
        let owner = user_ns::UserNamespace::initial();
        let net = NetNamespace::new(1, owner, spec::Interfaces::loopback(), &Arc::default());
        let tuns = Tuns::new(&net);
        let driver: Arc<dyn Any + Send + Sync> = tuns.clone();
        net.keep_programs(&driver);
        (net, tuns)
    }

    fn sound() -> TunState {
        let frame = [&[0; vnet::HEADER][..], &[0x45, 1, 2]].concat();
        TunState {
            index: 7,
            name: "mine".into(),
            mac: Mac::default(),
            mtu: 1400,
            tap: false,
            flags: OWN | IFF_PERSIST,
            owner: Some(5),
            group: None,
            sndbuf: 9,
            vnet: 12,
            offload: [true, false, false],
            frames: vec![frame],
        }
    }

    #[test]
    fn what_was_saved_is_restored() {
        let (net, tuns) = namespace();
        restore(&net, &[sound()]).unwrap();
        tuns.devices.lock()[&7]
            .queue
            .transmit(Frame::with(net.stack().pool().copy(&[0x45]), netstack::frame::Offload::default()));
        fill(&net, &[sound()]).unwrap();
        assert_eq!(saved(&net), [sound()]);
        assert!(restore(&net, &[sound()]).is_err(), "the index is taken");
    }

    #[test]
    fn what_no_program_makes_is_refused() {
        let changes: [fn(&mut TunState); 8] = [
            |s| s.name.clear(),
            |s| s.name = "sixteen letters!".into(),
            |s| s.name = "a/b".into(),
            |s| s.index = 0,
            |s| s.index = 1 << 31,
            |s| s.sndbuf = 0,
            |s| s.vnet = 9,
            |s| s.vnet = u64::MAX,
        ];
        for change in changes {
            let mut state = sound();
            change(&mut state);
            assert!(restore(&namespace().0, &[state.clone()]).is_err(), "{state:?}");
        }
        for frame in [vec![0; vnet::HEADER - 1], vec![0xff; 20], vec![0; vnet::HEADER + LONGEST + 1]] {
            let (net, _tuns) = namespace();
            let state = TunState { frames: vec![frame], ..sound() };
            restore(&net, std::slice::from_ref(&state)).unwrap();
            assert!(fill(&net, &[state]).is_err());
        }
    }
}
