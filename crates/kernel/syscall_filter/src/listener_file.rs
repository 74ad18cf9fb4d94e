//! The descriptor that SECCOMP_FILTER_FLAG_NEW_LISTENER gives: a supervisor's side of its [`Listener`]. See
//! seccomp_unotify(2).

use crate::listener::{Answer, Listener, Listeners};
use abi::{Errno, Result};
use caller::UserMemory;
use seccomp::Data;
use std::any::Any;
use std::sync::Arc;
use vfs::{Caller, FileOps, OpenFile};
use wait::{Events, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const RECEIVE: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const ID_VALID: u32 = 0x4008_2102;
/// The same with the direction that it had at first.
const ID_VALID_OLD: u32 = 0x8008_2102;
const SET_FLAGS: u32 = 0x4008_2104;
/// SECCOMP_IOCTL_NOTIF_ADDFD, which the system call carries out.
pub const ADD_FD: u32 = 0x4018_2103;
/// SECCOMP_USER_NOTIF_FLAG_CONTINUE.
const CONTINUE: u32 = 1;
/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: no difference here.
const SYNC_WAKE_UP: u64 = 1;

/// `struct seccomp_notif`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    ip: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// A new listener: what the filter holds, and the descriptor's file.
pub fn open(
    listeners: &Arc<Listeners>,
    cx: &dyn Caller,
    killable: bool,
) -> (Arc<dyn seccomp::Supervisor>, Arc<OpenFile>) {
    let (token, listener) = listeners.add(killable);
    let ops = Arc::new(ListenerFile(listener));
    (token, OpenFile::new(None, Some(cx.vfs().anonymous_inode()), ops, libc::O_RDWR))
}

struct ListenerFile(Arc<Listener>);

/// The listener behind an open file.
pub fn listener_of(file: &OpenFile) -> Option<&Arc<Listener>> {
    file.ops.as_any().downcast_ref::<ListenerFile>().map(|f| &f.0)
}

impl Drop for ListenerFile {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl ListenerFile {
    fn receive(&self, cx: &dyn Caller, mem: &mut dyn UserMemory, at: u64) -> Result<u64> {
        let given: Notification = mem.read_value(at)?;
        if given.as_bytes().iter().any(|b| *b != 0) {
            return Err(Errno::EINVAL);
        }
        let listener = &self.0;
        let over = || listener.has_ended().then_some(None);
        let waited = cx.waiter().wait_on(listener.asked(), Events::READABLE | Events::HUP, None, || {
            listener.receive().map(Some).or_else(over)
        });
        let (id, tid, data) = waited.map_err(|_| Errno::EINTR)?.ok_or(Errno::ENOENT)?;
        let pid = cx.pid_ns().zip(cx.find_pid(tid)).map_or(0, |(ns, pid)| pid.nr_in(&ns)) as u32;
        let Data { nr, arch, ip, args } = data;
        if let Err(e) = mem.write_value(at, &Notification { id, pid, flags: 0, nr, arch, ip, args }) {
            listener.put_back(id);
            return Err(e);
        }
        Ok(0)
    }

    fn send(&self, mem: &mut dyn UserMemory, at: u64) -> Result<u64> {
        let r: Response = mem.read_value(at)?;
        let goes_on = r.flags & CONTINUE != 0;
        if r.flags & !CONTINUE != 0 || goes_on && (r.error != 0 || r.value != 0) {
            return Err(Errno::EINVAL);
        }
        let value = if r.error != 0 { r.error.into() } else { r.value };
        self.0.reply(r.id, if goes_on { Answer::Continue } else { Answer::Value(value) })?;
        Ok(0)
    }
}

impl FileOps for ListenerFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let (receivable, answerable) = self.0.readiness();
        let mut events = Events::NONE;
        if receivable {
            events |= Events::READABLE;
        }
        if answerable {
            events |= Events::WRITABLE;
        }
        if self.0.has_ended() { events | Events::HUP } else { events }
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.0.asked().clone())
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:seccomp notify".into())
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        match cmd {
            RECEIVE => self.receive(cx, mem, arg),
            SEND => self.send(mem, arg),
            ID_VALID | ID_VALID_OLD => {
                let id: u64 = mem.read_value(arg)?;
                self.0.check(id)?;
                Ok(0)
            }
            SET_FLAGS if arg & !SYNC_WAKE_UP != 0 => Err(Errno::EINVAL),
            SET_FLAGS => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }
}
