//! The protocol of /dev/fuse as bytes: numbers and structures of linux/fuse.h, and the checks of a daemon's answers.
//! Pure.
//!
//! All input was written by a daemon, which is not trusted. Each function checks everything that the kernel relies on
//! later, and answers EIO for a refused value, as Linux does.

use abi::time::Timespec;
use abi::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version that the kernel speaks: FUSE_KERNEL_VERSION, FUSE_KERNEL_MINOR_VERSION.
pub const MAJOR: u32 = 7;
/// See [`MAJOR`].
pub const MINOR: u32 = 38;
/// Node of the root directory.
pub const ROOT: u64 = 1;
/// Longest name that a daemon may list or be asked for.
pub const NAME_MAX: usize = 4095;
/// Smallest buffer that read(2) of the device takes.
pub const MIN_READ: usize = 8192;
/// Bytes of `struct fuse_in_header` and `struct fuse_out_header`.
pub const IN_HEADER: usize = 40;
/// See [`IN_HEADER`].
pub const OUT_HEADER: usize = 16;
/// Errors that a daemon may answer are above this one.
const MAX_ERROR: i32 = 512;

/// Operations.
#[expect(missing_docs, reason = "the names of linux/fuse.h")]
pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
}

/// Flags of FUSE_INIT that the kernel implements.
#[expect(missing_docs, reason = "the names of linux/fuse.h")]
pub mod init {
    pub const BIG_WRITES: u32 = 1 << 5;
    pub const DONT_MASK: u32 = 1 << 6;
    pub const SPLICE_WRITE: u32 = 1 << 7;
    pub const SPLICE_MOVE: u32 = 1 << 8;
    pub const SPLICE_READ: u32 = 1 << 9;
    pub const DO_READDIRPLUS: u32 = 1 << 13;
    pub const READDIRPLUS_AUTO: u32 = 1 << 14;
    /// The kernel keeps times of files that are written. What is written goes to the daemon at once all the same.
    pub const WRITEBACK_CACHE: u32 = 1 << 16;
    pub const NO_OPEN_SUPPORT: u32 = 1 << 17;
    pub const PARALLEL_DIROPS: u32 = 1 << 18;
    pub const MAX_PAGES: u32 = 1 << 22;
    pub const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
    /// All that are offered.
    pub const OFFERED: u32 = BIG_WRITES
        | DONT_MASK
        | SPLICE_WRITE
        | SPLICE_MOVE
        | SPLICE_READ
        | WRITEBACK_CACHE
        | DO_READDIRPLUS
        | READDIRPLUS_AUTO
        | NO_OPEN_SUPPORT
        | PARALLEL_DIROPS
        | MAX_PAGES
        | NO_OPENDIR_SUPPORT;
}

/// FATTR_*: which attributes FUSE_SETATTR changes.
#[expect(missing_docs, reason = "the names of linux/fuse.h")]
pub mod fattr {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
}

/// FOPEN_DIRECT_IO.
pub const OPEN_DIRECT_IO: u32 = 1;
/// FOPEN_NONSEEKABLE.
pub const OPEN_NONSEEKABLE: u32 = 1 << 2;
/// FOPEN_STREAM.
pub const OPEN_STREAM: u32 = 1 << 4;

/// What a daemon writes without having been asked.
#[expect(missing_docs, reason = "the names of linux/fuse.h")]
pub mod notify {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const DELETE: i32 = 6;
}

macro_rules! structs { ($($(#[$doc:meta])* $name:ident { $($field:ident: $t:ty),* $(,)? })*) => {
    $($(#[$doc])*
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    #[expect(missing_docs, reason = "the names of linux/fuse.h")]
    pub struct $name { $(pub $field: $t),* })*
} }

structs! {
    /// `struct fuse_in_header`
    InHeader { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16 }
    /// `struct fuse_out_header`
    OutHeader { len: u32, error: i32, unique: u64 }
    /// `struct fuse_attr`
    RawAttr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// `struct fuse_entry_out`
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: RawAttr,
    }
    /// `struct fuse_attr_out`
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: RawAttr }
    /// `struct fuse_getattr_in`
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    /// `struct fuse_setattr_in`
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// `struct fuse_mknod_in`
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// `struct fuse_mkdir_in`
    MkdirIn { mode: u32, umask: u32 }
    /// `struct fuse_rename_in`
    RenameIn { newdir: u64 }
    /// `struct fuse_rename2_in`
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    /// `struct fuse_link_in`
    LinkIn { oldnodeid: u64 }
    /// `struct fuse_open_in`
    OpenIn { flags: u32, open_flags: u32 }
    /// `struct fuse_create_in`
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// `struct fuse_open_out`
    OpenOut { fh: u64, open_flags: u32, padding: u32 }
    /// `struct fuse_release_in`
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// `struct fuse_flush_in`
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// `struct fuse_read_in`
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// `struct fuse_write_in`
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// `struct fuse_write_out`
    WriteOut { size: u32, padding: u32 }
    /// `struct fuse_kstatfs`
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    /// `struct fuse_fsync_in`
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    /// `struct fuse_setxattr_in` without what FUSE_SETXATTR_EXT adds
    SetxattrIn { size: u32, flags: u32 }
    /// `struct fuse_getxattr_in` and `struct fuse_getxattr_out`
    GetxattrIn { size: u32, padding: u32 }
    /// `struct fuse_access_in`
    AccessIn { mask: u32, padding: u32 }
    /// `struct fuse_init_in`
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }
    /// `struct fuse_init_out`
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    /// `struct fuse_interrupt_in`
    InterruptIn { unique: u64 }
    /// `struct fuse_forget_in`
    ForgetIn { nlookup: u64 }
    /// `struct fuse_forget_one`
    ForgetOne { nodeid: u64, nlookup: u64 }
    /// `struct fuse_batch_forget_in`
    BatchForgetIn { count: u32, dummy: u32 }
    /// `struct fuse_fallocate_in`
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// `struct fuse_lseek_in`
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// `struct fuse_lseek_out`
    LseekOut { offset: u64 }
    /// `struct fuse_copy_file_range_in`
    CopyFileRangeIn { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 }
    /// `struct fuse_dirent` without the name
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    /// `struct fuse_notify_inval_inode_out`
    InvalInode { ino: u64, off: i64, len: i64 }
    /// `struct fuse_notify_inval_entry_out`
    InvalEntry { parent: u64, namelen: u32, flags: u32 }
    /// `struct fuse_notify_delete_out`
    Delete { parent: u64, child: u64, namelen: u32, padding: u32 }
}

/// How many bytes an answer without error may have besides its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// So many at least.
    pub fixed: usize,
    /// So many more at most.
    pub variable: usize,
}

impl Room {
    /// Exactly a structure.
    pub const fn of<T>() -> Room {
        Room { fixed: size_of::<T>(), variable: 0 }
    }
    /// Nothing.
    pub const NONE: Room = Room { fixed: 0, variable: 0 };
    /// Up to so many bytes.
    pub const fn up_to(most: usize) -> Room {
        Room { fixed: 0, variable: most }
    }
    fn fits(self, len: usize) -> bool {
        (self.fixed..=self.fixed + self.variable).contains(&len)
    }
}

/// What write(2) of the device carries.
#[derive(Debug, PartialEq, Eq)]
pub enum Written<'a> {
    /// The answer to a request.
    Reply {
        /// Which request.
        unique: u64,
        /// The error, or the bytes behind the header.
        result: std::result::Result<&'a [u8], Errno>,
    },
    /// A message of the daemon's own.
    Notice {
        /// FUSE_NOTIFY_*.
        code: i32,
        /// The bytes behind the header.
        body: &'a [u8],
    },
}

/// Splits what a daemon writes. EINVAL.
pub fn written(bytes: &[u8]) -> Result<Written<'_>> {
    let (h, body) = OutHeader::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
    if h.len as usize != bytes.len() {
        return Err(Errno::EINVAL);
    }
    if h.unique == 0 {
        return Ok(Written::Notice { code: h.error, body });
    }
    let result = match h.error {
        0 => Ok(body),
        e if e > 0 || e <= -MAX_ERROR => return Err(Errno::EINVAL),
        e => Err(Errno::from_raw(-e)),
    };
    Ok(Written::Reply { unique: h.unique, result })
}

/// Whether an answer has the length that its request allows.
pub fn has_room(room: Room, result: &std::result::Result<&[u8], Errno>, all: usize) -> bool {
    match result {
        Ok(body) => room.fits(body.len()),
        Err(_) => all == OUT_HEADER,
    }
}

/// A structure at the start of an answer, and what follows. EIO.
pub fn decode<T: FromBytes>(body: &[u8]) -> Result<(T, &[u8])> {
    T::read_from_prefix(body).map_err(|_| Errno::EIO)
}

/// What a daemon agrees to in its answer to FUSE_INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Agreed {
    /// Minor version: the smaller of both.
    pub minor: u32,
    /// Bytes of a FUSE_WRITE.
    pub max_write: u32,
    /// Pages of any transfer.
    pub max_pages: u32,
    /// Flags of FUSE_INIT that both know.
    pub flags: u32,
}

/// Pages of a transfer without FUSE_MAX_PAGES, and with it at most. Linux allows 256; a request fits a message of one MiB here.
pub const DEFAULT_PAGES: u32 = 32;
/// See [`DEFAULT_PAGES`].
pub const MAX_PAGES: u32 = 128;
/// Bytes of a page.
pub const PAGE: u32 = 4096;

/// Judges the answer to FUSE_INIT. `None` when the daemon speaks another protocol.
pub fn agree(body: &[u8]) -> Option<Agreed> {
    let mut whole = [0; size_of::<InitOut>()];
    let n = body.len().min(whole.len());
    whole[..n].copy_from_slice(&body[..n]);
    let out = InitOut::read_from_bytes(&whole).ok()?;
    // Before 7.23 the answer had 24 bytes, before 7.5 eight.
    if n < 8 || out.major != MAJOR || out.minor < 12 || n < 24 {
        return None;
    }
    let flags = out.flags & init::OFFERED;
    let max_pages = match flags & init::MAX_PAGES {
        0 => DEFAULT_PAGES,
        _ => u32::from(out.max_pages).clamp(1, MAX_PAGES),
    };
    let one = if flags & init::BIG_WRITES == 0 { PAGE } else { max_pages * PAGE };
    Some(Agreed {
        minor: out.minor.min(MINOR),
        max_write: out.max_write.clamp(PAGE, one.max(PAGE)),
        max_pages,
        flags,
    })
}

/// How long something that a daemon answered may be believed.
pub fn valid_ns(sec: u64, nsec: u32) -> u64 {
    sec.saturating_mul(1_000_000_000).saturating_add(u64::from(nsec.min(999_999_999)))
}

fn is_type(mode: u32) -> bool {
    matches!(
        mode & libc::S_IFMT,
        libc::S_IFREG
            | libc::S_IFDIR
            | libc::S_IFLNK
            | libc::S_IFCHR
            | libc::S_IFBLK
            | libc::S_IFIFO
            | libc::S_IFSOCK
    )
}

impl RawAttr {
    /// EIO for what no inode can have.
    pub fn check(&self) -> Result<()> {
        if is_type(self.mode) && i64::try_from(self.size).is_ok() { Ok(()) } else { Err(Errno::EIO) }
    }

    /// A time of theirs.
    pub fn time(sec: u64, nsec: u32) -> Timespec {
        Timespec { sec: sec as i64, nsec: i64::from(nsec.min(999_999_999)) }
    }
}

/// Device number as a daemon has it, in 32 bits, and back.
pub fn device(rdev: u32) -> u64 {
    abi::stat::makedev(rdev >> 8 & 0xfff, rdev & 0xff | rdev >> 12 & 0xf_ff00)
}

/// See [`device`].
pub fn raw_device(rdev: u64) -> u32 {
    let (major, minor) = (abi::stat::major(rdev), abi::stat::minor(rdev));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// An entry of a directory as a daemon lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// What FUSE_READDIRPLUS adds.
    pub entry: Option<EntryOut>,
    /// Inode number.
    pub ino: u64,
    /// Where the next one begins.
    pub off: u64,
    /// DT_*.
    pub kind: u8,
    /// Name.
    pub name: &'a [u8],
}

/// The entries of an answer to FUSE_READDIR, or with `plus` to FUSE_READDIRPLUS; one that is cut off ends them. EIO for names
/// that no entry can have.
pub fn listed(mut bytes: &[u8], plus: bool) -> impl Iterator<Item = Result<Listed<'_>>> {
    std::iter::from_fn(move || {
        let mut rest = bytes;
        let mut entry = None;
        if plus {
            let (found, after) = EntryOut::read_from_prefix(rest).ok()?;
            entry = Some(found);
            rest = after;
        }
        let (d, after) = Dirent::read_from_prefix(rest).ok()?;
        let len = d.namelen as usize;
        if len == 0 || len > NAME_MAX {
            bytes = &[];
            return Some(Err(Errno::EIO));
        }
        let whole = (bytes.len() - after.len() + len).next_multiple_of(8);
        let next = bytes.get(whole..);
        let name = after.get(..len)?;
        let next = next?;
        bytes = next;
        if name.iter().any(|&b| b == b'/' || b == 0) {
            bytes = &[];
            return Some(Err(Errno::EIO));
        }
        Some(Ok(Listed { entry, ino: d.ino, off: d.off, kind: (d.kind & 15) as u8, name }))
    })
}
