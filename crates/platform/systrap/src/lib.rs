//! The default platform: guest code runs in stub processes, and a system call
//! of it raises SIGSYS there, whose handler hands over to a thread of the sentry.
//!
//! - [`filter`]: the seccomp rules, i.e. all that guest code can ask of the host.
//! - `zygote`: the process from which stub processes are forked.
//! - `space`, `context`: a stub process and a guest thread, as the kernel sees them.
//! - `slot`, `actions`: shared memory with a stub thread, and what is asked of it.
//! - `notify`, `watch`: the two service threads (requests of stubs; their deaths).
//! - `census`: finds what a hostile guest kept quiet about.
//!
//! Set-up has two steps, because capabilities and seccomp filters are per thread:
//! [`Systrap::prepare`] forks the zygote while the sentry has one thread (in its
//! final user and pid namespace, with /proc); [`Prepared::start`] starts the service
//! threads once the sentry has confined itself. The thread that calls `prepare`
//! must live as long as the platform: when it ends, the host kills the stubs.

mod actions;
mod census;
mod context;
pub mod filter;
mod notify;
mod slot;
mod space;
mod watch;
mod xstate;
mod zygote;

use abi::{Errno, Result};
use context::SystrapContext;
use hostsys::{cpu, process};
use parking_lot::{Condvar, Mutex};
use platform::{Context, Limits, Platform, Regs};
use rustix::event::{EventfdFlags, epoll, eventfd};
use space::{Space, Thread};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use stub::layout as l;

/// Host system calls that the sentry's threads make for this platform after
/// [`Prepared::start`], each with its reason; the sandbox's filter is built from it.
pub const HOST_SYSCALLS: &[(i64, &str)] = &[
    (libc::SYS_futex, "hand-off to stub threads; locks"),
    (libc::SYS_ioctl, "SECCOMP_IOCTL_NOTIF_* on the listener (hostsys::seccomp::NOTIF_*)"),
    (libc::SYS_poll, "the listener and the stop event"),
    (libc::SYS_ppoll, "the listener and the stop event"),
    (libc::SYS_epoll_wait, "deaths of stub processes"),
    (libc::SYS_epoll_pwait, "deaths of stub processes"),
    (libc::SYS_epoll_ctl, "deaths of stub processes"),
    (libc::SYS_pidfd_open, "a stub process that said hello"),
    (libc::SYS_pidfd_send_signal, "SIGKILL to a stub process"),
    (libc::SYS_waitid, "reap stub processes"),
    (libc::SYS_tgkill, "interrupt a stub thread; check that it exists"),
    (libc::SYS_process_vm_readv, "read guest memory"),
    (libc::SYS_process_vm_writev, "write guest memory"),
    (libc::SYS_memfd_create, "slots of a new stub process"),
    (libc::SYS_ftruncate, "slots of a new stub process"),
    (libc::SYS_mmap, "map a slot"),
    (libc::SYS_munmap, "unmap a slot"),
    (libc::SYS_write, "the stop event and the nudge of the watcher"),
    (libc::SYS_read, "the nudge of the watcher"),
    (libc::SYS_close, "descriptors of processes that ended"),
    (libc::SYS_clock_nanosleep, "pause after a failed fork of the zygote"),
];

/// Longest spin before a side sleeps, in microseconds.
const SPIN_MICROSECONDS: u64 = 20;
/// Processes kept ready for execve.
const POOL: usize = 3;

/// Why the platform cannot be used on this host.
#[derive(Debug)]
pub enum Error {
    /// The host kernel or CPU lacks something.
    Missing(&'static str),
    /// The zygote failed during its set-up.
    Zygote(&'static str),
    /// A host call failed.
    Host(&'static str, Errno),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Missing(what) => write!(f, "platform systrap: {what}; use --platform=ptrace"),
            Error::Zygote(what) => write!(f, "platform systrap: cannot set up a stub process: {what}"),
            Error::Host(what, e) => write!(f, "platform systrap: {what}: {e}"),
        }
    }
}

impl std::error::Error for Error {}

#[derive(Default)]
struct Forks {
    last_nonce: u64,
    waiting: HashMap<u64, Arc<notify::Fork>>,
}

/// State shared by contexts and service threads.
pub(crate) struct Inner {
    listener: OwnedFd,
    epoll: OwnedFd,
    /// Becomes readable when the platform stops.
    stop: OwnedFd,
    /// Wakes the watcher to look at suspicions.
    nudge: OwnedFd,
    suspicions: Mutex<census::Suspicions>,
    /// Highest process id of the host.
    pid_max: i32,
    stopping: AtomicBool,
    limits: Limits,
    xstate: xstate::Layout,
    /// Longest spin in TSC cycles; 0 on a machine with one CPU.
    spin: u32,
    threads: Mutex<HashMap<i32, Arc<Thread>>>,
    spaces: Mutex<HashMap<i32, Arc<Space>>>,
    forks: Mutex<Forks>,
    pool: Mutex<Vec<SystrapContext>>,
    /// Signalled when the pool has changed in either direction.
    pool_changed: Condvar,
}

impl Inner {
    fn thread(&self, tid: i32) -> Option<Arc<Thread>> {
        self.threads.lock().get(&tid).cloned()
    }

    fn space(&self, pid: i32) -> Option<Arc<Space>> {
        self.spaces.lock().get(&pid).cloned()
    }

    /// False when another live thread of the same process has that id.
    fn register(&self, thread: &Arc<Thread>) -> bool {
        let mut threads = self.threads.lock();
        if threads.get(&thread.tid).is_some_and(|t| Arc::ptr_eq(&t.space, &thread.space)) {
            return false;
        }
        threads.insert(thread.tid, thread.clone());
        true
    }

    fn forget(&self, thread: &Arc<Thread>) {
        let mut threads = self.threads.lock();
        if threads.get(&thread.tid).is_some_and(|t| Arc::ptr_eq(t, thread)) {
            threads.remove(&thread.tid);
        }
    }
}

type Service = Box<dyn FnOnce(&Arc<Inner>) + Send>;

/// The platform with its zygote running, before the sentry confines itself.
pub struct Prepared {
    inner: Arc<Inner>,
    zygote: SystrapContext,
}

/// The platform; see the crate's documentation.
pub struct Systrap {
    inner: Arc<Inner>,
    services: Vec<JoinHandle<()>>,
}

fn host(what: &'static str) -> impl Fn(Errno) -> Error {
    move |e| Error::Host(what, e)
}

impl Systrap {
    /// Forks the zygote. Call it early, while the process has one thread.
    pub fn prepare() -> Result<Prepared, Error> {
        let maps = std::fs::read_to_string("/proc/self/maps")
            .map_err(|e| host("cannot read /proc/self/maps")(e.into()))?;
        Systrap::prepare_with(&maps)
    }

    /// As [`Systrap::prepare`] for a process without /proc: `maps` is the text of its /proc/self/maps.
    pub fn prepare_with(maps: &str) -> Result<Prepared, Error> {
        if !cpu::has_fsgsbase() {
            return Err(Error::Missing("the host does not offer FSGSBASE"));
        }
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        let spin =
            if cpus > 1 { (SPIN_MICROSECONDS * cpu::tsc_per_microsecond()).min(1 << 30) as u32 } else { 0 };
        let program = filter::assemble();
        let zygote = zygote::start(&program, maps, |slot| {
            use std::sync::atomic::Ordering::Relaxed;
            slot.req().store(l::FIRST_SEQ, Relaxed);
            slot.alive().store(1, Relaxed);
        })
        .map_err(host("cannot start a stub process"))?;
        wait_until_ready(&zygote)?;
        let listener_number = zygote.slot.result().load(Ordering::Relaxed) as i32;
        let listener = process::pidfd_getfd(zygote.pidfd.as_fd(), listener_number)
            .map_err(host("cannot take the seccomp listener (pidfd_getfd)"))?;
        hostsys::seccomp::set_sync_wake_up(listener.as_fd());
        let xstate = learn_xstate(&zygote)?;

        let moved = vdso_moved(&zygote);
        let (vdso, vvar) = zygote::placed(&zygote.maps, moved);
        let lowest = [vdso, vvar].into_iter().flatten().map(|m| m.0).min().unwrap_or(l::STUB_TEXT);
        let limits =
            Limits { min: 0x1_0000, max: lowest.min(l::STUB_TEXT), vdso, vvar, xstate_size: xstate.size };

        let errno = |e: rustix::io::Errno| Errno::from_raw(e.raw_os_error());
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(errno).map_err(host("epoll_create"))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(errno).map_err(host("eventfd"))?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(watch::STOP), epoll::EventFlags::IN)
            .map_err(errno)
            .map_err(host("epoll_ctl"))?;
        let nudge = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(errno)
            .map_err(host("eventfd"))?;
        epoll::add(&epoll, &nudge, epoll::EventData::new_u64(watch::NUDGE), epoll::EventFlags::IN)
            .map_err(errno)
            .map_err(host("epoll_ctl"))?;
        let pid_max =
            std::fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|s| s.trim().parse().ok());
        let pid_max = pid_max.unwrap_or(1 << 22);
        let inner = Arc::new(Inner {
            listener,
            epoll,
            stop,
            nudge,
            suspicions: Mutex::default(),
            pid_max,
            stopping: AtomicBool::new(false),
            limits,
            xstate,
            spin,
            threads: Mutex::default(),
            spaces: Mutex::default(),
            forks: Mutex::default(),
            pool: Mutex::default(),
            pool_changed: Condvar::new(),
        });
        let slot = Arc::new(zygote.slot);
        let space = Space::new(zygote.pid, zygote.pidfd, zygote.slot_file, 0, slot.clone(), inner.limits.max);
        let space = Arc::new(space);
        inner.adopt(&space).map_err(host("epoll_ctl"))?;
        let thread = Thread::new(space, 0, slot, zygote.pid);
        inner.register(&thread);
        let mut zygote = SystrapContext::new(inner.clone(), thread, Regs::default());
        let _ = zygote.await_request();
        // No stub may keep the listener: it would live on, and answer itself, without the sentry.
        zygote
            .host_call(libc::SYS_close, [listener_number as u64, 0, 0, 0, 0, 0])
            .map_err(host("cannot close the listener in the stub"))?;
        Ok(Prepared { inner, zygote })
    }

    /// [`Systrap::prepare`] and [`Prepared::start`] in one.
    #[expect(clippy::new_ret_no_self, reason = "the platform is only used through its trait")]
    pub fn new() -> Result<Arc<dyn Platform>, Error> {
        Ok(Systrap::prepare()?.start()?)
    }
}

impl Prepared {
    /// Starts the service threads.
    pub fn start(self) -> Result<Arc<Systrap>, Error> {
        let Prepared { inner, zygote } = self;
        let mut services = Vec::new();
        let mut spawn = |name: &str, run: Service| {
            let inner = inner.clone();
            let thread = std::thread::Builder::new().name(name.into()).stack_size(256 << 10);
            let handle = thread
                .spawn(move || run(&inner))
                .map_err(|e| Error::Host("cannot start a thread", e.into()))?;
            services.push(handle);
            Ok(())
        };
        spawn("stub-watch", Box::new(|i| watch::watch(i)))?;
        spawn("stub-notify", Box::new(|i| notify::serve(i)))?;
        spawn("stub-pool", Box::new(move |i| fill_pool(i, zygote)))?;
        Ok(Arc::new(Systrap { inner, services }))
    }
}

fn wait_until_ready(zygote: &zygote::Zygote) -> Result<(), Error> {
    loop {
        if zygote.slot.req().load(Ordering::Acquire) & !l::SLEEP != l::FIRST_SEQ {
            return Ok(());
        }
        match process::wait_child(zygote.pidfd.as_fd(), false) {
            Ok(process::Wait::Running) => std::thread::sleep(Duration::from_micros(50)),
            Ok(process::Wait::Reaped(status)) => return Err(Error::Zygote(zygote::explain(status))),
            Err(e) => return Err(Error::Host("waitid", e)),
        }
    }
}

fn learn_xstate(zygote: &zygote::Zygote) -> Result<xstate::Layout, Error> {
    let at = zygote.slot.fpstate().load(Ordering::Relaxed);
    let read = |buf: &mut [u8]| match process::vm_read(zygote.pid, at, buf) {
        Ok(n) if n == buf.len() => Ok(()),
        Ok(_) => Err(Error::Zygote("its signal frame is cut short")),
        Err(e) => Err(Error::Host("cannot read a stub's memory (process_vm_readv)", e)),
    };
    let mut frame = vec![0; xstate::LEGACY];
    read(&mut frame)?;
    let odd = Error::Zygote("its signal frame has no XSAVE state");
    let Some(size) = xstate::Layout::size_of_frame(&frame) else { return Err(odd) };
    frame.resize(size, 0);
    read(&mut frame)?;
    xstate::Layout::learn(frame).ok_or(odd)
}

/// The vDSO starts with an ELF header: look whether it stands at the new place.
fn vdso_moved(zygote: &zygote::Zygote) -> bool {
    let (vdso, _) = zygote::placed(&zygote.maps, true);
    let mut magic = [0; 4];
    vdso.is_some_and(|(at, _)| process::vm_read(zygote.pid, at, &mut magic) == Ok(4) && magic == *b"\x7fELF")
}

/// Keeps blank processes ready. Owns the zygote, which ends with this thread.
fn fill_pool(inner: &Arc<Inner>, mut zygote: SystrapContext) {
    let mut pool = inner.pool.lock();
    while !inner.stopping.load(Ordering::SeqCst) {
        if pool.len() >= POOL {
            inner.pool_changed.wait(&mut pool);
            continue;
        }
        drop(pool);
        let blank = zygote.spawn_fork();
        if let Err(e) = &blank {
            log::warn!("no new stub process: {e}");
            std::thread::sleep(Duration::from_millis(10));
        }
        pool = inner.pool.lock();
        pool.extend(blank);
        inner.pool_changed.notify_all();
    }
    pool.clear();
}

impl Platform for Systrap {
    fn name(&self) -> &'static str {
        "systrap"
    }

    fn limits(&self) -> Limits {
        self.inner.limits
    }

    fn new_space(&self) -> Result<Box<dyn Context>> {
        let mut pool = self.inner.pool.lock();
        for _ in 0..100 {
            if let Some(blank) = pool.pop() {
                self.inner.pool_changed.notify_all();
                return Ok(Box::new(blank));
            }
            if self.inner.stopping.load(Ordering::SeqCst) {
                break;
            }
            self.inner.pool_changed.wait_for(&mut pool, Duration::from_millis(50));
        }
        Err(Errno::EAGAIN)
    }
}

impl Drop for Systrap {
    fn drop(&mut self) {
        use platform::AddressSpace as _;
        self.inner.stopping.store(true, Ordering::SeqCst);
        let kill_all = || {
            let spaces: Vec<_> = self.inner.spaces.lock().values().cloned().collect();
            for space in spaces {
                space.kill();
            }
        };
        kill_all();
        // Under the lock, so that the keeper of the pool is either waiting or has not looked yet.
        drop(self.inner.pool.lock());
        self.inner.pool_changed.notify_all();
        if let Some(pool) = self.services.pop() {
            let _ = pool.join();
        }
        kill_all();
        let _ = rustix::io::write(&self.inner.stop, &1u64.to_ne_bytes());
        for service in self.services.drain(..) {
            let _ = service.join();
        }
    }
}
