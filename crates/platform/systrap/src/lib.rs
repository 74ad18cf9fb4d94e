//! The default platform: guest code runs in stub processes. A system call of the guest raises SIGSYS there, and the
//! handler hands over to a thread of the sentry.
//!
//! - `stub::filter`: the seccomp rules, i.e. all that guest code can ask of the host.
//! - `stub::launch`: the zygote, from which stub processes are forked.
//! - `space`, `context`: a stub process and a guest thread, as the kernel sees them.
//! - `slot`, `actions`: shared memory with a stub thread, and what is asked of it.
//! - `place`: on which CPU a sentry thread runs.
//! - `rewrite`: call sites that no longer need a signal; `twin`: text in which that is done for all processes.
//! - `common`: files that all processes have open.
//! - `notify`, `watch`: the two service threads (requests of stubs; their deaths).
//! - `census`: finds processes and threads that a hostile guest did not report.
//!
//! Set-up has two steps, because capabilities and seccomp filters are per thread:
//! [`Systrap::prepare`] forks the zygote while the sentry has one thread (in its
//! final user and pid namespace, with /proc); [`Prepared::start`] starts the service
//! threads once the sentry has confined itself. The thread that calls `prepare`
//! must live as long as the platform: when it ends, the host kills the stubs.

#![forbid(unsafe_code)]

mod actions;
mod census;
mod common;
mod context;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod lent_fds;
mod notify;
mod place;
mod rewrite;
mod slot;
mod space;
mod twin;
mod watch;

use abi::{Errno, Result};
use context::SystrapContext;
use hostsys::cpu;
use parking_lot::{Condvar, Mutex};
use platform::{Context, Limits, Platform, Regs};
use rustix::event::{EventfdFlags, epoll, eventfd};
use slot::SlotMap;
use space::{Space, Thread};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
pub use stub::launch::Error;
use stub::xstate;

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
    (libc::SYS_write, "the stop event, the nudge of the watcher and the bells of threads at the listener"),
    (libc::SYS_read, "the nudge of the watcher and the bells of threads at the listener"),
    (libc::SYS_eventfd2, "the bell of a thread at the listener"),
    (libc::SYS_fallocate, "slots of a stub process that has ended, emptied for another"),
    (libc::SYS_close, "descriptors of processes that ended"),
    (libc::SYS_fcntl, "F_GETFD: debug builds check descriptors before they close them"),
    (libc::SYS_sched_yield, "locks"),
    (libc::SYS_sched_setaffinity, "a thread of the sentry keeps to its stub's CPU, or off it"),
    (libc::SYS_clock_gettime, "processor time of a forked process that has not said hello"),
    (libc::SYS_clock_nanosleep, "pause after a failed fork of the zygote"),
];

/// Longest spin before a side sleeps, in microseconds.
const SPIN_MICROSECONDS: u64 = 50;
/// Processes kept ready for execve.
const POOL: usize = 3;
/// Failures in a row, 10 ms apart, to make such a process before the log tells of one.
const LOUD: u32 = 3;
/// Slots kept ready for fork, that of the first thread mapped and its memory there: when there are fewer than the first number,
/// as many as the second are made.
const SPARES: (usize, usize) = (2, 6);
/// The most that are kept of processes that have ended. They are emptied, and none that another process may have mapped is
/// among them: see [`Space::into_spare`].
const MOST_SPARES: usize = 24;
/// The slot of a process's first thread, hardly ever another.
const FIRST_SLOT: usize = 0;

#[derive(Default)]
struct Forks {
    waiting: HashMap<u64, Arc<notify::Fork>>,
    /// The nonces of the last ones that are over.
    over: VecDeque<u64>,
}

/// Processes ready for execve.
#[derive(Default)]
struct Pool {
    blanks: Vec<SystrapContext>,
    /// Slots for processes to come, see `SPARES`.
    spares: Vec<(OwnedFd, Arc<SlotMap>)>,
    /// Forks that failed since the last one that did not.
    failures: u32,
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
    /// Descriptors can be lent: the host allows their numbers.
    lends: bool,
    /// Longest spin in TSC cycles; 0 on a machine with one CPU.
    spin: u32,
    cpus: place::Cpus,
    threads: Mutex<HashMap<i32, Arc<Thread>>>,
    spaces: Mutex<HashMap<i32, Arc<Space>>>,
    forks: Mutex<Forks>,
    serving: notify::Serving,
    pool: Mutex<Pool>,
    common: common::Common,
    /// Signalled when the pool has changed in either direction.
    pool_changed: Condvar,
}

impl Inner {
    fn thread(&self, tid: i32) -> Option<Arc<Thread>> {
        self.threads.lock().get(&tid).cloned()
    }

    /// Slots for a fork of the process that owns the slot `index`.
    fn take_spare(&self, index: usize) -> Option<(OwnedFd, Arc<SlotMap>)> {
        let mut pool = self.pool.lock();
        let spare = if index == FIRST_SLOT { pool.spares.pop() } else { None };
        if pool.spares.len() < SPARES.0 {
            self.pool_changed.notify_all();
        }
        spare
    }

    /// Keeps the slots of a process that has been reaped for another one.
    fn keep_spare(&self, space: Space) {
        if self.pool.lock().spares.len() < MOST_SPARES
            && let Some(spare) = space.into_spare()
        {
            self.pool.lock().spares.push(spare);
        }
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
        Systrap::prepare_with(&stub::launch::own_maps()?)
    }

    /// As [`Systrap::prepare`] for a process without /proc: `maps` is the text of its /proc/self/maps.
    pub fn prepare_with(maps: &str) -> Result<Prepared, Error> {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        let spin =
            if cpus > 1 { (SPIN_MICROSECONDS * cpu::tsc_per_microsecond()).min(1 << 28) as u32 } else { 0 };
        let launched = stub::launch::launch(maps)?;
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
            listener: launched.listener,
            epoll,
            stop,
            nudge,
            suspicions: Mutex::default(),
            pid_max,
            stopping: AtomicBool::new(false),
            limits: launched.limits,
            xstate: launched.xstate,
            lends: launched.lends,
            spin,
            cpus: place::Cpus::new(if spin == 0 { 0 } else { cpu::tsc_per_microsecond() }),
            threads: Mutex::default(),
            spaces: Mutex::default(),
            forks: Mutex::default(),
            serving: notify::Serving::default(),
            pool: Mutex::default(),
            common: common::Common::default(),
            pool_changed: Condvar::new(),
        });
        let slot = Arc::new(SlotMap::from(launched.slot));
        let pid = launched.pid;
        let space =
            Space::new(pid, launched.pidfd, Arc::new(launched.slot_file), 0, slot.clone(), &inner.limits);
        let space = Arc::new(space);
        inner.adopt(&space).map_err(host("epoll_ctl"))?;
        let thread = Thread::new(space, 0, slot, pid);
        inner.register(&thread);
        let mut zygote = SystrapContext::new(inner.clone(), thread, Regs::default());
        let _ = zygote.await_request();
        // No stub may keep the listener: it would live on, and answer itself, without the sentry.
        zygote
            .host_call(libc::SYS_close, [launched.listener_number, 0, 0, 0, 0, 0])
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

/// Keeps blank processes ready. Owns the zygote, which ends with this thread.
fn fill_pool(inner: &Arc<Inner>, mut zygote: SystrapContext) {
    let mut pool = inner.pool.lock();
    while !inner.stopping.load(Ordering::SeqCst) {
        let (few, enough) = SPARES;
        if pool.blanks.len() >= POOL && pool.spares.len() >= few {
            inner.pool_changed.wait(&mut pool);
            continue;
        }
        if pool.blanks.len() >= POOL || pool.spares.is_empty() {
            let missing = enough.saturating_sub(pool.spares.len());
            drop(pool);
            // When this fails, the thread that needs a slot makes it.
            let new: Vec<_> =
                (0..missing).map_while(|_| SystrapContext::new_slots(FIRST_SLOT).ok()).collect();
            new.iter().for_each(|(_, slot)| SystrapContext::init_slot(inner, slot, false));
            let failed = new.is_empty();
            pool = inner.pool.lock();
            pool.spares.extend(new);
            if failed {
                pool.failures = pool.failures.saturating_add(1);
                inner.pool_changed.wait_for(&mut pool, Duration::from_millis(10));
            }
            continue;
        }
        let failures = pool.failures;
        drop(pool);
        zygote.keep_up();
        // Nothing waits for it, as a rule, and two threads that serve the listener wake each other.
        let blank = zygote.spawn_fork(false);
        if let Err(e) = &blank {
            // While a sandbox ends, its processes go one by one.
            if failures == LOUD {
                log::info!("no new stub process: {e}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        pool = inner.pool.lock();
        pool.failures = if blank.is_ok() { 0 } else { failures.saturating_add(1) };
        pool.blanks.extend(blank);
        inner.pool_changed.notify_all();
    }
    pool.blanks.clear();
    pool.spares.clear();
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
        // A host that is slow is waited for.
        loop {
            if let Some(mut blank) = pool.blanks.pop() {
                blank.begin_young();
                self.inner.pool_changed.notify_all();
                return Ok(Box::new(blank));
            }
            // The host refuses again and again.
            if pool.failures >= 3 || self.inner.stopping.load(Ordering::SeqCst) {
                return Err(Errno::EAGAIN);
            }
            self.inner.pool_changed.wait_for(&mut pool, Duration::from_millis(50));
        }
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
