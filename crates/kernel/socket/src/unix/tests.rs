use super::*;
use crate::file::SocketFile;
use crate::ops::Control;
use crate::{cmsg, options};
use lock_order::Mutex;
use std::collections::HashMap;
use vfs::inode::{InternalFs, InternalInode};
use vfs::testing::TestCaller;
use vfs::{InodeRef, OpenFile};

/// Paths that lead nowhere.
struct NoPaths(Mutex<HashMap<Vec<u8>, InodeRef>>);
impl Names for NoPaths {
    fn make(&self, _cx: &dyn Caller, path: &[u8], _kind: i32) -> Result<InodeRef> {
        let i: InodeRef = Arc::new(InternalInode::new(1, InternalFs::Socket, 0o140777, 0, 0));
        self.0.lock().insert(path.to_vec(), i.clone());
        Ok(i)
    }
    fn find(&self, _cx: &dyn Caller, path: &[u8]) -> Result<InodeRef> {
        self.0.lock().get(path).cloned().ok_or(Errno::ENOENT)
    }
}

struct Bench {
    cx: TestCaller,
    names: NoPaths,
    family: UnixFamily,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            cx: TestCaller::with_caps(0),
            names: NoPaths(Mutex::default()),
            family: UnixFamily::new(1 << 30),
        }
    }
    fn pair(&self, kind: i32) -> [Arc<dyn SocketOps>; 2] {
        self.family.pair(&self.cx, &NetNamespace::alone(), kind, 0).unwrap()
    }
    fn send(&self, s: &dyn SocketOps, data: &[u8]) -> Result<usize> {
        self.send_with(s, data, Vec::new())
    }
    fn send_with(&self, s: &dyn SocketOps, data: &[u8], rights: Vec<Arc<OpenFile>>) -> Result<usize> {
        let control = Control { rights, ..Control::default() };
        s.send(&self.cx, &self.names, &mut SendRequest { data, addr: None, control, flags: 0, block: None })
    }
    fn recv(&self, s: &dyn SocketOps, n: usize, flags: i32) -> Result<(Vec<u8>, Received)> {
        let mut b = vec![0; n];
        let r = s.recv(&self.cx, &mut b, flags)?;
        b.truncate(r.len);
        Ok((b, r))
    }
    fn bytes(&self, s: &dyn SocketOps, n: usize) -> Result<Vec<u8>> {
        self.recv(s, n, 0).map(|r| r.0)
    }
}

fn named(n: &str) -> Vec<u8> {
    [&1u16.to_ne_bytes()[..], b"\0", n.as_bytes()].concat()
}

#[test]
fn streams_join_and_split() {
    let b = Bench::new();
    let [x, y] = b.pair(libc::SOCK_STREAM);
    assert_eq!(b.bytes(&*y, 9), Err(Errno::EAGAIN));
    b.send(&*x, b"hello ").unwrap();
    b.send(&*x, b"world").unwrap();
    assert_eq!(b.recv(&*y, 8, libc::MSG_PEEK).unwrap().0, b"hello wo");
    assert_eq!(b.bytes(&*y, 8).unwrap(), b"hello wo");
    assert_eq!(b.bytes(&*y, 8).unwrap(), b"rld");
    x.shutdown(libc::SHUT_WR).unwrap();
    assert_eq!(b.bytes(&*y, 8).unwrap(), b"");
    assert_eq!(y.poll().0, 0x2345);
    assert_eq!(b.send(&*x, b"x"), Err(Errno::EPIPE));
    assert_eq!(b.cx.raised().len(), 1);
    b.send(&*y, b"back").unwrap();
    drop(x);
    assert_eq!(b.bytes(&*y, 8), Err(Errno::ECONNRESET));
    assert_eq!(b.bytes(&*y, 8).unwrap(), b"");
    assert_eq!(y.poll().0, 0x2355);
}

#[test]
fn full_buffers() {
    let b = Bench::new();
    let [x, y] = b.pair(libc::SOCK_STREAM);
    let mut sent = 0;
    while let Ok(n) = b.send(&*x, &[7; 4096]) {
        sent += n;
    }
    assert_eq!(sent, 180_224);
    assert_eq!(x.poll().0, 0);
    let mut got = 0;
    while let Ok(v) = b.bytes(&*y, 10_000) {
        got += v.len();
    }
    assert_eq!(got, sent);
    assert_eq!(x.poll().0, 0x304);
    let [x, _y] = b.pair(libc::SOCK_DGRAM);
    assert_eq!(b.send(&*x, &vec![0; 212_992 - 31]), Err(Errno::EMSGSIZE));
    assert_eq!(b.send(&*x, &vec![0; 212_992 - 32]), Ok(212_992 - 32));
    assert_eq!(b.send(&*x, b"x"), Err(Errno::EAGAIN));
}

#[test]
fn records() {
    let b = Bench::new();
    let [x, y] = b.pair(libc::SOCK_SEQPACKET);
    b.send(&*x, b"abc").unwrap();
    b.send(&*x, b"").unwrap();
    let (d, r) = b.recv(&*y, 2, 0).unwrap();
    assert_eq!((&d[..], r.full, r.flags), (&b"ab"[..], 3, libc::MSG_TRUNC));
    assert_eq!(b.bytes(&*y, 2).unwrap(), b"");
    assert_eq!(b.bytes(&*y, 2), Err(Errno::EAGAIN));
    drop(y);
    assert_eq!(b.send(&*x, b"x"), Err(Errno::EPIPE));
    assert_eq!(b.bytes(&*x, 2).unwrap(), b"");
    let [x, y] = b.pair(libc::SOCK_DGRAM);
    drop(y);
    assert_eq!(b.send(&*x, b"x"), Err(Errno::ECONNREFUSED));
    assert_eq!(b.send(&*x, b"x"), Err(Errno::ENOTCONN));
}

#[test]
fn connecting() {
    let b = Bench::new();
    let new = || UnixSocket::new(libc::SOCK_STREAM, b.family.home.clone(), 1);
    let (l, c) = (new(), new());
    assert_eq!(c.poll().0, 0x314);
    let at = named("connecting");
    assert_eq!(c.connect(&b.cx, &b.names, &at), Err(Errno::ECONNREFUSED));
    assert_eq!(l.listen(&b.cx, 0), Err(Errno::EINVAL));
    l.bind(&b.cx, &b.names, &at).unwrap();
    assert_eq!(new().bind(&b.cx, &b.names, &at), Err(Errno::EADDRINUSE));
    assert_eq!(c.connect(&b.cx, &b.names, &at), Err(Errno::ECONNREFUSED));
    l.listen(&b.cx, 0).unwrap();
    assert_eq!(l.accept().err(), Some(Errno::EAGAIN));
    c.connect(&b.cx, &b.names, &at).unwrap();
    assert_eq!(c.connect(&b.cx, &b.names, &at), Err(Errno::EAGAIN).or(Err(Errno::EISCONN)));
    assert_eq!(new().connect(&b.cx, &b.names, &at), Err(Errno::EAGAIN));
    b.send(&*c, b"early").unwrap();
    assert_eq!(l.poll(), Events::READABLE);
    let a = l.accept().unwrap();
    assert_eq!(b.bytes(&*a, 9).unwrap(), b"early");
    assert_eq!((a.local_addr(), c.peer_addr().unwrap()), (at.clone(), at.clone()));
    assert_eq!(a.peer_addr().unwrap(), [1, 0]);
    assert_eq!(c.peer_cred().shown_to(&b.cx).pid, 1);
    let late = new();
    late.connect(&b.cx, &b.names, &at).unwrap();
    drop(l);
    assert_eq!(b.bytes(&*late, 1), Err(Errno::ECONNRESET));
    assert_eq!(new().connect(&b.cx, &b.names, &at), Err(Errno::ECONNREFUSED));
}

#[test]
fn datagrams() {
    let b = Bench::new();
    let new = || UnixSocket::new(libc::SOCK_DGRAM, b.family.home.clone(), 1);
    let (x, y) = (new(), new());
    let at = named("datagrams");
    y.bind(&b.cx, &b.names, &at).unwrap();
    let to = |s: &UnixSocket, d: &[u8]| {
        let mut r =
            SendRequest { data: d, addr: Some(&at), control: Control::default(), flags: 0, block: None };
        s.send(&b.cx, &b.names, &mut r)
    };
    to(&x, b"one").unwrap();
    assert_eq!(b.recv(&*y, 9, 0).unwrap().1.addr, None);
    x.bind(&b.cx, &b.names, &1u16.to_ne_bytes()).unwrap();
    to(&x, b"two").unwrap();
    assert_eq!(b.recv(&*y, 9, 0).unwrap().1.addr.unwrap().len(), 8);
    while to(&x, b"z").is_ok() {}
    assert_eq!(y.sock.state.lock().recv.len(), 11);
    assert!(x.poll().intersects(Events::OUT));
    x.connect(&b.cx, &b.names, &at).unwrap();
    assert!(!x.poll().intersects(Events::OUT));
    b.bytes(&*y, 1).unwrap();
    assert!(x.poll().intersects(Events::OUT));
    y.connect(&b.cx, &b.names, &x.local_addr()).unwrap();
    assert_eq!(to(&new(), b"q"), Err(Errno::EPERM));
}

#[test]
fn passing_files_and_cycles() {
    let b = Bench::new();
    let open = |s: &Arc<dyn SocketOps>| SocketFile::open(&b.cx, &NetNamespace::alone(), s.clone(), 0);
    let [x, y] = b.pair(libc::SOCK_STREAM);
    let [p, q] = b.pair(libc::SOCK_STREAM);
    let pf = open(&p);
    drop(p);
    b.send_with(&*x, b"ab", vec![pf.clone()]).unwrap();
    b.send(&*x, b"cd").unwrap();
    drop(pf);
    let (d, r) = b.recv(&*y, 9, 0).unwrap();
    assert_eq!((&d[..], r.control.rights.len()), (&b"ab"[..], 1));
    drop(r);
    assert_eq!(b.bytes(&*q, 1).unwrap(), b"");
    // Each end of a pair is queued in the other: only the collector can tell.
    let (xf, yf) = (open(&x), open(&y));
    let watch = (Arc::downgrade(&x), Arc::downgrade(&y));
    b.send_with(&*x, b"1", vec![xf.clone()]).unwrap();
    b.send_with(&*y, b"2", vec![yf.clone()]).unwrap();
    drop((x, y, xf));
    assert!(watch.0.upgrade().is_some());
    yf.ops.flush(&b.cx, &yf).unwrap();
    drop(yf);
    assert!(watch.0.upgrade().is_none() && watch.1.upgrade().is_none());
    assert_eq!(b.family.home.in_flight.of_user(0), 0);
}

#[test]
fn credentials_and_options() {
    let b = Bench::new();
    let [x, y] = b.pair(libc::SOCK_STREAM);
    b.send(&*x, b"a").unwrap();
    options::set(&*y, &b.cx, libc::SO_PASSCRED, &[1, 0, 0, 0]).unwrap();
    b.send(&*x, b"b").unwrap();
    let (d, r) = b.recv(&*y, 9, 0).unwrap();
    assert_eq!((&d[..], r.control.cred.unwrap().uid), (&b"a"[..], 65534));
    let (d, r) = b.recv(&*y, 9, 0).unwrap();
    assert_eq!((&d[..], r.control.cred.unwrap().shown_to(&b.cx).pid), (&b"b"[..], 1));
    let int =
        |s: &dyn SocketOps, n| options::get(s, n).map(|v| i32::from_ne_bytes(v[..4].try_into().unwrap()));
    assert_eq!(int(&*x, libc::SO_TYPE), Ok(1));
    assert_eq!(int(&*x, libc::SO_SNDBUF), Ok(212_992));
    options::set(&*x, &b.cx, libc::SO_SNDBUF, &1i32.to_ne_bytes()).unwrap();
    assert_eq!(int(&*x, libc::SO_SNDBUF), Ok(4608));
    assert_eq!(options::set(&*x, &b.cx, libc::SO_SNDBUF, &[1]), Err(Errno::EINVAL));
    assert_eq!(int(&*x, 9999), Err(Errno::ENOPROTOOPT));
    assert_eq!(cmsg::parse(&[]), Ok(vec![]));
}

#[test]
fn waits_with_time_outs() {
    use crate::io;
    let b = Bench::new();
    let [x, y] = b.pair(libc::SOCK_STREAM);
    let f = SocketFile::open(&b.cx, &NetNamespace::alone(), y.clone(), 0);
    let mut buf = [0; 6];
    let tv = [0i64, 2000];
    options::set(&*y, &b.cx, libc::SO_RCVTIMEO, zerocopy::IntoBytes::as_bytes(&tv)).unwrap();
    let r = io::recv(&b.cx, &f, &*y, &mut buf, 0);
    assert_eq!(r.err(), Some(Errno::EAGAIN.into()));
    options::set(&*y, &b.cx, libc::SO_RCVTIMEO, &[0; 16]).unwrap();
    let t = std::thread::spawn(move || {
        let b = Bench::new();
        b.send(&*x, b"abc").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3));
        b.send(&*x, b"defg").unwrap();
    });
    assert_eq!(io::recv(&b.cx, &f, &*y, &mut buf, libc::MSG_WAITALL).unwrap().len, 6);
    t.join().unwrap();
    assert_eq!(&buf, b"abcdef");
}

/// Runs on a thread with the smallest stack that one can have.
fn on_small_stack(f: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(16 << 10).spawn(f).unwrap().join().unwrap();
}

/// A chain of sockets, each in a message to the next; gives the last one and a watch on the first.
fn chain(b: &Bench, kind: i32, length: usize) -> (Arc<OpenFile>, std::sync::Weak<OpenFile>) {
    let open = |s: Arc<dyn SocketOps>| SocketFile::open(&b.cx, &NetNamespace::alone(), s, 0);
    let mut last = open(b.pair(kind)[0].clone());
    let first = Arc::downgrade(&last);
    for _ in 0..length {
        let [x, y] = b.pair(kind);
        b.send_with(&*x, b"m", vec![std::mem::replace(&mut last, open(y))]).unwrap();
    }
    (last, first)
}

#[test]
fn long_chains_of_messages() {
    for kind in [libc::SOCK_DGRAM, libc::SOCK_STREAM] {
        let b = Bench::new();
        let (last, first) = chain(&b, kind, 20_000);
        on_small_stack(move || drop(last));
        assert!(first.upgrade().is_none());
        assert_eq!(b.family.home.in_flight.of_user(0), 0);
    }
}

#[test]
fn long_chains_in_a_cycle_and_in_a_backlog() {
    let b = Bench::new();
    let (last, first) = chain(&b, libc::SOCK_STREAM, 20_000);
    let [x, y] = b.pair(libc::SOCK_STREAM);
    let (xf, yf) = (
        SocketFile::open(&b.cx, &NetNamespace::alone(), x.clone(), 0),
        SocketFile::open(&b.cx, &NetNamespace::alone(), y, 0),
    );
    b.send_with(&*x, b"1", vec![last, yf.clone()]).unwrap();
    drop((x, xf));
    let cx = Bench::new();
    on_small_stack(move || {
        // Half as many events as there are sockets in flight.
        for _ in 0..12_000 {
            yf.ops.flush(&cx.cx, &yf).unwrap();
        }
        drop(yf);
    });
    assert!(first.upgrade().is_none());

    let (last, first) = chain(&b, libc::SOCK_STREAM, 20_000);
    let new = || UnixSocket::new(libc::SOCK_STREAM, b.family.home.clone(), 1);
    let (l, c) = (new(), new());
    l.bind(&b.cx, &b.names, &named("backlog")).unwrap();
    l.listen(&b.cx, 1).unwrap();
    c.connect(&b.cx, &b.names, &named("backlog")).unwrap();
    b.send_with(&*c, b"1", vec![last]).unwrap();
    on_small_stack(move || drop((l, c)));
    assert!(first.upgrade().is_none());
}

#[test]
fn garbage_stays_in_proportion() {
    let b = Bench::new();
    let open = |s: &Arc<dyn SocketOps>| SocketFile::open(&b.cx, &NetNamespace::alone(), s.clone(), 0);
    for _ in 0..1000 {
        let [x, y] = b.pair(libc::SOCK_DGRAM);
        let (xf, yf) = (open(&x), open(&y));
        b.send_with(&*x, b"1", vec![xf.clone(), yf.clone()]).unwrap();
        b.send_with(&*y, b"2", vec![xf.clone()]).unwrap();
        drop((x, y));
        for f in [xf, yf] {
            f.ops.flush(&b.cx, &f).unwrap();
        }
        assert_eq!(b.family.home.in_flight.of_user(0), 0);
    }
}

#[test]
fn queues_of_all_sockets_are_bounded() {
    let b = Bench { family: UnixFamily::new(1 << 20), ..Bench::new() };
    let all: Vec<_> = (0..20).map(|_| b.pair(libc::SOCK_STREAM)).collect();
    let mut last = Ok(0);
    let mut total = 0;
    for [x, _] in &all {
        last = b.send(&**x, &[0; 100_000]);
        total += last.unwrap_or(0);
    }
    assert_eq!(last, Err(Errno::ENOBUFS));
    assert!((900_000..1 << 20).contains(&total));
    assert_eq!(b.bytes(&*all[0][1], 100_000).unwrap().len(), 100_000);
    assert_eq!(b.send(&*all[19][0], &[0; 100]), Ok(100));
    drop(all);
    assert_eq!(b.family.home.queued.load(Ordering::Relaxed), 0);
}

#[test]
fn state_and_back() {
    let b = Bench::new();
    let net = NetNamespace::alone();
    let file = |ops: Arc<dyn SocketOps>| SocketFile::open(&b.cx, &net, ops, 0);
    let ops = |file: &OpenFile| SocketFile::of(file).expect("a socket").ops.clone();
    let open = |kind| file(b.family.create(&b.cx, &net, kind, 0).expect("made"));
    // A stream with something to read, an urgent byte and a descriptor; a socket that carries itself.
    let [x, y] = b.pair(libc::SOCK_STREAM).map(file);
    b.send(&*ops(&x), b"hello ").expect("sent");
    assert_eq!(b.bytes(&*ops(&y), 2).expect("there"), b"he");
    b.send_with(&*ops(&x), b"world", vec![x.clone()]).expect("sent");
    let mut urgent = SendRequest {
        data: b"!",
        addr: None,
        control: Control::default(),
        flags: libc::MSG_OOB,
        block: None,
    };
    ops(&x).send(&b.cx, &b.names, &mut urgent).expect("sent");
    options::set(&*ops(&y), &b.cx, libc::SO_RCVLOWAT, &4i32.to_ne_bytes()).expect("set");
    // Records from a sender that is gone.
    let [gone, records] = b.pair(libc::SOCK_SEQPACKET);
    b.send(&*gone, b"first").expect("sent");
    b.send(&*gone, b"").expect("sent");
    drop(gone);
    let records = file(records);
    // A listening socket, a connection that waits, and one that was accepted.
    let [listener, client, waiting] = [(); 3].map(|()| open(libc::SOCK_STREAM));
    ops(&listener).bind(&b.cx, &b.names, &named("house")).expect("bound");
    ops(&listener).listen(&b.cx, 3).expect("listens");
    ops(&client).connect(&b.cx, &b.names, &named("house")).expect("connected");
    let accepted = file(ops(&listener).accept().expect("waits"));
    ops(&waiting).connect(&b.cx, &b.names, &named("house")).expect("connected");
    b.send(&*ops(&waiting), b"early").expect("sent");
    // A datagram socket with a file for a name.
    let path = [&1u16.to_ne_bytes()[..], b"/d"].concat();
    let datagram = open(libc::SOCK_DGRAM);
    ops(&datagram).bind(&b.cx, &b.names, &path).expect("bound");

    let old = [x, y, records, listener, client, accepted, waiting, datagram];
    let saved = b.family.state(old.iter().map(|file| &**file));
    assert_eq!((saved.state.sockets.len(), saved.in_flight.len()), (10, 1));
    let place = InternalInode::new(1, InternalFs::Socket, 0o140777, 0, 0);
    let place: InodeRef = Arc::new(place);

    let other = UnixFamily::new(1 << 30);
    let pid = |nr| b.cx.pid_ns.find(nr);
    let restored = other.restore(&saved.state, &pid, |_| Some(place.clone())).expect("restored");
    let made: Vec<Arc<OpenFile>> = old
        .iter()
        .map(|file| {
            let attr = file.inode.as_ref().expect("sockfs").attr().expect("known");
            let socket = restored.socket(attr.ino).expect("restored");
            SocketFile::restore(&net, socket, attr, &file.state()).expect("restored")
        })
        .collect();
    let find = |id| old.iter().position(|file| file.id == id).map(|at| made[at].clone());
    restored.fill(&saved.state, &pid, find).expect("filled");
    let again = other.state(made.iter().map(|file| &**file));
    let ids = |state: &UnixState| {
        let mut state = state.clone();
        for m in state.sockets.iter_mut().flat_map(|s| &mut s.messages) {
            m.rights.0.iter_mut().for_each(|id| *id = u64::MAX);
        }
        state
    };
    assert_eq!(ids(&again.state), ids(&saved.state));
    drop((old, saved, again));

    let [x, y, records, listener, client, accepted, waiting, datagram]: [Arc<OpenFile>; 8] =
        made.try_into().ok().expect("eight");
    assert_eq!(b.recv(&*ops(&y), 9, libc::MSG_OOB).expect("urgent").0, b"!");
    let (text, received) = b.recv(&*ops(&y), 20, 0).expect("there");
    assert_eq!((&text[..], received.control.rights.len()), (&b"llo world"[..], 1));
    assert!(Arc::ptr_eq(&received.control.rights[0], &x));
    assert_eq!(options::get(&*ops(&y), libc::SO_RCVLOWAT), Ok(4i32.to_ne_bytes().to_vec()));
    assert_eq!(b.bytes(&*ops(&records), 9), Ok(b"first".to_vec()));
    assert_eq!(b.bytes(&*ops(&records), 9), Ok(Vec::new()));
    assert_eq!(b.send(&*ops(&records), b"x"), Err(Errno::EPIPE));
    // The name is the listening socket's, and what waits can be accepted.
    let newcomer = other.create(&b.cx, &net, libc::SOCK_STREAM, 0).expect("made");
    assert_eq!(newcomer.bind(&b.cx, &b.names, &named("house")), Err(Errno::EADDRINUSE));
    let second = ops(&listener).accept().expect("waits");
    assert_eq!(b.bytes(&*second, 9), Ok(b"early".to_vec()));
    assert_eq!(ops(&listener).accept().err(), Some(Errno::EAGAIN));
    assert_eq!(ops(&waiting).peer_addr(), Ok(named("house")));
    b.send(&*ops(&client), b"to you").expect("sent");
    assert_eq!(b.bytes(&*ops(&accepted), 9), Ok(b"to you".to_vec()));
    assert_eq!(ops(&accepted).peer_cred().pid.map(|pid| pid.nr()), Some(b.cx.pid.nr()));
    // By its file a socket is found as well.
    b.names.0.lock().insert(b"/d".to_vec(), place);
    let sender = other.create(&b.cx, &net, libc::SOCK_DGRAM, 0).expect("made");
    sender.connect(&b.cx, &b.names, &path).expect("found");
    b.send(&*sender, b"by name").expect("sent");
    assert_eq!(b.bytes(&*ops(&datagram), 9), Ok(b"by name".to_vec()));
    // Nothing is left in the queues' account.
    drop((x, y, records, listener, client, accepted, waiting, datagram, received));
    drop((second, newcomer, sender));
    assert_eq!(other.home.queued.load(Ordering::Relaxed), 0);
}
