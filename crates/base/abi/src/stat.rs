//! File attributes: the superset of stat(2) and statx(2), and its C layouts.

use crate::time::Timespec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The file type bits of a mode, inode(7).
pub const S_IFMT: u32 = 0o170000;
/// Directory.
pub const S_IFDIR: u32 = 0o040000;
/// Regular file.
pub const S_IFREG: u32 = 0o100000;
/// Symbolic link.
pub const S_IFLNK: u32 = 0o120000;
/// Character device.
pub const S_IFCHR: u32 = 0o020000;
/// Block device.
pub const S_IFBLK: u32 = 0o060000;
/// Named pipe.
pub const S_IFIFO: u32 = 0o010000;
/// Socket.
pub const S_IFSOCK: u32 = 0o140000;

/// Device number from major and minor, in the kernel's 64-bit user encoding.
pub const fn makedev(major: u32, minor: u32) -> u64 {
    let (a, b) = (major as u64, minor as u64);
    (a & 0xfff) << 8 | (a & !0xfff) << 32 | (b & 0xff) | (b & !0xff) << 12
}
/// Major part of a device number.
pub const fn major(dev: u64) -> u32 {
    ((dev >> 8 & 0xfff) | (dev >> 32 & !0xfff)) as u32
}
/// Minor part of a device number.
pub const fn minor(dev: u64) -> u32 {
    ((dev & 0xff) | (dev >> 12 & !0xff)) as u32
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Attr {
    /// Device of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Type and permission bits (S_IFMT | 07777).
    pub mode: u32,
    /// Hard links.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a special file.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Preferred I/O size.
    pub blksize: u32,
    /// 512-byte blocks.
    pub blocks: u64,
    /// Last access.
    pub atime: Timespec,
    /// Last content change.
    pub mtime: Timespec,
    /// Last attribute change.
    pub ctime: Timespec,
    /// Creation, when the file system records it.
    pub btime: Option<Timespec>,
}

impl Attr {
    /// The S_IFMT part of the mode.
    pub const fn file_type(&self) -> u32 {
        self.mode & 0o170000
    }
    /// True for directories.
    pub const fn is_dir(&self) -> bool {
        self.file_type() == 0o040000
    }
    /// True for symbolic links.
    pub const fn is_symlink(&self) -> bool {
        self.file_type() == 0o120000
    }
    /// The C `struct stat` of x86-64.
    pub fn to_stat(&self) -> Stat {
        Stat {
            dev: self.dev,
            ino: self.ino,
            nlink: self.nlink,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            pad0: 0,
            rdev: self.rdev,
            size: self.size as i64,
            blksize: self.blksize as i64,
            blocks: self.blocks as i64,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            unused: [0; 3],
        }
    }
}

/// `struct stat` of x86-64, 144 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[expect(missing_docs, reason = "fields carry the names stat(2) gives them")]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub pad0: u32,
    pub rdev: u64,
    pub size: i64,
    pub blksize: i64,
    pub blocks: i64,
    pub atime: Timespec,
    pub mtime: Timespec,
    pub ctime: Timespec,
    pub unused: [i64; 3],
}

/// `struct statfs` of x86-64, 120 bytes. See statfs(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[expect(missing_docs, reason = "fields carry the names statfs(2) gives them")]
pub struct StatFs {
    pub f_type: i64,
    pub f_bsize: i64,
    pub f_blocks: u64,
    pub f_bfree: u64,
    pub f_bavail: u64,
    pub f_files: u64,
    pub f_ffree: u64,
    pub f_fsid: [i32; 2],
    pub f_namelen: i64,
    pub f_frsize: i64,
    pub f_flags: i64,
    pub f_spare: [i64; 4],
}
