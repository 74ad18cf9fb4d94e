//! Leases: an open file is told before others open (or truncate) what it has leased, and they wait for it to let go.
//! See fcntl(2), F_SETLEASE.
//!
//! The leases of an inode are an attachment of it. An open that breaks a lease waits on their queue until no lease is
//! in the way, or the time is up and the lease is taken away. Lock: a leaf. A checkpoint keeps [`LeaseState`]s.

use abi::{Errno, Result};
use caller::retry::{Failure, Outcome, retry_on};
use ktime::Ktime;
use lock_order::Mutex;
use rights::cred::Cap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use vfs::Caller;
use vfs::file::OpenFile;
use vfs::inode::InodeRef;
use wait::{Events, WaitQueue};

mod state;
pub use state::{LeaseState, restore, state};

const NONE: i32 = libc::F_UNLCK;
const READ: i32 = libc::F_RDLCK;
const WRITE: i32 = libc::F_WRLCK;

/// Tells the holder of an open file (SIGIO).
#[derive(Clone)]
pub struct Tell {
    fd: i32,
    send: Arc<dyn Fn(&OpenFile) + Send + Sync>,
}

impl Tell {
    /// By `send`. `fd`: the descriptor through which the holder asked.
    pub fn new(fd: i32, send: impl Fn(&OpenFile) + Send + Sync + 'static) -> Tell {
        Tell { fd, send: Arc::new(send) }
    }

    /// Tells the file's owner.
    pub fn tell(&self, file: &OpenFile) {
        (self.send)(file);
    }

    /// The descriptor through which the holder asked.
    pub fn fd(&self) -> i32 {
        self.fd
    }
}

struct Lease {
    file: Weak<OpenFile>,
    kind: i32,
    /// What it has to become, and when it will be made so.
    breaking: Option<(i32, Option<Ktime>)>,
    tell: Tell,
}

impl Lease {
    fn is_of(&self, f: &Arc<OpenFile>) -> bool {
        std::ptr::eq(self.file.as_ptr(), Arc::as_ptr(f))
    }

    /// In the way of an open for reading or writing.
    fn conflicts(&self, write: bool) -> bool {
        self.file.strong_count() != 0 && (write || self.kind == WRITE)
    }
}

/// The leases of an inode.
#[derive(Default)]
struct Leases {
    list: Mutex<Vec<Lease>>,
    queue: WaitQueue,
}

fn of(inode: &InodeRef) -> Option<Arc<Leases>> {
    let attachments = inode.attachments()?;
    if attachments.users().may_be_leased() { attachments.get() } else { None }
}

/// F_GETLEASE.
pub fn get(file: &Arc<OpenFile>) -> i32 {
    let Some(leases) = file.inode.as_ref().and_then(of) else { return NONE };
    let list = leases.list.lock();
    list.iter().find(|l| l.is_of(file)).map_or(NONE, |l| l.breaking.map_or(l.kind, |b| b.0))
}

/// F_SETLEASE.
pub fn set(cx: &dyn Caller, file: &Arc<OpenFile>, kind: i32, tell: Tell) -> Result<()> {
    let inode = file.inode.as_ref().filter(|i| i.kind() == libc::S_IFREG).ok_or(Errno::EINVAL)?;
    let attachments = inode.attachments().ok_or(Errno::EINVAL)?;
    let creds = cx.creds();
    if creds.fsuid != inode.perm()?.uid && !creds.capable(Cap::LEASE) {
        return Err(Errno::EACCES);
    }
    let leases = attachments.get_or(Leases::default);
    let mut list = leases.list.lock();
    list.retain(|l| l.file.strong_count() != 0);
    let own = list.iter().position(|l| l.is_of(file));
    if kind == NONE {
        list.remove(own.ok_or(Errno::EAGAIN)?);
        drop(list);
        leases.queue.notify(Events::ALL);
        return Ok(());
    }
    // Before the count: an open that is not counted yet finds the lease.
    attachments.users().lease(&leases.queue);
    let (writers, readers) = attachments.users().count();
    let (my_write, my_read) = (i32::from(file.writable()), i32::from(!file.writable()));
    let others = || list.iter().filter(|l| !l.is_of(file));
    let refused = match kind {
        READ => writers > 0,
        WRITE => writers.max(0) != my_write || readers != my_read || others().next().is_some(),
        _ => return Err(Errno::EINVAL),
    };
    if refused || others().any(|l| l.breaking.is_some()) {
        return Err(Errno::EAGAIN);
    }
    match own.and_then(|i| list.get_mut(i)) {
        Some(l) => (l.kind, l.breaking) = (kind, None),
        None => list.push(Lease { file: Arc::downgrade(file), kind, breaking: None, tell }),
    }
    drop(list);
    leases.queue.notify(Events::ALL);
    Ok(())
}

/// A caller is about to open or change an inode: waits until no lease is in the way. EAGAIN instead with `nonblock`.
pub fn break_for(cx: &dyn Caller, inode: &InodeRef, write: bool, nonblock: bool) -> Outcome<()> {
    let Some(leases) = of(inode) else { return Ok(()) };
    let clock = &cx.resources().clock;
    loop {
        let limit = match cx.resources().lease_break_time.load(Ordering::Relaxed) {
            0 => None,
            s => Some(clock.now().plus(Duration::from_secs(s.into()))),
        };
        let target = if write { NONE } else { READ };
        let mut told = Vec::new();
        let deadline = {
            let mut list = leases.list.lock();
            let mut first = None;
            for l in list.iter_mut().filter(|l| l.conflicts(write)) {
                let end = match l.breaking {
                    None => {
                        told.extend(l.file.upgrade().map(|f| (f, l.tell.clone())));
                        limit
                    }
                    Some((_, end)) => end,
                };
                l.breaking = Some((if write { target } else { l.breaking.map_or(target, |b| b.0) }, end));
                first = first.into_iter().chain(end).min();
            }
            if !list.iter().any(|l| l.conflicts(write)) {
                return Ok(());
            }
            first
        };
        for (file, tell) in told {
            tell.tell(&file);
        }
        if nonblock {
            return Err(Errno::EAGAIN.into());
        }
        let free = || {
            let list = leases.list.lock();
            if list.iter().any(|l| l.conflicts(write)) { Err(Errno::EAGAIN) } else { Ok(()) }
        };
        match retry_on(cx, &leases.queue, Events::ALL, deadline.map(|at| clock.instant(at)), free) {
            Err(Failure::TimedOut) => leases.expire(clock.now()),
            done => return done,
        }
    }
}

impl Leases {
    /// Takes away what should have been given back by now.
    fn expire(&self, now: Ktime) {
        let mut list = self.list.lock();
        for l in list.iter_mut() {
            if let Some((target, Some(end))) = l.breaking
                && end <= now
            {
                (l.kind, l.breaking) = (target, None);
            }
        }
        list.retain(|l| l.kind != NONE);
        drop(list);
        self.queue.notify(Events::ALL);
    }
}
