//! Open files of /dev/fuse.

use crate::conn::Connection;
use crate::fs::FuseFs;
use crate::wire::{self, Written, notify};
use abi::{Errno, NAME_MAX, Result};
use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};
use user_ns::UserNamespace;
use vfs::{Caller, FileOps, OpenFile, StreamOps, SuperBlock};
use wait::{Events, WaitQueue};
use zerocopy::FromBytes;

/// What an open file of the device belongs to.
struct Attached {
    conn: Arc<Connection>,
    sb: Weak<SuperBlock>,
    fs: Weak<FuseFs>,
    /// Its number in the connection.
    number: u64,
}

/// An open file of the device.
pub(crate) struct Device {
    /// The user namespace of the task that opened it. Its file system is to be mounted there.
    pub user_ns: Arc<UserNamespace>,
    attached: OnceLock<Attached>,
    /// Until it belongs to a connection.
    queue: WaitQueue,
}

impl Device {
    pub fn new(cx: &dyn Caller) -> Device {
        Device { user_ns: cx.creds().user_ns.clone(), attached: OnceLock::new(), queue: WaitQueue::new() }
    }

    /// The open file of the device that a descriptor stands for.
    pub fn of(file: &OpenFile) -> Option<&Device> {
        file.ops.as_any().downcast_ref()
    }

    /// Gives it a file system's connection. EINVAL when it has one.
    pub fn attach(&self, conn: &Arc<Connection>, sb: Weak<SuperBlock>, fs: Weak<FuseFs>) -> Result<()> {
        let mut fresh = false;
        self.attached.get_or_init(|| {
            fresh = true;
            Attached { conn: conn.clone(), sb, fs, number: conn.add_device() }
        });
        if !fresh {
            return Err(Errno::EINVAL);
        }
        self.queue.notify(Events::ALL);
        Ok(())
    }

    /// The file system that it serves, which may be mounted once more. ENOTCONN when it was unmounted.
    pub fn served(&self) -> Option<Result<Arc<SuperBlock>>> {
        Some(self.attached.get()?.sb.upgrade().ok_or(Errno::ENOTCONN))
    }

    /// FUSE_DEV_IOC_CLONE: the connection of `other`. EPERM when that has none.
    pub fn attach_as(&self, other: &Device) -> Result<()> {
        let from = other.attached()?;
        self.attach(&from.conn, from.sb.clone(), from.fs.clone())
    }

    fn attached(&self) -> Result<&Attached> {
        self.attached.get().ok_or(Errno::EPERM)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(attached) = self.attached.get() {
            attached.conn.remove_device(attached.number);
        }
    }
}

impl FileOps for Device {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        let attached = self.attached()?;
        attached.conn.read(attached.number, buf)
    }
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        let attached = self.attached()?;
        match wire::written(buf)? {
            Written::Reply { unique, result } => {
                attached.conn.answer(attached.number, unique, result, buf.len())?;
            }
            Written::Notice { code, body } => notice(&attached.fs, code, body)?,
        }
        Ok(buf.len())
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        self.attached.get().map_or(Events::ERR, |attached| attached.conn.poll())
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.attached.get().map_or(&self.queue, |attached| &attached.conn.readers).clone())
    }
}

impl StreamOps for Device {
    fn moves_messages(&self) -> bool {
        true
    }
}

/// A message of the daemon's own. EINVAL for one that is not understood, ENOENT for what is not known.
pub(crate) fn notice(fs: &Weak<FuseFs>, code: i32, body: &[u8]) -> Result<()> {
    let fs = fs.upgrade().ok_or(Errno::ENOTCONN)?;
    match code {
        notify::INVAL_INODE => {
            let out = wire::InvalInode::read_from_bytes(body).map_err(|_| Errno::EINVAL)?;
            let node = fs.find(out.ino).ok_or(Errno::ENOENT)?;
            node.expire();
            if out.off >= 0 {
                node.pages.forget();
            }
            Ok(())
        }
        notify::INVAL_ENTRY => {
            let (out, name) = wire::InvalEntry::read_from_prefix(body).map_err(|_| Errno::EINVAL)?;
            let name = checked_name(name, out.namelen)?;
            entry_gone(&fs, out.parent, name)
        }
        notify::DELETE => {
            let (out, name) = wire::Delete::read_from_prefix(body).map_err(|_| Errno::EINVAL)?;
            let name = checked_name(name, out.namelen)?;
            entry_gone(&fs, out.parent, name)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// A name and its NUL. ENAMETOOLONG, EINVAL.
fn checked_name(bytes: &[u8], len: u32) -> Result<&[u8]> {
    if len as usize > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    match bytes.split_last() {
        Some((0, name)) if name.len() == len as usize => Ok(name),
        _ => Err(Errno::EINVAL),
    }
}

fn entry_gone(fs: &FuseFs, parent: u64, name: &[u8]) -> Result<()> {
    let dir = fs.find(parent).ok_or(Errno::ENOENT)?;
    dir.expire();
    if let Some(node) = fs.forget_name(parent, name) {
        node.expire();
    }
    Ok(())
}
