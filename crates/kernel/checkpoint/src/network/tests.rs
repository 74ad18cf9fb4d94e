use super::*;
use inet::{InetFamily, PacketFamily};
use netstack::addr::Prefix;
use netstack::iface::{Address, Config, Kind};
use netstack::wire::eth::Mac;
use socket::family::Family as _;
use socket::netlink::NetlinkFamily;
use socket::{Control, Names, SendRequest, options};
use spec::Interfaces;
use vfs::testing::TestCaller;
use vfs::{Caller, InodeRef, OpenFile};

/// No paths.
struct NoPaths;
impl Names for NoPaths {
    fn make(&self, _cx: &dyn Caller, _path: &[u8], _kind: i32) -> abi::Result<InodeRef> {
        Err(Errno::EINVAL)
    }
    fn find(&self, _cx: &dyn Caller, _path: &[u8]) -> abi::Result<InodeRef> {
        Err(Errno::EINVAL)
    }
}

/// A sandbox with files that are sockets.
struct Bench {
    cx: TestCaller,
    net: Arc<NetNamespace>,
}

impl Bench {
    fn new() -> Bench {
        let cx = TestCaller::with_caps(u64::MAX);
        let owner = cx.creds.user_ns.clone();
        let net = NetNamespace::new(1, owner, Interfaces::loopback(), &Arc::default());
        Bench { cx, net }
    }

    fn open(&self, kind: i32) -> Arc<OpenFile> {
        let ops = InetFamily::v4().create(&self.cx, &self.net, kind, 0).unwrap();
        SocketFile::open(&self.cx, &self.net, ops, 0)
    }

    fn ops(file: &OpenFile) -> &dyn SocketOps {
        &*SocketFile::of(file).unwrap().ops
    }

    fn bind(&self, file: &OpenFile, port: u16) {
        Self::ops(file).bind(&self.cx, &NoPaths, &local(port)).unwrap();
    }

    fn connect(&self, file: &OpenFile, port: u16) {
        let _ = Self::ops(file).connect(&self.cx, &NoPaths, &local(port));
    }

    fn send(&self, ops: &dyn SocketOps, data: &[u8]) {
        let mut request =
            SendRequest { data, addr: None, control: Control::default(), flags: 0, block: None };
        assert_eq!(ops.send(&self.cx, &NoPaths, &mut request), Ok(data.len()));
    }

    fn receive(&self, ops: &dyn SocketOps) -> Result<Vec<u8>, Errno> {
        let mut out = vec![0; 1000];
        let len = ops.recv(&self.cx, &mut out, 0)?.len;
        out.truncate(len);
        Ok(out)
    }

    fn save(&self, files: &[&Arc<OpenFile>]) -> Result<NetworkState, Vec<Obstacle>> {
        let saver = NetworkSaver::new();
        assert!(files.iter().all(|file| saver.note(SocketFile::of(file).unwrap())));
        let state = saver.finish(&self.net, &[])?;
        let mut image = Vec::new();
        ciborium::into_writer(&state, &mut image).unwrap();
        Ok(ciborium::from_reader(&image[..]).unwrap())
    }
}

/// 127.0.0.1 with a port, as a `sockaddr_in`.
fn local(port: u16) -> Vec<u8> {
    let family = (libc::AF_INET as u16).to_ne_bytes();
    [&family[..], &port.to_be_bytes(), &[127, 0, 0, 1], &[0; 8]].concat()
}

fn ino(file: &OpenFile) -> u64 {
    SocketFile::of(file).unwrap().ino()
}

#[test]
fn sockets_of_descriptors_come_back() {
    let a = Bench::new();
    let (server, client) = (a.open(libc::SOCK_STREAM), a.open(libc::SOCK_STREAM));
    a.bind(&server, 8080);
    let everything: Vec<u8> = [0x06_u16, 0, 0x1000, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    options::set(Bench::ops(&server), &a.cx, libc::SO_ATTACH_FILTER, &everything).unwrap();
    Bench::ops(&server).listen(&a.cx, 5).unwrap();
    a.connect(&client, 8080);
    a.send(Bench::ops(&client), b"question");
    let time = [3_i64, 500_000].map(i64::to_ne_bytes).concat();
    options::set(Bench::ops(&client), &a.cx, libc::SO_RCVTIMEO, &time).unwrap();
    let (receiver, sender) = (a.open(libc::SOCK_DGRAM), a.open(libc::SOCK_DGRAM));
    a.bind(&receiver, 5353);
    // The first byte of the payload must be an `A`: ldb [8]; jeq 'A'; ret 9; ret 0.
    let filter = [[0x30_u16, 0, 8, 0], [0x15, 0x100, 0x41, 0], [0x06, 0, 0x1000, 0], [0x06, 0, 0, 0]];
    let filter: Vec<u8> = filter.concat().iter().flat_map(|word| word.to_ne_bytes()).collect();
    options::set(Bench::ops(&receiver), &a.cx, libc::SO_ATTACH_FILTER, &filter).unwrap();
    let on = 1_i32.to_ne_bytes();
    Bench::ops(&receiver).set_option(&a.cx, libc::IPPROTO_IP, libc::IP_RECVTTL, &on).unwrap();
    a.connect(&sender, 5353);
    a.send(Bench::ops(&sender), b"A first");
    let saved = a.save(&[&server, &client, &receiver, &sender]).unwrap();

    let b = Bench::new();
    let restored = NetworkRestorer::new(&b.net, saved, &|_| None).unwrap();
    assert!(Arc::ptr_eq(&restored.net(1).unwrap(), &b.net) && restored.socket(77).is_none());
    let files = [&server, &client, &receiver, &sender].map(|file| restored.socket(ino(file)).unwrap());
    restored.go_on(Outside::Reset).unwrap();
    let [server, client, receiver, sender] = &files;
    let accepted = server.accept().unwrap();
    for filtered in [&**server, &*accepted] {
        assert_eq!(options::get(filtered, libc::SO_GET_FILTER).unwrap(), everything);
    }
    assert_eq!(b.receive(&*accepted).unwrap(), b"question");
    b.send(&*accepted, b"answer");
    assert_eq!(b.receive(&**client).unwrap(), b"answer");
    assert_eq!(options::get(&**client, libc::SO_RCVTIMEO).unwrap(), time);
    b.send(&**sender, b"B second");
    b.send(&**sender, b"A third");
    assert_eq!(b.receive(&**receiver).unwrap(), b"A first");
    assert_eq!(b.receive(&**receiver).unwrap(), b"A third");
    assert_eq!(receiver.get_option(libc::IPPROTO_IP, libc::IP_RECVTTL).unwrap(), on);
    // They end with their descriptors.
    let waits = b.open(libc::SOCK_DGRAM);
    drop(files);
    b.bind(&waits, 5353);
}

#[test]
fn interfaces_and_settings_come_back() {
    let a = Bench::new();
    let stack = a.net.stack();
    let config = Config { name: "d0".into(), kind: Kind::Ethernet, mac: Mac([2; 6]), mtu: 1400 };
    let dummy = stack.add_dummy(config).unwrap();
    stack.set_up(dummy.index, true).unwrap();
    let prefix = Prefix::new("10.5.0.1".parse().unwrap(), 24);
    stack.add_address(dummy.index, Address::new(prefix)).unwrap();
    stack.sysctls.somaxconn.set(99).unwrap();
    stack.fast_open_keys().set("1-2-3-4").unwrap();
    let saved = a.save(&[]).unwrap();
    let b = Bench::new();
    NetworkRestorer::new(&b.net, saved, &|_| None).unwrap().go_on(Outside::Keep).unwrap();
    assert_eq!(b.net.stack().layer().link_names(), ["lo", "d0"]);
    assert!(b.net.stack().is_local("10.5.0.1".parse().unwrap()));
    assert_eq!(b.net.stack().sysctls.somaxconn.get(), 99);
    assert_eq!(b.net.stack().fast_open_keys().to_string(), "00000001-00000002-00000003-00000004");
    // What is saved again has the same beginning.
    assert_ne!(*b.net.began(), b.net.stack().layer());
}

#[test]
fn netlink_sockets_keep_groups_and_messages() {
    let a = Bench::new();
    let ops = NetlinkFamily.create(&a.cx, &a.net, libc::SOCK_RAW, libc::NETLINK_ROUTE).unwrap();
    let file = SocketFile::open(&a.cx, &a.net, ops, 0);
    // RTMGRP_LINK, with an address of its own.
    let address = [16_u32, 77, 1].map(u32::to_ne_bytes).concat();
    Bench::ops(&file).bind(&a.cx, &NoPaths, &address).unwrap();
    let add = |bench: &Bench, name: &str| {
        let config = Config { name: name.into(), kind: Kind::Ethernet, mac: Mac([2; 6]), mtu: 1400 };
        bench.net.stack().add_dummy(config).unwrap();
    };
    add(&a, "first");
    let saved = a.save(&[&file]).unwrap();
    let b = Bench::new();
    let restored = NetworkRestorer::new(&b.net, saved, &|_| None).unwrap();
    let socket = restored.socket(ino(&file)).unwrap();
    restored.go_on(Outside::Keep).unwrap();
    assert_eq!(socket.local_addr(), address);
    add(&b, "second");
    for name in ["first", "second"] {
        let message = b.receive(&*socket).unwrap();
        assert!(message.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
    }
    assert_eq!(b.receive(&*socket), Err(Errno::EAGAIN));
    // The address is in use.
    let other = NetlinkFamily.create(&b.cx, &b.net, libc::SOCK_RAW, libc::NETLINK_ROUTE).unwrap();
    assert_eq!(other.bind(&b.cx, &NoPaths, &address), Err(Errno::EADDRINUSE));
}

#[test]
fn what_cannot_be_saved_is_named() {
    let a = Bench::new();
    let ops = PacketFamily.create(&a.cx, &a.net, libc::SOCK_RAW, 0).unwrap();
    let packet = SocketFile::open(&a.cx, &a.net, ops, 0);
    let stays = a.open(libc::SOCK_STREAM);
    a.bind(&stays, 8080);
    Bench::ops(&stays).listen(&a.cx, 5).unwrap();
    let obstacles = a.save(&[&packet]).unwrap_err();
    let all: Vec<_> = obstacles.iter().map(|one| one.what.as_str()).collect();
    let expected = format!("socket:[{}] is a packet socket", ino(&packet));
    let unowned = "the TCP socket at 127.0.0.1:8080 belongs to no program inside: close connections through \
                   \"port-forward\" first";
    assert_eq!(all, [expected.as_str(), unowned]);
    let datagram = a.open(libc::SOCK_DGRAM);
    a.bind(&datagram, 5353);
    let obstacles = a.save(&[&packet, &stays]).unwrap_err();
    let missing = format!("socket:[{}] belongs to a file that is not saved", ino(&datagram));
    assert!(obstacles.iter().any(|one| one.what == missing), "{obstacles:?}");
    drop(datagram);
    // The timers run on.
    drop(packet);
    assert!(a.save(&[&stays]).is_ok());
}

#[test]
fn a_wrong_image_is_an_error() {
    let b = Bench::new();
    let refused = NetworkRestorer::new(&b.net, NetworkState::default(), &|_| None).err().unwrap();
    assert_eq!(refused, "the image has no network namespace");
    let a = Bench::new();
    let server = a.open(libc::SOCK_STREAM);
    let mut saved = a.save(&[&server]).unwrap();
    saved.namespaces[0].streams.clear();
    assert!(NetworkRestorer::new(&b.net, saved, &|_| None).is_err());
}
