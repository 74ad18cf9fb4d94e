use super::*;
use crate::net_ns::NetNamespace;
use caller::HasCredentials;
use vfs::testing::TestCaller;

struct NoNames;

impl Names for NoNames {
    fn make(&self, _cx: &dyn Caller, _path: &[u8], _kind: i32) -> Result<vfs::InodeRef> {
        Err(Errno::EINVAL)
    }
    fn find(&self, _cx: &dyn Caller, _path: &[u8]) -> Result<vfs::InodeRef> {
        Err(Errno::EINVAL)
    }
}

fn socket() -> (TestCaller, Arc<dyn SocketOps>) {
    let cx = TestCaller::with_caps(0);
    let (family, net) = (NetlinkFamily, NetNamespace::alone());
    let socket = family.create(&cx, &net, libc::SOCK_RAW, libc::NETLINK_ROUTE).unwrap();
    (cx, socket)
}

fn ask(kind: u16, flags: i32, body: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (cx, socket) = socket();
    let request = wire::Message::new(kind, (flags | libc::NLM_F_REQUEST) as u16, 7, 0).fixed(body).done();
    let mut req =
        SendRequest { data: &request, addr: None, control: Default::default(), flags: 0, block: None };
    assert_eq!(socket.send(&cx, &NoNames, &mut req)?, request.len());
    let mut out = Vec::new();
    let mut buf = [0; 32 << 10];
    while let Ok(got) = socket.recv(&cx, &mut buf, 0) {
        assert_eq!(got.addr.as_deref(), Some(&sockaddr(0, 0)[..]));
        out.push(buf[..got.len].to_vec());
    }
    Ok(out)
}

/// The kinds of all messages in some datagrams.
fn kinds(datagrams: &[Vec<u8>]) -> Vec<u16> {
    let mut out = Vec::new();
    for datagram in datagrams {
        let mut rest = &datagram[..];
        while let Some((header, _, after)) = wire::next(rest) {
            assert_eq!(header.seq, 7);
            out.push(header.kind);
            rest = after;
        }
    }
    out
}

#[test]
fn dumps_end_with_done() {
    let done = libc::NLMSG_DONE as u16;
    let all = |kind| kinds(&ask(kind, libc::NLM_F_DUMP, &[0; 16]).unwrap());
    assert_eq!(all(libc::RTM_GETLINK), [libc::RTM_NEWLINK, done]);
    assert_eq!(all(libc::RTM_GETADDR), [libc::RTM_NEWADDR, libc::RTM_NEWADDR, done]);
    assert_eq!(all(libc::RTM_GETNEIGH), [done]);
    let v4 = ask(libc::RTM_GETADDR, libc::NLM_F_DUMP, &[libc::AF_INET as u8, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(kinds(&v4), [libc::RTM_NEWADDR, done]);
    assert_eq!(wire::attribute(&v4[0], 8, libc::IFA_LOCAL), Some(&[127, 0, 0, 1][..]));
}

#[test]
fn one_link_by_name_or_number() {
    let body = |index: u32, name: Option<&str>| {
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend([0; 8]);
        if let Some(name) = name {
            body.extend((4 + name.len() as u16).to_ne_bytes());
            body.extend(libc::IFLA_IFNAME.to_ne_bytes());
            body.extend(name.as_bytes());
        }
        body
    };
    for (index, name, want) in [
        (1, None, Ok(())),
        (0, Some("lo"), Ok(())),
        (2, None, Err(Errno::ENODEV)),
        (0, Some("eth0"), Err(Errno::ENODEV)),
    ] {
        let got = ask(libc::RTM_GETLINK, 0, &body(index, name)).unwrap();
        match want {
            Ok(()) => assert_eq!(wire::attribute(&got[0], 16, libc::IFLA_IFNAME), Some(&b"lo\0"[..])),
            Err(error) => {
                assert_eq!(kinds(&got), [libc::NLMSG_ERROR as u16]);
                assert_eq!(got[0][16..20], (-error.raw()).to_ne_bytes());
            }
        }
    }
}

#[test]
fn changes_are_refused() {
    let got = ask(libc::RTM_NEWLINK, libc::NLM_F_ACK, &[0; 16]).unwrap();
    // The test's caller has no capability.
    assert_eq!(got[0][16..20], (-libc::EPERM).to_ne_bytes());
}

#[test]
fn nonsense_gets_no_answer_and_does_no_harm() {
    let (cx, socket) = socket();
    for data in [&b""[..], b"abc", &[255; 64], &[17, 0, 0, 0, 18, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let mut req = SendRequest { data, addr: None, control: Default::default(), flags: 0, block: None };
        socket.send(&cx, &NoNames, &mut req).unwrap();
    }
    let mut buf = [0; 4096];
    let mut answers = 0;
    while socket.recv(&cx, &mut buf, 0).is_ok() {
        answers += 1;
    }
    // The last one is a dump of the links, one byte long.
    assert_eq!(answers, 2);
}

#[test]
fn addresses_are_the_process_id_then_others() {
    let cx = TestCaller::with_caps(0);
    let (family, net) = (NetlinkFamily, NetNamespace::alone());
    let make = || family.create(&cx, &net, libc::SOCK_DGRAM, 0).unwrap();
    let (a, b) = (make(), make());
    a.bind(&cx, &NoNames, &sockaddr(0, 5)).unwrap();
    b.bind(&cx, &NoNames, &sockaddr(0, 0)).unwrap();
    assert_eq!(a.local_addr(), sockaddr(1, 5));
    assert_ne!(b.local_addr(), a.local_addr());
    assert_eq!(make().bind(&cx, &NoNames, &sockaddr(1, 0)), Err(Errno::EADDRINUSE));
    drop(a);
    make().bind(&cx, &NoNames, &sockaddr(1, 0)).unwrap();
}

/// A dump that is longer than the queue goes on while it is read.
#[test]
fn long_dumps_are_whole() {
    use netstack::datagram::Protocol;
    const COUNT: usize = 4000;
    let cx = TestCaller::with_caps(0);
    let net = NetNamespace::alone();
    let listed: Vec<_> = (0..COUNT)
        .map(|n| {
            let stack = net.stack();
            let socket = stack.datagram_socket(false, Protocol::Udp, Arc::new(netstack::notify::Silent));
            socket.bind(std::net::SocketAddr::from(([127, 0, 0, 1], 2000 + n as u16)), true).unwrap();
            socket
        })
        .collect();
    let socket = NetlinkFamily.create(&cx, &net, libc::SOCK_RAW, NETLINK_SOCK_DIAG).unwrap();
    let mut body = [0xff; 56];
    body[..4].copy_from_slice(&[libc::AF_INET as u8, libc::IPPROTO_UDP as u8, 0, 0]);
    body[8..12].fill(0);
    let flags = (libc::NLM_F_DUMP | libc::NLM_F_REQUEST) as u16;
    let request = wire::Message::new(20, flags, 7, 0).fixed(&body).done();
    let mut req =
        SendRequest { data: &request, addr: None, control: Default::default(), flags: 0, block: None };
    socket.send(&cx, &NoNames, &mut req).unwrap();
    let (mut out, mut buf) = (Vec::new(), [0; 32 << 10]);
    while let Ok(got) = socket.recv(&cx, &mut buf, 0) {
        out.push(buf[..got.len].to_vec());
    }
    let kinds = kinds(&out);
    assert_eq!(kinds.len(), COUNT + 1);
    assert_eq!(kinds.last(), Some(&(libc::NLMSG_DONE as u16)));
    assert!(out.iter().map(Vec::len).sum::<usize>() > QUEUE);
    drop(listed);
}

/// Raw sockets are listed with their protocol, in the place of the port and as an attribute.
#[test]
fn raw_sockets_are_listed() {
    use netstack::datagram::Protocol;
    const INET_DIAG_MSG: usize = 72;
    const INET_DIAG_PROTOCOL: u16 = 10;
    let cx = TestCaller::with_caps(0);
    let net = NetNamespace::alone();
    let silent = Arc::new(netstack::notify::Silent);
    let raw = net.stack().datagram_socket(false, Protocol::Raw(253), silent);
    let socket = NetlinkFamily.create(&cx, &net, libc::SOCK_RAW, NETLINK_SOCK_DIAG).unwrap();
    let mut body = [0xff; 56];
    body[..4].copy_from_slice(&[libc::AF_INET as u8, libc::IPPROTO_RAW as u8, 0, 0]);
    body[8..12].fill(0);
    let flags = (libc::NLM_F_DUMP | libc::NLM_F_REQUEST) as u16;
    let request = wire::Message::new(20, flags, 7, 0).fixed(&body).done();
    let mut req =
        SendRequest { data: &request, addr: None, control: Default::default(), flags: 0, block: None };
    socket.send(&cx, &NoNames, &mut req).unwrap();
    let mut buf = [0; 8192];
    let got = socket.recv(&cx, &mut buf, 0).unwrap();
    assert_eq!(kinds(&[buf[..got.len].to_vec()]), [20]);
    assert_eq!(buf[20..22], 253u16.to_be_bytes());
    assert_eq!(wire::attribute(&buf[..got.len], INET_DIAG_MSG, INET_DIAG_PROTOCOL), Some(&[253][..]));
    drop(raw);
}

/// Many dumps in one datagram are not all made: the second finds the first one at work.
#[test]
fn a_datagram_of_dumps_is_answered_as_far_as_the_queue_goes() {
    const TABLES: usize = 200;
    let cx = TestCaller::with_caps(u64::MAX);
    let of = cx.creds().user_ns.clone();
    let net = NetNamespace::new(1, of, spec::Interfaces::loopback(), &Arc::default());
    let socket = NetlinkFamily.create(&cx, &net, libc::SOCK_RAW, NETLINK_NETFILTER).unwrap();
    let flags = libc::NLM_F_REQUEST as u16;
    let message =
        |kind: u16, flags: u16, body: &[u8]| wire::Message::new(kind, flags, 7, 0).fixed(body).done();
    let mut batch = message(16, flags, &[0, 0, 0, 10]);
    for n in 0..TABLES {
        let mut body = vec![2, 0, 0, 0];
        body.extend([12, 0, 1, 0]);
        body.extend(format!("{n:07}\0").bytes());
        body.extend([4, 1, 6, 0]);
        body.extend([1; 256]);
        batch.extend(message(10 << 8, flags | libc::NLM_F_CREATE as u16, &body));
    }
    batch.extend(message(17, flags, &[0, 0, 0, 10]));
    let send = |data: &[u8]| {
        let mut req = SendRequest { data, addr: None, control: Default::default(), flags: 0, block: None };
        socket.send(&cx, &NoNames, &mut req).unwrap();
    };
    send(&batch);
    let mut first = [0; 64];
    let quiet = socket.recv(&cx, &mut first, 0).map(|got| got.len).err();
    assert_eq!(quiet, Some(Errno::EAGAIN), "{first:?}");
    let dump = message(10 << 8 | 1, flags | libc::NLM_F_DUMP as u16, &[2, 0, 0, 0]);
    send(&dump.repeat(1000));
    let (mut errors, mut bytes) = (Vec::new(), 0);
    let mut buf = [0; 32 << 10];
    while let Ok(got) = socket.recv(&cx, &mut buf, 0) {
        bytes += got.len;
        if let Some((header, _, _)) = wire::next(&buf[..got.len])
            && header.kind == libc::NLMSG_ERROR as u16
        {
            errors.push(i32::from_ne_bytes(buf[16..20].try_into().unwrap()));
        }
    }
    assert_eq!(errors.len(), 999);
    assert!(errors.iter().all(|error| *error == -Errno::EBUSY.raw()));
    assert!(bytes <= QUEUE);
    // Ever more of them are cut off.
    send(&dump.repeat(8000));
    assert!(matches!(socket.recv(&cx, &mut buf, 0), Err(Errno::ENOBUFS)));
}
