//! procfs over a kernel with one process, which never runs.

use abi::{Errno, Result};
use files::FdTable;
use lock_order::Mutex;
use mm::{MemoryMap, Mm, Vma, VmaKind};
use mounts::{FsContext, MountNs};
use namei::{Lookup, OpenHow, Start};
use nsproxy::Uts;
use platform::{
    Action, AddressSpace, Context, Exit, ExtendedState, GuestMemory, Interrupt, Limits, OwnCall, OwnCalls,
    Platform, Regs, Spawn, Usage,
};
use rights::{Cap, Credentials};
use std::sync::Arc;
use task::{Current, Kernel, NodeState, Parts, ProcessInherited, SystemCalls, ThreadGroup, Tree};
use user_ns::UserNamespace;
use vfs::{Mount, MountFlags, OpenFile};

struct Fake;

/// Memory of 64 KiB from address 0x1000 on.
struct Space(Mutex<Vec<u8>>);

const BASE: u64 = 0x1000;

impl AddressSpace for Space {
    fn read(&self, addr: u64, buf: &mut [u8]) -> usize {
        let m = self.0.lock();
        let Some(from) = addr.checked_sub(BASE).and_then(|o| m.get(o as usize..)) else { return 0 };
        let n = from.len().min(buf.len());
        buf[..n].copy_from_slice(&from[..n]);
        n
    }
    fn write(&self, addr: u64, data: &[u8]) -> usize {
        let mut m = self.0.lock();
        let Some(to) = addr.checked_sub(BASE).and_then(|o| m.get_mut(o as usize..)) else { return 0 };
        let n = to.len().min(data.len());
        to[..n].copy_from_slice(&data[..n]);
        n
    }
    fn kill(&self) {}
    fn host_pid(&self) -> i32 {
        0
    }
}

struct Never(Arc<Space>, Regs);

impl Interrupt for Never {
    fn interrupt(&self) {}
}

impl Context for Never {
    fn space(&self) -> Arc<dyn AddressSpace> {
        self.0.clone()
    }
    fn regs(&mut self) -> &Regs {
        &self.1
    }
    fn regs_mut(&mut self) -> &mut Regs {
        &mut self.1
    }
    fn run(&mut self) -> Exit {
        Exit::Interrupted
    }
    fn queue(&mut self, _action: Action) {}
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn spawn(&mut self, _how: Spawn) -> Result<Box<dyn Context>> {
        Err(Errno::EAGAIN)
    }
    fn interrupter(&self) -> Arc<dyn Interrupt> {
        Arc::new(Never(self.0.clone(), Regs::default()))
    }
    fn set_report_all(&mut self, _on: bool) {}
    fn patch_vdso(&mut self, _addr: u64, _data: &[u8]) -> Result<()> {
        Ok(())
    }
    fn pass_futex(&mut self, _tell: bool, _timeout: Option<[u64; 2]>) -> bool {
        false
    }
    fn exit(self: Box<Self>) {}
}

impl GuestMemory for Never {
    fn queue_write(&mut self, addr: u64, data: &[u8]) {
        self.queue(Action::Write { addr, data: data.to_vec() });
    }
    fn write_limit(&self) -> usize {
        0
    }
    fn captured(&self, _addr: u64, _buf: &mut [u8]) -> bool {
        false
    }
    fn compare_exchange(&mut self, _addr: u64, _old: u32, _new: u32) -> Result<u32> {
        Err(Errno::EFAULT)
    }
}

impl ExtendedState for Never {
    fn xstate(&mut self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
    fn set_xstate(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }
    fn reset_xstate(&mut self) {}
}

impl Usage for Never {
    fn thread_time(&mut self, _host_tid: i32) -> Option<u64> {
        None
    }
    fn usage(&mut self, _thread: bool) -> Option<platform::HostUsage> {
        None
    }
}

impl OwnCalls for Never {
    fn own_call(&mut self, _call: OwnCall, _out: &mut [u8]) -> Result<u64> {
        Err(Errno::ENOSYS)
    }
}

impl Platform for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn limits(&self) -> Limits {
        Limits {
            min: BASE,
            max: 0x7fff_0000_0000,
            vdso: Some((0x7fff_f000_0000, 0x2000)),
            vvar: Some((0x7fff_efff_c000, 0x4000)),
            xstate_size: 0,
        }
    }
    fn new_space(&self) -> Result<Box<dyn Context>> {
        Ok(Box::new(Never(Arc::new(Space(Mutex::new(vec![0; 64 << 10]))), Regs::default())))
    }
}

struct NoCalls;

impl SystemCalls for NoCalls {
    fn dispatch(&self, _c: &mut Current) {}
    fn perform(&self, _c: &mut Current) {}
}

/// One process with procfs as its root.
fn process() -> Current {
    let uts = Uts::new("box".into(), "(none)".into());
    let user_ns = UserNamespace::initial();
    let owner = user_ns.clone();
    let kernel = Kernel::new(Parts {
        user_ns: user_ns.clone(),
        platform: Arc::new(Fake),
        calls: Arc::new(NoCalls),
        uts,
        offsets: nsproxy::Offsets::default(),
        limits: container::Limits::new(1 << 30, container::Processors::first(2), []),
        families: socket::Families::default(),
        net: Box::new(move |timers| {
            socket::NetNamespace::new(1, owner, spec::Interfaces::loopback(), timers)
        }),
        memory: tmpfs::MemFiles::new(None),
        figures: task::HostFigures::default(),
        clock: ktime::Clock::default(),
        boot: ktime::Ktime::ZERO,
    });
    let pid = kernel.first.pids().alloc().unwrap();
    let group = ThreadGroup::new(
        kernel.clone(),
        &pid,
        Arc::default(),
        ProcessInherited {
            exec_session: false,
            container: kernel.first.clone(),
            rlimits: sched::Rlimits::UNLIMITED,
            personality: 0,
            oom_score_adj: 0,
        },
    );
    let ctx = kernel.platform.new_space().unwrap();
    let l = kernel.platform.limits();
    let mm = Mm::new(&kernel.spaces, ctx.space(), MemoryMap::new(l.min, l.max), user_ns.clone());
    let args = b"prog\0-x\0";
    mm.space.write(BASE, args);
    mm.space.write(BASE + 8, b"HOME=/\0");
    mm.set_image(|i| {
        i.args = (BASE, BASE + 8);
        i.env = (BASE + 8, BASE + 15);
        i.code = (0x40_0000, 0x40_1000);
    });
    mm.with_map(|m| {
        m.insert(Vma {
            start: BASE,
            end: BASE + 0x10000,
            prot: 3,
            shared: false,
            flags: 0,
            file: None,
            offset: 0,
            locked: false,
            kind: VmaKind::Stack,
            policy: mm::Policy::default(),
        });
    });
    let ns = MountNs::new(
        &kernel.vfs,
        Mount::of(crate::new(kernel.clone(), kernel.first.pids().clone()), MountFlags::RELATIME, b"proc"),
    );
    let fs = FsContext::new(ns);
    let c = Current::first(
        ctx,
        mm,
        group,
        pid,
        Credentials::root(&kernel.vfs.resources.user_ns, Cap::ALL),
        FdTable::new(kernel.vfs.resources.quotas.files.clone()),
        fs,
    );
    c.task.set_comm(b"pro) g");
    c
}

fn open(c: &Current, path: &str, flags: i32) -> Result<Arc<OpenFile>> {
    let how = OpenHow::legacy(flags, 0).expect("valid flags");
    namei::open::open_at(c, &c.fs().view(), &Start::Cwd, path.as_bytes(), &how).map_err(|f| match f {
        caller::Failure::Errno(e) => e,
        _ => Errno::EINTR,
    })
}

fn text(c: &Current, path: &str) -> String {
    let f = open(c, path, libc::O_RDONLY).unwrap_or_else(|e| panic!("{path}: {e:?}"));
    let mut out = Vec::new();
    let mut b = [0; 1000];
    loop {
        let n =
            files::io::read_at(c, &f, &mut b, out.len() as u64).unwrap_or_else(|e| panic!("{path}: {e:?}"));
        out.extend_from_slice(&b[..n]);
        if n == 0 {
            return String::from_utf8_lossy(&out).into_owned();
        }
    }
}

fn write(c: &Current, path: &str, data: &str) -> Result<()> {
    let f = open(c, path, libc::O_WRONLY | libc::O_TRUNC)?;
    files::io::write_at(c, &f, data.as_bytes(), 0).map(drop)
}

struct Names(Vec<(String, u64)>, usize);

impl vfs::DirSink for Names {
    fn entry(&mut self, _next: u64, e: &vfs::DirEntry) -> bool {
        if self.1 == 0 {
            return false;
        }
        self.1 -= 1;
        self.0.push((String::from_utf8_lossy(&e.name).into_owned(), e.ino));
        true
    }
}

/// Lists a directory, `step` entries a call.
fn list(c: &Current, path: &str, step: usize) -> Vec<(String, u64)> {
    let f = open(c, path, libc::O_RDONLY | libc::O_DIRECTORY).unwrap_or_else(|e| panic!("{path}: {e:?}"));
    let mut all = Vec::new();
    loop {
        let mut s = Names(Vec::new(), step);
        namei::dir::read(c, &f, &mut s).unwrap();
        if s.0.is_empty() {
            return all;
        }
        all.extend(s.0);
    }
}

#[test]
fn pressure_is_that_of_a_control_group() {
    let c = process();
    let f = open(&c, "/pressure/cpu", libc::O_RDONLY).unwrap();
    assert_eq!(files::io::read_at(&c, &f, &mut [0; 100], 0).err(), Some(Errno::EOPNOTSUPP));
}

#[test]
fn every_file_can_be_listed_and_read() {
    let c = process();
    let mut todo = vec![String::from("/")];
    let mut seen = 0;
    while let Some(dir) = todo.pop() {
        let names = list(&c, &dir, 3);
        assert_eq!(names, list(&c, &dir, 1000), "{dir}");
        for (name, ino) in names.into_iter().filter(|n| n.0 != "." && n.0 != "..") {
            let p = format!("{dir}{name}");
            let at = namei::walk::lookup(&c, &c.fs().view(), &Start::Cwd, p.as_bytes(), Lookup::empty());
            let a = at.unwrap_or_else(|e| panic!("{p}: {e:?}")).attr().unwrap();
            assert_eq!(a.ino, ino, "{p}");
            seen += 1;
            if a.is_dir() {
                todo.push(p + "/");
            } else if a.file_type() == abi::libc::S_IFREG
                && a.mode & 0o444 != 0
                && !p.contains("/attr/")
                && !p.ends_with("/mem")
                // It waits for a checkpoint.
                && p != "/gvisor/checkpoint"
                // There is no control group.
                && !p.starts_with("/pressure/")
            {
                text(&c, &p);
            }
        }
    }
    assert!(seen > 300);
}

#[test]
fn a_process_shows_itself() {
    let c = process();
    let stat = text(&c, "/self/stat");
    assert!(stat.starts_with("1 (pro) g) R 0 1 1 0 -1 4194304 "), "{stat}");
    assert_eq!(stat[stat.rfind(')').unwrap() + 2..].split(' ').count(), 50);
    assert_eq!(text(&c, "/1/cmdline"), "prog\0-x\0");
    assert_eq!(text(&c, "/1/environ"), "HOME=/\0");
    assert_eq!(text(&c, "/thread-self/comm"), "pro) g\n");
    assert!(
        text(&c, "/self/status").starts_with("Name:\tpro) g\nUmask:\t0022\nState:\tR (running)\nTgid:\t1\n")
    );
    let maps = text(&c, "/self/maps");
    assert!(maps.lines().next().unwrap().ends_with("[stack]"), "{maps}");
    assert!(maps.contains("[vvar]\n") && maps.contains("[vdso]\n"), "{maps}");
    assert_eq!(text(&c, "/self/mounts"), "proc / proc rw,relatime 0 0\n");
    assert!(
        text(&c, "/self/limits")
            .contains("Max open files            unlimited            unlimited            files")
    );
    assert_eq!(open(&c, "/2/stat", 0).err(), Some(Errno::ENOENT));
    assert_eq!(open(&c, "/01/stat", 0).err(), Some(Errno::ENOENT));
}

#[test]
fn writes_do_what_they_say() {
    let c = process();
    write(&c, "/self/comm", "a name that is too long").unwrap();
    assert_eq!(text(&c, "/self/comm"), "a name that is \n");
    write(&c, "/self/oom_score_adj", "500\n").unwrap();
    assert_eq!(text(&c, "/self/oom_score_adj"), "500\n");
    assert_eq!(text(&c, "/self/oom_adj"), "8\n");
    assert_eq!(write(&c, "/self/oom_score_adj", "1001"), Err(Errno::EINVAL));
    write(&c, "/sys/kernel/hostname", "other\n").unwrap();
    assert_eq!(c.kernel().first.namespaces.uts.names().nodename, "other");
    write(&c, "/sys/net/core/somaxconn", "128").unwrap();
    assert_eq!(text(&c, "/sys/net/core/somaxconn"), "128\n");
    assert_eq!(write(&c, "/sys/net/core/somaxconn", "x"), Err(Errno::EINVAL));
    assert_eq!(write(&c, "/sys/vm/swappiness", "1"), Err(Errno::EPERM));
    crate::set_sysctl(c.kernel(), &c.kernel().first.clone(), "vm.swappiness", "1").unwrap();
    assert_eq!(text(&c, "/sys/vm/swappiness"), "1\n");
    assert_eq!(crate::set_sysctl(c.kernel(), &c.kernel().first.clone(), "no.such", "1"), Err(Errno::ENOENT));
    assert_eq!(write(&c, "/version", "1"), Err(Errno::EIO));
    assert_eq!(write(&c, "/self/status", "1"), Err(Errno::EINVAL));
    let mut set = Credentials::root(&c.kernel().vfs.resources.user_ns, 0);
    set.euid = 5;
    set.fsuid = 5;
    c.task.set_creds(set);
    assert_eq!(write(&c, "/self/oom_score_adj", "400"), Err(Errno::EACCES));
}

#[test]
fn descriptors_are_links_to_their_files() {
    let c = process();
    let file = open(&c, "/version", libc::O_RDONLY).unwrap();
    let fd = c.install(file.clone(), true).unwrap();
    assert_eq!(fd, 0);
    let view = c.fs().view();
    let link = namei::walk::lookup(&c, &view, &Start::Cwd, b"/self/fd/0", Lookup::empty()).unwrap();
    assert_eq!(link.inode().readlink(&c).unwrap(), b"/version");
    assert_eq!(link.attr().unwrap().mode, libc::S_IFLNK | 0o500);
    let again = open(&c, "/self/fd/0", libc::O_RDONLY).unwrap();
    assert!(!Arc::ptr_eq(&again, &file) && again.path == file.path);
    *file.pos.lock() = 7;
    let info = text(&c, "/self/fdinfo/0");
    assert!(info.starts_with("pos:\t7\nflags:\t02100000\nmnt_id:\t"), "{info}");
    assert_eq!(open(&c, "/self/fd/1", 0).err(), Some(Errno::ENOENT));
    let ns = namei::walk::lookup(&c, &view, &Start::Cwd, b"/self/ns/pid", Lookup::empty()).unwrap();
    assert_eq!(ns.inode().readlink(&c).unwrap(), b"pid:[4026532098]");
    assert_eq!(open(&c, "/self/ns/pid", 0).unwrap().attr().unwrap().ino, 4026532098);
}

#[test]
fn memory_is_read_and_written_through_mem() {
    let c = process();
    let f = open(&c, "/self/mem", libc::O_RDWR).unwrap();
    let mut b = [0; 4];
    assert_eq!(files::io::read_at(&c, &f, &mut b, BASE), Ok(4));
    assert_eq!(&b, b"prog");
    assert_eq!(files::io::write_at(&c, &f, b"PR", BASE), Ok((2, BASE + 2)));
    assert_eq!(text(&c, "/self/cmdline"), "PRog\0-x\0");
    assert_eq!(files::io::read_at(&c, &f, &mut b, 8), Err(Errno::EIO));
}

#[test]
fn the_same_name_is_the_same_inode_while_it_is_held() {
    let c = process();
    let view = c.fs().view();
    let find = |p: &str| namei::walk::lookup(&c, &view, &Start::Cwd, p.as_bytes(), Lookup::FOLLOW).unwrap();
    let a = find("/self/task");
    assert!(Arc::ptr_eq(&a.dentry, &find("/1/task").dentry));
    assert!(!a.dentry.is_unlinked());
}

#[test]
fn processors_and_memory_in_sysfs() {
    let c = process();
    let k = c.kernel().clone();
    let fs = FsContext::new(MountNs::new(
        &c.kernel().vfs,
        Mount::of(sysfs::new(k), MountFlags::empty(), b"sysfs"),
    ));
    let mut c = c;
    c.set_fs(fs);
    assert_eq!(text(&c, "/devices/system/cpu/online"), "0-1\n");
    assert_eq!(text(&c, "/devices/system/cpu/cpu1/topology/thread_siblings"), "2\n");
    assert_eq!(text(&c, "/kernel/mm/transparent_hugepage/hpage_pmd_size"), "2097152\n");
    assert!(open(&c, "/devices/system/cpu/cpu2", 0).is_err());
    assert_eq!(list(&c, "/devices/system/cpu", 1).iter().filter(|n| n.0.starts_with("cpu")).count(), 2);
}

#[test]
fn interval_timers_go_on_in_another_kernel() {
    const HOUR: u64 = 3_600_000_000_000;
    let (from, to) = (process(), process());
    let g = &from.task.group;
    g.timers.interval.set(g, process_timers::Which::Real, HOUR, 7);
    g.timers.interval.set(g, process_timers::Which::Prof, 2 * HOUR, 0);
    let state = g.timers.interval.state(&**g);
    let g = &to.task.group;
    g.timers.interval.restore(g, state);
    let after = g.timers.interval.state(&**g);
    assert_eq!((after.real.1, after.virt, after.prof.1), (7, (0, 0), 0));
    let near = |left: u64, all: u64| left <= all && left > all - HOUR / 2;
    assert!(near(after.real.0, HOUR) && near(after.prof.0, 2 * HOUR), "{after:?}");
    g.timers.clear();
}

#[test]
fn the_tree_as_plain_data_and_back() {
    let (from, to) = (process(), process());
    let state = from.kernel().tree.lock().state();
    let [one] = &state[..] else { panic!("{state:?}") };
    assert_eq!((one.tgid, one.parent, one.pgid, one.sid), (from.task.tgid(), 0, one.tgid, one.tgid));
    let usage = sched::Usage { utime: 5, ..sched::Usage::default() };
    let zombie = task::Zombie { status: 9, uid: 3, usage, comm: [b'x'; 16] };
    let leader = Some(sched::Scheduling::default().state());
    let zombie = NodeState { life: task::Life::Dead(zombie), leader, ..one.clone() };
    let group = &to.task.group;
    let process = |_: &NodeState| (group.clone(), rights::Creds::into_inner(to.task.creds()));
    let tree = Tree::restore(std::slice::from_ref(&zombie), process, |_| None).unwrap();
    assert_eq!((tree.state(), tree.unreaped()), (vec![zombie.clone()], 1));
    assert_eq!(group.exit_status(), Some(9));
    let missing = NodeState { pgid: 77, ..zombie };
    assert!(Tree::restore(&[missing], process, |_| None).is_none());
}

#[test]
fn two_kernels_share_nothing() {
    let (a, b) = (process(), process());
    let set = |c: &Current, path: &str, value: &str| {
        let f = open(c, path, libc::O_WRONLY).unwrap();
        files::io::write_at(c, &f, value.as_bytes(), 0).unwrap_or_else(|e| panic!("{path}: {e}"));
    };
    for (path, new) in [
        ("/sys/fs/protected_symlinks", "0\n"),
        ("/sys/fs/protected_regular", "2\n"),
        ("/sys/fs/lease-break-time", "7\n"),
        ("/sys/kernel/hostname", "other\n"),
        ("/sys/kernel/msgmax", "99\n"),
    ] {
        let before = text(&b, path);
        assert_ne!(before, new, "{path}");
        set(&a, path, new);
        assert_eq!((text(&a, path), text(&b, path)), (new.into(), before), "{path}");
    }
    // Drivers, types, interfaces and processes belong to one kernel each.
    a.kernel().vfs.devices.register_char(
        "only-a",
        240,
        0..=0,
        Arc::new(|_: &dyn vfs::Caller, _: &vfs::Path, _: &vfs::InodeRef, _: i32| Err(Errno::ENXIO.into())),
    );
    a.kernel().fs_types.register("onlya", true, |_, _| Err(Errno::ENODEV));
    a.task.nsproxy().net.set_interfaces(spec::Interfaces::default());
    for (path, word) in [("/devices", "only-a"), ("/filesystems", "onlya")] {
        assert!(text(&a, path).contains(word) && !text(&b, path).contains(word), "{path}");
    }
    assert!(!text(&a, "/self/net/dev").contains("lo:") && text(&b, "/self/net/dev").contains("lo:"));
    // Device numbers, dentries and watches are counted for each kernel.
    let dev = |c: &Current| open(c, "/self/status", libc::O_RDONLY).unwrap().attr().unwrap().dev;
    assert_eq!(dev(&a), dev(&b));
    let numbers = |c: &Current| c.kernel().vfs.resources.device_numbers.alloc();
    assert_eq!([numbers(&a), numbers(&a)], [numbers(&b), numbers(&b)]);
    let alive = |c: &Current| c.kernel().vfs.dcache().alive();
    let before = (alive(&a), alive(&b));
    let files: Vec<_> = (0..50).map(|_| a.kernel().memfds.memfd(&a, b"m", 0).unwrap()).collect();
    assert_eq!((alive(&a), alive(&b)), (before.0 + 50, before.1));
    drop(files);
    assert_eq!((alive(&a), alive(&b)), before);
    let inotify = ipc::inotify::Inotify::open(&a, 0).unwrap();
    let place = open(&a, "/self", libc::O_RDONLY).unwrap().path.clone().unwrap();
    ipc::inotify::Inotify::of(&inotify).unwrap().add(&place, vfs::notify::event::ATTRIB).unwrap();
    let unwatched = |c: &Current| c.kernel().vfs.dcache().is_unwatched();
    assert_eq!((unwatched(&a), unwatched(&b)), (false, true));
    drop(inotify);
    assert!(unwatched(&a));
    // Pipes are numbered from the same number on, and each kernel has a boot id of its own.
    let number = |c: &Current| ipc::pipe::Pipe::pair(c, 0).unwrap().0.attr().unwrap().ino;
    assert_eq!(number(&a), number(&b));
    let boot_id = "/sys/kernel/random/boot_id";
    assert_eq!(text(&a, boot_id), text(&a, boot_id));
    assert_ne!(text(&a, boot_id), text(&b, boot_id));
    assert_eq!((a.task.own_tid(), b.task.own_tid()), (1, 1));
}
