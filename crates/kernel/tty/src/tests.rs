use crate::devpts::Devpts;
use crate::files::{MasterFile, SlaveFile};
use crate::pty::{JobControl, Pty};
use crate::testing::{Jobs, Memory};
use crate::{ConsolePty, termios::Termios};
use abi::{Errno, Signal};
use caller::{Blocking, Limits};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use vfs::testing::TestCaller;
use vfs::{FileOps, FileSystem, OpenFile};
use wait::Events;

struct Bench {
    jobs: Arc<Jobs>,
    pty: Arc<Pty>,
    master: Arc<OpenFile>,
    slave: Arc<OpenFile>,
    cx: TestCaller,
}

impl Bench {
    fn new() -> Bench {
        let jobs = Arc::new(Jobs::default());
        let cx = TestCaller::with_caps(0);
        let pty = Pty::new(0, cx.resources().clock, jobs.clone(), Weak::new());
        assert_eq!(SlaveFile::open(&pty, &cx, 0).err(), Some(Errno::EIO));
        pty.inner.lock().locked = false;
        let slave = SlaveFile::open(&pty, &cx, libc::O_RDWR).unwrap();
        let master = Arc::new(MasterFile { pty: pty.clone() });
        let file = |ops: Arc<dyn FileOps>| OpenFile::anonymous(ops, libc::O_RDWR);
        Bench { jobs, pty, master: file(master), slave: file(slave), cx }
    }
    fn write(&self, f: &OpenFile, s: &str) -> abi::Result<usize> {
        f.ops.write(&self.cx, f, s.as_bytes(), 0)
    }
    fn read(&self, f: &OpenFile) -> abi::Result<String> {
        let mut b = [0; 100];
        let n = f.ops.read(&self.cx, f, &mut b, 0)?;
        Ok(String::from_utf8_lossy(&b[..n]).into_owned())
    }
    fn sent(&self) -> Vec<(i32, Signal)> {
        std::mem::take(&mut self.jobs.sent.lock())
    }
    fn raw(&self, min: u8, time: u8) {
        let mut t = Termios::default();
        t.lflag &= !(libc::ICANON | libc::ECHO);
        t.cc[libc::VMIN] = min;
        t.cc[libc::VTIME] = time;
        self.pty.set_termios(t, false);
    }
}

#[test]
fn typing_and_printing() {
    let b = Bench::new();
    assert_eq!((b.master.ops.poll(&b.cx, &b.master).0, b.slave.ops.poll(&b.cx, &b.slave).0), (0x104, 0x104));
    b.write(&b.master, "hi\n").unwrap();
    assert_eq!((b.master.ops.poll(&b.cx, &b.master).0, b.slave.ops.poll(&b.cx, &b.slave).0), (0x145, 0x145));
    assert_eq!(b.read(&b.slave).unwrap(), "hi\n");
    assert_eq!(b.read(&b.master).unwrap(), "hi\r\n");
    assert_eq!(b.read(&b.slave), Err(Errno::EAGAIN));
    b.write(&b.slave, "a\n").unwrap();
    assert_eq!(b.read(&b.master).unwrap(), "a\r\n");
    b.write(&b.master, "\x13").unwrap();
    assert_eq!(b.write(&b.slave, "x"), Err(Errno::EAGAIN));
    b.write(&b.master, "\x11").unwrap();
    assert_eq!(b.write(&b.slave, "x"), Ok(1));
}

#[test]
fn signals_reach_the_foreground() {
    let b = Bench::new();
    assert_eq!(b.pty.inner.lock().session, 1);
    b.write(&b.master, "\x03\x1c\x1a").unwrap();
    assert_eq!(b.sent(), [(1, Signal::SIGINT), (1, Signal::SIGQUIT), (1, Signal::SIGTSTP)]);
    let mut mem = Memory([0; 256]);
    let ioctl =
        |f: &OpenFile, cx: &TestCaller, mem: &mut Memory, cmd: u64| f.ops.ioctl(cx, f, mem, cmd as u32, 0);
    let _second = b.cx.pid_ns.alloc().unwrap();
    mem.0[0] = 2;
    assert_eq!(ioctl(&b.slave, &b.cx, &mut mem, libc::TIOCSPGRP), Ok(0));
    // Group 1 is in the background now.
    assert_eq!(b.read(&b.slave), Err(Errno::ERESTARTSYS));
    assert_eq!(b.sent(), [(1, Signal::SIGTTIN)]);
    assert_eq!(ioctl(&b.slave, &b.cx, &mut mem, libc::TCSETS), Err(Errno::ERESTARTSYS));
    assert_eq!(b.sent(), [(1, Signal::SIGTTOU)]);
    let mut quiet = TestCaller::with_caps(0);
    quiet.ignores = true;
    let mut buf = [0; 4];
    assert_eq!(b.slave.ops.read(&quiet, &b.slave, &mut buf, 0), Err(Errno::EIO));
    mem.0[0] = 24;
    assert_eq!(ioctl(&b.slave, &b.cx, &mut mem, libc::TIOCSWINSZ), Ok(0));
    assert_eq!(b.sent(), [(2, Signal::SIGWINCH)]);
    mem.0[0] = 9;
    assert_eq!(ioctl(&b.slave, &quiet, &mut mem, libc::TIOCSPGRP), Err(Errno::ESRCH));
    b.pty.session_leader_left(1);
    assert_eq!(b.sent(), [(2, Signal::SIGHUP)]);
    assert_eq!(ioctl(&b.slave, &quiet, &mut mem, libc::TIOCGPGRP), Err(Errno::ENOTTY));
}

#[test]
fn closing_ends() {
    let b = Bench::new();
    b.write(&b.slave, "bye").unwrap();
    let Bench { master, slave, pty, cx, jobs } = b;
    drop(slave);
    let mut buf = [0; 8];
    assert_eq!(master.ops.poll(&cx, &master).0, 0x155);
    assert_eq!(master.ops.read(&cx, &master, &mut buf, 0), Ok(3));
    assert_eq!(master.ops.read(&cx, &master, &mut buf, 0), Err(Errno::EIO));
    let again = SlaveFile::open(&pty, &cx, libc::O_NOCTTY).unwrap();
    let slave = OpenFile::anonymous(again, libc::O_RDWR);
    assert_eq!(master.ops.read(&cx, &master, &mut buf, 0), Err(Errno::EAGAIN));
    drop(master);
    assert_eq!(slave.ops.poll(&cx, &slave).0, 0x15d);
    assert_eq!(slave.ops.read(&cx, &slave, &mut buf, 0), Ok(0));
    assert_eq!(slave.ops.write(&cx, &slave, b"x", 0), Err(Errno::EIO));
    assert_eq!(*jobs.sent.lock(), [(1, Signal::SIGHUP), (1, Signal::SIGCONT)]);
}

#[test]
fn raw_reads_count_and_time() {
    let b = Bench::new();
    b.raw(3, 0);
    b.write(&b.master, "ab").unwrap();
    assert_eq!(b.read(&b.slave), Err(Errno::EAGAIN));
    b.write(&b.master, "c").unwrap();
    assert_eq!(b.read(&b.slave).unwrap(), "abc");
    b.raw(0, 0);
    assert_eq!(b.read(&b.slave).unwrap(), "");
    b.raw(0, 1);
    let start = Instant::now();
    let q = b.slave.ops.wait_queue(&b.cx).unwrap();
    let wait = || b.cx.waiter().wait_on(&q, Events::READABLE, None, || b.read(&b.slave).ok()).unwrap();
    assert_eq!(wait(), "");
    assert!(start.elapsed() >= Duration::from_millis(100));
    b.raw(5, 1);
    b.write(&b.master, "z").unwrap();
    assert_eq!(wait(), "z");
}

#[test]
fn packet_mode() {
    let b = Bench::new();
    b.pty.change(|i, _| i.packet = true);
    b.write(&b.slave, "x").unwrap();
    assert_eq!(b.read(&b.master).unwrap(), "\0x");
    b.pty.flush(true, false);
    assert_eq!(b.master.ops.poll(&b.cx, &b.master).0, 0x147);
    assert_eq!(b.read(&b.master).unwrap(), "\x01");
    b.write(&b.master, "\x13").unwrap();
    assert_eq!(b.read(&b.master).unwrap(), "\x04");
}

#[test]
fn console_and_devpts() {
    let cx = TestCaller::with_caps(0);
    let fs = Devpts::new(Arc::new(Jobs::default()), &cx, b"gid=5,mode=620,ptmxmode=666").unwrap();
    assert!(Devpts::new(Arc::new(Jobs::default()), &cx, b"bogus").is_err());
    assert_eq!(fs.options(), "gid=5,mode=620,ptmxmode=666");
    let pty = fs.allocate(&cx).unwrap();
    let root = fs.root();
    let node = root.lookup(&cx, b"0").unwrap();
    assert_eq!((node.attr().unwrap().mode, node.attr().unwrap().gid), (0o20620, 5));
    assert!(root.lookup(&cx, b"00").is_err() && root.lookup(&cx, b"ptmx").is_ok());
    pty.hang_up();
    assert!(root.lookup(&cx, b"0").is_err());
    let alone = mounts::FsContext::new(mounts::testing::mount_ns(vfs::Mount::of(
        fs,
        vfs::MountFlags::empty(),
        b"devpts",
    )));
    let (c, slave) = ConsolePty::open(&cx, &alone.view(), Arc::new(Jobs::default())).unwrap();
    slave.ops.write(&cx, &slave, b"out\n", 0).unwrap();
    let mut buf = [0; 9];
    assert_eq!(c.take_output(&mut buf), 5);
    c.written(5);
    c.drain();
    c.feed(b"in\n");
    assert_eq!(c.foreground(), Some(1));
    assert_eq!(slave.ops.read(&cx, &slave, &mut buf, 0), Ok(3));
    c.end_of_input();
    assert_eq!(slave.ops.read(&cx, &slave, &mut buf, 0), Ok(0));
    assert!(root.lookup(&cx, b"0").is_err(), "this instance is not at /dev/pts");
    c.take_output(&mut buf);
    assert_eq!(c.take_output(&mut buf), 0);
}

#[test]
fn a_pair_comes_back_with_what_was_typed_and_written() {
    let (cx, jobs) = (TestCaller::root(), Arc::new(Jobs::default()));
    let devpts = || Devpts::new(jobs.clone(), &cx, b"").expect("made");
    let (old, new) = (devpts(), devpts());
    // Another number than the lowest free one.
    let _first = old.allocate(&cx).expect("free");
    let pty = old.allocate(&cx).expect("free");
    pty.inner.lock().locked = false;
    let slave = SlaveFile::open(&pty, &cx, libc::O_NOCTTY).expect("opened");
    pty.take_session(&cx);
    pty.resize(crate::termios::WinSize { row: 30, col: 100, xpixel: 0, ypixel: 0 });
    pty.type_in(b"a line\nand a ha").expect("typed");
    pty.write(&cx, b"shown").expect("written");
    let saved = pty.state().expect("has an inode");
    let mut bytes = Vec::new();
    ciborium::into_writer(&saved, &mut bytes).expect("encoded");
    let saved: crate::PtyState = ciborium::from_reader(&*bytes).expect("decoded");
    drop((slave, pty));
    jobs.set_terminal(1, None);

    let pty = new.restore(&cx, &saved, None, &|_| None).expect("restored");
    assert_eq!(pty.index, 1);
    assert_eq!(new.restore(&cx, &saved, None, &|_| None).err(), Some(Errno::EEXIST));
    let again = crate::PtyState { attr: saved.attr, ..pty.state().expect("has an inode") };
    assert_eq!(again, saved);
    let file = |ops| OpenFile::anonymous(ops, libc::O_RDWR);
    let (master, slave) = (file(MasterFile::restore(&pty)), file(SlaveFile::restore(&pty)));
    pty.restore_session();
    assert!(jobs.terminal(1).is_some_and(|one| Arc::ptr_eq(&one, &pty)));
    let mut buf = [0; 100];
    let mut read = |file: &OpenFile| file.ops.read(&cx, file, &mut buf, 0).map(|n| buf[..n].to_vec());
    assert_eq!(read(&slave), Ok(b"a line\n".to_vec()));
    assert_eq!(read(&slave), Err(Errno::EAGAIN));
    assert_eq!(read(&master), Ok(b"a line\r\nand a hashown".to_vec()));
    // The last slave goes, as it did before.
    drop(slave);
    assert_eq!(read(&master), Err(Errno::EIO));
    // Of a hostile image.
    let bad = |change: &dyn Fn(&mut crate::PtyState)| {
        let mut state = crate::PtyState { index: 5, ..saved.clone() };
        change(&mut state);
        new.restore(&cx, &state, None, &|_| None).map(drop)
    };
    assert_eq!(bad(&|state| state.ldisc.ready = vec![(b'a', 3)]), Err(Errno::EINVAL));
    assert_eq!(bad(&|state| state.ldisc.columns.0 = usize::MAX), Err(Errno::EINVAL));
    assert_eq!(bad(&|state| state.pending = vec![0; 1 << 20]), Err(Errno::EINVAL));
    assert_eq!(bad(&|state| state.index = u32::MAX), Err(Errno::EEXIST));
}
