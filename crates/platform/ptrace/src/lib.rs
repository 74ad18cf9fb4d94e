//! The fallback platform: guest threads run under ptrace(2), and one thread of the sentry traces all of them. It is
//! simple, portable and slow. It serves as a reference when a bug might be systrap's.
//!
//! - `tracer`: the thread that makes every ptrace call; commands in, answers out.
//! - `context`, `space`: a guest thread and its process, as the kernel sees them.
//! - `notify`: answers the two questions that the stub's seccomp filter routes to us.
//!
//! Guest processes come from the same zygote, with the same seccomp filter, as
//! systrap's (`stub::launch`), so the same calls and no others can reach the host. A
//! guest runs with PTRACE_SYSEMU: its own system calls are never executed.
//! Actions are calls that the tracer has a stopped thread make at
//! `stub::layout::STUB_INJECT`.
//!
//! Set-up has the same two steps as systrap's.

#![forbid(unsafe_code)]

mod context;
mod notify;
mod space;
mod tracer;

use abi::{Errno, Result};
use context::PtraceContext;
use parking_lot::Mutex;
use platform::{Context, Limits, Platform, Regs};
use rustix::event::{EventfdFlags, eventfd};
use space::Space;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
pub use stub::launch::Error;
use stub::launch::Launched;
use stub::layout as l;
use tracer::Tracer;

/// Host system calls that the sentry's threads make for this platform after
/// [`Prepared::start`], each with its reason.
pub const HOST_SYSCALLS: &[(i64, &str)] = &[
    (libc::SYS_ptrace, "control guest threads"),
    (libc::SYS_wait4, "stops of guest threads"),
    (libc::SYS_waitid, "stops of guest threads"),
    (libc::SYS_futex, "locks and answers"),
    (libc::SYS_ioctl, "SECCOMP_IOCTL_NOTIF_* on the listener (hostsys::seccomp::NOTIF_*)"),
    (libc::SYS_poll, "the listener and the stop event"),
    (libc::SYS_ppoll, "the listener and the stop event"),
    (libc::SYS_pidfd_open, "a new guest process"),
    (libc::SYS_pidfd_send_signal, "SIGKILL to a guest process"),
    (libc::SYS_tgkill, "ring the tracer's doorbell"),
    (libc::SYS_process_vm_readv, "read guest memory"),
    (libc::SYS_process_vm_writev, "write guest memory"),
    (libc::SYS_write, "the stop event"),
    (libc::SYS_close, "descriptors of processes that ended"),
    (libc::SYS_fcntl, "F_GETFD: debug builds check descriptors before they close them"),
    (libc::SYS_sched_yield, "locks"),
    (libc::SYS_clock_nanosleep, "before the doorbell is installed"),
];

/// What every context of the platform needs.
pub(crate) struct Inner {
    tracer: Arc<Tracer>,
    limits: Limits,
    xstate: stub::xstate::Layout,
}

/// The platform with its zygote running, before the sentry confines itself.
pub struct Prepared(Launched);

/// The platform; see the crate's documentation.
pub struct Ptrace {
    inner: Arc<Inner>,
    zygote: Mutex<PtraceContext>,
    stop: Arc<OwnedFd>,
    services: Vec<JoinHandle<()>>,
}

fn host(what: &'static str) -> impl Fn(Errno) -> Error {
    move |e| Error::Host(what, e)
}

impl Ptrace {
    /// Forks the zygote. Call it early, while the process has one thread.
    pub fn prepare() -> Result<Prepared, Error> {
        Ptrace::prepare_with(&stub::launch::own_maps()?)
    }

    /// As [`Ptrace::prepare`] for a process without /proc: `maps` is the text of its /proc/self/maps.
    pub fn prepare_with(maps: &str) -> Result<Prepared, Error> {
        stub::launch::launch(maps).map(Prepared)
    }

    /// [`Ptrace::prepare`] and [`Prepared::start`] in one.
    #[expect(clippy::new_ret_no_self, reason = "the platform is only used through its trait")]
    pub fn new() -> Result<Arc<dyn Platform>, Error> {
        Ok(Ptrace::prepare()?.start()?)
    }
}

impl Prepared {
    /// Starts the tracer, and with it the platform.
    pub fn start(self) -> Result<Arc<Ptrace>, Error> {
        let Launched { pid, pidfd, listener, listener_number, limits, xstate, .. } = self.0;
        let errno = |e: rustix::io::Errno| Errno::from_raw(e.raw_os_error());
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(errno).map_err(host("eventfd"))?);
        let tracer = Arc::new(Tracer::default());
        let thread = |e: std::io::Error| Error::Host("cannot start a thread", e.into());
        let mut services = Vec::new();
        {
            let (grants, stop) = (tracer.grants(), stop.clone());
            let named = std::thread::Builder::new().name("stub-notify".into()).stack_size(256 << 10);
            services.push(named.spawn(move || notify::serve(&listener, &stop, &grants)).map_err(thread)?);
        }
        let (ready, wait) = std::sync::mpsc::sync_channel(1);
        {
            let tracer = tracer.clone();
            let named = std::thread::Builder::new().name("stub-tracer".into()).stack_size(256 << 10);
            services.push(named.spawn(move || tracer::serve(&tracer, pid, &ready)).map_err(thread)?);
        }
        match wait.recv() {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(Error::Host("cannot trace a stub process (ptrace)", e)),
            Err(_) => return Err(Error::Zygote("the tracer failed")),
        }
        let inner = Arc::new(Inner { tracer: tracer.clone(), limits, xstate });
        let space = Arc::new(Space::new(pid, pidfd, &limits));
        tracer.add_space(&space);
        let mut zygote = PtraceContext::new(inner.clone(), space, tracer::ZYGOTE, Regs::default());
        // Neither the listener nor systrap's shared areas may be inherited by guests. The first page of the stacks holds
        // what the host's process lists show.
        let stacks = l::STACK_BASE + abi::PAGE_SIZE;
        let set_up = [
            (libc::SYS_close, [listener_number, 0, 0, 0, 0, 0]),
            (libc::SYS_munmap, [l::SLOT_BASE, l::NSLOTS * l::SLOT_SIZE, 0, 0, 0, 0]),
            (libc::SYS_munmap, [stacks, l::NSLOTS * l::STACK_SIZE - abi::PAGE_SIZE, 0, 0, 0, 0]),
        ];
        for (nr, args) in set_up {
            zygote.call(nr, args, None).map_err(host("cannot prepare the stub"))?;
        }
        let doorbell = zygote.spawn_fork().map_err(host("cannot fork a stub process"))?;
        tracer.install_doorbell(doorbell).map_err(host("cannot start the doorbell"))?;
        Ok(Arc::new(Ptrace { inner, zygote: Mutex::new(zygote), stop, services }))
    }
}

impl Platform for Ptrace {
    fn name(&self) -> &'static str {
        "ptrace"
    }

    fn limits(&self) -> Limits {
        self.inner.limits
    }

    fn new_space(&self) -> Result<Box<dyn Context>> {
        let mut new = self.zygote.lock().spawn_fork()?;
        *new.regs_mut() = Regs::default();
        Ok(Box::new(new))
    }
}

impl Drop for Ptrace {
    fn drop(&mut self) {
        self.inner.tracer.close();
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        for service in self.services.drain(..) {
            let _ = service.join();
        }
    }
}
