//! An open loop device: its bytes, and the requests of loop(4) and of block devices.

use crate::device::{Bound, DIRECT_IO, Loop, READ_ONLY, SECTOR};
use crate::info::{Config, Info, Info64};
use abi::{Errno, Result};
use caller::UserMemory;
use rights::Cap;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Caller, FileOps, OpenFile, SeekOps, StorageOps};

const LOOP_SET_FD: u32 = 0x4c00;
const LOOP_CLR_FD: u32 = 0x4c01;
const LOOP_SET_STATUS: u32 = 0x4c02;
const LOOP_GET_STATUS: u32 = 0x4c03;
const LOOP_SET_STATUS64: u32 = 0x4c04;
const LOOP_GET_STATUS64: u32 = 0x4c05;
const LOOP_CHANGE_FD: u32 = 0x4c06;
const LOOP_SET_CAPACITY: u32 = 0x4c07;
const LOOP_SET_DIRECT_IO: u32 = 0x4c08;
const LOOP_SET_BLOCK_SIZE: u32 = 0x4c09;
pub(crate) const LOOP_CONFIGURE: u32 = 0x4c0a;
/// Requests that name a file by a descriptor.
pub(crate) const ATTACHING: [u32; 3] = [LOOP_SET_FD, LOOP_CHANGE_FD, LOOP_CONFIGURE];

const BLKROSET: u32 = 0x125d;
const BLKROGET: u32 = 0x125e;
const BLKRRPART: u32 = 0x125f;
const BLKGETSIZE: u32 = 0x1260;
const BLKFLSBUF: u32 = 0x1261;
const BLKRASET: u32 = 0x1262;
const BLKRAGET: u32 = 0x1263;
const BLKSECTGET: u32 = 0x1267;
const BLKSSZGET: u32 = 0x1268;
const BLKDISCARD: u32 = 0x1277;
const BLKIOMIN: u32 = 0x1278;
const BLKIOOPT: u32 = 0x1279;
const BLKALIGNOFF: u32 = 0x127a;
const BLKPBSZGET: u32 = 0x127b;
const BLKDISCARDZEROES: u32 = 0x127c;
const BLKROTATIONAL: u32 = 0x127e;
const BLKZEROOUT: u32 = 0x127f;
const BLKBSZGET: u32 = 0x8008_1270;
const BLKBSZSET: u32 = 0x4008_1271;
const BLKGETSIZE64: u32 = 0x8008_1272;

/// FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE.
const PUNCH: i32 = 3;

/// An open file of a device.
pub(crate) struct BlockFile {
    pub(crate) device: Arc<Loop>,
}

impl BlockFile {
    /// Opens a device.
    pub(crate) fn open(device: Arc<Loop>) -> BlockFile {
        device.opened();
        BlockFile { device }
    }

    /// Bytes of the device; 0 without a file.
    fn len(&self) -> u64 {
        self.device.bound().map_or(0, |bound| bound.size)
    }

    /// How many of `len` bytes at `off` the device has.
    fn room(bound: &Bound, off: u64, len: usize) -> usize {
        bound.size.saturating_sub(off).min(len as u64) as usize
    }

    /// A request that names a file.
    pub(crate) fn attach(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        mem: &mut dyn UserMemory,
        (cmd, arg): (u32, u64),
        backing: &Arc<OpenFile>,
    ) -> Result<()> {
        match cmd {
            LOOP_SET_FD => self.device.bind(Bound::new(backing, file.writable())?),
            LOOP_CONFIGURE => {
                let config: Config = mem.read_value(arg)?;
                let mut bound = Bound::new(backing, file.writable())?;
                bound.set(&config.info)?;
                bound.info.flags |= config.info.flags & (READ_ONLY | DIRECT_IO);
                if config.block_size != 0 {
                    bound.block_size = Bound::check_block_size(config.block_size.into())?;
                }
                self.device.bind(bound)
            }
            LOOP_CHANGE_FD => {
                may_set(cx, file)?;
                let new = Bound::new(backing, false)?;
                self.device.change(|bound| {
                    // Only below a read-only device, and only by a file of the same size.
                    if bound.info.flags & READ_ONLY == 0 {
                        return Err(Errno::EINVAL);
                    }
                    let size = bound.size;
                    bound.file = new.file;
                    bound.measure()?;
                    if bound.size == size { Ok(()) } else { Err(Errno::EINVAL) }
                })
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn loop_request(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<()> {
        let status = || self.device.bound().ok_or(Errno::ENXIO)?.status(self.device.number);
        match cmd {
            LOOP_CLR_FD => self.device.clear(),
            LOOP_GET_STATUS => {
                let old = Info::of_64(&status()?).ok_or(Errno::EOVERFLOW)?;
                mem.write_value(arg, &old)
            }
            LOOP_GET_STATUS64 => mem.write_value(arg, &status()?),
            LOOP_SET_STATUS | LOOP_SET_STATUS64 => {
                may_set(cx, file)?;
                let wanted: Info64 = match cmd {
                    LOOP_SET_STATUS => mem.read_value::<Info>(arg)?.to_64(),
                    _ => mem.read_value(arg)?,
                };
                self.device.change(|bound| bound.set(&wanted))
            }
            LOOP_SET_CAPACITY => {
                may_set(cx, file)?;
                self.device.change(Bound::measure)
            }
            LOOP_SET_DIRECT_IO => {
                may_set(cx, file)?;
                self.device.change(|bound| {
                    let on = if arg != 0 { DIRECT_IO } else { 0 };
                    bound.info.flags = bound.info.flags & !DIRECT_IO | on;
                    Ok(())
                })
            }
            LOOP_SET_BLOCK_SIZE => {
                may_set(cx, file)?;
                let size = Bound::check_block_size(arg)?;
                self.device.change(|bound| {
                    bound.block_size = size;
                    Ok(())
                })
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Requests that every block device answers.
    fn block_request(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<()> {
        let bound = self.device.bound();
        let block = bound.as_ref().map_or(SECTOR as u32, |bound| bound.block_size);
        let admin = || if cx.creds().capable(Cap::SYS_ADMIN) { Ok(()) } else { Err(Errno::EACCES) };
        match cmd {
            BLKGETSIZE64 => mem.write_value(arg, &self.len()),
            BLKGETSIZE => mem.write_value(arg, &(self.len() / SECTOR)),
            BLKSSZGET | BLKPBSZGET | BLKIOMIN => mem.write_value(arg, &block),
            BLKBSZGET => mem.write_value(arg, &4096u32),
            BLKIOOPT | BLKALIGNOFF | BLKDISCARDZEROES => mem.write_value(arg, &0u32),
            BLKSECTGET => mem.write_value(arg, &2560u16),
            BLKROTATIONAL => mem.write_value(arg, &0u16),
            BLKRAGET => mem.write_value(arg, &self.device.read_ahead.load(Ordering::Relaxed)),
            BLKRASET => {
                admin()?;
                self.device.read_ahead.store(arg, Ordering::Relaxed);
                Ok(())
            }
            BLKBSZSET => {
                admin()?;
                let size: i32 = mem.read_value(arg)?;
                let size = u64::try_from(size).map_err(|_| Errno::EINVAL)?;
                if Bound::check_block_size(size)? < block { Err(Errno::EINVAL) } else { Ok(()) }
            }
            BLKROGET => {
                let on = bound.is_some_and(|bound| bound.info.flags & READ_ONLY != 0);
                mem.write_value(arg, &i32::from(on))
            }
            BLKROSET => {
                admin()?;
                let on: i32 = mem.read_value(arg)?;
                self.device.change(|bound| {
                    let writable = bound.file.writable();
                    let flag = if on != 0 || !writable { READ_ONLY } else { 0 };
                    bound.info.flags = bound.info.flags & !READ_ONLY | flag;
                    Ok(())
                })
            }
            BLKFLSBUF => {
                admin()?;
                bound.map_or(Ok(()), |bound| bound.file.ops.sync(cx, &bound.file, false))
            }
            BLKRRPART => Err(Errno::EINVAL),
            BLKDISCARD | BLKZEROOUT => {
                let range: [u64; 2] = mem.read_value(arg)?;
                self.clear_range(cx, file, range)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    /// BLKDISCARD, BLKZEROOUT: both leave zeros.
    fn clear_range(&self, cx: &dyn Caller, file: &OpenFile, [start, len]: [u64; 2]) -> Result<()> {
        if !file.writable() {
            return Err(Errno::EBADF);
        }
        let bound = self.device.bound().ok_or(Errno::EINVAL)?;
        let end = start.checked_add(len).ok_or(Errno::EINVAL)?;
        if (start | len) % SECTOR != 0 || len == 0 || end > bound.size {
            return Err(Errno::EINVAL);
        }
        if bound.info.flags & READ_ONLY != 0 {
            return Err(Errno::EPERM);
        }
        bound.file.ops.allocate(cx, &bound.file, PUNCH, bound.info.offset + start, len)
    }
}

/// The right to change a device: an open file for writing, and CAP_SYS_ADMIN.
fn may_set(cx: &dyn Caller, file: &OpenFile) -> Result<()> {
    if file.writable() || cx.creds().capable(Cap::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        self.device.closed();
    }
}

impl FileOps for BlockFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        let Some(bound) = self.device.bound() else { return Ok(0) };
        let len = Self::room(&bound, off, buf.len());
        if len == 0 {
            return Ok(0);
        }
        let buf = &mut buf[..len];
        let done = bound.file.ops.read(cx, &bound.file, buf, bound.info.offset + off)?;
        // The file has become shorter than the device.
        if done == 0 { Err(Errno::EIO) } else { Ok(done) }
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], off: u64) -> Result<usize> {
        let bound = self.device.bound().ok_or(Errno::ENOSPC)?;
        if bound.info.flags & READ_ONLY != 0 {
            return Err(Errno::EPERM);
        }
        let len = Self::room(&bound, off, buf.len());
        if len == 0 && !buf.is_empty() {
            return Err(Errno::ENOSPC);
        }
        bound.file.ops.write(cx, &bound.file, &buf[..len], bound.info.offset + off)
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        match cmd >> 8 {
            0x4c => self.loop_request(cx, file, mem, cmd, arg)?,
            _ => self.block_request(cx, file, mem, cmd, arg)?,
        }
        Ok(0)
    }
}

impl SeekOps for BlockFile {
    fn append(&self, cx: &dyn Caller, file: &OpenFile, buf: &[u8]) -> Result<(usize, u64)> {
        let end = self.len();
        let n = self.write(cx, file, buf, end)?;
        Ok((n, end + n as u64))
    }
    fn size(&self, _file: &OpenFile) -> Result<u64> {
        Ok(self.len())
    }
}

impl StorageOps for BlockFile {
    fn sync(&self, cx: &dyn Caller, _file: &OpenFile, data_only: bool) -> Result<()> {
        let bound = self.device.bound();
        bound.map_or(Ok(()), |bound| bound.file.ops.sync(cx, &bound.file, data_only))
    }
    fn direct(&self) -> bool {
        true
    }
}
