//! The network of a sandbox as plain data, and back: its namespaces, and the sockets of their stacks.
//!
//! [`NetworkSaver::note`] takes the sockets as they are found among the open files; [`NetworkSaver::finish`] saves them with all else
//! that the stacks have, while the timers of the stacks stand still. [`NetworkRestorer`] puts all sockets in their places, and
//! [`NetworkRestorer::go_on`] lets them go on when everything else of the sandbox is there. The interfaces of the specification must be
//! attached before.

mod name;
#[cfg(test)]
mod tests;

use crate::Obstacle;
use abi::Errno;
use inet::saved::{DatagramsState, Saved, StreamState};
use netfilter::Family;
use netfilter::conntrack::ConnectionsState;
use netfilter::recent::ListState;
use netstack::capture::Filter;
use netstack::layers::{self, Layer, LayerState};
use netstack::tcp::{Outside, Placed, TcpSockets};
use nftables::NftablesState;
use serde::{Deserialize, Serialize};
use socket::filter::Program;
use socket::netlink::saved::{self as netlink, NetlinkState};
use socket::{NetNamespace, SocketFile, SocketOps};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tun::TunState;
use xtables::TableState;

/// The network as plain data.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetworkState {
    /// The namespaces; the first one is the sandbox's own.
    pub namespaces: Vec<NetState>,
}

/// A network namespace as plain data.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetState {
    /// The number of its nsfs inode.
    pub inum: u64,
    /// Interfaces, addresses, routes and settings, and those that the namespace began with.
    layer: LayerState,
    began: LayerState,
    /// The keys of Fast Open cookies (`tcp_fastopen_key`).
    fast_open_keys: String,
    /// TCP sockets; those of descriptors in the order of `streams`.
    tcp: TcpSockets,
    /// TCP sockets of descriptors, by inode number.
    streams: Vec<(u64, StreamState)>,
    /// UDP, ping and raw sockets, by inode number.
    datagrams: Vec<(u64, DatagramsState)>,
    /// Netlink sockets, by inode number.
    #[serde(default)]
    netlink: Vec<(u64, NetlinkState)>,
    /// What it calls other namespaces: their inode numbers by its own (nsid).
    #[serde(default)]
    nsids: Vec<(i32, u64)>,
    /// Tables of iptables-legacy, and of ip6tables-legacy.
    #[serde(default)]
    tables: [Vec<TableState>; 2],
    /// Rules of nf_tables.
    #[serde(default)]
    nftables: NftablesState,
    /// Tracked connections.
    #[serde(default)]
    connections: ConnectionsState,
    /// Lists of the match recent.
    #[serde(default)]
    recent: Vec<ListState>,
    /// Interfaces of /dev/net/tun.
    #[serde(default)]
    tuns: Vec<TunState>,
}

/// A socket of a descriptor.
struct Noted {
    ino: u64,
    net: Arc<NetNamespace>,
    ops: Arc<dyn SocketOps>,
}

/// Finds the sockets of open files and saves them.
#[derive(Default)]
pub struct NetworkSaver {
    noted: RefCell<Vec<Noted>>,
}

impl NetworkSaver {
    /// Nothing yet.
    pub fn new() -> NetworkSaver {
        NetworkSaver::default()
    }

    /// Notes the socket of an open file, each once; false for a Unix socket. One that cannot be saved is an obstacle of
    /// [`NetworkSaver::finish`].
    pub fn note(&self, file: &SocketFile) -> bool {
        if file.ops.domain() == libc::AF_UNIX {
            return false;
        }
        let noted = Noted { ino: file.ino(), net: file.net.clone(), ops: file.ops.clone() };
        self.noted.borrow_mut().push(noted);
        true
    }

    /// Everything, or what is in the way. All sockets were noted, no program runs, `initial` is the sandbox's own namespace and
    /// `others` are those that programs made.
    pub fn finish(
        self,
        initial: &Arc<NetNamespace>,
        others: &[Arc<NetNamespace>],
    ) -> Result<NetworkState, Vec<Obstacle>> {
        let _pause = initial.nets().pause();
        let mut obstacles = Vec::new();
        let all: Vec<&Arc<NetNamespace>> = [initial].into_iter().chain(others).collect();
        let known = |net: &Arc<NetNamespace>| all.iter().any(|one| Arc::ptr_eq(one, net));
        for one in self.noted.borrow().iter().filter(|one| !known(&one.net)) {
            obstacles.push(obstacle(format!(
                "socket:[{}] is in a network namespace that no process has",
                one.ino
            )));
        }
        let outside = |ip: IpAddr| !all.iter().any(|net| net.stack().is_local(ip));
        let namespaces = all.iter().map(|net| self.namespace(net, &outside, &mut obstacles)).collect();
        if obstacles.is_empty() { Ok(NetworkState { namespaces }) } else { Err(obstacles) }
    }

    fn namespace(
        &self,
        net: &Arc<NetNamespace>,
        outside: &dyn Fn(IpAddr) -> bool,
        obstacles: &mut Vec<Obstacle>,
    ) -> NetState {
        let tuns = tun::saved(net);
        in_the_way(net, &tuns, obstacles);
        let mut state = NetState {
            inum: net.inum,
            layer: net.stack().layer(),
            began: LayerState::clone(&net.began()),
            fast_open_keys: net.stack().fast_open_keys().to_string(),
            nsids: net.nsids(),
            ..NetState::default()
        };
        if !net.is_initial() && state.layer.has_device() {
            obstacles.push(obstacle(format!("net:[{}] has an interface of the host", net.inum)));
        }
        let mut owned = Vec::new();
        for one in self.noted.borrow().iter().filter(|one| Arc::ptr_eq(&one.net, net)) {
            match inet::saved::save(&*one.ops) {
                Some(Saved::Stream(stream, socket)) => {
                    state.streams.push((one.ino, stream));
                    owned.push(socket);
                }
                Some(Saved::Datagrams(datagrams)) => state.datagrams.push((one.ino, *datagrams)),
                None => match netlink::save(&*one.ops) {
                    Some(netlink) => state.netlink.push((one.ino, netlink)),
                    None => obstacles.push(obstacle(name::of_socket(one.ino, &*one.ops))),
                },
            }
        }
        for ino in left_out(net, &self.noted.borrow()) {
            obstacles.push(obstacle(format!("socket:[{ino}] belongs to a file that is not saved")));
        }
        match net.stack().save_tcp(&owned, net.now(), outside) {
            Ok(tcp) => state.tcp = tcp,
            Err((local, peer)) => obstacles.push(obstacle(unowned(local, peer))),
        }
        state.tuns = tuns;
        save_filter(net, &mut state);
        state
    }
}

/// What is said of a TCP socket that no file of the container has.
fn unowned(local: SocketAddr, peer: Option<SocketAddr>) -> String {
    let of = match peer {
        Some(peer) => format!("the TCP connection of {local} with {peer}"),
        None => format!("the TCP socket at {local}"),
    };
    format!("{of} belongs to no program inside: close connections through \"port-forward\" first")
}

fn obstacle(what: String) -> Obstacle {
    Obstacle { what }
}

/// The inode numbers of descriptors' sockets that nothing noted; TCP sockets are looked at as they are saved.
fn left_out(net: &NetNamespace, noted: &[Noted]) -> Vec<u64> {
    let stack = net.stack();
    let bound = [stack.udp_sockets(), stack.udp_lite_sockets(), stack.ping_sockets(), stack.raw_sockets()];
    let datagrams = bound.iter().flatten().map(|socket| socket.row().inode);
    let netlink = net.netlink_rows().into_iter().map(|row| row.inode);
    let packets = stack.packet_sockets().into_iter().map(|row| row.inode);
    let known: HashSet<u64> = noted.iter().map(|one| one.ino).collect();
    let mut all: Vec<u64> = datagrams.chain(netlink).chain(packets).collect();
    all.retain(|ino| *ino != 0 && !known.contains(ino));
    all
}

/// What a namespace has that cannot be saved.
fn in_the_way(net: &NetNamespace, tuns: &[TunState], obstacles: &mut Vec<Obstacle>) {
    for link in net.stack().links() {
        let kind = link.about().kind;
        // Those are made anew. Only the sandbox's own namespace has interfaces of /dev/net/tun.
        let own = kind == "tun" && tuns.iter().any(|tun| tun.index() == link.index);
        if !own && !["", "dummy", "veth", "vlan", "bridge"].contains(&kind) {
            obstacles.push(obstacle(format!("{} is a network interface of the kind {kind}", link.name())));
        }
    }
}

/// The packet filter of a namespace.
fn save_filter(net: &NetNamespace, state: &mut NetState) {
    let millis = net.now().millis();
    state.tables = [Family::V4, Family::V6].map(|family| net.tables().saved(family));
    state.nftables = net.nftables().saved(millis);
    state.connections = net.netfilter().connections.saved(millis);
    state.recent = net.netfilter().recent.saved();
}

/// The packet filter again. The error is a sentence for the user.
fn restore_filter(net: &NetNamespace, saved: &NetState) -> Result<(), String> {
    for (family, tables) in [Family::V4, Family::V6].into_iter().zip(&saved.tables) {
        for table in tables {
            net.tables()
                .restore(family, table)
                .map_err(|error| format!("table {} of iptables: {error:?}", table.name))?;
        }
    }
    let millis = net.now().millis();
    net.nftables().restore(&saved.nftables, millis).map_err(|error| format!("nf_tables: {error:?}"))?;
    if let Some(list) = saved.recent.iter().find(|list| !net.netfilter().recent.restore(list)) {
        return Err(format!("list {} of the match recent", list.name));
    }
    if saved.connections != ConnectionsState::default() {
        let restored = net.netfilter().connections.restore(&saved.connections);
        restored.ok_or("tracked connections that cannot be")?;
    }
    Ok(())
}

/// The restored namespaces, with their sockets in their places.
pub struct NetworkRestorer {
    initial: Arc<NetNamespace>,
    namespaces: HashMap<u64, Arc<NetNamespace>>,
    sockets: HashMap<u64, Arc<dyn SocketOps>>,
    placed: Placed,
}

impl NetworkRestorer {
    /// Makes everything again around `initial`, the sandbox's own namespace, which has its interfaces and no sockets. `made` finds
    /// the others, which are empty, by their inode numbers of before. The error is a sentence for the user.
    pub fn new(
        initial: &Arc<NetNamespace>,
        saved: NetworkState,
        made: &dyn Fn(u64) -> Option<Arc<NetNamespace>>,
    ) -> Result<NetworkRestorer, String> {
        let mut restorer = NetworkRestorer {
            initial: initial.clone(),
            namespaces: HashMap::new(),
            sockets: HashMap::new(),
            placed: Placed::default(),
        };
        let mut namespaces = saved.namespaces;
        let first = namespaces.first_mut().ok_or("the image has no network namespace")?;
        let (number, indices) = (first.layer.number, first.began.renumbered(&initial.stack().layer()));
        for layer in [&mut first.began, &mut first.layer] {
            layer.renumber(&indices);
        }
        first.tcp.renumber(&indices);
        first.datagrams.iter_mut().for_each(|(_, datagrams)| datagrams.renumber(&indices));
        for other in namespaces.iter_mut().skip(1) {
            other.layer.renumber_others(number, &indices);
        }
        let mut nets = Vec::new();
        for (at, state) in namespaces.iter().enumerate() {
            let net = if at == 0 { Some(initial.clone()) } else { made(state.inum) };
            let net = net.ok_or_else(|| format!("network namespace {} is not there", state.inum))?;
            if restorer.namespaces.insert(state.inum, net.clone()).is_some()
                || nets.iter().any(|other| Arc::ptr_eq(other, &net))
            {
                return Err(format!("network namespace {} is there twice", state.inum));
            }
            nets.push(net);
        }
        let mut numbers: Vec<u64> = namespaces.iter().map(|state| state.layer.number).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("two network stacks have one number".into());
        }
        let layers = nets.iter().zip(&namespaces);
        let layers =
            layers.map(|(net, state)| Layer { net: net.stack(), saved: &state.layer, base: &state.began });
        let layers: Vec<_> = layers.collect();
        for (net, state) in nets.iter().zip(&namespaces) {
            tun::restore(net, &state.tuns)?;
        }
        layers::restore(&layers)?;
        for (net, state) in nets.iter().zip(&namespaces) {
            tun::fill(net, &state.tuns)?;
        }
        for (net, state) in nets.iter().zip(namespaces) {
            if !state.fast_open_keys.is_empty() {
                let set = net.stack().fast_open_keys().set(&state.fast_open_keys);
                set.map_err(|error| format!("net.ipv4.tcp_fastopen_key: {error:?}"))?;
            }
            let ids =
                state.nsids.iter().filter_map(|(id, inum)| Some((*id, restorer.namespaces.get(inum)?.inum)));
            net.restore_nsids(ids);
            restore_filter(net, &state)?;
            restorer.sockets(net, state)?;
        }
        Ok(restorer)
    }

    fn sockets(&mut self, net: &Arc<NetNamespace>, state: NetState) -> Result<(), String> {
        if state.streams.len() != state.tcp.owned.len() {
            return Err("the image's TCP sockets are not those of its descriptors".into());
        }
        for ((ino, stream), tcp) in state.streams.into_iter().zip(state.tcp.owned) {
            let ops = inet::saved::restore_stream(net, &stream, tcp, &mut self.placed)
                .map_err(|error| failed(ino, error))?;
            self.sockets.insert(ino, ops);
        }
        for tcp in state.tcp.orphans {
            net.stack().place_tcp(tcp, None, &mut self.placed).map_err(|error| failed(0, error))?;
        }
        let make = |code: &[u8]| Ok(Arc::new(Program::new(code)?) as Arc<dyn Filter>);
        self.placed.attach(net.now(), make).map_err(|error| failed(0, error))?;
        for (ino, datagrams) in state.datagrams {
            let ops = inet::saved::restore_datagrams(net, datagrams).map_err(|error| failed(ino, error))?;
            self.sockets.insert(ino, ops);
        }
        for (ino, saved) in state.netlink {
            let ops = netlink::restore(net, &saved).map_err(|error| failed(ino, error))?;
            self.sockets.insert(ino, ops);
        }
        Ok(())
    }

    /// The namespace that had this inode number.
    pub fn net(&self, inum: u64) -> Option<Arc<NetNamespace>> {
        self.namespaces.get(&inum).cloned()
    }

    /// The socket of a descriptor that had an inode with this number.
    pub fn socket(&self, ino: u64) -> Option<Arc<dyn SocketOps>> {
        self.sockets.get(&ino).cloned()
    }

    /// The sockets go on; connections with hosts outside are kept or reset. All open files are there. A socket that no open file took
    /// is closed. An error when there are connections that have ended outside.
    pub fn go_on(self, outside: Outside) -> Result<(), String> {
        if outside == Outside::Missing
            && let Some((local, peer)) = self.placed.outside()
        {
            return Err(format!(
                "the TCP connection of {local} with {peer} ended when the image was made: make the image with \
                 \"checkpoint --tcp keep\", or restore with \"--tcp reset\""
            ));
        }
        self.placed.go_on(self.initial.now(), outside);
        Ok(())
    }
}

fn failed(ino: u64, error: Errno) -> String {
    match ino {
        0 => format!("a connection without descriptor: {error:?}"),
        ino => format!("socket:[{ino}]: {error:?}"),
    }
}
