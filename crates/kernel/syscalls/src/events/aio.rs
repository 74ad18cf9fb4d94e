//! Asynchronous input and output: io_setup(2), io_submit(2), io_getevents(2) and relatives.
//!
//! Operations are carried out when they are submitted, as Linux does with files in its cache.

use crate::arg::Ptr;
use crate::files::transfer::{self, How};
use crate::iov::Iov;
use crate::timeout::Timeout;
use abi::Errno;
use caller::Failure;
use ipc::aio::{AioContext, IoEvent, MAX_TOTAL, ring_size};
use ipc::eventfd::EventFd;
use mm::MapArgs;
use std::sync::Arc;
use task::{Current, SysErr, SysResult};
use vfs::{MapRequest, Mapping, OpenFile, SetAttr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;
const FLAG_RESFD: u32 = 1;
const RWF_NOWAIT: u32 = 8;

/// `struct iocb`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    reqprio: i16,
    fd: i32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: i32,
}

/// The file that is mapped from `id` on, when that is the start of a ring.
fn ring_at(c: &Current, id: u64) -> Option<(u64, u64)> {
    c.mm.with_map(|m| {
        let v = m.find(id).filter(|v| v.start == id && v.offset == 0)?;
        Some((v.file.as_ref()?.id, v.len()))
    })
}

/// The context with this identifier, which is the address of its ring: EINVAL when that is not mapped there.
fn context(c: &Current, id: u64) -> Result<Arc<AioContext>, Errno> {
    let (file, _) = ring_at(c, id).ok_or(Errno::EINVAL)?;
    c.mm.aio.lock().get(&file).cloned().ok_or(Errno::EINVAL)
}

/// A file for a ring, which cannot change its size.
fn ring_file(c: &Current, size: u64) -> Result<Arc<OpenFile>, Errno> {
    const SEALABLE: u32 = 2;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let file = c.kernel().memfds.file(c, b"[aio]", SEALABLE)?;
    let inode = file.inode.as_ref().ok_or(Errno::EIO)?;
    inode.set_attr(c, &SetAttr { size: Some(size), ..SetAttr::default() })?;
    tmpfs::add_seals(&file, seals as u32)?;
    Ok(file)
}

pub fn io_setup(c: &mut Current, events: u32, at: Ptr) -> SysResult {
    let old: u64 = c.read_value(at.0)?;
    if old != 0 || events == 0 || events > 0x1000_0000 {
        return Err(Errno::EINVAL.into());
    }
    if u64::from(events) > MAX_TOTAL {
        return Err(Errno::EAGAIN.into());
    }
    let len = ring_size(events);
    let file = ring_file(c, len)?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let wanted = MapRequest { prot, shared: true, offset: 0, len };
    let Mapping::Host { fd, .. } = file.ops.map(c, &file, &wanted)? else { return Err(Errno::EIO.into()) };
    let context = AioContext::new(c, &c.kernel().spaces.aio, events, &*fd)?;
    let key = file.id;
    let args = MapArgs { addr: 0, len, prot, flags: libc::MAP_SHARED, file: Some(file), offset: 0 };
    let mm = c.mm.clone();
    let id = c.with_context(|c, ctx| mm.mmap(c, ctx, &args))?;
    mm.mark_ring(id, len);
    mm.aio.lock().insert(key, context);
    if let Err(e) = c.write_now(at.0, &id.to_ne_bytes()) {
        io_destroy(c, id)?;
        return Err(e.into());
    }
    Ok(0)
}

pub fn io_destroy(c: &mut Current, id: u64) -> SysResult {
    let (file, len) = ring_at(c, id).ok_or(Errno::EINVAL)?;
    let gone = c.mm.aio.lock().remove(&file).ok_or(Errno::EINVAL)?;
    gone.close();
    // The program may have unmapped a part of it.
    let _ = c.mm.clone().munmap(c.ctx.as_mut(), id, len);
    Ok(0)
}

pub fn io_submit(c: &mut Current, id: u64, count: i64, list: Ptr) -> SysResult {
    let count = u64::try_from(count).map_err(|_| Errno::EINVAL)?;
    let context = context(c, id)?;
    let mut done = 0;
    while done < count {
        let r = match c.read_value::<u64>(list.0.wrapping_add(done * 8)) {
            Ok(at) => submit(c, &context, at),
            Err(e) => Err(e),
        };
        match r {
            Ok(()) => done += 1,
            Err(e) if done == 0 => return Err(e.into()),
            Err(_) => break,
        }
        if c.dying() {
            break;
        }
    }
    Ok(done)
}

fn submit(c: &mut Current, context: &AioContext, at: u64) -> Result<(), Errno> {
    let cb: Iocb = c.read_value(at)?;
    if cb.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    if !context.has_room() {
        return Err(Errno::EAGAIN);
    }
    let f = c.file(cb.fd)?;
    let told = match cb.flags & FLAG_RESFD {
        0 => None,
        _ => {
            let e = c.file(cb.resfd)?;
            e.ops.as_any().downcast_ref::<EventFd>().ok_or(Errno::EINVAL)?;
            Some(e)
        }
    };
    // KIOCB_KEY.
    c.write_now(at.wrapping_add(8), &0u32.to_ne_bytes())?;
    let res = perform(c, &f, &cb)?;
    context.finish(IoEvent { data: cb.data, obj: at, res, res2: 0 });
    if let Some(e) = told.as_ref().and_then(|f| f.ops.as_any().downcast_ref::<EventFd>()) {
        e.signal(1);
    }
    Ok(())
}

/// The operation's result; an error is one of the request itself.
fn perform(c: &mut Current, f: &Arc<OpenFile>, cb: &Iocb) -> Result<i64, Errno> {
    if cb.rw_flags & !RWF_NOWAIT != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let r = match cb.opcode {
        FSYNC | FDSYNC => f.ops.sync(c, f, cb.opcode == FDSYNC).map(|()| 0).map_err(SysErr::Errno),
        PREAD | PWRITE | PREADV | PWRITEV => {
            let reads = matches!(cb.opcode, PREAD | PREADV);
            if if reads { !f.readable() } else { !f.writable() } {
                return Err(Errno::EBADF);
            }
            let iov = match cb.opcode {
                PREAD | PWRITE => Iov::one(c, cb.buf, cb.nbytes)?,
                _ => Iov::read(c, cb.buf, cb.nbytes)?,
            };
            let at = u64::try_from(cb.offset).map_err(|_| Errno::EINVAL)?;
            let how = How { at: Some(at), nowait: cb.rw_flags & RWF_NOWAIT != 0, ..How::default() };
            let r = if reads { transfer::read(c, f, &iov, how) } else { transfer::write(c, f, &iov, how) };
            // A program that sees the event must find the bytes.
            r.and_then(|n| c.ctx.flush().map(|()| n).map_err(SysErr::Errno))
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok(match r {
        Ok(n) => n as i64,
        Err(SysErr::Errno(e)) => -i64::from(e.raw()),
        // A signal: nothing has been moved.
        Err(_) => -i64::from(Errno::EINTR.raw()),
    })
}

fn fetch(c: &mut Current, id: u64, (min, max): (i64, i64), events: Ptr, timeout: Ptr) -> SysResult {
    let deadline = Timeout::timespec(c, timeout)?.deadline;
    let context = context(c, id)?;
    if min > max || min < 0 {
        return Err(Errno::EINVAL.into());
    }
    let got = match context.take(c, min as usize, max as usize, deadline) {
        Ok(g) => g,
        Err(Failure::Interrupted) => return Err(Errno::EINTR.into()),
        Err(f) => return Err(f.into()),
    };
    for (i, e) in got.iter().enumerate() {
        c.write_value(events.0.wrapping_add(i as u64 * 32), e)?;
    }
    Ok(got.len() as u64)
}

pub fn io_getevents(c: &mut Current, id: u64, min: i64, max: i64, events: Ptr, timeout: Ptr) -> SysResult {
    fetch(c, id, (min, max), events, timeout)
}

pub fn io_pgetevents(
    c: &mut Current,
    id: u64,
    min: i64,
    max: i64,
    events: Ptr,
    timeout: Ptr,
    mask: Ptr,
) -> SysResult {
    let [set, size] = if mask.is_null() { [0, 0] } else { c.read_value(mask.0)? };
    crate::events::epoll::masked(c, Ptr(set), size, |c| fetch(c, id, (min, max), events, timeout))
}

pub fn io_cancel(c: &mut Current, id: u64, iocb: Ptr, _result: Ptr) -> SysResult {
    let _key: u32 = c.read_value(iocb.0.wrapping_add(8))?;
    context(c, id)?;
    // Everything that was submitted is done.
    Err(Errno::EINVAL.into())
}
